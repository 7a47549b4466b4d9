//! Built-in models written out for lanes: what a tape passes from step to step through memory stays in registers.

use std::marker::PhantomData;
use std::ops::{Add, Mul, Sub};

use pulp::{Simd, WithSimd};

use crate::rows::Real;
use crate::rows::lanes::{LANES, Lanes};
use crate::solver::whole::{LaneBlock, LaneGrid};

/// Which of them.
#[derive(Clone, Copy, Debug)]
pub enum Direct {
    Gauss1d,
    Gauss2d,
    Gauss2dElliptic,
    Exponential,
    Lorentz,
}

impl Direct {
    /// The built-in model of this name, with its parameters in the order of its table.
    pub fn of(name: &str) -> Option<Direct> {
        match name {
            "gauss1d" => Some(Direct::Gauss1d),
            "gauss2d" => Some(Direct::Gauss2d),
            "gauss2d_elliptic" => Some(Direct::Gauss2dElliptic),
            "exponential" => Some(Direct::Exponential),
            "lorentz" => Some(Direct::Lorentz),
            _ => None,
        }
    }

    /// Fills the rows.
    pub fn evaluate<R: Real>(self, block: LaneBlock<'_, R>) {
        match self {
            Direct::Gauss1d => run::<Gauss1d, R, _, _, _, _>(block),
            Direct::Gauss2d => run::<Gauss2d, R, _, _, _, _>(block),
            Direct::Gauss2dElliptic => run::<Gauss2dElliptic, R, _, _, _, _>(block),
            Direct::Exponential => run::<Exponential, R, _, _, _, _>(block),
            Direct::Lorentz => run::<Lorentz, R, _, _, _, _>(block),
        }
    }
}

/// One number of each of some fits.
struct V<R: Real, S: Simd>(S, R::Vector<S>);

impl<R: Real, S: Simd> Clone for V<R, S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Real, S: Simd> Copy for V<R, S> {}

impl<R: Real, S: Simd> V<R, S> {
    #[inline(always)]
    fn one(self) -> Self {
        V(self.0, R::splat(self.0, R::ONE))
    }
    #[inline(always)]
    fn inverse(self) -> Self {
        V(self.0, R::divide(self.0, self.one().1, self.1))
    }
    #[inline(always)]
    fn times_plus(self, b: Self, c: Self) -> Self {
        V(self.0, R::multiply_add(self.0, self.1, b.1, c.1))
    }
    #[inline(always)]
    fn exp(self) -> Self {
        V(self.0, R::exp_each(self.0, self.1))
    }
    #[inline(always)]
    fn half(self) -> Self {
        self * V(self.0, R::splat(self.0, R::of(0.5)))
    }
    #[inline(always)]
    fn negative(self) -> Self {
        self * V(self.0, R::splat(self.0, R::of(-1.0)))
    }
}

impl<R: Real, S: Simd> Add for V<R, S> {
    type Output = Self;
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        V(self.0, R::plus(self.0, self.1, b.1))
    }
}

impl<R: Real, S: Simd> Sub for V<R, S> {
    type Output = Self;
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        V(self.0, R::minus(self.0, self.1, b.1))
    }
}

impl<R: Real, S: Simd> Mul for V<R, S> {
    type Output = Self;
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        V(self.0, R::multiply(self.0, self.1, b.1))
    }
}

/// A model of P parameters and D predictors, of which K numbers of a fit are the same at every point; N = 1 + P.
///
/// It rounds no more often than its formula, whose bound of rounding is taken for it.
trait Model<const P: usize, const D: usize, const K: usize, const N: usize> {
    fn constants<R: Real, S: Simd>(parameters: [V<R, S>; P]) -> [V<R, S>; K];
    /// The value and its derivatives by the parameters.
    fn rows<R: Real, S: Simd>(constants: [V<R, S>; K], x: [V<R, S>; D]) -> [V<R, S>; N];
}

struct Gauss1d;

impl Model<4, 1, 6, 5> for Gauss1d {
    #[inline(always)]
    fn constants<R: Real, S: Simd>([a, m, s, c]: [V<R, S>; 4]) -> [V<R, S>; 6] {
        let narrow = (s * s).inverse();
        [m, a, c, narrow.half().negative(), a * narrow, s.inverse()]
    }
    #[inline(always)]
    fn rows<R: Real, S: Simd>([m, a, c, k, w, per_s]: [V<R, S>; 6], [x]: [V<R, S>; 1]) -> [V<R, S>; 5] {
        let d = x - m;
        let e = (d * d * k).exp();
        let slope = w * e * d;
        [a.times_plus(e, c), e, slope, slope * d * per_s, a.one()]
    }
}

struct Gauss2d;

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
        let e = (square * k).exp();
        let g = w * e;
        [a.times_plus(e, c), e, g * dx, g * dy, g * square * per_s, a.one()]
    }
}

struct Gauss2dElliptic;

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
        let e = (dx * dx * kx + dy * dy * ky).exp();
        let (gx, gy) = (wx * e * dx, wy * e * dy);
        [a.times_plus(e, c), e, gx, gy, gx * dx * per_sx, gy * dy * per_sy, a.one()]
    }
}

