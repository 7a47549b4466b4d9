//! The models that are written out.

use pulp::Simd;

use super::wide::V;
use crate::rows::Real;

/// A model of P parameters and D predictors, of which K numbers of a fit are the same at every point; N = 1 + P.
///
/// It rounds no more often than its formula, whose bound of rounding is taken for it: that of u + c, where u is a number times e^q.
pub trait Model<const P: usize, const D: usize, const K: usize, const N: usize> {
    fn constants<R: Real, S: Simd>(parameters: [V<R, S>; P]) -> [V<R, S>; K];
    /// The value and its derivatives by the parameters.
    fn rows<R: Real, S: Simd>(constants: [V<R, S>; K], x: [V<R, S>; D]) -> [V<R, S>; N];
    /// Roundings of u: those that q has, each of its size, and others.
    const ROUNDINGS: [f64; 2];
    /// q, u, u + c.
    fn parts<R: Real, S: Simd>(constants: [V<R, S>; K], x: [V<R, S>; D]) -> [V<R, S>; 3];
    /// The value and the most that its rounding may be, in units of 2⁻²⁴, where predictors are exact: what
    /// [`rounding`](crate::formula::rounding) finds.
    #[inline(always)]
    fn bounded<R: Real, S: Simd>(constants: [V<R, S>; K], x: [V<R, S>; D]) -> [V<R, S>; 2] {
        let [q, u, value] = Self::parts(constants, x);
        let [of_q, others] = Self::ROUNDINGS.map(|n| q.number(n));
        [value, q.size().times_plus(of_q, others).times_plus(u.size(), value.size())]
    }
}

/// q, a e, a e + c, where e = e^q.
#[inline(always)]
fn exponential<R: Real, S: Simd>([q, e, a, c]: [V<R, S>; 4]) -> [V<R, S>; 3] {
    let u = a * e;
    [q, u, u + c]
}

pub struct Gauss1d;

impl Model<4, 1, 6, 5> for Gauss1d {
    #[inline(always)]
    fn constants<R: Real, S: Simd>([a, m, s, c]: [V<R, S>; 4]) -> [V<R, S>; 6] {
        let narrow = (s * s).inverse();
        [m, a, c, narrow.half().negative(), a * narrow, s.inverse()]
    }
    #[inline(always)]
    fn rows<R: Real, S: Simd>([m, a, c, k, w, per_s]: [V<R, S>; 6], [x]: [V<R, S>; 1]) -> [V<R, S>; 5] {
        let d = x - m;
        let e = (d * d * k).exp_below();
        let slope = w * e * d;
        [a.times_plus(e, c), e, slope, slope * d * per_s, a.one()]
    }
    const ROUNDINGS: [f64; 2] = [9.0, 9.0];
    #[inline(always)]
    fn parts<R: Real, S: Simd>([m, a, c, k, ..]: [V<R, S>; 6], [x]: [V<R, S>; 1]) -> [V<R, S>; 3] {
        let d = x - m;
        let q = d * d * k;
        exponential([q, q.exp_below(), a, c])
    }
}

pub struct Gauss2d;

impl Model<5, 2, 7, 6> for Gauss2d {
    #[inline(always)]
    fn constants<R: Real, S: Simd>([a, x0, y0, s, c]: [V<R, S>; 5]) -> [V<R, S>; 7] {
        let narrow = (s * s).inverse();
        [x0, y0, a, c, narrow.half().negative(), a * narrow, s.inverse()]
    }
    #[inline(always)]
    fn rows<R: Real, S: Simd>([x0, y0, a, c, k, w, per_s]: [V<R, S>; 7], [x, y]: [V<R, S>; 2]) -> [V<R, S>; 6] {
        let (dx, dy) = (x - x0, y - y0);
        let square = dx.times_plus(dx, dy * dy);
        let e = (square * k).exp_below();
        let g = w * e;
        [a.times_plus(e, c), e, g * dx, g * dy, g * square * per_s, a.one()]
    }
    const ROUNDINGS: [f64; 2] = [10.0, 9.0];
    #[inline(always)]
    fn parts<R: Real, S: Simd>([x0, y0, a, c, k, ..]: [V<R, S>; 7], [x, y]: [V<R, S>; 2]) -> [V<R, S>; 3] {
        let (dx, dy) = (x - x0, y - y0);
        let q = dx.times_plus(dx, dy * dy) * k;
        exponential([q, q.exp_below(), a, c])
    }
}

