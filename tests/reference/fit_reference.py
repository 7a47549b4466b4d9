"""The whole fit of one spectrum in plain numpy, f64: the judge of minima.

Network, rotation, resampling by cubic B-splines, continuum by variable projection with a rank-revealing decomposition,
Levenberg-Marquardt with analytic derivatives. Needs numpy, scipy and safetensors. `make_masks.py` makes the values that
`tests/spectra/masks.rs` expects, `check_masks.py` judges what the program finds.
"""
import json, os
import numpy as np
from safetensors import safe_open
from scipy.ndimage import convolve1d
from scipy.stats import qmc

C = 299792.458                                             # km/s
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "data")
STEP = np.array([5.0, 10.0, 300.0, 0.5, 0.5, 0.25])        # scale of velocity, vsini, teff, logg, feh, alpha in the solver
ROTATION_GRID = (5.0, 30.0, 80.0, 200.0)                   # km/s, for the first guess


class Emulator:
    def __init__(self, path):
        f = safe_open(path, "np")
        meta = json.loads(f.metadata()["popfit"])
        n = sum(k.endswith(".weight") for k in f.keys())
        self.layers = [(f.get_tensor(f"layer.{i}.weight").astype(float), f.get_tensor(f"layer.{i}.bias").astype(float)) for i in range(n)]
        self.wavelength = f.get_tensor("wavelength")
        steps = np.diff(np.log(self.wavelength))
        self.origin, self.dlog = np.log(self.wavelength[0]), steps[0]
        breaks = np.flatnonzero(np.abs(steps / self.dlog - 1) > 0.1) + 1
        self.pieces = [slice(a, b) for a, b in zip(np.r_[0, breaks], np.r_[breaks, len(self.wavelength)])]
        labels = meta["labels"]
        self.mean, self.std = (np.array([l[k] for l in labels]) for k in ("mean", "std"))
        self.bounds = np.array([[l["min"], l["max"]] for l in labels]).T
        self.hull = [(f.get_tensor(f"hull.{k}"), axes) for k, axes in enumerate(meta["hull"])]

    def scaled(self, labels):
        x = np.array(labels, float)
        x[..., 0] = np.log10(x[..., 0])
        return (x - self.mean) / self.std

    def outside(self, z):
        """largest facet distance (> 0 is outside) and its normal, for each hull"""
        for facets, axes in self.hull:
            d = z[..., axes] @ facets[:, :-1].T + facets[:, -1]
            k = d.argmax(-1)
            yield axes, d.max(-1), facets[k, :-1]

    def template(self, labels):
        """flux (pixels,) and its derivatives by label (pixels, labels)"""
        h, scale = self.scaled(labels), 1 / self.std
        scale[0] /= labels[0] * np.log(10)
        dh = np.diag(scale)
        for w, b in self.layers[:-1]:
            z = w @ h + b
            s = 1 / (1 + np.exp(-z))
            h, dh = z * s, (s * (1 + z * (1 - s)))[:, None] * (w @ dh)
        w, b = self.layers[-1]
        flux = np.exp(np.clip(w @ h + b, -300, 300))
        return flux, flux[:, None] * (w @ dh)


def rotation_kernel(vsini, dlog, epsilon=0.6):
    """weights of the rotational profile (Gray; linear limb darkening) seen through linear interpolation, and their derivative by vsini.

    w_k is the second difference of R h(k/R), R = vsini/(c dlog) pixels, h'' = K, K the profile on (-1, 1).
    """
    r = vsini / C / dlog
    k = np.arange(-int(np.ceil(r)) - 2, int(np.ceil(r)) + 3)
    norm = np.pi * (1 - epsilon / 3)
    c1, c2 = 2 * (1 - epsilon) / norm, np.pi / 2 * epsilon / norm
    x = np.clip(k / r, -1, 1)
    root = np.sqrt(1 - x**2)
    h = c1 / 2 * (x * np.arcsin(x) + root - root**3 / 3) + c2 * (x**2 / 2 - x**4 / 12)
    slope = c1 / 2 * (x * root + np.arcsin(x)) + c2 * (x - x**3 / 3)
    h += slope * (k / r - x)                               # straight lines outside
    second = lambda f: f[2:] - 2 * f[1:-1] + f[:-2]
    return second(r * h), second(h - k / r * slope) / (C * dlog)