struct Exponential;

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
}

struct Lorentz;

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
}

/// A model at some points of a block.
struct Evaluation<'a, M, R, const P: usize, const D: usize, const K: usize, const N: usize> {
    model: PhantomData<M>,
    block: LaneBlock<'a, R>,
}

fn run<M: Model<P, D, K, N>, R: Real, const P: usize, const D: usize, const K: usize, const N: usize>(
    block: LaneBlock<'_, R>,
) {
    pulp::Arch::new().dispatch(Evaluation::<M, R, P, D, K, N> { model: PhantomData, block });
}

/// Vector `v` of each of some rows.
#[inline(always)]
fn load<R: Real, S: Simd, const C: usize>(simd: S, rows: &[Lanes<R>], v: usize) -> [V<R, S>; C] {
    let mut out = [V(simd, R::splat(simd, R::ZERO)); C];
    for (out, row) in out.iter_mut().zip(rows) {
        out.1 = R::vectors::<S>(&row.0)[v];
    }
    out
}

#[inline(always)]
fn store<R: Real, S: Simd, const C: usize>(rows: &mut [Lanes<R>], v: usize, values: [V<R, S>; C]) {
    for (row, value) in rows.iter_mut().zip(values) {
        R::vectors_mut::<S>(&mut row.0)[v] = value.1;
    }
}

impl<M, R: Real, const P: usize, const D: usize, const K: usize, const N: usize> WithSimd
    for Evaluation<'_, M, R, P, D, K, N>
where
    M: Model<P, D, K, N>,
{
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let LaneBlock { points, of_points, grid, parameters, registers, rows, .. } = self.block;
        registers.resize(K, Lanes::splat(R::NAN));
        for v in 0..LANES / R::lanes::<S>() {
            if points.start == 0 {
                store(registers, v, M::constants(load::<R, S, P>(simd, parameters, v)));
            }
            let constants = load::<R, S, K>(simd, registers, v);
            for (rows, point) in rows.chunks_exact_mut(N).zip(points.clone()) {
                let mut x = [V(simd, R::splat(simd, R::ZERO)); D];
                for (d, x) in x.iter_mut().enumerate() {
                    let place = d * of_points + point;
                    x.1 = match &grid {
                        LaneGrid::Shared(x) => R::splat(simd, x[place]),
                        LaneGrid::Own(x) => R::vectors::<S>(&x[place].0)[v],
                    };
                }
                store(rows, v, M::rows(constants, x));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formula::Formula;
    use crate::formula::operation::Elementary;
    use crate::solver::whole::LaneModel;

    /// All rows at some points of lanes of parameters, each within a tenth of 1 or so.
    fn rows<R: Elementary>(model: &LaneModel<R>, formula: &Formula, own: bool) -> Vec<Lanes<R>> {
        let (p, d, points) = (formula.parameters().len(), formula.predictors().len(), 7);
        let number = |k: usize| R::of(0.5 + (k as f64 * 0.618_033_988_749_894_9).fract());
        let some = |n: usize, seed: usize| -> Vec<Lanes<R>> {
            (0..n).map(|i| Lanes(std::array::from_fn(|l| number(seed + i * LANES + l)))).collect()
        };
        let (parameters, x) = (some(p, 7), some(d * points, 1001));
        let shared: Vec<R> = x.iter().map(|x| x.0[0]).collect();
        let mut out = vec![Lanes::splat(R::NAN); points * (1 + p)];
        let mut registers = Vec::new();
        // in two calls, as a block's points go by in parts
        for part in [0..4, 4..points] {
            model(LaneBlock {
                rows: &mut out[part.start * (1 + p)..part.end * (1 + p)],
                points: part,
                of_points: points,
                grid: if own { LaneGrid::Own(&x) } else { LaneGrid::Shared(&shared) },
                parameters: &parameters,
                registers: &mut registers,
                stride: 1 + p,
            });
        }
        out
    }

    fn agree<R: Elementary>(tolerance: f64) {
        let mut seen = 0;
        for name in Formula::builtins().filter(|name| Direct::of(name).is_some()) {
            let formula = Formula::builtin(name).unwrap();
            let own_order: Vec<&str> = formula.parameters().iter().map(String::as_str).collect();
            let tape = formula.clone().with_parameters(&own_order).unwrap();
            assert!(formula.direct.is_some() && tape.direct.is_none());
            for own in [false, true] {
                let [direct, tape] = [&formula, &tape].map(|f| rows::<R>(&f.lanes(), f, own));
                for (i, (a, b)) in direct.iter().zip(&tape).enumerate() {
                    for l in 0..LANES {
                        let (a, b) = (a.0[l].to_f64(), b.0[l].to_f64());
                        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{name} row {i} lane {l}: {a} {b}");
                    }
                }
            }
            seen += 1;
        }
        assert_eq!(seen, 5);
    }

    #[test]
    fn written_models_are_their_formulas() {
        agree::<f64>(1e-14);
        agree::<f32>(2e-6);
    }
}
