"""Exposures of stars, drawn with known truth, and their joint fits in numpy, f64: one star at a time.

usage: make_exposures.py OUT STARS SEED [REFERENCES [STEP]]
The continua of every other star, from the first on, lie within the span of the fit's basis.
Writes OUT.npz (exposures in random order, joined by `id`) and OUT_truth.npz; with REFERENCES, the fits of the first so many
stars, with one velocity and with one for each exposure, are in OUT_reference.npz. STEP is the width of a pixel in angstrom.

The joint normal matrix of a star has the sums of its exposures: that of labels and velocity, or an arrow whose shaft has
the labels and whose head has the velocities of the exposures.
"""

import sys
from pathlib import Path

import numpy as np
from scipy.stats import chi2 as chi2_distribution

sys.path.insert(0, str(Path(__file__).resolve().parent))
from fit_reference import C, STEP, Emulator, Problem, rbf_basis, resample

MOST_EXPOSURES = 12
LABELS = 4
DATA = Path(__file__).resolve().parents[2] / "data"


def draw_continuum(rng, wavelength, in_span):
    """A smooth continuum, within the span of the fit's basis or near it."""
    if in_span:
        continuum = np.r_[1, rng.normal(0, 0.4), rng.normal(0, 0.15), rng.normal(0, 0.06, 7)] @ rbf_basis(wavelength)
        return continuum + max(0.15 - continuum.min(), 0)
    x = np.linspace(-1, 1, len(wavelength))
    return np.exp(
        rng.normal(0, 0.4) * x + rng.normal(0, 0.2) * x**2 + 0.03 * np.sin(rng.uniform(1, 4) * x + rng.uniform(0, 6))
    )


def draw_star(rng, emulator, wavelength, in_span):
    """Labels, the velocity of each exposure, and arrays (exposures, pixels) of flux, ivar and mask."""
    low, high = emulator.bounds
    while True:
        labels = low + (high - low) * rng.random(LABELS)
        labels[0] = 10 ** rng.uniform(np.log10(low[0]), np.log10(high[0]))
        if all(distance <= 0 for _, distance, _ in emulator.outside(emulator.scaled(labels))):
            break
    count = rng.integers(2, MOST_EXPOSURES + 1)
    velocities = np.full(count, rng.uniform(-300, 300))
    if rng.random() < 0.1:
        velocities += rng.normal(0, 10 ** rng.uniform(0, 2), count)
    template = emulator.template(labels)[0][:, None]
    flux, ivar, mask = [], [], []
    for velocity in velocities:
        beta = velocity / C
        model = resample(template, emulator, wavelength * np.sqrt((1 - beta) / (1 + beta)))[0][:, 0]
        model *= draw_continuum(rng, wavelength, in_span)
        model *= 10 ** rng.uniform(-1, 4) / np.median(model)
        sigma = np.sqrt(np.abs(model) * np.median(model)) / 10 ** rng.uniform(np.log10(8), 2)
        flux.append(model + sigma * rng.normal(size=len(model)))
        ivar.append(sigma**-2)
        bad = rng.random(len(model)) < 0.01
        bad[rng.integers(0, len(model)) :][: rng.integers(0, 40)] = True
        mask.append(bad)
    return labels, velocities, np.array(flux), np.array(ivar), np.array(mask)


def linearise(problems, velocities, labels):
    """chi2, normal matrix and gradient of (velocities, labels); `velocities` has one for all exposures, or one for each."""
    count = len(velocities)
    size = count + LABELS
    chi2, normal, gradient = 0.0, np.zeros((size, size)), np.zeros(size)
    for k, problem in enumerate(problems):
        velocity = k if count > 1 else 0
        own = problem.linearise(np.r_[velocities[velocity], 0.0, labels])
        places = np.r_[velocity, count : size]
        kept = np.r_[0, 2 : 2 + LABELS]
        chi2 += own[0]
        normal[np.ix_(places, places)] += own[1][np.ix_(kept, kept)]
        gradient[places] += own[2][kept]
    return chi2, normal, gradient


