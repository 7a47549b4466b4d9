//! Sums of Gaussians on lattices of pixels, computed from sums along either axis with one exponential per column and
//! one per line.
//!
//! With u = (x − x₀) / s_x and v = (y − y₀) / s_y, a pixel's e^(−(u² + v²)/2) is a factor of its column times one of
//! its line, and each derivative is such a product times a power of u or v. So the sum over pixels of a product of two
//! derivatives is a sum over columns times one over lines. Only the residual is computed pixel by pixel. No more digits
//! cancel than in sums over single points. Where the square of a width underflows, derivatives are 0, which is their
//! limit, and not 0 · ∞ as for single points.

use pulp::{Simd, WithSimd};

use super::store_part;
use super::wide::LaneVector;
use crate::math::Real;
use crate::math::lanes::Lanes;
use crate::math::triangle::packed_index;
use crate::solver::small::LaneSum;

/// Columns and lines of pixels.
pub struct Lattice<R> {
    columns: Vec<R>,
    lines: Vec<R>,
    /// True if widths along both axes are one parameter: a, x₀, y₀, s, c instead of a, x₀, y₀, s_x, s_y, c.
    is_round: bool,
}

/// Number of shapes, which are the derivatives without factors that are the same for all pixels: e, e u, e v, e u², e
/// v² and 1, where e is the exponential.
const SHAPES: usize = 6;

impl<R: Real> Lattice<R> {
    /// Makes the lattice of a grid (2, points) that has all pairs of some x and y, line by line; `None` for any other
    /// grid.
    pub fn from_grid(x: &[R], is_round: bool) -> Option<Lattice<R>> {
        let columns = count_columns(x, false)?;
        let (x, y) = x.split_at(x.len() / 2);
        let lines = y.iter().step_by(columns).copied().collect();
        Some(Lattice {
            columns: x[..columns].to_vec(),
            lines,
            is_round,
        })
    }

    /// Sums products of residuals and derivatives (χ², gradient, normal matrix) over this lattice, for several fits
    /// side by side.
    pub fn add_up(&self, sum: LaneSum<'_, R>) {
        pulp::Arch::new().dispatch(LatticeEvaluation { lattice: self, sum });
    }
}

/// Computation of sums on a lattice.
struct LatticeEvaluation<'a, R> {
    lattice: &'a Lattice<R>,
    sum: LaneSum<'a, R>,
}

impl<R: Real> WithSimd for LatticeEvaluation<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let LatticeEvaluation {
            lattice:
                Lattice {
                    columns,
                    lines,
                    is_round,
                },
            sum,
        } = self;
        let LaneSum {
            parameters,
            registers,
            y,
            sums,
        } = sum;
        registers.resize(
            POWERS_PER_PLACE * (columns.len() + lines.len()),
            Lanes::splat(R::NAN),
        );
        let load_parameter = |p: usize, part: usize| LaneVector::load(simd, &parameters[p], part);
        for part in 0..LaneVector::<R, S>::PARTS_PER_ROW {
            // 1. Compute sums along both axes.
            let (a, widths, c) = match is_round {
                true => (
                    load_parameter(0, part),
                    [load_parameter(3, part); 2],
                    load_parameter(4, part),
                ),
                false => (
                    load_parameter(0, part),
                    [load_parameter(3, part), load_parameter(4, part)],
                    load_parameter(5, part),
                ),
            };
            let inverse_widths = [widths[0].inverse(), widths[1].inverse()];
            let (column_values, line_values) =
                registers.split_at_mut(POWERS_PER_PLACE * columns.len());
            let axes = [
                AxisSums::new(
                    simd,
                    columns,
                    [load_parameter(1, part), inverse_widths[0]],
                    column_values,
                    part,
                ),
                AxisSums::new(
                    simd,
                    lines,
                    [load_parameter(2, part), inverse_widths[1]],
                    line_values,
                    part,
                ),
            ];
            // 2. Multiply the shapes with the residuals and with each other.
            let residuals = ResidualSums::new(simd, [a, c], [column_values, line_values], y, part);
            let shape_products = multiply_shapes(simd, &axes, y.len());
            let scales = [a * inverse_widths[0], a * inverse_widths[1]];
            // 3. Scale them to sums of derivatives.
            if *is_round {
                store_sums(
                    residuals.merge_widths(),
                    merge_widths(shape_products),
                    [a.one(), scales[0], scales[0], scales[0], a.one()],
                    sums,
                    part,
                );
            } else {
                let [sx, sy] = scales;
                store_sums(
                    residuals.shapes,
                    shape_products,
                    [a.one(), sx, sy, sx, sy, a.one()],
                    sums,
                    part,
                );
            }
            residuals.cost.store(&mut sums[0], part);
        }
    }
}

