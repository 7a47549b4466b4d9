"""Models of spectra, and the networks that they are made of."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from popfit import _popfit
from popfit._arrays import lendable, without_unit
from popfit._checks import check_integer, check_switch, is_number
from popfit._errors import InputError
from popfit.spectra import Path, Spectra, as_spectra

if TYPE_CHECKING:
    from popfit.table import FitTable

#: Seed of the first guess, as the command has it.
DEFAULT_SEED = 3
#: Largest seed.
MAX_SEED = 2**64 - 1

#: Facet distances of a convex hull in scaled labels: indices of its axes, and the facets' normals and offsets.
Hull: TypeAlias = tuple[Sequence[int], npt.ArrayLike]


class Emulator:
    """A neural network that predicts the spectrum of labels such as effective temperature and metallicity.

    `open` reads a file, `from_layers` takes arrays, `from_torch` a module of PyTorch.
    """

    _emulator: _popfit.Emulator

    def __init__(self) -> None:
        raise TypeError("use Emulator.open, Emulator.from_layers or Emulator.from_torch")

    @classmethod
    def _of(cls, emulator: _popfit.Emulator) -> Emulator:
        wrapper = cls.__new__(cls)
        wrapper._emulator = emulator
        return wrapper

    @classmethod
    def open(cls, path: Path) -> Emulator:
        """Read a network: popfit's own file (safetensors), or The Payne's (NPZ).

        Parameters
        ----------
        path : path
            File of the network.

        Raises
        ------
        FileNotFoundError, PermissionError
            If the file cannot be opened.
        InputError
            If the file is not of a network that popfit reads.
        """
        return cls._of(_popfit.Emulator.open(os.fspath(path)))

    @classmethod
    def from_layers(
        cls,
        labels: Sequence[Mapping[str, Any]],
        weights: Sequence[npt.ArrayLike],
        biases: Sequence[npt.ArrayLike],
        *,
        activation: str,
        output: str = "identity",
        wavelength: npt.ArrayLike,
        hulls: Sequence[Hull] | None = None,
    ) -> Emulator:
        """Make a network of its layers.

        Parameters
        ----------
        labels : sequence of mappings
            For each label ``name``, ``min`` and ``max`` (its range in the training set), ``mean`` and ``std``: the
            network sees (label − mean)/std. If wanted ``unit``, and ``transform="log10"`` where the network sees the
            scaled logarithm. The keys are those of popfit's file.
        weights : sequence of array_like, (outputs, inputs)
            Weights of the layers, as PyTorch has them.
        biases : sequence of array_like, (outputs,)
            Biases of the layers.
        activation : str
            Function of the hidden layers: "silu", "leaky_relu", "relu", "sigmoid", "tanh" or "gelu".
        output : str
            Function of the last layer: "identity", or "exp" for networks that predict the logarithm of the flux.
        wavelength : array_like or quantity, (pixels,)
            Wavelengths in vacuum, in Å or with a unit, uniform in ln λ in one or more pieces.
        hulls : sequence of hulls, optional
            Convex hulls of the training set in scaled labels: for each the indices of its labels, and facets.

        Raises
        ------
        InputError
            If layers do not fit each other, or the wavelengths are not on such a grid.

        Examples
        --------
        >>> import numpy as np, popfit
        >>> labels = [{"name": "teff", "unit": "K", "min": 4000, "max": 7000, "mean": 5500, "std": 900}]
        >>> wavelength = 5000 * np.exp(1e-4 * np.arange(30))
        >>> weights, biases = [np.ones((8, 1)), np.ones((30, 8))], [np.zeros(8), np.zeros(30)]
        >>> popfit.Emulator.from_layers(labels, weights, biases, activation="silu", wavelength=wavelength)
        <popfit.Emulator: teff → 30 pixels, 5000.0–5014.5 Å>
        """
        for name, parts in (("labels", labels), ("weights", weights), ("biases", biases)):
            if isinstance(parts, str | Mapping) or not hasattr(parts, "__len__"):
                raise InputError(f"{name}: {type(parts).__name__}; give a sequence", argument=name)
        for name, function in (("activation", activation), ("output", output)):
            if not isinstance(function, str):
                raise InputError(f"{name}: {function!r}; give the name of a function", argument=name)
        given_labels = [_given_label(label) for label in labels]
        if len(weights) != len(biases):
            raise InputError(f"biases: {len(biases)}, but there are {len(weights)} weights", argument="biases")
        given_biases = [_real_array("biases", f"biases[{k}]", bias) for k, bias in enumerate(biases)]
        given_weights = [_real_array("weights", f"weights[{k}]", weight) for k, weight in enumerate(weights)]
        inputs = len(given_labels)
        for k, (weight, bias) in enumerate(zip(given_weights, given_biases, strict=True)):
            if bias.ndim != 1:
                raise InputError(f"biases[{k}] has the shape {bias.shape}, not ({bias.size},)", argument="biases")
            if weight.shape != (bias.size, inputs):
                raise InputError(
                    f"weights[{k}] has the shape {weight.shape}, not {(bias.size, inputs)}", argument="weights"
                )
            inputs = bias.size
        grid = _real_array("wavelength", "wavelength", without_unit(wavelength, "Angstrom"))
        if grid.ndim != 1:
            raise InputError(f"wavelength has the shape {grid.shape}, not ({grid.size},)", argument="wavelength")
        return cls._of(
            _popfit.Emulator.from_layers(
                given_labels,
                [np.ascontiguousarray(weight, dtype=np.float32) for weight in given_weights],
                [np.ascontiguousarray(bias, dtype=np.float32) for bias in given_biases],
                (activation, output),
                np.ascontiguousarray(grid, dtype=np.float64),
                [
                    ([int(axis) for axis in axes], _real_array("hulls", "hulls", facets).ravel().astype(float).tolist())
                    for axes, facets in hulls or ()
                ],
            )
        )

    @classmethod
    def from_torch(
        cls,
        module: Any,
        labels: Sequence[Mapping[str, Any]],
        *,
        wavelength: npt.ArrayLike,
        output: str = "identity",
        hulls: Sequence[Hull] | None = None,
    ) -> Emulator:
        """Make a network of a module of PyTorch: a sequence of linear layers with one kind of activation between them.

        Where PyTorch is imported, the network is compared with the module at two sets of labels.

        Parameters
        ----------
        module : torch.nn.Module
            The network, such as a ``torch.nn.Sequential`` of ``Linear``, ``SiLU``, …, ``Linear``. It sees the scaled
            labels (n, labels). ``Dropout`` and ``Identity`` do nothing.
        labels, wavelength, output, hulls
            As in `from_layers`.

        Raises
        ------
        InputError
            If the module has other layers, several kinds of activations or another order, or computes something else
            than such a sequence does.
        """
        if not hasattr(module, "named_modules"):
            raise InputError(f"module: {type(module).__name__}; give a torch.nn.Module", argument="module")
        weights, biases, activation = _torch_layers(module)
        emulator = cls.from_layers(
            labels, weights, biases, activation=activation, output=output, wavelength=wavelength, hulls=hulls
        )
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(module, torch.nn.Module):
            _compare_with_module(emulator, module, labels, output)
        return emulator

    @property
    def labels(self) -> dict[str, tuple[float, float]]:
        """Names of the labels, and their ranges in the training set."""
        return {name: (low, high) for name, _, low, high in self._emulator.labels}

    @property
    def wavelength(self) -> npt.NDArray[np.float64]:
        """Wavelengths (pixels,) in vacuum, in Å."""
        return self._emulator.wavelength

    def spectra(self, labels: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Predict the spectra of labels.

        Parameters
        ----------
        labels : array_like, (n, labels) or (labels,)
            Labels in physical units, in the order of `labels`.

        Returns
        -------
        numpy.ndarray
            Spectra (n, pixels), or (pixels,) of one set of labels, in float32.

        Raises
        ------
        InputError
            If `labels` has another number of columns.
        """
        given = _real_array("labels", "labels", labels).astype(np.float64)
        if given.ndim not in (1, 2):
            raise InputError(f"labels has the shape {given.shape}, not (n, {len(self.labels)})", argument="labels")
        spectra = self._emulator.spectra(np.ascontiguousarray(np.atleast_2d(given)))
        return spectra[0] if given.ndim == 1 else spectra

    def write(self, path: Path, *, overwrite: bool = False) -> None:
        """Write the network to a file in popfit's format (safetensors).

        Parameters
        ----------
        path : path
            File to write.
        overwrite : bool
            True to replace a file that exists.

        Raises
        ------
        FileExistsError
            If the file exists, and `overwrite` is false.
        """
        self._emulator.write(os.fspath(path), overwrite)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the network by the bytes of its file."""
        return _emulator_of_bytes, (self._emulator.source, self._emulator.to_bytes())

    def __repr__(self) -> str:
        """Return labels and wavelengths."""
        grid = self.wavelength
        return f"<popfit.Emulator: {', '.join(self.labels)} → {len(grid)} pixels, {grid[0]:.1f}–{grid[-1]:.1f} Å>"


#: Activations of PyTorch by the names of their classes, with popfit's names.
_TORCH_ACTIVATIONS = {
    "SiLU": "silu",
    "LeakyReLU": "leaky_relu",
    "ReLU": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "GELU": "gelu",
}
#: Layers of PyTorch that do nothing when spectra are predicted.
_TORCH_IDLE = ("Dropout", "Identity")
#: Largest difference between a network and the module that it was made of, relative to the largest value.
_TORCH_TOLERANCE = 1e-4

Array: TypeAlias = npt.NDArray[Any]


def _real_array(argument: str, name: str, values: object) -> Array:
    """Return an array of real numbers; raises `InputError`, with the name of the argument, for others."""
    try:
        array = lendable(name, values)
    except InputError as error:
        error.argument = argument
        raise
    if isinstance(array, tuple):
        raise InputError(f"{name}: texts; give real numbers", argument=argument)
    return array


def _given_label(label: Mapping[str, Any]) -> tuple[str, str, tuple[float, float], tuple[float, float], bool]:
    """Return a label of `Emulator.from_layers` for Rust."""
    if not isinstance(label, Mapping):
        raise InputError(f"labels: {type(label).__name__} {label!r}; give a mapping for each label", argument="labels")
    needed = {"name", "min", "max", "mean", "std"}
    if not needed <= set(label) <= needed | {"unit", "transform"}:
        raise InputError(
            "labels: a label has name, min, max, mean, std, and if wanted unit and transform, not "
            + ", ".join(sorted(map(str, label))),
            argument="labels",
        )
    for key in ("min", "max", "mean", "std"):
        if not is_number(label[key]):
            raise InputError(f"labels: {label['name']}: {key}: {label[key]!r}; give a number", argument="labels")
    transform = label.get("transform", "identity")
    if transform not in ("identity", "log10"):
        raise InputError(f'labels: transform {transform!r}; give "identity" or "log10"', argument="labels")
    limits = (float(label["min"]), float(label["max"]))
    scaling = (float(label["mean"]), float(label["std"]))
    return str(label["name"]), str(label.get("unit", "")), limits, scaling, transform == "log10"


def _torch_layers(module: Any) -> tuple[list[Array], list[Array], str]:
    """Return weights, biases and the activation of a module of PyTorch that is a sequence of linear layers."""
    # Layers that a sequence has twice are two layers, so duplicates are kept.
    leaves = [part for _, part in module.named_modules(remove_duplicate=False) if not list(part.children())]
    leaves = [leaf for leaf in leaves if type(leaf).__name__ not in _TORCH_IDLE]
    kinds = [type(leaf).__name__ for leaf in leaves]
    for leaf, kind in zip(leaves, kinds, strict=True):
        if kind != "Linear" and kind not in _TORCH_ACTIVATIONS:
            raise InputError(f"module: a layer {kind}, which popfit does not have", argument="module")
        if kind == "LeakyReLU" and leaf.negative_slope != 0.01:
            raise InputError(
                f"module: LeakyReLU({leaf.negative_slope}); popfit has the slope 0.01 alone", argument="module"
            )
        if kind == "GELU" and getattr(leaf, "approximate", "none") != "none":
            raise InputError(
                f'module: GELU(approximate="{leaf.approximate}"); popfit has approximate="none" alone',
                argument="module",
            )
    activations = sorted(set(kinds) - {"Linear"})
    if len(activations) != 1:
        raise InputError(f"module: activations {activations}; popfit has one kind per network", argument="module")
    if len(kinds) % 2 == 0 or any((kind == "Linear") != (k % 2 == 0) for k, kind in enumerate(kinds)):
        raise InputError(
            f"module: the layers {', '.join(kinds)}; popfit has Linear, activation, Linear, …, Linear, each in the "
            "order in which the module has it (give a torch.nn.Sequential, or use Emulator.from_layers)",
            argument="module",
        )
    weights, biases = [], []
    for leaf in leaves[::2]:
        weights.append(leaf.weight.detach().cpu().float().numpy())
        no_bias = leaf.bias is None
        biases.append(np.zeros(len(weights[-1])) if no_bias else leaf.bias.detach().cpu().float().numpy())
    return weights, biases, _TORCH_ACTIVATIONS[activations[0]]


def _compare_with_module(emulator: Emulator, module: Any, labels: Sequence[Mapping[str, Any]], output: str) -> None:
    """Raise an `InputError` if a network does not predict what a module of PyTorch does, at two sets of labels."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    # 1. Labels at a third and at two thirds of the ranges, alternating, and as the module sees them
    physical, scaled = np.empty((2, len(labels))), np.empty((2, len(labels)))
    for k, label in enumerate(labels):
        is_log = label.get("transform", "identity") == "log10"
        low, high = (np.log10(label[key]) if is_log else float(label[key]) for key in ("min", "max"))
        seen = low + (high - low) * np.array([1 + k % 2, 2 - k % 2]) / 3
        physical[:, k] = 10**seen if is_log else seen
        scaled[:, k] = (seen - label["mean"]) / label["std"]
    # 2. The module without dropout, which is left as it was
    training = [(part, part.training) for _, part in module.named_modules(remove_duplicate=False)]
    weight = next(iter(module.parameters()))
    module.eval()
    try:
        with torch.no_grad():
            found = module(torch.as_tensor(scaled, dtype=weight.dtype, device=weight.device))
            found = found.detach().cpu().float().numpy()
    except Exception as error:
        raise InputError(f"module: it fails for labels (2, {len(labels)}): {error}", argument="module") from error
    finally:
        for part, was_training in training:
            part.training = was_training
    # 3. The spectra
    expected = emulator.spectra(physical)
    found = np.exp(found) if output == "exp" else found
    largest = np.abs(expected).max()
    if found.shape != expected.shape or not np.abs(found - expected).max() <= _TORCH_TOLERANCE * largest:
        raise InputError(
            "module: it computes another function than the sequence of its layers, such as a residual connection or "
            f"other activations; it differs by more than {_TORCH_TOLERANCE:g} of the largest value",
            argument="module",
        )


