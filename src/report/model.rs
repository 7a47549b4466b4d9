//! The model that made a table, opened again to draw its fits.

use std::path::{Path, PathBuf};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::io::output::Metadata;
use crate::model::{ModelFile, SpectralModel};
use crate::spectral::Schema;
use crate::spectral::SpectralFitter;

/// Name that errors give to the model file's text in the metadata of a table.
const EMBEDDED_MODEL_NAME: &str = "model in the table's metadata";

/// Rebuilds, on the CPU, the fitter that made a table, from file `model` or the table's metadata; fails if it does not
/// match.
///
/// The model file is `model`, or else the text in the table's metadata; its paths are then relative to the folder of
/// the original model file, or to the first of `folders` that has the emulators.
///
/// # Errors
/// `Usage` if the metadata have no model, if its emulators are not found, if an emulator differs from the one that made
/// the table, or if the free parameters do; and the errors of [`ModelFile::open`] and [`ModelFile::build`].
pub fn fitter_of_table(
    schema: &Schema,
    metadata: &Metadata,
    model: Option<&Path>,
    folders: &[PathBuf],
) -> Result<SpectralFitter> {
    // 1. Open the model that was given, or else the one in the table, and keep the arms that were fitted.
    let mut file = match model {
        Some(path) => ModelFile::open(path)?,
        None => parse_embedded_model(metadata, folders)?,
    };
    let arms = find_fitted_arms(&file, schema, metadata);
    file.keep_arms(&arms)?;
    // 2. Its emulators and free parameters must be those of the table.
    let model = file.build()?;
    check_emulators(&model, metadata)?;
    let fitter = SpectralFitter::new(model, Device::cpu());
    if fitter.parameters() != schema.parameters {
        let model_parameters = fitter.parameters().join(", ");
        let table_parameters = schema.parameters.join(", ");
        let path = file.path.display();
        return Err(Error::Usage(format!(
            "{path}: the model's free parameters are {model_parameters}; those of the table are {table_parameters}"
        )));
    }
    Ok(fitter)
}

/// Parses the model file kept in a table's metadata, with emulators from the original folders or one of `folders`.
fn parse_embedded_model(metadata: &Metadata, folders: &[PathBuf]) -> Result<ModelFile> {
    if metadata.model.is_empty() {
        return Err(Error::Usage(
            "the table does not name its model, and no model file is given".into(),
        ));
    }
    let parse_in =
        |folder: &Path| ModelFile::from_text(folder.join(EMBEDDED_MODEL_NAME), &*metadata.model);
    // 1. Take the first folder in which all emulators exist. The first input is the model file itself.
    let recorded_folders = find_original_folders(&parse_in(Path::new(""))?, metadata);
    for folder in recorded_folders.iter().chain(folders) {
        let file = parse_in(folder)?;
        if file.inputs().iter().skip(1).all(|input| input.exists()) {
            return Ok(file);
        }
    }
    // 2. Otherwise name the emulators that the user must provide.
    let mut emulators = Vec::new();
    for (path, _) in &metadata.emulators {
        emulators.push(path.as_str());
    }
    let emulators = emulators.join(", ");
    Err(Error::Usage(format!(
        "the emulators of the table's model are not found ({emulators}), and no model file is given"
    )))
}

/// Returns the folders that the table's model file was probably in, from the emulators' paths in the metadata.
fn find_original_folders(file: &ModelFile, metadata: &Metadata) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for (_, emulator) in file.arm_emulators() {
        for (recorded_path, _) in &metadata.emulators {
            if Path::new(recorded_path).ends_with(emulator) {
                folders.extend(remove_tail(recorded_path, emulator));
            }
        }
    }
    folders
}

/// Removes from the end of `path` as many components as `tail` has; `None` if it has fewer.
fn remove_tail(path: &str, tail: &Path) -> Option<PathBuf> {
    Path::new(path)
        .ancestors()
        .nth(tail.components().count())
        .map(Path::to_path_buf)
}

/// Returns the arms of the model that the table was fitted with, by its columns or its emulators; all arms if neither
/// names any.
fn find_fitted_arms(file: &ModelFile, schema: &Schema, metadata: &Metadata) -> Vec<String> {
    let has_unnamed_arm = schema.arms.iter().all(String::is_empty);
    let mut fitted_arms = Vec::new();
    for (name, emulator) in file.arm_emulators() {
        let is_fitted = if has_unnamed_arm {
            let mut recorded = metadata.emulators.iter();
            recorded.any(|(path, _)| Path::new(path).ends_with(emulator))
        } else {
            schema.arms.iter().any(|arm| arm == name)
        };
        if is_fitted {
            fitted_arms.push(name.to_string());
        }
    }
    if fitted_arms.is_empty() {
        for (name, _) in file.arm_emulators() {
            fitted_arms.push(name.to_string());
        }
    }
    fitted_arms
}

/// Fails if an emulator of the model has a SHA-256 that the table's metadata, where they name any, do not.
fn check_emulators(model: &SpectralModel, metadata: &Metadata) -> Result<()> {
    if metadata.emulators.is_empty() {
        return Ok(());
    }
    for (_, source, hash) in model.emulators() {
        let is_recorded = metadata
            .emulators
            .iter()
            .any(|(_, recorded)| *recorded == hash);
        if !is_recorded {
            return Err(Error::Usage(format!(
                "{source} is not the emulator that made the table: its SHA-256 is {hash}, which the table does not name"
            )));
        }
    }
    Ok(())
}
