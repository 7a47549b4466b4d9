"""The dict of ``rvspecfit.vel_fit.process``."""

from __future__ import annotations

from typing import Any

import numpy as np

from popfit.rvspecfit._jobs import Job
from popfit.rvspecfit._likelihood import evaluate
from popfit.rvspecfit._models import Floats
from popfit.rvspecfit.spec_fit import NotFiniteError
from popfit.table import FitTable


def describe_star(job: Job, table: FitTable) -> dict[str, Any]:
    """Return rvspecfit's dict of a job's only star and its row.

    Raises
    ------
    NotFiniteError
        If the star could not be fitted.
    """
    if int(table["status"][0]) < 0 and table.messages[0]:
        raise NotFiniteError(f"{table['status_text'][0]}: {table.messages[0]}", argument="specdata", row=0)
    names = job.model.parameters
    parameters = np.array([[table[name][0] for name in names]])
    columns = job.columns(started=False)
    likelihood = evaluate(job.model, job.continuum, job.stars[0], parameters, columns, derivatives=True)
    likelihood.chisq -= _prior_penalty(job, table)
    assert likelihood.normal_matrix is not None
    covariance, bad_hessian = _covariance(job, likelihood.normal_matrix)
    of_labels = [names.index(label) for label in job.labels]
    found: dict[str, Any] = {"param": {label: table[label][0] for label in job.labels}}
    if "vsini" in names:
        found["vsini"] = table["vsini"][0]
    found |= _velocity(table, likelihood.normal_matrix)
    found["param_err"] = {label: np.sqrt(covariance[k, k]) for label, k in zip(job.labels, of_labels, strict=True)}
    found["param_covar"] = covariance[np.ix_(of_labels, of_labels)]
    found["minimize_success"] = bool(table.converged[0])
    found["bad_hessian"] = bad_hessian
    description = likelihood.describe(job.stars[0])
    found["yfit"] = description["models"]
    for key in ("raw_models", "chisq", "logl", "chisq_array", "npix_array"):
        found[key] = description[key]
    found["vel_err_joint"] = np.sqrt(covariance[0, 0])
    return found


def _velocity(table: FitTable, normal: Floats) -> dict[str, Any]:
    """Return velocity, error and moments of the scan; of a fit that did not converge there is none, but an error."""
    keys = {"vel": "posterior", "vel_err": "posterior_err", "vel_skewness": "skewness", "vel_kurtosis": "kurtosis"}
    scanned = {key: table[f"velocity_{name}"][0] for key, name in keys.items() if f"velocity_{name}" in table}
    if scanned and np.isfinite(scanned["vel"]):
        return scanned
    error = 1.0 / np.sqrt(normal[0, 0]) if normal[0, 0] > 0.0 else np.float64(np.inf)
    return {"vel": table["velocity"][0], "vel_err": error, "vel_skewness": np.nan, "vel_kurtosis": np.nan}


def _covariance(job: Job, normal: Floats) -> tuple[Floats, bool]:
    """Return the covariance (P, P) of all parameters, zero for fixed ones, and whether it is not that of a minimum.

    Bounds do not count: there are none in rvspecfit.
    """
    free = [k for k, name in enumerate(job.model.parameters) if name not in job.fixed]
    covariance = np.zeros_like(normal)
    matrix = normal[np.ix_(free, free)]
    scale = np.sqrt(np.diag(matrix))
    try:
        inverse = np.linalg.inv(matrix / np.outer(scale, scale)) / np.outer(scale, scale)
    except np.linalg.LinAlgError:
        inverse = np.full_like(matrix, np.nan)
    bad = not bool(np.all(np.isfinite(inverse)) and np.all(np.diag(inverse) > 0.0))
    if bad:
        # as there: an error of each parameter with all others known
        inverse = np.diag(np.where(scale > 0.0, 1.0 / scale**2, np.inf))
    covariance[np.ix_(free, free)] = inverse
    return covariance, bad


def _prior_penalty(job: Job, table: FitTable) -> float:
    """Return what the priors add to the objective."""
    penalty = 0.0
    for label in job.labels:
        if label in job.priors[0]:
            mean, sigma = job.priors[0][label]
            penalty += float(((table[label][0] - mean) / sigma) ** 2)
    return penalty