class SpectralModel:
    """What spectra are compared with: networks of arms, a velocity, rotation and a continuum.

    Parameters
    ----------
    arms : mapping of str to Emulator or path, or Emulator or path
        Network of each arm, or of the only one. A mapping in the place of a network has the keys of an ``[[arm]]`` of
        the model file, with the network as ``emulator``.
    velocity, vsini : (float, float), float, quantity or mapping, optional
        Range in km/s of a free parameter, a number that is known, or the keys of the model file's table. Without
        them spectra are at rest, and nothing rotates.
    continuum : str, int or mapping, optional
        Kind of the continuum ("chebyshev", "rbf" or "none"), its number of terms, or the keys of ``[continuum]``.
    labels : mapping of str to float, quantity or mapping
        Values of labels that are known, or the keys of ``[labels.NAME]``.
    marginalise : bool
        True to marginalise the objective over the continuum.
    mask : (float, float), or sequence of (float, float)
        Intervals in Å, or quantities, whose pixels do not count.
    error_floor : float
        Errors below this factor times their median are raised to it.

    Raises
    ------
    InputError
        If the settings make no sense; the message names the key.

    Examples
    --------
    >>> import popfit
    >>> network = popfit.demo_data()[0].arms["b"]
    >>> popfit.SpectralModel({"b": network}, velocity=(-500, 500), labels={"alpha": 0.2})
    <popfit.SpectralModel: arms b; parameters velocity, teff, logg, feh>
    """

    _model: _popfit.Model

    def __init__(
        self,
        arms: Emulator | Path | Mapping[str, Emulator | Path | Mapping[str, Any]],
        *,
        velocity: Sequence[float] | float | Mapping[str, Any] | None = None,
        vsini: Sequence[float] | float | Mapping[str, Any] | None = None,
        continuum: str | int | Mapping[str, Any] | None = None,
        labels: Mapping[str, float | Mapping[str, Any]] | None = None,
        marginalise: bool = False,
        mask: Sequence[float] | Sequence[Sequence[float]] = (),
        error_floor: float = 0.0,
    ) -> None:
        # 1. Arms and their networks
        if isinstance(arms, Emulator | str | os.PathLike):
            arms = {"spectrum": arms}
        if not isinstance(arms, Mapping):
            raise InputError(
                f'arms: {type(arms).__name__}; give a popfit.Emulator, its path, or a dict such as {{"b": emulator}}',
                argument="arms",
            )
        if not arms:
            raise InputError("arms: none; give the network of at least one arm", argument="arms")
        keys: dict[str, Any] = {"arm": []}
        emulators: dict[str, Emulator] = {}
        for name, arm in arms.items():
            emulators[name], settings = _emulator_and_keys(name, arm)
            keys["arm"].append({**settings, "name": name, "emulator": f"{name}.safetensors"})
        # 2. Parameters, in the units of the model file
        for name, given in (("velocity", velocity), ("vsini", vsini)):
            if given is not None:
                keys[name] = _parameter_keys(name, given)
        units = {name: unit for one in emulators.values() for name, unit, _, _ in one._emulator.labels}
        keys["labels"] = _labels_keys({} if labels is None else labels, units)
        # 3. Continuum and spectra
        keys["continuum"] = _continuum_keys(continuum, check_switch("marginalise", marginalise))
        if not is_number(error_floor):
            raise InputError(f"error_floor: {error_floor!r}; give a number", argument="error_floor")
        keys["spectra"] = {"mask": _intervals(mask), "error_floor": float(error_floor)}
        text = _popfit.toml_of_json(_json({name: value for name, value in keys.items() if value}))
        self._model = _model_of_text(text, ".", emulators)

    @classmethod
    def _of(cls, model: _popfit.Model) -> SpectralModel:
        wrapper = cls.__new__(cls)
        wrapper._model = model
        return wrapper

    @classmethod
    def from_file(cls, path: Path) -> SpectralModel:
        """Read a model file and the networks that it names.

        Parameters
        ----------
        path : path
            The model file.

        Raises
        ------
        FileNotFoundError, PermissionError
            If a file cannot be opened.
        InputError
            If the model makes no sense; the message names line and key.
        """
        return cls._of(_popfit.Model.open(os.fspath(path)))

    @classmethod
    def from_toml(cls, text: str, folder: Path = ".", emulators: Mapping[str, Emulator] | None = None) -> SpectralModel:
        """Build the model of a model file's text.

        Parameters
        ----------
        text : str
            Text of a model file.
        folder : path
            Folder to which the files that it names are relative.
        emulators : mapping of str to Emulator, optional
            Networks by the names of their arms, in the place of files.

        Raises
        ------
        InputError
            If the model makes no sense; the message names line and key.
        """
        return cls._of(_model_of_text(text, folder, emulators or {}))

    @classmethod
    def from_dict(cls, keys: Mapping[str, Any], folder: Path = ".") -> SpectralModel:
        """Build the model of a dict with a model file's keys.

        Parameters
        ----------
        keys : mapping
            Keys of a model file; an arm's ``emulator`` may be an `Emulator`.
        folder : path
            Folder to which the files that it names are relative.

        Raises
        ------
        InputError
            If the model makes no sense; the message names the key.

        Examples
        --------
        >>> import popfit
        >>> network = popfit.demo_data()[0].arms["b"]
        >>> keys = {"arm": {"name": "b", "emulator": network}, "velocity": {"range": [-500, 500]}}
        >>> popfit.SpectralModel.from_dict(keys)
        <popfit.SpectralModel: arms b; parameters velocity, teff, logg, feh, alpha>
        """
        arms = keys.get("arm", [])
        emulators: dict[str, Emulator] = {}
        written = []
        if not isinstance(arms, list | tuple):
            arms = [arms]
        for arm in arms:
            if not isinstance(arm, Mapping):
                raise InputError(f"arm: {type(arm).__name__}; give a dict with the keys of an arm", argument="arm")
            emulator = arm.get("emulator")
            if isinstance(emulator, Emulator):
                name = str(arm.get("name", ""))
                emulators[name] = emulator
                arm = {**arm, "emulator": f"{name}.safetensors"}
            written.append(arm)
        text = _popfit.toml_of_json(_json({**keys, "arm": written}))
        return cls.from_toml(text, folder, emulators)

    @property
    def text(self) -> str:
        """Text of the model file."""
        return self._model.text

    @property
    def parameters(self) -> list[str]:
        """Names of the free parameters."""
        return self._model.parameters

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """Bounds of the free parameters, in their units."""
        return dict(zip(self._model.parameters, self._model.bounds, strict=True))

    @property
    def units(self) -> dict[str, str]:
        """Units of the parameters that have one."""
        return dict(self._model.units)

    @property
    def arms(self) -> dict[str, Emulator]:
        """Networks by the names of the arms."""
        return {name: Emulator._of(emulator) for name, emulator in self._model.emulators.items()}

    def fitted(self, spectra: object, table: FitTable) -> dict[str, dict[str, npt.NDArray[Any]]]:
        """Evaluate the model at the fits of a table's rows.

        Parameters
        ----------
        spectra
            Spectra of the table's rows, as `popfit.fit` takes them.
        table : FitTable
            Fits of these spectra.

        Returns
        -------
        dict
            As `predict` returns; NaN where a row has no fit.
        """
        parameters = [table[name] for name in self.parameters]
        return self.predict(spectra, np.stack(parameters, axis=1))

    def predict(self, spectra: object, parameters: npt.ArrayLike) -> dict[str, dict[str, npt.NDArray[Any]]]:
        """Evaluate the model at parameters, on the pixels of spectra, with the best continuum there.

        Parameters
        ----------
        spectra
            Spectra, as `popfit.fit` takes them.
        parameters : array_like, (n, P) or (P,)
            Parameters in physical units, in the order of `parameters`.

        Returns
        -------
        dict
            For each arm ``wavelength`` (Å), ``flux``, ``error``, ``model``, ``continuum`` (in the flux's unit, NaN off
            the network's wavelengths) and ``mask`` (n, pixels); ``chi2`` and ``unmasked`` (n,).

        Raises
        ------
        InputError
            If parameters and spectra do not fit each other, or the model.
        """
        held = as_spectra(spectra)
        return self._model.models_at(held._source, self._parameter_rows(held, parameters))

    def objective(
        self, spectra: object, parameters: npt.ArrayLike, *, gradient: bool = False
    ) -> dict[str, npt.NDArray[Any] | list[str]]:
        """Evaluate the objective at parameters.

        Parameters
        ----------
        spectra
            Spectra, as `popfit.fit` takes them.
        parameters : array_like, (n, P) or (P,)
            Parameters in physical units, in the order of `parameters`.
        gradient : bool
            True to evaluate derivatives, too.

        Returns
        -------
        dict
            ``chi2`` and ``objective`` (n,); with `gradient`, ``gradient`` (n, P) of the objective and ``normal_matrix``
            (n, P, P), half of its Gauss–Newton Hessian; ``messages`` (n), empty where a spectrum can be fitted.
        """
        held = as_spectra(spectra)
        rows = self._parameter_rows(held, parameters)
        return self._model.objective(held._source, rows, check_switch("gradient", gradient))

    def guess(self, spectra: object, *, seed: int = DEFAULT_SEED) -> list[dict[str, Any]]:
        """Return the first guess of each spectrum, without a fit.

        Parameters
        ----------
        spectra
            Spectra, as `popfit.fit` takes them.
        seed : int
            Seed of the library of templates.

        Returns
        -------
        list of dict
            ``starts`` (k, P), the best first, their ``chi2`` and ``objective`` (k,), and a ``message`` where a spectrum
            has none.
        """
        return self._model.guess(as_spectra(spectra)._source, check_integer("seed", seed, 0, MAX_SEED))

    def _parameter_rows(self, spectra: Spectra, parameters: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return parameters as (n, P)."""
        given = _real_array("parameters", "parameters", parameters)
        rows = np.ascontiguousarray(np.atleast_2d(given), dtype=np.float64)
        wanted = (len(spectra), len(self.parameters))
        if rows.shape != wanted:
            raise InputError(f"parameters has the shape {rows.shape}, not {wanted}", argument="parameters")
        return rows

    def with_arms(self, names: Sequence[str]) -> SpectralModel:
        """Return the model with the arms of these names alone.

        Parameters
        ----------
        names : sequence of str
            Names of arms.

        Raises
        ------
        InputError
            If the model has no arm of a name.
        """
        return SpectralModel._of(_model_of_text(self.text, ".", self.arms, list(names)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the model by its text and the bytes of its networks."""
        return _model_of_text_as_public, (self.text, self.arms)

    def __repr__(self) -> str:
        """Return arms and parameters."""
        return f"<popfit.SpectralModel: arms {', '.join(self.arms)}; parameters {', '.join(self.parameters)}>"

    def _repr_html_(self) -> str:
        """Return a table of parameters and their bounds for notebooks."""
        from html import escape

        units = self.units
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{low:g}</td><td>{high:g}</td><td>{escape(units.get(name, ''))}</td></tr>"
            for name, (low, high) in self.bounds.items()
        )
        arms = "".join(f"<li>{escape(name)}: {escape(repr(emulator))}</li>" for name, emulator in self.arms.items())
        head = "<tr><th>parameter</th><th>lower</th><th>upper</th><th>unit</th></tr>"
        return f"<table>{head}{rows}</table><ul>{arms}</ul>"


