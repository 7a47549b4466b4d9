"""Small files in the layouts that popfit reads, written by astropy, and what popfit should find in them."""

import numpy as np
from astropy.io import fits

# beyond 2^53: a reader that goes through floats changes the last digits
LARGE_ID = 39627652591523841
PIXMASK_BAD = 0xFF | 1 << 12 | 1 << 14


def sums(rows):
    return [float(np.sum(row, dtype="f8")) for row in rows]


def arm(name, wave, flux, ivar, bad, resolution=None):
    """The arm's part of what popfit should print; everything (spectra, pixels)."""
    wave = np.broadcast_to(np.asarray(wave, "f8"), flux.shape)
    return {
        "name": name,
        "pixels": flux.shape[1],
        "first": [float(w[0]) for w in wave],
        "last": [float(w[-1]) for w in wave],
        "wavelength": sums(wave),
        "flux": sums(flux),
        "ivar": sums(ivar),
        "masked": [int(row.sum()) for row in bad],
        "resolution": None if resolution is None else float(np.sum(resolution, dtype="f8")),
    }


def to_vacuum(air):
    """The inverse of SDSS's vacuum-to-air formula, by bisection: not the way popfit does it."""
    low, high = air, air * 1.001
    for _ in range(60):
        middle = (low + high) / 2
        index = 1 + 2.735182e-4 + 131.4182 / middle**2 + 2.76249e8 / middle**4
        above = middle / index > air
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return (low + high) / 2


def desi(path, rng, air=False):
    """Three arms; every type of column, signed, unsigned and scaled; MASK as uint32, IVAR as scaled int16."""
    n = 5
    columns = {
        "TARGETID": ("K", LARGE_ID + np.arange(n), None),
        "OBJTYPE": ("3A", np.array(["TGT", "SKY", "TGT", "", "TGT"]), None),
        "LOGICAL": ("L", np.arange(n) % 2 == 0, None),
        "U1": ("B", np.arange(n, dtype="u1") + 250, None),
        "I2": ("I", np.arange(n, dtype="i2") - 300, None),
        "U2": ("I", np.arange(n, dtype="u2") + 40000, 2**15),
        "I4": ("J", np.arange(n, dtype="i4") - 2**30, None),
        "U4": ("J", np.arange(n, dtype="u4") + 2**31, 2**31),
        "U8": ("K", np.arange(n, dtype="u8") + 2**63 + 1, 2**63),
        "F4": ("E", rng.normal(size=n).astype("f4"), None),
        "TARGET_RA": ("D", rng.normal(size=n), None),
        "VECTOR": ("3E", rng.normal(size=(n, 3)).astype("f4"), None),
    }
    units = {"TARGET_RA": "deg", "F4": "km s-1"}
    table = fits.BinTableHDU.from_columns(
        [fits.Column(k, f, units.get(k), array=v, bzero=z) for k, (f, v, z) in columns.items()], name="FIBERMAP"
    )
    scaled = fits.Column("SCALED", "I", array=np.array([-17, -16, -15, -14, -40], "i2"))
    scores = fits.BinTableHDU.from_columns([scaled], name="SCORES")
    expected = {"length": n, "ids": [int(x) for x in columns["TARGETID"][1]], "rows": list(range(n)), "arms": []}
    expected["columns"] = {("FIBERMAP", k): v for k, (_, v, _) in columns.items() if k != "VECTOR"}
    expected["columns"]["SCORES", "SCALED"] = np.array([1.5, 2, 2.5, 3, -10])
    expected["units"] = units
    hdus = [fits.PrimaryHDU(), table]
    for name, pixels in zip("BRZ", (31, 64, 17)):
        wave = np.linspace(3600, 3700, pixels)
        flux = rng.normal(size=(n, pixels)).astype("f4")
        counts = rng.integers(0, 100, size=(n, pixels)).astype("i2")
        mask = (rng.random((n, pixels)) < 0.2).astype("u4") * 2**31
        resolution = rng.random((n, 11, pixels)).astype("f4")
        header = fits.Header({"AIRORVAC": "air"}) if air else None
        hdus.append(fits.ImageHDU(wave, header, name=f"{name}_WAVELENGTH"))
        hdus.append(fits.ImageHDU(flux, name=f"{name}_FLUX"))
        ivar = fits.ImageHDU(counts * 0.25 + 3.0, name=f"{name}_IVAR")
        ivar.scale("int16", bscale=0.25, bzero=3.0)
        hdus.append(ivar)
        hdus.append(fits.ImageHDU(mask, name=f"{name}_MASK"))
        hdus.append(fits.ImageHDU(resolution, name=f"{name}_RESOLUTION"))
        truth = to_vacuum(wave) if air else wave
        expected["arms"].append(arm(name.lower(), truth, flux, counts * 0.25 + 3.0, mask != 0, resolution))
    hdus.insert(2, fits.BinTableHDU.from_columns([fits.Column("TARGETID", "K", array=[1])], name="EXP_FIBERMAP"))
    hdus.append(scores)
    fits.HDUList(hdus).writeto(path)
    for key, value in (("TSCAL1", 0.5), ("TZERO1", 10.0)):
        fits.setval(path, key, value=value, extname="SCORES")
    expected["notes"] = 4 if air else 1  # VECTOR, and the three arms' wavelengths
    return expected


