"""popfit beside rvspecfit on the same model and spectra: start to table, first guess included, on the same cores.

    python -m venv /tmp/rv && /tmp/rv/bin/pip install -r benches/peers/requirements-rvspecfit.txt
    cargo build --release
    /tmp/rv/bin/python benches/peers/rvspecfit_peer.py [MODEL.toml SPECTRA.npz] [--rounds 3] [--peer 24] [--popfit-spectra 2048] [--json FILE]

Without files: the demo's. rvspecfit gets the model's emulators as a library of its own (its checkpoint, its network without batch
norms, 100 templates an arm for its cross-correlation, made by its own program; not timed), and its defaults. A spectrum is what
rvs_desi_fit does to one: cross-correlation, then `vel_fit.process`. One process a core, a thread each, as it is run on many spectra;
popfit fits copies of the spectra, each with noise of its own that is added to the spectrum's, from NPZ to CSV, with all cores. Both are timed in turn. What is reached is judged by
-2 ln L, rvspecfit's own objective, as each of them tells it.
"""
import argparse
import contextlib
import csv
import io
import json
import multiprocessing
import os
import statistics
import subprocess
import tempfile
import time
import tomllib
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import scipy.optimize
import scipy.spatial
import scipy.stats
import torch
from rvspecfit import fitter_ccf, make_ccf, serializer, spec_fit, spec_inter, utils, vel_fit
from rvspecfit.nn import NNInterpolator
from safetensors import safe_open
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[2]
CLOSE = 0.02  # of -2 ln L
# rvspecfit's config.yaml
CONFIG = {"min_vel": -1000, "max_vel": 1000, "min_vel_step": 0.2, "vel_step0": 5, "min_vsini": 0.1, "max_vsini": 500, "second_minimizer": 1}


def corners(facets):
    """Corners of a convex polygon from its facets (normal, offset), shape (corners, 2)."""
    inside = scipy.optimize.linprog([0, 0, -1], np.c_[facets[:, :2], np.ones(len(facets))], -facets[:, 2], bounds=[(None, None)] * 3).x[:2]
    points = scipy.spatial.HalfspaceIntersection(facets, inside).intersections
    return points[scipy.spatial.ConvexHull(points).vertices]


def write_interpolator(folder, setup, emulator):
    """interp_SETUP.h5 and the checkpoint that it names, as rvs_train_nn_interpolator writes them."""
    arrays = load_file(emulator)
    with safe_open(emulator, "np") as file:
        about = json.loads(file.metadata()["popfit"])
    layers = [arrays[f"layer.{k}.weight"] for k in range(sum(name.endswith(".weight") for name in arrays))]
    sizes = dict(indim=layers[0].shape[1], nlayers=len(layers) - 3, width=layers[0].shape[0], npc=layers[-1].shape[1], npix=layers[-1].shape[0],
                 withbn=False, nonlinearity="SiLU")
    network = NNInterpolator.NNInterpolator(**sizes)
    names = [f"model.lin_{k}" for k in range(len(layers) - 1)] + ["pc_layer"]
    network.load_state_dict({f"{name}.{what}": torch.tensor(arrays[f"layer.{k}.{what}"]) for k, name in enumerate(names) for what in ("weight", "bias")})
    NNInterpolator.save_checkpoint(network, f"{folder}/nn_{setup}.pt")
    boxes = [corners(arrays[f"hull.{k}"].astype(float)) for k in range(2)]
    count = max(len(box) for box in boxes)
    points = np.hstack([box[np.arange(count) % len(box)] for box in boxes])
    labels = about["labels"]
    scale = [np.array([label[what] for label in labels]) for what in ("mean", "std")]
    names = [label["name"] for label in labels]
    serializer.save_dict_to_hdf5(f"{folder}/interp_{setup}.h5", {
        "mapper_module": "rvspecfit.nn.NNInterpolator", "mapper_class_name": "Mapper", "mapper_args": (*scale, [0]),
        "parnames": names, "lam": arrays["wavelength"].astype(float), "log_spec": True, "log_step": True,
        "module": "rvspecfit.nn.RVSInterpolator", "class_name": "RVSInterpolator", "device": "cpu", "class_kwargs": sizes,
        "outside_class_name": "OutsideInterpolator", "outside_kwargs": {"pts": points}, "nn_file": f"nn_{setup}.pt",
        "revision": "", "git_rev": "", "cmdline": "", "interpolation_type": "generic",
    })
    return labels


