//! Lines of a segment's templates, in bins that blur neither them nor a range of velocities.

use std::ops::Range;

use rayon::prelude::*;

use crate::model::continuum::{evaluate_basis, inner_product, orthonormalise};
use crate::model::{ContinuumKind, ModelArm};

/// The lines of the templates in one segment.
pub struct Lines<'a> {
    /// (templates, stride)
    flux: &'a [f32],
    stride: usize,
    pixels: Range<usize>,
    /// The continuum's orthonormal basis (terms, pixels); none where the model has no continuum.
    basis: Vec<f64>,
}

impl Lines<'_> {
    /// Prepares line extraction for a range of template pixels of an arm: an orthonormal continuum basis that `of`
    /// fits.
    pub fn new<'a>(arm: &ModelArm, flux: &'a [f32], pixels: Range<usize>) -> Lines<'a> {
        let wavelength = &arm.emulator.wavelength()[pixels.clone()];
        let count = wavelength.len();
        let mut rows = evaluate_basis(
            arm.continuum,
            wavelength,
            wavelength[0],
            wavelength[count - 1],
        );
        let usable = arm.continuum.kind != ContinuumKind::None
            && orthonormalise(&mut rows, count, &vec![true; count]).is_some();
        let basis = if usable { rows } else { Vec::new() };
        Lines {
            flux,
            stride: arm.emulator.pixels(),
            pixels,
            basis,
        }
    }

    /// Returns a template's flux divided by its fitted continuum, less 1; flux − 1 where the model has no continuum
    /// (pixels).
    pub fn of(&self, template: usize) -> Vec<f64> {
        let flux = self.flux[template * self.stride..][self.pixels.clone()]
            .iter()
            .map(|f| f64::from(*f));
        if self.basis.is_empty() {
            return flux.map(|f| f - 1.0).collect();
        }
        let flux: Vec<f64> = flux.collect();
        let mut smooth = vec![0.0; flux.len()];
        for row in self.basis.chunks_exact(flux.len()) {
            let a = inner_product(row, &flux);
            smooth.iter_mut().zip(row).for_each(|(s, p)| *s += a * p);
        }
        flux.iter()
            .zip(&smooth)
            .map(|(f, s)| if *s > 0.0 { f / s - 1.0 } else { 0.0 })
            .collect()
    }

    /// Returns the lines and their squares of all templates, averaged in bins: (templates, coarse bins), and
    /// (templates, fine bins) in f32. A coarse bin has `ratio` fine ones.
    pub fn binned(
        &self,
        templates: usize,
        bin: usize,
        ratio: usize,
    ) -> ([Vec<f64>; 2], [Vec<f32>; 2]) {
        let fine = self.pixels.len().div_ceil(bin);
        let coarse = fine.div_ceil(ratio);
        let (mut rows, mut exact) = (
            [(); 2].map(|()| vec![0.0; templates * coarse]),
            [(); 2].map(|()| vec![0.0; templates * fine]),
        );
        let ([lines, squares], [exact_lines, exact_squares]) = (&mut rows, &mut exact);
        let places = (lines
            .par_chunks_mut(coarse)
            .zip(squares.par_chunks_mut(coarse)))
        .zip(
            exact_lines
                .par_chunks_mut(fine)
                .zip(exact_squares.par_chunks_mut(fine)),
        );
        places.enumerate().for_each(|(k, (rows, exact))| {
            let own = self.of(k);
            let both = [average(&own, bin, |l| l), average(&own, bin, |l| l * l)];
            for ((row, exact), values) in
                [(rows.0, exact.0), (rows.1, exact.1)].into_iter().zip(both)
            {
                exact
                    .iter_mut()
                    .zip(&values)
                    .for_each(|(exact, value)| *exact = *value as f32);
                row.copy_from_slice(&if ratio > 1 {
                    average(&values, ratio, |x| x)
                } else {
                    values
                });
            }
        });
        (rows, exact)
    }

    /// Averages a template's flux over bins of `bin` pixels, divided by its mean level if a continuum is fitted, less
    /// 1. Where a continuum has its own level, the template is divided by its mean over its arm first.
    pub fn whole(&self, template: usize, bin: usize) -> Vec<f32> {
        let all = &self.flux[template * self.stride..][..self.stride];
        let mean = all.iter().map(|f| f64::from(*f)).sum::<f64>() / all.len() as f64;
        let level = if self.basis.is_empty() || mean == 0.0 {
            1.0
        } else {
            mean
        };
        let own: Vec<f64> = all[self.pixels.clone()]
            .iter()
            .map(|f| f64::from(*f) / level - 1.0)
            .collect();
        average(&own, bin, |t| t)
            .into_iter()
            .map(|t| t as f32)
            .collect()
    }
}

/// Subtracts the mean of a row from its values.
pub fn centred(mut row: Vec<f64>) -> Vec<f64> {
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    row.iter_mut().for_each(|x| *x -= mean);
    row
}

/// Returns the widest bin (pixels, a power of two) at which lines shifted by one bin keep the share `least` of their
/// autocorrelation, with over 64 bins and 8 shifts left.
///
/// The correlation of the lines, which have the mean 0, with themselves shifted by the bin is at least `least`. A row
/// has `count` pixels, and the range of velocities is `shifts` pixels wide.
pub fn bin_width(lines: &[Vec<f64>], count: usize, shifts: f64, least: f64) -> usize {
    let at = |lag: usize| {
        lines
            .iter()
            .map(|row| inner_product(&row[lag..], &row[..count - lag]))
            .sum::<f64>()
    };
    let same = at(0).max(f64::MIN_POSITIVE);
    let mut bin = 1;
    while 2 * bin < count / 64 && shifts / (2 * bin) as f64 >= 8.0 && at(2 * bin) >= least * same {
        bin *= 2;
    }
    bin
}

/// Applies `f` to each value and averages the results over consecutive bins of `bin` values.
pub fn average(row: &[f64], bin: usize, f: impl Fn(f64) -> f64) -> Vec<f64> {
    row.chunks(bin)
        .map(|c| c.iter().map(|l| f(*l)).sum::<f64>() / c.len() as f64)
        .collect()
}
