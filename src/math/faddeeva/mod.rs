//! The Faddeeva function w(z) = e^(−z²) erfc(−iz) and its derivative, for formulas, in f64 and f32. In f32 without
//! branches or library calls, as a twin of `shaders/shared/faddeeva.wgsl`.
//!
//! For y ≥ 0, with the nodes t_k = (k + δ) h and δ = ½ or 0, w is the sum of the trapezoidal rule and of the residue of
//! the pole that the rule passes (Al Azah & Chandler-Wilde 2021, SIAM J. Numer. Anal. 59, 2346):
//!
//! w(x + iy) ≈ (2ihz/π) Σ e^(−t_k²) / (z² − t_k²) + 2 e^(−z²) / (1 ± e^(−2πiz/h)),
//!
//! with + for δ = ½ and − for δ = 0, where the first term of the sum is halved. The residue counts for y < π/h. The
//! rule is the one whose nodes are further from x, at least by h/4. With h = √(π/n) and n terms its error is of the
//! order e^(−πn). The real and the imaginary part keep their digits each, even Re w = e^(−x²) at y = 0.

mod precision;

use pulp::{Simd, WithSimd};

use super::Real;
use precision::Precision;

/// A complex number.
#[derive(Clone, Copy, Debug)]
pub struct Complex<R> {
    pub re: R,
    pub im: R,
}

/// A part of w or of its derivative w′.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    pub is_slope: bool,
    pub is_imaginary: bool,
}

impl Part {
    /// Computes the part at x + iy.
    pub fn value<R: Precision>(self, x: R, y: R) -> R {
        let mut value = [R::NAN];
        self.fill(&[x], &[y], &mut value);
        value[0]
    }

    /// Fills `out` with the part at each x + iy, by vector code.
    pub fn fill<R: Precision>(self, x: &[R], y: &[R], out: &mut [R]) {
        pulp::Arch::new().dispatch(Row { part: self, x, y, out });
    }
}

/// Re w.
pub const RE: Part = Part { is_slope: false, is_imaginary: false };
/// Im w.
pub const IM: Part = Part { is_slope: false, is_imaginary: true };
/// Re w′.
pub const SLOPE_RE: Part = Part { is_slope: true, is_imaginary: false };
/// Im w′.
pub const SLOPE_IM: Part = Part { is_slope: true, is_imaginary: true };

/// A row of places and of values to be filled in.
struct Row<'a, R> {
    part: Part,
    x: &'a [R],
    y: &'a [R],
    out: &'a mut [R],
}

impl<R: Precision> Row<'_, R> {
    /// Fills the row. Without `LOWER` no place may be in the lower half-plane.
    #[inline(always)]
    fn fill<const SLOPE: bool, const LOWER: bool>(self) {
        let is_imaginary = self.part.is_imaginary;
        for (out, (x, y)) in self.out.iter_mut().zip(self.x.iter().zip(self.y)) {
            let value = if SLOPE { faddeeva_slope::<R, LOWER>(*x, *y) } else { faddeeva::<R, LOWER>(*x, *y) };
            *out = if is_imaginary { value.im } else { value.re };
        }
    }
}

impl<R: Precision> WithSimd for Row<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match (self.part.is_slope, self.y.iter().any(|y| *y < R::ZERO)) {
            (false, false) => self.fill::<false, false>(),
            (false, true) => self.fill::<false, true>(),
            (true, false) => self.fill::<true, false>(),
            (true, true) => self.fill::<true, true>(),
        }
    }
}

/// Returns w(x + iy); with `LOWER` in the lower half-plane, too, by w(−z) = 2 e^(−z²) − w(z).
#[inline(always)]
fn faddeeva<R: Precision, const LOWER: bool>(x: R, y: R) -> Complex<R> {
    let upper = in_quadrant(size(x), size(y));
    let w = Complex { re: upper.re, im: if x < R::ZERO { -upper.im } else { upper.im } };
    if !LOWER {
        return w;
    }
    let (bell, two, is_lower) = (bell(x, y), R::of(2.0), y < R::ZERO);
    Complex {
        re: if is_lower { two * bell.re - w.re } else { w.re },
        im: if is_lower { two * bell.im + w.im } else { w.im },
    }
}

