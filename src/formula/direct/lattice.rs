//! Gaussians on lattices of pixels: their sums from sums along either axis, with one exponential per column and one per
//! line.
//!
//! With u = (x − x₀) / s_x and v = (y − y₀) / s_y, a pixel's e^(−(u² + v²)/2) is a factor of its column times one of
//! its line, and each derivative is such a product times a power of u or v. So a product of two of them, added up over
//! pixels, is a sum over columns times one over lines. Only the residual is computed pixel by pixel. No more digits
//! cancel than in sums over single points. Where the square of a width underflows, derivatives are 0, which is their
//! limit, and not 0 · ∞ as for single points.

use pulp::{Simd, WithSimd};

use super::store;
use super::wide::V;
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
    /// Returns the distinct x and y of a grid (2, points) that is all pairs of them, line by line; `None` for any other
    /// grid.
    pub fn of(x: &[R], is_round: bool) -> Option<Lattice<R>> {
        let columns = columns(x, false)?;
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
        pulp::Arch::new().dispatch(Evaluation { lattice: self, sum });
    }
}

/// A computation of sums on a lattice.
struct Evaluation<'a, R> {
    lattice: &'a Lattice<R>,
    sum: LaneSum<'a, R>,
}

impl<R: Real> WithSimd for Evaluation<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Evaluation {
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
        registers.resize(POWERS * (columns.len() + lines.len()), Lanes::splat(R::NAN));
        let of = |p: usize, v: usize| V::load(simd, &parameters[p], v);
        for v in 0..V::<R, S>::COUNT {
            let (a, widths, c) = match is_round {
                true => (of(0, v), [of(3, v); 2], of(4, v)),
                false => (of(0, v), [of(3, v), of(4, v)], of(5, v)),
            };
            let per_width = [widths[0].inverse(), widths[1].inverse()];
            let (of_columns, of_lines) = registers.split_at_mut(POWERS * columns.len());
            let axes = [
                Axis::new(simd, columns, [of(1, v), per_width[0]], of_columns, v),
                Axis::new(simd, lines, [of(2, v), per_width[1]], of_lines, v),
            ];
            let residuals = Residuals::new(simd, [a, c], [of_columns, of_lines], y, v);
            let products = products(simd, &axes, y.len());
            let scales = [a * per_width[0], a * per_width[1]];
            if *is_round {
                put(
                    residuals.round(),
                    round(products),
                    [a.one(), scales[0], scales[0], scales[0], a.one()],
                    sums,
                    v,
                );
            } else {
                let [sx, sy] = scales;
                put(
                    residuals.shapes,
                    products,
                    [a.one(), sx, sy, sx, sy, a.one()],
                    sums,
                    v,
                );
            }
            residuals.cost.store(&mut sums[0], v);
        }
    }
}

/// Number of values that each column and each line has: e, e u and e u².
const POWERS: usize = 3;

/// Sums along one axis, of e² u^k and of e u^k.
struct Axis<R: Real, S: Simd> {
    squares: [V<R, S>; 5],
    singles: [V<R, S>; POWERS],
}

impl<R: Real, S: Simd> Axis<R, S> {
    /// Writes part `v` of e, e u and e u² at each of the places `x` into `factors` and returns their sums.
    #[inline(always)]
    fn new(
        simd: S,
        x: &[R],
        [middle, per_width]: [V<R, S>; 2],
        factors: &mut [Lanes<R>],
        v: usize,
    ) -> Axis<R, S> {
        let factors = factors.as_chunks_mut::<POWERS>().0;
        for (x, own) in x.iter().zip(&mut *factors) {
            // u² / 2 has seven roundings, which must stay fewer than the models' bounds count
            let u = (V::splat(simd, *x) - middle) * per_width;
            let e = (u * u * u.number(-0.5)).exp_below();
            let slope = e * u;
            store([e, slope, slope * u], own, v);
        }
        let mut axis = Axis {
            squares: [V::splat(simd, R::ZERO); 5],
            singles: [V::splat(simd, R::ZERO); POWERS],
        };
        let Axis { squares, singles } = &mut axis;
        for own in factors {
            let [e, first, second] = load(simd, own, v);
            let pairs = [
                (e, e),
                (e, first),
                (first, first),
                (first, second),
                (second, second),
            ];
            for k in 0..5 {
                squares[k] = pairs[k].0.times_plus(pairs[k].1, squares[k]);
            }
            for (single, power) in singles.iter_mut().zip([e, first, second]) {
                *single = *single + power;
            }
        }
        axis
    }
}

/// Sums over pixels of the residual's square and of its products with the shapes.
struct Residuals<R: Real, S: Simd> {
    cost: V<R, S>,
    shapes: [V<R, S>; SHAPES],
}

