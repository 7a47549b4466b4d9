//! The Faddeeva function w(z) = e^(−z²) erfc(−iz) and its first two derivatives, for formulas, in f64 and f32, without
//! branches or library calls. Twin of `shaders/shared/faddeeva.wgsl`.
//!
//! For y ≥ 0, with the nodes t_k = (k + δ) h and δ = ½ or 0, w is the sum of the trapezoidal rule and of the residue of
//! the pole that the rule passes (Al Azah & Chandler-Wilde 2021, SIAM J. Numer. Anal. 59, 2346):
//!
//! w(x + iy) ≈ (2ihz/π) Σ e^(−t_k²) / (z² − t_k²) + 2 e^(−z²) / (1 ± e^(−2πiz/h)),
//!
//! with + for δ = ½ and − for δ = 0, where the first term of the sum is halved. The residue is added for y < π/h. Of
//! the two rules we take the one whose nodes are further from x, at least by h/4. With h = √(π/n) and n terms its error
//! is of the order e^(−πn). In f64 the real and the imaginary part have a relative error below 10⁻¹⁴ each, even Re w =
//! e^(−x²) at y = 0. In f32 it is below 10⁻⁶ for the real part, 3 · 10⁻⁶ for the imaginary part, and 3 · 10⁻⁵ for |w′|.
//! In the lower half-plane, where both parts have zeros, these are shares of |e^(−z²)|.

mod precision;

use pulp::{Simd, WithSimd};

use super::Real;
use precision::FaddeevaPrecision;

/// Complex number.
#[derive(Clone, Copy, Debug)]
struct Complex<R> {
    re: R,
    im: R,
}

/// Real or imaginary part of w, w′ or w″.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FaddeevaPart {
    /// Order of the derivative, at most 2.
    pub order: u8,
    pub is_imaginary: bool,
}

/// Re w.
pub const RE: FaddeevaPart = FaddeevaPart {
    order: 0,
    is_imaginary: false,
};
/// Im w.
pub const IM: FaddeevaPart = FaddeevaPart {
    order: 0,
    is_imaginary: true,
};
/// Re w′.
pub const SLOPE_RE: FaddeevaPart = FaddeevaPart {
    order: 1,
    is_imaginary: false,
};
/// Im w′.
pub const SLOPE_IM: FaddeevaPart = FaddeevaPart {
    order: 1,
    is_imaginary: true,
};
/// Re w″.
pub const CURVATURE_RE: FaddeevaPart = FaddeevaPart {
    order: 2,
    is_imaginary: false,
};

impl FaddeevaPart {
    /// Computes the part at x + iy.
    pub fn value<R: FaddeevaPrecision>(self, x: R, y: R) -> R {
        let mut value = [R::NAN];
        self.fill(&[x], &[y], &mut value);
        value[0]
    }

    /// Fills `out` with the part at each x + iy, by vector code.
    pub fn fill<R: FaddeevaPrecision>(self, x: &[R], y: &[R], out: &mut [R]) {
        pulp::Arch::new().dispatch(FaddeevaRow {
            part: self,
            x,
            y,
            out,
        });
    }
}

/// Rows of arguments x and y and of the values to be filled in.
struct FaddeevaRow<'a, R> {
    part: FaddeevaPart,
    x: &'a [R],
    y: &'a [R],
    out: &'a mut [R],
}

impl<R: FaddeevaPrecision> FaddeevaRow<'_, R> {
    /// Fills the row with w, w′ or w″. Without `LOWER` no argument may be in the lower half-plane.
    #[inline(always)]
    fn fill_order<const ORDER: u8, const LOWER: bool>(self) {
        let is_imaginary = self.part.is_imaginary;
        for (out, (x, y)) in self.out.iter_mut().zip(self.x.iter().zip(self.y)) {
            let value = faddeeva::<R, ORDER, LOWER>(*x, *y);
            *out = if is_imaginary { value.im } else { value.re };
        }
    }
}

impl<R: FaddeevaPrecision> WithSimd for FaddeevaRow<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match (self.part.order, self.y.iter().any(|y| *y < R::ZERO)) {
            (0, false) => self.fill_order::<0, false>(),
            (0, true) => self.fill_order::<0, true>(),
            (1, false) => self.fill_order::<1, false>(),
            (1, true) => self.fill_order::<1, true>(),
            (_, false) => self.fill_order::<2, false>(),
            (_, true) => self.fill_order::<2, true>(),
        }
    }
}

