"""Networks of The Payne as models of popfit."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from popfit import fitting
from popfit._errors import InputError
from popfit._rows import lower_rows
from popfit.model import SpectralModel
from popfit.spectra import Spectra
from popfit.table import FitTable

Floats: TypeAlias = npt.NDArray[np.float64]

#: Bounds of the velocity in km/s.
VELOCITY_BOUNDS = (-5.0, 5.0)

#: Arrays of a network, in their order.
COEFFICIENTS = (
    *("w_array_0", "w_array_1", "w_array_2", "b_array_0", "b_array_1", "b_array_2"),
    *("x_min", "x_max"),
)


#: Arrays with a row for each pixel, in networks for all pixels and in those of one per pixel, by dimensions.
PIXEL_ARRAYS = {
    2: ("w_array_2", "b_array_2"),
    3: ("w_array_0", "w_array_1", "w_array_2", "b_array_0", "b_array_1", "b_array_2"),
}
#: Velocity in km/s that the pixels beside the ends of detectors cover.
PADDED_VELOCITY = 50.0


class PaddedGrid(NamedTuple):
    """A grid of wavelengths whose detectors have more pixels at their ends.

    Attributes
    ----------
    wavelength : array, (padded pixels,)
        Wavelengths in Å.
    pixels : array of int, (padded pixels,)
        Pixel of the grid before that each repeats.
    """

    wavelength: Floats
    pixels: npt.NDArray[np.intp]


def split_pieces(wavelength: Floats) -> list[npt.NDArray[np.intp]]:
    """Return the pixels of each detector: steps of more than 1.5 times the median end one."""
    steps = np.diff(np.log(wavelength))
    return np.split(np.arange(len(wavelength)), np.flatnonzero(steps > 1.5 * np.median(steps)) + 1)


def has_log_steps(wavelength: npt.ArrayLike) -> bool:
    """Return whether wavelengths (pixels,) are uniform in ln λ within each detector, to a thousandth of a step."""
    grid = np.asarray(wavelength, dtype=np.float64)
    for piece in split_pieces(grid):
        logs = np.log(grid[piece])
        line = np.linspace(logs[0], logs[-1], len(logs))
        if len(piece) < 2 or np.abs(logs - line).max() > 1e-3 * (line[1] - line[0]):
            return False
    return True


def pad_pieces(wavelength: Floats) -> tuple[PaddedGrid, npt.NDArray[np.intp]]:
    """Return a grid whose detectors have their end pixels repeated, and the places (pixels,) of the given ones in it.

    The Payne's interpolation repeats them, too, or nearly so. Detectors do not grow into each other.
    """
    pieces = split_pieces(wavelength)
    logs = np.log(wavelength)
    grids, pixels, own, count = [], [], [], 0
    for k, piece in enumerate(pieces):
        step = (logs[piece[-1]] - logs[piece[0]]) / (len(piece) - 1)
        wanted = int(np.ceil(PADDED_VELOCITY / 299792.458 / step))
        room = [
            int((logs[after[0]] - logs[before[-1]]) / step / 2) - 1
            for before, after in zip(pieces[max(k - 1, 0) : k + 1], pieces[max(k, 1) : k + 2], strict=False)
        ]
        more = max(0, min([wanted, *room]))
        steps = np.arange(-more, len(piece) + more)
        grids.append(np.exp(logs[piece[0]] + step * steps))
        grids[-1][more : more + len(piece)] = wavelength[piece]
        pixels.append(piece[np.clip(steps, 0, len(piece) - 1)])
        own.append(count + more + np.arange(len(piece)))
        count += len(steps)
    return PaddedGrid(np.concatenate(grids), np.concatenate(pixels)), np.concatenate(own)


class Network:
    """A network of The Payne as a model of popfit."""

    def __init__(
        self,
        coefficients: Sequence[npt.NDArray[Any]],
        wavelength: npt.ArrayLike,
        activation: str = "leaky_relu",
        names: Sequence[str] | None = None,
    ) -> None:
        arrays = _named_coefficients(coefficients)
        self.low, self.high = (np.asarray(arrays[name], dtype=np.float64) for name in ("x_min", "x_max"))
        count = len(self.low)
        self.names = [f"label_{k}" for k in range(count)] if names is None else list(names)
        if len(self.names) != count:
            raise InputError(f"labels: {len(self.names)} names for {count} labels", argument="labels")
        self.wavelength: Floats = np.asarray(wavelength, dtype=np.float64)
        padded, self.own = pad_pieces(self.wavelength)
        for name in arrays:
            if name in PIXEL_ARRAYS[arrays["w_array_0"].ndim]:
                arrays[name] = arrays[name][padded.pixels]
        # a network of The Payne is a file for popfit
        with tempfile.TemporaryDirectory() as folder:
            np.savez(os.path.join(folder, "network.npz"), **arrays)  # type: ignore[arg-type,unused-ignore]
            np.savez(os.path.join(folder, "grid.npz"), wavelength=padded.wavelength)
            self.model = SpectralModel.from_dict(self._keys(activation), folder)
        self.emulator = self.model.arms["spectrum"]

    def _keys(self, activation: str) -> dict[str, Any]:
        """Return the keys of a model file with the network."""
        arm = {
            "name": "spectrum",
            "emulator": "network.npz",
            "pixels": "sample",
            "wavelength": "grid.npz",
            "labels": self.names,
            "activation": activation,
            "interpolation": "linear",
        }
        return {
            "arm": [arm],
            "velocity": {"range": list(VELOCITY_BOUNDS), "start": {"column": "start_velocity"}},
            "continuum": {"kind": "none"},
            "labels": {name: {"start": {"column": f"start_{name}"}} for name in self.names},
        }

    def fit(
        self,
        flux: npt.NDArray[Any],
        errors: npt.NDArray[Any],
        mask: npt.ArrayLike | None,
        p0: npt.ArrayLike | None,
        settings: dict[str, Any],
    ) -> FitTable:
        """Fit spectra (n, pixels), from the starts of the first guess and from `p0`, by default The Payne's."""
        if flux.ndim != 2:
            raise InputError(f"norm_spec has the shape {flux.shape}; give (n, pixels)", argument="norm_spec")
        if errors.shape != flux.shape:
            raise InputError(f"spec_err has the shape {errors.shape}, norm_spec {flux.shape}", argument="spec_err")
        if mask is not None and np.shape(mask) not in (flux.shape, flux.shape[1:]):
            raise InputError(f"mask has the shape {np.shape(mask)}, norm_spec {flux.shape}", argument="mask")
        guessed = self._fit_from(flux, errors, mask, None, settings)
        p0 = np.zeros(len(self.names) + 1) if p0 is None else p0
        return lower_rows(guessed, self._fit_from(flux, errors, mask, self._starts(p0, len(flux)), settings))

    def _starts(self, p0: npt.ArrayLike, count: int) -> Floats:
        """Return starts (n, labels + 1) in their units, moved into the bounds."""
        given = np.asarray(p0, dtype=np.float64)
        wanted = len(self.names) + 1
        if given.shape not in ((wanted,), (count, wanted)):
            raise InputError(f"p0 has the shape {given.shape}; give ({wanted},) or ({count}, {wanted})", argument="p0")
        scaled = np.broadcast_to(given, (count, wanted))
        labels = np.clip(self.unscaled(scaled[:, :-1]), self.low, self.high)
        return np.column_stack([labels, np.clip(scaled[:, -1], *VELOCITY_BOUNDS)])

    def _fit_from(
        self,
        flux: npt.NDArray[Any],
        errors: npt.NDArray[Any],
        mask: npt.ArrayLike | None,
        starts: Floats | None,
        settings: dict[str, Any],
    ) -> FitTable:
        """Fit spectra, from the starts of the first guess or from given ones."""
        given = np.full((len(flux), len(self.names) + 1), np.nan) if starts is None else starts
        columns = {f"start_{name}": given[:, k].copy() for k, name in enumerate([*self.names, "velocity"])}
        hidden = (
            None if mask is None else np.ascontiguousarray(np.broadcast_to(np.asarray(mask, dtype=bool), flux.shape))
        )
        spectra = Spectra.from_arrays(self.wavelength, flux, sigma=errors, mask=hidden, columns=columns)
        with fitting.without_result_warnings():
            return fitting.fit(self.model, spectra, **settings)

    def fit_one(
        self, flux: npt.NDArray[Any], errors: npt.NDArray[Any], mask: npt.ArrayLike | None, p0: npt.ArrayLike | None
    ) -> tuple[Floats, Floats, Floats]:
        """Return values and standard errors (labels + 1,) of one spectrum (1, pixels), and its model (pixels,).

        Raises
        ------
        InputError
            If it cannot be fitted.
        """
        # scipy's errors know no bounds either
        table = self.fit(flux, errors, mask, p0, {"released_errors": True, "device": "cpu"})
        if int(table["status"][0]) < 0:
            raise InputError(f"{table['status_text'][0]}: {table.messages[0]}", argument="norm_spec", row=0)
        names = [*self.names, "velocity"]
        values = np.array([table[name][0] for name in names])
        return values, np.array([table[f"{name}_err_released"][0] for name in names]), self.shifted_spectrum(values)

    def scaled(self, labels: Floats) -> Floats:
        """Return labels scaled to ±0.5."""
        return (labels - self.low) / (self.high - self.low) - 0.5

    def unscaled(self, scaled: Floats) -> Floats:
        """Return labels in their units."""
        return (scaled + 0.5) * (self.high - self.low) + self.low

    def shifted_spectrum(self, values: Floats) -> Floats:
        """Return the spectrum (pixels,) of labels and a velocity, as The Payne shifts it."""
        spectrum = self.emulator.spectra(values[:-1]).astype(np.float64)[self.own]
        beta = values[-1] / 299792.458
        shifted = self.wavelength * np.sqrt((1.0 - beta) / (1.0 + beta))
        answer: Floats = np.interp(shifted, self.wavelength, spectrum)
        return answer