impl<R: Real, S: Simd> Residuals<R, S> {
    /// Adds up the pixels `y` line by line, with the values that [`Axis::new`] made of columns and lines.
    #[inline(always)]
    fn new(
        simd: S,
        [a, c]: [V<R, S>; 2],
        [of_columns, of_lines]: [&[Lanes<R>]; 2],
        y: &[Lanes<R>],
        v: usize,
    ) -> Residuals<R, S> {
        let zero = V::splat(simd, R::ZERO);
        let (of_columns, of_lines) = (
            of_columns.as_chunks::<POWERS>().0,
            of_lines.as_chunks::<POWERS>().0,
        );
        let (mut cost, mut rest, mut shapes) = (zero, zero, [zero; SHAPES]);
        for (line, y) in of_lines.iter().zip(y.chunks_exact(of_columns.len())) {
            let [f, first, second] = load(simd, line, v);
            let (height, mut sums) = (a * f, [zero; POWERS]);
            for (column, y) in of_columns.iter().zip(y) {
                let powers = load(simd, column, v);
                let r = height.times_plus(powers[0], c).below(y, v);
                cost = r.times_plus(r, cost);
                rest = rest + r;
                for k in 0..POWERS {
                    sums[k] = r.times_plus(powers[k], sums[k]);
                }
            }
            for (shape, (factor, sum)) in [(f, 0), (f, 1), (first, 0), (f, 2), (second, 0)]
                .into_iter()
                .enumerate()
            {
                shapes[shape] = factor.times_plus(sums[sum], shapes[shape]);
            }
        }
        shapes[SHAPES - 1] = rest;
        Residuals { cost, shapes }
    }
}

/// Returns the lower triangle of the products of the shapes with each other.
#[inline(always)]
fn products<R: Real, S: Simd>(
    simd: S,
    [u, v]: &[Axis<R, S>; 2],
    points: usize,
) -> [[V<R, S>; SHAPES]; SHAPES] {
    let mut all = [[V::splat(simd, R::of(points as f64)); SHAPES]; SHAPES];
    // powers of u and v in e, e u, e v, e u² and e v²
    const POWERS_OF: [(usize, usize); SHAPES - 1] = [(0, 0), (1, 0), (0, 1), (2, 0), (0, 2)];
    for i in 0..SHAPES - 1 {
        let (of_u, of_v) = POWERS_OF[i];
        for j in 0..=i {
            all[i][j] = u.squares[of_u + POWERS_OF[j].0] * v.squares[of_v + POWERS_OF[j].1];
        }
        all[SHAPES - 1][i] = u.singles[of_u] * v.singles[of_v];
    }
    all
}

/// Returns the products with the shapes of u² and v² added up, for one width.
#[inline(always)]
fn round<R: Real, S: Simd>(all: [[V<R, S>; SHAPES]; SHAPES]) -> [[V<R, S>; 5]; 5] {
    let mut out = [[all[0][0]; 5]; 5];
    for i in 0..3 {
        out[i][..=i].copy_from_slice(&all[i][..=i]);
        out[3][i] = all[3][i] + all[4][i];
        out[4][i] = all[5][i];
    }
    out[3][3] = all[4][3].times_plus(all[4][3].one() + all[4][3].one(), all[3][3] + all[4][4]);
    (out[4][3], out[4][4]) = (all[5][3] + all[5][4], all[5][5]);
    out
}

impl<R: Real, S: Simd> Residuals<R, S> {
    /// Returns the products with the shapes of u² and v² added up, for one width.
    #[inline(always)]
    fn round(&self) -> [V<R, S>; 5] {
        let [e, u, v, uu, vv, one] = self.shapes;
        [e, u, v, uu + vv, one]
    }
}

/// Writes the products of derivatives, which are the shapes times `scales`, with the residuals and with each other into
/// part `v` of their sums.
#[inline(always)]
fn put<R: Real, S: Simd, const P: usize>(
    residuals: [V<R, S>; P],
    products: [[V<R, S>; P]; P],
    scales: [V<R, S>; P],
    sums: &mut [Lanes<R>],
    v: usize,
) {
    for p in 0..P {
        let own = &mut sums[packed_index(p + 1, 0)..][..p + 2];
        (residuals[p] * scales[p]).store(&mut own[0], v);
        for q in 0..=p {
            (products[p][q] * scales[p] * scales[q]).store(&mut own[q + 1], v);
        }
    }
}

/// Returns part `v` of some rows.
#[inline(always)]
fn load<R: Real, S: Simd, const C: usize>(simd: S, rows: &[Lanes<R>; C], v: usize) -> [V<R, S>; C] {
    let mut all = [V::load(simd, &rows[0], v); C];
    for k in 1..C {
        all[k] = V::load(simd, &rows[k], v);
    }
    all
}

/// Returns the number of points per line if a grid (2, points) is all pairs of some x and y, line by line (unchecked if
/// `known`); else `None`.
pub fn columns<R: Real>(x: &[R], known: bool) -> Option<usize> {
    let (x, y) = x.split_at(x.len() / 2);
    let columns = y.iter().position(|other| *other != y[0])?;
    if known {
        return Some(columns);
    }
    let whole = y.len().is_multiple_of(columns) && columns > 1;
    let is_line = |(x_of, y_of): (&[R], &[R])| {
        x_of == &x[..columns] && y_of.iter().all(|other| *other == y_of[0])
    };
    (whole && x.chunks(columns).zip(y.chunks(columns)).all(is_line)).then_some(columns)
}
