"""Robust losses on drawn spectra that cosmic rays hit, and on clean ones.

usage: check_loss.py POPFIT [NETWORK ...] [--count N] [--seed S] [--hit SHARE] [--losses NAME ...] [--vsini] [--device DEVICE]
(default: 2000 spectra of seed 11 from the demo's network, 2 % of the pixels hit; needs numpy, scipy, safetensors and pyarrow)

Cosmic rays take runs of three pixels, each 20 to 500 standard errors high. For hit spectra each loss prints mean and
standard deviation of the pulls (fit - truth) / error of all parameters, the largest one, the share of downweighted
pixels and the flags. For clean ones it prints the mean difference from the fit by least squares in its errors, the
scatter about the truth relative to it (beside the prediction from the efficiency of the loss), and the processor time
relative to it. Left out are rows with the flags AT_BOUND or NO_ROTATION, which lack an error, or OUTSIDE_HULL; spectra
of S/N below 30; every other spectrum, whose continuum is not in the span of the terms; and spectra whose clean data
have a high χ².
"""
import argparse, os, resource, subprocess, tempfile
import numpy as np
import pyarrow.parquet as parquet
from check_minima import DATA, Emulator, draw

SPECTRA = {"none": "", "huber": 'loss = "huber"', "student": 'loss = "student"', "cauchy": 'loss = "cauchy"'}
LIMIT, LENGTH = (20.0, 500.0), 3


def efficiency(loss):
    """information of normal residuals that the usual scale keeps"""
    r = np.linspace(-10, 10, 200001)
    density = np.exp(-r**2 / 2)
    psi = {"none": r, "huber": np.clip(r, -1.345, 1.345), "student": 5 * r / (4 + r**2),
           "cauchy": r / (1 + (r / 2.385) ** 2)}[loss]
    mean = lambda x: (x * density).sum() / density.sum()
    return mean(np.gradient(psi, r)) ** 2 / mean(psi**2)


def hit(arrays, share, seed):
    """the same spectra with cosmic rays"""
    random, arrays = np.random.default_rng(seed), dict(arrays)
    for name in [n for n in arrays if n.endswith("flux")]:
        flux, ivar = arrays[name].copy(), arrays[name[:-4] + "ivar"]
        count, pixels = flux.shape
        for n in range(count):
            for first in random.integers(0, pixels - LENGTH + 1, round(share * pixels / LENGTH)):
                run = slice(first, first + LENGTH)
                flux[n, run] += random.uniform(*LIMIT, LENGTH) / np.sqrt(np.maximum(ivar[n, run], 1e-30))
        arrays[name] = flux
    return arrays