/// Returns w, w′ or w″ at z = x + iy; with `LOWER` also in the lower half-plane, by w(z) = 2 e^(−z²) − w(−z).
#[inline(always)]
fn faddeeva<R: FaddeevaPrecision, const ORDER: u8, const LOWER: bool>(x: R, y: R) -> Complex<R> {
    let quadrant = evaluate_in_quadrant::<R, ORDER>(absolute_value(x), absolute_value(y));
    // 1. Reflect the value of the first quadrant to the upper half-plane.
    let is_left = x < R::ZERO;
    let is_odd = ORDER == 1;
    let upper = Complex {
        re: if is_left && is_odd {
            -quadrant.re
        } else {
            quadrant.re
        },
        im: if is_left && !is_odd {
            -quadrant.im
        } else {
            quadrant.im
        },
    };
    if !LOWER {
        return upper;
    }
    // 2. Reflect it to the lower half-plane, by the derivatives of 2 e^(−z²).
    let z = Complex { re: x, im: y };
    let bell = exp_of_minus_square(x, y);
    let two = R::of(2.0);
    let residue = match ORDER {
        0 => Complex {
            re: two * bell.re,
            im: two * bell.im,
        },
        1 => multiply(
            Complex {
                re: R::of(-4.0) * x,
                im: R::of(-4.0) * y,
            },
            bell,
        ),
        _ => {
            let square = multiply(z, z);
            let factor = Complex {
                re: R::of(8.0) * square.re - R::of(4.0),
                im: R::of(8.0) * square.im,
            };
            multiply(factor, bell)
        }
    };
    let is_lower = y < R::ZERO;
    Complex {
        re: if is_lower {
            residue.re - upper.re
        } else {
            upper.re
        },
        im: if is_lower {
            residue.im + upper.im
        } else {
            upper.im
        },
    }
}

/// Returns |x|, and NaN for NaN.
#[inline(always)]
fn absolute_value<R: Real>(x: R) -> R {
    if x < R::ZERO { -x } else { x }
}

/// Returns the smaller of x and a maximum, and NaN for NaN.
#[inline(always)]
fn limit<R: Real>(x: R, maximum: f64) -> R {
    if x > R::of(maximum) {
        R::of(maximum)
    } else {
        x
    }
}

/// Returns e^(−z²). It is 0 where its absolute value underflows, and real on both axes, even if the other factor is
/// NaN.
#[inline(always)]
fn exp_of_minus_square<R: FaddeevaPrecision>(x: R, y: R) -> Complex<R> {
    let angle = R::of(2.0) * x * y;
    let modulus = ((y - x) * (y + x)).exp();
    let (sine, cosine) = angle.sin_cos();
    let is_real = angle == R::ZERO;
    Complex {
        re: if modulus == R::ZERO {
            modulus
        } else {
            modulus * cosine
        },
        im: if modulus == R::ZERO || is_real {
            R::ZERO
        } else {
            -modulus * sine
        },
    }
}

/// Returns e^(−x²) for x ≥ 0, whose relative error does not grow with x.
#[inline(always)]
fn exp_of_minus_real_square<R: FaddeevaPrecision>(x: R) -> R {
    let leading = x.leading_digits();
    (-(leading * leading)).exp() * (-((x - leading) * (x + leading))).exp()
}

