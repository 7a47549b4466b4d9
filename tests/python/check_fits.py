"""Compares popfit's reading and writing of FITS, and its Parquet tables, with astropy's and pyarrow's.

check_fits.py READ_SPECTRA POPFIT: the example `read_spectra` and the program, both built.
"""

import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

import check_tables
import make_fits
import numpy as np


def compare_arm(found, expected, where):
    for key, value in expected.items():
        if key in ("name", "pixels", "masked"):
            assert found[key] == value, f"{where}: {key}: {found[key]}, not {value}"
        elif value is None:
            assert found[key] is None, f"{where}: {key}"
        else:
            # sums in another order; the air index is inverted another way
            np.testing.assert_allclose(found[key], value, rtol=1e-11, atol=1e-9, err_msg=f"{where}: {key}")


def compare_column(column, expected, units, where):
    found = np.array(column["values"])
    assert column["unit"] == (units.get(column["name"]) or ""), where
    if expected.dtype.kind in "US":
        assert list(found) == list(expected), f"{where}: {found}"
        return
    assert column["type"] == str(expected.dtype), f"{where}: {column['type']}, not {expected.dtype}"
    assert [expected.dtype.type(x) for x in column["values"]] == list(expected), f"{where}: {found}"


def check_reading(example, path, expected):
    output = subprocess.run([example, path], check=True, capture_output=True, text=True).stdout
    found = json.loads(output)
    where = path.name
    assert found["length"] == expected["length"], where
    assert len(found["notes"]) == expected["notes"], f"{where}: {found['notes']}"
    (batch,) = found["batches"]
    assert batch["ids"] == expected["ids"] and batch["rows"] == expected["rows"], f"{where}: {batch['ids']}"
    assert len(batch["arms"]) == len(expected["arms"]), where
    for one, other in zip(batch["arms"], expected["arms"]):
        compare_arm(one, other, f"{where}, arm {one['name']}")
    columns = {(column["table"], column["name"]): column for column in batch["columns"]}
    if "columns" in expected:
        assert set(columns) == set(expected["columns"]), f"{where}: {set(columns)}"
        for key, values in expected["columns"].items():
            compare_column(columns[key], values, expected["units"], f"{where}, {key}")


def main():
    example, program = map(pathlib.Path, sys.argv[1:])
    rng = np.random.default_rng(11)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        made = {}
        for air in (False, True):
            made[f"desi_{air}.fits"] = lambda path, air=air: make_fits.desi(path, rng, air)
            made[f"sdss_{air}.fits"] = lambda path, air=air: make_fits.sdss(path, rng, air)
        for dtype in ("u1", "i2", "i4", "i8", "f4", "f8", "u2", "u4"):
            made[f"type_{dtype}.fits"] = lambda path, dtype=dtype: make_fits.desi_of_type(path, dtype)
        made["apStar.fits"] = lambda path: make_fits.ap_star(path, rng)
        made["apVisit.fits"] = lambda path: make_fits.ap_visit(path, rng)
        for kind in ("GZIP_1", "GZIP_2", "RICE_1", "NOCOMPRESS"):
            for dtype in ("u1", "i2", "u2", "i4", "u4"):
                for tile in (None, (3, 333), (1, 100)):
                    name = f"{kind}_{dtype}_{tile}.fits"
                    made[name] = lambda path, a=(kind, dtype, tile): make_fits.desi_compressed(path, rng, *a)
        made["floats.fits"] = lambda path: make_fits.desi_compressed_floats(path, rng)
        made["lamost_image.fits"] = lambda path: make_fits.lamost_image(path, rng)
        made["lamost_table.fits"] = lambda path: make_fits.lamost_table(path, rng)
        for by_pixel in (False, True):
            made[f"medium_{by_pixel}.fits"] = lambda path, by=by_pixel: make_fits.lamost_medium(path, rng, by)
        for rows in ((1, 0, 0, 1), (0, 1, 0, 0), (2, 1, 0, 3)):
            made[f"mwm_{rows}.fits"] = lambda path, rows=rows: make_fits.mwm(path, rng, rows, max(rows) > 1)
        for file, make in made.items():
            path = folder / file
            expected = make(path)
            check_reading(example, path, expected)
            packed = folder / f"packed_{file}"  # the contents decide, not the name
            packed.write_bytes(gzip.compress(path.read_bytes()))
            check_reading(example, packed, expected)
        print(f"{2 * len(made)} files read as astropy wrote them")
        make_fits.aspcap_star(folder / "aspcapStar.fits", rng)
        refused = subprocess.run([example, folder / "aspcapStar.fits"], capture_output=True, text=True)
        assert refused.returncode != 0 and "aspcapStar (" in refused.stderr, refused
        check_tables.check_writing(program, folder)


if __name__ == "__main__":
    main()