def broaden(rows, vsini, dlog):
    """rows (pixels, n) of one piece convolved with the rotation kernel, and the first column's derivative by vsini"""
    kernel, by_vsini = rotation_kernel(vsini, dlog)
    return convolve1d(rows, kernel, axis=0, mode="nearest"), convolve1d(rows[:, 0], by_vsini, mode="nearest")


def broaden_pieces(rows, vsini, emulator):
    """broaden, piece by piece: each goes on with its end values"""
    parts = [broaden(rows[piece], vsini, emulator.dlog) for piece in emulator.pieces]
    return np.concatenate([rows for rows, _ in parts]), np.concatenate([by_vsini for _, by_vsini in parts])


def resample(rows, emulator, wavelength, taps=12, rest=None):
    """cubic B-spline through the template's pixels, uniform in log wavelength; value and derivative by pixel index.

    Each piece of the template has its own spline. `rest` are the wavelengths that say which piece a pixel belongs to: those
    at rest, so that no velocity carries a pixel to another piece. Beyond its ends a piece goes on with its end values.

    The prefilter is a short FIR: the inverse of (1, 4, 1)/6 is sqrt(3) (sqrt(3)-2)^|k|. Four-point Lagrange interpolation is
    off by up to 2.7 in -2 ln L on these data, six-point by 1.0, this by 0.0005.
    """
    k = np.arange(-taps, taps + 1)
    rest = wavelength if rest is None else rest
    values, slopes = np.zeros((2, len(wavelength), rows.shape[1]))
    for piece in emulator.pieces:
        low, high = emulator.wavelength[piece][[0, -1]]
        own = (rest >= low * (1 - emulator.dlog / 2)) & (rest <= high * (1 + emulator.dlog / 2))
        continued = np.pad(rows[piece], ((taps + 2, taps + 2), (0, 0)), mode="edge")
        coefficient = convolve1d(continued, np.sqrt(3) * (np.sqrt(3) - 2) ** np.abs(k), axis=0, mode="nearest")
        q = taps + 2 + np.clip((np.log(wavelength[own]) - np.log(low)) / emulator.dlog, 0, len(rows[piece]) - 1)
        i = np.floor(q).astype(int)
        x = (q - i)[:, None]
        value = [(1 - x) ** 3 / 6, (3 * x**3 - 6 * x**2 + 4) / 6, (-3 * x**3 + 3 * x**2 + 3 * x + 1) / 6, x**3 / 6]
        slope = [-((1 - x) ** 2) / 2, (9 * x**2 - 12 * x) / 6, (-9 * x**2 + 6 * x + 3) / 6, x**2 / 2]
        values[own], slopes[own] = (sum(v * coefficient[i + a - 1] for a, v in enumerate(w)) for w in (value, slope))
    return values, slopes


def rbf_basis(wavelength, terms=10):
    """(terms, pixels), terms >= 4: 1, x, x^2 and terms - 3 Gaussians, x from -1 to 1 over the whole grid, masked pixels too"""
    x = (wavelength - wavelength[0]) / (wavelength[-1] - wavelength[0]) * 2 - 1
    n = terms - 3
    return np.array([x**0, x, x**2] + [np.exp(-0.5 * (x - c) ** 2 * n**2) for c in np.linspace(-1, 1, n)])


def chebyshev_basis(wavelength, terms=10):
    """(terms, pixels), terms >= 1: Chebyshev polynomials of x from -1 to 1 over the whole grid"""
    x = (wavelength - wavelength[0]) / (wavelength[-1] - wavelength[0]) * 2 - 1
    return np.polynomial.chebyshev.chebvander(x, terms - 1).T


SMALLEST_SINGULAR_VALUE = 1e-8


def determined_directions(basis, weight):
    """The continuum terms that one spectrum's weights determine.

    basis (terms, pixels), weight (pixels,) = sqrt(ivar) of the unmasked pixels. Columns of weight * basis are scaled to unit norm; right
    singular vectors whose singular value is below SMALLEST_SINGULAR_VALUE of the largest are dropped. The choice depends on basis and
    weights only, so that all starts of a spectrum share it. Returns orthonormal rows (rank, pixels) that span the rest, and the
    constant that turns ln det of their Gram matrix into that of the raw terms (exact at full rank; at lower rank, of the kept directions).
    """
    design = basis * weight
    norm = np.linalg.norm(design, axis=1)
    norm[norm < norm.max() * 1e-200] = np.inf           # no data reach this term
    u, s, _ = np.linalg.svd((design / norm[:, None]).T, full_matrices=False)
    kept = s > SMALLEST_SINGULAR_VALUE * s[0]
    constant = 2 * np.log(s[kept]).sum() + 2 * np.log(norm[np.isfinite(norm)]).sum()
    return u[:, kept].T, constant