def write_templates(folder, setup, labels, grid, vsinis, processes):
    """The cross-correlation's files, by rvspecfit's own make_ccf."""
    low, high = (np.array([label[what] for label in labels]) for what in ("min", "max"))
    low[0], high[0] = np.log10([low[0], high[0]])
    parameters = scipy.stats.qmc.scale(scipy.stats.qmc.Sobol(len(labels), seed=1).random(128)[:100], low, high)
    parameters[:, 0] = 10 ** parameters[:, 0]
    library = spec_inter.getInterpolator(setup, {"template_lib": folder}, cache={})
    spectra = np.array([library.eval(row) for row in parameters])
    serializer.save_dict_to_hdf5(f"{folder}/specs_{setup}.h5", {
        "specs": np.log(spectra), "vec": parameters.T, "lam": library.lam, "parnames": list(library.parnames), "log_spec": True})
    points = make_ccf.to_power_two(len(grid))
    config = make_ccf.get_ccf_config(logl0=np.log(grid[0]), logl1=np.log(grid[-1]), npoints=points)
    # it tells of every template
    with contextlib.redirect_stdout(io.StringIO()):
        make_ccf.ccf_executor(setup, config, folder, folder, every=1, vsinis=vsinis, nthreads=processes)


class Data:
    """Spectra of one NPZ file."""

    def __init__(self, file, arms):
        arrays = np.load(file)
        key = lambda arm, what: what if len(arms) == 1 and what in arrays else f"{arm}_{what}"
        self.arms = {}
        for arm in arms:
            flux, ivar = (arrays[key(arm, what)].astype(float) for what in ("flux", "ivar"))
            mask = arrays[key(arm, "mask")] if key(arm, "mask") in arrays else np.zeros(flux.shape, bool)
            self.arms[arm] = arrays[key(arm, "wavelength")], flux, np.where(mask, 0.0, ivar)
        self.count = len(flux)

    def for_rvspecfit(self, row):
        """A SpecData an arm, bad pixels as rvs_desi_fit has them, and what they add to -2 ln L."""
        all_arms, constant = [], 0.0
        for arm, (grid, flux, ivar) in self.arms.items():
            bad = ivar[row] <= 0
            error = np.where(bad, 1000 * np.median(np.abs(flux[row][~bad])), 1 / np.sqrt(np.where(bad, 1, ivar[row])))
            clean = make_ccf.interp_masker(grid, flux[row], bad)
            constant += 2 * np.log(error[bad]).sum()
            all_arms.append(spec_fit.SpecData(arm, grid, clean, error, badmask=bad))
        return all_arms, constant

    def write(self, path, copies):
        """The spectra, then copies with as much noise again, not compressed."""
        arrays, random = {"id": np.arange(self.count * copies)}, np.random.default_rng(1)
        for arm, (grid, flux, ivar) in self.arms.items():
            begin = "" if len(self.arms) == 1 else f"{arm}_"
            sigma = np.where(ivar > 0, 1 / np.sqrt(np.where(ivar > 0, ivar, 1)), 0)
            noisy = [flux + sigma * random.standard_normal(flux.shape) for _ in range(copies - 1)]
            single = lambda parts: np.concatenate(parts).astype(np.float32)
            arrays |= {f"{begin}wavelength": grid, f"{begin}flux": single([flux, *noisy]),
                       f"{begin}ivar": single([ivar, *[ivar / 2] * (copies - 1)])}
        np.savez(path, **arrays)


def fit_rows(folder, data, rows, terms):
    """One process of rvspecfit: its seconds, and (row, -2 ln L)."""
    torch.set_num_threads(1)
    config = utils.freezeDict(CONFIG | {"template_lib": folder})
    free = has_free_vsini(folder, next(iter(data.arms)))

    def fit(row):
        spectra, constant = data.for_rvspecfit(row)
        guess = fitter_ccf.fit(spectra, config)
        start = dict(guess["best_par"])
        if free:
            start["vsini"] = guess["best_vsini"]
        return vel_fit.process(spectra, start, options={"npoly": terms}, config=config)["chisq"] - constant

    fit(rows[0])  # libraries are read, code is loaded
    begin = time.perf_counter()
    found = [(row, float(fit(row))) for row in rows]
    return time.perf_counter() - begin, found


