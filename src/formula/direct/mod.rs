//! Built-in models written out for lanes: what a tape passes from step to step through memory stays in registers.

mod models;
mod wide;

use std::marker::PhantomData;

use pulp::{Simd, WithSimd};

use crate::rows::Real;
use crate::rows::lanes::Lanes;
use crate::solver::whole::{LaneBlock, LaneGrid, SumRounding};
use models::{Decay, Exponential, Gauss1d, Gauss2d, Gauss2dElliptic, Lorentz, Model};
use wide::V;

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

    /// Fills the rows: values and derivatives.
    pub fn evaluate<R: Real>(self, block: LaneBlock<'_, R>) {
        match self {
            Direct::Gauss1d => run::<Gauss1d, R, _, _, _, _>(block),
            Direct::Gauss2d => run::<Gauss2d, R, _, _, _, _>(block),
            Direct::Gauss2dElliptic => run::<Gauss2dElliptic, R, _, _, _, _>(block),
            Direct::Exponential => run::<Decay, R, _, _, _, _>(block),
            Direct::Lorentz => run::<Lorentz, R, _, _, _, _>(block),
        }
    }

    /// What rounding may do to the values where f32 holds the predictors.
    pub fn rounding(self) -> SumRounding {
        match self {
            Direct::Gauss1d => Gauss1d::ROUNDING,
            Direct::Gauss2d => Gauss2d::ROUNDING,
            Direct::Gauss2dElliptic => Gauss2dElliptic::ROUNDING,
            Direct::Exponential => Decay::ROUNDING,
            Direct::Lorentz => Lorentz::ROUNDING,
        }
    }
}

fn run<M, R: Real, const P: usize, const D: usize, const K: usize, const N: usize>(block: LaneBlock<'_, R>)
where
    M: Model<P, D, K, N>,
{
    pulp::Arch::new().dispatch(Evaluation::<M, R, P, D, K, N> { model: PhantomData, block });
}

/// A model at some points of a block.
struct Evaluation<'a, M, R, const P: usize, const D: usize, const K: usize, const N: usize> {
    model: PhantomData<M>,
    block: LaneBlock<'a, R>,
}

impl<M, R: Real, const P: usize, const D: usize, const K: usize, const N: usize> WithSimd
    for Evaluation<'_, M, R, P, D, K, N>
where
    M: Model<P, D, K, N>,
{
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let LaneBlock { points, of_points, grid, parameters, registers, y, rows, .. } = self.block;
        let Some(parameters) = parameters.first_chunk::<P>() else { return };
        let lattice = match (&grid, M::EXPONENTIAL) {
            (LaneGrid::Shared(x), Exponential::Below) if D == 2 => lattice(x),
            _ => None,
        };
        let factors = lattice.map_or(0, |columns| columns + of_points / columns);
        registers.resize(K + factors, Lanes::splat(R::NAN));
        for v in 0..V::<R, S>::COUNT {
            if points.start == 0 {
                let mut own = [V::splat(simd, R::ZERO); P];
                for p in 0..P {
                    own[p] = V::load(simd, &parameters[p], v);
                }
                let constants = M::constants(own);
                store(constants, registers, v);
                let columns = lattice.unwrap_or(0);
                for (k, factor) in registers[K..].iter_mut().enumerate() {
                    let (d, point) = if k < columns { (0, k) } else { (D - 1, (k - columns) * columns) };
                    let x = at(simd, &grid, (point, of_points), v);
                    M::exponents::<R, S>(constants, x)[d].exp_below().store(factor, v);
                }
            }
            let (constants, factors) = registers.split_at(K);
            let mut own = [V::splat(simd, R::ZERO); K];
            for k in 0..K {
                own[k] = V::load(simd, &constants[k], v);
            }
            let constants = own;
            let rows = rows.chunks_exact_mut(N).zip(points.clone());
            let Some(columns) = lattice else {
                for (rows, point) in rows {
                    let x = at(simd, &grid, (point, of_points), v);
                    let parts = M::exponents(constants, x);
                    let mut q = parts[0];
                    for part in &parts[1..] {
                        q = q + *part;
                    }
                    let e = match M::EXPONENTIAL {
                        Exponential::Below => q.exp_below(),
                        Exponential::Any => q.exp(),
                        Exponential::None => q,
                    };
                    put::<M, R, S, P, D, K, N>((constants, x, e), y.get(point), rows, v);
                }
                continue;
            };
            let (of_columns, of_lines) = factors.split_at(columns);
            let (mut column, mut line) = (points.start % columns, points.start / columns);
            for (rows, point) in rows {
                let e = V::load(simd, &of_columns[column], v) * V::load(simd, &of_lines[line], v);
                let x = at(simd, &grid, (point, of_points), v);
                put::<M, R, S, P, D, K, N>((constants, x, e), y.get(point), rows, v);
                column += 1;
                if column == columns {
                    (column, line) = (0, line + 1);
                }
            }
        }
    }
}