/// Returns w(x + iy) for x and y from 0 to `MAX_ARGUMENT`, by the rule of the module.
#[inline(always)]
fn evaluate_by_trapezoidal_rule<R: FaddeevaPrecision>(x: R, y: R) -> Complex<R> {
    // 1. Far from 0, w is proportional to 1/z. We evaluate it at a nearer point, where squares do not overflow.
    let relative_size = (if x > y { x } else { y }) * R::of(1.0 / R::FAR_ARGUMENT);
    let scale = if relative_size > R::ONE {
        relative_size
    } else {
        R::ONE
    };
    let x = x / scale;
    let y = y / scale;
    // 2. Choose the rule: x is k h/2 plus an offset. For even k the nodes are the odd multiples of h/2, else the even
    //    ones.
    let x_near = limit(x, R::MAX_GAUSS_ARGUMENT);
    let k = (x_near * R::of(2.0 / R::NODE_DISTANCE) + R::of(0.5)).round_down();
    let offset =
        (x_near - k * R::of(R::HALF_NODE_DISTANCE[0])) - k * R::of(R::HALF_NODE_DISTANCE[1]);
    let half_k = k * R::of(0.5);
    let is_even = half_k.round_down() == half_k;
    let choose =
        |midpoint: f64, trapezoidal: f64| R::of(if is_even { midpoint } else { trapezoidal });
    // 3. Sum real and imaginary part, divided by y and x. The factors of |z² − t²|² do not cancel.
    let square = x * x + y * y;
    let y_square = y * y;
    let mut node = choose(0.5 * R::NODE_DISTANCE, 0.0);
    let mut real = R::ZERO;
    let mut imaginary = R::ZERO;
    for &[midpoint, trapezoidal] in R::NODE_WEIGHTS {
        let difference = x - node;
        let sum = x + node;
        let node_square = node * node;
        let denominator = (difference * difference + y_square) * (sum * sum + y_square);
        let term = choose(midpoint, trapezoidal) / denominator;
        real += (square + node_square) * term;
        imaginary += (square - node_square) * term;
        node += R::of(R::NODE_DISTANCE);
    }
    // 4. Add the residue 2 e^(−z²) E / (E ± e^(−2πix/h)), in which E is e^(−2πy/h). Its exponents do not overflow.
    let angular_step = 2.0 * std::f64::consts::PI / R::NODE_DISTANCE;
    let has_residue = y < R::of(0.5 * angular_step);
    let y_near = limit(y, 0.5 * angular_step);
    let decay = (-(R::of(angular_step) * y_near)).exp();
    let angle = R::of(angular_step) * offset;
    let phase = R::of(2.0) * x_near * y_near;
    let (sine, cosine) = angle.sin_cos();
    let denominator = decay * decay + R::of(2.0) * decay * cosine + R::ONE;
    let height = R::of(2.0)
        * (y_near * (y_near - R::of(angular_step))).exp()
        * exp_of_minus_real_square(x_near)
        / denominator;
    let height = if has_residue { height } else { R::ZERO };
    let (phase_sine, phase_cosine) = phase.sin_cos();
    let decay_plus_cosine = decay + cosine;
    Complex {
        re: (y * real + height * (phase_cosine * decay_plus_cosine + phase_sine * sine)) / scale,
        im: (x * imaginary + height * (phase_cosine * sine - phase_sine * decay_plus_cosine))
            / scale,
    }
}

/// Returns w, w′ = −2z w + 2i/√π or w″ = −2w − 2z w′ at z = x + iy for x, y ≥ 0. Far from 0, where the terms of the
/// derivatives cancel, they are their asymptotic series (Abramowitz & Stegun 1964, 7.1.23).
#[inline(always)]
fn evaluate_in_quadrant<R: FaddeevaPrecision, const ORDER: u8>(x: R, y: R) -> Complex<R> {
    let z = Complex {
        re: limit(x, R::MAX_ARGUMENT),
        im: limit(y, R::MAX_ARGUMENT),
    };
    let w = evaluate_by_trapezoidal_rule(z.re, z.im);
    if ORDER == 0 {
        return w;
    }
    // 1. Near 0, compute the derivatives by their definitions.
    let two = R::of(2.0);
    let two_over_sqrt_pi = R::of(std::f64::consts::FRAC_2_SQRT_PI);
    let z_w = multiply(z, w);
    let slope = Complex {
        re: -(two * z_w.re),
        im: two_over_sqrt_pi - two * z_w.im,
    };
    let z_slope = multiply(z, slope);
    let curvature = Complex {
        re: -(two * (w.re + z_slope.re)),
        im: -(two * (w.im + z_slope.im)),
    };
    let by_definition = if ORDER == 1 { slope } else { curvature };
    // 2. Far from 0, sum the series
    //    w′ = −i/(√π z²) Σ (2k + 1)!! / (2z²)^k, w″ = 2i/(√π z³) Σ (k + 1) (2k + 1)!! / (2z²)^k.
    let square = z.re * z.re + z.im * z.im;
    let inverse = Complex {
        re: z.re / square,
        im: -(z.im / square),
    };
    let inverse_square = multiply(inverse, inverse);
    let half_inverse_square = Complex {
        re: R::of(0.5) * inverse_square.re,
        im: R::of(0.5) * inverse_square.im,
    };
    let coefficients = match ORDER {
        1 => [
            2_027_025.0,
            135_135.0,
            10_395.0,
            945.0,
            105.0,
            15.0,
            3.0,
            1.0,
        ],
        _ => [
            16_216_200.0,
            945_945.0,
            62_370.0,
            4_725.0,
            420.0,
            45.0,
            6.0,
            1.0,
        ],
    };
    let mut sum = Complex {
        re: R::ZERO,
        im: R::ZERO,
    };
    for coefficient in coefficients {
        sum = multiply(sum, half_inverse_square);
        sum.re += R::of(coefficient);
    }
    let (series, height) = match ORDER {
        1 => (
            multiply(sum, inverse_square),
            R::of(-0.5) * two_over_sqrt_pi,
        ),
        _ => (
            multiply(sum, multiply(inverse_square, inverse)),
            two_over_sqrt_pi,
        ),
    };
    // 3. Choose by |z|².
    let is_near = square < R::of(R::MIN_ASYMPTOTIC_SQUARE);
    Complex {
        re: if is_near {
            by_definition.re
        } else {
            -(height * series.im)
        },
        im: if is_near {
            by_definition.im
        } else {
            height * series.re
        },
    }
}

