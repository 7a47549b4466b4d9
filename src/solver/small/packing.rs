//! What a device that makes small fits whole is sent of each fit, and what it sends back: rows of 32-bit numbers, in
//! the order of the fits.

use std::ops::Range;

use super::{Numbers, Shape, SmallBatch, SmallColumns, SmallProblem, WAITING, unit};
use crate::math::triangle::pair_index;
use crate::solver::Status;

/// Number of fits that are packed together. The last ones are filled up with fits of zeros.
pub const BLOCK: usize = 64;
/// What stands for infinite bounds: infinities in comparisons are not safe on every GPU.
const FAR: f64 = 1e30;

/// Bits of the last number of a result: the status, the rounds, and whether f32 is precise enough for the fit to end.
pub const ROUNDS_SHIFT: u32 = 8;
pub const SURE: u32 = 1 << 22;
/// Largest number of rounds that has room between them.
pub const MOST_ROUNDS: u32 = (1 << 14) - 1;

/// How fits of such a device may end beside success.
const ENDS_WITHOUT_SUCCESS: [Status; 4] = [
    Status::MaxRounds,
    Status::Singular,
    Status::NotFinite,
    Status::Stalled,
];

/// Numbers of each fit. P is the number of parameters.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    pub shape: Shape,
    points: usize,
    predictors: usize,
    parameters: usize,
    correlations: bool,
}

impl Packing {
    /// Returns the layout of a problem's fits of some shape.
    pub fn new(problem: &SmallProblem, shape: Shape) -> Packing {
        let SmallProblem {
            points,
            predictors,
            parameters,
            correlations,
            ..
        } = *problem;
        Packing {
            shape,
            points,
            predictors,
            parameters,
            correlations,
        }
    }

    /// Returns how many numbers of a fit its kernel reads in every round: y, and weights where there are any.
    pub fn counted(self) -> usize {
        self.points * if self.shape.is_weighted { 2 } else { 1 }
    }

    /// Returns how many numbers there are of a fit's points.
    pub fn observed(self) -> usize {
        self.counted()
            + if self.shape.own_grid {
                self.predictors * self.points
            } else {
                0
            }
    }

    /// Returns where the lower bounds begin in what is given of a fit's parameters.
    pub fn lower(self) -> usize {
        self.parameters * if self.shape.own_units { 2 } else { 1 }
    }

    /// Returns how many numbers are given of a fit's parameters.
    pub fn given(self) -> usize {
        self.lower()
            + if self.shape.is_bounded {
                2 * self.parameters
            } else {
                0
            }
    }

    /// Returns how many numbers come back of a fit: parameters, variances, cost, its end, and correlations by
    /// [`pair_index`] where they are asked for. Those of one kind lie together in a block. Where f32 is not precise
    /// enough for the fit to end, the first variance is what its last step promised.
    pub fn result(self) -> usize {
        2 * self.parameters + 2 + self.pairs()
    }

    /// Returns how many correlations come back of a fit.
    pub fn pairs(self) -> usize {
        if self.correlations {
            pair_index(self.parameters, 0)
        } else {
            0
        }
    }

    /// Packs what there is of the points of a block of `fits` into rows ([`BLOCK`], [`observed`](Self::observed)): y,
    /// weights where there are any, the grid where each fit has its own. The batch may have less than this shape has,
    /// but the same kind of grid.
    pub fn pack_observed(self, fits: Range<usize>, batch: &SmallBatch<'_>, rows: &mut Vec<f32>) {
        let (points, length) = (self.points, self.predictors * self.points);
        let of = |width: usize| fits.start * width..fits.end * width;
        let mut rows = Columns::of(rows, self.observed());
        match batch.y {
            Numbers::Double(y) => rows.put(points, &y[of(points)], |y| y as f32),
            Numbers::Single(y) => rows.put(points, &y[of(points)], |y| y),
        }
        if self.shape.is_weighted {
            let weights: Vec<f64> = of(points).map(|j| weight(batch, j)).collect();
            rows.put(points, &weights, |weight| weight as f32);
        }
        if self.shape.own_grid {
            rows.put(length, &batch.x[of(length)], |x| x as f32);
        }
    }

