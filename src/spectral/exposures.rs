//! Models of objects with several exposures at the parameters of their rows.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::solver::Status;
use crate::spectra::Spectra;
use crate::spectral::input::exposures::{ObservedObject, find_objects, separate_exposures};
use crate::spectral::{ArmFit, FitRow, SpectralFitter};

/// A row with a fit, and its object.
struct FittedObject<'r> {
    /// Index of the row.
    index: usize,
    row: &'r FitRow,
    object: ObservedObject,
}

impl SpectralFitter {
    /// Evaluates each row's model for every arm of every exposure with data: arm `b#1` is the first such exposure of arm
    /// `b`. `None` where a row has no fit or its object is missing.
    ///
    /// # Errors
    /// Returns the errors of [`model_spectra`](SpectralFitter::model_spectra).
    pub(super) fn model_exposures(
        &self,
        spectra: &Spectra,
        rows: &[FitRow],
    ) -> Result<Vec<Option<Vec<ArmFit>>>> {
        // 1. Sort the objects of the rows by the number of their exposures.
        let mut objects: BTreeMap<u64, ObservedObject> = find_objects(&[spectra])
            .into_iter()
            .map(|object| (spectra.rows[object.index], object))
            .collect();
        let mut by_count: BTreeMap<usize, Vec<FittedObject>> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            let has_fit =
                row.status != Status::BadInput && row.parameters.iter().all(|x| x.is_finite());
            let Some(object) = objects.remove(&row.row).filter(|_| has_fit) else {
                continue;
            };
            by_count
                .entry(object.exposures.len())
                .or_default()
                .push(FittedObject { index, row, object });
        }
        // 2. Evaluate those of each number together.
        let mut fits: Vec<Option<Vec<ArmFit>>> = vec![None; rows.len()];
        for (count, fitted) in by_count {
            let mut parameters = Vec::new();
            for FittedObject { row, object, .. } in &fitted {
                parameters.append(&mut self.separate_velocities(row, object));
            }
            let indices: Vec<usize> = fitted.iter().map(|fitted| fitted.index).collect();
            let objects: Vec<ObservedObject> =
                fitted.into_iter().map(|fitted| fitted.object).collect();
            let separated = separate_exposures(&self.model, spectra, &objects);
            let models = self
                .for_exposures(count)
                .models_at(&separated, &parameters)?;
            for (index, model) in indices.into_iter().zip(models) {
                fits[index] = model;
            }
        }
        Ok(fits)
    }

    /// Returns the parameters of a row with the velocities of its object's exposures.
    fn separate_velocities(&self, row: &FitRow, object: &ObservedObject) -> Vec<f64> {
        let mut parameters = row.parameters.clone();
        if let (Some(p), Some(list)) = (self.model.free_velocity(), &row.exposure_velocities) {
            let mut velocities = object.exposures.iter().map(|&k| list.velocities[k]);
            parameters[p] = velocities.next().unwrap_or(parameters[p]);
            parameters.extend(velocities);
        }
        parameters
    }
}
