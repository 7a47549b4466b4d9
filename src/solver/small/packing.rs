//! Packing of small fits for a device that makes them whole: inputs and results are rows of 32-bit numbers, in the
//! order of the fits.

use std::ops::Range;

use super::{Numbers, Shape, SmallBatch, SmallColumns, SmallProblem, WAITING, unit};
use crate::math::triangle::pair_index;
use crate::solver::Status;

/// Number of fits that are packed together. The last block is filled up with fits of zeros.
pub const FITS_PER_BLOCK: usize = 64;
/// Bound in place of an infinite one, because comparisons with infinities are not safe on every GPU.
const INFINITE_BOUND: f64 = 1e30;

/// First bit of the number of rounds in a result's last number, whose first bits are the status.
pub const ROUNDS_SHIFT: u32 = 8;
/// Bit of a result's last number that is set if f32 is precise enough for the fit to end.
pub const SURE: u32 = 1 << 22;
/// Maximum number of rounds that the bits between them can hold.
pub const MAX_PACKED_ROUNDS: u32 = (1 << 14) - 1;

/// Statuses of failure with which fits of such a device may end.
const ENDS_WITHOUT_SUCCESS: [Status; 4] = [
    Status::MaxRounds,
    Status::Singular,
    Status::NotFinite,
    Status::Stalled,
];

