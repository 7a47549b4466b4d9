//! Settings that a fit with correlated noise does not have. They are refused by name.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::model::{Jitter, SpectralModel};
use crate::solver::Solver;
use crate::spectra::{ArmSpectra, Spectra};

/// Fails if an arm has a covariance, and the model a loss, a fitted jitter, or a rule that widens errors.
pub fn refuse_model_settings(
    model: &SpectralModel,
    spectra: &Spectra,
    arm: &ArmSpectra,
) -> Result<()> {
    let reason = if model.loss().is_some() {
        "`loss`: residuals with correlated noise have no loss per pixel; leave out the loss or the covariance"
    } else if model.spectra.jitter == Jitter::Fitted {
        "`jitter = \"fit\"`: it is found from residuals without correlations; give a number, or leave out one of the two"
    } else if model.widening().is_some() {
        "`spectra.widen`: the errors of the pixels would be widened, but not their covariance; leave out one of the two"
    } else {
        return Ok(());
    };
    refuse(spectra, &[Cow::Borrowed(arm)], reason)
}

/// Fails if an arm has a covariance, and a fit a solver or a scan of the velocity that does not use it.
pub fn refuse_settings_of_fit(
    solver: &Solver,
    scans_velocity: bool,
    spectra: &Spectra,
    arms: &[Cow<ArmSpectra>],
) -> Result<()> {
    let reason = if !matches!(solver, Solver::LevenbergMarquardt(_)) {
        "`solver`: simplices minimise an objective without correlations; take `lm`"
    } else if scans_velocity {
        "`velocity_scan`: it scans an objective without correlations; turn it off"
    } else {
        return Ok(());
    };
    refuse(spectra, arms, reason)
}

/// Fails with a reason if one of the arms has a covariance, which excludes something.
pub fn refuse(spectra: &Spectra, arms: &[Cow<ArmSpectra>], reason: &str) -> Result<()> {
    let Some(arm) = arms.iter().find(|arm| arm.covariance.is_some()) else {
        return Ok(());
    };
    let place: String = [&*spectra.file, &arm.name]
        .into_iter()
        .filter(|part| !part.is_empty())
        .map(|part| format!("{part}, "))
        .collect();
    Err(Error::Usage(format!(
        "{place}`covariance` excludes {reason}"
    )))
}
