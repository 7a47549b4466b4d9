"""DESI's files: the fibres of one that are fitted, and what is added to the tables of its fit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from popfit._errors import InputError
from popfit.spectra import Path

#: Arms of DESI's spectrographs.
ARMS = ("b", "r", "z")
#: Bits of the status of usable fibres: 3 for a positioner with a restricted reach, and 20 for many bad columns.
_HARMLESS_STATUS = 1 << 3 | 1 << 20
#: Columns of SCORES with the signal-to-noise ratio of an arm, the first that is there.
_SCORES = ("MEDIAN_CALIB_SNR_", "MEDIAN_COADD_SNR_", "MEDIAN_COADD_FLUX_SNR_")


@dataclass(frozen=True)
class Fibres:
    """Fibres of a file.

    Attributes
    ----------
    fibermap : FITS_rec
        Rows of the HDU FIBERMAP.
    scores : FITS_rec or None
        Rows of the HDU SCORES.
    selected : array of bool
        Rows that are fitted, but for `least_signal`.
    least_signal : float or None
        Signal-to-noise ratio that popfit has to ask for, because the file's SCORES do not have it.
    """

    fibermap: Any
    scores: Any
    selected: npt.NDArray[np.bool_]
    least_signal: float | None

    @property
    def target_ids(self) -> list[int]:
        """TARGETIDs of the selected rows.

        Raises
        ------
        InputError
            If rows that are not selected have one of them, too.
        """
        ids = np.asarray(self.fibermap["TARGETID"])
        chosen = ids[self.selected]
        if np.isin(ids[~self.selected], chosen).any() or len(np.unique(chosen)) != len(chosen):
            raise InputError(
                "FIBERMAP: a target has several rows; popfit selects by TARGETID, so give a coadd", argument="fname"
            )
        return [int(one) for one in chosen]


def read_fibres(
    file: Any, arms: Sequence[str], target_ids: int | Sequence[int] | None, least_signal: float | None
) -> Fibres:
    """Return the fibres of an open file, and those among them that rvs_desi_fit fits."""
    names = [hdu.name for hdu in file]
    fibermap = np.array(file["FIBERMAP"].data)
    scores = np.array(file["SCORES"].data) if "SCORES" in names else None
    columns = fibermap.dtype.names or ()
    selected = ~np.isin(np.char.strip(fibermap["OBJTYPE"].astype(str)), ("SKY", "BAD"))
    for name in ("FIBERSTATUS", "COADD_FIBERSTATUS"):
        if name in columns:
            selected &= (fibermap[name] & ~_HARMLESS_STATUS) == 0
            break
    if target_ids is not None:
        selected &= np.isin(fibermap["TARGETID"], target_ids)
    known = () if scores is None else scores.dtype.names or ()
    for prefix in _SCORES:
        of_arms = [f"{prefix}{arm.upper()}" for arm in arms]
        if least_signal is not None and scores is not None and all(name in known for name in of_arms):
            selected &= np.max([scores[name] for name in of_arms], axis=0) > least_signal
            least_signal = None
    return Fibres(fibermap, scores, selected, least_signal)


def lacks_hdus(file: Any) -> list[str]:
    """Return the names of HDUs that a file of DESI lacks."""
    wanted = [f"{arm.upper()}_{kind}" for arm in ARMS for kind in ("WAVELENGTH", "FLUX", "IVAR", "MASK")]
    names = [hdu.name for hdu in file]
    return [name for name in [*wanted, "FIBERMAP"] if name not in names]


def write_empty(
    file: Any, arms: Sequence[str], fibres: Fibres, table: str, models: str, cards: Mapping[str, str]
) -> None:
    """Write tables of no fibre."""
    from astropy.io import fits  # type: ignore[import-untyped,unused-ignore]

    none = np.zeros(len(fibres.selected), dtype=bool)
    passed = [fits.BinTableHDU(fibres.fibermap[none], name="FIBERMAP")]
    if fibres.scores is not None:
        passed.append(fits.BinTableHDU(fibres.scores[none], name="SCORES"))
    images = []
    for arm in arms:
        wavelength = file[f"{arm.upper()}_WAVELENGTH"].data
        images += [
            fits.ImageHDU(wavelength, name=f"{arm.upper()}_WAVELENGTH"),
            fits.ImageHDU(name=f"{arm.upper()}_MODEL"),
        ]
    header = fits.Header(list(cards.items()))
    rvtab = fits.BinTableHDU.from_columns([], name="RVTAB")
    fits.HDUList([fits.PrimaryHDU(header=header), rvtab, *passed]).writeto(table, overwrite=True, checksum=True)
    fits.HDUList([fits.PrimaryHDU(header=header), *images, passed[0]]).writeto(models, overwrite=True, checksum=True)


def add_cards(path: Path, cards: Mapping[str, str]) -> None:
    """Add cards to the primary header of a file."""
    from astropy.io import fits

    if cards:
        with fits.open(path, mode="update", checksum=True) as file:
            file[0].header.update(cards)


def draw_fits(spectra: Any, table: str, models: str, arms: Sequence[str], prefix: str) -> None:
    """Draw each fitted fibre of an open file with its model, to files ``PREFIX_BRICK_TARGETID_ROW.png``."""
    from astropy.io import fits
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    os.makedirs(os.path.dirname(prefix) or ".", exist_ok=True)
    fibermap = spectra["FIBERMAP"].data
    row_of = {int(target): row for row, target in enumerate(fibermap["TARGETID"])}
    with fits.open(table) as fitted, fits.open(models) as model:
        for k, star in enumerate(fitted["RVTAB"].data):
            row = row_of[int(star["TARGETID"])]
            figure = Figure(figsize=(10, 3 * len(arms)), layout="constrained")
            FigureCanvasAgg(figure)
            for axes, arm in zip(np.ravel(figure.subplots(len(arms), 1)), arms, strict=True):
                name = arm.upper()
                wavelength, flux = spectra[f"{name}_WAVELENGTH"].data, spectra[f"{name}_FLUX"].data[row]
                good = (spectra[f"{name}_IVAR"].data[row] > 0) & (spectra[f"{name}_MASK"].data[row] == 0)
                axes.plot(wavelength, np.where(good, flux, np.nan), color="0.2", lw=0.7)
                axes.plot(wavelength, model[f"{name}_MODEL"].data[k], color="C3", lw=0.9)
                axes.set(ylabel=f"flux ({arm})")
            axes.set(xlabel="wavelength (Å)")
            title = ", ".join(f"{name} {star[name]:.4g}" for name in ("TEFF", "LOGG", "FEH", "ALPHAFE", "VSINI"))
            figure.axes[0].set_title(f"VRAD {star['VRAD']:.1f} ± {star['VRAD_ERR']:.1f}, {title}")
            brick = int(fibermap["BRICKID"][row]) if "BRICKID" in fibermap.columns.names else 0
            figure.savefig(f"{prefix}_{brick}_{int(star['TARGETID'])}_{row}.png", dpi=150)
