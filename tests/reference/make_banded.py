"""Spectra whose noise has a banded covariance, and their fits by generalised least squares in numpy, f64, with dense matrices.

    python make_banded.py OUT SEED

writes OUT.npz (spectra, with their covariance in scipy's lower banded form) and OUT_reference.npz (parameters, errors,
correlations, chi2 and objective of each fit). `tests/data/banded/stars.npz` is that of seed 63. The noise of each spectrum
is white noise seen through a banded matrix, as resampling makes it, so that its covariance is banded without truncation.
"""
import sys
from pathlib import Path

import numpy as np
from scipy.linalg import solve_triangular

sys.path.insert(0, str(Path(__file__).resolve().parent))
from fit_reference import C, STEP, Emulator, Problem, rbf_basis, resample

LABELS = 4
#: number of diagonals below the main one, for each spectrum
BANDS = (2, 3, 5, 4, 2, 0, 5, 3)
#: spectra with pixels masked in the middle, whose noise is marginalised over
MASKED = (1, 6)
DATA = Path(__file__).resolve().parents[2] / "data"


def dense(bands):
    """The symmetric matrix of its lower bands (diagonals, pixels): bands[d, j] = matrix[j + d, j]."""
    pixels = bands.shape[1]
    matrix = np.zeros((pixels, pixels))
    for d, values in enumerate(bands):
        for j in range(pixels - d):
            matrix[j + d, j] = matrix[j, j + d] = values[j]
    return matrix


class CorrelatedProblem(Problem):
    """one spectrum with a dense covariance; rows and columns of masked pixels are left out of it"""

    def __init__(self, emulator, wavelength, flux, covariance, mask):
        super().__init__(emulator, wavelength, flux, 1 / np.diag(covariance), mask)
        self.factor = np.linalg.cholesky(covariance[np.ix_(self.good, self.good)])
        self.functions = self.directions / self.weight
        self.log_det_noise = 2 * np.log(np.diag(self.factor)).sum()

    def whiten(self, columns):
        return solve_triangular(self.factor, columns, lower=True)

    def linearise(self, p):
        e = self.emulator
        rows = np.column_stack(e.template(p[2:]))
        beta = p[0] / C
        value, slope = resample(rows, e, self.wavelength * np.sqrt((1 - beta) / (1 + beta)), rest=self.wavelength)
        q, r = np.linalg.qr(self.whiten((self.functions * value[:, 0]).T))
        data = self.whiten(self.flux)
        coefficients = np.linalg.solve(r, q.T @ data)
        residual, continuum = data - q @ (q.T @ data), coefficients @ self.functions
        by_velocity = slope[:, 0] * (-1 / (C * e.dlog)) / (1 - beta**2)
        jac = self.whiten(np.c_[by_velocity, 0 * by_velocity, value[:, 1:]] * continuum[:, None] * STEP)
        cross = q.T @ jac
        normal, gradient, chi2 = jac.T @ jac - cross.T @ cross, jac.T @ residual, residual @ residual
        z = e.scaled(p[2:])
        assert all(distance <= 0 for _, distance, _ in e.outside(z)), "a fit that leaves the hull: take another seed"
        log_det = 2 * np.log(np.abs(np.diag(r))).sum() + self.log_det_constant
        return chi2, normal, gradient, chi2 + log_det + self.log_det_noise


def fit(problem, p):
    """Gauss-Newton steps from near the minimum: parameters, errors, correlations, chi2 and objective"""
    free = np.r_[0, 2 : 2 + LABELS]
    for _ in range(50):
        chi2, normal, gradient, objective = problem.linearise(p)
        step = np.linalg.solve(normal[np.ix_(free, free)], gradient[free])
        share = 1.0
        while True:
            trial = p.copy()
            trial[free] += share * step * STEP[free]
            trial = np.clip(trial, problem.low, problem.high)
            if share < 1e-4 or problem.linearise(trial)[0] <= chi2:
                break
            share /= 2
        p = trial
        if gradient[free] @ step < 1e-12:
            break
    chi2, normal, gradient, objective = problem.linearise(p)
    assert (p[free] > problem.low[free]).all() and (p[free] < problem.high[free]).all(), "a fit at a bound: take another seed"
    covariance = np.linalg.inv(normal[np.ix_(free, free)])
    scale = np.sqrt(np.diag(covariance))
    return p[free], STEP[free] * scale, covariance / np.outer(scale, scale), chi2, objective


