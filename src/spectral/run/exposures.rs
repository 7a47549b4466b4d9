//! Objects with several exposures. Those with the same number of exposures are fitted together, as spectra of a model
//! that has each arm once per exposure (`model/exposures.rs`).

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::Run;
use crate::error::Result;
use crate::model::{Cause, SpectralModel, SpectrumFault};
use crate::spectra::Spectra;
use crate::spectral::input::exposures::{
    ObservedObject, find_objects, repeat_velocities, separate_exposures,
};
use crate::spectral::input::reading::refuse_joined_exposures;
use crate::spectral::results::blank::{bad_spectrum_error, blank_row, mark_bad_input};
use crate::spectral::results::joined::join_exposures;
use crate::spectral::results::row::FitRow;
use crate::threads;

impl Run<'_> {
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
        // 1. Sort the objects by the number of their exposures.
        let mut objects_by_count: BTreeMap<usize, Vec<ObservedObject>> = BTreeMap::new();
        for object in find_objects(files) {
            let count = object.exposures.len();
            objects_by_count.entry(count).or_default().push(object);
        }
        // 2. Fit those of each number together.
        for (count, objects) in objects_by_count {
            if count > model.max_exposures() {
                let fault = too_many_exposures_fault(model, count);
                for object in objects {
                    if self.fitter.strict {
                        return Err(bad_spectrum_error(&rows[object.place], &fault));
                    }
                    mark_bad_input(&mut rows[object.place], fault.clone());
                }
                continue;
            }
            let fitted_rows = self.fit_objects_alike(files, &objects, user_starts)?;
            for (object, row) in objects.iter().zip(fitted_rows) {
                let all = files[object.file].count_exposures(object.index);
                rows[object.place] =
                    join_exposures(&self.fitter.model, row, &object.exposures, all);
            }
        }
        if let Some(tally) = self.tally {
            tally.add_finished((rows.len() - self.reported) as u64);
        }
        Ok(rows)
    }

    /// Fits objects with the same number of exposures, and returns the rows of the fits in which each exposure has arms
    /// of its own.
    fn fit_objects_alike(
        &mut self,
        files: &[&Spectra],
        objects: &[ObservedObject],
        user_starts: Option<&[f64]>,
    ) -> Result<Vec<FitRow>> {
        let count = objects.first().map_or(1, |object| object.exposures.len());
        let model = &self.fitter.model;
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
            self.fitter.first_guess()?;
        }
        let fitter = self.fitter.for_exposures(count);
        self.exposure_resources
            .entry(count)
            .or_insert_with(|| fitter.shared.clone());
        // Workers do not share these populations, and a GPU has no room for those of every number of exposures.
        let borrowed = fitter.shared.idle.borrow(&self.device);
        let memory = self
            .memory
            .or_else(|| Some(self.device.memory()? / 2))
            .map(|bytes| bytes / self.sharing as u64);
        let mut run = Run {
            stages: std::mem::take(&mut self.stages),
            meter: self.meter.clone(),
            tally: self.tally,
            usual_starts: self.usual_starts,
            ..Run::new(&fitter, self.device.clone(), borrowed, memory)?
        };
        run.worker.keeps_passes &= !self.device.shares_populations();
        let spectra: Vec<&Spectra> = spectra.iter().collect();
        let rows = run.fit_batch(&spectra, starts.as_deref());
        // 3. Take over what the run has counted and found out.
        self.stages = std::mem::take(&mut run.stages);
        self.reported += objects.len();
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