/// Returns the product of two complex numbers.
#[inline(always)]
fn multiply<R: Real>(a: Complex<R>, b: Complex<R>) -> Complex<R> {
    Complex {
        re: a.re * b.re - a.im * b.im,
        im: a.re * b.im + a.im * b.re,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn w<R: FaddeevaPrecision>(x: R, y: R) -> Complex<R> {
        Complex {
            re: RE.value(x, y),
            im: IM.value(x, y),
        }
    }

    fn slope_of<R: FaddeevaPrecision>(x: R, y: R) -> Complex<R> {
        Complex {
            re: SLOPE_RE.value(x, y),
            im: SLOPE_IM.value(x, y),
        }
    }

    fn curvature_of<R: FaddeevaPrecision>(x: R, y: R) -> Complex<R> {
        let imaginary = FaddeevaPart {
            is_imaginary: true,
            ..CURVATURE_RE
        };
        Complex {
            re: CURVATURE_RE.value(x, y),
            im: imaginary.value(x, y),
        }
    }

    fn to_f64(z: Complex<f32>) -> Complex<f64> {
        Complex {
            re: f64::from(z.re),
            im: f64::from(z.im),
        }
    }

    /// Values from mpmath 1.3: the columns x, y, Re w, Im w, Re w′, Im w′.
    const MPMATH_VALUES: &str = include_str!("../../../tests/data/faddeeva.csv");

    /// Returns |a − b| / |b|; |a| if b is 0.
    fn relative_error(a: f64, b: f64) -> f64 {
        (a - b).abs() / if b == 0.0 { 1.0 } else { b.abs() }
    }

    /// Returns |a − b| / |b|.
    fn complex_error(a: Complex<f64>, b: Complex<f64>) -> f64 {
        (a.re - b.re).hypot(a.im - b.im) / b.re.hypot(b.im)
    }

    /// Each part of w is accurate by itself where w has no zeros. These are below the real axis.
    #[test]
    fn function_and_slope_agree_with_mpmath() {
        for line in MPMATH_VALUES.lines() {
            let values: Vec<f64> = line
                .split(',')
                .map(|value| value.parse().expect("a number"))
                .collect();
            let [x, y, re, im, slope_re, slope_im] = values[..] else {
                panic!("six columns: {line}")
            };
            let computed = w(x, y);
            let error = relative_error(computed.re, re).max(relative_error(computed.im, im));
            let limit = if y < 0.0 { 1e-13 } else { 1e-14 };
            assert!(error < limit, "w({x} + {y}i) = {computed:?}: {error:e}");
            let slope = slope_of(x, y);
            let exact = Complex {
                re: slope_re,
                im: slope_im,
            };
            let error = complex_error(slope, exact);
            assert!(error < 6e-13, "w'({x} + {y}i) = {slope:?}: {error:e}");
        }
    }

    #[test]
    fn infinities_and_nan_pass_through() {
        assert!(w(f64::INFINITY, 1.0).im < 1e-299 && w(f32::INFINITY, f32::INFINITY).re < 1e-29);
        assert!(slope_of(f64::INFINITY, 1.0).re == 0.0 && slope_of(1.0, f32::INFINITY).im == 0.0);
        for (x, y) in [(f64::NAN, 1.0), (1.0, f64::NAN), (f64::NAN, f64::INFINITY)] {
            let value = w(x, y);
            let slope = slope_of(x, y);
            let single = w(x as f32, y as f32);
            let single_slope = slope_of(x as f32, y as f32);
            assert!(
                [value.re, value.im, slope.re, slope.im]
                    .into_iter()
                    .all(f64::is_nan),
                "{value:?} {slope:?}"
            );
            assert!(
                [single.re, single.im, single_slope.re, single_slope.im]
                    .into_iter()
                    .all(f32::is_nan)
            );
        }
    }

    /// Covers the upper half-plane from 10⁻⁹ to 10⁹.
    #[test]
    fn f32_agrees_with_f64() {
        let axis: Vec<f32> = (0..700)
            .map(|k| 0.02 * k as f32)
            .chain((0..180).map(|k| 10f32.powf(-9.0 + 0.1 * k as f32)))
            .collect();
        let mut worst = [0f64; 5];
        for &x in &axis {
            for &y in &axis {
                let exact = w(f64::from(x), f64::from(y));
                let computed = to_f64(w(x, y));
                let slope = to_f64(slope_of(x, y));
                let exact_slope = slope_of(f64::from(x), f64::from(y));
                let curvature = to_f64(curvature_of(x, y));
                let exact_curvature = curvature_of(f64::from(x), f64::from(y));
                // Numbers below 10⁻³⁵ have fewer digits in f32.
                let part_error =
                    |a: f64, b: f64| if b > 1e-35 { relative_error(a, b) } else { 0.0 };
                let errors = [
                    complex_error(computed, exact),
                    part_error(computed.re, exact.re),
                    part_error(computed.im, exact.im),
                    complex_error(slope, exact_slope),
                    complex_error(curvature, exact_curvature),
                ];
                worst = std::array::from_fn(|k| worst[k].max(errors[k]));
            }
        }
        println!("largest relative errors in f32: {worst:?}");
        assert!(
            worst[0] < 1e-6 && worst[1] < 1e-6 && worst[2] < 4e-6,
            "{worst:?}"
        );
        assert!(worst[3] < 3e-5 && worst[4] < 1e-3, "{worst:?}");
    }

    /// In the lower half-plane, where w has zeros, errors are relative to |e^(−z²)|.
    #[test]
    fn f32_agrees_with_f64_below_the_real_axis() {
        for j in -80..80 {
            for k in 1..60 {
                let x = 0.05 * j as f32;
                let y = -0.05 * k as f32;
                let exact = w(f64::from(x), f64::from(y));
                let computed = to_f64(w(x, y));
                let scale = exact.re.hypot(exact.im) + f64::from((y - x) * (y + x)).exp();
                let error = (computed.re - exact.re).hypot(computed.im - exact.im) / scale;
                assert!(error < 1e-5, "w({x} + {y}i) = {computed:?}: {error:e}");
            }
        }
        assert!(
            w(0.0f32, -20.0).im == 0.0
                && w(1e30f32, -1e-3).im < 1e-29
                && w(1e40f64, -1e-3).im < 1e-39
        );
    }

    #[test]
    fn second_derivative_agrees_with_differences_of_the_first() {
        for line in MPMATH_VALUES.lines() {
            let values: Vec<f64> = line
                .split(',')
                .map(|value| value.parse().expect("a number"))
                .collect();
            let [x, y, ..] = values[..] else {
                panic!("six columns: {line}")
            };
            let step = 1e-4 * x.hypot(y).max(1.0);
            let low = slope_of(x - step, y);
            let high = slope_of(x + step, y);
            let [re, im] = [high.re - low.re, high.im - low.im].map(|change| change / (2.0 * step));
            let error = complex_error(curvature_of(x, y), Complex { re, im });
            assert!(error < 1e-5 || x > 1e100, "w''({x} + {y}i): {error:e}");
        }
    }
}