/// The predictors at one of so many points, of part `v` of the lanes.
#[inline(always)]
fn at<R: Real, S: Simd, const D: usize>(
    simd: S,
    grid: &LaneGrid<'_, R>,
    (point, of_points): (usize, usize),
    v: usize,
) -> [V<R, S>; D] {
    // loops, not closures: where a compiler does not take those in, each instruction becomes a call
    let mut x = [V::splat(simd, R::ZERO); D];
    for d in 0..D {
        x[d] = match grid {
            LaneGrid::Shared(x) => V::splat(simd, x[d * of_points + point]),
            LaneGrid::Own(x) => V::load(simd, &x[d * of_points + point], v),
        };
    }
    x
}

/// A point's rows.
#[inline(always)]
fn put<M, R: Real, S: Simd, const P: usize, const D: usize, const K: usize, const N: usize>(
    (constants, x, e): ([V<R, S>; K], [V<R, S>; D], V<R, S>),
    y: Option<&Lanes<R>>,
    rows: &mut [Lanes<R>],
    v: usize,
) where
    M: Model<P, D, K, N>,
{
    let mut values = M::rows(constants, x, e);
    if let Some(y) = y {
        values[0] = values[0].below(y, v);
    }
    store(values, rows, v);
}

/// Points on a line of a grid (2, points) whose points are all pairs of some numbers, line by line: there e^q is one of as few factors
/// as there are columns and lines.
fn lattice<R: Real>(x: &[R]) -> Option<usize> {
    let (x, y) = x.split_at(x.len() / 2);
    let columns = y.iter().position(|other| *other != y[0])?;
    let whole = y.len().is_multiple_of(columns) && columns > 1;
    let is_line = |(x_of, y_of): (&[R], &[R])| x_of == &x[..columns] && y_of.iter().all(|other| *other == y_of[0]);
    (whole && x.chunks(columns).zip(y.chunks(columns)).all(is_line)).then_some(columns)
}

/// Puts values into part `v` of as many rows.
#[inline(always)]
fn store<R: Real, S: Simd, const C: usize>(values: [V<R, S>; C], rows: &mut [Lanes<R>], v: usize) {
    values.into_iter().zip(rows).for_each(|(value, row)| value.store(row, v));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formula::Formula;
    use crate::formula::operation::Elementary;
    use crate::rows::lanes::LANES;
    use crate::solver::whole::LaneModel;

    /// All rows at some points of lanes of parameters between 0.5 and 1.5, the first of them of either sign; with data or without.
    fn rows<R: Elementary>(
        model: &LaneModel<R>,
        formula: &Formula,
        (own, data): (bool, bool),
        stride: usize,
    ) -> Vec<Lanes<R>> {
        let (p, d, points) = (formula.parameters().len(), formula.predictors().len(), 7);
        let number = |k: usize| R::of(0.5 + (k as f64 * 0.618_033_988_749_894_9).fract());
        let some = |n: usize, seed: usize| -> Vec<Lanes<R>> {
            (0..n).map(|i| Lanes(std::array::from_fn(|l| number(seed + i * LANES + l)))).collect()
        };
        let (mut parameters, x) = (some(p, 7), some(d * points, 1001));
        parameters[0].0.iter_mut().step_by(2).for_each(|a| *a = -*a);
        let shared: Vec<R> = x.iter().map(|x| x.0[0]).collect();
        let mut out = vec![Lanes::splat(R::NAN); points * stride];
        let mut registers = Vec::new();
        let y = if data { some(points, 2001) } else { Vec::new() };
        // in two calls, as a block's points go by in parts
        for part in [0..4, 4..points] {
            model(LaneBlock {
                rows: &mut out[part.start * stride..part.end * stride],
                points: part,
                of_points: points,
                grid: if own { LaneGrid::Own(&x) } else { LaneGrid::Shared(&shared) },
                parameters: &parameters,
                registers: &mut registers,
                y: &y,
                stride,
            });
        }
        out
    }

    /// Formulas that are written out, each with a copy that is not, as its parameters were put in order by hand.
    fn pairs() -> Vec<[Formula; 2]> {
        let written = Formula::builtins().filter(|name| Direct::of(name).is_some());
        let pairs = written.map(|name| {
            let formula = Formula::builtin(name).unwrap();
            let own_order: Vec<&str> = formula.parameters().iter().map(String::as_str).collect();
            let tape = formula.clone().with_parameters(&own_order).unwrap();
            assert!(formula.direct.is_some() && tape.direct.is_none());
            [formula, tape]
        });
        pairs.collect()
    }

    fn agree<R: Elementary>(tolerance: f64) {
        let pairs = pairs();
        assert_eq!(pairs.len(), 5);
        for [written, tape] in &pairs {
            for own in [(false, false), (false, true), (true, false), (true, true)] {
                let stride = 1 + written.parameters().len();
                let [direct, tape] = [written, tape].map(|f| rows::<R>(&f.lanes(), f, own, stride));
                for (i, (a, b)) in direct.iter().zip(&tape).enumerate() {
                    for l in 0..LANES {
                        let (a, b) = (a.0[l].to_f64(), b.0[l].to_f64());
                        let name = written.text();
                        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{name} row {i} lane {l}: {a} {b}");
                    }
                }
            }
        }
    }

    #[test]
    fn written_models_are_their_formulas() {
        agree::<f64>(1e-14);
        agree::<f32>(2e-6);
    }
}
