"""Drop-in replacement of The Payne's fits of normalised spectra: change the import, nothing else.

`fit_normalized_spectrum_single_star_model` fits one spectrum, `PayneFitter` has a network and a mask, and `fit_many`
fits any number of spectra at once. `DIFFERENCES` lists what differs; other names are those of ``The_Payne.fitting`` and
``The_Payne``, if it is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from popfit._payne_network import COEFFICIENTS, Floats, has_log_steps, open_network
from popfit._rival import Difference, rival_attribute, rival_function
from popfit.spectra import Path
from popfit.table import FitTable

#: What differs between The Payne and this module.
DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "minimum",
        "one start, in the middle of the training set; stops at changes of 5·10⁻⁴",
        "the starts of the first guess, and that of The Payne, or `p0`, as one more; converges",
    ),
    Difference(
        "derivatives and errors",
        "finite differences",
        "exact; in a table a parameter at a bound has the error NaN",
    ),
    Difference(
        "masked pixels",
        "get an error of 999, and `spec_err` is written to",
        "do not count, and `spec_err` stays as it is",
    ),
    Difference(
        "interpolation to the velocity",
        "linear in λ; beyond the ends of detectors towards the next one",
        "linear in ln λ; beyond the ends of detectors their last pixel",
    ),
    Difference(
        "networks",
        "one for all pixels; one per pixel after an edit of `spectral_model`",
        'one for all pixels; of six arrays, one per pixel, as binspec has them, with `activation="sigmoid"`',
    ),
    Difference(
        "wavelengths",
        "any",
        "uniform in ln λ in each detector, as APOGEE's are; of one spectrum, others go to The Payne",
    ),
    Difference(
        "many spectra",
        "a loop",
        "`fit_many`, `PayneFitter.fit_many`",
    ),
)


def fit_normalized_spectrum_single_star_model(
    norm_spec: npt.ArrayLike,
    spec_err: npt.ArrayLike,
    NN_coeffs: Sequence[npt.NDArray[Any]],
    wavelength: npt.ArrayLike,
    mask: npt.ArrayLike,
    p0: npt.ArrayLike | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Fit labels and velocity of one normalised spectrum.

    Parameters
    ----------
    norm_spec, spec_err : array_like, (pixels,)
        Normalised flux and its standard errors.
    NN_coeffs : sequence of arrays
        The network: three weights, three biases, and minima and maxima of the labels.
    wavelength : array_like, (pixels,)
        Wavelengths in Å of spectrum and network.
    mask : array_like of bool, (pixels,)
        Bad pixels.
    p0 : array_like, (labels + 1,), optional
        A start, beside those of the first guess: labels scaled to ±0.5, and the velocity in km/s. The middle of the
        training set without it.

    Returns
    -------
    popt, pstd : array, (labels + 1,)
        Labels in their units and the velocity in km/s, and their standard errors.
    model_spec : array, (pixels,)
        Spectrum of the best fit.

    Raises
    ------
    ValueError
        If the spectrum cannot be fitted.
    """
    if not has_log_steps(wavelength):
        function = rival_function(
            "The_Payne.fitting", "fit_normalized_spectrum_single_star_model", "wavelength: not uniform in ln λ"
        )
        answer: tuple[Floats, Floats, Floats] = function(norm_spec, spec_err, NN_coeffs, wavelength, mask, p0)
        return answer
    flux, errors = np.atleast_2d(norm_spec), np.atleast_2d(spec_err)
    return open_network(NN_coeffs, wavelength).fit_one(flux, errors, mask, p0)