def fit(options, folder, spectra, loss):
    """the result table as arrays, and the processor time of the program"""
    arms = "".join(f'[[arm]]\nname = "{name}"\nemulator = "{path}"\n' for name, path in options.arms.items())
    motion = "[velocity]\nrange = [-1000, 1000]\n" + ("[vsini]\nrange = [0, 400]\n" if options.vsini else "")
    model, out = os.path.join(folder, "model.toml"), os.path.join(folder, "out.parquet")
    with open(model, "w") as file:
        file.write(f'{arms}[continuum]\nkind = "rbf"\nterms = 10\n{motion}[spectra]\n{SPECTRA[loss]}\n')
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([options.popfit, "fit", model, spectra, "-o", out, "--overwrite", "--quiet", "--device",
                    options.device], check=True, stderr=subprocess.DEVNULL)
    time = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    table = parquet.read_table(out)
    return {name: np.array(table[name]) for name in table.column_names if name not in ("file", "status_text")}, time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("popfit")
    parser.add_argument("networks", nargs="*", default=[os.path.join(DATA, "emulator.safetensors")])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--hit", type=float, default=0.02)
    parser.add_argument("--losses", nargs="*", default=list(SPECTRA))
    parser.add_argument("--vsini", action="store_true")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    options.arms = {"abcdefgh"[k]: os.path.abspath(path) for k, path in enumerate(options.networks)}
    arrays = draw([Emulator(path) for path in options.networks], options.count, options.seed, options.vsini, (0.0, 0.0))
    parameters = ["velocity", *(["vsini"] if options.vsini else []), "teff", "logg", "feh", "alpha"]
    truth = {name: arrays["T" + {"velocity": "V"}.get(name, name.upper())] for name in parameters}
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, some in [("clean", arrays), ("hit", hit(arrays, options.hit, options.seed + 1))]:
            files[name] = os.path.join(folder, name + ".npz")
            np.savez(files[name], **some)
        print(f"{options.count} spectra, {100 * options.hit:.1f} % of the pixels hit")
        plain, time = fit(options, folder, files["clean"], "none")
        arrays["described"] = plain["flags"] & (64 | 1024) == 0
        for loss in options.losses:
            found, time = fit(options, folder, files["hit"], loss)
            print(f"{loss:8} hit, {time:.1f} s", pulls(found, truth, parameters, arrays), flags(found), sep="\n  ")
        print(f"none     clean, {time:.1f} s", pulls(plain, truth, parameters, arrays), flags(plain), sep="\n  ")
        for loss in [loss for loss in options.losses if loss != "none"]:
            times = [(fit(options, folder, files["clean"], "none")[1], *fit(options, folder, files["clean"], loss)) for _ in range(3)]
            found = times[0][1]
            speed = np.median([plain_time / own for plain_time, _, own in times])
            good = usable(plain, arrays) & usable(found, arrays)
            print(f"{loss:8} clean, {speed:.3f} of the speed, {found['evaluations'].sum() / plain['evaluations'].sum():.3f}"
                  f" of the evaluations; sqrt(1/efficiency) {efficiency(loss) ** -0.5:.4f}",
                  pulls(found, truth, parameters, arrays), flags(found), sep="\n  ")
            for name in parameters:
                one = good & np.isfinite(plain[name + "_err"]) & np.isfinite(found[name + "_err"])
                plain_pull = (plain[name] - truth[name])[one] / plain[name + "_err"][one]
                pull = (found[name] - truth[name])[one] / plain[name + "_err"][one]
                near = (abs(plain_pull) < 6) & (abs(pull) < 6)
                print(f"    {name:8} bias {np.mean((pull - plain_pull)[near]):+.4f}  scatter x"
                      f" {np.std(pull[near]) / np.std(plain_pull[near]):.4f}  errors x"
                      f" {np.median((found[name + '_err'] / plain[name + '_err'])[one]):.4f}")


def usable(found, arrays):
    """rows with errors of all parameters"""
    sn = np.median(np.abs(next(v for k, v in arrays.items() if k.endswith("flux")))
                   * np.sqrt(next(v for k, v in arrays.items() if k.endswith("ivar"))), axis=1)
    return arrays["described"] & (np.arange(len(sn)) % 2 == 0) & (found["status"] > 0) & (found["flags"] & (8 | 16 | 4096) == 0) & (sn > 30)


def pulls(found, truth, parameters, arrays):
    good, text = usable(found, arrays), []
    for name in parameters:
        pull = ((found[name] - truth[name]) / found[name + "_err"])[good]
        pull = pull[np.isfinite(pull)]
        text.append(f"{name} {pull.mean():+.3f} {pull.std():.3f} (max {abs(pull).max():.1f}, {(abs(pull) > 5).sum()} > 5)")
    return f"{good.sum()} rows: " + ", ".join(text)


def flags(found):
    share = found.get("downweighted")
    return (f"chi2/dof {np.median(found['chi2'] / found['dof']):.3f}, downweighted "
            + ("none" if share is None else f"{np.nanmedian(share):.4f}") + "; flags "
            + ", ".join(f"{1 << k}: {int((found['flags'] >> k & 1).sum())}" for k in range(16) if (found["flags"] >> k & 1).any()))


if __name__ == "__main__":
    main()
