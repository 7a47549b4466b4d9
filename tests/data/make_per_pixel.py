"""Makes a small network per pixel, in the format of binspec's, and a star drawn from it, with the answers of scipy.

usage: make_per_pixel.py      (writes per_pixel/*.npz beside this file; needs numpy and scipy)

A spectrum is f(λ) = w1 · σ(w0 x + b0) + b1, a sigmoid network of five hidden units for each of its pixels on three chips, as in
El-Badry et al. (2018). The star is that spectrum shifted by the relativistic factor, interpolated linearly in λ, with noise. The
answers are those of scipy's least_squares from three starts, which must agree.
"""
import pathlib
import numpy as np
from scipy.optimize import least_squares

C = 299792.458                                                   # km/s
HIDDEN, CHIPS = 5, [(15168.0, 260), (15870.0, 240), (16480.0, 220)]   # first wavelength in Å, pixels
STEP = 1.3815510556e-5                                           # ln λ
LOW = np.array([4200.0, 4.0, -0.8, -0.3, 0.0])
HIGH = np.array([7000.0, 5.0, 0.4, 0.5, 45.0])
TRUTH = np.array([12.3, 5230.0, 4.41, -0.22, 0.12, 14.0])        # velocity in km/s, then the labels
SCALE = np.array([1.0, 100.0, 0.1, 0.1, 0.1, 5.0])


def network(random, wavelength):
    """weights of lines whose depths depend on the labels; neighbouring pixels belong to the same lines"""
    pixels = len(wavelength)
    centres = np.sort(random.choice(pixels, 60, replace=False))
    depth, slope = random.uniform(0.05, 0.5, 60), random.normal(size=(60, 5))
    shape = np.exp(-0.5 * ((np.arange(pixels)[:, None] - centres) / 2.5) ** 2) * depth
    w0 = np.zeros((pixels, HIDDEN, 5))
    b0 = random.normal(0, 0.3, (pixels, HIDDEN))
    w1 = np.zeros((pixels, HIDDEN))
    for k in range(HIDDEN):
        strength = shape[:, k::HIDDEN]
        w1[:, k] = -strength.sum(1)
        w0[:, k] = 2.0 * (strength @ slope[k::HIDDEN]) / np.maximum(strength.sum(1), 1e-9)[:, None]
    return [array.astype(np.float32) for array in (w0, w1, b0, np.ones(pixels))]


def template(weights, labels):
    w0, w1, b0, b1 = [array.astype(np.float64) for array in weights]
    x = (labels - LOW) / (HIGH - LOW) - 0.5
    return (w1 / (1 + np.exp(-(w0 @ x + b0)))).sum(1) + b1


def shifted(wavelength, flux, velocity):
    """flux at the observed wavelengths; chips are interpolated each by itself, and NaN beyond their ends"""
    rest = wavelength * np.sqrt((1 - velocity / C) / (1 + velocity / C))
    out, first = np.full(len(flux), np.nan), 0
    for _, count in CHIPS:
        chip = slice(first, first + count)
        out[chip] = np.interp(rest[chip], wavelength[chip], flux[chip], left=np.nan, right=np.nan)
        first += count
    return out


def main():
    folder = pathlib.Path(__file__).parent / "per_pixel"
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(2018)
    wavelength = np.concatenate([first * np.exp(STEP * np.arange(count)) for first, count in CHIPS])
    weights = network(random, wavelength)
    model = lambda p: shifted(wavelength, template(weights, p[1:]), p[0])
    clean = model(TRUTH)
    ivar = np.full(len(clean), 200.0**2, np.float32)
    ivar[random.random(len(clean)) < 0.02] = 0
    ivar[~np.isfinite(clean)] = 0
    edges = np.concatenate([[0], np.cumsum([count for _, count in CHIPS])])
    for a, b in zip(edges[:-1], edges[1:]):                      # ±100 km/s must find a template at every pixel that counts
        ivar[a:a + 26], ivar[b - 26:b] = 0, 0
    noise = random.normal(size=len(clean)) / np.sqrt(np.maximum(ivar, 1.0))
    flux = np.where(ivar > 0, np.nan_to_num(clean) + noise, 1.0).astype(np.float32)
    use = ivar > 0
    residuals = lambda u: ((model(u * SCALE) - flux) * np.sqrt(ivar.astype(float)))[use]
    bounds = np.r_[-100, LOW] / SCALE, np.r_[100, HIGH] / SCALE
    starts = [[0, 5500, 4.5, -0.2, 0.1, 10], [20, 4700, 4.2, 0.2, 0.3, 30], [-10, 6000, 4.8, -0.6, -0.1, 3]]
    fits = [least_squares(residuals, np.array(start) / SCALE, bounds=bounds, xtol=1e-13, ftol=1e-13, gtol=1e-13) for start in starts]
    best = min(fits, key=lambda fit: fit.cost)
    errors = np.sqrt(np.diag(np.linalg.inv(best.jac.T @ best.jac)))
    for fit in fits:
        assert np.abs((fit.x - best.x) / errors).max() < 0.01, (fit.x, best.x, errors)
    w0, w1, b0, b1 = weights
    np.savez(folder / "network.npz", w_array_0=w0, w_array_1=w1, b_array_0=b0, b_array_1=b1.astype(np.float32), x_min=LOW, x_max=HIGH)
    np.savez(folder / "wavelength.npz", wavelength=wavelength)
    np.savez(folder / "star.npz", wavelength=wavelength, flux=flux[None], ivar=ivar[None])
    np.savez(folder / "answer.npz", parameters=best.x * SCALE, errors=errors * SCALE, chi2=[2 * best.cost], pixels=[float(use.sum())])
    print("parameters", best.x * SCALE, "errors", errors * SCALE, "chi2", 2 * best.cost, "of", use.sum(), "pixels")


if __name__ == "__main__":
    main()