/// Layout of the numbers of each fit. P is the number of parameters.
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

    /// Returns the number of a fit's data that its kernel reads in every round: y, and weights if there are any.
    pub fn counted(self) -> usize {
        self.points * if self.shape.is_weighted { 2 } else { 1 }
    }

    /// Returns the number of all data of a fit's points.
    pub fn observed(self) -> usize {
        self.counted()
            + if self.shape.own_grid {
                self.predictors * self.points
            } else {
                0
            }
    }

    /// Returns the offset of the lower bounds in the inputs of a fit's parameters.
    pub fn lower(self) -> usize {
        self.parameters * if self.shape.own_units { 2 } else { 1 }
    }

    /// Returns the number of inputs of a fit's parameters: starts, units and bounds.
    pub fn given(self) -> usize {
        self.lower()
            + if self.shape.is_bounded {
                2 * self.parameters
            } else {
                0
            }
    }

    /// Returns the number of results of a fit: parameters, variances, cost, end, and correlations by [`pair_index`] if
    /// they are requested. Results of one kind lie together in a block. Where f32 is not precise enough for the fit to
    /// end, the first variance is the reduction that its last step predicted.
    pub fn result(self) -> usize {
        2 * self.parameters + 2 + self.pairs()
    }

    /// Returns the number of correlations in the results of a fit.
    pub fn pairs(self) -> usize {
        if self.correlations {
            pair_index(self.parameters, 0)
        } else {
            0
        }
    }

    /// Packs the data of a block of `fits` into rows ([`FITS_PER_BLOCK`], [`observed`](Self::observed)): y, weights if
    /// there are any, the grid if each fit has its own. The batch may lack data that this shape has, but must have the
    /// same kind of grid.
    pub fn pack_observed(self, fits: Range<usize>, batch: &SmallBatch<'_>, rows: &mut Vec<f32>) {
        let points = self.points;
        let data = fits.start * points..fits.end * points;
        let mut columns = BlockColumns::begin(rows, self.observed());
        match batch.y {
            Numbers::Double(y) => columns.push_columns(points, &y[data.clone()], |y| y as f32),
            Numbers::Single(y) => columns.push_columns(points, &y[data.clone()], |y| y),
        }
        if self.shape.is_weighted {
            let weights: Vec<f64> = data.map(|j| weight(batch, j)).collect();
            columns.push_columns(points, &weights, |weight| weight as f32);
        }
        if self.shape.own_grid {
            let length = self.predictors * points;
            let grids = &batch.x[fits.start * length..fits.end * length];
            columns.push_columns(length, grids, |x| x as f32);
        }
    }

    /// Packs the inputs of the parameters of a block of `fits` into rows ([`FITS_PER_BLOCK`], [`given`](Self::given)):
    /// starts, units unless they follow from the starts, lower and upper bounds if there are any. The batch may lack
    /// inputs that this shape has.
    pub fn pack_given(self, fits: Range<usize>, batch: &SmallBatch<'_>, rows: &mut Vec<f32>) {
        let p = self.parameters;
        let numbers = fits.start * p..fits.end * p;
        let starts = &batch.starts[numbers.clone()];
        let mut columns = BlockColumns::begin(rows, self.given());
        columns.push_columns(p, starts, |x| x as f32);
        if self.shape.own_units {
            let units: Vec<f64> = match batch.units {
                Some(units) => units[numbers.clone()].to_vec(),
                // The units that the kernel derives from the starts in f32.
                None => starts
                    .iter()
                    .map(|start| unit(f64::from(*start as f32)))
                    .collect(),
            };
            columns.push_columns(p, &units, |unit| unit as f32);
        }
        if self.shape.is_bounded {
            let unbounded = (&vec![-INFINITE_BOUND; p][..], &vec![INFINITE_BOUND; p][..]);
            let (lower, upper) = batch.bounds.unwrap_or(unbounded);
            for bounds in [lower, upper] {
                // Bounds are the same for all fits, (P), or those of each fit.
                let repeated = if bounds.len() == p {
                    bounds.repeat(fits.len())
                } else {
                    Vec::new()
                };
                let bounds = if bounds.len() == p {
                    &repeated
                } else {
                    &bounds[numbers.clone()]
                };
                columns.push_columns(p, bounds, |x| {
                    x.clamp(-INFINITE_BOUND, INFINITE_BOUND) as f32
                });
            }
        }
    }

    /// Returns the offsets of the parameters, the variances, the costs, the ends and the correlations in a block of
    /// results, and its length.
    fn offsets(self) -> [usize; 6] {
        let parameters = FITS_PER_BLOCK * self.parameters;
        [
            0,
            parameters,
            2 * parameters,
            2 * parameters + FITS_PER_BLOCK,
            2 * parameters + 2 * FITS_PER_BLOCK,
            FITS_PER_BLOCK * self.result(),
        ]
    }

    /// Writes the results of a block of fits that end in their first round, at their starts.
    pub fn end_at_starts(self, given: &[f32], results: &mut [u32]) {
        let p = self.parameters;
        let [_, variances, _, ends, pairs, _] = self.offsets();
        for (parameters, given) in results
            .chunks_exact_mut(p)
            .zip(given.chunks_exact(self.given()))
        {
            for (parameter, start) in parameters.iter_mut().zip(given) {
                *parameter = start.to_bits();
            }
        }
        results[variances..ends].fill(1.0f32.to_bits());
        results[ends..pairs].fill(Status::Ftol.code() as u32 | 1 << ROUNDS_SHIFT | SURE);
        results[pairs..].fill(0.0f32.to_bits());
    }

    /// Copies the results of a part's waiting fits to their columns. Returns the first fit whose reported end is
    /// impossible, if there is one.
    pub fn unpack(self, results: &[u32], columns: &mut SmallColumns<'_>) -> Result<(), usize> {
        let SmallColumns {
            parameters,
            variances,
            correlations,
            chi2,
            predicted_reductions,
            status,
            rounds,
        } = columns;
        let p = self.parameters;
        let [_, variances_at, costs_at, ends_at, pairs_at, length] = self.offsets();
        for (first, block) in (0..status.len())
            .step_by(FITS_PER_BLOCK)
            .zip(results.chunks_exact(length))
        {
            // 1. Copy the numbers of the fits that were waiting.
            let last = status.len().min(first + FITS_PER_BLOCK);
            let block_status = &status[first..last];
            copy_waiting(
                &block[..variances_at],
                &mut parameters[first * p..last * p],
                block_status,
            );
            copy_waiting(
                &block[variances_at..costs_at],
                &mut variances[first * p..last * p],
                block_status,
            );
            copy_waiting(
                &block[costs_at..ends_at],
                &mut chi2[first..last],
                block_status,
            );
            if let Some(correlations) = correlations.as_deref_mut().filter(|_| self.pairs() > 0) {
                let matrices = correlations[first * p * p..last * p * p].chunks_exact_mut(p * p);
                let packed = block[pairs_at..].chunks_exact(self.pairs());
                for ((matrix, words), status) in matrices.zip(packed).zip(block_status) {
                    if *status == WAITING {
                        unpack_below_diagonal(words, p, matrix);
                    }
                }
            }
            // 2. Check how they ended.
            for (k, &code) in (first..last).zip(&block[ends_at..pairs_at]) {
                if status[k] != WAITING {
                    continue;
                }
                let new_rounds = (code >> ROUNDS_SHIFT) & MAX_PACKED_ROUNDS;
                let status_code = code as u8 as i8;
                let is_possible = Status::from_code(status_code.into()).is_some_and(|status| {
                    status.is_success() && chi2[k].is_finite()
                        || ENDS_WITHOUT_SUCCESS.contains(&status)
                });
                if !is_possible || new_rounds == 0 || code >= SURE << 1 {
                    return Err(k);
                }
                // Where f32 was not precise enough, the first variance is the last predicted reduction.
                predicted_reductions[k] = f64::NAN;
                if code & SURE == 0 {
                    let variances = &mut variances[k * p..(k + 1) * p];
                    predicted_reductions[k] = variances[0];
                    variances.fill(f64::NAN);
                }
                status[k] = status_code;
                rounds[k] = rounds[k].saturating_add(new_rounds as u16);
            }
        }
        Ok(())
    }
}

