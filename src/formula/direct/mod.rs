//! Five built-in models that are written out for lanes: numbers that a tape would pass from step to step through memory
//! stay in registers. Bounds of their rounding errors are computed from the sums of a fit. `lattice.rs` has Gaussians
//! on a grid of pixels that all fits share.

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
use models::{Decay, Exponential, Gauss1d, Gauss2d, Gauss2dElliptic, Lorentz, ModelKernel};
use wide::LaneVector;

/// Built-in model that is written out by hand.
#[derive(Clone, Copy, Debug)]
pub enum WrittenModel {
    Gauss1d,
    Gauss2d,
    Gauss2dElliptic,
    Exponential,
    Lorentz,
}

impl WrittenModel {
    /// Returns the hand-written version of a built-in model; `None` if the model of this name has none.
    pub fn find(name: &str) -> Option<WrittenModel> {
        match name {
            "gauss1d" => Some(WrittenModel::Gauss1d),
            "gauss2d" => Some(WrittenModel::Gauss2d),
            "gauss2d_elliptic" => Some(WrittenModel::Gauss2dElliptic),
            "exponential" => Some(WrittenModel::Exponential),
            "lorentz" => Some(WrittenModel::Lorentz),
            _ => None,
        }
    }

    /// Computes value and derivatives of the model at the points of a block, for several fits side by side, into its
    /// rows.
    pub fn evaluate<R: Real>(self, block: LaneBlock<'_, R>) {
        match self {
            WrittenModel::Gauss1d => evaluate_model::<Gauss1d, R, _, _, _, _>(block),
            WrittenModel::Gauss2d => evaluate_model::<Gauss2d, R, _, _, _, _>(block),
            WrittenModel::Gauss2dElliptic => {
                evaluate_model::<Gauss2dElliptic, R, _, _, _, _>(block)
            }
            WrittenModel::Exponential => evaluate_model::<Decay, R, _, _, _, _>(block),
            WrittenModel::Lorentz => evaluate_model::<Lorentz, R, _, _, _, _>(block),
        }
    }

    /// Returns the function that sums products of residuals and derivatives over the grid `x` (2, points) directly;
    /// `None` unless for a Gaussian on a lattice.
    pub fn lattice_sums<R: Real>(self, x: &[R]) -> Option<AddUp<R>> {
        let is_round = match self {
            WrittenModel::Gauss2d => true,
            WrittenModel::Gauss2dElliptic => false,
            _ => return None,
        };
        let lattice = Lattice::from_grid(x, is_round)?;
        Some(Arc::new(move |sum| lattice.add_up(sum)))
    }

    /// Returns the bound of the values' rounding error that is computed from the sums of a fit, where f32 holds the
    /// predictors exactly.
    pub fn sum_rounding(self) -> SumRounding {
        match self {
            WrittenModel::Gauss1d => Gauss1d::SUM_ROUNDING,
            WrittenModel::Gauss2d => Gauss2d::SUM_ROUNDING,
            WrittenModel::Gauss2dElliptic => Gauss2dElliptic::SUM_ROUNDING,
            WrittenModel::Exponential => Decay::SUM_ROUNDING,
            WrittenModel::Lorentz => Lorentz::SUM_ROUNDING,
        }
    }
}

/// Fills the rows of a block with values and derivatives of the model type M.
fn evaluate_model<M, R: Real, const P: usize, const D: usize, const K: usize, const N: usize>(
    block: LaneBlock<'_, R>,
) where
    M: ModelKernel<P, D, K, N>,
{
    pulp::Arch::new().dispatch(BlockEvaluation::<M, R, P, D, K, N> {
        model: PhantomData,
        block,
    });
}

/// Evaluation of a model at some points of a block.
struct BlockEvaluation<'a, M, R, const P: usize, const D: usize, const K: usize, const N: usize> {
    model: PhantomData<M>,
    block: LaneBlock<'a, R>,
}

impl<M, R: Real, const P: usize, const D: usize, const K: usize, const N: usize> WithSimd
    for BlockEvaluation<'_, M, R, P, D, K, N>