def reached(emulator, wavelength, velocity, vsini=0.0):
    """the pixels that the template covers: their Doppler-shifted places plus and minus vsini lie inside one piece of it, a
    pixel from its ends, where the spline bends, and one more with rotation.

    Beyond the ends the spectrum is unknown. A template that is zero there has a cliff that only vsini = 0 removes.
    """
    beta = velocity / C
    rest, half = np.log(wavelength * np.sqrt((1 - beta) / (1 + beta))), vsini / C + emulator.dlog * (1 + (vsini > 0))
    ends = [np.log(emulator.wavelength[piece][[0, -1]]) for piece in emulator.pieces]
    return np.any([(rest - half >= low) & (rest + half <= high) & (np.log(wavelength) >= low) & (np.log(wavelength) <= high) for low, high in ends], axis=0)


class Problem:
    """one spectrum: unmasked pixels only; with `reach` = (velocity, vsini) only those that the template covers there"""

    def __init__(self, emulator, wavelength, flux, ivar, mask, rotation=False, velocity_range=1000.0, max_vsini=500.0, basis=rbf_basis, terms=10, reach=None):
        good = ~mask & (ivar > 0)
        if reach is not None:
            good &= reached(emulator, wavelength, *reach)
        self.emulator, self.npix, self.good = emulator, len(wavelength), good
        self.wavelength, self.flux, self.weight = wavelength[good], flux[good].astype(float), np.sqrt(ivar[good].astype(float))
        self.directions, self.log_det_constant = determined_directions(basis(wavelength, terms)[:, good], self.weight)
        self.rank = len(self.directions)                # dof = unmasked pixels - free parameters - rank
        self.rotation = rotation
        self.low = np.r_[-velocity_range, 0.1 if rotation else 0.0, emulator.bounds[0]]
        self.high = np.r_[velocity_range, max_vsini if rotation else 0.0, emulator.bounds[1]]

    def linearise(self, p):
        """chi2, normal matrix, gradient (descent), objective = -2 ln L; continuum eliminated by its Schur complement"""
        e = self.emulator
        rows = np.column_stack(e.template(p[2:]))
        by_vsini = np.zeros(len(rows))
        if self.rotation:
            rows, by_vsini = broaden_pieces(rows, p[1], e)
        beta = p[0] / C
        value, slope = resample(np.c_[rows, by_vsini], e, self.wavelength * np.sqrt((1 - beta) / (1 + beta)), rest=self.wavelength)
        design = self.directions * value[:, 0]          # (rank, pixels): continuum terms times the template, weighted
        data = self.flux * self.weight
        q, r = np.linalg.qr(design.T)
        fitted = q @ (q.T @ data)
        residual, continuum = data - fitted, fitted / value[:, 0]
        by_velocity = slope[:, 0] * (-1 / (C * e.dlog)) / (1 - beta**2)
        jac = np.c_[by_velocity, value[:, -1], value[:, 1:-1]] * continuum[:, None] * STEP
        cross = q.T @ jac
        normal = jac.T @ jac - cross.T @ cross
        gradient, chi2 = jac.T @ residual, residual @ residual
        z = e.scaled(p[2:])
        for axes, distance, normal_vector in e.outside(z):
            if distance > 0:                                # rvspecfit's penalty as a least-squares row
                c = np.sqrt(10 * self.npix)
                row = np.zeros(len(p))
                for axis, n in zip(axes, normal_vector):
                    dz = 1 / e.std[axis] / (p[2] * np.log(10) if axis == 0 else 1)
                    row[2 + axis] = -c * n * dz * STEP[2 + axis]
                normal, gradient, chi2 = normal + np.outer(row, row), gradient + row * c * distance, chi2 + (c * distance) ** 2
        log_det = 2 * np.log(np.abs(np.diag(r))).sum() + self.log_det_constant
        return chi2, normal, gradient, chi2 + log_det - 2 * np.log(self.weight).sum()


