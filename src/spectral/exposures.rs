//! Models and objectives of objects with several exposures.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::solver::Status;
use crate::spectra::Spectra;
use crate::spectral::input::exposures::{
    ObservedObject, find_objects, group_objects, repeat_velocities, separate_exposures,
};
use crate::spectral::{ArmFit, FitRow, Objectives, SpectralFitter};

/// A row with a fit, and its object.
struct FittedObject<'r> {
    /// Index of the row.
    index: usize,
    row: &'r FitRow,
    object: ObservedObject,
}

impl SpectralFitter {
    /// Evaluates each row's model for every arm of every exposure with data: arm `b#2` is the second exposure of arm
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
            for ((index, model), object) in indices.into_iter().zip(models).zip(&objects) {
                fits[index] = model.map(|mut arms| {
                    for arm in &mut arms {
                        arm.name = object.restore_numbers(&arm.name);
                    }
                    arms
                });
            }
        }
        Ok(fits)
    }

    /// Returns the parameters of a row with the velocities of its object's exposures.
    fn separate_velocities(&self, row: &FitRow, object: &ObservedObject) -> Vec<f64> {
        let mut parameters = row.parameters.clone();
        if let (Some(p), Some(list)) = (self.model.free_velocity(), &row.exposure_velocities) {
            // The data of an exposure may not determine its velocity, and not depend on it.
            let mean = parameters[p];
            let velocity_or_mean = |&k: &usize| match list.velocities[k] {
                velocity if velocity.is_nan() => mean,
                velocity => velocity,
            };
            let mut velocities = object.exposures.iter().map(velocity_or_mean);
            parameters[p] = velocities.next().unwrap_or(parameters[p]);
            parameters.extend(velocities);
        }
        parameters
    }

    /// Computes the objective of each object at its parameters (objects, P), with the velocity in all exposures. The
    /// derivatives by the velocity are those of a common one.
    ///
    /// # Errors
    /// Returns the errors of [`objective`](SpectralFitter::objective).
    pub(super) fn objective_of_exposures(
        &self,
        spectra: &Spectra,
        parameters: &[f64],
        derivatives: bool,
    ) -> Result<Objectives> {
        let width = self.model.parameters.len();
        let messages = vec![String::new(); spectra.len()];
        let mut objectives = Objectives::missing(messages, width, derivatives);
        for (count, objects) in group_objects(find_objects(&[spectra])) {
            // 1. Evaluate the objects with this number of exposures together.
            let separated = separate_exposures(&self.model, spectra, &objects);
            let points = repeat_velocities(&self.model, parameters, &objects);
            let fitter = self.for_exposures(count);
            let evaluated = fitter.objective(&separated, &points, derivatives)?;
            // 2. Write the numbers to the places of the objects. Those of all velocities are summed.
            let all = fitter.model.parameters.len();
            let first = self.model.free_velocity().unwrap_or(0);
            let place_of = |p: usize| if p < width { p } else { first };
            for (k, object) in objects.iter().enumerate() {
                let place = object.place;
                objectives.chi2[place] = evaluated.chi2[k];
                objectives.objective[place] = evaluated.objective[k];
                objectives.messages[place].clone_from(&evaluated.messages[k]);
                if !derivatives {
                    continue;
                }
                let gradient = &mut objectives.gradient[place * width..][..width];
                let normal =
                    &mut objectives.normal_matrix[place * width * width..][..width * width];
                gradient.fill(0.0);
                normal.fill(0.0);
                for p in 0..all {
                    gradient[place_of(p)] += evaluated.gradient[k * all + p];
                    for q in 0..all {
                        let element = evaluated.normal_matrix[(k * all + p) * all + q];
                        normal[place_of(p) * width + place_of(q)] += element;
                    }
                }
            }
        }
        Ok(objectives)
    }
}