def as_model(model: object) -> SpectralModel:
    """Return a model: itself, of a model file's path, or of a dict with a model file's keys.

    Raises
    ------
    TypeError
        If it is none of these.
    """
    if isinstance(model, SpectralModel):
        return model
    if isinstance(model, str | os.PathLike):
        return SpectralModel.from_file(model)
    if isinstance(model, Mapping):
        return SpectralModel.from_dict(model)
    raise TypeError(
        f"model: {type(model).__name__}; give a popfit.SpectralModel, a path, or a dict of a model file's keys"
    )


def _emulator_and_keys(name: object, arm: object) -> tuple[Emulator, dict[str, Any]]:
    """Return an arm's network and its other keys."""
    if not isinstance(name, str):
        raise InputError(f"arms: {name!r}; give the names of arms as texts", argument="arms")
    settings = dict(arm) if isinstance(arm, Mapping) else {"emulator": arm}
    if settings.get("name", name) != name:
        raise InputError(f"arms: arm {name!r}: its name is {settings['name']!r}; give one of them", argument="arms")
    emulator = settings.get("emulator")
    if isinstance(emulator, str | os.PathLike):
        emulator = Emulator.open(emulator)
    if not isinstance(emulator, Emulator):
        found = "no emulator" if emulator is None else type(emulator).__name__
        raise InputError(f"arms: arm {name!r}: {found}; give a popfit.Emulator or its path", argument="arms")
    return emulator, settings


