//! Lines of a segment's templates, in bins that blur neither them nor a range of velocities.

use std::ops::Range;

use rayon::prelude::*;

use crate::model::continuum::{evaluate_basis, inner_product, orthonormalise};
use crate::model::{Continuum, ContinuumKind, ModelArm};

/// The lines of the templates in one segment.
pub struct Lines<'a> {
    /// (templates, stride)
    flux: &'a [f32],
    stride: usize,
    pixels: Range<usize>,
    /// The continuum's orthonormal basis (terms, pixels); empty if the model has no continuum.
    basis: Vec<f64>,
}

impl Lines<'_> {
    /// Prepares the extraction of lines from a range of an arm's template pixels: the orthonormal continuum basis.
    pub fn new<'a>(arm: &ModelArm, flux: &'a [f32], pixels: Range<usize>) -> Lines<'a> {
        Lines {
            flux,
            stride: arm.emulator.pixels(),
            basis: make_continuum_basis(arm.continuum, &arm.emulator.wavelength()[pixels.clone()]),
            pixels,
        }
    }

    /// Returns a template's flux divided by its fitted continuum, less 1; flux − 1 where the model has no continuum
    /// (pixels).
    pub fn divide_by_continuum(&self, template: usize) -> Vec<f64> {
        let flux = &self.flux[template * self.stride..][self.pixels.clone()];
        divide_by_continuum(flux.iter().map(|f| f64::from(*f)).collect(), &self.basis)
    }

    /// Returns the lines and their squares of all templates, averaged in bins: (templates, coarse bins), and
    /// (templates, fine bins) in f32. A coarse bin has `ratio` fine ones.
    pub fn bin_lines(
        &self,
        templates: usize,
        width: usize,
        ratio: usize,
    ) -> ([Vec<f64>; 2], [Vec<f32>; 2]) {
        let fine_bins = self.pixels.len().div_ceil(width);
        let coarse_bins = fine_bins.div_ceil(ratio);
        let mut coarse = [(); 2].map(|()| vec![0.0; templates * coarse_bins]);
        let mut fine = [(); 2].map(|()| vec![0.0; templates * fine_bins]);
        let [coarse_lines, coarse_squares] = coarse
            .each_mut()
            .map(|rows| rows.par_chunks_mut(coarse_bins));
        let [fine_lines, fine_squares] = fine.each_mut().map(|rows| rows.par_chunks_mut(fine_bins));
        let line_rows = coarse_lines.zip(fine_lines);
        let square_rows = coarse_squares.zip(fine_squares);
        line_rows
            .zip(square_rows)
            .enumerate()
            .for_each(|(template, (line_rows, square_rows))| {
                let lines = self.divide_by_continuum(template);
                store_binned(average(&lines, width, |l| l), ratio, line_rows);
                store_binned(average(&lines, width, |l| l * l), ratio, square_rows);
            });
        (coarse, fine)
    }

    /// Returns a template's flux less 1, averaged over bins of `width` pixels. A continuum has a level of its own: if
    /// one is fitted, the flux is first divided by its mean over the arm.
    pub fn bin_template(&self, template: usize, width: usize) -> Vec<f32> {
        let arm_flux = &self.flux[template * self.stride..][..self.stride];
        let mean = arm_flux.iter().map(|f| f64::from(*f)).sum::<f64>() / arm_flux.len() as f64;
        let level = if self.basis.is_empty() || mean == 0.0 {
            1.0
        } else {
            mean
        };
        let flux: Vec<f64> = arm_flux[self.pixels.clone()]
            .iter()
            .map(|f| f64::from(*f) / level - 1.0)
            .collect();
        average(&flux, width, |f| f)
            .into_iter()
            .map(|f| f as f32)
            .collect()
    }
}

/// Returns the continuum's orthonormal basis (terms, pixels) on a range of wavelengths (Å); empty if there is no
/// continuum, or if the pixels are too few for its terms.
pub fn make_continuum_basis(continuum: Continuum, wavelength: &[f64]) -> Vec<f64> {
    let count = wavelength.len();
    let mut rows = evaluate_basis(continuum, wavelength, wavelength[0], wavelength[count - 1]);
    let is_usable = continuum.kind != ContinuumKind::None
        && orthonormalise(&mut rows, count, &vec![true; count]).is_some();
    if is_usable { rows } else { Vec::new() }
}

/// Divides flux (pixels) by the continuum that is fitted to it, and returns the ratio less 1. The continuum is 1 where
/// `basis` is empty.
pub fn divide_by_continuum(flux: Vec<f64>, basis: &[f64]) -> Vec<f64> {
    if basis.is_empty() {
        return flux.into_iter().map(|f| f - 1.0).collect();
    }
    let mut continuum = vec![0.0; flux.len()];
    for term in basis.chunks_exact(flux.len()) {
        let coefficient = inner_product(term, &flux);
        for (continuum, term) in continuum.iter_mut().zip(term) {
            *continuum += coefficient * term;
        }
    }
    flux.iter()
        .zip(&continuum)
        .map(|(f, c)| if *c > 0.0 { f / c - 1.0 } else { 0.0 })
        .collect()
}

/// Stores a template's fine bins, and their averages over `ratio` bins, in its coarse and its fine row.
fn store_binned(values: Vec<f64>, ratio: usize, (coarse, fine): (&mut [f64], &mut [f32])) {
    for (fine, value) in fine.iter_mut().zip(&values) {
        *fine = *value as f32;
    }
    if ratio > 1 {
        coarse.copy_from_slice(&average(&values, ratio, |x| x));
    } else {
        coarse.copy_from_slice(&values);
    }
}

/// Subtracts the mean of a row from its values.
pub fn subtract_mean(mut row: Vec<f64>) -> Vec<f64> {
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    row.iter_mut().for_each(|x| *x -= mean);
    row
}

/// Returns the widest bin (pixels, a power of two) at which lines shifted by one bin keep the share `least` of their
/// autocorrelation, with over 64 bins and 8 shifts left.
///
/// The correlation of the lines, which have the mean 0, with themselves shifted by the bin is at least `least`. A row
/// has `count` pixels, and the range of velocities is `shifts` pixels wide.
pub fn choose_bin_width(lines: &[Vec<f64>], count: usize, shifts: f64, least: f64) -> usize {
    let correlation = |lag: usize| {
        lines
            .iter()
            .map(|row| inner_product(&row[lag..], &row[..count - lag]))
            .sum::<f64>()
    };
    let autocorrelation = correlation(0).max(f64::MIN_POSITIVE);
    let mut width = 1;
    while 2 * width < count / 64
        && shifts / (2 * width) as f64 >= 8.0
        && correlation(2 * width) >= least * autocorrelation
    {
        width *= 2;
    }
    width
}

/// Applies `f` to each value and averages the results over consecutive bins of `width` values.
pub fn average(row: &[f64], width: usize, f: impl Fn(f64) -> f64) -> Vec<f64> {
    row.chunks(width)
        .map(|bin| bin.iter().map(|value| f(*value)).sum::<f64>() / bin.len() as f64)
        .collect()
}
