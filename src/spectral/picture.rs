//! Spectra with their fitted models, evaluated on the CPU, for figures, for files of best-fit spectra, and for
//! `--format rvtab`, which also has the χ² of each arm.

use std::borrow::Cow;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::model::ModelArm;
#[cfg(feature = "files")]
use crate::recording::Velocity;
use crate::solver::Status;
use crate::spectra::{ArmSpectra, Spectra};
use crate::spectral::input::assemble::{match_arms, slice_raw_arm};
use crate::spectral::inspect::{InspectedArm, InspectedRows, ModelPoint};
use crate::spectral::{FitRow, SpectralFitter};
use crate::threads;

/// Maximum number of spectra that are evaluated together, because their rows take memory.
pub(super) const MAX_SPECTRA_TOGETHER: usize = 64;

/// One arm of one spectrum and the model at the row's parameters. Arrays are (pixels).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ArmFit {
    /// Name of the model's arm.
    pub name: String,
    /// Wavelengths in Å.
    pub wavelength: Vec<f64>,
    /// Flux in the units of the input.
    pub flux: Vec<f64>,
    /// Standard errors 1/√ivar; infinite where ivar is 0.
    pub error: Vec<f64>,
    /// Model in the units of the input; NaN outside its wavelengths.
    pub model: Vec<f64>,
    /// Fitted continuum, by which the template is multiplied, in the units of the input; NaN outside the wavelengths of
    /// the model. Empty for a model without a continuum.
    pub continuum: Vec<f64>,
    /// Masked pixels.
    pub mask: Vec<bool>,
    /// χ² of the unmasked pixels, with the covariance of their noise if the spectrum has one.
    pub chi2: f64,
    /// Number of unmasked pixels.
    pub unmasked: usize,
    /// χ² of the continuum alone, without the template.
    pub chi2_continuum: f64,
    /// Median of flux √ivar over all pixels.
    pub signal_to_noise: f64,
}

impl SpectralFitter {
    /// Returns the velocity (km/s) at which a row's model is shifted: the fitted one, or the model's own where it is
    /// fixed.
    #[cfg(feature = "files")]
    pub(crate) fn velocity_of(&self, row: &FitRow) -> f64 {
        match self.model.velocity() {
            Velocity::Parameter(p) => row.parameters[p],
            Velocity::Fixed(velocity) => velocity,
        }
    }

    /// Evaluates the model at a row's parameters; `row.row` picks the spectrum.
    ///
    /// # Errors
    /// Returns the errors of [`model_spectra`](SpectralFitter::model_spectra), and [`Error::Usage`] if the row has no
    /// fit.
    pub fn model_spectrum(&self, spectra: &Spectra, row: &FitRow) -> Result<Vec<ArmFit>> {
        let arms = self
            .model_spectra(spectra, std::slice::from_ref(row))?
            .swap_remove(0);
        arms.ok_or_else(|| Error::Usage(format!("row {} has no fit to show", row.row)))
    }

    /// Evaluates each row's model on the CPU for every arm of its spectrum; `None` where a row has no fit or its
    /// spectrum is missing.
    ///
    /// # Errors
    /// Returns the errors that a [`fit`](SpectralFitter::fit) of these spectra would have for its settings, the arms
    /// and their wavelengths, [`Error::Usage`] if a spectrum with a fit cannot be prepared, and [`Error::OutOfMemory`].
    pub fn model_spectra(
        &self,
        spectra: &Spectra,
        rows: &[FitRow],
    ) -> Result<Vec<Option<Vec<ArmFit>>>> {
        if spectra.exposures.is_some() {
            return self.model_exposures(spectra, rows);
        }
        let mut points: Vec<Option<ModelPoint>> = Vec::with_capacity(rows.len());
        for row in rows {
            let has_fit =
                row.status != Status::BadInput && row.parameters.iter().all(|x| x.is_finite());
            let place = spectra.rows.iter().position(|number| *number == row.row);
            let point = place.filter(|_| has_fit).map(|place| ModelPoint {
                place,
                parameters: &row.parameters,
            });
            points.push(point);
        }
        self.models_at_points(spectra, &points)
    }

