"""Whether fits with the program's defaults end at the right minimum: spectra of known truth, drawn from networks.

usage: check_minima.py POPFIT [NETWORK ...] [--count N] [--seeds S ...] [--program-seeds S ...] [--vsini] [--masked FROM TO]
                       [--device DEVICE]
(default: 3000 spectra of each of the seeds 11 to 15 from the demo's network, popfit's own seed 3; needs numpy, scipy,
safetensors and pyarrow)

Several networks are the arms of one spectrograph. --masked 0 0.6 masks the blue 60 % of the pixels of every arm. The
right minimum is the lowest of these fits: for each of popfit's seeds, the defaults' and one of 16 starts; and one from
the truth. For each seed of the data it prints how many of the defaults' fits, with all of popfit's seeds, lie more than
1 and more than 10 above it, how many of the former are not flagged as multimodal, how many rows are flagged so, the
evaluations of a spectrum, and how far above the worst fits lie.
"""
import argparse, os, subprocess, tempfile
import numpy as np
import pyarrow.parquet as parquet
from scipy.ndimage import convolve1d
from fit_reference import C, DATA, Emulator, rbf_basis, resample, rotation_kernel

MULTIMODAL = 32
LABELS = ["teff", "logg", "feh", "alpha"]
FASTEST = 900.0                                            # km/s


def labels(emulators, count, random):
    """labels inside every network's hull, log teff even (count, 4)"""
    low, high = emulators[0].bounds
    found = []
    while len(found) < count:
        one = low + (high - low) * random.random(4)
        one[0] = 10 ** random.uniform(np.log10(low[0]), np.log10(high[0]))
        if all(distance <= 0 for e in emulators for _, distance, _ in e.outside(e.scaled(one))):
            found.append(one)
    return np.array(found)


def continuum(x, wavelength, kind, random):
    """a smooth curve over an arm; every other one is in the span of the terms"""
    if kind == 0:
        curve = np.r_[1, random.normal(0, 0.4), random.normal(0, 0.15), random.normal(0, 0.06, 7)] @ rbf_basis(wavelength)
        return np.maximum(curve, 0.15)
    tilt, bend, phase = random.normal(0, 0.4), random.normal(0, 0.2), random.uniform(0, 6)
    return np.exp(tilt * x + bend * x**2 + 0.03 * np.sin(random.uniform(1, 4) * x + phase))


def draw(emulators, count, seed, vsini, masked):
    """arrays of a popfit NPZ; `masked` are the first and the last of the masked pixels as shares of an arm"""
    random = np.random.default_rng(seed)
    truth = labels(emulators, count, random)
    velocity = random.uniform(-300, 300, count)
    far = random.random(count) < 0.1
    velocity[far] = random.uniform(-FASTEST, FASTEST, far.sum())
    broadening = 10 ** random.uniform(0, np.log10(300), count) if vsini else np.zeros(count)
    sn = 10 ** random.uniform(np.log10(5), np.log10(200), count)
    arrays = {"id": np.arange(count), "TV": velocity, "TVSINI": broadening}
    arrays |= {"T" + name.upper(): truth[:, k] for k, name in enumerate(LABELS)}
    for a, e in enumerate(emulators):
        edges = e.wavelength[[0, -1]] * (1 + np.array([1, -1]) * 1.1 * (FASTEST + 100) / C)
        wavelength = np.arange(edges[0], edges[1], max(0.4, (edges[1] - edges[0]) / 4000))
        x = 2 * (wavelength - wavelength[0]) / (wavelength[-1] - wavelength[0]) - 1
        flux, ivar = (np.empty((count, len(wavelength)), np.float32) for _ in range(2))
        mask = random.random(flux.shape) < 0.01
        for n in range(count):
            rest = e.template(truth[n])[0][:, None]
            if vsini:
                rest = convolve1d(rest, rotation_kernel(broadening[n], e.dlog)[0], axis=0, mode="nearest")
            beta = velocity[n] / C
            model = resample(rest, e, wavelength * np.sqrt((1 - beta) / (1 + beta)))[0][:, 0]
            model = model * continuum(x, wavelength, n % 2, random)
            model *= 10 ** random.uniform(-1, 4) / np.median(model)
            error = np.sqrt(np.abs(model).clip(1e-3 * np.median(model)) * np.median(model)) / sn[n]
            flux[n], ivar[n] = model + error * random.normal(size=len(model)), 1 / error**2
            first = random.integers(0, len(wavelength) - 40)
            mask[n, first:first + random.integers(0, 40)] = True
        first, last = (round(share * len(wavelength)) for share in masked)
        mask[:, first:last] = True
        arm = "" if len(emulators) == 1 else f"{'abcdefgh'[a]}_"
        arrays |= {arm + "wavelength": wavelength, arm + "flux": flux, arm + "ivar": ivar, arm + "mask": mask}
    return arrays


