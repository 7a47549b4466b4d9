"""Makes folds.json, seeds.json and mirrors.json, which tests/spectra/minima.rs reads, from the NPZ files of the same names:
python3 make_folds.py

folds.npz holds five spectra of the demo's network, with their true velocities (TV) and labels (TTEFF ...). Of 60,000 spectra, these
ended on the wrong side of a fold before minima were checked for one. seeds.npz holds six more. The first ended 88 above its minimum
with the default seed, and the others 84 to 14,761 above with --seed 5, before the library had templates at the edges of the labels'
box and fits of four rounds were checked for folds. mirrors.npz holds four that ended 25 to 3,490 above with --seed 9 or --seed 14,
after three to six rounds, before the templates themselves were searched for folds (check_minima.py's seeds 44, 50, 56 and 48). The
JSON files have the lowest objective that the reference reaches from the truth and from eight other gravities.
"""
import os
import numpy as np
from fit_reference import DATA, Emulator
from make_minima import HERE, write_minima

if __name__ == "__main__":
    for name in ("folds", "seeds", "mirrors"):
        spectra = dict(np.load(os.path.join(HERE, name + ".npz")))
        write_minima(Emulator(os.path.join(DATA, "emulator.safetensors")), spectra, name + ".json")
