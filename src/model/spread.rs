//! A Gaussian line spread as a banded matrix on the template's pixels, f64 on the host (`line_spread`).
//!
//! Row j is the Gaussian of its own width, sampled at the pixels' centres out to five σ and renormalised inside the
//! segment: nothing leaks from beyond its ends. A line spread narrower than half a template pixel is not resolved by
//! it, and does nothing.

use super::{LineSpread, ModelArm};
use crate::emulator::GridSegment;
use crate::math::Real;

/// Full width at half maximum of a Gaussian of σ = 1, as rvspecfit and DESI round it.
const FWHM: f64 = 2.3548;
/// σ: the tail beyond it is 6e-7.
const REACH: f64 = 5.0;

#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Odd.
    pub diagonals: usize,
    /// (diagonals, columns), stored as [`Resolve`](crate::recording::Resolve) reads it.
    pub values: Vec<f64>,
    pub columns: usize,
}

/// Returns σ of the Gaussian line spread at a template pixel, in ln λ; 0 if the arm has none or takes it from the file.
fn spread_at(arm: &ModelArm, pixel: usize) -> f64 {
    match arm.line_spread {
        LineSpread::ResolvingPower(power) => 1.0 / (FWHM * power),
        LineSpread::Fwhm(width) => width / (FWHM * arm.emulator.wavelength()[pixel]),
        LineSpread::None | LineSpread::File => 0.0,
    }
}

/// Returns the reach of an arm's Gaussian line spread to either side in a segment, in template pixels. It is that of
/// the shortest wavelength, which has the widest kernel.
pub fn half_width(arm: &ModelArm, segment: &GridSegment) -> f64 {
    (REACH * spread_at(arm, segment.start) / segment.step).ceil()
}

impl Spread {
    /// Makes the banded matrix that convolves a template with an arm's Gaussian line spread; `None` where it has none.
    /// `columns` is the stride of its rows.
    pub fn new(arm: &ModelArm, columns: usize) -> Option<Spread> {
        let sigma = |j: usize| spread_at(arm, j);
        let half = arm
            .grid
            .segments
            .iter()
            .map(|segment| half_width(arm, segment))
            .fold(0.0, f64::max) as usize;
        if half == 0 {
            return None;
        }
        let diagonals = 2 * half + 1;
        let mut values = vec![0.0; diagonals * columns];
        for segment in &arm.grid.segments {
            for j in segment.start..segment.end {
                let range =
                    j.saturating_sub(half).max(segment.start)..(j + half + 1).min(segment.end);
                let narrow = segment.step / sigma(j);
                let weight = |i: usize| (-0.5 * ((i as f64 - j as f64) * narrow).powi(2)).exp();
                let total: f64 = range.clone().map(weight).sum();
                for i in range {
                    values[(j + half - i) * columns + i] = weight(i) / total;
                }
            }
        }
        Some(Spread {
            diagonals,
            values,
            columns,
        })
    }

    /// Convolves one row of at most `columns` template pixels with the line spread, in place.
    pub fn apply<R: Real>(&self, row: &mut [R]) {
        let (half, pixels) = (self.diagonals / 2, row.len());
        let mut out = vec![0.0; pixels];
        for (d, band) in self.values.chunks_exact(self.columns).enumerate() {
            for (column, (m, x)) in band.iter().zip(row.iter()).enumerate() {
                if let Some(o) = (column + d).checked_sub(half).and_then(|j| out.get_mut(j)) {
                    *o += m * x.to_f64();
                }
            }
        }
        for (x, o) in row.iter_mut().zip(out) {
            *x = R::of(o);
        }
    }
}
