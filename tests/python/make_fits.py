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
    mask = flux.astype("i4") if flux.dtype.kind == "f" else flux
    return desi_of_images(path, fits.ImageHDU(flux, name="B_FLUX"), fits.ImageHDU(mask, name="B_MASK"))


def desi_of_images(path, flux_hdu, mask):
    """One arm with these HDUs of its flux, which is its ivar, too, and of its mask."""
    flux = np.array(flux_hdu.data)
    n, pixels = flux.shape
    table = fits.BinTableHDU.from_columns([fits.Column("TARGETID", "K", array=np.arange(n))], name="FIBERMAP")
    wave = np.linspace(5000, 5010, pixels)
    images = [fits.ImageHDU(wave, name="B_WAVELENGTH"), flux_hdu, fits.ImageHDU(flux, name="B_IVAR"), mask]
    bad = np.array(mask.data) != 0
    fits.HDUList([fits.PrimaryHDU(), table] + images).writeto(path)
    arms = [arm("b", wave, flux, flux, bad)]
    ids = list(range(n))
    return {"length": n, "ids": ids, "rows": ids, "arms": arms, "notes": 0}


def desi_compressed(path, rng, kind, dtype, tile):
    """An arm whose flux and mask are compressed integers: bits, and noise that Rice's code takes in all its ways."""
    n, pixels = 7, 333
    info = np.iinfo(dtype)
    mask = np.zeros((n, pixels), dtype)
    mask[1] = rng.random(pixels) < 0.1
    mask[2] = rng.integers(info.min, info.max, pixels, dtype)  # differences as they are
    mask[3] = rng.integers(0, 40, pixels)
    mask[4, 100:120] = info.max
    mask[5] = np.cumsum(rng.random(pixels) < 0.05)
    flux, bad = (
        fits.CompImageHDU(mask, name=name, compression_type=kind, tile_shape=tile) for name in ("B_FLUX", "B_MASK")
    )
    return desi_of_images(path, flux, bad)


def desi_compressed_floats(path, rng):
    """An arm whose flux is compressed without loss."""
    flux = rng.normal(size=(3, 50)).astype("f4")
    packed = fits.CompImageHDU(flux, name="B_FLUX", compression_type="GZIP_2", quantize_level=0.0)
    return desi_of_images(path, packed, fits.ImageHDU(np.zeros((3, 50), "i4"), name="B_MASK"))


def lamost_arrays(rng, pixels, start):
    wave = (10 ** (start + 1e-4 * np.arange(pixels))).astype("f4")
    mask = rng.choice(np.array([0, 0, 4, 32], "i4"), size=pixels)
    return wave, rng.normal(size=pixels).astype("f4"), rng.random(pixels).astype("f4"), mask


def lamost_image(path, rng):
    """Low resolution to DR7: five rows."""
    wave, flux, ivar, mask = lamost_arrays(rng, 60, 3.5682)
    header = {"COEFF0": 3.5682, "COEFF1": 1e-4, "OBSID": 101001, "TELESCOP": "LAMOST", "VACUUM": True}
    rows = np.array([flux, ivar, wave, mask, mask + 1]).astype("f4")
    fits.PrimaryHDU(rows, fits.Header(header)).writeto(path)
    arms = [arm("", wave, flux[None], ivar[None], mask[None] != 0)]
    return {"length": 1, "ids": ["101001"], "rows": [0], "arms": arms, "notes": 0}


def lamost_table(path, rng):
    """Low resolution from DR8 on: one row of arrays."""
    wave, flux, ivar, mask = lamost_arrays(rng, 60, 3.5682)
    columns = {"FLUX": flux, "IVAR": ivar, "WAVELENGTH": wave, "ANDMASK": mask, "ORMASK": mask + 1}
    table = fits.BinTableHDU.from_columns(
        [fits.Column(k, "60E", array=v[None].astype("f4")) for k, v in columns.items()], name="COADD"
    )
    primary = fits.PrimaryHDU(header=fits.Header({"OBSID": 101001, "TELESCOP": "LAMOST"}))
    fits.HDUList([primary, table]).writeto(path)
    arms = [arm("", wave, flux[None], ivar[None], mask[None] != 0)]
    return {"length": 1, "ids": ["101001"], "rows": [0], "arms": arms, "notes": 0}