/// Copies numbers (fits, …) of the fits that are waiting.
fn copy_waiting(words: &[u32], numbers: &mut [f64], status: &[i8]) {
    let number = |word: &u32| f64::from(f32::from_bits(*word));
    // As a rule all fits are waiting, and a long loop without a branch is vector code.
    let are_all_waiting = status
        .iter()
        .fold(true, |all, status| all & (*status == WAITING));
    if are_all_waiting {
        numbers
            .iter_mut()
            .zip(words)
            .for_each(|(to, word)| *to = number(word));
        return;
    }
    let width = numbers.len() / status.len();
    let fits = numbers
        .chunks_exact_mut(width)
        .zip(words.chunks_exact(width))
        .zip(status);
    for ((numbers, words), _) in fits.filter(|(_, status)| **status == WAITING) {
        numbers
            .iter_mut()
            .zip(words)
            .for_each(|(to, word)| *to = number(word));
    }
}

/// Copies numbers below the diagonal of a matrix (p, p).
fn unpack_below_diagonal(words: &[u32], p: usize, matrix: &mut [f64]) {
    for i in 1..p {
        let packed_row = &words[pair_index(i, 0)..][..i];
        matrix[i * p..][..i]
            .iter_mut()
            .zip(packed_row)
            .for_each(|(element, word)| *element = f32::from_bits(*word).into());
    }
}

/// Rows of a block, which are filled from the first column to the last.
struct BlockColumns<'a> {
    rows: &'a mut [f32],
    stride: usize,
    /// First column that has not been filled.
    next: usize,
}

impl BlockColumns<'_> {
    /// Begins to fill rows of `stride` numbers.
    fn begin(rows: &mut Vec<f32>, stride: usize) -> BlockColumns<'_> {
        rows.resize(FITS_PER_BLOCK * stride, 0.0);
        BlockColumns {
            rows,
            stride,
            next: 0,
        }
    }

    /// Fills the next `width` columns with `values` (fits, width), and with zeros where there are no more fits.
    fn push_columns<T: Copy>(&mut self, width: usize, values: &[T], to_f32: impl Fn(T) -> f32) {
        if width == self.stride {
            // One long loop instead of many short ones.
            let (used_rows, unused_rows) = self.rows.split_at_mut(values.len());
            used_rows
                .iter_mut()
                .zip(values)
                .for_each(|(element, value)| *element = to_f32(*value));
            unused_rows.fill(0.0);
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
                .for_each(|(element, value)| *element = to_f32(*value));
        }
        rows.for_each(|row| row.fill(0.0));
        self.next += width;
    }
}

/// Returns the weight of a point, counted through all fits: 1 / σ, 0 where it is masked.
fn weight(batch: &SmallBatch<'_>, index: usize) -> f64 {
    let is_masked = batch.mask.is_some_and(|mask| mask[index]);
    if is_masked {
        0.0
    } else {
        1.0 / batch.sigma.map_or(1.0, |sigma| sigma[index])
    }
}
