"""Makes masks.json, which tests/spectra/masks.rs expects: python3 make_masks.py

Some of the demo's spectra with parts of them masked, or their weights lowered, and the lowest objective that the
reference reaches from the truth and from starts of its own library (four; 24 for the poor cases), with the parameters and errors
there.
"""
import json, os
import numpy as np
import scipy
from fit_reference import DATA, Emulator, Library, Problem, chebyshev_basis, levenberg_marquardt, rbf_basis

SPECTRA = 12
PIXELS = 3741
# name, basis, terms, masked ranges of pixels, [from, to, factor] of ivar. The last three are poor: two spectra far from
# any model (chi2/dof 80 to 340), so that f32 rounds their objectives by some 0.3, and Gauss-Newton steps creep.
SCARCE = "all but 5 %, by default starts"
STIFF = "both ends, 95 %, a constant continuum, by default starts"
POOR = [f"{where}, a constant continuum" for where in ("left 50 %", "right 10 %", "both ends, 10 %")]
CASES = [
    ("nothing", "rbf", 10, [], []),
    ("left 25 %", "rbf", 10, [[0, 935]], []),
    ("left 30 %", "rbf", 10, [[0, 1122]], []),
    ("left 50 %", "rbf", 10, [[0, 1870]], []),
    ("right 40 %", "rbf", 10, [[2245, 3741]], []),
    ("both ends, 60 %", "rbf", 10, [[0, 1122], [2619, 3741]], []),
    ("the middle, 70 %", "rbf", 10, [[561, 3180]], []),
    ("blocks", "rbf", 20, [[k, k + 374] for k in range(0, 3740, 748)], []),
    ("left 15 %, 20 terms", "rbf", 20, [[0, 561]], []),
    ("right 70 %", "chebyshev", 32, [[1122, 3741]], []),
    ("weights of 1e-8", "rbf", 10, [], [[0, 1496, 1e-8]]),
    ("weights of 1e-12", "chebyshev", 10, [], [[1870, 3741, 1e-12]]),
    (SCARCE, "rbf", 10, [[0, 1496], [1683, 3740]], []),
    (STIFF, "chebyshev", 1, [[0, 1777], [1964, 3741]], []),
    (POOR[0], "chebyshev", 1, [[0, 1870]], []),
    (POOR[1], "chebyshev", 1, [[3367, 3741]], []),
    (POOR[2], "chebyshev", 1, [[0, 187], [3554, 3741]], []),
]


def polished(problem, fit):
    """fits again from where a fit ended until nothing moves: where residuals are large, Gauss-Newton steps creep"""
    for _ in range(40):
        before = fit[0]
        fit = levenberg_marquardt(problem, before)
        if (np.abs(fit[0] - before) <= 1e-4 * fit[1]).all():
            break
    return fit


def main():
    emulator = Emulator(os.path.join(DATA, "emulator.safetensors"))
    library = Library(emulator)
    spectra, truth = np.load(os.path.join(DATA, "spectra.npz")), np.load(os.path.join(DATA, "truth.npz"))
    cases = []
    for name, basis, terms, masked, lowered in CASES:
        fits = []
        for n in range(2 if name in POOR else SPECTRA):
            mask, ivar = spectra["mask"][n].copy(), spectra["ivar"][n].astype(float)
            for start, end in masked:
                mask[start:end] = True
            for start, end, factor in lowered:
                ivar[start:end] *= factor
            one = [spectra["wavelength"], spectra["flux"][n], ivar, mask]
            kind = rbf_basis if basis == "rbf" else chebyshev_basis
            problem = Problem(emulator, *one, basis=kind, terms=terms)
            starts = [np.insert(truth["parameters"][n], 1, 0.0)] + library.starts(*one, 24 if name in POOR else 4)
            found = [levenberg_marquardt(problem, start) for start in starts]
            best = min(found, key=lambda fit: fit[2])
            p, errors, objective, _ = polished(problem, best) if name in POOR else best
            free = [0, 2, 3, 4, 5]
            fits.append({"objective": objective, "rank": problem.rank, "unmasked": int(problem.good.sum()),
                         "parameters": p[free].tolist(), "errors": errors[free].tolist()})
        starts = None if name in (SCARCE, STIFF, *POOR) else 4
        cases.append({"name": name, "basis": basis, "terms": terms, "starts": starts, "is_poor": name in POOR, "masked": masked, "lowered": lowered, "fits": fits})
    made = {"versions": f"numpy {np.__version__}, scipy {scipy.__version__}", "cases": cases}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "masks.json"), "w") as file:
        json.dump(made, file, indent=0)


if __name__ == "__main__":
    main()
