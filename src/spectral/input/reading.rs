//! What a model asks of those who read spectra for it.

use crate::error::{Error, Result};
use crate::model::{ExposureVelocity, Jitter, SpectralModel};
use crate::spectra::Spectra;

impl SpectralModel {
    /// Returns the selection with which files are to be read for this model: with [errors
    /// widened](crate::spectra::Selection::widen) by its bits of masks, and with [exposures
    /// joined](crate::spectra::Selection::join_exposures) if it fits them together.
    #[cfg(feature = "files")]
    #[must_use]
    pub fn complete_selection(
        &self,
        mut selection: crate::spectra::Selection,
    ) -> crate::spectra::Selection {
        selection.widen = self.widening().cloned();
        selection.join_exposures = self.exposures.is_some();
        selection
    }

    /// Returns the velocity of objects with several exposures; `None` if the model fits each spectrum by itself.
    #[doc(hidden)]
    pub fn exposures(&self) -> Option<ExposureVelocity> {
        self.exposures
    }

    /// Fits all exposures of an object together, or each spectrum by itself, whatever the model was built with.
    /// Exposures that are joined have one velocity unless the model gives each its own.
    #[must_use]
    pub fn join_exposures(mut self, join: bool) -> SpectralModel {
        let velocity = self.exposures.unwrap_or(ExposureVelocity::Shared);
        self.exposures = join.then_some(velocity);
        self
    }
}

/// Fails for spectra with joined exposures if the model does not fit exposures together.
pub fn refuse_joined_exposures(model: &SpectralModel, spectra: &Spectra) -> Result<()> {
    if spectra.exposures.is_none() || model.exposures.is_some() {
        return Ok(());
    }
    let place = match &*spectra.file {
        "" => String::new(),
        file => format!("{file}: "),
    };
    Err(Error::Usage(format!(
        "{place}these spectra have joined exposures, and the model fits each spectrum by itself: build the model with \
         exposures (in its file `exposures = {{ velocity = \"shared\" }}`), or do not join them"
    )))
}

/// Fails if the model fits the jitter: what is computed without a fit has none.
pub fn require_known_errors(model: &SpectralModel) -> Result<()> {
    match model.spectra.jitter {
        Jitter::Fraction(_) => Ok(()),
        Jitter::Fitted => Err(Error::model_setting(
            "spectra.jitter",
            "spectra.jitter = \"fit\" belongs to fits: give the number here, such as the column jitter_ARM of a fit",
        )),
    }
}

/// Fails for spectra with joined exposures, of which something is computed that only single spectra have.
pub fn require_single_exposures(spectra: &Spectra) -> Result<()> {
    if spectra.exposures.is_none() {
        return Ok(());
    }
    Err(Error::Usage(
        "this is computed for single spectra: give spectra whose exposures are not joined".into(),
    ))
}
