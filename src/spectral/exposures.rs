//! Models and objectives of objects with several exposures.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::solver::Status;
use crate::spectra::Spectra;
use crate::spectral::input::exposures::{
    ObservedObject, find_objects, repeat_velocities, separate_exposures,
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
            let mut velocities = object.exposures.iter().map(|&k| list.velocities[k]);
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
        let count = spectra.len();
        let derivative_rows = if derivatives { count } else { 0 };
        let mut objectives = Objectives {
            chi2: vec![f64::NAN; count],
            objective: vec![f64::NAN; count],
            gradient: vec![f64::NAN; derivative_rows * width],
            normal_matrix: vec![f64::NAN; derivative_rows * width * width],
            messages: vec![String::new(); count],
        };
        // 1. Evaluate the objects with each number of exposures together.
        let mut by_count: BTreeMap<usize, Vec<ObservedObject>> = BTreeMap::new();
        for object in find_objects(&[spectra]) {
            by_count
                .entry(object.exposures.len())
                .or_default()
                .push(object);
        }
        for (exposures, objects) in by_count {
            let separated = separate_exposures(&self.model, spectra, &objects);
            let points = repeat_velocities(&self.model, parameters, &objects);
            let fitter = self.for_exposures(exposures);
            let evaluated = fitter.objective(&separated, &points, derivatives)?;
            // 2. Write the numbers to the places of the objects.
            let all = fitter.model.parameters.len();
            let place_of = |p: usize| {
                if p < width {
                    Some(p)
                } else {
                    self.model.free_velocity()
                }
            };
            let places: Vec<usize> = (0..all).filter_map(place_of).collect();
            for (k, object) in objects.iter().enumerate() {
                let place = object.place;
                objectives.chi2[place] = evaluated.chi2[k];
                objectives.objective[place] = evaluated.objective[k];
                objectives.messages[place].clone_from(&evaluated.messages[k]);
                if derivatives {
                    let gradient = &evaluated.gradient[k * all..][..all];
                    let normal = &evaluated.normal_matrix[k * all * all..][..all * all];
                    let target = &mut objectives.gradient[place * width..][..width];
                    sum_places(gradient, &places, target);
                    // The matrix is summed by columns, then by rows.
                    let mut rows = vec![0.0; all * width];
                    for (row, sums) in normal.chunks(all).zip(rows.chunks_mut(width)) {
                        sum_places(row, &places, sums);
                    }
                    let target = &mut objectives.normal_matrix[place * width * width..];
                    for q in 0..width {
                        let column: Vec<f64> =
                            rows.iter().skip(q).step_by(width).copied().collect();
                        let mut sums = vec![0.0; width];
                        sum_places(&column, &places, &mut sums);
                        for (p, sum) in sums.into_iter().enumerate() {
                            target[p * width + q] = sum;
                        }
                    }
                }
            }
        }
        Ok(objectives)
    }
}

/// Sets sums of the numbers that have the same place.
fn sum_places(numbers: &[f64], places: &[usize], sums: &mut [f64]) {
    sums.fill(0.0);
    for (number, &place) in numbers.iter().zip(places) {
        sums[place] += number;
    }
}
