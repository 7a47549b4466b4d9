//! Objects with several exposures as spectra that have each arm once per exposure (`model/exposures.rs`).

use std::collections::BTreeMap;

use crate::io::column::Column;
use crate::model::SpectralModel;
use crate::spectra::{ArmSpectra, Spectra};

/// An object, with those of its exposures that have data.
#[derive(Clone)]
pub struct ObservedObject {
    /// Index among the objects of all files.
    pub place: usize,
    /// Index of its file.
    pub file: usize,
    /// Index in its file.
    pub index: usize,
    /// Indices, among the object's, of the exposures that have data; the first one if none has.
    pub exposures: Vec<usize>,
    /// Number of all of its exposures.
    pub count: usize,
}

impl ObservedObject {
    /// Replaces the numbers of exposures among those with data in a name or message, such as `b#2`, by their numbers
    /// among all.
    pub fn restore_numbers(&self, text: &str) -> String {
        let mut parts = text.split('#');
        let mut restored = parts.next().unwrap_or_default().to_string();
        for part in parts {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            let (number, rest) = part.split_at(digits);
            let exposure = number
                .parse::<usize>()
                .ok()
                .and_then(|number| self.exposures.get(number.checked_sub(1)?));
            match exposure {
                Some(exposure) => restored += &format!("#{}{rest}", exposure + 1),
                None => restored += &format!("#{part}"),
            }
        }
        restored
    }
}

/// Returns the objects of all files in order.
pub fn find_objects(files: &[&Spectra]) -> Vec<ObservedObject> {
    let mut objects = Vec::new();
    for (file, spectra) in files.iter().enumerate() {
        for index in 0..spectra.len() {
            let rows = spectra.arm_rows(index..index + 1);
            let has_data = |row: usize| spectra.arms.iter().any(|arm| has_weight(arm, row));
            let mut exposures: Vec<usize> = (0..rows.len())
                .filter(|k| has_data(rows.start + k))
                .collect();
            if exposures.is_empty() {
                exposures.push(0);
            }
            objects.push(ObservedObject {
                place: objects.len(),
                file,
                index,
                exposures,
                count: rows.len(),
            });
        }
    }
    objects
}

/// Groups objects by the number of their exposures that have data.
pub fn group_objects(objects: Vec<ObservedObject>) -> BTreeMap<usize, Vec<ObservedObject>> {
    let mut groups: BTreeMap<usize, Vec<ObservedObject>> = BTreeMap::new();
    for object in objects {
        let count = object.exposures.len();
        groups.entry(count).or_default().push(object);
    }
    groups
}

/// Returns whether any pixel of a row has an inverse variance other than 0 and NaN, and is not masked.
fn has_weight(arm: &ArmSpectra, row: usize) -> bool {
    let mut pixels = row * arm.pixels..(row + 1) * arm.pixels;
    pixels.any(|pixel| {
        let ivar = arm.ivar.at(pixel);
        let is_masked = arm.mask.get(pixel).copied().unwrap_or(false);
        ivar != 0.0 && !ivar.is_nan() && !is_masked
    })
}

/// Returns objects of a file that have the same number of exposures as spectra without exposures: arm NAME#k has their
/// kth exposures.
pub fn separate_exposures(
    model: &SpectralModel,
    spectra: &Spectra,
    objects: &[ObservedObject],
) -> Spectra<'static> {
    let count = objects.first().map_or(1, |object| object.exposures.len());
    let name_of = |arm: &ArmSpectra| match (model.arms.as_slice(), spectra.arms.as_slice()) {
        // If there is one arm only, its name may be missing.
        ([only], [_]) if only.name.is_empty() || arm.name.is_empty() => only.name.clone(),
        _ => arm.name.clone(),
    };
    let indices: Vec<usize> = objects.iter().map(|object| object.index).collect();
    let mut arms = Vec::with_capacity(spectra.arms.len() * count);
    for arm in &spectra.arms {
        for k in 0..count {
            let rows: Vec<usize> = objects
                .iter()
                .map(|object| {
                    spectra.arm_rows(object.index..object.index + 1).start + object.exposures[k]
                })
                .collect();
            arms.push(ArmSpectra {
                name: SpectralModel::name_exposure(&name_of(arm), k),
                ..arm.copy_rows(&rows)
            });
        }
    }
    Spectra {
        file: spectra.file.clone(),
        rows: indices.iter().map(|&index| spectra.rows[index]).collect(),
        ids: spectra.ids.copy_rows(&indices),
        arms,
        columns: spectra
            .columns
            .iter()
            .map(|column| Column {
                values: column.values.copy_rows(&indices),
                ..column.clone()
            })
            .collect(),
        exposures: None,
    }
}

/// Returns parameters (objects of all files, P) of some objects with the velocity once per exposure that has its own.
pub fn repeat_velocities(
    model: &SpectralModel,
    parameters: &[f64],
    objects: &[ObservedObject],
) -> Vec<f64> {
    let width = model.parameters.len();
    let mut repeated = Vec::with_capacity(objects.len() * width);
    for object in objects {
        let values = &parameters[object.place * width..(object.place + 1) * width];
        repeated.extend_from_slice(values);
        if let (Some(p), true) = (model.free_velocity(), model.has_exposure_velocities()) {
            repeated.extend(std::iter::repeat_n(values[p], object.exposures.len() - 1));
        }
    }
    repeated
}
