"""Models and spectra of a call to rvspecfit, in popfit's terms."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from popfit._errors import InputError, PopfitWarning
from popfit._foreign import refuse_exposures
from popfit.model import SpectralModel
from popfit.rvspecfit._library import open_network
from popfit.rvspecfit.utils import get_default_config
from popfit.spectra import Spectra, spectra_of_spec_data

Floats: TypeAlias = npt.NDArray[np.float64]

#: Terms of the continuum if the options do not say.
DEFAULT_TERMS = 5
#: Most terms of a continuum that popfit fits, and fewest of its RBF basis.
MOST_TERMS, FEWEST_RBF_TERMS = 32, 4
#: Errors that may mark bad pixels: from this number on, and as many times the smallest error.
MARKING_ERROR, MARKING_RATIO = 5e8, 5e6
#: Speed of light in km/s, and the velocity beyond star and rotation that a template has to cover.
SPEED_OF_LIGHT, REACH = 299792.458, 200.0
#: Options that rvspecfit reads.
OPTIONS = ("npoly", "rbf_continuum")


@dataclass(frozen=True)
class Continuum:
    """Continuum of a call: number of terms, and whether they are rvspecfit's RBF basis."""

    terms: int
    rbf: bool

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> Continuum:
        """Return the continuum of rvspecfit's options; unknown ones are warned of."""
        options = options or {}
        warn_of_unknown("options", options, OPTIONS)
        rbf = options.get("rbf_continuum")
        return cls(int(options.get("npoly") or DEFAULT_TERMS), rbf is None or bool(rbf))

    @property
    def keys(self) -> dict[str, Any]:
        """Keys of a model file's table."""
        # three terms of the RBF basis are 1, x and x², which span what Chebyshev polynomials do
        kind = "rbf" if self.rbf and self.terms >= FEWEST_RBF_TERMS else "chebyshev"
        return {"kind": kind, "terms": self.terms, "marginalise": True}

    @property
    def determinant_offset(self) -> float:
        """What ln det(SᵀS) of popfit's basis is above that of rvspecfit's, for one arm: x² there is 2x² − 1 here."""
        return 2.0 * math.log(2.0) if self.rbf and self.terms == 3 else 0.0

    def basis(self, wavelength: Floats) -> Floats:
        """Return the functions (terms, pixels) that multiply a template."""
        x = 2.0 * (wavelength - wavelength[0]) / (wavelength[-1] - wavelength[0]) - 1.0
        if not self.rbf:
            return np.polynomial.chebyshev.chebvander(x, self.terms - 1).T
        powers = [x**k for k in range(min(3, self.terms))]
        bumps = self.terms - len(powers)
        centres = np.linspace(-1.0, 1.0, bumps)
        return np.stack(powers + [np.exp(-0.5 * ((x - centre) * bumps) ** 2) for centre in centres])


@dataclass(frozen=True)
class Settings:
    """What the model of a call depends on, beside the networks."""

    continuum: Continuum
    velocity: tuple[float, float]
    #: Range of a free vsini in km/s, a vsini that is known, or None without rotation.
    vsini: tuple[float, float] | float | None
    #: Whether spectra have resolution matrices.
    resolution: bool = False
    #: Arms of the spectra's files, if these have other names than the setups.
    arms: tuple[str, ...] | None = None
    #: Intervals in Å whose pixels do not count, and the factor of the median below which errors are raised.
    mask: tuple[tuple[float, float], ...] = ()
    error_floor: float = 0.0


