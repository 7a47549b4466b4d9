"""Makes folds.json, which tests/spectra/minima.rs reads, from folds.npz: python3 make_folds.py

folds.npz holds five spectra of the demo's network, with their true velocities (TV) and labels (TTEFF ...). They are those of 60,000
that ended at the wrong side of a fold before minima were checked for one. folds.json has the lowest objective that the reference
reaches from the truth and from eight other gravities.
"""
import os
import numpy as np
from fit_reference import DATA, Emulator
from make_minima import HERE, write_minima

if __name__ == "__main__":
    write_minima(Emulator(os.path.join(DATA, "emulator.safetensors")), dict(np.load(os.path.join(HERE, "folds.npz"))), "folds.json")