def levenberg_marquardt(problem, p, max_rounds=40):
    damping, count = 1e-3, 1
    chi2, normal, gradient, objective = problem.linearise(p)
    while count < max_rounds and damping < 1e8:
        free = (problem.high > problem.low) & ~(((p <= problem.low) & (gradient < 0)) | ((p >= problem.high) & (gradient > 0)))
        step = np.zeros(len(p))
        step[free] = np.linalg.solve(normal[np.ix_(free, free)] + damping * np.diag(np.diag(normal)[free]), gradient[free])
        trial = np.clip(p + step * STEP, problem.low, problem.high)
        step = (trial - p) / STEP
        predicted = 2 * gradient @ step - step @ normal @ step
        new = problem.linearise(trial)
        count += 1
        gain = (chi2 - new[0]) / max(predicted, 1e-30)
        if new[0] < chi2:
            drop = chi2 - new[0]
            p, (chi2, normal, gradient, objective) = trial, new
            damping *= max(1 / 3, 1 - (2 * gain - 1) ** 3)
            if drop < 1e-6 or (drop < 1e-4 and abs(gain - 1) < 0.5):
                break
        else:
            damping *= 4
    fitted = problem.high > problem.low
    errors = np.zeros(len(p))
    errors[fitted] = STEP[fitted] * np.sqrt(np.diag(np.linalg.inv(normal[np.ix_(fitted, fitted)])))
    return p, errors, objective, count


class Library:
    """first guess: 128 templates inside the hull, cross-correlated with the continuum-normalised spectrum on the template's grid"""

    def __init__(self, emulator, rotation=False, size=128, fft=8192, velocity_range=1000.0):
        self.emulator, self.fft = emulator, fft
        low, high = emulator.bounds
        labels = low + (high - low) * qmc.Sobol(len(low), seed=3).random(2 * size)
        inside = np.all([d <= 0 for _, d, _ in emulator.outside(emulator.scaled(labels))], axis=0)
        labels = labels[inside][:size]
        basis = rbf_basis(emulator.wavelength)
        flux = np.array([emulator.template(l)[0] for l in labels])
        speeds = ROTATION_GRID if rotation else (0.0,)
        self.parameters = np.array([np.r_[v, l] for v in speeds for l in labels])
        if rotation:
            flux = np.concatenate([convolve1d(flux, rotation_kernel(v, emulator.dlog)[0], axis=1, mode="nearest") for v in speeds])
        coefficients = np.linalg.lstsq(basis.T, flux.T, rcond=None)[0]
        lines = flux / (basis.T @ coefficients).T - 1
        self.f1, self.f2 = np.fft.rfft(lines, fft, axis=1), np.fft.rfft(lines**2, fft, axis=1)
        m = int(velocity_range / C / emulator.dlog)
        self.shifts = np.arange(-m, m + 1)

    def scores(self, wavelength, flux, ivar, mask):
        """chi2 (templates, shifts) of the lines against each template at each velocity, up to a constant"""
        weight = np.where(mask, 0, ivar).astype(float)
        basis, root = rbf_basis(wavelength), np.sqrt(weight)
        continuum = np.linalg.lstsq((basis * root).T, flux * root, rcond=None)[0] @ basis
        lines, weight = np.where(mask, 0, flux / continuum - 1), weight * continuum**2
        grid = self.emulator.origin + self.emulator.dlog * np.arange(len(self.emulator.wavelength))
        nearest = np.interp(grid, np.log(wavelength), np.arange(len(wavelength)))
        inside = (nearest > 0) & (nearest < len(wavelength) - 1)
        pick = np.round(nearest).astype(int)
        w = np.where(inside, weight[pick], 0)
        cross = np.fft.irfft(np.conj(self.f1) * np.fft.rfft(lines[pick] * w, self.fft), self.fft, axis=1)[:, self.shifts]
        power = np.fft.irfft(np.conj(self.f2) * np.fft.rfft(w, self.fft), self.fft, axis=1)[:, self.shifts]
        return power - 2 * cross

    def starts(self, wavelength, flux, ivar, mask, count):
        score, chosen = self.scores(wavelength, flux, ivar, mask), []
        for k in np.argsort(score.min(1)):
            v = C * (np.exp(self.shifts[score[k].argmin()] * self.emulator.dlog) - 1)
            z = self.emulator.scaled(self.parameters[k, 1:])
            if all(np.abs(z - self.emulator.scaled(c[2:])).max() > 0.6 or abs(v - c[0]) > 60 for c in chosen):
                chosen.append(np.r_[v, self.parameters[k]])
            if len(chosen) == count:
                break
        return chosen