def _named_coefficients(coefficients: Sequence[npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a network by their names in files: The Payne's eight, or the six of one per pixel."""
    for names in (COEFFICIENTS, tuple(name for name in COEFFICIENTS if not name.endswith("_2"))):
        if len(coefficients) == len(names):
            return dict(zip(names, coefficients, strict=True))
    raise InputError(f"NN_coeffs: {len(coefficients)} arrays; give {', '.join(COEFFICIENTS)}", argument="NN_coeffs")


_networks: dict[tuple[str, str, tuple[str, ...]], Network] = {}
#: Networks that are kept between calls.
KEPT_NETWORKS = 4


def open_network(
    coefficients: Sequence[npt.NDArray[Any]],
    wavelength: npt.ArrayLike,
    activation: str = "leaky_relu",
    names: Sequence[str] | None = None,
) -> Network:
    """Return a network, or that which an earlier call has made of the same numbers."""
    digest = hashlib.blake2b()
    for array in [*coefficients, np.asarray(wavelength)]:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    key = (digest.hexdigest(), activation, tuple(names or ()))
    if key not in _networks:
        network = Network(coefficients, wavelength, activation, names)
        while len(_networks) >= KEPT_NETWORKS:
            del _networks[next(iter(_networks))]
        _networks[key] = network
    return _networks[key]