/// Number of values that each column and each line has: e, e u and e u².
const POWERS_PER_PLACE: usize = 3;

/// Sums of e² u^k and of e u^k along one axis.
struct AxisSums<R: Real, S: Simd> {
    squares: [LaneVector<R, S>; 5],
    singles: [LaneVector<R, S>; POWERS_PER_PLACE],
}

impl<R: Real, S: Simd> AxisSums<R, S> {
    /// Writes one part of e, e u and e u² at each of the places `x` into `factors` and returns their sums.
    #[inline(always)]
    fn new(
        simd: S,
        x: &[R],
        [middle, inverse_width]: [LaneVector<R, S>; 2],
        factors: &mut [Lanes<R>],
        part: usize,
    ) -> AxisSums<R, S> {
        let factors = factors.as_chunks_mut::<POWERS_PER_PLACE>().0;
        for (x, place_factors) in x.iter().zip(&mut *factors) {
            // u² / 2 has seven roundings. They must stay fewer than the bounds of the models count.
            let u = (LaneVector::splat(simd, *x) - middle) * inverse_width;
            let e = (u * u * u.splat_constant(-0.5)).exp_not_positive();
            let e_u = e * u;
            store_part([e, e_u, e_u * u], place_factors, part);
        }
        let mut axis = AxisSums {
            squares: [LaneVector::splat(simd, R::ZERO); 5],
            singles: [LaneVector::splat(simd, R::ZERO); POWERS_PER_PLACE],
        };
        let AxisSums { squares, singles } = &mut axis;
        for place_factors in factors {
            let [e, e_u, e_u_squared] = load_part(simd, place_factors, part);
            let pairs = [
                (e, e),
                (e, e_u),
                (e_u, e_u),
                (e_u, e_u_squared),
                (e_u_squared, e_u_squared),
            ];
            for k in 0..5 {
                squares[k] = pairs[k].0.times_plus(pairs[k].1, squares[k]);
            }
            for (single, power) in singles.iter_mut().zip([e, e_u, e_u_squared]) {
                *single = *single + power;
            }
        }
        axis
    }
}

/// Sums over pixels of the residual's square and of its products with the shapes.
struct ResidualSums<R: Real, S: Simd> {
    cost: LaneVector<R, S>,
    shapes: [LaneVector<R, S>; SHAPES],
}

impl<R: Real, S: Simd> ResidualSums<R, S> {
    /// Adds up the pixels `y` line by line, with the values that [`AxisSums::new`] made of columns and lines.
    #[inline(always)]
    fn new(
        simd: S,
        [a, c]: [LaneVector<R, S>; 2],
        [column_values, line_values]: [&[Lanes<R>]; 2],
        y: &[Lanes<R>],
        part: usize,
    ) -> ResidualSums<R, S> {
        let zero = LaneVector::splat(simd, R::ZERO);
        let column_values = column_values.as_chunks::<POWERS_PER_PLACE>().0;
        let line_values = line_values.as_chunks::<POWERS_PER_PLACE>().0;
        let mut cost = zero;
        let mut residual_sum = zero;
        let mut shapes = [zero; SHAPES];
        for (line, y) in line_values.iter().zip(y.chunks_exact(column_values.len())) {
            let [e, e_v, e_v_squared] = load_part(simd, line, part);
            // 1. Sum the residuals of a line, times the powers of u.
            let height = a * e;
            let mut sums = [zero; POWERS_PER_PLACE];
            for (column, y) in column_values.iter().zip(y) {
                let powers = load_part(simd, column, part);
                let residual = height.times_plus(powers[0], c).subtract_from(y, part);
                cost = residual.times_plus(residual, cost);
                residual_sum = residual_sum + residual;
                for k in 0..POWERS_PER_PLACE {
                    sums[k] = residual.times_plus(powers[k], sums[k]);
                }
            }
            // 2. Multiply by the powers of v of the line.
            for (shape, (factor, sum)) in [(e, 0), (e, 1), (e_v, 0), (e, 2), (e_v_squared, 0)]
                .into_iter()
                .enumerate()
            {
                shapes[shape] = factor.times_plus(sums[sum], shapes[shape]);
            }
        }
        shapes[SHAPES - 1] = residual_sum;
        ResidualSums { cost, shapes }
    }
}

