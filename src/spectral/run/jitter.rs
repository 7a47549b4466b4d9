//! Jitter of fitted spectra, from the residuals at the ends of their fits (`model/jitter.rs`).

use std::sync::Arc;

use rayon::prelude::*;

use super::{Grids, ReadySpectrum, SpectralRun};
use crate::error::{Error, Result};
use crate::model::{ArmJitter, ArmLayout, JitterPixel};
use crate::solver::Outcome;
use crate::spectral::inspect::{InspectedArm, InspectedRows, make_ready_spectrum};
use crate::spectral::picture::{MAX_SPECTRA_TOGETHER, compute_curves};
use crate::spectral::search::solve::find_winner;
use crate::threads;

/// Smallest share of a pixel's variance that is not jitter. Below it the rounding of weights hides the rest.
const MIN_MEASURED_SHARE: f64 = 1e-6;

impl SpectralRun<'_> {
    /// Returns the jitter in each arm of spectra of one layout, given the outcomes of their fits; no arms for a
    /// spectrum that has no fit, or no degrees of freedom.
    pub(super) fn fit_jitters(
        &self,
        layout: &[ArmLayout],
        grids: &[Grids],
        ready: &[ReadySpectrum],
        outcomes: &[Vec<Outcome>],
    ) -> Result<Vec<Vec<Arc<ArmJitter>>>> {
        let model = &self.fitter.model;
        // 1. Find the ends of the fits, and by how much residuals are smaller than errors because of the fit.
        let mut fitted = Vec::new();
        let mut ends = Vec::new();
        let mut inflations = Vec::new();
        for (k, (spectrum, outcomes)) in ready.iter().zip(outcomes).enumerate() {
            let Some(winner) = find_winner(outcomes, model.marginalise) else {
                continue;
            };
            let prepared = &spectrum.prepared;
            let free = spectrum.limits.iter().filter(|p| !p.is_held()).count();
            let end = &outcomes[winner].parameters;
            let is_fitted = end.iter().all(|u| u.is_finite());
            if !is_fitted || prepared.unmasked <= free + prepared.rank {
                continue;
            }
            fitted.push(k);
            ends.push(make_ready_spectrum(
                spectrum.place,
                end.clone(),
                &spectrum.limits,
                prepared.clone(),
            ));
            let dof = prepared.unmasked - free - prepared.rank;
            inflations.push(prepared.unmasked as f64 / dof as f64);
        }
        // 2. Evaluate the models there, a few spectra at a time, and compare them with the data.
        let mut jitters: Vec<Vec<Arc<ArmJitter>>> = ready.iter().map(|_| Vec::new()).collect();
        let mut begin = 0;
        let mut max_together = MAX_SPECTRA_TOGETHER;
        while begin < ends.len() {
            let end = (begin + max_together).min(ends.len());
            let chunk = ends[begin..end].to_vec();
            let inspected = match self.inspect_ready(layout, grids, chunk, InspectedRows::Values) {
                Err(Error::OutOfMemory { .. }) if max_together > 1 => {
                    max_together /= 2;
                    continue;
                }
                inspected => inspected?,
            };
            let fitted_arms: Vec<Vec<Arc<ArmJitter>>> = threads::in_pool(|| {
                inspected
                    .par_iter()
                    .zip(&inflations[begin..end])
                    .map(|(arms, inflation)| {
                        let arms = arms.iter();
                        arms.map(|arm| Arc::new(fit_arm_jitter(arm, *inflation)))
                            .collect()
                    })
                    .collect()
            });
            for (k, arms) in fitted[begin..end].iter().zip(fitted_arms) {
                jitters[*k] = arms;
            }
            begin = end;
        }
        Ok(jitters)
    }
}

/// Returns the jitter of an arm whose model is evaluated at the end of a fit. `inflation` is N / dof.
fn fit_arm_jitter(arm: &InspectedArm, inflation: f64) -> ArmJitter {
    let prepared = &arm.prepared;
    let flux = compute_curves(arm).model;
    let earlier = prepared.jitter.as_deref();
    let mut pixels = Vec::with_capacity(flux.len());
    for (j, flux) in flux.iter().enumerate() {
        let root_ivar = f64::from(prepared.weight[j]) * prepared.scale;
        if root_ivar == 0.0 {
            continue;
        }
        let earlier_variance = root_ivar.powi(-2);
        let variance = earlier.map_or(earlier_variance, |jitter| {
            jitter.reduce(earlier_variance, j)
        });
        let residual = f64::from(prepared.weighted_flux[j]) / root_ivar - flux;
        pixels.push(JitterPixel {
            variance: variance.max(MIN_MEASURED_SHARE * earlier_variance),
            earlier_variance,
            flux_squared: flux * flux,
            residual_squared: inflation * residual * residual,
        });
    }
    ArmJitter::fit(&pixels, flux)
}