/// Returns the derivative w′(x + iy); with `LOWER` in the lower half-plane, too, by w′(z) = w′(−z) − 4z e^(−z²).
#[inline(always)]
fn faddeeva_slope<R: Precision, const LOWER: bool>(x: R, y: R) -> Complex<R> {
    let upper = slope_in_quadrant(size(x), size(y));
    let slope = Complex { re: if x < R::ZERO { -upper.re } else { upper.re }, im: upper.im };
    if !LOWER {
        return slope;
    }
    let (bell, four, is_lower) = (bell(x, y), R::of(4.0), y < R::ZERO);
    let (along, across) = (x * bell.re - y * bell.im, x * bell.im + y * bell.re);
    Complex {
        re: if is_lower { -slope.re - four * along } else { slope.re },
        im: if is_lower { slope.im - four * across } else { slope.im },
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

/// Returns e^(−z²).
#[inline(always)]
fn bell<R: Precision>(x: R, y: R) -> Complex<R> {
    let (size, (sine, cosine)) = (((y - x) * (y + x)).exp(), (R::of(2.0) * x * y).sin_cos());
    Complex { re: size * cosine, im: -size * sine }
}

/// Returns e^(−x²) for x ≥ 0, whose relative error does not grow with x.
#[inline(always)]
fn gauss<R: Precision>(x: R) -> R {
    let head = x.head();
    (-(head * head)).exp() * (-((x - head) * (x + head))).exp()
}

/// Returns w(x + iy) for x, y ≥ 0.
#[inline(always)]
fn in_quadrant<R: Precision>(x: R, y: R) -> Complex<R> {
    // 1. Far from 0 w goes with 1/z: it is taken at a point where squares do not overflow.
    let (x, y) = (at_most(x, R::LARGEST), at_most(y, R::LARGEST));
    let largest = (if x > y { x } else { y }) * R::of(1.0 / R::FAR);
    let scale = if largest > R::ONE { largest } else { R::ONE };
    let (x, y) = (x / scale, y / scale);
    // 2. The rule: x is the multiple number k of h/2 plus an offset. The nodes are the odd multiples for even k.
    let near = at_most(x, R::NO_BELL);
    let k = (near * R::of(2.0 / R::STEP) + R::of(0.5)).whole();
    let offset = (near - k * R::of(R::HALF_STEP[0])) - k * R::of(R::HALF_STEP[1]);
    let half = k * R::of(0.5);
    let is_even = half.whole() == half;
    let choose = |midpoint: f64, trapezoidal: f64| R::of(if is_even { midpoint } else { trapezoidal });
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

/// Returns w′(x + iy) = −2z w + 2i/√π for x, y ≥ 0; far from 0, where that cancels, its asymptotic series.
#[inline(always)]
fn slope_in_quadrant<R: Precision>(x: R, y: R) -> Complex<R> {
    let (x, y) = (at_most(x, R::LARGEST), at_most(y, R::LARGEST));
    let (w, two) = (in_quadrant(x, y), R::of(2.0));
    let peak = R::of(std::f64::consts::FRAC_2_SQRT_PI);
    let near = Complex { re: two * (y * w.im - x * w.re), im: peak - two * (x * w.im + y * w.re) };
    // −i/(√π z²) Σ (2k + 1)!! / (2z²)^k (Abramowitz & Stegun 1964, 7.1.23)
    let square = x * x + y * y;
    let inverse = Complex { re: x / square, im: -(y / square) };
    let power = product(inverse, inverse);
    let half = Complex { re: R::of(0.5) * power.re, im: R::of(0.5) * power.im };
    let mut sum = Complex { re: R::ZERO, im: R::ZERO };
    for factorial in [2_027_025.0, 135_135.0, 10_395.0, 945.0, 105.0, 15.0, 3.0, 1.0] {
        sum = product(sum, half);
        sum.re += R::of(factorial);
    }
    let far = product(sum, power);
    let is_near = square < R::of(R::ASYMPTOTIC);
    let height = R::of(0.5) * peak;
    Complex {
        re: if is_near { near.re } else { height * far.im },
        im: if is_near { near.im } else { -(height * far.re) },
    }
}

/// Returns the product of two complex numbers.
#[inline(always)]
fn product<R: Real>(a: Complex<R>, b: Complex<R>) -> Complex<R> {
    Complex { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn w<R: Precision>(x: R, y: R) -> Complex<R> {
        Complex { re: RE.value(x, y), im: IM.value(x, y) }
    }

    fn slope_of<R: Precision>(x: R, y: R) -> Complex<R> {
        Complex { re: SLOPE_RE.value(x, y), im: SLOPE_IM.value(x, y) }
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
            let values: Vec<f64> = line.split(',').map(|value| value.parse().expect("a number")).collect();
            let [x, y, re, im, slope_re, slope_im] = values[..] else { panic!("six columns: {line}") };
            let found = w(x, y);
            let error = relative_error(found.re, re).max(relative_error(found.im, im));
            let limit = if y < 0.0 { 1e-13 } else { 1e-14 };
            assert!(error < limit, "w({x} + {y}i) = {found:?}: {error:e}");
            let (slope, exact) = (slope_of(x, y), Complex { re: slope_re, im: slope_im });
            let error = complex_error(slope, exact);
            assert!(error < 3e-13, "w'({x} + {y}i) = {slope:?}: {error:e}");
        }
    }

    #[test]
    fn infinities_and_nan_pass() {
        assert!(w(f64::INFINITY, 1.0).im < 1e-299 && w(f32::INFINITY, f32::INFINITY).re < 1e-29);
        assert!(slope_of(f64::INFINITY, 1.0).re == 0.0 && slope_of(1.0, f32::INFINITY).im == 0.0);
        for (x, y) in [(f64::NAN, 1.0), (1.0, f64::NAN), (f64::NAN, f64::INFINITY)] {
            let (found, slope) = (w(x, y), slope_of(x, y));
            let (single, single_slope) = (w(x as f32, y as f32), slope_of(x as f32, y as f32));
            assert!([found.re, found.im, slope.re, slope.im].into_iter().all(f64::is_nan), "{found:?} {slope:?}");
            assert!([single.re, single.im, single_slope.re, single_slope.im].into_iter().all(f32::is_nan));
        }
    }

    /// f32 meets f64 all over the upper half-plane, from 10⁻⁹ to 10⁹.
    #[test]
    fn f32_meets_f64() {
        let axis: Vec<f32> =
            (0..700).map(|k| 0.02 * k as f32).chain((0..180).map(|k| 10f32.powf(-9.0 + 0.1 * k as f32))).collect();
        let mut worst = [0f64; 4];
        for &x in &axis {
            for &y in &axis {
                let wide = |z: Complex<f32>| Complex { re: f64::from(z.re), im: f64::from(z.im) };
                let (exact, found) = (w(f64::from(x), f64::from(y)), wide(w(x, y)));
                let (slope, exact_slope) = (wide(slope_of(x, y)), slope_of(f64::from(x), f64::from(y)));
                // numbers below 10⁻³⁵ have fewer digits in f32
                let part = |a: f64, b: f64| if b > 1e-35 { relative_error(a, b) } else { 0.0 };
                let errors = [
                    complex_error(found, exact),
                    part(found.re, exact.re),
                    part(found.im, exact.im),
                    complex_error(slope, exact_slope),
                ];
                worst = std::array::from_fn(|k| worst[k].max(errors[k]));
            }
        }
        println!("largest relative errors in f32: {worst:?}");
        assert!(worst[0] < 1e-6 && worst[1] < 1e-6 && worst[2] < 4e-6 && worst[3] < 3e-5, "{worst:?}");
    }
}
