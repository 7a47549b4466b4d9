"""Makes folds.npz and folds.json, which tests/minima.rs reads: python3 make_folds.py DRAW_SPECTRA

DRAW_SPECTRA is the project's tools/draw_spectra.py. Of 60,000 of its spectra (3000 of each of the seeds 11 to 30) these five ended at
the wrong side of a fold before minima were looked at again; with the lowest objective that the reference reaches from the truth and
from eight other gravities.
"""
import json, os, subprocess, sys, tempfile
import numpy as np
from fit_reference import DATA, Emulator
from make_minima import HERE, lowest

SPECTRA = {17: [2783, 2963], 18: [573], 19: [1252], 27: [1335]}


def main():
    emulator = Emulator(os.path.join(DATA, "emulator.safetensors"))
    parts = []
    for seed, chosen in SPECTRA.items():
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "drawn")
            subprocess.run([sys.executable, sys.argv[1], out, "3000", str(seed)], check=True)
            drawn = dict(np.load(out + ".npz"))
        parts.append({key: values if key == "wavelength" else values[chosen] for key, values in drawn.items()})
    join = lambda key: parts[0][key] if key == "wavelength" else np.concatenate([part[key] for part in parts])
    spectra = {key: join(key) for key in parts[0]}
    spectra["id"] = np.arange(len(spectra["flux"]))
    fits = [lowest(emulator, spectra, n) for n in range(len(spectra["flux"]))]
    np.savez_compressed(os.path.join(HERE, "folds.npz"), **{key: spectra[key] for key in ("wavelength", "flux", "ivar", "mask", "id")})
    with open(os.path.join(HERE, "folds.json"), "w") as file:
        json.dump(fits, file, indent=0)


if __name__ == "__main__":
    main()