def lamost_medium(path, rng, by_pixel):
    """Medium resolution: a row per pixel (to DR7) or one row of arrays; and an exposure, which is not read."""
    hdus = [fits.PrimaryHDU(header=fits.Header({"OBSID": 602905123, "TELESCOP": "LAMOST"}))]
    arms = []
    for name, start, pixels in (("COADD_B", 3.694, 50), ("COADD_R", 3.799, 70), ("B-84420148", 3.694, 50)):
        wave, flux, ivar, mask = lamost_arrays(rng, pixels, start)
        if by_pixel:
            loglam = np.log10(wave.astype("f8"))
            wave = 10**loglam
            columns = [("FLUX", "E", flux), ("IVAR", "E", ivar), ("LOGLAM", "D", loglam), ("ORMASK", "J", mask)]
        else:
            columns = [("FLUX", "E", flux), ("IVAR", "E", ivar), ("WAVELENGTH", "E", wave), ("PIXMASK", "J", mask)]
            columns = [(k, f"{pixels}{f}", v[None]) for k, f, v in columns]
        hdus.append(fits.BinTableHDU.from_columns([fits.Column(k, f, array=v) for k, f, v in columns], name=name))
        arms.append(arm(name[-1].lower(), wave, flux[None], ivar[None], mask[None] != 0))
    fits.HDUList(hdus).writeto(path)
    return {"length": 1, "ids": ["602905123"], "rows": [0], "arms": arms[:2], "notes": 0}


def mwm(path, rng, rows, is_visit):
    """SDSS-V: the tables of two instruments at two observatories; arrays of f32, as astra writes them."""
    hdus = [fits.PrimaryHDU(header=fits.Header({"SDSS_ID": 79411112}))]
    # the grid, the pixels, and the bits that are bad
    instruments = {
        "BOSS": (3.5523, 1e-4, 46, 2**18 | 2**22 | 2**23 | 2**24 | 2**28),
        "APOGEE": (4.179, 6e-6, 85, PIXMASK_BAD),
    }
    parts, ids = {name: [] for name in instruments}, []
    for count, (name, site) in zip(rows, (("BOSS", "APO"), ("BOSS", "LCO"), ("APOGEE", "APO"), ("APOGEE", "LCO"))):
        start, step, pixels, bad = instruments[name]
        size = (count, pixels if count else 0)
        flux, ivar = rng.normal(size=size).astype("f4"), rng.random(size).astype("f4")
        flags = rng.choice(np.array([0, 1, 2**8, 2**12, 2**14, 2**18, 2**23, 2**25], "i8"), size=size)
        columns = [("sdss_id", "K", np.full(count, 79411112)), ("telescope", "6A", np.full(count, "apo25m"))]
        columns += [("mjd", "J", np.arange(count))] if is_visit else []
        columns += [(k, f"{size[1]}E", v) for k, v in (("flux", flux), ("ivar", ivar), ("pixel_flags", flags))]
        if not is_visit:
            wave = np.tile(10 ** (start + step * np.arange(size[1])), (count, 1))
            columns.append(("wavelength", f"{size[1]}E", wave.astype("f4")))
        cards = {"CRVAL": start, "CDELT": step, "CTYPE": "LOG-LINEAR", "CUNIT": "Angstrom (Vacuum)", "CRPIX": 1}
        table = fits.BinTableHDU.from_columns(
            [fits.Column(k, f, array=v) for k, f, v in columns], fits.Header(cards), name=f"{name}/{site}"
        )
        table.add_checksum()
        hdus.append(table)
        ids += [f"79411112/{name}/{site}" + (f"/visit{k + 1}" if is_visit else "") for k in range(count)]
        parts[name].append((flux, ivar, flags & bad != 0))
    fits.HDUList(hdus).writeto(path)
    arms = []
    for name, all_parts in parts.items():
        start, step, pixels, _ = instruments[name]
        own = [part for part in all_parts if part[0].size]
        lengths = (sum(rows[:2]), sum(rows[2:]))
        # rows of the other instrument: no flux, no weight, all masked
        pad = [(0, lengths[1]), (0, 0)] if name == "BOSS" else [(lengths[0], 0), (0, 0)]
        whole = [np.concatenate([part[k] for part in own]) for k in range(3)] if own else None
        if whole:
            flux, ivar, bad = (np.pad(x, pad, constant_values=fill) for x, fill in zip(whole, (0, 0, True)))
            arms.append(arm(name.lower(), 10 ** (start + step * np.arange(pixels)), flux, ivar, bad))
    count = sum(rows)
    return {"length": count, "ids": ids, "rows": list(range(count)), "arms": arms, "notes": 0}


def aspcap_star(path, rng):
    """Normalised flux, errors, and the best fit where an apStar has its mask."""
    header = fits.Header({"CRVAL1": 4.179, "CDELT1": 6e-6, "CRPIX1": 1.0, "CTYPE1": "LOG-LINEAR"})
    images = [fits.ImageHDU(rng.random(40).astype("f4"), header) for _ in range(3)]
    fits.HDUList([fits.PrimaryHDU()] + images).writeto(path)


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
