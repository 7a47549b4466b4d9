"""Draws the figures of docs/src/equations.md: python3 tools/draw_equations.py

docs/src/images/{continuum,first-guess,fold}.svg are drawn from the demo's network, from spectra of data/spectra.npz and
tests/reference/folds.npz (synthetic, see the READMEs there), and with the reference of tests/reference/fit_reference.py. Needs numpy,
scipy, safetensors and matplotlib.
"""
import pathlib, sys

import matplotlib
import numpy as np

matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/reference"))
from fit_reference import C, STEP, Emulator, Library, Problem, levenberg_marquardt, resample

IMAGES = ROOT / "docs/src/images"
BLUE, ORANGE, GREY = "#2b6cb0", "#b7472a", "#8a94a0"
EMULATOR = Emulator(ROOT / "data/emulator.safetensors")
plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "popfit", "font.family": "sans-serif", "font.size": 9, "figure.dpi": 72,
                     "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "legend.fontsize": 8})


def save(figure, name):
    figure.tight_layout()
    figure.savefig(IMAGES / f"{name}.svg", facecolor="white", metadata={"Date": None})


def arrays(spectra, n):
    return spectra["wavelength"], *(spectra[name][n] for name in ("flux", "ivar", "mask"))


def problem_of(spectra, n):
    return Problem(EMULATOR, *arrays(spectra, n))


def demo_fit(n):
    """the problem of a spectrum of the demo, and its fit from the truth"""
    spectra, truth = np.load(ROOT / "data/spectra.npz"), np.load(ROOT / "data/truth.npz")["parameters"][n]
    problem = problem_of(spectra, n)
    return spectra, problem, levenberg_marquardt(problem, np.r_[truth[0], 0.0, truth[1:]])


def draw_continuum():
    """the continuum of a fit, and what it leaves of the derivative by teff"""
    _, problem, (p, errors, _, _) = demo_fit(1)
    rows = np.column_stack(EMULATOR.template(p[2:]))
    rest = problem.wavelength * np.sqrt((1 - p[0] / C) / (1 + p[0] / C))
    value, _ = resample(rows, EMULATOR, rest, rest=problem.wavelength)
    data = problem.flux * problem.weight
    q, _ = np.linalg.qr((problem.directions * value[:, 0]).T)
    fitted = q @ (q.T @ data)
    continuum = fitted / value[:, 0] / problem.weight
    derivative = value[:, 1] * continuum * problem.weight * errors[2]
    left = derivative - q @ (q.T @ derivative)
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(8.4, 5.2), sharex=True)
    x, every = problem.wavelength, slice(None, None, 3)
    scale = np.median(continuum)
    top.plot(x[every], problem.flux[every], color=GREY, lw=0.6, label="data y")
    top.plot(x[every], value[every, 0] * scale, color=BLUE, lw=0.6, label="network m, times a constant")
    top.plot(x[every], (continuum * np.median(value[:, 0]))[every], color=ORANGE, lw=1.6, label="continuum Σ a p, times a constant")
    top.set_ylabel("flux")
    top.legend(ncol=3, loc="upper left")
    top.set_ylim(0, 1.25 * problem.flux.max())
    bottom.plot(x[every], derivative[every], color=GREY, lw=0.6, label="J: by one error of teff, at fixed continuum")
    bottom.plot(x[every], left[every], color=BLUE, lw=0.6, label="what no continuum can imitate")
    bottom.set_ylabel("change of the model / σ")
    bottom.set_xlabel("wavelength (Å)")
    bottom.set_ylim(-0.62, 0.45)
    bottom.legend(ncol=2, loc="lower right")
    save(figure, "continuum")
    print(f"continuum: |J|² {derivative @ derivative:.2f}, of which the continuum leaves {left @ left:.2f}; teff {p[2]:.0f} ± {errors[2]:.1f}")


