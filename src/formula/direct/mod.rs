//! Five built-in models written out for lanes: numbers that a tape passes from step to step through memory stay in
//! registers. Bounds on their rounding are computed from the sums of a fit. `lattice.rs` has Gaussians on a grid of
//! pixels that all fits share.

mod lattice;
mod models;
#[cfg(test)]
mod tests;
mod wide;

use std::marker::PhantomData;
use std::sync::Arc;

use pulp::{Simd, WithSimd};

use crate::math::Real;
use crate::math::lanes::Lanes;
use crate::solver::small::{AddUp, LaneBlock, LaneGrid, SumRounding};
use lattice::Lattice;
use models::{Decay, Exponential, Gauss1d, Gauss2d, Gauss2dElliptic, Lorentz, Model};
use wide::V;

/// Built-in model that is written out.
#[derive(Clone, Copy, Debug)]
pub enum Direct {
    Gauss1d,
    Gauss2d,
    Gauss2dElliptic,
    Exponential,
    Lorentz,
}

impl Direct {
    /// Returns the hand-written version of a built-in model; `None` if the model of this name has none.
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

    /// Computes value and derivatives of the model at the points of a block, for several fits side by side, into its
    /// rows.
    pub fn evaluate<R: Real>(self, block: LaneBlock<'_, R>) {
        match self {
            Direct::Gauss1d => run::<Gauss1d, R, _, _, _, _>(block),
            Direct::Gauss2d => run::<Gauss2d, R, _, _, _, _>(block),
            Direct::Gauss2dElliptic => run::<Gauss2dElliptic, R, _, _, _, _>(block),
            Direct::Exponential => run::<Decay, R, _, _, _, _>(block),
            Direct::Lorentz => run::<Lorentz, R, _, _, _, _>(block),
        }
    }

    /// Returns the function that sums products of residuals and derivatives over the grid `x` (2, points) directly;
    /// `None` unless for a Gaussian on a lattice.
    pub fn sums<R: Real>(self, x: &[R]) -> Option<AddUp<R>> {
        let is_round = match self {
            Direct::Gauss2d => true,
            Direct::Gauss2dElliptic => false,
            _ => return None,
        };
        let lattice = Lattice::of(x, is_round)?;
        Some(Arc::new(move |sum| lattice.add_up(sum)))
    }

    /// Returns by what to multiply the formula's rounding bound for this model: 4/3 where an exponential is a product
    /// of two, else 1.
    pub fn roundings_of_factors(self) -> f32 {
        if matches!(self, Direct::Gauss2d | Direct::Gauss2dElliptic) {
            4.0 / 3.0
        } else {
            1.0
        }
    }

    /// Returns how to bound the rounding error of the values from the sums of a fit, where f32 holds the predictors
    /// exactly.
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

/// Fills the rows of a block with values and derivatives of the model type M.
fn run<M, R: Real, const P: usize, const D: usize, const K: usize, const N: usize>(
    block: LaneBlock<'_, R>,
) where
    M: Model<P, D, K, N>,
{
    pulp::Arch::new().dispatch(Evaluation::<M, R, P, D, K, N> {
        model: PhantomData,
        block,
    });
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
        let LaneBlock {
            points,
            of_points,
            grid,
            parameters,
            registers,
            y,
            rows,
            ..
        } = self.block;
        let Some(parameters) = parameters.first_chunk::<P>() else {
            return;
        };
        // factors behind the constants, left there by the first points of an evaluation, mean that there is a lattice
        let known = points.start == 0 || registers.len() > K;
        let lattice = match (&grid, M::EXPONENTIAL) {
            (LaneGrid::Shared(x), Exponential::Below) if D == 2 && known => {
                lattice::columns(x, points.start > 0)
            }
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
                    let (d, point) = if k < columns {
                        (0, k)
                    } else {
                        (D - 1, (k - columns) * columns)
                    };
                    let x = at(simd, &grid, point, of_points, v);
                    M::exponents::<R, S>(constants, x)[d]
                        .exp_below()
                        .store(factor, v);
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
                    let x = at(simd, &grid, point, of_points, v);
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
                    put(M::rows(constants, x, e), y.get(point), rows, v);
                }
                continue;
            };
            let (of_columns, of_lines) = factors.split_at(columns);
            let (mut column, mut line) = (points.start % columns, points.start / columns);
            for (rows, point) in rows {
                let e = V::load(simd, &of_columns[column], v) * V::load(simd, &of_lines[line], v);
                let x = at(simd, &grid, point, of_points, v);
                put(M::rows(constants, x, e), y.get(point), rows, v);
                column += 1;
                if column == columns {
                    (column, line) = (0, line + 1);
                }
            }
        }
    }
}

/// Returns the predictors at one of so many points, of part `v` of the lanes.
#[inline(always)]
fn at<R: Real, S: Simd, const D: usize>(
    simd: S,
    grid: &LaneGrid<'_, R>,
    point: usize,
    of_points: usize,
    v: usize,
) -> [V<R, S>; D] {
    // loops, not closures: where a compiler does not inline those, each instruction becomes a call
    let mut x = [V::splat(simd, R::ZERO); D];
    for d in 0..D {
        x[d] = match grid {
            LaneGrid::Shared(x) => V::splat(simd, x[d * of_points + point]),
            LaneGrid::Own(x) => V::load(simd, &x[d * of_points + point], v),
        };
    }
    x
}

/// Writes a point's N numbers (value, derivatives) into vector `v` of N rows; with `y`, the first becomes y − value.
#[inline(always)]
fn put<R: Real, S: Simd, const N: usize>(
    mut values: [V<R, S>; N],
    y: Option<&Lanes<R>>,
    rows: &mut [Lanes<R>],
    v: usize,
) {
    if let Some(y) = y {
        values[0] = values[0].below(y, v);
    }
    store(values, rows, v);
}

/// Writes values into part `v` of as many rows.
#[inline(always)]
fn store<R: Real, S: Simd, const C: usize>(values: [V<R, S>; C], rows: &mut [Lanes<R>], v: usize) {
    values
        .into_iter()
        .zip(rows)
        .for_each(|(value, row)| value.store(row, v));
}
