//! Bins of one width over a segment, and at which shifts of them velocities lie.

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
    pub unreached: Vec<f32>,
    /// The segment does not cover some pixels at every velocity that is compared, so that their lines are used in part.
    pub is_cut: bool,
}

#[derive(Debug)]
pub struct Bins {
    /// Template pixels in a bin, a power of two.
    pub bin: usize,
    /// Bins of a template.
    pub count: usize,
    /// The smallest whole shift.
    first: i64,
    /// Whole shifts from that on, and their number padded.
    pub wanted: usize,
    pub shifts: usize,
    /// Shift of each velocity in bins, from the smallest whole one.
    pub positions: Vec<f64>,
}

impl Bins {
    /// Makes `count` bins of `bin` template pixels each, a power of two; their velocities are set later by `place`.
    pub fn new(bin: usize, count: usize) -> Bins {
        debug_assert!(bin.is_power_of_two());
        Bins {
            bin,
            count,
            first: 0,
            wanted: 0,
            shifts: 0,
            positions: Vec::new(),
        }
    }

    /// Stores each velocity's Doppler shift, in bins, relative to the whole shift `first`, which must not exceed any of
    /// them.
    pub fn place(&mut self, shifts: Vec<f64>, first: i64) {
        let high = shifts
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max)
            .ceil() as i64;
        (self.first, self.wanted) = (first, (high - first) as usize + 1);
        self.shifts = padded_shifts(self.wanted);
        self.positions = shifts
            .into_iter()
            .map(|shift| shift - first as f64)
            .collect();
    }

    /// Returns two arrays of zeros with room for the bins and all shifts, to be filled with a spectrum's sums.
    pub fn no_signals(&self) -> [Vec<f32>; 2] {
        [(); 2].map(|()| vec![0f32; self.count + self.shifts])
    }

    /// Returns the index in [`Signals`] of the bin that holds a pixel of the segment; `None` if it lies before the
    /// first.
    pub fn place_of(&self, pixel: usize) -> Option<usize> {
        usize::try_from((pixel >> self.bin.trailing_zeros()) as i64 - self.first).ok()
    }

    /// Returns the index of the whole shift at or below a fractional position among shifts, at most the last one.
    pub fn whole(&self, position: f64) -> usize {
        (position as usize).min(self.shifts - 1)
    }

    /// Converts a Doppler shift in bins to its fractional index among the placed shifts, clamped to their range.
    pub fn position(&self, shift: f64) -> f64 {
        (shift - self.first as f64).clamp(0.0, (self.wanted - 1) as f64)
    }

    /// Interpolates `row`, given at whole shifts from `low` on, linearly at the shifts of a range of velocity indices.
    pub fn between<'a>(
        &'a self,
        row: &'a [f32],
        low: usize,
        velocities: Range<usize>,
    ) -> impl Iterator<Item = f32> + 'a {
        self.positions[velocities].iter().map(move |&position| {
            let i = self.whole(position);
            let f = (position - i as f64) as f32;
            row[i - low] * (1.0 - f) + row[(i + 1).min(self.shifts - 1) - low] * f
        })
    }
}
