//! The columns of a fitter's runs, known before the first fit.

use crate::model::{ExposureVelocity, Jitter};
use crate::spectral::{FitTable, Schema, SpectralFitter};

impl Schema {
    /// Returns which columns a table of this fitter's results has: its parameters, units, arms and optional columns.
    pub fn of(fitter: &SpectralFitter, text_ids: bool) -> Schema {
        Schema {
            parameters: fitter.parameters(),
            text_ids,
            posterior: fitter.scans_velocity(),
            released_errors: fitter.released_errors,
            downweighted: fitter.model().loss().is_some(),
            jitter: fitter.model().spectra.jitter == Jitter::Fitted,
            exposures: fitter.model().exposures.is_some(),
            exposure_velocities: fitter.model().exposures == Some(ExposureVelocity::Each),
            shared: fitter.model().shared().is_some(),
            units: fitter.units(),
            arms: fitter.arms(),
        }
    }
}

impl SpectralFitter {
    /// Returns a table without rows, which can be the sink of [`fit_stream`](SpectralFitter::fit_stream). It has all
    /// columns of the fitter's runs, even if no row has a number in one of them.
    pub fn table(&self) -> FitTable {
        let table = FitTable::new(self.parameters())
            .with_units(self.units())
            .with_arms(self.arms());
        table.with_columns_of(&Schema::of(self, false))
    }
}
