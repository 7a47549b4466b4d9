"""Opens what popfit writes with astropy, and compares it with popfit's CSV and with its input."""

import csv
import struct
import subprocess
import json
import warnings

import make_fits
import numpy as np
import pyarrow.parquet as pq
from astropy import units as u
from astropy.io import fits
from astropy.table import Table
from xxhash import xxh3_128

PIXELS = 400
COUNT = 6
BEYOND = 10     # pixels of the network beyond either end of the spectra


def emulator(path):
    """A network of one layer, flux 1 + Σ z_l wave_l, in popfit's native format (safetensors, written by hand).

    It is wider than the spectra, so that all their pixels count. Returns wavelengths and weights at these.
    """
    pixels = PIXELS + 2 * BEYOND
    wave = 5000 * np.exp(np.arange(pixels) * 2e-5)
    weight = np.stack([0.2 * np.sin(k * 0.37 * np.arange(pixels)) for k in (1, 2)], 1).astype("<f4")
    tensors = {
        "layer.0.weight": ("F32", weight),
        "layer.0.bias": ("F32", np.ones(pixels, "<f4")),
        "wavelength": ("F64", wave.astype("<f8")),
    }
    labels = [
        {"name": name, "unit": unit, "transform": "identity", "mean": mean, "std": 1.0, "min": mean - 3, "max": mean + 3}
        for name, unit, mean in (("teff", "K", 5000.0), ("feh", "dex", 0.0))
    ]
    description = {
        "version": 1, "activation": "relu", "output": "identity", "labels": labels, "medium": "vacuum", "grid": "log",
    }
    header, offset = {"__metadata__": {"popfit": json.dumps(description)}}, 0
    for name, (kind, values) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(v.tobytes() for _, v in tensors.values()))
    return wave[BEYOND:-BEYOND], weight[BEYOND:-BEYOND]


def coadd(path, wave, weight, rng):
    """Spectra of the network in two arms; the fourth has no data."""
    z = rng.uniform(-1, 1, (COUNT, 2))
    columns = [
        fits.Column("TARGETID", "K", array=make_fits.LARGE_ID + np.arange(COUNT)),
        fits.Column("OBJTYPE", "3A", array=["TGT", "SKY", "TGT", "TGT", "TGT", "TGT"]),
        fits.Column("FIBER", "J", array=np.arange(COUNT, dtype="i4")),
        fits.Column("REF_CAT", "2A", array=["G2"] * COUNT),
        fits.Column("TARGET_RA", "D", "deg", array=rng.random(COUNT)),
        fits.Column("WORDS", "K", array=(np.arange(COUNT, dtype="u8") + 2**63 + 1), bzero=2**63),
    ]
    scores = [fits.Column("MEDIAN_COADD_SNR_B", "E", array=rng.random(COUNT).astype("f4"))]
    hdus = [fits.PrimaryHDU(), fits.BinTableHDU.from_columns(columns, name="FIBERMAP")]
    for name in "BR":
        flux = 1 + z @ weight.T.astype("f8") + rng.normal(size=(COUNT, PIXELS)) * 0.01
        ivar = np.full((COUNT, PIXELS), 1e4)
        ivar[3] = 0
        hdus += [
            fits.ImageHDU(wave, name=f"{name}_WAVELENGTH"),
            fits.ImageHDU(flux.astype("f4"), name=f"{name}_FLUX"),
            fits.ImageHDU(ivar.astype("f4"), name=f"{name}_IVAR"),
        ]
    hdus.append(fits.BinTableHDU.from_columns(scores, name="SCORES"))
    fits.HDUList(hdus).writeto(path)


def same(column, texts, name):
    """A column of FITS and the texts of CSV, to the last bit."""
    if column.dtype.kind == "f":
        assert all(x == float(t) or (np.isnan(x) and t == "nan") for x, t in zip(column, texts)), name
    else:
        assert [str(x) for x in column] == list(texts), f"{name}: {column}, {texts}"


