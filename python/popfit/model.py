"""Models of spectra, and the networks that they are made of."""

from __future__ import annotations

import os
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from popfit import _popfit
from popfit._arrays import without_unit
from popfit._checks import check_choice, check_integer, check_real_array, check_switch, is_number
from popfit._errors import InputError, PopfitWarning
from popfit._model_keys import continuum_keys, json_text, labels_keys, mask_intervals, parameter_keys
from popfit._torch import compare_with_module, sequence_of_layers
from popfit.devices import get_threads
from popfit.spectra import Path, Spectra, as_spectra

if TYPE_CHECKING:
    from popfit.table import FitTable

#: Seed of the first guess, as the command has it.
DEFAULT_SEED = 3
#: Largest seed.
MAX_SEED = 2**64 - 1

#: Velocities of objects with several exposures.
EXPOSURES = ("shared", "each")

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
        given_biases = [check_real_array("biases", f"biases[{k}]", bias) for k, bias in enumerate(biases)]
        given_weights = [check_real_array("weights", f"weights[{k}]", weight) for k, weight in enumerate(weights)]
        inputs = len(given_labels)
        for k, (weight, bias) in enumerate(zip(given_weights, given_biases, strict=True)):
            if bias.ndim != 1:
                raise InputError(f"biases[{k}] has the shape {bias.shape}, not ({bias.size},)", argument="biases")
            if weight.shape != (bias.size, inputs):
                raise InputError(
                    f"weights[{k}] has the shape {weight.shape}, not {(bias.size, inputs)}", argument="weights"
                )
            inputs = bias.size
        grid = check_real_array("wavelength", "wavelength", without_unit(wavelength, "Angstrom"))
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
                    (
                        [int(axis) for axis in axes],
                        check_real_array("hulls", "hulls", facets).ravel().astype(float).tolist(),
                    )
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
        weights, biases, activation = sequence_of_layers(module)
        emulator = cls.from_layers(
            labels, weights, biases, activation=activation, output=output, wavelength=wavelength, hulls=hulls
        )
        compare_with_module(emulator.spectra, module, labels, output)
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
        """Predict the spectra of labels; those beyond the network's training range are extrapolated, with a warning.

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
        given = check_real_array("labels", "labels", labels).astype(np.float64)
        if given.ndim not in (1, 2):
            raise InputError(f"labels has the shape {given.shape}, not (n, {len(self.labels)})", argument="labels")
        rows = np.ascontiguousarray(np.atleast_2d(given))
        spectra = self._emulator.spectra(rows)
        for (name, (low, high)), values in zip(self.labels.items(), rows.T, strict=True):
            beyond = values[(values < low) | (values > high)]
            if len(beyond):
                text = f"labels: {name} = {beyond[0]:g} is beyond the network's training range, {low:g} to {high:g}"
                warnings.warn(text, PopfitWarning, stacklevel=2)
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

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Pickle the network by the bytes of its file, out of band from protocol 5 on."""
        data = self._emulator.to_bytes()
        return _emulator_of_bytes, (self._emulator.source, PickleBuffer(data) if int(protocol) >= 5 else data)

    def __repr__(self) -> str:
        """Return labels and wavelengths."""
        grid = self.wavelength
        pixels = f"{len(grid)} pixels, {grid[0]:.1f}–{grid[-1]:.1f} Å" if len(grid) else "no wavelengths"
        return f"<popfit.Emulator: {', '.join(self.labels)} → {pixels}>"


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