where
    M: ModelKernel<P, D, K, N>,
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
        // 1. Find out whether the points are a lattice. The first points of a block leave factors behind the constants
        //    if
        //    they are, and the later points look for these.
        let may_be_lattice = points.start == 0 || registers.len() > K;
        let column_count = match (&grid, M::EXPONENTIAL) {
            (LaneGrid::Shared(x), Exponential::NotPositive) if D == 2 && may_be_lattice => {
                lattice::count_columns(x, points.start > 0)
            }
            _ => None,
        };
        let factor_count = column_count.map_or(0, |columns| columns + of_points / columns);
        registers.resize(K + factor_count, Lanes::splat(R::NAN));
        for part in 0..LaneVector::<R, S>::PARTS_PER_ROW {
            // 2. With the first points, compute the constants and, on a lattice, the factors of columns and lines.
            if points.start == 0 {
                let mut loaded = [LaneVector::splat(simd, R::ZERO); P];
                for p in 0..P {
                    loaded[p] = LaneVector::load(simd, &parameters[p], part);
                }
                let constants = M::compute_constants(loaded);
                store_part(constants, registers, part);
                let columns = column_count.unwrap_or(0);
                for (k, factor) in registers[K..].iter_mut().enumerate() {
                    let (d, point) = if k < columns {
                        (0, k)
                    } else {
                        (D - 1, (k - columns) * columns)
                    };
                    let x = load_predictors(simd, &grid, point, of_points, part);
                    M::compute_exponents::<R, S>(constants, x)[d]
                        .exp_not_positive()
                        .store(factor, part);
                }
            }
            let (constants, factors) = registers.split_at(K);
            let mut loaded = [LaneVector::splat(simd, R::ZERO); K];
            for k in 0..K {
                loaded[k] = LaneVector::load(simd, &constants[k], part);
            }
            let constants = loaded;
            let rows = rows.chunks_exact_mut(N).zip(points.clone());
            // 3. At points of any kind, compute one exponential per point.
            let Some(columns) = column_count else {
                for (rows, point) in rows {
                    let x = load_predictors(simd, &grid, point, of_points, part);
                    let summands = M::compute_exponents(constants, x);
                    let mut q = summands[0];
                    for summand in &summands[1..] {
                        q = q + *summand;
                    }
                    let e = match M::EXPONENTIAL {
                        Exponential::NotPositive => q.exp_not_positive(),
                        Exponential::Any => q.exp(),
                        Exponential::None => q,
                    };
                    store_rows(M::compute_rows(constants, x, e), y.get(point), rows, part);
                }
                continue;
            };
            // 4. On a lattice, the exponential is the product of the factors of the column and of the line.
            let (column_factors, line_factors) = factors.split_at(columns);
            let mut column = points.start % columns;
            let mut line = points.start / columns;
            for (rows, point) in rows {
                let e = LaneVector::load(simd, &column_factors[column], part)
                    * LaneVector::load(simd, &line_factors[line], part);
                let x = load_predictors(simd, &grid, point, of_points, part);
                store_rows(M::compute_rows(constants, x, e), y.get(point), rows, part);
                column += 1;
                if column == columns {
                    column = 0;
                    line += 1;
                }
            }
        }
    }
}

/// Loads the predictors at a point, for one part of the lanes.
#[inline(always)]
fn load_predictors<R: Real, S: Simd, const D: usize>(
    simd: S,
    grid: &LaneGrid<'_, R>,
    point: usize,
    of_points: usize,
    part: usize,
) -> [LaneVector<R, S>; D] {
    // This is a loop, because a closure that the compiler does not inline would make each instruction a call.
    let mut x = [LaneVector::splat(simd, R::ZERO); D];
    for d in 0..D {
        x[d] = match grid {
            LaneGrid::Shared(x) => LaneVector::splat(simd, x[d * of_points + point]),
            LaneGrid::Own(x) => LaneVector::load(simd, &x[d * of_points + point], part),
        };
    }
    x
}

/// Writes value and derivatives at a point into one part of N rows; with `y`, the first becomes y − value.
#[inline(always)]
fn store_rows<R: Real, S: Simd, const N: usize>(
    mut values: [LaneVector<R, S>; N],
    y: Option<&Lanes<R>>,
    rows: &mut [Lanes<R>],
    part: usize,
) {
    if let Some(y) = y {
        values[0] = values[0].subtract_from(y, part);
    }
    store_part(values, rows, part);
}

/// Writes vectors into one part of as many rows.
#[inline(always)]
fn store_part<R: Real, S: Simd, const C: usize>(
    values: [LaneVector<R, S>; C],
    rows: &mut [Lanes<R>],
    part: usize,
) {
    values
        .into_iter()
        .zip(rows)
        .for_each(|(value, row)| value.store(row, part));
}