def _parameter_keys(name: str, given: object) -> dict[str, Any]:
    """Return the model file's table of a velocity or vsini."""
    if isinstance(given, Mapping):
        return {key: _plain(value, "km/s") for key, value in given.items()}
    plain = _plain(given, "km/s")
    if is_number(plain):
        return {"fixed": float(plain)}
    pair = _pair(plain)
    if pair is None:
        raise InputError(
            f"{name}: {given!r}; give a number, a pair (low, high) in km/s, or a dict with the keys of [{name}]",
            argument=name,
        )
    return {"range": pair}


def _labels_keys(labels: object, units: Mapping[str, str]) -> dict[str, Any]:
    """Return the model file's tables of labels, whose units are the networks'."""
    if not isinstance(labels, Mapping):
        raise InputError(f'labels: {type(labels).__name__}; give a dict such as {{"teff": 5000}}', argument="labels")
    keys: dict[str, Any] = {}
    for name, given in labels.items():
        unit = units.get(name, "")
        if isinstance(given, Mapping):
            keys[name] = {key: _plain(value, unit) for key, value in given.items()}
            continue
        plain = _plain(given, unit)
        if not is_number(plain):
            raise InputError(
                f"labels: {name}: {given!r}; give a number, or a dict with the keys of [labels.{name}]",
                argument="labels",
            )
        keys[name] = {"fixed": float(plain)}
    return keys


