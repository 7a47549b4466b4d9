#!/usr/bin/env python3
"""Makes the spectra of `popfit demo`: the first 64 of a set of synthetic spectra, and their truths.

Usage: make_demo_data.py SOURCE DATA

SOURCE holds emulator.safetensors and fixed_vsini/{spectra,truth}.npz; DATA is the project's data/ folder.
"""

import shutil
import sys
from pathlib import Path

import numpy as np

N = 64


def main(source: Path, data: Path) -> None:
    data.mkdir(exist_ok=True)
    shutil.copyfile(source / "emulator.safetensors", data / "emulator.safetensors")
    spectra = np.load(source / "fixed_vsini" / "spectra.npz")
    np.savez_compressed(
        data / "spectra.npz",
        wavelength=spectra["wavelength"],
        **{key: spectra[key][:N] for key in ("flux", "ivar", "mask", "id")},
    )
    truth = np.load(source / "fixed_vsini" / "truth.npz")
    np.savez_compressed(
        data / "truth.npz",
        parameters=truth["parameters"][:N],
        names=truth["names"],
        sn=truth["sn"][:N],
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
