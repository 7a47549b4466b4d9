//! The Faddeeva function w(z) = e^(−z²) erfc(−iz) and its first two derivatives, for formulas, in f64 and f32, without
//! branches or library calls. Twin of `shaders/shared/faddeeva.wgsl`.
//!
//! For y ≥ 0, with the nodes t_k = (k + δ) h and δ = ½ or 0, w is the sum of the trapezoidal rule and of the residue of
//! the pole that the rule passes (Al Azah & Chandler-Wilde 2021, SIAM J. Numer. Anal. 59, 2346):
//!
//! w(x + iy) ≈ (2ihz/π) Σ e^(−t_k²) / (z² − t_k²) + 2 e^(−z²) / (1 ± e^(−2πiz/h)),
//!
//! with + for δ = ½ and − for δ = 0, where the first term of the sum is halved. The residue counts for y < π/h. The
//! rule is the one whose nodes are further from x, at least by h/4. With h = √(π/n) and n terms its error is of the
//! order e^(−πn). In f64 the real and the imaginary part have a relative error below 10⁻¹⁴ each, even Re w = e^(−x²) at
//! y = 0. In f32 it is below 10⁻⁶, but for the imaginary part 3 · 10⁻⁶, and 3 · 10⁻⁵ of |w′|. In the lower half-plane,
//! where both parts have zeros, these are shares of |e^(−z²)|.

mod precision;

use pulp::{Simd, WithSimd};

use super::Real;
use precision::Precision;

/// A complex number.
#[derive(Clone, Copy, Debug)]
struct Complex<R> {
    re: R,
    im: R,
}

/// A part of w, w′ or w″.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// Order of the derivative, at most 2.
    pub order: u8,
    pub is_imaginary: bool,
}

/// Re w.
pub const RE: Part = Part {
    order: 0,
    is_imaginary: false,
};
/// Im w.
pub const IM: Part = Part {
    order: 0,
    is_imaginary: true,
};
/// Re w′.
pub const SLOPE_RE: Part = Part {
    order: 1,
    is_imaginary: false,
};
/// Im w′.
pub const SLOPE_IM: Part = Part {
    order: 1,
    is_imaginary: true,
};
/// Re w″.
pub const CURVATURE_RE: Part = Part {
    order: 2,
    is_imaginary: false,
};

impl Part {
    /// Computes the part at x + iy.
    pub fn value<R: Precision>(self, x: R, y: R) -> R {
        let mut value = [R::NAN];
        self.fill(&[x], &[y], &mut value);
        value[0]
    }

    /// Fills `out` with the part at each x + iy, by vector code.
    pub fn fill<R: Precision>(self, x: &[R], y: &[R], out: &mut [R]) {
        pulp::Arch::new().dispatch(Row {
            part: self,
            x,
            y,
            out,
        });
    }
}

/// A row of places and of values to be filled in.
struct Row<'a, R> {
    part: Part,
    x: &'a [R],
    y: &'a [R],
    out: &'a mut [R],
}

impl<R: Precision> Row<'_, R> {
    /// Fills the row with w, w′ or w″. Without `LOWER` no place may be in the lower half-plane.
    #[inline(always)]
    fn fill<const ORDER: u8, const LOWER: bool>(self) {
        let is_imaginary = self.part.is_imaginary;
        for (out, (x, y)) in self.out.iter_mut().zip(self.x.iter().zip(self.y)) {
            let value = faddeeva::<R, ORDER, LOWER>(*x, *y);
            *out = if is_imaginary { value.im } else { value.re };
        }
    }
}

impl<R: Precision> WithSimd for Row<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match (self.part.order, self.y.iter().any(|y| *y < R::ZERO)) {
            (0, false) => self.fill::<0, false>(),
            (0, true) => self.fill::<0, true>(),
            (1, false) => self.fill::<1, false>(),
            (1, true) => self.fill::<1, true>(),
            (_, false) => self.fill::<2, false>(),
            (_, true) => self.fill::<2, true>(),
        }
    }
}