def fit_many(
    norm_spec: npt.ArrayLike,
    spec_err: npt.ArrayLike,
    NN_coeffs: Sequence[npt.NDArray[Any]],
    wavelength: npt.ArrayLike,
    mask: npt.ArrayLike | None = None,
    p0: npt.ArrayLike | None = None,
    *,
    activation: str = "leaky_relu",
    labels: Sequence[str] | None = None,
    **settings: Any,
) -> FitTable:
    """Fit labels and velocities of any number of normalised spectra at once.

    Parameters
    ----------
    norm_spec, spec_err : array_like, (n, pixels)
        Normalised flux and its standard errors.
    NN_coeffs, wavelength
        As in `fit_normalized_spectrum_single_star_model`.
    mask : array_like of bool, (pixels,) or (n, pixels), optional
        Bad pixels.
    p0 : array_like, (labels + 1,) or (n, labels + 1), optional
        A start of all spectra, or of each, as there.
    activation : {"leaky_relu", "sigmoid", …}
        Function of the hidden layers.
    labels : sequence of str, optional
        Names of the labels; ``label_0``, ``label_1``, … without it.
    **settings
        Settings of `popfit.fit`, such as ``device`` and ``progress``.

    Returns
    -------
    FitTable
        One row for each spectrum, with labels in their units and the velocity in km/s.
    """
    network = open_network(NN_coeffs, wavelength, activation, labels)
    return network.fit(np.asarray(norm_spec), np.asarray(spec_err), mask, p0, settings)


