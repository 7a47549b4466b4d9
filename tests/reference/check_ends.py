"""Pulls of stars seen through networks that end inside the data.

usage: check_ends.py POPFIT [COUNT [DEVICE [SEED]]]
(default 2,000 stars per case, cpu, 0; needs numpy, scipy and safetensors)

Stars of S/N 30 to 200 and velocities to +-500 km/s are drawn from the demo's whole network, with and without rotation, and
fitted through pieces of it that end on either side of strong lines: on a wider grid, and on the pieces' own. For each case
it prints the standard deviation of each parameter's pull (fitted less true, in standard errors) and how many rows have one
above 5, with their flags.
Rows flagged as at a bound or without rotation are counted apart.
"""
import csv, json, os, subprocess, sys, tempfile
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file
from scipy.ndimage import convolve1d
from fit_reference import C, DATA, Emulator, chebyshev_basis, resample, rotation_kernel

NETWORK = os.path.join(DATA, "emulator.safetensors")
# Angstroms; H-gamma is at 4341.7, H-beta at 4862.7
PIECES = {1: [(4345.0, 4858.0)], 2: [(4100.0, 4345.0), (4380.0, 4858.0)], 3: [(4050.0, 4338.0), (4400.0, 4858.0), (4868.0, 5300.0)]}
AT_BOUND, NO_ROTATION = 16, 4096


def inside(wavelength, pieces):
    return np.any([(wavelength >= low) & (wavelength <= high) for low, high in pieces], axis=0)


def cut(pieces, path):
    """writes the demo's network with the pixels inside `pieces` alone"""
    with safe_open(NETWORK, "np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        metadata = file.metadata()
    last = max(int(name.split(".")[1]) for name in tensors if name.startswith("layer."))
    kept = inside(tensors["wavelength"], pieces)
    for name in ("wavelength", f"layer.{last}.weight", f"layer.{last}.bias"):
        tensors[name] = np.ascontiguousarray(tensors[name][kept])
    save_file(tensors, path, metadata)


def draw(wavelength, count, rotation, seed):
    """flux, ivar and the true parameters of stars at these wavelengths"""
    network, random = Emulator(NETWORK), np.random.default_rng(seed)
    low, high = network.bounds
    flux, ivar, truth = [], [], []
    basis = chebyshev_basis(wavelength, 4)
    while len(truth) < count:
        labels = low + (high - low) * random.random(4)
        labels[0] = 10 ** random.uniform(np.log10(low[0]), np.log10(min(high[0], 9000.0)))
        if any(distance > 0 for _, distance, _ in network.outside(network.scaled(labels))):
            continue
        velocity, vsini = random.uniform(-500, 500), random.uniform(5, 90) if rotation else 0.0
        rows = network.template(labels)[0][:, None]
        if rotation:
            rows = convolve1d(rows, rotation_kernel(vsini, network.dlog)[0], axis=0, mode="nearest")
        beta = velocity / C
        star = resample(rows, network, wavelength * np.sqrt((1 - beta) / (1 + beta)))[0][:, 0]
        continuum = np.r_[1.0, random.normal(0, [0.2, 0.1, 0.05])] @ basis
        if continuum.min() < 0.3:
            continue
        star = star * continuum
        sigma = np.median(star) / 10 ** random.uniform(np.log10(30), np.log10(200)) * np.ones(len(star))
        flux.append(star + sigma * random.normal(size=len(star)))
        ivar.append(sigma**-2)
        truth.append(np.r_[velocity, [vsini] if rotation else [], labels])
    return np.array(flux), np.array(ivar), np.array(truth)


def fit(popfit, folder, rotation, device):
    """runs popfit on the folder's spectra and returns its table as rows of texts"""
    model = '[[arm]]\nname = "b"\nemulator = "network.safetensors"\n[continuum]\nkind = "chebyshev"\nterms = 4\n[velocity]\nrange = [-1000.0, 1000.0]\n'
    with open(os.path.join(folder, "model.toml"), "w") as file:
        file.write(model + ("[vsini]\nrange = [0.0, 200.0]\n" if rotation else ""))
    command = [popfit, "fit", "model.toml", "spectra.npz", "-o", "out.csv", "--overwrite", "--quiet", "--device", device]
    subprocess.run(command, cwd=folder, check=True)
    with open(os.path.join(folder, "out.csv")) as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def report(rows, truth, rotation):
    names = ["velocity"] + (["vsini"] if rotation else []) + ["teff", "logg", "feh", "alpha"]
    column = lambda name: np.array([float(row[name]) for row in rows])
    flags, status = column("flags").astype(int), column("status")
    usual = (status > 0) & (flags & (AT_BOUND | NO_ROTATION) == 0)
    pulls = {name: (column(name) - truth[:, k])[usual] / column(name + "_err")[usual] for k, name in enumerate(names)}
    deviations = "  ".join(f"{name} {np.std(p):.3f}" for name, p in pulls.items())
    far = np.any([np.abs(pull) > 5 for pull in pulls.values()], axis=0)
    far_flags = f" with flags {', '.join(map(str, flags[usual][far]))}" if far.any() else ""
    largest = max(np.abs(pull).max() for pull in pulls.values())
    unreached = sum(column(name) for name in rows[0] if name.startswith("unreached"))
    print(f"  {usual.sum()} of {len(rows)} usual, {(status <= 0).sum()} failed: {deviations}; rows above 5: {far.sum()}{far_flags} "
          f"(largest {largest:.1f}); unreached pixels {np.median(unreached):.0f}; evaluations {column('evaluations').mean():.2f}", flush=True)


def main():
    popfit = os.path.abspath(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    device = sys.argv[3] if len(sys.argv) > 3 else "cpu"
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    whole = Emulator(NETWORK).wavelength
    for number, pieces in PIECES.items():
        for grid in ("wider", "own"):
            wavelength = np.arange(4010.0, 5490.0, 0.4) if grid == "wider" else whole[inside(whole, pieces)]
            for rotation in (False, True):
                with tempfile.TemporaryDirectory() as folder:
                    cut(pieces, os.path.join(folder, "network.safetensors"))
                    flux, ivar, truth = draw(wavelength, count, rotation, seed + 10 * number + rotation)
                    np.savez(os.path.join(folder, "spectra.npz"), wavelength=wavelength, flux=flux.astype(np.float32), ivar=ivar.astype(np.float32))
                    print(f"{number} piece(s), {grid} grid, {'vsini' if rotation else 'no vsini'}:", flush=True)
                    report(fit(popfit, folder, rotation, device), truth, rotation)


if __name__ == "__main__":
    main()
