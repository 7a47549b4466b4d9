"""Fits of stars, as ``rvspecfit.vel_fit`` has them: one star, or with `process_many` any number at once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from popfit._errors import InputError
from popfit._rival import rival_attribute, rival_function
from popfit.rvspecfit._jobs import Job
from popfit.rvspecfit._models import MOST_TERMS, Continuum, as_star
from popfit.rvspecfit._results import describe_star
from popfit.table import FitTable

#: Parameters of a star by name, or a sequence of those of each star.
Values: TypeAlias = "Mapping[str, Any] | Sequence[Mapping[str, Any]] | None"

#: Grid of `firstguess`.
_GUESSED = {
    "logg": (1.0, 2.0, 3.0, 4.0, 5.0),
    "teff": (3000.0, 5000.0, 8000.0, 10000.0),
    "feh": (-2.0, -1.0, 0.0),
    "alpha": (0.0,),
}


def process(
    specdata: Any,
    paramDict0: Mapping[str, float],
    fixParam: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    resolParams: Mapping[str, Any] | None = None,
    priors: Mapping[str, Sequence[float]] | None = None,
) -> dict[str, Any]:
    """Fit velocity and labels of one star by maximum likelihood.

    Parameters
    ----------
    specdata : SpecData or sequence of SpecData
        Spectra of the star, one of each setup.
    paramDict0 : mapping of str to float
        Labels of one more start, and values of fixed parameters. With ``vsini`` the star rotates.
    fixParam : sequence of str, optional
        Labels, and ``vsini``, that are not fitted.
    options : mapping, optional
        ``npoly``, the number of terms of the continuum (5), and ``rbf_continuum``.
    config : mapping
        The configuration; see `popfit.rvspecfit.utils.read_config`.
    resolParams : mapping of str to ResolMatrix, optional
        Resolution matrices by the names of the setups.
    priors : mapping of str to (float, float), optional
        Mean and sigma of normal priors of labels.

    Returns
    -------
    dict
        rvspecfit's: ``param``, ``param_err``, ``param_covar``; ``vel``, ``vel_err``, ``vel_skewness``,
        ``vel_kurtosis`` of a scan of the velocity at the fit's labels; ``vsini``, if it is fitted;
        ``minimize_success``, ``bad_hessian``; ``yfit``, ``raw_models``; ``chisq`` (−2 ln L), ``logl``,
        ``chisq_array``, ``npix_array``. And ``vel_err_joint``, the error of the velocity with that of all others.

    Raises
    ------
    RuntimeError
        If there is no configuration, or the star cannot be fitted.
    """
    terms = Continuum.of(options).terms
    if terms > MOST_TERMS:
        function = rival_function("rvspecfit.vel_fit", "process", f"npoly={terms}")
        answer: dict[str, Any] = function(specdata, paramDict0, fixParam, options, config, resolParams, priors)
        return answer
    job = Job.of(
        [as_star(specdata)],
        paramDict0,
        fixed=fixParam or (),
        options=options,
        config=config,
        resolution=resolParams,
        priors=priors,
        rotates="vsini" in paramDict0,
    )
    missing = [label for label in job.labels if label not in paramDict0]
    if missing:
        raise KeyError(f"paramDict0 has no {', '.join(missing)}")
    return describe_star(job, job.fit({"velocity_scan": "fixed", "device": "cpu"}))


def process_many(
    specdata: Sequence[Any],
    paramDict0: Values = None,
    fixParam: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    resolParams: Mapping[str, Any] | None = None,
    priors: Values = None,
    *,
    mask: Literal["keep", "apply"] = "keep",
    vsini: bool | None = None,
    ids: Sequence[Any] | None = None,
    **settings: Any,
) -> FitTable:
    """Fit any number of stars at once.

    Parameters
    ----------
    specdata : sequence of (SpecData or sequence of SpecData)
        For each star its spectra, one of each setup. Stars may lack setups.
    paramDict0 : mapping or sequence of mappings, optional
        As in `process`, for all stars or for each. Without it the first guess alone chooses the starts.
    fixParam, options, config, resolParams
        As in `process`, for all stars.
    priors : mapping or sequence of mappings, optional
        As in `process`, for all stars or for each.
    mask : {"keep", "apply"}
        "keep" lets bad pixels count in the likelihood, as rvspecfit does; "apply" leaves them out.
    vsini : bool, optional
        Whether the stars rotate; by default if `paramDict0` has a ``vsini``.
    ids : sequence, optional
        Integers or texts for the column ``id``; row numbers without it.
    **settings
        Settings of `popfit.fit`, such as ``device``, ``velocity_scan`` and ``progress``.

    Returns
    -------
    FitTable
        One row for each star, in their order. ``objective`` is −2 ln L over the pixels that count,
        with the priors.

    Raises
    ------
    InputError
        If spectra or settings are wrong.
    """
    if mask not in ("keep", "apply"):
        raise InputError(f"mask={mask!r}; give 'keep' or 'apply'", argument="mask")
    rotates = vsini
    if rotates is None:
        given = [paramDict0] if isinstance(paramDict0, Mapping) else list(paramDict0 or ())
        rotates = any("vsini" in one for one in given)
    job = Job.of(
        [as_star(star) for star in specdata],
        paramDict0,
        fixed=fixParam or (),
        options=options,
        config=config,
        resolution=resolParams,
        priors=priors,
        rotates=rotates,
        mask=mask == "apply",
        ids=ids,
    )
    return job.fit(settings)


def firstguess(
    specdata: Any,
    options: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    resolParams: Mapping[str, Any] | None = None,
    vsinigrid: Sequence[float | None] = (None, 10, 100),
    paramsgrid: Mapping[str, Sequence[float]] | None = None,
) -> dict[str, float]:
    """Return the best point of a grid of labels and rotation, whatever the velocity.

    Parameters
    ----------
    specdata, options, config, resolParams
        As in `process`.
    vsinigrid : sequence of float or None
        Values of vsini in km/s; None is no rotation.
    paramsgrid : mapping of str to sequence of float, optional
        Values of each label. Points outside of the training set do not compete.

    Returns
    -------
    dict
        Labels by name, and ``vsini`` if the best point rotates.

    Raises
    ------
    InputError
        If no point of the grid lies in the training set.
    """
    star = as_star(specdata)
    grid = _GUESSED if paramsgrid is None else paramsgrid
    points = [dict(zip(grid, point, strict=True)) for point in itertools.product(*grid.values())]
    job = Job.of([star], None, options=options, config=config, resolution=resolParams)
    missing = [name for name in job.labels if name not in grid]
    if missing:
        raise InputError(f"paramsgrid: no values of {', '.join(missing)}", argument="paramsgrid")
    inside = [point for point in points if job.is_trained(point)]
    if not inside:
        raise InputError("paramsgrid: no point lies in the training range of the network", argument="paramsgrid")
    best: dict[str, float] = {}
    lowest = np.inf
    for vsini in vsinigrid:
        table = job.held(inside, vsini).fit({"starts": 1, "device": "cpu"})
        objectives = np.where(table["status"] >= 0, table["objective"], np.inf)
        if objectives.min() < lowest:
            lowest = float(objectives.min())
            point = inside[int(objectives.argmin())]
            best = {name: point[name] for name in job.labels}
            if vsini is not None:
                best["vsini"] = vsini
    if not best:
        raise InputError("specdata: the spectrum cannot be fitted at any point of the grid", argument="specdata")
    return best


def __getattr__(name: str) -> Any:
    return rival_attribute(__name__, "rvspecfit.vel_fit", name)


__all__ = ["firstguess", "process", "process_many"]