def model_file(networks, vsini, from_truth):
    """TOML of a model; its starts are columns of the truth where that is asked for"""
    lines = []
    for a, network in enumerate(networks):
        lines += ["[[arm]]", f'name = "{"abcdefgh"[a]}"', f'emulator = "{os.path.abspath(network)}"']
    start = lambda column: [f'start = {{ column = "{column}" }}'] if from_truth else []
    lines += ["[continuum]", 'kind = "rbf"', "terms = 10", "marginalise = true"]
    lines += ["[velocity]", "range = [-1000.0, 1000.0]", *start("TV")]
    if vsini:
        lines += ["[vsini]", "range = [0.1, 500.0]", *start("TVSINI")]
    for name in LABELS if from_truth else []:
        lines += [f"[labels.{name}]", *start("T" + name.upper())]
    return "\n".join(lines) + "\n"


def fit(arguments, folder, model, more=()):
    """columns of the program's table"""
    path = lambda name: os.path.join(folder, name)
    with open(path("model.toml"), "w") as file:
        file.write(model)
    command = [arguments.popfit, "fit", path("model.toml"), path("spectra.npz"), "-o", path("out.parquet"), "--overwrite", "--quiet"]
    subprocess.run([*command, "--device", arguments.device, *more], check=True, stderr=subprocess.DEVNULL)
    table = parquet.read_table(path("out.parquet"), columns=["status", "objective", "flags", "evaluations", "n_starts_agree"])
    columns = {name: np.array(table[name]) for name in table.column_names}
    columns["objective"] = np.where(columns["status"] > 0, columns["objective"], np.inf)
    return columns


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("popfit")
    parser.add_argument("networks", nargs="*", default=[os.path.join(DATA, "emulator.safetensors")])
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13, 14, 15])
    parser.add_argument("--program-seeds", type=int, nargs="+", default=[3])
    parser.add_argument("--vsini", action="store_true")
    parser.add_argument("--masked", type=float, nargs=2, default=[0.0, 0.0])
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    emulators = [Emulator(path) for path in arguments.networks]
    total = np.zeros(4, int)
    for seed in arguments.seeds:
        with tempfile.TemporaryDirectory() as folder:
            spectra = draw(emulators, arguments.count, seed, arguments.vsini, arguments.masked)
            np.savez(os.path.join(folder, "spectra.npz"), **spectra)
            model = lambda from_truth: model_file(arguments.networks, arguments.vsini, from_truth)
            runs = {seed: fit(arguments, folder, model(False), ["--seed", str(seed)]) for seed in arguments.program_seeds}
            others = [fit(arguments, folder, model(False), ["--seed", str(seed), "--starts", "16"]) for seed in runs]
            others.append(fit(arguments, folder, model(True)))
        best = np.min([run["objective"] for run in [*runs.values(), *others]], axis=0)
        above = np.concatenate([run["objective"] - best for run in runs.values()])
        flagged = np.concatenate([run["flags"] & MULTIMODAL != 0 for run in runs.values()])
        evaluations = np.mean([run["evaluations"].mean() for run in runs.values()])
        wrong, far = ~(above <= 1), ~(above <= 10)
        counts = np.array([wrong.sum(), far.sum(), (wrong & ~flagged).sum(), flagged.sum()])
        total += counts
        worst = ", ".join(f"{distance:.1f}" for distance in sorted(above[wrong], reverse=True))
        print(f"seed {seed}: {counts[0]} of {len(above)} more than 1 above, {counts[1]} more than 10; {counts[2]} of them not "
              f"flagged, {counts[3]} flagged in all; {evaluations:.2f} evaluations" + (f"; {worst} above" if worst else ""), flush=True)
    print(f"in all: {total[0]} more than 1 above, {total[1]} more than 10; {total[2]} of them not flagged, {total[3]} flagged in all")


if __name__ == "__main__":
    main()
