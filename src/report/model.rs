//! The model that made a table, opened again to draw its fits.

use std::path::{Path, PathBuf};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::io::output::Metadata;
use crate::model::{ModelFile, SpectralModel};
use crate::spectral::Schema;
use crate::spectral::SpectralFitter;

/// Name that errors give to the model file's text in the metadata of a table.
const IN_TABLE: &str = "model in the table's metadata";

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
    let mut file = match model {
        Some(path) => ModelFile::open(path)?,
        None => model_in_table(metadata, folders)?,
    };
    let arms = fitted_arms(&file, schema, metadata);
    file.keep_arms(&arms)?;
    let model = file.build()?;
    check_emulators(&model, metadata)?;
    let fitter = SpectralFitter::new(model, Device::cpu());
    if fitter.parameters() != schema.parameters {
        let (model, table) = (fitter.parameters().join(", "), schema.parameters.join(", "));
        let path = file.path.display();
        return Err(Error::Usage(format!(
            "{path}: the model's free parameters are {model}; those of the table are {table}"
        )));
    }
    Ok(fitter)
}

/// Parses the model file kept in a table's metadata, with emulators from the folders of then or one of `folders`.
fn model_in_table(metadata: &Metadata, folders: &[PathBuf]) -> Result<ModelFile> {
    if metadata.model.is_empty() {
        return Err(Error::Usage(
            "the table does not name its model, and no model file is given".into(),
        ));
    }
    let parse = |folder: &Path| ModelFile::from_text(folder.join(IN_TABLE), &*metadata.model);
    let recorded = original_folders(&parse(Path::new(""))?, metadata);
    for folder in recorded.iter().chain(folders) {
        let file = parse(folder)?;
        if file.inputs().iter().skip(1).all(|input| input.exists()) {
            return Ok(file);
        }
    }
    let emulators: Vec<String> = metadata
        .emulators
        .iter()
        .map(|(path, _)| path.clone())
        .collect();
    let emulators = emulators.join(", ");
    Err(Error::Usage(format!(
        "the emulators of the table's model are not found ({emulators}), and no model file is given"
    )))
}

/// Returns the folders that the table's model file was probably in, from the emulators' paths in the metadata.
fn original_folders(file: &ModelFile, metadata: &Metadata) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for (_, emulator) in file.arm_emulators() {
        let ends_alike = metadata
            .emulators
            .iter()
            .filter(|(source, _)| Path::new(source).ends_with(emulator));
        folders.extend(ends_alike.filter_map(|(source, _)| without_tail(source, emulator)));
    }
    folders
}

/// Removes from the end of `path` as many components as `tail` has; `None` if it has fewer.
fn without_tail(path: &str, tail: &Path) -> Option<PathBuf> {
    Path::new(path)
        .ancestors()
        .nth(tail.components().count())
        .map(Path::to_path_buf)
}

/// Returns the arms of the model that the table was fitted with, by its columns or its emulators; all if neither tells.
fn fitted_arms(file: &ModelFile, schema: &Schema, metadata: &Metadata) -> Vec<String> {
    let named = |emulator: &Path| {
        metadata
            .emulators
            .iter()
            .any(|(source, _)| Path::new(source).ends_with(emulator))
    };
    let alone = schema.arms.iter().all(String::is_empty);
    let fitted = |name: &str, emulator: &Path| {
        if alone {
            named(emulator)
        } else {
            schema.arms.iter().any(|arm| arm == name)
        }
    };
    let arms = file.arm_emulators();
    let kept: Vec<String> = arms
        .filter(|(name, path)| fitted(name, path))
        .map(|(name, _)| name.to_string())
        .collect();
    if kept.is_empty() {
        file.arm_emulators()
            .map(|(name, _)| name.to_string())
            .collect()
    } else {
        kept
    }
}

/// Fails if an emulator of the model has a SHA-256 that the table's metadata, where they name any, do not.
fn check_emulators(model: &SpectralModel, metadata: &Metadata) -> Result<()> {
    let known = |hash: &String| {
        metadata.emulators.is_empty() || metadata.emulators.iter().any(|(_, other)| other == hash)
    };
    match model.emulators().iter().find(|(_, _, hash)| !known(hash)) {
        None => Ok(()),
        Some((_, source, hash)) => Err(Error::Usage(format!(
            "{source} is not the emulator that made the table: its SHA-256 is {hash}, which the table does not name"
        ))),
    }
}
