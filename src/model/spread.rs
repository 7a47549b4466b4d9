//! A Gaussian line spread as a banded matrix on the template's pixels, f64 on the host (`line_spread`).
//!
//! Row j is the Gaussian of that pixel's width, sampled at the pixels' centres out to five σ and renormalised inside
//! the segment, so that no light comes from beyond its ends. A line spread narrower than half a template pixel is not
//! resolved, and changes nothing.

use super::{LineSpread, ModelArm};
use crate::emulator::GridSegment;
use crate::math::Real;

/// Full width at half maximum of a Gaussian of σ = 1, as rvspecfit and DESI round it.
const FWHM_PER_SIGMA: f64 = 2.3548;
/// Distance in σ at which the Gaussian is cut off. The tails beyond it hold 6e-7 of its area.
const KERNEL_REACH: f64 = 5.0;

/// A Gaussian line spread function, as a banded matrix on the template's pixels.
#[derive(Clone, Debug, PartialEq)]
pub struct LineSpreadMatrix {
    /// Number of diagonals, which is odd.
    pub diagonals: usize,
    /// (diagonals, columns), stored as [`Resolve`](crate::recording::Resolve) reads it.
    pub values: Vec<f64>,
    /// Stride of the rows.
    pub columns: usize,
}

/// Returns σ of the Gaussian line spread at a template pixel, in ln λ; 0 if the arm has none or takes it from the file.
fn sigma_at(arm: &ModelArm, pixel: usize) -> f64 {
    match arm.line_spread {
        LineSpread::ResolvingPower(power) => 1.0 / (FWHM_PER_SIGMA * power),
        LineSpread::Fwhm(width) => width / (FWHM_PER_SIGMA * arm.emulator.wavelength()[pixel]),
        LineSpread::None | LineSpread::File => 0.0,
    }
}

/// Returns the reach of an arm's Gaussian line spread to either side in a segment, in template pixels. It is that of
/// the shortest wavelength, which has the widest kernel.
pub fn half_width(arm: &ModelArm, segment: &GridSegment) -> f64 {
    (KERNEL_REACH * sigma_at(arm, segment.start) / segment.step).ceil()
}

impl LineSpreadMatrix {
    /// Makes the banded matrix that convolves a template with an arm's Gaussian line spread; `None` where it has none.
    /// `columns` is the stride of its rows.
    pub fn new(arm: &ModelArm, columns: usize) -> Option<LineSpreadMatrix> {
        // 1. The widest kernel determines the number of diagonals.
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
        // 2. Each row is a Gaussian that is cut off and normalised inside its segment.
        for segment in &arm.grid.segments {
            for j in segment.start..segment.end {
                let neighbours =
                    j.saturating_sub(half).max(segment.start)..(j + half + 1).min(segment.end);
                let pixels_to_sigma = segment.step / sigma_at(arm, j);
                let weight =
                    |i: usize| (-0.5 * ((i as f64 - j as f64) * pixels_to_sigma).powi(2)).exp();
                let total: f64 = neighbours.clone().map(weight).sum();
                for i in neighbours {
                    values[(j + half - i) * columns + i] = weight(i) / total;
                }
            }
        }
        Some(LineSpreadMatrix {
            diagonals,
            values,
            columns,
        })
    }

    /// Convolves one row of at most `columns` template pixels with the line spread, in place.
    pub fn apply<R: Real>(&self, row: &mut [R]) {
        let half = self.diagonals / 2;
        let mut convolved = vec![0.0; row.len()];
        for (d, band) in self.values.chunks_exact(self.columns).enumerate() {
            for (column, (weight, flux)) in band.iter().zip(row.iter()).enumerate() {
                let target = (column + d).checked_sub(half);
                if let Some(sum) = target.and_then(|j| convolved.get_mut(j)) {
                    *sum += weight * flux.to_f64();
                }
            }
        }
        for (flux, sum) in row.iter_mut().zip(convolved) {
            *flux = R::of(sum);
        }
    }
}
