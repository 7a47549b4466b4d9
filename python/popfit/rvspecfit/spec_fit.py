"""Spectra and their likelihood, as ``rvspecfit.spec_fit`` has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from popfit._errors import InputError
from popfit._rival import rival_attribute, rival_function
from popfit.model import SpectralModel
from popfit.rvspecfit._likelihood import evaluate
from popfit.rvspecfit._models import (
    MOST_TERMS,
    SPEED_OF_LIGHT,
    Continuum,
    Floats,
    Settings,
    as_star,
    build_model,
    complete_config,
    counts_every_pixel,
    has_resolution,
    with_resolution,
)
from popfit.rvspecfit._scan import lowest_point, scan


class NotFiniteError(InputError, RuntimeError):
    """A likelihood that is not finite."""


class ResolMatrix:
    """A resolution matrix: a sparse matrix of scipy that acts on the template at the pixels of the spectrum."""

    def __init__(self, mat: Any) -> None:
        self.mat = mat


class SpecData:
    """A spectrum of one setup, such as an arm of a spectrograph.

    Parameters
    ----------
    name : str
        Name of the setup.
    lam, spec, espec : array_like, (pixels,)
        Wavelengths in Å, flux, and its standard errors.
    badmask : array_like of bool, (pixels,), optional
        Bad pixels. They count in the likelihood, but not in χ² and numbers of pixels.
    resolution : ResolMatrix, optional
        Resolution matrix of the spectrum.
    dtype : dtype
        Type of the arrays.
    """

    def __init__(
        self,
        name: str,
        lam: npt.ArrayLike,
        spec: npt.ArrayLike,
        espec: npt.ArrayLike,
        badmask: npt.ArrayLike | None = None,
        resolution: Any = None,
        dtype: npt.DTypeLike = np.float64,
    ) -> None:
        self.name = name
        self.lam: npt.NDArray[Any] = np.ascontiguousarray(lam, dtype=dtype)
        self.spec: npt.NDArray[Any] = np.ascontiguousarray(spec, dtype=dtype)
        self.espec: npt.NDArray[Any] = np.ascontiguousarray(espec, dtype=dtype)
        self.resolution = resolution
        pixels = self.lam.shape
        self.badmask: npt.NDArray[np.bool_] = (
            np.zeros(pixels, dtype=bool) if badmask is None else np.ascontiguousarray(badmask, dtype=bool)
        )
        for argument in ("spec", "espec", "badmask"):
            shape = getattr(self, argument).shape
            if len(pixels) != 1 or shape != pixels:
                raise InputError(f"{argument} has the shape {shape}, lam {pixels}", argument=argument)

    @property
    def spec_error_ratio(self) -> npt.NDArray[Any]:
        """Signal-to-noise ratios (pixels,)."""
        return np.asarray(self.spec / self.espec)

    def __repr__(self) -> str:
        """Return name, number of pixels and wavelengths."""
        return f"<SpecData {self.name}: {len(self.lam)} pixels, {self.lam[0]:.1f}–{self.lam[-1]:.1f} Å>"


def get_chisq(
    specdata: Any,
    vel: float,
    atm_params: Sequence[float],
    rot_params: Sequence[float] | None = None,
    resol_params: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    cache: Any = None,
    full_output: bool = False,
    fast_interp: bool = False,
    espec_systematic: Any = None,
    outside_penalty: bool = True,
) -> Any:
    """Return −2 ln L of a spectrum at given parameters, marginalised over the continuum.

    Parameters
    ----------
    specdata : SpecData or sequence of SpecData
        Spectra of one star.
    vel : float
        Radial velocity in km/s.
    atm_params : sequence of float
        Labels, in the order of the library.
    rot_params : (float,), optional
        vsini in km/s; no rotation without it.
    resol_params : mapping of str to ResolMatrix, optional
        Resolution matrices by the names of the setups.
    options : mapping, optional
        ``npoly``, the number of terms of the continuum (5), and ``rbf_continuum``.
    config : mapping
        The configuration; see `popfit.rvspecfit.utils.read_config`.
    cache : optional
        Ignored: popfit keeps models by itself.
    full_output : bool
        Whether to return a dict with the best-fit models.
    fast_interp, outside_penalty : bool
        Nearest-neighbour interpolation, and −2 ln L without the penalty outside of the training set: rvspecfit's own.
    espec_systematic : float, array or mapping, optional
        Added in quadrature to the errors, for all spectra or by the names of their setups.

    Returns
    -------
    float or dict
        −2 ln L; or a dict with ``chisq`` (that number), ``logl``, ``chisq_array``, ``red_chisq_array``,
        ``npix_array``, ``models`` and ``raw_models`` (templates without continuum).

    Raises
    ------
    RuntimeError
        If there is no configuration, or the likelihood is not finite.
    """
    continuum = Continuum.of(options)
    for argument, beyond in [
        (f"npoly={continuum.terms}", continuum.terms > MOST_TERMS),
        ("fast_interp=True", fast_interp),
        ("outside_penalty=False", not outside_penalty),
    ]:
        if beyond:
            function = rival_function("rvspecfit.spec_fit", "get_chisq", argument)
            arguments = (vel, atm_params, rot_params, resol_params, options or {}, config, cache, full_output)
            return function(specdata, *arguments, fast_interp, espec_systematic, outside_penalty)
    star = with_resolution(as_star(specdata), resol_params)
    model = _model_of(star, continuum, complete_config(config), rotates=rot_params is not None)
    names = [name for name in model.parameters if name not in ("velocity", "vsini")]
    if len(atm_params) != len(names):
        raise InputError(f"atm_params: {len(atm_params)} numbers for {', '.join(names)}", argument="atm_params")
    parameters = np.array([[vel, *(() if rot_params is None else rot_params), *atm_params]], dtype=np.float64)
    weighed = _with_systematic(star, espec_systematic)
    likelihood = evaluate(model, continuum, weighed, parameters, chisq_alone=not full_output)
    if not np.isfinite(likelihood.chisq):
        labels = ", ".join(f"{name} {value}" for name, value in zip(names, atm_params, strict=True))
        raise NotFiniteError(
            f"The log(likelihood) value is not finite at velocity {vel}, {labels}: "
            f"{likelihood.message or 'flux, errors or parameters are not finite'}",
            argument="specdata",
        )
    return likelihood.describe(star) if full_output else likelihood.chisq


def get_chisq_many(
    specdata: Any,
    vel: npt.ArrayLike,
    atm_params: npt.ArrayLike,
    rot_params: npt.ArrayLike | None = None,
    resol_params: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Floats:
    """Return −2 ln L of a star at many points at once, for samplers that evaluate ensembles.

    Parameters
    ----------
    specdata, resol_params, options, config
        As in `get_chisq`.
    vel : array_like, (n,)
        Radial velocities in km/s.
    atm_params : array_like, (n, labels)
        Labels, in the order of the library.
    rot_params : array_like, (n,), optional
        vsini in km/s; no rotation without it.

    Returns
    -------
    array, (n,)
        −2 ln L; NaN where it is not finite.
    """
    continuum = Continuum.of(options)
    star = with_resolution(as_star(specdata), resol_params)
    model = _model_of(star, continuum, complete_config(config), rotates=rot_params is not None)
    velocities = np.asarray(vel, dtype=np.float64)
    labels = np.asarray(atm_params, dtype=np.float64)
    columns = [velocities, *([] if rot_params is None else [np.asarray(rot_params, dtype=np.float64)]), *labels.T]
    points = np.column_stack([*columns])
    if points.shape[1] != len(model.parameters):
        raise InputError(
            f"atm_params has the shape {labels.shape}, for {', '.join(model.parameters)}", argument="atm_params"
        )
    chisq = scan(model, star, points, "objective") - continuum.determinant_offset * len(star)
    if len(points) and not counts_every_pixel(model, star, np.abs(points).max(axis=0)):
        for row in range(len(points)):
            chisq[row] = evaluate(model, continuum, star, points[row : row + 1], chisq_alone=True).chisq
    return chisq


def find_best(
    specdata: Any,
    vel_grid: npt.ArrayLike,
    params_list: Sequence[Sequence[float]],
    rot_params: Sequence[float] | None = None,
    resol_params: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    quadratic: bool = True,
) -> dict[str, Any]:
    """Find the best point of a grid of velocities and labels.

    Parameters
    ----------
    specdata, rot_params, resol_params, options, config
        As in `get_chisq`.
    vel_grid : array_like, (n,)
        Velocities in km/s, increasing.
    params_list : sequence of sequences of float
        Labels of each point, in the order of the library.
    quadratic : bool
        Whether the velocity is that of the parabola through the lowest point and its neighbours.

    Returns
    -------
    dict
        ``best_chi``, the lowest −2 ln L of the grid; ``best_vel`` and ``best_param``; of the posterior exp(−χ²/2) along
        the velocity ``vel_err``, ``skewness``, ``kurtosis`` and ``probs`` (n,).
    """
    velocities = np.asarray(vel_grid, dtype=np.float64)
    chisq = np.stack(
        [
            get_chisq_many(
                specdata,
                velocities,
                np.tile(labels, (len(velocities), 1)),
                None if rot_params is None else np.full(len(velocities), rot_params[0]),
                resol_params,
                options,
                config,
            )
            for labels in params_list
        ]
    )
    best, place = np.unravel_index(np.argmin(chisq), chisq.shape)
    along = chisq[best]
    probs = np.exp(-0.5 * (along - along[place]))
    probs /= probs.sum()
    velocity = lowest_point(velocities, along) if quadratic else velocities[place]
    moments = [(probs * (velocities - velocity) ** order).sum() for order in (2, 3, 4)]
    error = np.sqrt(moments[0])
    skewness, kurtosis = (0, 0) if error < 1e-10 else (moments[1] / error**3, moments[2] / error**4)
    return {
        "best_chi": along[place],
        "best_vel": velocity,
        "vel_err": error,
        "best_param": params_list[int(best)],
        "kurtosis": kurtosis,
        "skewness": skewness,
        "probs": probs,
    }


def get_chisq_continuum(specdata: Any, options: Mapping[str, Any] | None = None) -> dict[str, Floats]:
    """Fit spectra with the continuum alone.

    Parameters
    ----------
    specdata : SpecData or sequence of SpecData
        Spectra.
    options : mapping, optional
        ``npoly`` and ``rbf_continuum``, as in `get_chisq`.

    Returns
    -------
    dict
        ``chisq_array`` and ``redchisq_array``, χ² of the good pixels of each spectrum, and that over their number.
    """
    continuum = Continuum.of(options)
    chisq, reduced = [], []
    for one in as_star(specdata):
        template = np.ones(len(one.lam))
        if one.resolution is not None:
            template = getattr(one.resolution, "mat", one.resolution) @ template
        basis = continuum.basis(np.asarray(one.lam, dtype=np.float64)) * template
        coefficients = np.linalg.lstsq((basis / one.espec).T, one.spec / one.espec, rcond=None)[0]
        good = ~np.asarray(one.badmask, dtype=bool)
        chi2 = (((coefficients @ basis - one.spec) / one.espec)[good] ** 2).sum()
        chisq.append(chi2)
        reduced.append(chi2 / good.sum())
    return {"chisq_array": np.array(chisq), "redchisq_array": np.array(reduced)}


def _model_of(star: Sequence[Any], continuum: Continuum, config: Mapping[str, Any], *, rotates: bool) -> SpectralModel:
    """Return the model of a star."""
    vsini = (0.0, float(config["max_vsini"])) if rotates else None
    velocity = (float(config["min_vel"]), float(config["max_vel"]))
    settings = Settings(continuum, velocity, vsini, has_resolution([star]))
    return build_model([one.name for one in star], config, settings)


def _with_systematic(star: Sequence[Any], systematic: Any) -> list[Any]:
    """Return SpecData whose errors have another one added in quadrature."""
    if systematic is None:
        return list(star)
    weighed = []
    for one in star:
        added = systematic[one.name] if isinstance(systematic, Mapping) else systematic
        errors = np.hypot(one.espec, added)
        weighed.append(SpecData(one.name, one.lam, one.spec, errors, one.badmask, one.resolution))
    return weighed


__all__ = [
    "SPEED_OF_LIGHT",
    "NotFiniteError",
    "ResolMatrix",
    "SpecData",
    "find_best",
    "get_chisq",
    "get_chisq_continuum",
    "get_chisq_many",
]


def __getattr__(name: str) -> Any:
    return rival_attribute(__name__, "rvspecfit.spec_fit", name)