def has_free_vsini(folder, setup):
    vsinis = serializer.load_dict_from_hdf5(f"{folder}/ccf_{setup}.h5")["vsinis"]
    return vsinis[0] is not None


def run_rvspecfit(folder, data, rows, terms, cores):
    """Seconds of a core a spectrum, and -2 ln L by row."""
    parts = [(folder, data, rows[k::cores], terms) for k in range(min(cores, len(rows)))]
    with multiprocessing.get_context("fork").Pool(len(parts)) as pool:
        results = pool.starmap(fit_rows, parts, chunksize=1)
    return sum(seconds for seconds, _ in results) / len(rows), {row: value for _, found in results for row, value in found}


def run_popfit(program, model, spectra, count, table):
    """Spectra a second, start to table, and the objective by row."""
    begin = time.perf_counter()
    subprocess.run([program, "fit", "--device", "cpu", model, spectra, "-o", table], check=True, stdout=subprocess.DEVNULL)
    rate = count / (time.perf_counter() - begin)
    with open(table, newline="") as file:
        return rate, [float(row["objective"]) for row in csv.DictReader(file)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, default=ROOT / "data" / "model.toml")
    parser.add_argument("spectra", nargs="?", type=Path, default=ROOT / "data" / "spectra.npz")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", type=int, default=24, help="spectra that rvspecfit fits in a round")
    parser.add_argument("--popfit-spectra", type=int, default=2048, help="about as many popfit fits in a round")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--popfit", type=Path, default=ROOT / "target" / "release" / "popfit")
    options = parser.parse_args()
    model = tomllib.loads(options.model.read_text())
    data = Data(options.spectra, [arm["name"] for arm in model["arm"]])
    vsinis = [0.0, 10.0, 30.0, 100.0, 300.0] if "vsini" in model else None
    with tempfile.TemporaryDirectory() as folder:
        for arm in model["arm"]:
            labels = write_interpolator(folder, arm["name"], options.model.parent / arm["emulator"])
            write_templates(folder, arm["name"], labels, data.arms[arm["name"]][0], vsinis, options.cores)
        copies = max(1, round(options.popfit_spectra / data.count))
        many = f"{folder}/many.npz"
        data.write(many, copies)
        rows, gaps = [], []
        for number in range(options.rounds):
            rate, objectives = run_popfit(options.popfit, options.model, many, data.count * copies, f"{folder}/popfit{number}.csv")
            chosen = [(number * options.peer + k) % data.count for k in range(options.peer)]
            seconds, reached = run_rvspecfit(folder, data, chosen, model["continuum"]["terms"], options.cores)
            ratio = rate * seconds / options.cores
            gaps += [objectives[row] - value for row, value in reached.items()]
            rows.append({"popfit": rate, "rvspecfit_core_s": seconds, "ratio": ratio})
            print(f"round {number + 1}: popfit {rate:.0f} spectra/s, rvspecfit {seconds:.3f} s a spectrum a core on {options.cores}: {ratio:.0f} times", flush=True)
    ratios = sorted(row["ratio"] for row in rows)
    quality = {"spectra": len(gaps), "popfit_higher": int(np.sum(np.array(gaps) > CLOSE)), "rvspecfit_higher": int(np.sum(np.array(gaps) < -CLOSE)),
               "largest_popfit_above": float(max(gaps)), "largest_rvspecfit_above": float(-min(gaps))}
    print(f"-2 ln L of {len(gaps)} spectra: popfit more than {CLOSE} above rvspecfit in {quality['popfit_higher']} (at most {max(gaps):.3f}), "
          f"rvspecfit above popfit in {quality['rvspecfit_higher']} (at most {-min(gaps):.3f})")
    print(f"ratio, popfit ({data.count * copies} spectra) to rvspecfit: median {statistics.median(ratios):.0f}, {ratios[0]:.0f} to {ratios[-1]:.0f}")
    if options.json:
        options.json.write_text(json.dumps({"rounds": rows, "reached": quality}, indent=1))


if __name__ == "__main__":
    main()