def desi_of_type(path, dtype):
    """One arm whose images are of one type."""
    flux = np.arange(24).reshape(3, 8).astype(dtype)
    table = fits.BinTableHDU.from_columns([fits.Column("TARGETID", "K", array=[1, 2, 3])], name="FIBERMAP")
    wave = np.linspace(5000, 5010, 8)
    images = [("B_WAVELENGTH", wave), ("B_FLUX", flux), ("B_IVAR", flux), ("B_MASK", flux)]
    fits.HDUList([fits.PrimaryHDU(), table] + [fits.ImageHDU(v, name=k) for k, v in images]).writeto(path)
    arms = [arm("b", wave, flux, flux, flux != 0)]
    return {"length": 3, "ids": [1, 2, 3], "rows": [0, 1, 2], "arms": arms, "notes": 0}


def sdss(path, rng, air=False):
    """A lite file."""
    pixels = 50
    loglam = (3.6 + 1e-4 * np.arange(pixels)).astype("f4")
    flux, ivar = rng.normal(size=pixels).astype("f4"), rng.random(pixels).astype("f4")
    mask = (rng.random(pixels) < 0.2).astype("i4") << 22
    coadd = [("flux", "E", flux), ("loglam", "E", loglam), ("ivar", "E", ivar), ("and_mask", "J", mask)]
    properties = [("PLATE", "J", [266]), ("MJD", "J", [51602]), ("FIBERID", "J", [31]), ("Z", "E", [0.25])]
    header = fits.Header({"VACUUM": not air})
    tables = [
        fits.BinTableHDU.from_columns([fits.Column(k, f, array=v) for k, f, v in rows], name=name)
        for name, rows in (("COADD", coadd), ("SPECOBJ", properties))
    ]
    fits.HDUList([fits.PrimaryHDU(header=header)] + tables).writeto(path)
    wave = 10 ** loglam.astype("f8")
    wave = to_vacuum(wave) if air else wave
    arms = [arm("", wave, flux[None], ivar[None], mask[None] != 0)]
    columns = {("SPECOBJ", k): np.array(v, "f4" if f == "E" else "i4") for k, f, v in properties}
    return {
        "length": 1, "ids": ["266-51602-31"], "rows": [0], "arms": arms, "columns": columns, "units": {},
        "notes": int(air),
    }


def apogee_arrays(rng, shape):
    flux, error = rng.normal(size=shape).astype("f4"), (0.1 + rng.random(shape)).astype("f4")
    error[..., 3] = 0  # not measured
    mask = rng.choice(np.array([0, 1, 2**8, 2**12, 2**13, 2**14], "i2"), size=shape)
    ivar = np.where(error > 0, 1 / np.maximum(error.astype("f8"), 1e-9) ** 2, 0)
    return flux, error, mask, ivar


def ap_star(path, rng):
    """The combined spectrum, that of global weights, and two visits."""
    flux, error, mask, ivar = apogee_arrays(rng, (4, 40))
    header = fits.Header({"CRVAL1": 4.179, "CDELT1": 6e-6, "CRPIX1": 1.0, "CTYPE1": "LOG-LINEAR"})
    images = [fits.ImageHDU(x, header) for x in (flux, error, mask)]
    fits.HDUList([fits.PrimaryHDU(header=fits.Header({"OBJID": "2M00000032+5737103"}))] + images).writeto(path)
    wave = 10 ** (4.179 + 6e-6 * np.arange(40))
    ids = ["2M00000032+5737103/" + k for k in ("combined", "combined_global", "visit1", "visit2")]
    arms = [arm("", wave, flux, ivar, mask & PIXMASK_BAD != 0)]
    return {"length": 4, "ids": ids, "rows": [0, 1, 2, 3], "arms": arms, "notes": 0}


def ap_visit(path, rng):
    """Three chips from red to blue, each descending."""
    flux, error, mask, ivar = apogee_arrays(rng, (3, 20))
    wave = np.array([np.linspace(top, top - 100, 20) for top in (16900.0, 16400.0, 15800.0)])
    images = [fits.ImageHDU(x) for x in (flux, error, mask, wave)]
    fits.HDUList([fits.PrimaryHDU(header=fits.Header({"OBJID": "2M1"}))] + images).writeto(path)
    order = np.argsort(wave.ravel())
    line = [x.ravel()[order][None] for x in (wave, flux, ivar, mask & PIXMASK_BAD != 0)]
    return {"length": 1, "ids": ["2M1"], "rows": [0], "arms": [arm("", *line)], "notes": 0}
