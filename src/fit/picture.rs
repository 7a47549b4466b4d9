//! A spectrum with its fitted model, for pictures.

use super::assemble::{matched, raw};
use super::inspect::InspectedArm;
use super::run::Run;
use super::{FitRow, Fitter};
use crate::error::{Error, Result};
use crate::solver::recording::Precision;
use crate::spectra::{ArmSpectra, Spectra, Wavelength};

/// One arm of one spectrum and the model at the row's parameters. All (pixels).
#[derive(Clone, Debug)]
pub struct ArmFit {
    pub name: String,
    /// Å
    pub wavelength: Vec<f64>,
    /// In the units of the input.
    pub flux: Vec<f64>,
    /// 1/√ivar; infinite where ivar is 0.
    pub error: Vec<f64>,
    /// NaN where the model does not reach.
    pub model: Vec<f64>,
    /// Pixels that do not count.
    pub mask: Vec<bool>,
}

impl Fitter {
    /// The model at a row's parameters; `row.row` picks the spectrum. Errors when the row has no fit.
    pub fn model_spectrum(&self, spectra: &Spectra, row: &FitRow) -> Result<Vec<ArmFit>> {
        let place = row.row.checked_sub(spectra.first_row).map(|k| k as usize).filter(|k| *k < spectra.len());
        let (Some(place), true) = (place, row.parameters.iter().all(|x| x.is_finite())) else {
            return Err(Error::Usage(format!("row {} has no fit to show", row.row)));
        };
        let rows = Run::new(self)?.inspect(spectra, place, &row.parameters, Precision::F32)?;
        let mut out = Vec::new();
        for ((arm, data), model) in self.model.arms.iter().zip(matched(&self.model, spectra)?).zip(rows) {
            let raw = raw(arm, data, place);
            out.push(ArmFit {
                name: arm.name.clone(),
                wavelength: wavelength(data, place),
                flux: raw.flux.to_vec(),
                error: raw.ivar.iter().map(|w| w.sqrt().recip()).collect(),
                mask: model.prepared.weight[..data.pixels].iter().map(|w| *w == 0.0).collect(),
                model: model_flux(&model),
            });
        }
        Ok(out)
    }
}

fn wavelength(data: &ArmSpectra, place: usize) -> Vec<f64> {
    match &data.wavelength {
        Wavelength::Shared(wavelength) => wavelength.to_vec(),
        Wavelength::Own(all) => all[place * data.pixels..(place + 1) * data.pixels].to_vec(),
    }
}

/// The model of one arm in the units of the data, NaN where it does not reach (pixels).
fn model_flux(arm: &InspectedArm) -> Vec<f64> {
    let (prepared, sampling, terms) = (&arm.prepared, &arm.sampling, arm.terms);
    let padded = prepared.data.len();
    let flux = (0..sampling.pixels).map(|j| {
        if !sampling.on[j] {
            return f64::NAN;
        }
        // continuum = Σ_c a_c Σ_k transform_ck basis_k, in units of the flux · 2^k
        let mut continuum = if terms == 0 { 1.0 } else { 0.0 };
        for (c, row) in prepared.transform.chunks_exact(terms.max(1)).enumerate() {
            let basis = |k: usize| f64::from(sampling.basis[k * padded + j]);
            continuum += arm.solution[c] * (0..=c).map(|k| f64::from(row[k]) * basis(k)).sum::<f64>();
        }
        arm.model[j] * continuum / prepared.scale
    });
    flux.collect()
}