def draw_labels(rng, emulator):
    low, high = emulator.bounds
    while True:
        labels = low + (high - low) * rng.uniform(0.25, 0.75, LABELS)
        if all(distance <= -0.05 for _, distance, _ in emulator.outside(emulator.scaled(labels))):
            return labels


def draw_noise(rng, sigma, band):
    """Noise of these standard errors, a tenth of whose variance is white, and its covariance (diagonals, pixels)."""
    pixels = len(sigma)
    weights = rng.uniform(0.2, 1, (pixels, band + 1))
    weights *= np.sqrt(0.9 / (weights**2).sum(1))[:, None]
    mixing = np.zeros((pixels, pixels + band))
    for j in range(pixels):
        mixing[j, j : j + band + 1] = weights[j]
    mixing *= sigma[:, None]
    covariance = mixing @ mixing.T + np.diag(0.1 * sigma**2)
    bands = np.zeros((max(BANDS) + 1, pixels))
    for d in range(band + 1):
        bands[d, : pixels - d] = np.diag(covariance, -d)
    white = np.sqrt(0.1) * sigma * rng.normal(size=pixels)
    return mixing @ rng.normal(size=pixels + band) + white, bands


def main():
    out, seed = sys.argv[1], int(sys.argv[2])
    rng = np.random.default_rng(seed)
    emulator = Emulator(str(DATA / "emulator.safetensors"))
    wavelength = np.arange(4300.0, 5200.0, 1.25)
    flux, covariance, mask, starts = [], [], [], []
    for k, band in enumerate(BANDS):
        labels, velocity = draw_labels(rng, emulator), rng.uniform(-200, 200)
        beta = velocity / C
        shifted = wavelength * np.sqrt((1 - beta) / (1 + beta))
        model = resample(emulator.template(labels)[0][:, None], emulator, shifted)[0][:, 0]
        x = np.linspace(-1, 1, len(wavelength))
        model *= np.exp(rng.normal(0, 0.4) * x + rng.normal(0, 0.2) * x**2)
        model *= 10 ** rng.uniform(0, 3) / np.median(model)
        sigma = np.sqrt(np.abs(model) * np.median(model)) / rng.uniform(40, 80)
        noise, bands = draw_noise(rng, sigma, band)
        bad = np.zeros(len(wavelength), bool)
        observed = model + noise
        if k in MASKED:
            bad = rng.random(len(wavelength)) < 0.03
            bad[300:320] = True
            observed[bad] *= 3
        flux.append(observed)
        covariance.append(bands)
        mask.append(bad)
        starts.append(np.r_[velocity, 0, labels])
    np.savez_compressed(
        out + ".npz",
        wavelength=wavelength,
        flux=np.array(flux, np.float32),
        covariance=np.array(covariance, np.float32),
        mask=np.array(mask),
    )
    stored = np.load(out + ".npz")
    fits = []
    for k, start in enumerate(starts):
        matrix = dense(stored["covariance"][k].astype(float))
        fits.append(fit(CorrelatedProblem(emulator, wavelength, stored["flux"][k], matrix, stored["mask"][k]), start))
        print(k, BANDS[k], fits[-1][0], fits[-1][3], (fits[-1][0] - np.delete(start, 1)) / fits[-1][1])
    names = ("x", "err", "correlations", "chi2", "objective")
    np.savez(
        out + "_reference.npz",
        **{name: np.array([one[k] for one in fits]) for k, name in enumerate(names)},
        bands=BANDS,
        seed=seed,
    )


if __name__ == "__main__":
    main()