    /// Evaluates the model on the CPU for every arm of each spectrum, at parameters (n, P) in physical units; `None`
    /// where one of them is not finite. The continuum is the best one at these parameters.
    ///
    /// # Errors
    /// Returns the errors of [`model_spectra`](SpectralFitter::model_spectra), and [`Error::ShapeMismatch`] if there
    /// are not P parameters for each spectrum.
    pub fn models_at(
        &self,
        spectra: &Spectra,
        parameters: &[f64],
    ) -> Result<Vec<Option<Vec<ArmFit>>>> {
        let count = self.parameters().len();
        if parameters.len() != spectra.len() * count {
            let message = format!(
                "{} numbers for {} spectra of {count} each",
                parameters.len(),
                spectra.len()
            );
            return Err(Error::mismatch("parameters", message).naming("parameters"));
        }
        let mut points: Vec<Option<ModelPoint>> = Vec::with_capacity(spectra.len());
        for place in 0..spectra.len() {
            let parameters = &parameters[place * count..(place + 1) * count];
            let is_finite = parameters.iter().all(|x| x.is_finite());
            points.push(is_finite.then_some(ModelPoint { place, parameters }));
        }
        self.models_at_points(spectra, &points)
    }

    /// Evaluates the model at points, for every arm of their spectra; `None` where there is no point.
    fn models_at_points(
        &self,
        spectra: &Spectra,
        points: &[Option<ModelPoint>],
    ) -> Result<Vec<Option<Vec<ArmFit>>>> {
        let arms = match_arms(&self.model, spectra)?;
        let mut run = self.make_run()?;
        let mut fits: Vec<Option<Vec<ArmFit>>> = vec![None; points.len()];
        let (indices, points): (Vec<usize>, Vec<ModelPoint>) = points
            .iter()
            .enumerate()
            .filter_map(|(k, point)| Some((k, (*point)?)))
            .unzip();
        let mut begin = 0;
        let mut max_together = MAX_SPECTRA_TOGETHER;
        while begin < points.len() {
            // 1. Evaluate some points, or half as many if there is not enough memory.
            let end = (begin + max_together).min(points.len());
            let chunk = &points[begin..end];
            let inspected = match run.inspect(spectra, chunk, InspectedRows::Values) {
                Err(Error::OutOfMemory { .. }) if max_together > 1 => {
                    max_together /= 2;
                    continue;
                }
                inspected => inspected?,
            };
            // 2. Convert each arm's model into the units of the data.
            let fits_of_chunk: Vec<Vec<ArmFit>> = threads::in_pool(|| {
                chunk
                    .par_iter()
                    .zip(inspected)
                    .map(|(point, inspected)| self.make_arm_fits(&arms, point.place, &inspected))
                    .collect()
            });
            for (index, fit) in indices[begin..end].iter().zip(fits_of_chunk) {
                fits[*index] = Some(fit);
            }
            begin = end;
        }
        Ok(fits)
    }

    /// Returns the fit of each arm of the spectrum at `place`. An arm that the file lacks has no pixels.
    fn make_arm_fits(
        &self,
        arms: &[Cow<ArmSpectra>],
        place: usize,
        inspected: &[InspectedArm],
    ) -> Vec<ArmFit> {
        let mut fits = Vec::with_capacity(arms.len());
        for ((model, data), inspected) in self.model.arms.iter().zip(arms).zip(inspected) {
            fits.push(match data {
                Cow::Borrowed(data) => make_arm_fit(model, data, place, inspected),
                Cow::Owned(_) => ArmFit::absent(&model.name),
            });
        }
        fits
    }
}

impl ArmFit {
    /// Returns the fit of an arm that the file lacks: it has no pixels.
    fn absent(name: &str) -> ArmFit {
        ArmFit {
            name: name.into(),
            ..ArmFit::default()
        }
    }
}

