"""Stars of a call, with their model and starts, ready to be fitted."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from popfit import fitting
from popfit._errors import InputError, PopfitWarning
from popfit._foreign import refuse_exposures
from popfit._rows import join_rows, lower_rows
from popfit.model import SpectralModel
from popfit.rvspecfit._library import label_names
from popfit.rvspecfit._models import (
    Continuum,
    Floats,
    Settings,
    build_model,
    complete_config,
    has_resolution,
    label_columns,
    warn_of_unknown,
    with_resolution,
)
from popfit.spectra import spectra_of_spec_data
from popfit.table import FitTable


@dataclasses.dataclass(frozen=True)
class Job:
    """A call to fit stars."""

    #: SpecData of each star.
    stars: list[list[Any]]
    model: SpectralModel
    continuum: Continuum
    #: Names of the labels.
    labels: list[str]
    #: Labels that are not fitted.
    fixed: tuple[str, ...]
    #: Starts, values and priors of each star.
    values: list[Mapping[str, Any]]
    priors: list[Mapping[str, Sequence[float]]]
    #: Whether `values` are starts, beside those of the first guess.
    has_starts: bool
    #: Whether bad pixels are masked.
    mask: bool
    ids: Sequence[Any] | None
    #: What the model was built of.
    config: Mapping[str, Any]
    settings: Settings

    @classmethod
    def of(
        cls,
        stars: Sequence[Sequence[Any]],
        values: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
        *,
        fixed: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        resolution: Mapping[str, Any] | None = None,
        priors: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        rotates: bool = False,
        mask: bool = False,
        ids: Sequence[Any] | None = None,
    ) -> Job:
        """Return the job of a call's arguments.

        Raises
        ------
        InputError
            If they do not fit each other.
        """
        config = complete_config(config)
        fixed = (fixed,) if isinstance(fixed, str) else fixed
        given = [with_resolution(star, resolution) for star in stars]
        refuse_exposures(given)
        setups = list(dict.fromkeys(one.name for star in given for one in star))
        if not setups:
            raise InputError("specdata: no stars", argument="specdata")
        labels = label_names(setups[0], config)
        warn_of_unknown("fixParam", fixed, [*labels, "vsini"])
        of_stars = _of_each(values, len(given), "paramDict0")
        for star in of_stars:
            for name in fixed:
                if name not in star and name in [*labels, "vsini"]:
                    raise InputError(f"fixParam: paramDict0 has no {name}", argument="paramDict0")
        knowledge = _of_each(priors, len(given), "priors")
        for one in knowledge:
            warn_of_unknown("priors", one, labels)
            for name, prior in one.items():
                if np.shape(prior) != (2,):
                    raise InputError(f"priors: {name}: {prior!r}; give (mean, sigma)", argument="priors")
        vsini: tuple[float, float] | float | None = (0.0, float(config["max_vsini"])) if rotates else None
        if rotates and "vsini" in fixed:
            vsini = _one_vsini(of_stars)
        settings = Settings(
            Continuum.of(options), (float(config["min_vel"]), float(config["max_vel"])), vsini, has_resolution(given)
        )
        return cls(
            stars=given,
            model=build_model(setups, config, settings),
            continuum=settings.continuum,
            labels=labels,
            fixed=tuple(name for name in fixed if name in labels),
            values=of_stars,
            priors=knowledge,
            has_starts=values is not None,
            mask=mask,
            ids=ids,
            config=config,
            settings=settings,
        )

    def held(self, points: Sequence[Mapping[str, float]], vsini: float | None) -> Job:
        """Return the job of fitting the velocity alone to the first star, at each of these labels."""
        settings = dataclasses.replace(self.settings, vsini=vsini)
        setups = [one.name for one in self.stars[0]]
        return dataclasses.replace(
            self,
            stars=[self.stars[0]] * len(points),
            model=build_model(setups, self.config, settings),
            fixed=tuple(self.labels),
            values=list(points),
            priors=[{}] * len(points),
            has_starts=False,
            settings=settings,
        )

    def is_trained(self, point: Mapping[str, float]) -> bool:
        """Return whether labels lie in the range of the training set."""
        bounds = self.model.bounds
        return all(bounds[name][0] <= point[name] <= bounds[name][1] for name in self.labels)

    def columns(self, *, started: bool) -> dict[str, Floats]:
        """Return the columns of all stars; with `started` the fits begin at the call's values."""
        return label_columns(
            len(self.stars),
            self.labels,
            starts=[self._inside(star) for star in self.values] if started else None,
            fixed=self.fixed,
            values=self.values,
            priors=self.priors,
        )

    def fit(self, settings: Mapping[str, Any]) -> FitTable:
        """Fit all stars, from the starts of the first guess and from the call's own."""
        guessed = self._fit_groups(settings, started=False)
        return lower_rows(guessed, self._fit_groups(settings, started=True)) if self.has_starts else guessed

    def _fit_groups(self, settings: Mapping[str, Any], *, started: bool) -> FitTable:
        """Fit stars with the same numbers of pixels together: pixels that pad a spectrum would widen its continuum."""
        columns = self.columns(started=started)
        arms = list(self.model.arms)
        shapes = [tuple(sorted((arms.index(one.name), len(one.lam)) for one in star)) for star in self.stars]
        lengths: dict[tuple[tuple[int, int], ...], list[int]] = {}
        for row, shape in enumerate(shapes):
            lengths.setdefault(shape, []).append(row)
        ids = np.arange(len(self.stars)) if self.ids is None else np.asarray(self.ids)
        tables = []
        which, place = np.zeros(len(self.stars), dtype=int), np.zeros(len(self.stars), dtype=int)
        for group, rows in enumerate(lengths.values()):
            spectra = spectra_of_spec_data(
                [self.stars[row] for row in rows],
                mask=self.mask,
                columns={name: column[rows] for name, column in columns.items()},
                ids=ids[rows],
            )
            with warnings.catch_warnings(), fitting.without_result_warnings():
                # stars of one group may all lack an arm, as they may in rvspecfit
                warnings.filterwarnings("ignore", "spectra: no arrays for arm", PopfitWarning)
                tables.append(fitting.fit(self.model, spectra, **settings))
            which[rows], place[rows] = group, np.arange(len(rows))
        return tables[0] if len(tables) == 1 else join_rows(tables, which, place)

    def _inside(self, star: Mapping[str, Any]) -> dict[str, float]:
        """Return a star's starts, moved into the bounds of the model."""
        moved = {}
        for name, (low, high) in self.model.bounds.items():
            if name in star and name not in self.fixed:
                moved[name] = float(np.clip(star[name], low, high))
        return moved


def _of_each(
    given: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None, count: int, argument: str
) -> list[Mapping[str, Any]]:
    """Return values that are given for all stars or for each, for each."""
    if given is None:
        return [{}] * count
    if isinstance(given, Mapping):
        return [given] * count
    if len(given) != count:
        raise InputError(f"{argument}: {len(given)}, but there are {count} stars", argument=argument)
    return list(given)


def _one_vsini(values: Sequence[Mapping[str, Any]]) -> float:
    """Return the fixed vsini of all stars."""
    found = {float(star["vsini"]) for star in values}
    if len(found) != 1:
        raise InputError(
            f"fixParam: vsini is fixed at {len(found)} values; fit the stars of each value in a call of their own",
            argument="fixParam",
        )
    return found.pop()
