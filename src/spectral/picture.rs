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
use crate::spectral::inspect::{InspectedArm, ModelPoint, ModelRows};
use crate::spectral::{FitRow, SpectralFitter};
use crate::threads;

/// Maximum number of spectra that are evaluated together, because their rows take memory.
const CHUNK: usize = 64;

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
    /// χ² of the unmasked pixels.
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
        match self.model.velocity {
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
        let found = self
            .model_spectra(spectra, std::slice::from_ref(row))?
            .swap_remove(0);
        found.ok_or_else(|| Error::Usage(format!("row {} has no fit to show", row.row)))
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
        let place = |row: &FitRow| {
            let fitted =
                row.status != Status::BadInput && row.parameters.iter().all(|x| x.is_finite());
            spectra
                .rows
                .iter()
                .position(|other| *other == row.row)
                .filter(|_| fitted)
        };
        let points: Vec<Option<ModelPoint>> = rows
            .iter()
            .map(|row| {
                Some(ModelPoint {
                    place: place(row)?,
                    parameters: &row.parameters,
                })
            })
            .collect();
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
        let of_place = |place: usize| &parameters[place * count..(place + 1) * count];
        let is_finite = |place: &usize| of_place(*place).iter().all(|x| x.is_finite());
        let point = |place: usize| ModelPoint {
            place,
            parameters: of_place(place),
        };
        let points: Vec<Option<ModelPoint>> = (0..spectra.len())
            .map(|place| Some(place).filter(is_finite).map(point))
            .collect();
        self.models_at_points(spectra, &points)
    }

    /// Evaluates the model at points, for every arm of their spectra; `None` where there is no point.
    fn models_at_points(
        &self,
        spectra: &Spectra,
        points: &[Option<ModelPoint>],
    ) -> Result<Vec<Option<Vec<ArmFit>>>> {
        let arms = match_arms(&self.model, spectra)?;
        let mut run = self.run()?;
        let mut out: Vec<Option<Vec<ArmFit>>> = vec![None; points.len()];
        let (indices, points): (Vec<usize>, Vec<ModelPoint>) = points
            .iter()
            .enumerate()
            .filter_map(|(k, point)| Some((k, (*point)?)))
            .unzip();
        let (mut done, mut most) = (0, CHUNK);
        while done < points.len() {
            let end = (done + most).min(points.len());
            let inspected = match run.inspect(spectra, &points[done..end], ModelRows::Values) {
                Err(Error::OutOfMemory { .. }) if most > 1 => {
                    most /= 2;
                    continue;
                }
                inspected => inspected?,
            };
            let fit_of = |(point, inspected): (&ModelPoint, Vec<InspectedArm>)| -> Vec<ArmFit> {
                let both = self.model.arms.iter().zip(&arms).zip(&inspected);
                let fits = both.map(|((model, data), arm)| match data {
                    Cow::Borrowed(data) => arm_fit(model, data, point.place, arm),
                    Cow::Owned(_) => ArmFit::absent(&model.name),
                });
                fits.collect()
            };
            let fits: Vec<Vec<ArmFit>> = threads::in_pool(|| {
                points[done..end]
                    .par_iter()
                    .zip(inspected)
                    .map(fit_of)
                    .collect()
            });
            indices[done..end]
                .iter()
                .zip(fits)
                .for_each(|(k, fit)| out[*k] = Some(fit));
            done = end;
        }
        Ok(out)
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
fn arm_fit(of: &ModelArm, data: &ArmSpectra, place: usize, arm: &InspectedArm) -> ArmFit {
    let (raw, prepared, Curves { model, continuum }) =
        (slice_raw_arm(of, data, place), &arm.prepared, curves(arm));
    let counts = |j: &usize| prepared.weight[*j] != 0.0;
    let smooth = prepared.smooth(&arm.sampling);
    let square = |j: usize, model: f64| (f64::from(prepared.data[j]) - model).powi(2);
    let weighted = |j: usize| f64::from(prepared.weight[j]) * prepared.scale * model[j];
    ArmFit {
        name: of.name.clone(),
        wavelength: data.grid(place).into_owned(),
        error: raw.ivar.iter().map(|w| w.sqrt().recip()).collect(),
        flux: raw.flux.into_owned(),
        mask: (0..data.pixels).map(|j| !counts(&j)).collect(),
        chi2: (0..data.pixels)
            .filter(counts)
            .fold(0.0, |sum, j| sum + square(j, weighted(j))),
        unmasked: (0..data.pixels).filter(counts).count(),
        chi2_continuum: (0..data.pixels)
            .filter(counts)
            .map(|j| square(j, f64::from(smooth[j])))
            .sum(),
        signal_to_noise: data.signal_to_noise(place),
        model,
        continuum,
    }
}

/// Model and continuum of one arm in the units of the data (pixels); NaN outside the wavelengths of the model.
struct Curves {
    model: Vec<f64>,
    /// Empty for a model without a continuum.
    continuum: Vec<f64>,
}

/// Returns an arm's model, which is template · continuum, and its continuum, in the units of the flux; NaN off the
/// template.
fn curves(arm: &InspectedArm) -> Curves {
    let (sampling, scale) = (&arm.sampling, arm.prepared.scale);
    let mut scaled = scaled_continuum(arm);
    scaled
        .iter_mut()
        .zip(&sampling.on)
        .filter(|(_, on)| !**on)
        .for_each(|(continuum, _)| *continuum = f64::NAN);
    let model = scaled
        .iter()
        .enumerate()
        .map(|(j, continuum)| match sampling.on[j] {
            true => arm.model[j] * continuum / scale,
            false => f64::NAN,
        });
    let model = model.collect();
    let continuum = if arm.terms == 0 {
        Vec::new()
    } else {
        scaled.into_iter().map(|c| c / scale).collect()
    };
    Curves { model, continuum }
}

/// Returns the continuum in each pixel, Σ_c a_c Σ_k transform_ck basis_k, in units of flux · scale; 1 without a
/// continuum.
fn scaled_continuum(arm: &InspectedArm) -> Vec<f64> {
    let (prepared, sampling, terms) = (&arm.prepared, &arm.sampling, arm.terms);
    if terms == 0 {
        return vec![1.0; sampling.pixels];
    }
    // 1. The coefficients of the basis: those of its orthonormal combinations, carried back.
    let mut coefficients = vec![0.0; terms];
    for (c, row) in prepared
        .transform
        .chunks_exact(terms)
        .take(prepared.rank)
        .enumerate()
    {
        for (coefficient, element) in coefficients.iter_mut().zip(row).take(c + 1) {
            *coefficient += arm.solution[c] * f64::from(*element);
        }
    }
    // 2. Their sum.
    let mut continuum = vec![0.0; sampling.pixels];
    let padded = prepared.data.len();
    for (coefficient, basis) in coefficients
        .iter()
        .zip(prepared.basis(sampling).chunks_exact(padded))
    {
        continuum
            .iter_mut()
            .zip(basis)
            .for_each(|(sum, basis)| *sum += coefficient * f64::from(*basis));
    }
    continuum
}