def check_sums(path):
    """DATASUM and CHECKSUM of every HDU are there, and astropy finds them right."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with fits.open(path, checksum=True) as file:
            for hdu in file:
                assert (hdu.verify_datasum(), hdu.verify_checksum()) == (1, 1), f"{path.name}, {hdu.name}"


def digest(field, column):
    """As docs/src/formats.md has it."""
    end, known = b"\xff", field.metadata
    head = field.name.encode() + end + known.get(b"unit", b"") + end + known[b"description"] + end
    if field.type == "string":
        return xxh3_128(head + b"".join(text.encode() + end for text in column.to_pylist())).digest()
    if str(field.type).startswith("list"):
        lists = [struct.pack(f"<Q{len(one)}d", len(one), *one) for one in column.to_pylist()]
        return xxh3_128(head + b"".join(lists)).digest()
    return xxh3_128(head + column.to_numpy().tobytes()).digest()


def check_parquet(path, expected_units):
    """The checksums are those that docs/src/formats.md describes; units and meanings are where pyarrow and astropy show them."""
    file = pq.ParquetFile(path)
    metadata = file.metadata.metadata
    algorithm, *groups, last = metadata[b"popfit.checksum"].decode().split("\n")
    assert algorithm == "xxh3_128" and len(groups) == file.num_row_groups
    for group, line in enumerate(groups):
        table = file.read_row_group(group)
        own = xxh3_128(b"".join(map(digest, file.schema_arrow, table.columns))).hexdigest()
        assert line == f"0-{table.num_rows - 1} {own}", line
    others = [pair for pair in sorted(metadata.items()) if pair[0] not in (b"popfit.checksum", b"ARROW:schema")]
    own = xxh3_128(b"".join(text + b"\xff" for pair in others for text in pair)).hexdigest()
    assert last == f"metadata {own}", last
    assert metadata[b"popfit.layout"] == b"1" and b"\n2 ftol: converged: the objective no longer falls" in metadata[b"popfit.status"]
    assert metadata[b"popfit.flags"].startswith(b"1 START_CLIPPED: ")
    schema, table = pq.read_schema(path), Table.read(path)
    for field in schema:
        assert table[field.name].description == field.metadata[b"description"].decode(), field
        unit = field.metadata.get(b"unit", b"").decode()
        assert unit == expected_units.get(field.name, ""), field
        assert (table[field.name].unit or u.one) == u.Unit(unit), field
    return {field.name: field.metadata[b"description"].decode() for field in schema}


def check_plain(path, table):
    rows = list(csv.DictReader(table.read_text().splitlines()))
    with fits.open(path) as file:
        file.verify("exception")
        results, metadata = file["RESULTS"], file["METADATA"].data
        assert results.columns.names == list(rows[0])
        for name in results.columns.names:
            same(results.data[name], [row[name] for row in rows], name)
        units = dict(zip(results.columns.names, results.columns.units))
        expected = {"velocity": "km/s", "teff": "K", "feh": "dex"}
        expected |= {f"{name}_err": unit for name, unit in expected.items()}
        for name, unit in units.items():
            assert u.Unit(unit or "") == u.Unit(expected.get(name, "")), f"{name}: {unit}"
        meanings = check_parquet(path.with_suffix(".parquet"), expected)
        for k, name in enumerate(results.columns.names, 1):
            assert results.header[f"TCOMM{k}"] == meanings[name], name
        assert "1" in metadata["value"][metadata["key"] == "popfit.layout"]
        at_bound = "16 AT_BOUND: a parameter ended at a bound, other than with flag 4096"
        assert at_bound in metadata["value"][metadata["key"] == "popfit.flags"]
        assert results.data["id"].dtype == ">i8" and results.data["id"][0] == make_fits.LARGE_ID
        model = "\n".join(metadata["value"][metadata["key"] == "popfit.model"])
        assert model == (path.parent / "model.toml").read_text()
    return rows


def check_rvtab(path, rows, source):
    with fits.open(path) as file, fits.open(source) as coadd_file:
        file.verify("exception")
        assert [hdu.name for hdu in file] == ["PRIMARY", "RVTAB", "FIBERMAP", "SCORES", "METADATA"]
        table = file["RVTAB"]
        expected = (
            "VRAD VRAD_ERR VRAD_SKEW VRAD_KURT VSINI LOGG LOGG_ERR TEFF TEFF_ERR FEH FEH_ERR ALPHAFE ALPHAFE_ERR "
            "CHISQ_TOT CHISQ_C_TOT NPIX_TOT CHISQ_B CHISQ_C_B CHISQ_R CHISQ_C_R VRAD_CCF RVS_WARN FIBER REF_CAT "
            "TARGET_RA TARGETID SN_B SN_R SUCCESS RR_Z RR_SPECTYPE RR_SUBTYPE"
        )
        assert table.columns.names == expected.split(), table.columns.names
        formats = {column.name: (column.format, column.unit) for column in table.columns}
        assert formats["VRAD"] == ("D", "km s-1") and formats["NPIX_TOT"] == ("K", None)
        assert formats["RVS_WARN"] == ("K", None) and formats["SUCCESS"] == ("L", None)
        assert formats["REF_CAT"] == ("2A", None) and formats["FIBER"] == ("J", None)
        for name in ("FIBERMAP", "SCORES"):
            for column in coadd_file[name].columns.names:
                np.testing.assert_array_equal(file[name].data[column], coadd_file[name].data[column], column)
                assert file[name].columns[column].format == coadd_file[name].columns[column].format, column
                assert file[name].columns[column].unit == coadd_file[name].columns[column].unit, column
        data = table.data
        fitted = np.array([row["status"] != "-1" for row in rows])
        assert list(fitted) == [True, True, True, False, True, True]
        for column, name in (("VRAD", "velocity"), ("TEFF_ERR", "teff_err"), ("FEH", "feh")):
            same(data[column][fitted], [row[name] for row, ok in zip(rows, fitted) if ok], column)
        np.testing.assert_allclose(data["CHISQ_TOT"][fitted], [float(r["chi2"]) for r, k in zip(rows, fitted) if k], 1e-4)
        assert data["RVS_WARN"][3] == 32 and not data["SUCCESS"][3] and data["SUCCESS"][0]
        return fitted, data.copy(), coadd_file["B_FLUX"].data.astype("f8"), coadd_file["B_IVAR"].data.astype("f8")


def check_rvmod(path, fitted, table, flux, ivar):
    with fits.open(path) as file:
        file.verify("exception")
        names = ["PRIMARY", "B_WAVELENGTH", "B_MODEL", "R_WAVELENGTH", "R_MODEL", "FIBERMAP"]
        assert [hdu.name for hdu in file] == names
        model = file["B_MODEL"].data
        assert model.dtype == ">f4" and file["B_WAVELENGTH"].data.dtype == ">f8" and model.shape == (COUNT, PIXELS)
        assert np.isnan(model[3]).all()
        inside = np.isfinite(model[0])
        chi2 = (((flux - model) ** 2 * ivar)[:, inside]).sum(1)
        np.testing.assert_allclose(chi2[fitted], table["CHISQ_B"][fitted], rtol=1e-3)


def check_writing(program, folder):
    rng = np.random.default_rng(5)
    wave, weight = emulator(folder / "net.safetensors")
    source, model = folder / "coadd.fits", folder / "model.toml"
    coadd(source, wave, weight, rng)
    arms = "".join(f'[[arm]]\nname = "{name}"\nemulator = "net.safetensors"\n' for name in "br")
    model.write_text(arms + '[continuum]\nkind = "none"\n[velocity]\nrange = [-100.0, 100.0]\n')

    def fit(out, *more):
        command = [program, "fit", model, source, "-o", folder / out, "--device", "cpu", "--quiet", *more]
        subprocess.run(command, check=True)
        return folder / out

    fit("out.parquet")
    rows = check_plain(fit("out.fits"), fit("out.csv"))
    assert [int(row["id"]) for row in rows] == [make_fits.LARGE_ID + k for k in range(COUNT)]
    rvtab = fit("rvtab_coadd.fits", "--format", "rvtab")
    for name in ("out.fits", "rvtab_coadd.fits", "rvmod_coadd.fits"):
        check_sums(folder / name)
    check_rvmod(folder / "rvmod_coadd.fits", *check_rvtab(rvtab, rows, source))

    chosen = f"{make_fits.LARGE_ID + 4},{make_fits.LARGE_ID + 1}"
    for flags, expected in (
        (["--target-id", chosen], [1, 4]),
        (["--objtype", "TGT", "--min-sn", "50"], [0, 2, 4, 5]),
        (["--objtype", "SKY", "--arms", "r"], [1]),
    ):
        table = fits.getdata(fit("selected.fits", "--overwrite", *flags), "RESULTS")
        assert list(table["row"]) == expected, f"{flags}: {table['row']}"
    print("tables read by astropy as popfit wrote them")