/// Returns the data, model, continuum and χ² of one arm of the spectrum at `place`, in the units of its flux.
fn make_arm_fit(
    model_arm: &ModelArm,
    data: &ArmSpectra,
    place: usize,
    inspected: &InspectedArm,
) -> ArmFit {
    let raw = slice_raw_arm(model_arm, data, place);
    let prepared = &inspected.prepared;
    let ModelCurves { model, continuum } = compute_curves(inspected);
    let counts = |j: &usize| prepared.weight[*j] != 0.0;
    let smooth = prepared.weighted_continuum(&inspected.sampling);
    let residual = |j: usize, model: f64| f64::from(prepared.weighted_flux[j]) - model;
    let sum_of_squares = |residual: &dyn Fn(usize) -> f64| match &prepared.noise {
        Some(noise) => noise.chi2(residual),
        None => (0..data.pixels)
            .filter(counts)
            .fold(0.0, |sum, j| sum + residual(j).powi(2)),
    };
    let weighted_model = |j: usize| f64::from(prepared.weight[j]) * prepared.scale * model[j];
    ArmFit {
        name: model_arm.name.clone(),
        wavelength: data.grid(place).into_owned(),
        error: raw.ivar.iter().map(|w| w.sqrt().recip()).collect(),
        flux: raw.flux.into_owned(),
        mask: (0..data.pixels).map(|j| !counts(&j)).collect(),
        chi2: sum_of_squares(&|j| residual(j, weighted_model(j))),
        unmasked: (0..data.pixels).filter(counts).count(),
        chi2_continuum: sum_of_squares(&|j| residual(j, f64::from(smooth[j]))),
        signal_to_noise: data.signal_to_noise(place),
        model,
        continuum,
    }
}

/// Model and continuum of one arm in the units of the data (pixels); NaN outside the wavelengths of the model.
pub(super) struct ModelCurves {
    pub model: Vec<f64>,
    /// Empty for a model without a continuum.
    continuum: Vec<f64>,
}

/// Returns an arm's model, which is template · continuum, and its continuum, in the units of the flux; NaN off the
/// template.
pub(super) fn compute_curves(arm: &InspectedArm) -> ModelCurves {
    let scale = arm.prepared.scale;
    let mut continuum = compute_scaled_continuum(arm);
    let mut model = Vec::with_capacity(continuum.len());
    for (j, is_on) in arm.sampling.on.iter().enumerate() {
        if *is_on {
            model.push(arm.model[j] * continuum[j] / scale);
        } else {
            continuum[j] = f64::NAN;
            model.push(f64::NAN);
        }
    }
    let continuum = if arm.terms == 0 {
        Vec::new()
    } else {
        continuum.into_iter().map(|value| value / scale).collect()
    };
    ModelCurves { model, continuum }
}

/// Returns the continuum in each pixel, Σ_c a_c Σ_k transform_ck basis_k, in units of flux · scale; 1 without a
/// continuum.
fn compute_scaled_continuum(arm: &InspectedArm) -> Vec<f64> {
    let prepared = &arm.prepared;
    let sampling = &arm.sampling;
    let terms = arm.terms;
    if terms == 0 {
        return vec![1.0; sampling.pixels];
    }
    // 1. Transform the coefficients a_c of the orthonormal combinations back to those of the basis.
    let mut coefficients = vec![0.0; terms];
    let rows = prepared.transform.chunks_exact(terms);
    for (c, row) in rows.take(prepared.rank).enumerate() {
        for (coefficient, element) in coefficients.iter_mut().zip(row).take(c + 1) {
            *coefficient += arm.solution[c] * f64::from(*element);
        }
    }
    // 2. Sum up the basis with these coefficients.
    let mut continuum = vec![0.0; sampling.pixels];
    let padded_pixels = prepared.weighted_flux.len();
    let basis_rows = prepared.basis(sampling).chunks_exact(padded_pixels);
    for (coefficient, basis_row) in coefficients.iter().zip(basis_rows) {
        for (sum, basis) in continuum.iter_mut().zip(basis_row) {
            *sum += coefficient * f64::from(*basis);
        }
    }
    continuum
}