def fit(problems, velocities, labels):
    """Levenberg-Marquardt from these velocities and labels: parameters, errors, correlations, chi2."""
    count = len(velocities)
    step_unit = np.r_[np.full(count, STEP[0]), STEP[2:]]
    low = np.r_[np.full(count, problems[0].low[0]), problems[0].low[2:]]
    high = np.r_[np.full(count, problems[0].high[0]), problems[0].high[2:]]
    p = np.clip(np.r_[velocities, labels], low, high)
    chi2, normal, gradient = linearise(problems, p[:count], p[count:])
    damping = 1e-3
    for _ in range(100):
        free = ~(((p <= low) & (gradient < 0)) | ((p >= high) & (gradient > 0)))
        step = np.zeros(len(p))
        step[free] = np.linalg.solve(normal[np.ix_(free, free)] + damping * np.diag(np.diag(normal)[free]), gradient[free])
        trial = np.clip(p + step * step_unit, low, high)
        new = linearise(problems, trial[:count], trial[count:])
        drop = chi2 - new[0]
        if drop >= 0:
            p, (chi2, normal, gradient) = trial, new
            damping = max(damping / 5, 1e-12)
            if drop < 1e-9 * chi2 and np.abs(step).max() < 1e-7:
                break
        else:
            damping *= 4
            if damping > 1e8:
                break
    free = (p > low) & (p < high)
    errors, correlations = np.full(len(p), np.nan), np.full((len(p), len(p)), np.nan)
    covariance = np.linalg.inv(normal[np.ix_(free, free)])
    errors[free] = step_unit[free] * np.sqrt(np.diag(covariance))
    scale = np.sqrt(np.diag(covariance))
    correlations[np.ix_(free, free)] = covariance / np.outer(scale, scale)
    return p, errors, correlations, chi2


def test_constancy(p, errors, correlations, count):
    """Mean of the velocities weighted by their covariance, its error, and the probability of as large deviations from it."""
    velocities, errors = p[:count], errors[:count]
    inverse = np.linalg.inv(correlations[:count, :count] * np.outer(errors, errors))
    mean = inverse.sum(0) @ velocities / inverse.sum()
    deviations = velocities - mean
    return mean, inverse.sum() ** -0.5, chi2_distribution.sf(deviations @ inverse @ deviations, count - 1)


def main():
    out, stars, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    references = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    step = float(sys.argv[5]) if len(sys.argv) > 5 else 0.4
    rng = np.random.default_rng(seed)
    emulator = Emulator(str(DATA / "emulator.safetensors"))
    wavelength = np.arange(4002.0, 5498.0, step)
    drawn = [draw_star(rng, emulator, wavelength, k % 2 == 0) for k in range(stars)]
    counts = np.array([len(star[1]) for star in drawn])
    order = rng.permutation(counts.sum())
    ids = np.repeat(np.arange(stars), counts)
    arrays = {name: np.concatenate([star[k] for star in drawn]) for k, name in enumerate(("flux", "ivar", "mask"), 2)}
    np.savez_compressed(
        out + ".npz",
        wavelength=wavelength,
        flux=arrays["flux"][order].astype(np.float32),
        ivar=arrays["ivar"][order].astype(np.float32),
        mask=arrays["mask"][order],
        id=ids[order],
    )
    np.savez(
        out + "_truth.npz",
        labels=np.array([star[0] for star in drawn]),
        counts=counts,
        velocities=np.concatenate([star[1] for star in drawn]),
        order=order,
    )
    if not references:
        return
    results = {}
    first = np.r_[0, np.cumsum(counts)]
    stored = np.load(out + ".npz")
    for k in range(references):
        # The exposures of a star come in the order of the file.
        rows = np.flatnonzero(stored["id"] == k)
        problems = [
            Problem(emulator, wavelength, *(stored[name][row] for name in ("flux", "ivar", "mask"))) for row in rows
        ]
        truth = drawn[k][1][order[rows] - first[k]]
        for mode, velocities in ("shared", truth[:1]), ("each", truth):
            p, errors, correlations, chi2 = fit(problems, velocities, drawn[k][0])
            if mode == "each":
                results |= dict(zip((f"{k}_mean", f"{k}_mean_err", f"{k}_p"), test_constancy(p, errors, correlations, len(rows))))
            results |= {f"{k}_{mode}_x": p, f"{k}_{mode}_err": errors, f"{k}_{mode}_correlations": correlations, f"{k}_{mode}_chi2": chi2}
    np.savez(out + "_reference.npz", **results)


if __name__ == "__main__":
    main()