def complete_config(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a configuration with the defaults of what it lacks.

    Raises
    ------
    RuntimeError
        If there is none.
    """
    if config is None:
        raise RuntimeError("Config must be provided")
    if not isinstance(config, Mapping):
        text = f"config: {config!r}; give what popfit.rvspecfit.utils.read_config returns, or a dict"
        raise InputError(text, argument="config")
    return {**get_default_config(), **config}


def build_model(setups: Sequence[str], config: Mapping[str, Any], settings: Settings) -> SpectralModel:
    """Build the model of setups, or return the one that an earlier call has built of the same networks."""
    networks = [open_network(setup, config) for setup in setups]
    names = list(networks[0].emulator.labels)
    for setup, network in zip(setups, networks, strict=True):
        if list(network.emulator.labels) != names:
            raise InputError(
                f"config: the labels of {setup!r} are {', '.join(network.emulator.labels)}, those of {setups[0]!r} "
                f"{', '.join(names)}",
                argument="config",
            )
    return _cached_model(
        tuple(setups), tuple(network.key for network in networks), str(config["template_lib"]), settings
    )


@functools.lru_cache(maxsize=16)
def _cached_model(
    setups: tuple[str, ...], keys: tuple[tuple[str, int, int], ...], library: str, settings: Settings
) -> SpectralModel:
    """Return the model of networks; `keys` say whether their files have changed since."""
    networks = [open_network(setup, {"template_lib": library}).emulator for setup in setups]
    spread = {"line_spread": "file"} if settings.resolution else {}
    arms = {
        arm: {"emulator": network, "pixels": "sample", **spread}
        for arm, network in zip(settings.arms or setups, networks, strict=True)
    }
    return SpectralModel(
        arms,
        velocity=settings.velocity,
        vsini=_vsini_keys(settings),
        continuum=settings.continuum.keys,
        labels={name: _label_keys(name) for name in networks[0].labels} if settings.arms is None else None,
        mask=settings.mask,
        error_floor=settings.error_floor,
    )


def _vsini_keys(settings: Settings) -> dict[str, Any] | None:
    """Return what a model file says of the rotation: a free vsini has its start in a column."""
    if settings.vsini is None:
        return None
    if not isinstance(settings.vsini, tuple):
        return {"fixed": settings.vsini}
    start = {"start": {"column": "start_vsini"}} if settings.arms is None else {}
    return {"range": list(settings.vsini), **start}


def _label_keys(name: str) -> dict[str, Any]:
    """Return what a model file says of a label whose start, bounds and prior are columns."""
    columns = {key: {"column": f"{key}_{name}"} for key in ("start", "lower", "upper", "mean", "sd")}
    return {
        "start": columns["start"],
        "bounds": [columns["lower"], columns["upper"]],
        "prior": {"mean": columns["mean"], "sigma": columns["sd"]},
    }


def label_columns(
    count: int,
    names: Sequence[str],
    *,
    starts: Sequence[Mapping[str, float]] | None = None,
    fixed: Sequence[str] = (),
    values: Sequence[Mapping[str, float]] | None = None,
    priors: Sequence[Mapping[str, Sequence[float]]] | None = None,
) -> dict[str, Floats]:
    """Return the columns (count,) of labels: NaN for a start or a prior that a star lacks, infinite bounds if free.

    Parameters
    ----------
    count : int
        Number of stars.
    names : sequence of str
        Names of the labels.
    starts, values, priors : sequence of mappings, optional
        For each star where its fit begins, values of its fixed labels, and (mean, sigma) of its priors.
    fixed : sequence of str
        Labels that are not fitted.
    """
    columns = {"start_vsini": _column(count, starts, "vsini", np.nan)}
    for name in names:
        columns[f"start_{name}"] = _column(count, starts, name, np.nan)
        held = values if name in fixed else None
        columns[f"lower_{name}"] = _column(count, held, name, -np.inf)
        columns[f"upper_{name}"] = _column(count, held, name, np.inf)
        for k, key in enumerate(("mean", "sd")):
            of_stars = None if priors is None else [{name: one[name][k]} if name in one else {} for one in priors]
            columns[f"{key}_{name}"] = _column(count, of_stars, name, np.nan)
    return columns


def _column(count: int, stars: Sequence[Mapping[str, float]] | None, name: str, missing: float) -> Floats:
    """Return one number of each star, or `missing`."""
    if stars is None:
        return np.full(count, missing)
    return np.array([float(one.get(name, missing)) for one in stars])


def make_spectra(
    stars: Sequence[Sequence[Any]],
    names: Sequence[str],
    columns: Mapping[str, Floats] | None = None,
    *,
    mask: bool = False,
) -> Spectra:
    """Return the spectra of stars with the columns of labels, which say nothing unless they are given."""
    refuse_exposures(stars)
    if columns is None:
        columns = label_columns(len(stars), names)
    return spectra_of_spec_data(stars, mask=mask, columns=columns)


def warn_of_unknown(argument: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Warn of names in an argument that have no effect, as they have none in rvspecfit."""
    for name in given:
        if name not in known:
            warnings.warn(
                f"{argument}: {name!r} has no effect (known: {', '.join(known)})", PopfitWarning, stacklevel=4
            )


def as_star(specdata: Any) -> list[Any]:
    """Return the SpecData of one star as a list."""
    if hasattr(specdata, "espec"):
        return [specdata]
    star = list(specdata)
    if not star:
        raise InputError("specdata: a star without a spectrum", argument="specdata")
    return star


def with_resolution(star: Sequence[Any], resolution: Mapping[str, Any] | None) -> list[Any]:
    """Return SpecData that have the resolution matrices of a call.

    Raises
    ------
    ValueError
        If they have their own, too.
    """
    if resolution is None:
        return list(star)
    from popfit.rvspecfit.spec_fit import SpecData

    if any(one.resolution is not None for one in star):
        raise ValueError("resolParams: the SpecData have resolution matrices of their own; give one of the two")
    return [SpecData(one.name, one.lam, one.spec, one.espec, one.badmask, resolution[one.name]) for one in star]


def has_resolution(stars: Sequence[Sequence[Any]]) -> bool:
    """Return whether a SpecData of these stars has a resolution matrix."""
    return any(getattr(one, "resolution", None) is not None for star in stars for one in star)


def uncounted_errors(star: Sequence[Any], arms: Mapping[str, Mapping[str, npt.NDArray[Any]]]) -> float:
    """Return Σ 2 ln e over the pixels that rvspecfit counts and popfit does not, for huge errors or reach.

    `arms` has, by the name of the arm, the ``mask`` (1, pixels) of the pixels that did not count.
    """
    total = 0.0
    for one in star:
        left_out = find_arm(arms, one.name)["mask"][0][: len(one.lam)]
        total += 2.0 * float(np.log(one.espec[left_out]).sum())
    return total


def counts_every_pixel(model: SpectralModel, star: Sequence[Any], parameters: Floats) -> bool:
    """Return whether all pixels of a star are sure to count at parameters (P): no huge errors, a template in reach."""
    speeds = [abs(parameters[0]), *(parameters[1:2] if "vsini" in model.parameters else ())]
    margin = 1.0 + (sum(speeds) + REACH) / SPEED_OF_LIGHT
    for one in star:
        grid = model.arms[one.name].wavelength
        steps = np.diff(np.log(grid))
        covered = grid[0] * margin < one.lam[0] and one.lam[-1] < grid[-1] / margin
        in_reach = covered and steps.max() < 1.5 * steps.min()
        low, high = float(np.min(one.espec)), float(np.max(one.espec))
        if not (in_reach and 0.0 < high < MARKING_ERROR and high < MARKING_RATIO * low):
            return False
    return True


def find_arm(arms: Mapping[str, Mapping[str, npt.NDArray[Any]]], name: str) -> Mapping[str, npt.NDArray[Any]]:
    """Return the arrays of an arm among those of `SpectralModel.predict`, where an only arm has no name."""
    return arms[""] if "" in arms else arms[name]