    /// Packs what is given of the parameters of a block of `fits` into rows ([`BLOCK`], [`given`](Self::given)): start,
    /// units where they are not the starts' own, lower and upper bounds where there are any. The batch may have less
    /// than this shape has.
    pub fn pack_given(self, fits: Range<usize>, batch: &SmallBatch<'_>, rows: &mut Vec<f32>) {
        let p = self.parameters;
        let of = |width: usize| fits.start * width..fits.end * width;
        let mut rows = Columns::of(rows, self.given());
        rows.put(p, &batch.starts[of(p)], |x| x as f32);
        if self.shape.own_units {
            // units of the starts are those that the kernel makes of them in f32
            let starts = || {
                batch.starts[of(p)]
                    .iter()
                    .map(|start| unit(f64::from(*start as f32)))
                    .collect()
            };
            let units: Vec<f64> = batch
                .units
                .map_or_else(starts, |units| units[of(p)].to_vec());
            rows.put(p, &units, |unit| unit as f32);
        }
        if self.shape.is_bounded {
            let none = (&vec![-FAR; p][..], &vec![FAR; p][..]);
            let (lower, upper) = batch.bounds.unwrap_or(none);
            for bounds in [lower, upper] {
                let repeated = if bounds.len() == p {
                    bounds.repeat(fits.len())
                } else {
                    Vec::new()
                };
                let bounds = if bounds.len() == p {
                    &repeated
                } else {
                    &bounds[of(p)]
                };
                rows.put(p, bounds, |x| x.clamp(-FAR, FAR) as f32);
            }
        }
    }

    /// Returns the offsets of the parameters, the variances, the costs, the ends and the correlations in a block of
    /// results, and its length.
    fn offsets(self) -> [usize; 6] {
        let wide = BLOCK * self.parameters;
        [
            0,
            wide,
            2 * wide,
            2 * wide + BLOCK,
            2 * wide + 2 * BLOCK,
            BLOCK * self.result(),
        ]
    }

    /// Writes results of a block of fits that end in their first round where they began.
    pub fn end_at_starts(self, given: &[f32], results: &mut [u32]) {
        let (p, [_, variances, _, ends, pairs, _]) = (self.parameters, self.offsets());
        for (to, given) in results
            .chunks_exact_mut(p)
            .zip(given.chunks_exact(self.given()))
        {
            to.iter_mut()
                .zip(given)
                .for_each(|(to, start)| *to = start.to_bits());
        }
        results[variances..ends].fill(1.0f32.to_bits());
        results[ends..pairs].fill(Status::Ftol.code() as u32 | 1 << ROUNDS_SHIFT | SURE);
        results[pairs..].fill(0.0f32.to_bits());
    }

    /// Copies the results of a part's waiting fits to their columns. Returns the first fit that cannot have ended as it
    /// says, if there is one.
    pub fn unpack(self, results: &[u32], columns: &mut SmallColumns<'_>) -> Result<(), usize> {
        let SmallColumns {
            parameters,
            variances,
            correlations,
            chi2,
            promises,
            status,
            rounds,
        } = columns;
        let (p, [_, squares, costs, ends, pairs, end]) = (self.parameters, self.offsets());
        for (first, block) in (0..status.len())
            .step_by(BLOCK)
            .zip(results.chunks_exact(end))
        {
            let last = status.len().min(first + BLOCK);
            copy(
                &block[..squares],
                &mut parameters[first * p..last * p],
                &status[first..last],
            );
            copy(
                &block[squares..costs],
                &mut variances[first * p..last * p],
                &status[first..last],
            );
            copy(
                &block[costs..ends],
                &mut chi2[first..last],
                &status[first..last],
            );
            if let Some(all) = correlations.as_deref_mut().filter(|_| self.pairs() > 0) {
                let matrices = all[first * p * p..last * p * p].chunks_exact_mut(p * p);
                let fits = matrices
                    .zip(block[pairs..].chunks_exact(self.pairs()))
                    .zip(&status[first..last]);
                fits.filter(|(_, status)| **status == WAITING)
                    .for_each(|((to, words), _)| put_below(words, p, to));
            }
            for (k, &code) in (first..last).zip(&block[ends..pairs]) {
                if status[k] != WAITING {
                    continue;
                }
                let made = (code >> ROUNDS_SHIFT) & MOST_ROUNDS;
                let is_end = Status::from_code((code as u8 as i8).into()).is_some_and(|status| {
                    status.is_success() && chi2[k].is_finite()
                        || ENDS_WITHOUT_SUCCESS.contains(&status)
                });
                if !is_end || made == 0 || code >= SURE << 1 {
                    return Err(k);
                }
                promises[k] = f64::NAN;
                if code & SURE == 0 {
                    let own = &mut variances[k * p..(k + 1) * p];
                    promises[k] = own[0];
                    own.fill(f64::NAN);
                }
                (status[k], rounds[k]) = (code as u8 as i8, rounds[k].saturating_add(made as u16));
            }
        }
        Ok(())
    }
}

