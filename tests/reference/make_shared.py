"""Clusters of stars that share labels, drawn with known truth, and their joint fits in numpy, f64, by dense matrices.

usage: make_shared.py OUT SEED COUNTS [STEP]
COUNTS such as 2,3,4 are the numbers of stars of the clusters; two field stars follow, and the last star of the last cluster
has another metallicity. Writes OUT.npz (stars in random order, with the column `cluster`, -1 in the field) and
OUT_reference.npz: for each cluster the fits that share feh, those that share feh and alpha under a prior on feh, and those
that share feh where alpha is bounded. STEP is the width of a pixel in angstrom.
"""

import sys
from pathlib import Path

import numpy as np
from scipy.stats import chi2 as chi2_distribution

sys.path.insert(0, str(Path(__file__).resolve().parent))
from fit_reference import C, STEP, Emulator, Problem, resample
from make_exposures import draw_continuum

DATA = Path(__file__).resolve().parents[2] / "data"
KEPT = np.array([0, 2, 3, 4, 5])  # velocity, teff, logg, feh, alpha of a problem's parameters
FEH, ALPHA = 3, 4
PRIOR = (-0.9, 0.02)  # on feh, in the fits that share two labels
OUTLIER = 0.15
BOUNDED = 0.2  # upper bound of alpha in the third kind of fits


def draw_labels(rng, emulator, feh):
    low, high = emulator.bounds
    while True:
        labels = low + (high - low) * rng.uniform(0.2, 0.8, 4)
        labels[2] = feh
        if all(distance <= 0 for _, distance, _ in emulator.outside(emulator.scaled(labels))):
            return labels


def draw_star(rng, emulator, wavelength, labels):
    """Parameters and arrays (pixels,) of flux, ivar and mask."""
    velocity = rng.uniform(-300, 300)
    beta = velocity / C
    template = emulator.template(labels)[0][:, None]
    model = resample(template, emulator, wavelength * np.sqrt((1 - beta) / (1 + beta)))[0][:, 0]
    model *= draw_continuum(rng, wavelength, True)
    sigma = np.sqrt(np.abs(model) * np.median(model)) / 10 ** rng.uniform(np.log10(15), 2)
    mask = rng.random(len(model)) < 0.01
    return np.r_[velocity, labels], model + sigma * rng.normal(size=len(model)), sigma**-2, mask


def fit(problems, starts, shared, prior=None, most_alpha=np.inf):
    """Levenberg-Marquardt of all stars of a cluster: parameters (stars, 5), errors, correlations (stars, 5, 5), chi2 of each.

    The dense normal matrix has the shared parameters first and then the own ones of each star.
    """
    own = [p for p in range(5) if p not in shared]
    stars = len(problems)
    size = len(shared) + stars * len(own)
    places = np.zeros((stars, 5), int)
    for k in range(stars):
        places[k, shared] = np.arange(len(shared))
        places[k, own] = len(shared) + k * len(own) + np.arange(len(own))
    unit, low, high = np.zeros(size), np.zeros(size), np.zeros(size)
    p = np.zeros(size)
    for k in range(stars):
        unit[places[k]], p[places[k]] = STEP[KEPT], starts[k]
        low[places[k]], high[places[k]] = problems[k].low[KEPT], problems[k].high[KEPT]
        high[places[k, ALPHA]] = min(high[places[k, ALPHA]], most_alpha)

    def linearise(p):
        normal, gradient, chi2 = np.zeros((size, size)), np.zeros(size), np.zeros(stars)
        for k, problem in enumerate(problems):
            full = np.zeros(6)
            full[KEPT] = p[places[k]]
            chi2[k], own_normal, own_gradient, _ = problem.linearise(full)
            normal[np.ix_(places[k], places[k])] += own_normal[np.ix_(KEPT, KEPT)]
            gradient[places[k]] += own_gradient[KEPT]
        cost = chi2.sum()
        if prior:
            place, (mean, sigma) = places[0, FEH], prior
            weight = (unit[place] / sigma) ** 2
            normal[place, place] += weight
            gradient[place] += weight * (mean - p[place]) / unit[place]
            cost += ((p[place] - mean) / sigma) ** 2
        return cost, normal, gradient, chi2

    p = np.clip(p, low, high)
    cost, normal, gradient, chi2 = linearise(p)
    damping = 1e-3
    for _ in range(200):
        free = ~(((p <= low) & (gradient < 0)) | ((p >= high) & (gradient > 0)))
        step = np.zeros(size)
        step[free] = np.linalg.solve(
            normal[np.ix_(free, free)] + damping * np.diag(np.diag(normal)[free]), gradient[free]
        )
        trial = np.clip(p + step * unit, low, high)
        new = linearise(trial)
        drop = cost - new[0]
        if drop >= 0:
            p, (cost, normal, gradient, chi2) = trial, new
            damping = max(damping / 5, 1e-12)
            if drop < 1e-9 * cost and np.abs(step).max() < 1e-7:
                break
        else:
            damping *= 4
            if damping > 1e8:
                break
    free = (p > low) & (p < high)
    errors, covariance = np.full(size, np.nan), np.full((size, size), np.nan)
    covariance[np.ix_(free, free)] = np.linalg.inv(normal[np.ix_(free, free)])
    errors[free] = np.sqrt(np.diag(covariance)[free])
    correlations = covariance / np.outer(errors, errors)
    blocks = np.array([correlations[np.ix_(place, place)] for place in places])
    return p[places], (errors * unit)[places], blocks, chi2


