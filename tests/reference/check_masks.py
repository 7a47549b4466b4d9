"""Fits the demo's spectra under a matrix of masks and bases, and judges every minimum by the reference.

usage: check_masks.py POPFIT [DEVICE [SPECTRA [BASIS TERMS]]]     (cpu, 64, all bases; needs numpy, scipy and safetensors)

For each case: how fits ended; how many lie more than 0.05 above the lowest objective that the reference reaches from the
program's answer and from the truth, by the reference's own objective at the answer and by the program's; and, where
objectives agree, the largest difference of a parameter in errors.
"""
import collections, csv, os, subprocess, sys, tempfile
import numpy as np
from fit_reference import DATA, Emulator, Problem, chebyshev_basis, levenberg_marquardt, rbf_basis

PARAMETERS = ["velocity", "teff", "logg", "feh", "alpha"]
FREE = [0, 2, 3, 4, 5]
SHARES = [0.0, 0.1, 0.25, 0.3, 0.5, 0.7, 0.9, 0.95]
PLACES = ["left", "right", "both", "middle", "blocks", "random"]
BASES = [("rbf", 10), ("rbf", 4), ("rbf", 20), ("rbf", 32), ("chebyshev", 1), ("chebyshev", 10), ("chebyshev", 32)]
DECADES = [2, 8, 12]


def masked(place, share, pixels, random):
    """which pixels a mask covers"""
    mask, count = np.zeros(pixels, bool), round(share * pixels)
    if place == "left":
        mask[:count] = True
    elif place == "right":
        mask[pixels - count:] = True
    elif place == "both":
        mask[:count // 2] = True
        mask[pixels - (count - count // 2):] = True
    elif place == "middle":
        mask[(pixels - count) // 2:][:count] = True
    elif place == "blocks":
        width = pixels // 20
        for k in random.permutation(20)[:round(share * 20)]:
            mask[k * width:(k + 1) * width] = True
    else:
        mask[random.permutation(pixels)[:count]] = True
    return mask


def fit(popfit, device, basis, terms, spectra):
    """the program's table, a dictionary per row"""
    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: os.path.join(folder, name)
        with open(path("model.toml"), "w") as file:
            file.write(f"""[[arm]]
name = "b"
emulator = "{os.path.abspath(os.path.join(DATA, "emulator.safetensors"))}"
[continuum]
kind = "{basis}"
terms = {terms}
marginalise = true
[velocity]
range = [-1000.0, 1000.0]
""")
        np.savez(path("spectra.npz"), **spectra)
        command = [popfit, "fit", path("model.toml"), path("spectra.npz"), "-o", path("out.csv"), "--device", device, "--quiet"]
        subprocess.run(command, check=False, capture_output=True)
        with open(path("out.csv")) as file:
            return list(csv.DictReader(file))


def judge(emulator, row, spectra, n, truth, basis, terms):
    """Returns how far the fit's parameters, and its own objective, lie above the lowest one that the reference reaches,
    and the largest difference in errors from the minimum nearby; None without a fit.

    The height of the parameters is that of the reference's objective (f64) there. The program's own objective carries
    the rounding of its f32 template, some 1e-6 of chi2, which is above 0.05 where chi2 is above 1e5.
    """
    if int(row["status"]) <= 0:
        return None
    kind = rbf_basis if basis == "rbf" else chebyshev_basis
    problem = Problem(emulator, spectra["wavelength"], spectra["flux"][n], spectra["ivar"][n], spectra["mask"][n], basis=kind, terms=terms)
    found = np.insert([float(row[name]) for name in PARAMETERS], 1, 0.0)
    near, far = (levenberg_marquardt(problem, start.copy()) for start in (found, np.insert(truth[n], 1, 0.0)))
    offset = np.abs((found - near[0])[FREE] / near[1][FREE]).max()
    lowest = min(near[2], far[2])
    return problem.linearise(found)[3] - lowest, float(row["objective"]) - lowest, offset


def main():
    popfit, device = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "cpu"
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 64
    bases = [(sys.argv[4], int(sys.argv[5]))] if len(sys.argv) > 5 else BASES
    emulator = Emulator(os.path.join(DATA, "emulator.safetensors"))
    demo, truth = np.load(os.path.join(DATA, "spectra.npz")), np.load(os.path.join(DATA, "truth.npz"))["parameters"]
    cases = [(place, share, 0, *basis) for basis in bases for place in PLACES for share in SHARES]
    cases += [(place, share, d, *basis) for basis in bases for place in PLACES[:4] for share in SHARES[1:6] for d in DECADES]
    fits, high = 0, np.zeros(2, int)
    for place, share, decades, basis, terms in cases:
        random = np.random.default_rng(1)
        spectra = {key: demo[key][:count] if key != "wavelength" else demo[key] for key in demo.files}
        masks = np.array([masked(place, share, spectra["flux"].shape[1], random) for _ in range(count)])
        if decades:
            spectra["ivar"] = np.where(masks, spectra["ivar"] * 10.0 ** -decades, spectra["ivar"].astype(float))
        else:
            spectra["mask"] = spectra["mask"] | masks
        rows = fit(popfit, device, basis, terms, spectra)
        judged = [judge(emulator, row, spectra, n, truth, basis, terms) for n, row in enumerate(rows)]
        ends = dict(collections.Counter(row["status_text"] for row in rows))
        gaps = np.array([one[:2] for one in judged if one]).reshape(-1, 2)
        above = (gaps > 0.05).sum(axis=0)
        fits, high = fits + len(rows), high + above
        offsets = np.array([one[2] for one in judged if one and one[0] <= 0.05])
        how = f"weights x 1e-{decades}" if decades else "masked"
        print(f"{basis} {terms}, {place} {share:.0%} {how}: {ends}, above 0.05: {above[0]} (at most {gaps[:, 0].max(initial=0):.4f}), "
              f"by the program's objective: {above[1]} ({gaps[:, 1].max(initial=0):.4f}), "
              f"at most {offsets.max(initial=0):.4f} errors off", flush=True)
    print(f"{fits} fits, {high[0]} more than 0.05 above the reference, {high[1]} by the program's objective")


if __name__ == "__main__":
    main()