class PayneFitter:
    """A network and a mask, and the spectra that are fitted with them.

    Parameters
    ----------
    use_mask : bool
        Whether the pixels of The Payne's mask for APOGEE do not count.
    nn_path : path, optional
        File of the network (NPZ); The Payne's own without it.
    wavelength : array_like, (pixels,), optional
        Wavelengths in Å; The Payne's own for APOGEE without it.
    activation : str
        Function of the hidden layers.

    Raises
    ------
    ImportError
        If data of The Payne are needed, and it is not installed.
    """

    def __init__(
        self,
        use_mask: bool = True,
        nn_path: Path | None = None,
        *,
        wavelength: npt.ArrayLike | None = None,
        activation: str = "leaky_relu",
    ) -> None:
        if nn_path is None:
            coefficients = _payne_data("read_in_neural_network", "nn_path")
        else:
            with np.load(nn_path) as arrays:
                coefficients = tuple(arrays[name] for name in COEFFICIENTS)
        grid = _payne_data("load_wavelength_array", "wavelength") if wavelength is None else wavelength
        self.NN_coeffs: tuple[npt.NDArray[Any], ...] = coefficients
        self.wavelength: Floats = np.asarray(grid, dtype=np.float64)
        self._nn_path = nn_path
        self._network = open_network(coefficients, self.wavelength, activation)
        self.mask: npt.NDArray[np.bool_] = np.zeros(len(self.wavelength), dtype=bool)
        if use_mask:
            self.reset_mask()

    @property
    def predictor(self) -> Any:
        """The Payne's own ``PaynePredictor`` of this network.

        Raises
        ------
        ImportError
            If The Payne is not installed.
        """
        from The_Payne import PaynePredictor  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return PaynePredictor(nn_path=self._nn_path)

    def fit_spectrum(
        self,
        spectrum: npt.ArrayLike,
        spec_err: npt.ArrayLike,
        p0: npt.ArrayLike | None = None,
        return_scaled: bool = False,
    ) -> tuple[Floats, ...]:
        """Fit one spectrum.

        Parameters
        ----------
        spectrum, spec_err : array_like, (pixels,)
            Normalised flux and its standard errors.
        p0 : array_like, (labels + 1,), optional
            A start, as in `fit_normalized_spectrum_single_star_model`.
        return_scaled : bool
            Whether to return the scaled labels, too.

        Returns
        -------
        labels, uncertainties : array, (labels + 1,)
            Labels and the velocity, and their standard errors.
        model_spectrum : array, (pixels,)
            Spectrum of the best fit.
        scaled_labels : array, (labels,)
            Labels scaled to ±0.5, if `return_scaled` is true.
        """
        answer = self._network.fit_one(np.atleast_2d(spectrum), np.atleast_2d(spec_err), self.mask, p0)
        return (*answer, self._network.scaled(answer[0][:-1])) if return_scaled else answer

    def fit_spectrum_with_initial_guess(
        self, spectrum: npt.ArrayLike, spec_err: npt.ArrayLike, initial_labels: npt.ArrayLike, initial_rv: float = 0.0
    ) -> tuple[Floats, ...]:
        """Fit one spectrum with one more start, whose labels (labels,) have their units and its velocity km/s."""
        scaled = self._network.scaled(np.asarray(initial_labels, dtype=np.float64))
        return self.fit_spectrum(spectrum, spec_err, np.append(scaled, initial_rv))

    def fit_many(
        self, spectra: npt.ArrayLike, spec_err: npt.ArrayLike, p0: npt.ArrayLike | None = None, **settings: Any
    ) -> FitTable:
        """Fit spectra (n, pixels) at once, as `popfit.payne.fit_many` does."""
        return self._network.fit(np.asarray(spectra), np.asarray(spec_err), self.mask, p0, settings)

    def compute_chi2(
        self, spectrum: npt.ArrayLike, spec_err: npt.ArrayLike, labels: npt.ArrayLike, rv: float = 0.0
    ) -> tuple[float, float, int]:
        """Return χ² of the good pixels, χ² over the degrees of freedom, and their number."""
        model = self._network.shifted_spectrum(np.append(labels, rv))
        good = ~self.mask
        residuals = ((np.asarray(spectrum) - model) / np.asarray(spec_err))[good]
        chi2 = float((residuals**2).sum())
        degrees = int(good.sum()) - len(self._network.names) - 1
        return chi2, chi2 / degrees if degrees > 0 else np.inf, degrees

    def get_residuals(self, spectrum: npt.ArrayLike, model_spectrum: npt.ArrayLike) -> Floats:
        """Return spectrum − model."""
        return np.asarray(spectrum, dtype=np.float64) - np.asarray(model_spectrum, dtype=np.float64)

    def get_label_names(self) -> list[str]:
        """Return the names of the labels, and RV."""
        return [*_APOGEE_LABELS[: len(self._network.names)], "RV"]

    def set_mask(self, mask: npt.ArrayLike) -> None:
        """Set the bad pixels (pixels,)."""
        given = np.asarray(mask, dtype=bool)
        if given.shape != self.wavelength.shape:
            raise ValueError(f"Mask length {given.size} doesn't match spectrum length {len(self.wavelength)}")
        self.mask = given

    def add_mask_region(self, wave_min: float, wave_max: float) -> None:
        """Let the pixels from `wave_min` to `wave_max`, in Å, not count."""
        self.mask = self.mask | ((self.wavelength >= wave_min) & (self.wavelength <= wave_max))

    def reset_mask(self) -> None:
        """Set The Payne's mask for APOGEE."""
        self.set_mask(_payne_data("load_apogee_mask", "use_mask"))

    def __repr__(self) -> str:
        """Return the number of labels and the share of masked pixels."""
        return f"PayneFitter(num_labels={len(self._network.names)}, masked_pixels={100 * self.mask.mean():.1f}%)"


#: The Payne's labels for APOGEE.
_APOGEE_LABELS = (
    *("Teff", "logg", "Vturb"),
    *(f"[{element}/H]" for element in "C N O Na Mg Al Si P S K Ca Ti V Cr Mn Fe Co Ni Cu Ge".split()),
    *("C12/C13", "Vmacro"),
)


def _payne_data(function: str, argument: str) -> Any:
    """Return data of The Payne's package.

    Raises
    ------
    ImportError
        If it is not installed.
    """
    try:
        from The_Payne import utils  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise ImportError(
            f"{argument}: without it The Payne's own data are needed, and it cannot be imported: {error}"
        ) from error
    return getattr(utils, function)()


def __getattr__(name: str) -> Any:
    try:
        return rival_attribute(__name__, "The_Payne.fitting", name)
    except AttributeError:
        return rival_attribute(__name__, "The_Payne", name)


__all__ = ["DIFFERENCES", "PayneFitter", "fit_many", "fit_normalized_spectrum_single_star_model"]