class SpectralModel:
    """Model of spectra: the networks of their arms, a velocity, rotation and a continuum.

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
    labels : mapping of str to float, (float, float), quantity or mapping
        Values of labels that are known, ranges of others, or the keys of ``[labels.NAME]``.
    marginalise : bool
        True to marginalise the objective over the continuum.
    mask : (float, float), or sequence of (float, float)
        Intervals in Å, or quantities, whose pixels do not count.
    jitter : float or "fit"
        This fraction of each pixel's flux is added to its error in quadrature. With "fit" each arm of each spectrum
        gets the fraction of the greatest likelihood, or a factor of its errors; the columns `jitter_ARM`,
        `jitter_err_ARM` and `error_factor_ARM` of the table have them.
    error_floor : float
        Errors below this factor times their median are raised to it.
    exposures : {"shared", "each"}, optional
        Fits all exposures of an object together, with one velocity or with one each. Spectra of a file that have the
        same id are its exposures; of arrays `Spectra.join_exposures` makes such objects. Without it each spectrum is an
        object of its own.
    shared : mapping, optional
        Labels that the spectra of a cluster share: ``{"column": "CLUSTER", "labels": ["feh"]}``. Spectra with the same
        value in this column, a text or a whole number, are a cluster; those with an empty text, a negative number or
        NaN belong to none. Without it each spectrum has labels of its own.

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
        labels: Mapping[str, float | Sequence[float] | Mapping[str, Any]] | None = None,
        marginalise: bool = False,
        mask: Sequence[float] | Sequence[Sequence[float]] = (),
        jitter: float | str = 0.0,
        error_floor: float = 0.0,
        exposures: str | None = None,
        shared: Mapping[str, Any] | None = None,
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
                keys[name] = parameter_keys(name, given)
        units = {name: unit for one in emulators.values() for name, unit, _, _ in one._emulator.labels}
        keys["labels"] = labels_keys({} if labels is None else labels, units)
        # 3. Continuum and spectra
        keys["continuum"] = continuum_keys(continuum, check_switch("marginalise", marginalise))
        if not (jitter == "fit" if isinstance(jitter, str) else is_number(jitter)):
            raise InputError(f'jitter: {jitter!r}; give a number, or "fit"', argument="jitter")
        if not is_number(error_floor):
            raise InputError(f"error_floor: {error_floor!r}; give a number", argument="error_floor")
        keys["spectra"] = {
            "mask": mask_intervals(mask),
            "jitter": jitter if isinstance(jitter, str) else float(jitter),
            "error_floor": float(error_floor),
        }
        if exposures is not None:
            keys["exposures"] = {"velocity": check_choice("exposures", exposures, EXPOSURES)}
        if shared is not None:
            if not isinstance(shared, Mapping) or not shared:
                text = f'shared: {shared!r}; give a dict such as {{"column": "CLUSTER", "labels": ["feh"]}}'
                raise InputError(text, argument="shared")
            keys["shared"] = {key: list(value) if isinstance(value, tuple) else value for key, value in shared.items()}
        text = _popfit.toml_of_json(json_text({name: value for name, value in keys.items() if value}))
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
        if not isinstance(text, str):
            raise InputError(f"text: {type(text).__name__}; give the text of a model file", argument="text")
        return cls._of(_model_of_text(text, folder, emulators or {}, has_lines=True))

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
        if not isinstance(keys, Mapping):
            raise InputError(f"keys: {type(keys).__name__}; give a dict with a model file's keys", argument="keys")
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
        text = _popfit.toml_of_json(json_text({**keys, "arm": written}))
        return cls._of(_model_of_text(text, folder, emulators))

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
    def exposures(self) -> str | None:
        """Velocity of objects with several exposures, "shared" or "each"; None if each spectrum is fitted by itself."""
        return self._model.exposures

    @property
    def shared(self) -> dict[str, Any] | None:
        """Column of clusters and the labels that their spectra share, as the argument; None if they share none."""
        if self._model.shared is None:
            return None
        column, labels = self._model.shared
        return {"column": column, "labels": labels}

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
        return self._model.models_at(held._lent, self._parameter_rows(held, parameters), get_threads())

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
        return self._model.objective(held._lent, rows, check_switch("gradient", gradient), get_threads())

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
        return self._model.guess(as_spectra(spectra)._lent, check_integer("seed", seed, 0, MAX_SEED), get_threads())

    def _parameter_rows(self, spectra: Spectra, parameters: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return parameters as (n, P)."""
        from popfit.table import FitTable

        if isinstance(parameters, FitTable):
            raise InputError("parameters: a table; model.fitted(spectra, table) takes one", argument="parameters")
        given = check_real_array("parameters", "parameters", parameters)
        rows = np.ascontiguousarray(np.atleast_2d(given), dtype=np.float64)
        wanted = (len(spectra), len(self.parameters))
        if rows.shape != wanted:
            raise InputError(f"parameters has the shape {rows.shape}, not {wanted}", argument="parameters")
        return rows

    def with_arms(self, names: Sequence[str] | str) -> SpectralModel:
        """Return the model with the arms of these names alone.

        Parameters
        ----------
        names : sequence of str, or str
            Names of arms.

        Raises
        ------
        InputError
            If the model has no arm of a name.
        """
        wanted = [names] if isinstance(names, str) else names
        if not isinstance(wanted, list | tuple) or not all(isinstance(name, str) for name in wanted):
            raise InputError(f"names: {names!r}; give a list of names of arms", argument="names")
        return SpectralModel._of(_model_of_text(self.text, ".", self.arms, list(wanted)))

    def with_exposures(self, velocity: str | None) -> SpectralModel:
        """Return the model that fits exposures together, or each spectrum by itself.

        Parameters
        ----------
        velocity : {"shared", "each"} or None
            One velocity for all exposures of an object, or one for each; None for spectra by themselves.

        Raises
        ------
        InputError
            If each exposure is to have its own velocity, and the velocity of the model is fixed.
        """
        if velocity == self.exposures:
            return self
        keys = tomllib.loads(self.text)
        keys.pop("exposures", None)
        if velocity is not None:
            keys["exposures"] = {"velocity": check_choice("velocity", velocity, EXPOSURES)}
        return SpectralModel._of(_model_of_text(_popfit.toml_of_json(json_text(keys)), ".", self.arms))

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

    Parameters
    ----------
    model : SpectralModel, path or mapping
        What `popfit.fit` takes as a model.

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


def _model_of_text(
    text: str,
    folder: Path,
    emulators: Mapping[str, Emulator],
    arms: Sequence[str] | None = None,
    *,
    has_lines: bool = False,
) -> _popfit.Model:
    """Return the model of a text and networks; messages name lines if the text is the user's."""
    given = {name: emulator._emulator for name, emulator in emulators.items()}
    return _popfit.Model.from_text(text, os.path.abspath(folder), given, arms, has_lines)


def _model_of_text_as_public(text: str, emulators: dict[str, Emulator]) -> SpectralModel:
    """Return a pickled model."""
    return SpectralModel.from_toml(text, ".", emulators)


def _emulator_of_bytes(name: str, data: bytes | PickleBuffer) -> Emulator:
    """Return a pickled network."""
    return Emulator._of(_popfit.Emulator.from_bytes(name, bytes(data)))
