"""Models of spectra, and the networks that they are made of."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from popfit import _popfit
from popfit._errors import InputError
from popfit.spectra import Path, Spectra, as_spectra

if TYPE_CHECKING:
    from popfit.table import FitTable

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
        wavelength : array_like, (pixels,)
            Wavelengths in vacuum, in Å, uniform in ln λ in one or more pieces.
        hulls : sequence of hulls, optional
            Convex hulls of the training set in scaled labels: for each the indices of its labels, and facets.

        Raises
        ------
        InputError
            If layers do not fit each other, or the wavelengths are not on such a grid.
        """
        known = {"name", "unit", "transform", "min", "max", "mean", "std"}
        given = []
        for label in labels:
            unknown = set(label) - known
            if unknown or not {"name", "min", "max", "mean", "std"} <= set(label):
                raise InputError(
                    "labels: a label has name, min, max, mean, std, and if wanted unit and transform, not "
                    + ", ".join(sorted(label)),
                    argument="labels",
                )
            transform = label.get("transform", "identity")
            if transform not in ("identity", "log10"):
                raise InputError(f'labels: transform {transform!r}; give "identity" or "log10"', argument="labels")
            limits = (float(label["min"]), float(label["max"]))
            scaling = (float(label["mean"]), float(label["std"]))
            given.append((str(label["name"]), str(label.get("unit", "")), limits, scaling, transform == "log10"))
        if len(weights) != len(biases):
            raise InputError(f"biases: {len(biases)}, but there are {len(weights)} weights", argument="biases")
        return cls._of(
            _popfit.Emulator.from_layers(
                given,
                [np.ascontiguousarray(weight, dtype=np.float32) for weight in weights],
                [np.ascontiguousarray(bias, dtype=np.float32) for bias in biases],
                (activation, output),
                np.ascontiguousarray(wavelength, dtype=np.float64),
                [
                    ([int(axis) for axis in axes], np.ravel(facets).astype(float).tolist())
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

        Parameters
        ----------
        module : torch.nn.Module
            The network, such as a ``torch.nn.Sequential`` of ``Linear`` and ``SiLU``.
        labels, wavelength, output, hulls
            As in `from_layers`.

        Raises
        ------
        InputError
            If the module has other layers, or several kinds of activations.
        """
        leaves = [part for part in module.modules() if not list(part.children())]
        weights, biases, activations = [], [], set()
        for leaf in leaves:
            kind = type(leaf).__name__
            if kind == "Linear":
                weights.append(leaf.weight.detach().cpu().numpy())
                bias = leaf.bias
                biases.append(np.zeros(len(weights[-1])) if bias is None else bias.detach().cpu().numpy())
            elif kind in _TORCH_ACTIVATIONS:
                if kind == "LeakyReLU" and leaf.negative_slope != 0.01:
                    raise InputError(
                        f"module: LeakyReLU({leaf.negative_slope}); popfit has the slope 0.01 alone", argument="module"
                    )
                activations.add(_TORCH_ACTIVATIONS[kind])
            elif kind not in ("Dropout", "Identity"):
                raise InputError(f"module: a layer {kind}, which popfit does not have", argument="module")
        if len(activations) != 1:
            raise InputError(
                f"module: activations {sorted(activations)}; popfit has one kind per network", argument="module"
            )
        activation = activations.pop()
        return cls.from_layers(
            labels, weights, biases, activation=activation, output=output, wavelength=wavelength, hulls=hulls
        )

    @property
    def labels(self) -> dict[str, tuple[float, float]]:
        """Names of the labels, and their ranges in the training set."""
        return {name: (low, high) for name, _, low, high in self._emulator.labels}

    @property
    def wavelength(self) -> npt.NDArray[np.float64]:
        """Wavelengths (pixels,) in vacuum, in Å."""
        return self._emulator.wavelength

    def spectra(self, labels: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Predict the spectra (n, pixels) of labels (n, labels) in physical units, or (pixels,) of (labels,)."""
        given = np.asarray(labels, dtype=np.float64)
        spectra = self._emulator.spectra(np.ascontiguousarray(np.atleast_2d(given)))
        return spectra[0] if given.ndim == 1 else spectra

    def write(self, path: Path, *, overwrite: bool = False) -> None:
        """Write the network to a file in popfit's format (safetensors).

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


_TORCH_ACTIVATIONS = {
    "SiLU": "silu",
    "LeakyReLU": "leaky_relu",
    "ReLU": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "GELU": "gelu",
}


class SpectralModel:
    """What spectra are compared with: networks of arms, a velocity, rotation and a continuum.

    Parameters
    ----------
    arms : mapping of str to Emulator, or Emulator
        Network of each arm, or of the only one. A mapping in the place of a network has the keys of an ``[[arm]]`` of
        the model file, with the network as ``emulator``.
    velocity, vsini : (float, float), float or mapping, optional
        Range in km/s of a free parameter, a number that is known, or the keys of the model file's table. Without
        them spectra are at rest, and nothing rotates.
    continuum : str, int or mapping, optional
        Kind of the continuum ("chebyshev", "rbf" or "none"), its number of terms, or the keys of ``[continuum]``.
    labels : mapping of str to mapping
        What is known of labels: the keys of ``[labels.NAME]``.
    marginalise : bool
        Whether the objective is marginalised over the continuum.
    mask : sequence of (float, float)
        Intervals in Å whose pixels do not count.
    error_floor : float
        Errors below this factor times their median are raised to it.

    Raises
    ------
    InputError
        If the settings make no sense; the message names the key.
    """

    _model: _popfit.Model

    def __init__(
        self,
        arms: Emulator | Mapping[str, Emulator | Mapping[str, Any]],
        *,
        velocity: tuple[float, float] | float | Mapping[str, Any] | None = None,
        vsini: tuple[float, float] | float | Mapping[str, Any] | None = None,
        continuum: str | int | Mapping[str, Any] | None = None,
        labels: Mapping[str, Mapping[str, Any]] | None = None,
        marginalise: bool = False,
        mask: Sequence[tuple[float, float]] = (),
        error_floor: float = 0.0,
    ) -> None:
        if isinstance(arms, Emulator):
            arms = {"spectrum": arms}
        keys: dict[str, Any] = {"arm": []}
        emulators: dict[str, Emulator] = {}
        for name, arm in arms.items():
            settings = {"emulator": arm} if isinstance(arm, Emulator) else dict(arm)
            emulator = settings.get("emulator")
            if not isinstance(emulator, Emulator):
                raise InputError(f"arms: arm {name!r} has no popfit.Emulator", argument="arms")
            emulators[name] = emulator
            keys["arm"].append({**settings, "name": name, "emulator": f"{name}.safetensors"})
        for name, given in (("velocity", velocity), ("vsini", vsini)):
            if given is not None:
                keys[name] = _parameter_keys(given)
        keys["continuum"] = _continuum_keys(continuum, marginalise)
        keys["labels"] = {name: dict(given) for name, given in (labels or {}).items()}
        keys["spectra"] = {"mask": [list(interval) for interval in mask], "error_floor": error_floor}
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
        """
        return cls._of(_model_of_text(text, folder, emulators or {}))

    @classmethod
    def from_dict(cls, keys: Mapping[str, Any], folder: Path = ".") -> SpectralModel:
        """Build the model of a dict with a model file's keys; an arm's ``emulator`` may be a `Emulator`."""
        arms = keys.get("arm")
        if isinstance(arms, Mapping):
            arms = [arms]
        emulators: dict[str, Emulator] = {}
        written = []
        for arm in cast("Sequence[Mapping[str, Any]]", arms or []):
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
        """Return data and models of a table's rows, as `predict` does; NaN where a row has no fit."""
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
        """
        held = as_spectra(spectra)
        return self._model.models_at(held._source, self._parameter_rows(held, parameters))

    def objective(
        self, spectra: object, parameters: npt.ArrayLike, *, gradient: bool = False
    ) -> dict[str, npt.NDArray[Any] | list[str]]:
        """Evaluate the objective at parameters (n, P).

        Returns
        -------
        dict
            ``chi2`` and ``objective`` (n,); with `gradient`, ``gradient`` (n, P) of the objective and ``normal_matrix``
            (n, P, P), half of its Gauss–Newton Hessian; ``messages`` (n), empty where a spectrum can be fitted.
        """
        held = as_spectra(spectra)
        return self._model.objective(held._source, self._parameter_rows(held, parameters), gradient)

    def guess(self, spectra: object, *, seed: int = 3) -> list[dict[str, Any]]:
        """Return the first guess of each spectrum, without a fit.

        Returns
        -------
        list of dict
            ``starts`` (k, P), the best first, their ``chi2`` and ``objective`` (k,), and a ``message`` where a spectrum
            has none.
        """
        return self._model.guess(as_spectra(spectra)._source, seed)

    def _parameter_rows(self, spectra: Spectra, parameters: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return parameters as (n, P)."""
        rows = np.ascontiguousarray(np.atleast_2d(np.asarray(parameters, dtype=np.float64)))
        wanted = (len(spectra), len(self.parameters))
        if rows.shape != wanted:
            raise InputError(f"parameters has the shape {rows.shape}, not {wanted}", argument="parameters")
        return rows

    def with_arms(self, names: Sequence[str]) -> SpectralModel:
        """Return the model with the arms of these names alone.

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


def _parameter_keys(given: tuple[float, float] | float | Mapping[str, Any]) -> dict[str, Any]:
    """Return the model file's table of a velocity or vsini."""
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, int | float):
        return {"fixed": float(given)}
    low, high = given
    return {"range": [float(low), float(high)]}


def _continuum_keys(continuum: str | int | Mapping[str, Any] | None, marginalise: bool) -> dict[str, Any]:
    """Return the model file's table of the continuum."""
    if isinstance(continuum, Mapping):
        keys = dict(continuum)
    elif isinstance(continuum, str):
        keys = {"kind": continuum}
    elif continuum is not None:
        keys = {"terms": int(continuum)}
    else:
        keys = {}
    return {**keys, "marginalise": True} if marginalise else keys


def _json(keys: Mapping[str, Any]) -> str:
    """Return keys as JSON, arrays and numbers of numpy among them."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic):
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