def draw_first_guess():
    """a library against one spectrum: all velocities of the best template, and all templates at their best velocities"""
    spectra, _, (p, _, _, _) = demo_fit(3)
    library = Library(EMULATOR, size=512)
    score = library.scores(*arrays(spectra, 3))
    score -= score.min()
    velocity = C * (np.exp(library.shifts * EMULATOR.dlog) - 1)
    lowest, best = score.min(1), score.min(1).argmin()
    starts = library.starts(*arrays(spectra, 3), 4)
    chosen = [np.abs(library.parameters - start[1:]).sum(1).argmin() for start in starts]
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.6))
    left.plot(velocity, score[best], color=BLUE, lw=1)
    left.axvline(p[0], color=ORANGE, lw=1, ls="--")
    left.set_xlabel("velocity (km/s)")
    left.set_ylabel("χ² above the lowest, of the best template")
    left.annotate(f"fit: {p[0]:.1f} km/s", (p[0], 0.2 * score[best].max()), (24, 0), textcoords="offset points", color=ORANGE)
    right.scatter(library.parameters[:, 1], 1 + lowest, s=6, color=GREY, label="512 templates, each at its best velocity")
    right.scatter(library.parameters[chosen, 1], 1 + lowest[chosen], s=34, color=BLUE, label="the best four that differ: starts")
    right.axvline(p[2], color=ORANGE, lw=1, ls="--", label=f"fit: {p[2]:.0f} K")
    right.set_yscale("log")
    right.set_ylim(0.8, 100 * lowest.max())
    right.set_xlabel("teff of the template (K)")
    right.set_ylabel("1 + χ² above the lowest")
    right.legend(loc="upper right")
    save(figure, "first-guess")
    print(f"first guess: best template at {velocity[score[best].argmin()]:.1f} km/s, teff {library.parameters[best, 1]:.0f}; fit {p[0]:.1f}, {p[2]:.0f}")


def profile(problem, start, logg):
    """the lowest objective with logg held, and the other parameters there"""
    low, high = problem.low.copy(), problem.high.copy()
    problem.low[3] = problem.high[3] = logg
    p, _, objective, _ = levenberg_marquardt(problem, np.r_[start[:3], logg, start[4:]])
    problem.low, problem.high = low, high
    return objective, p


def draw_fold():
    """a fold of the template along logg: the objective with its two minima, and the way of the template"""
    spectra = np.load(ROOT / "tests/reference/folds.npz")
    n = 0
    problem = problem_of(spectra, n)
    truth = np.array([spectra[name][n] for name in ("TV", "TTEFF", "TLOGG", "TFEH", "TALPHA")])
    grid = np.linspace(EMULATOR.bounds[0, 1], EMULATOR.bounds[1, 1], 60)
    start = np.r_[truth[0], 0.0, truth[1:]]
    objectives, points = [], []
    for logg in grid:
        objective, p = min((profile(problem, s, logg) for s in (start, points[-1] if points else start)), key=lambda both: both[0])
        objectives.append(objective)
        points.append(p)
    objectives = np.array(objectives) - min(objectives)
    minima = [k for k in range(1, len(grid) - 1) if objectives[k] <= min(objectives[k - 1], objectives[k + 1])]
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.6))
    left.plot(grid, objectives, color=BLUE, lw=1.4)
    for k in minima:
        left.plot(grid[k], objectives[k], "o", color=ORANGE, ms=5)
        left.annotate(f"{objectives[k]:.0f}", (grid[k], objectives[k]), (0, 8), textcoords="offset points", ha="center", color=ORANGE)
    left.axvline(truth[2], color=GREY, lw=1, ls="--")
    left.annotate("truth", (truth[2], objectives.max()), (4, -4), textcoords="offset points", color=GREY)
    left.set_xlabel("logg, held; everything else fitted")
    left.set_ylabel("objective above the lowest")
    # the template's lines as logg changes alone, seen in the plane in which they move most
    best = points[int(np.argmin(objectives))]
    rows = []
    for logg in grid:
        p = np.r_[best[:3], logg, best[4:]]
        rest = problem.wavelength * np.sqrt((1 - p[0] / C) / (1 + p[0] / C))
        value, _ = resample(np.column_stack(EMULATOR.template(p[2:])), EMULATOR, rest, rest=problem.wavelength)
        q, _ = np.linalg.qr((problem.directions * value[:, :1].T).T)
        data = problem.flux * problem.weight
        rows.append(q @ (q.T @ data))
    rows = np.array(rows)
    u, s, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    plane = u[:, :2] * s[:2]
    right.plot(*plane.T, color=BLUE, lw=1.4)
    for k in minima + [0, len(grid) - 1]:
        right.plot(*plane[k], "o", color=ORANGE if k in minima else GREY, ms=5)
        right.annotate(f"logg {grid[k]:.1f}", plane[k], (5, 5), textcoords="offset points", color=ORANGE if k in minima else GREY)
    right.set_xlabel("first direction of the model (σ)")
    right.set_ylabel("second direction (σ)")
    right.margins(0.2)
    save(figure, "fold")
    print("fold:", n, "truth", truth, "minima", [(round(grid[k], 2), round(objectives[k], 2)) for k in minima])


if __name__ == "__main__":
    draw_continuum()
    draw_first_guess()
    draw_fold()