/// Copies numbers (fits, …) of the fits that are waiting.
fn copy(words: &[u32], to: &mut [f64], status: &[i8]) {
    let number = |word: &u32| f64::from(f32::from_bits(*word));
    // as a rule all are, and a long loop without a branch is vector code
    if status
        .iter()
        .fold(true, |all, status| all & (*status == WAITING))
    {
        to.iter_mut()
            .zip(words)
            .for_each(|(to, word)| *to = number(word));
        return;
    }
    let width = to.len() / status.len();
    let fits = to
        .chunks_exact_mut(width)
        .zip(words.chunks_exact(width))
        .zip(status);
    for ((to, words), _) in fits.filter(|(_, status)| **status == WAITING) {
        to.iter_mut()
            .zip(words)
            .for_each(|(to, word)| *to = number(word));
    }
}

/// Copies numbers below the diagonal of a matrix (p, p).
fn put_below(words: &[u32], p: usize, matrix: &mut [f64]) {
    for i in 1..p {
        let row = &words[pair_index(i, 0)..][..i];
        matrix[i * p..][..i]
            .iter_mut()
            .zip(row)
            .for_each(|(to, word)| *to = f32::from_bits(*word).into());
    }
}

/// Rows of a block, which are filled from the first column to the last.
struct Columns<'a> {
    rows: &'a mut [f32],
    stride: usize,
    next: usize,
}

impl Columns<'_> {
    /// Begins to fill rows of `stride` numbers.
    fn of(rows: &mut Vec<f32>, stride: usize) -> Columns<'_> {
        rows.resize(BLOCK * stride, 0.0);
        Columns {
            rows,
            stride,
            next: 0,
        }
    }

    /// Fills the next `width` columns with `values` (fits, width), and with zeros where there are no more fits.
    fn put<T: Copy>(&mut self, width: usize, values: &[T], single: impl Fn(T) -> f32) {
        if width == self.stride {
            // one long loop instead of many short ones
            let (own, rest) = self.rows.split_at_mut(values.len());
            own.iter_mut()
                .zip(values)
                .for_each(|(to, value)| *to = single(*value));
            rest.fill(0.0);
            return;
        }
        let columns = self.next..self.next + width;
        let mut rows = self
            .rows
            .chunks_exact_mut(self.stride)
            .map(|row| &mut row[columns.clone()]);
        for (values, row) in values.chunks_exact(width).zip(rows.by_ref()) {
            row.iter_mut()
                .zip(values)
                .for_each(|(to, value)| *to = single(*value));
        }
        rows.for_each(|row| row.fill(0.0));
        self.next += width;
    }
}

/// Returns the weight of a point, counted through all fits: 1 / σ, 0 where it is masked.
fn weight(batch: &SmallBatch<'_>, index: usize) -> f64 {
    let masked = batch.mask.is_some_and(|mask| mask[index]);
    if masked {
        0.0
    } else {
        1.0 / batch.sigma.map_or(1.0, |sigma| sigma[index])
    }
}
