//! Bins of one width over a segment, and the shifts in bins at which velocities lie.

use std::ops::Range;

use crate::math::scan::padded_shifts;

/// Sums over a spectrum's pixels in the bins of a segment. D is its weighted data, and s its weight times the continuum
/// that was fitted without lines.
#[derive(Clone, Debug)]
pub struct Signals {
    /// Sums of s (D − s) and of s² in bins, padded for the shifts.
    pub sums: [Vec<f32>; 2],
    /// (shifts) Σ ((D − s)² − 1) over the pixels that the segment does not cover at a whole shift; empty if it covers
    /// all at every shift. A score is χ² less that of the continuum alone, and this sum is subtracted from it. The
    /// template then counts as if it fitted those pixels within their errors, so that lines beyond its ends do not
    /// speak against a velocity. The bins at both ends of a segment count as not covered, because between whole shifts
    /// they are covered in part.
    pub uncovered_misfit: Vec<f32>,
    /// Some compared velocities leave pixels uncovered by the segment, so that their lines are used in part.
    pub is_cut: bool,
}

impl Signals {
    /// Adds the sums of another exposure in the same bins.
    pub fn add(&mut self, other: &Signals) {
        for (sums, other_sums) in self.sums.iter_mut().zip(&other.sums) {
            add_row(sums, other_sums);
        }
        if self.uncovered_misfit.is_empty() {
            self.uncovered_misfit.clone_from(&other.uncovered_misfit);
        } else {
            add_row(&mut self.uncovered_misfit, &other.uncovered_misfit);
        }
        self.is_cut |= other.is_cut;
    }
}

/// Adds numbers to those at the same places.
fn add_row(sums: &mut [f32], numbers: &[f32]) {
    for (sum, number) in sums.iter_mut().zip(numbers) {
        *sum += number;
    }
}

/// Bins of one width over a segment.
#[derive(Debug)]
pub struct Bins {
    /// Template pixels per bin, a power of two.
    pub width: usize,
    /// Bins of a template.
    pub count: usize,
    /// The smallest whole shift.
    first_shift: i64,
    /// Number of whole shifts from that on.
    pub wanted_shifts: usize,
    /// The same number, padded.
    pub shifts: usize,
    /// Shift of each velocity in bins, from the smallest whole one.
    pub positions: Vec<f64>,
}

impl Bins {
    /// Returns `count` bins of `width` template pixels each, a power of two. [`place_shifts`](Bins::place_shifts) sets
    /// their shifts later.
    pub fn new(width: usize, count: usize) -> Bins {
        debug_assert!(width.is_power_of_two());
        Bins {
            width,
            count,
            first_shift: 0,
            wanted_shifts: 0,
            shifts: 0,
            positions: Vec::new(),
        }
    }

    /// Stores each velocity's Doppler shift, in bins, relative to `first_shift`, which must not exceed any of
    /// them.
    pub fn place_shifts(&mut self, shifts: Vec<f64>, first_shift: i64) {
        let highest = shifts.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        self.first_shift = first_shift;
        self.wanted_shifts = (highest.ceil() as i64 - first_shift) as usize + 1;
        self.shifts = padded_shifts(self.wanted_shifts);
        self.positions = shifts
            .into_iter()
            .map(|shift| shift - first_shift as f64)
            .collect();
    }

    /// Returns two arrays of zeros with room for the bins and all shifts, to be filled with a spectrum's sums.
    pub fn zero_signals(&self) -> [Vec<f32>; 2] {
        [(); 2].map(|()| vec![0f32; self.count + self.shifts])
    }

    /// Returns the index in [`Signals`] of the bin that holds a pixel of the segment; `None` if it lies before the
    /// first.
    pub fn signal_index(&self, pixel: usize) -> Option<usize> {
        usize::try_from((pixel >> self.width.trailing_zeros()) as i64 - self.first_shift).ok()
    }

    /// Returns the index of the whole shift at or below a fractional position among shifts, at most the last one.
    pub fn whole_shift(&self, position: f64) -> usize {
        (position as usize).min(self.shifts - 1)
    }

    /// Converts a Doppler shift in bins to its fractional index among the placed shifts, clamped to their range.
    pub fn clamp_position(&self, shift: f64) -> f64 {
        (shift - self.first_shift as f64).clamp(0.0, (self.wanted_shifts - 1) as f64)
    }

    /// Interpolates `row`, given at whole shifts from `low` on, linearly at the shifts of a range of velocity indices.
    pub fn interpolate<'a>(
        &'a self,
        row: &'a [f32],
        low: usize,
        velocities: Range<usize>,
    ) -> impl Iterator<Item = f32> + 'a {
        self.positions[velocities].iter().map(move |&position| {
            let whole = self.whole_shift(position);
            let fraction = (position - whole as f64) as f32;
            let next = (whole + 1).min(self.shifts - 1);
            row[whole - low] * (1.0 - fraction) + row[next - low] * fraction
        })
    }
}
