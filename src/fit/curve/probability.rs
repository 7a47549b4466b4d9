//! Tail probabilities of χ² with one degree of freedom and of F(1, ν), and where they reach a value.

/// Relative accuracy of what is found by bisection, and of the continued fraction.
const ACCURACY: f64 = 1e-15;

/// What a `sigma` of lmfit's means: its tail probability. Below 1 it is a probability itself.
pub(super) fn tail_of(sigma: f64) -> f64 {
    if sigma < 1.0 { 1.0 - sigma } else { libm::erfc(sigma / std::f64::consts::SQRT_2) }
}

/// Where χ² with one degree of freedom, or with `dof` F(1, dof), has the tail probability `tail`.
pub(super) fn threshold(tail: f64, dof: Option<f64>) -> f64 {
    let above = |x: f64| match dof {
        None => libm::erfc((0.5 * x).sqrt()),
        // the tail of F(1, ν) is I at ν / (ν + x)
        Some(dof) => incomplete_beta(dof / (dof + x), 0.5 * dof, 0.5),
    };
    let (mut low, mut high) = (-700.0, 700.0_f64);
    while high - low > ACCURACY * high.abs().max(low.abs()) {
        let middle = 0.5 * (low + high);
        if middle == low || middle == high {
            break;
        }
        if above(middle.exp()) > tail { low = middle } else { high = middle }
    }
    (0.5 * (low + high)).exp()
}

/// The regularised incomplete beta function I_x(a, b), by its continued fraction (Numerical Recipes §6.4, modified Lentz).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    let front = libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b) + a * x.ln() + b * (-x).ln_1p();
    if x < (a + 1.0) / (a + b + 2.0) {
        front.exp() * fraction(x, a, b) / a
    } else {
        1.0 - front.exp() * fraction(1.0 - x, b, a) / b
    }
}

fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut result = d;
    for m in 1..10_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            (d, c) = (1.0 / away(1.0 + term * d), away(1.0 + term / c));
            change = c * d;
            result *= change;
        }
        if (change - 1.0).abs() < ACCURACY {
            break;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// scipy.stats.f.isf(tail, 1, dof), tail = erfc(sigma / √2); tests/python/make_estimators.py.
    #[test]
    fn thresholds_are_scipys() {
        assert!((threshold(tail_of(2.0), None) / 4.0 - 1.0).abs() < 1e-13);
        assert!((threshold(tail_of(0.5), None) / 0.454_936_423_119_572_4 - 1.0).abs() < 1e-13);
        for (sigma, dof, exact) in THRESHOLDS {
            let found = threshold(tail_of(sigma), Some(dof));
            assert!((found / exact - 1.0).abs() < 1e-11, "{sigma} {dof}: {found} {exact}");
        }
    }

    const THRESHOLDS: [(f64, f64, f64); 4] = [
        (1.0, 3.0, 1.432_524_976_517_931_8),
        (2.0, 17.0, 4.658_088_096_261_328),
        (3.0, 50.0, 9.967_582_179_501_457),
        (5.0, 1000.0, 25.327_913_505_078_193),
    ];
}
