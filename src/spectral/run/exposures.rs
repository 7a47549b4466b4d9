//! Objects with several exposures. Those with the same number of exposures are fitted together, as spectra of a model
//! that has each arm once per exposure (`model/exposures.rs`).

use std::sync::Arc;

use rayon::prelude::*;

use super::SpectralRun;
use crate::error::Result;
use crate::model::{Cause, SpectralModel, SpectrumFault};
use crate::spectra::Spectra;
use crate::spectral::SpectralFitter;
use crate::spectral::input::exposures::{
    ObservedObject, find_objects, group_objects, repeat_velocities, separate_exposures,
};
use crate::spectral::input::reading::refuse_joined_exposures;
use crate::spectral::results::blank::{bad_spectrum_error, blank_row, mark_bad_input};
use crate::spectral::results::exposures::ExposureVelocities;
use crate::spectral::results::joined::{join_exposures, likelihood_ratio_p};
use crate::spectral::results::row::FitRow;
use crate::threads;

/// Probability of equal velocities below which they are tested by a fit with a common velocity. The test of the fitted
/// velocities with their errors holds only near the minimum: a faint exposure may have been fitted to its noise, far
/// away.
const MIN_UNTESTED_P: f64 = 0.01;

impl SpectralRun<'_> {
    /// Fits objects of some files, all exposures of each together, and returns their rows in order. `user_starts`
    /// (objects, parameters) in physical units replace the first guess.
    pub(super) fn fit_objects(
        &mut self,
        files: &[&Spectra],
        user_starts: Option<&[f64]>,
    ) -> Result<Vec<FitRow>> {
        let model = &self.fitter.model;
        let mut rows: Vec<FitRow> = Vec::new();
        for spectra in files {
            refuse_joined_exposures(model, spectra)?;
            rows.extend((0..spectra.len()).map(|k| blank_row(model, spectra, k)));
        }
        // Fit the objects of each number of exposures together.
        for (count, objects) in group_objects(find_objects(files)) {
            if count > model.max_exposures() {
                let fault = too_many_exposures_fault(model, count);
                for object in objects {
                    let row = &mut rows[object.place];
                    if self.fitter.strict {
                        return Err(bad_spectrum_error(row, &fault));
                    }
                    mark_bad_input(row, fault.clone());
                    row.exposures = Some(count as u64);
                    row.exposure_velocities = Some(ExposureVelocities {
                        velocities: vec![f64::NAN; object.count],
                        errors: vec![f64::NAN; object.count],
                    });
                }
                continue;
            }
            let fitted_rows = self.fit_objects_alike(self.fitter, files, &objects, user_starts)?;
            self.reported += objects.len();
            for (object, row) in objects.iter().zip(fitted_rows) {
                rows[object.place] = join_exposures(model, row, object);
            }
            if model.has_exposure_velocities() {
                self.test_velocities(files, objects, &mut rows)?;
            }
        }
        if let Some(tally) = self.tally {
            tally.add_finished((rows.len() - self.reported) as u64);
        }
        Ok(rows)
    }

    /// Tests by fits with a common velocity whether the velocities of objects vary, where those that were fitted and
    /// their errors make it improbable that they are equal, or cannot tell. If such a fit ends lower, the object is
    /// fitted again from there.
    fn test_velocities(
        &mut self,
        files: &[&Spectra],
        objects: Vec<ObservedObject>,
        rows: &mut [FitRow],
    ) -> Result<()> {
        // 1. Fit with a common velocity.
        let is_tested = |object: &ObservedObject| {
            let row = &rows[object.place];
            object.exposures.len() > 1
                && row.status.is_success()
                && row.p_constant_velocity.is_none_or(|p| p < MIN_UNTESTED_P)
        };
        let tested: Vec<ObservedObject> = objects.into_iter().filter(is_tested).collect();
        if tested.is_empty() {
            return Ok(());
        }
        let common_fitter = self
            .common_fitter
            .get_or_insert_with(|| Arc::new(self.fitter.with_common_velocity()))
            .clone();
        let common_rows = self.fit_unwatched(&common_fitter, files, &tested, None)?;
        // 2. A fit that ended above the common one is repeated from its end.
        let model = &self.fitter.model;
        let width = model.parameters.len();
        let mut starts = vec![f64::NAN; rows.len() * width];
        let mut higher = Vec::new();
        for (object, common) in tested.iter().zip(&common_rows) {
            if common.status.is_success() && common.objective < rows[object.place].objective {
                starts[object.place * width..][..width].copy_from_slice(&common.parameters);
                higher.push(object.clone());
            }
        }
        if !higher.is_empty() {
            let lower_rows = self.fit_unwatched(self.fitter, files, &higher, Some(&starts))?;
            for (object, row) in higher.iter().zip(lower_rows) {
                let earlier = &mut rows[object.place];
                if row.status.is_success() && row.objective < earlier.objective {
                    let evaluations = earlier.evaluations;
                    *earlier = join_exposures(model, row, object);
                    earlier.evaluations += evaluations;
                }
            }
        }
        // 3. Replace the probabilities by those of the likelihood ratio.
        for (object, common) in tested.iter().zip(&common_rows) {
            let row = &mut rows[object.place];
            row.evaluations += common.evaluations;
            if common.status.is_success() {
                row.p_constant_velocity = likelihood_ratio_p(row, common);
            }
        }
        Ok(())
    }

    /// Fits objects as [`fit_objects_alike`](SpectralRun::fit_objects_alike) does, but without progress and cancel: the
    /// row of an object whose fit has ended must be that of a whole run.
    fn fit_unwatched(
        &mut self,
        fitter: &SpectralFitter,
        files: &[&Spectra],
        objects: &[ObservedObject],
        user_starts: Option<&[f64]>,
    ) -> Result<Vec<FitRow>> {
        let tally = self.tally.take();
        let rows = self.fit_objects_alike(fitter, files, objects, user_starts);
        self.tally = tally;
        rows
    }

    /// Fits objects with the same number of exposures, and returns the rows of the fits in which each exposure has arms
    /// of its own. `fitter` is that of the run, or the one with a common velocity.
    fn fit_objects_alike(
        &mut self,
        fitter: &SpectralFitter,
        files: &[&Spectra],
        objects: &[ObservedObject],
        user_starts: Option<&[f64]>,
    ) -> Result<Vec<FitRow>> {
        let count = objects.first().map_or(1, |object| object.exposures.len());
        let model = &fitter.model;
        // 1. Give each exposure arms of its own.
        let objects_of_files: Vec<&[ObservedObject]> =
            objects.chunk_by(|a, b| a.file == b.file).collect();
        let spectra: Vec<Spectra> = threads::in_pool(|| {
            objects_of_files
                .par_iter()
                .map(|objects| separate_exposures(model, files[objects[0].file], objects))
                .collect()
        });
        let starts = user_starts.map(|starts| repeat_velocities(model, starts, objects));
        // 2. Fit them with the model of so many exposures.
        if user_starts.is_none() {
            // The library is that of single spectra, and all numbers of exposures share it.
            fitter.first_guess()?;
        }
        let exposure_fitter = fitter.for_exposures(count);
        let key = (count, model.has_exposure_velocities());
        self.exposure_resources
            .entry(key)
            .or_insert_with(|| exposure_fitter.shared.clone());
        // Workers do not share these populations, and a GPU has no room for those of every number of exposures.
        let borrowed = exposure_fitter.shared.idle.borrow(&self.device);
        let memory = self
            .memory
            .or_else(|| Some(self.device.memory()? / 2))
            .map(|bytes| bytes / self.sharing as u64);
        let mut run = SpectralRun {
            stages: std::mem::take(&mut self.stages),
            meter: self.meter.clone(),
            tally: self.tally,
            usual_starts: self.usual_starts,
            ..SpectralRun::new(&exposure_fitter, self.device.clone(), borrowed, memory)?
        };
        run.worker.keeps_passes &= !self.device.shares_populations();
        let spectra: Vec<&Spectra> = spectra.iter().collect();
        let rows = run.fit_batch(&spectra, starts.as_deref());
        // 3. Take over what the run has measured and found out.
        self.stages = std::mem::take(&mut run.stages);
        if run.is_replaced {
            self.is_replaced = true;
            self.device = run.device.clone();
            self.meter = None;
        }
        rows
    }
}

/// Returns the fault of an object whose exposures have more velocities than a fit can have.
fn too_many_exposures_fault(model: &SpectralModel, count: usize) -> SpectrumFault {
    SpectrumFault {
        cause: Cause::TooManyExposures,
        detail: format!(
            "{count} exposures with a velocity each; at most {} fit beside the other parameters",
            model.max_exposures()
        ),
    }
}