pub struct Gauss2dElliptic;

impl Model<6, 2, 10, 7> for Gauss2dElliptic {
    #[inline(always)]
    fn constants<R: Real, S: Simd>([a, x0, y0, sx, sy, c]: [V<R, S>; 6]) -> [V<R, S>; 10] {
        let [nx, ny] = [(sx * sx).inverse(), (sy * sy).inverse()];
        let [kx, ky] = [nx.half().negative(), ny.half().negative()];
        [x0, y0, a, c, kx, ky, a * nx, a * ny, sx.inverse(), sy.inverse()]
    }
    #[inline(always)]
    fn rows<R: Real, S: Simd>(constants: [V<R, S>; 10], [x, y]: [V<R, S>; 2]) -> [V<R, S>; 7] {
        let [x0, y0, a, c, kx, ky, wx, wy, per_sx, per_sy] = constants;
        let (dx, dy) = (x - x0, y - y0);
        let e = (dx * dx * kx + dy * dy * ky).exp_below();
        let (gx, gy) = (wx * e * dx, wy * e * dy);
        [a.times_plus(e, c), e, gx, gy, gx * dx * per_sx, gy * dy * per_sy, a.one()]
    }
    const ROUNDINGS: [f64; 2] = [10.0, 9.0];
    #[inline(always)]
    fn parts<R: Real, S: Simd>(constants: [V<R, S>; 10], [x, y]: [V<R, S>; 2]) -> [V<R, S>; 3] {
        let [x0, y0, a, c, kx, ky, ..] = constants;
        let (dx, dy) = (x - x0, y - y0);
        let q = dx * dx * kx + dy * dy * ky;
        exponential([q, q.exp_below(), a, c])
    }
}

pub struct Exponential;

impl Model<3, 1, 3, 4> for Exponential {
    #[inline(always)]
    fn constants<R: Real, S: Simd>([a, k, c]: [V<R, S>; 3]) -> [V<R, S>; 3] {
        [a, k.negative(), c]
    }
    #[inline(always)]
    fn rows<R: Real, S: Simd>([a, k, c]: [V<R, S>; 3], [x]: [V<R, S>; 1]) -> [V<R, S>; 4] {
        let e = (k * x).exp();
        [a.times_plus(e, c), e, (a * e * x).negative(), a.one()]
    }
    const ROUNDINGS: [f64; 2] = [1.0, 9.0];
    #[inline(always)]
    fn parts<R: Real, S: Simd>([a, k, c]: [V<R, S>; 3], [x]: [V<R, S>; 1]) -> [V<R, S>; 3] {
        let q = k * x;
        exponential([q, q.exp(), a, c])
    }
}

pub struct Lorentz;

impl Model<4, 1, 6, 5> for Lorentz {
    #[inline(always)]
    fn constants<R: Real, S: Simd>([a, m, g, c]: [V<R, S>; 4]) -> [V<R, S>; 6] {
        let (square, twice) = (g * g, a + a);
        [m, square, a * square, c, twice * square, twice * g]
    }
    #[inline(always)]
    fn rows<R: Real, S: Simd>([m, square, peak, c, w, v]: [V<R, S>; 6], [x]: [V<R, S>; 1]) -> [V<R, S>; 5] {
        let d = x - m;
        let far = d * d;
        let i = (far + square).inverse();
        let share = i * i;
        [peak.times_plus(i, c), square * i, w * d * share, v * far * share, m.one()]
    }
    const ROUNDINGS: [f64; 2] = [0.0, 10.0];
    #[inline(always)]
    fn parts<R: Real, S: Simd>([m, square, peak, c, ..]: [V<R, S>; 6], [x]: [V<R, S>; 1]) -> [V<R, S>; 3] {
        let d = x - m;
        let u = peak * (d * d + square).inverse();
        [d, u, u + c]
    }
}