def _intervals(mask: object) -> list[list[float]]:
    """Return intervals in Å of one or several pairs of numbers or quantities."""
    plain = _plain(mask, "Angstrom")
    if not isinstance(plain, list):
        raise InputError(f"mask: {mask!r}; give intervals (low, high) in Å", argument="mask")
    pair = _pair(plain)
    intervals = [_pair(one) for one in plain] if pair is None else [pair]
    for given, interval in zip(plain, intervals, strict=False):
        if interval is None:
            raise InputError(f"mask: {given!r}; give intervals (low, high) in Å", argument="mask")
    return [interval for interval in intervals if interval is not None]


def _plain(value: object, unit: str) -> Any:
    """Return a value with its quantities in `unit`, and its sequences and arrays as lists."""
    value = without_unit(value, unit)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(one, unit) for one in value]
    return value


def _pair(values: object) -> list[float] | None:
    """Return a list of two numbers as floats; None for anything else."""
    if not isinstance(values, list) or len(values) != 2 or not all(map(is_number, values)):
        return None
    return [float(value) for value in values]


def _continuum_keys(continuum: object, marginalise: bool) -> dict[str, Any]:
    """Return the model file's table of the continuum."""
    if isinstance(continuum, Mapping):
        keys = dict(continuum)
    elif isinstance(continuum, str):
        keys = {"kind": continuum}
    elif continuum is None:
        keys = {}
    else:
        try:
            keys = {"terms": check_integer("continuum", continuum, 0, 2**31)}
        except InputError:
            raise InputError(
                f"continuum: {continuum!r}; give a kind, an integer number of terms, or a dict with the keys of "
                "[continuum]",
                argument="continuum",
            ) from None
    return {**keys, "marginalise": True} if marginalise else keys


def _json(keys: Mapping[str, Any]) -> str:
    """Return keys as JSON, arrays and numbers of numpy among them."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic) and not hasattr(value, "unit"):
            return value.tolist()
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        raise InputError(f"model: {type(value).__name__} {value!r} is no value of a model file", argument="model")

    return json.dumps(keys, default=plain)


def _model_of_text(
    text: str, folder: Path, emulators: Mapping[str, Emulator], arms: Sequence[str] | None = None
) -> _popfit.Model:
    """Return the model of a text and networks."""
    given = {name: emulator._emulator for name, emulator in emulators.items()}
    return _popfit.Model.from_text(text, os.path.abspath(folder), given, arms)


def _model_of_text_as_public(text: str, emulators: dict[str, Emulator]) -> SpectralModel:
    """Return a pickled model."""
    return SpectralModel.from_toml(text, ".", emulators)


def _emulator_of_bytes(name: str, data: bytes) -> Emulator:
    """Return a pickled network."""
    return Emulator._of(_popfit.Emulator.from_bytes(name, data))