/// Returns the lower triangle of the products of the shapes with each other.
#[inline(always)]
fn multiply_shapes<R: Real, S: Simd>(
    simd: S,
    [u, v]: &[AxisSums<R, S>; 2],
    point_count: usize,
) -> [[LaneVector<R, S>; SHAPES]; SHAPES] {
    let mut shape_products = [[LaneVector::splat(simd, R::of(point_count as f64)); SHAPES]; SHAPES];
    // Powers of u and v in the shapes e, e u, e v, e u² and e v².
    const SHAPE_POWERS: [(usize, usize); SHAPES - 1] = [(0, 0), (1, 0), (0, 1), (2, 0), (0, 2)];
    for i in 0..SHAPES - 1 {
        let (u_power, v_power) = SHAPE_POWERS[i];
        for j in 0..=i {
            shape_products[i][j] =
                u.squares[u_power + SHAPE_POWERS[j].0] * v.squares[v_power + SHAPE_POWERS[j].1];
        }
        shape_products[SHAPES - 1][i] = u.singles[u_power] * v.singles[v_power];
    }
    shape_products
}

/// Returns the products with the shapes of u² and v² added up, for one width.
#[inline(always)]
fn merge_widths<R: Real, S: Simd>(
    products: [[LaneVector<R, S>; SHAPES]; SHAPES],
) -> [[LaneVector<R, S>; 5]; 5] {
    let mut merged = [[products[0][0]; 5]; 5];
    for i in 0..3 {
        merged[i][..=i].copy_from_slice(&products[i][..=i]);
        merged[3][i] = products[3][i] + products[4][i];
        merged[4][i] = products[5][i];
    }
    merged[3][3] = products[4][3].times_plus(
        products[4][3].one() + products[4][3].one(),
        products[3][3] + products[4][4],
    );
    merged[4][3] = products[5][3] + products[5][4];
    merged[4][4] = products[5][5];
    merged
}

impl<R: Real, S: Simd> ResidualSums<R, S> {
    /// Returns the products with the shapes of u² and v² added up, for one width.
    #[inline(always)]
    fn merge_widths(&self) -> [LaneVector<R, S>; 5] {
        let [e, u, v, uu, vv, one] = self.shapes;
        [e, u, v, uu + vv, one]
    }
}

/// Writes the products of derivatives, which are the shapes times `scales`, with the residuals and with each other into
/// one part of the sums.
#[inline(always)]
fn store_sums<R: Real, S: Simd, const P: usize>(
    residuals: [LaneVector<R, S>; P],
    products: [[LaneVector<R, S>; P]; P],
    scales: [LaneVector<R, S>; P],
    sums: &mut [Lanes<R>],
    part: usize,
) {
    for p in 0..P {
        let row = &mut sums[packed_index(p + 1, 0)..][..p + 2];
        (residuals[p] * scales[p]).store(&mut row[0], part);
        for q in 0..=p {
            (products[p][q] * scales[p] * scales[q]).store(&mut row[q + 1], part);
        }
    }
}

/// Loads one part of each row.
#[inline(always)]
fn load_part<R: Real, S: Simd, const C: usize>(
    simd: S,
    rows: &[Lanes<R>; C],
    part: usize,
) -> [LaneVector<R, S>; C] {
    let mut vectors = [LaneVector::load(simd, &rows[0], part); C];
    for k in 1..C {
        vectors[k] = LaneVector::load(simd, &rows[k], part);
    }
    vectors
}

/// Returns the number of points per line if a grid (2, points) has all pairs of some x and y, line by line; else
/// `None`. The pairs are not checked if it `is_lattice` by an earlier call.
pub fn count_columns<R: Real>(x: &[R], is_lattice: bool) -> Option<usize> {
    let (x, y) = x.split_at(x.len() / 2);
    let columns = y.iter().position(|y_j| *y_j != y[0])?;
    if is_lattice {
        return Some(columns);
    }
    let has_whole_lines = y.len().is_multiple_of(columns) && columns > 1;
    let is_line = |(line_x, line_y): (&[R], &[R])| {
        line_x == &x[..columns] && line_y.iter().all(|y_j| *y_j == line_y[0])
    };
    (has_whole_lines && x.chunks(columns).zip(y.chunks(columns)).all(is_line)).then_some(columns)
}