def main():
    out, seed, counts = sys.argv[1], int(sys.argv[2]), [int(n) for n in sys.argv[3].split(",")]
    step = float(sys.argv[4]) if len(sys.argv) > 4 else 1.0
    rng = np.random.default_rng(seed)
    emulator = Emulator(str(DATA / "emulator.safetensors"))
    wavelength = np.arange(4002.0, 5498.0, step)
    stars, clusters = [], []
    for cluster, count in enumerate([*counts, 1, 1]):
        feh = rng.uniform(-1.5, -0.3)
        for k in range(count):
            is_outlier = cluster == len(counts) - 1 and k == count - 1
            labels = draw_labels(rng, emulator, feh + OUTLIER * is_outlier)
            stars.append(draw_star(rng, emulator, wavelength, labels))
            clusters.append(cluster if cluster < len(counts) else -1)
    order = rng.permutation(len(stars))
    truth, flux, ivar, mask = (np.array([stars[k][part] for k in order]) for part in range(4))
    clusters = np.array(clusters)[order]
    np.savez_compressed(
        out + ".npz",
        wavelength=wavelength,
        flux=flux.astype(np.float32),
        ivar=ivar.astype(np.float32),
        mask=mask,
        cluster=clusters,
    )
    stored = np.load(out + ".npz")
    results = {}
    for cluster in range(len(counts)):
        rows = np.flatnonzero(clusters == cluster)
        problems = [
            Problem(emulator, wavelength, *(stored[name][row] for name in ("flux", "ivar", "mask"))) for row in rows
        ]
        for name, shared, prior, most in (
            ("feh", [FEH], None, np.inf),
            ("both", [FEH, ALPHA], PRIOR, np.inf),
            ("bounded", [FEH], None, BOUNDED),
        ):
            x, errors, correlations, chi2 = fit(problems, truth[rows], shared, prior, most)
            free = chi2 if prior is None else fit(problems, truth[rows], shared)[3]
            alone = sum(fit([problem], [truth[row]], [], None, most)[3][0] for problem, row in zip(problems, rows))
            p = chi2_distribution.sf(free.sum() - alone, (len(rows) - 1) * len(shared))
            results |= {
                f"{cluster}_{name}_{key}": value
                for key, value in dict(x=x, err=errors, correlations=correlations, chi2=chi2, p=p).items()
            }
            print(cluster, name, len(rows), "feh", x[0, FEH], errors[0, FEH], "p", p, "bounds", np.isnan(errors).sum())
    np.savez_compressed(out + "_reference.npz", **results)


if __name__ == "__main__":
    main()