/// Returns w, w′ or w″ at z = x + iy; with `LOWER` in the lower half-plane, too, by w(z) = 2 e^(−z²) − w(−z).
#[inline(always)]
fn faddeeva<R: Precision, const ORDER: u8, const LOWER: bool>(x: R, y: R) -> Complex<R> {
    let quadrant = in_quadrant::<R, ORDER>(size(x), size(y));
    let (is_left, is_odd) = (x < R::ZERO, ORDER == 1);
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
    // the derivatives of 2 e^(−z²)
    let (z, bell, two) = (Complex { re: x, im: y }, bell(x, y), R::of(2.0));
    let residue = match ORDER {
        0 => Complex {
            re: two * bell.re,
            im: two * bell.im,
        },
        1 => product(
            Complex {
                re: R::of(-4.0) * x,
                im: R::of(-4.0) * y,
            },
            bell,
        ),
        _ => {
            let square = product(z, z);
            let factor = Complex {
                re: R::of(8.0) * square.re - R::of(4.0),
                im: R::of(8.0) * square.im,
            };
            product(factor, bell)
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
fn size<R: Real>(x: R) -> R {
    if x < R::ZERO { -x } else { x }
}

/// Returns the smaller of x and a limit, and NaN for NaN.
#[inline(always)]
fn at_most<R: Real>(x: R, limit: f64) -> R {
    if x > R::of(limit) { R::of(limit) } else { x }
}

/// Returns e^(−z²). It is 0 where its size is, and real on both axes, whatever the other factor.
#[inline(always)]
fn bell<R: Precision>(x: R, y: R) -> Complex<R> {
    let angle = R::of(2.0) * x * y;
    let (size, (sine, cosine)) = (((y - x) * (y + x)).exp(), angle.sin_cos());
    let is_real = angle == R::ZERO;
    Complex {
        re: if size == R::ZERO { size } else { size * cosine },
        im: if size == R::ZERO || is_real {
            R::ZERO
        } else {
            -size * sine
        },
    }
}

/// Returns e^(−x²) for x ≥ 0, whose relative error does not grow with x.
#[inline(always)]
fn gauss<R: Precision>(x: R) -> R {
    let head = x.head();
    (-(head * head)).exp() * (-((x - head) * (x + head))).exp()
}

/// Returns w(x + iy) for x and y from 0 to `LARGEST`.
#[inline(always)]
fn rule<R: Precision>(x: R, y: R) -> Complex<R> {
    // 1. Far from 0 w goes with 1/z: it is taken at a point where squares do not overflow.
    let largest = (if x > y { x } else { y }) * R::of(1.0 / R::FAR);
    let scale = if largest > R::ONE { largest } else { R::ONE };
    let (x, y) = (x / scale, y / scale);
    // 2. The rule: x is the multiple number k of h/2 plus an offset. The nodes are the odd multiples for even k.
    let near = at_most(x, R::NO_BELL);
    let k = (near * R::of(2.0 / R::STEP) + R::of(0.5)).whole();
    let offset = (near - k * R::of(R::HALF_STEP[0])) - k * R::of(R::HALF_STEP[1]);
    let half = k * R::of(0.5);
    let is_even = half.whole() == half;
    let choose =
        |midpoint: f64, trapezoidal: f64| R::of(if is_even { midpoint } else { trapezoidal });
    // 3. The sum, real and imaginary part divided by y and x. 1/|z² − t²|² is formed of factors that do not cancel.
    let (square, y_square) = (x * x + y * y, y * y);
    let mut node = choose(0.5 * R::STEP, 0.0);
    let (mut real, mut imaginary) = (R::ZERO, R::ZERO);
    for &[midpoint, trapezoidal] in R::WEIGHTS {
        let (before, behind, node_square) = (x - node, x + node, node * node);
        let distances = (before * before + y_square) * (behind * behind + y_square);
        let share = choose(midpoint, trapezoidal) / distances;
        real += (square + node_square) * share;
        imaginary += (square - node_square) * share;
        node += R::of(R::STEP);
    }
    // 4. The residue: 2 e^(−z²) E / (E ± e^(−2πix/h)), in which E is e^(−2πy/h). Its exponents do not overflow.
    let turn = 2.0 * std::f64::consts::PI / R::STEP;
    let has_residue = y < R::of(0.5 * turn);
    let y_near = at_most(y, 0.5 * turn);
    let decay = (-(R::of(turn) * y_near)).exp();
    let (angle, double) = (R::of(turn) * offset, R::of(2.0) * near * y_near);
    let (sine, cosine) = angle.sin_cos();
    let denominator = decay * decay + R::of(2.0) * decay * cosine + R::ONE;
    let height = R::of(2.0) * (y_near * (y_near - R::of(turn))).exp() * gauss(near) / denominator;
    let height = if has_residue { height } else { R::ZERO };
    let (along, (double_sine, double_cosine)) = (decay + cosine, double.sin_cos());
    Complex {
        re: (y * real + height * (double_cosine * along + double_sine * sine)) / scale,
        im: (x * imaginary + height * (double_cosine * sine - double_sine * along)) / scale,
    }
}

/// Returns w, w′ = −2z w + 2i/√π or w″ = −2w − 2z w′ at z = x + iy for x, y ≥ 0. Far from 0, where the terms of the
/// derivatives cancel, they are their asymptotic series (Abramowitz & Stegun 1964, 7.1.23).
#[inline(always)]
fn in_quadrant<R: Precision, const ORDER: u8>(x: R, y: R) -> Complex<R> {
    let z = Complex {
        re: at_most(x, R::LARGEST),
        im: at_most(y, R::LARGEST),
    };
    let w = rule(z.re, z.im);
    if ORDER == 0 {
        return w;
    }
    let (two, peak) = (R::of(2.0), R::of(std::f64::consts::FRAC_2_SQRT_PI));
    let turned = product(z, w);
    let slope = Complex {
        re: -(two * turned.re),
        im: peak - two * turned.im,
    };
    let turned = product(z, slope);
    let curvature = Complex {
        re: -(two * (w.re + turned.re)),
        im: -(two * (w.im + turned.im)),
    };
    let near = if ORDER == 1 { slope } else { curvature };
    // w′ = −i/(√π z²) Σ (2k + 1)!! / (2z²)^k, and w″ = 2i/(√π z³) Σ (k + 1) (2k + 1)!! / (2z²)^k
    let square = z.re * z.re + z.im * z.im;
    let inverse = Complex {
        re: z.re / square,
        im: -(z.im / square),
    };
    let power = product(inverse, inverse);
    let half = Complex {
        re: R::of(0.5) * power.re,
        im: R::of(0.5) * power.im,
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
        sum = product(sum, half);
        sum.re += R::of(coefficient);
    }
    let (far, height) = match ORDER {
        1 => (product(sum, power), R::of(-0.5) * peak),
        _ => (product(sum, product(power, inverse)), peak),
    };
    let is_near = square < R::of(R::ASYMPTOTIC);
    Complex {
        re: if is_near { near.re } else { -(height * far.im) },
        im: if is_near { near.im } else { height * far.re },
    }
}

/// Returns the product of two complex numbers.
#[inline(always)]
fn product<R: Real>(a: Complex<R>, b: Complex<R>) -> Complex<R> {
    Complex {
        re: a.re * b.re - a.im * b.im,
        im: a.re * b.im + a.im * b.re,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn w<R: Precision>(x: R, y: R) -> Complex<R> {
        Complex {
            re: RE.value(x, y),
            im: IM.value(x, y),
        }
    }

    fn slope_of<R: Precision>(x: R, y: R) -> Complex<R> {
        Complex {
            re: SLOPE_RE.value(x, y),
            im: SLOPE_IM.value(x, y),
        }
    }

    fn curvature_of<R: Precision>(x: R, y: R) -> Complex<R> {
        let imaginary = Part {
            is_imaginary: true,
            ..CURVATURE_RE
        };
        Complex {
            re: CURVATURE_RE.value(x, y),
            im: imaginary.value(x, y),
        }
    }

    fn wide(z: Complex<f32>) -> Complex<f64> {
        Complex {
            re: f64::from(z.re),
            im: f64::from(z.im),
        }
    }

    /// Values from mpmath 1.3: the columns x, y, Re w, Im w, Re w′, Im w′.
    const VALUES: &str = include_str!("../../../tests/data/faddeeva.csv");

    /// Returns |a − b| / |b|; |a| if b is 0.
    fn relative_error(a: f64, b: f64) -> f64 {
        (a - b).abs() / if b == 0.0 { 1.0 } else { b.abs() }
    }

    /// Returns |a − b| / |b|.
    fn complex_error(a: Complex<f64>, b: Complex<f64>) -> f64 {
        (a.re - b.re).hypot(a.im - b.im) / b.re.hypot(b.im)
    }

    /// Both parts of w keep their digits on their own where it has no zeros, which are below the real axis.
    #[test]
    fn the_faddeeva_function_is_accurate() {
        for line in VALUES.lines() {
            let values: Vec<f64> = line
                .split(',')
                .map(|value| value.parse().expect("a number"))
                .collect();
            let [x, y, re, im, slope_re, slope_im] = values[..] else {
                panic!("six columns: {line}")
            };
            let found = w(x, y);
            let error = relative_error(found.re, re).max(relative_error(found.im, im));
            let limit = if y < 0.0 { 1e-13 } else { 1e-14 };
            assert!(error < limit, "w({x} + {y}i) = {found:?}: {error:e}");
            let (slope, exact) = (
                slope_of(x, y),
                Complex {
                    re: slope_re,
                    im: slope_im,
                },
            );
            let error = complex_error(slope, exact);
            assert!(error < 6e-13, "w'({x} + {y}i) = {slope:?}: {error:e}");
        }
    }

    #[test]
    fn infinities_and_nan_pass() {
        assert!(w(f64::INFINITY, 1.0).im < 1e-299 && w(f32::INFINITY, f32::INFINITY).re < 1e-29);
        assert!(slope_of(f64::INFINITY, 1.0).re == 0.0 && slope_of(1.0, f32::INFINITY).im == 0.0);
        for (x, y) in [(f64::NAN, 1.0), (1.0, f64::NAN), (f64::NAN, f64::INFINITY)] {
            let (found, slope) = (w(x, y), slope_of(x, y));
            let (single, single_slope) = (w(x as f32, y as f32), slope_of(x as f32, y as f32));
            assert!(
                [found.re, found.im, slope.re, slope.im]
                    .into_iter()
                    .all(f64::is_nan),
                "{found:?} {slope:?}"
            );
            assert!(
                [single.re, single.im, single_slope.re, single_slope.im]
                    .into_iter()
                    .all(f32::is_nan)
            );
        }
    }

    /// f32 meets f64 all over the upper half-plane, from 10⁻⁹ to 10⁹.
    #[test]
    fn f32_meets_f64() {
        let axis: Vec<f32> = (0..700)
            .map(|k| 0.02 * k as f32)
            .chain((0..180).map(|k| 10f32.powf(-9.0 + 0.1 * k as f32)))
            .collect();
        let mut worst = [0f64; 5];
        for &x in &axis {
            for &y in &axis {
                let (exact, found) = (w(f64::from(x), f64::from(y)), wide(w(x, y)));
                let (slope, exact_slope) =
                    (wide(slope_of(x, y)), slope_of(f64::from(x), f64::from(y)));
                let (curvature, exact_curvature) = (
                    wide(curvature_of(x, y)),
                    curvature_of(f64::from(x), f64::from(y)),
                );
                // numbers below 10⁻³⁵ have fewer digits in f32
                let part = |a: f64, b: f64| if b > 1e-35 { relative_error(a, b) } else { 0.0 };
                let errors = [
                    complex_error(found, exact),
                    part(found.re, exact.re),
                    part(found.im, exact.im),
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

    /// In the lower half-plane, where w has zeros, errors are shares of |e^(−z²)|.
    #[test]
    fn f32_meets_f64_below_the_real_axis() {
        for j in -80..80 {
            for k in 1..60 {
                let (x, y) = (0.05 * j as f32, -0.05 * k as f32);
                let (exact, found) = (w(f64::from(x), f64::from(y)), wide(w(x, y)));
                let scale = exact.re.hypot(exact.im) + f64::from((y - x) * (y + x)).exp();
                let error = (found.re - exact.re).hypot(found.im - exact.im) / scale;
                assert!(error < 1e-5, "w({x} + {y}i) = {found:?}: {error:e}");
            }
        }
        assert!(
            w(0.0f32, -20.0).im == 0.0
                && w(1e30f32, -1e-3).im < 1e-29
                && w(1e40f64, -1e-3).im < 1e-39
        );
    }

    #[test]
    fn the_second_derivative_is_that_of_the_first() {
        for line in VALUES.lines() {
            let values: Vec<f64> = line
                .split(',')
                .map(|value| value.parse().expect("a number"))
                .collect();
            let [x, y, ..] = values[..] else {
                panic!("six columns: {line}")
            };
            let step = 1e-4 * x.hypot(y).max(1.0);
            let (before, behind) = (slope_of(x - step, y), slope_of(x + step, y));
            let [re, im] =
                [behind.re - before.re, behind.im - before.im].map(|change| change / (2.0 * step));
            let error = complex_error(curvature_of(x, y), Complex { re, im });
            assert!(error < 1e-5 || x > 1e100, "w''({x} + {y}i): {error:e}");
        }
    }
}
