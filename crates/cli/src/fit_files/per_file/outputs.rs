//! Names of the outputs of a run that writes a table for each input.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use popfit::low_level::models_path;
use popfit::{Error, Result};

use crate::fit_files::FitFiles;
use crate::output::Format;

/// Endings of inputs that their outputs do not repeat, from the last one to the first.
const INPUT_ENDINGS: [&[&str]; 2] = [&["gz"], &["fits", "fit", "npz"]];

/// The outputs of one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileOutputs {
    /// Path of the input, as it was given.
    pub input: PathBuf,
    /// Path of the table.
    pub table: PathBuf,
    /// Path of the best-fit spectra, if they are asked for, or the table is rvspecfit's.
    pub models: Option<PathBuf>,
}

impl FileOutputs {
    /// Returns the outputs, the table first.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.table).chain(&self.models)
    }

    /// Returns whether all outputs are there.
    pub fn are_there(&self) -> bool {
        self.paths().all(|path| path.exists())
    }
}

/// Names the outputs of all inputs, in their order.
///
/// # Errors
/// Returns [`Error::Usage`] if two inputs would have the same output, if one is not below the given root, and if the
/// output's name is that of a table; and [`Error::Io`] without a current folder.
pub(super) fn name_outputs(files: &FitFiles) -> Result<Vec<FileOutputs>> {
    refuse_tables_name(files)?;
    // 1. Find the folder below which paths are repeated.
    let inputs = files
        .spectra
        .iter()
        .map(|input| clean_absolute(input))
        .collect::<Result<Vec<PathBuf>>>()?;
    let root = match &files.input_root {
        Some(root) => clean_absolute(root)?,
        None => deepest_common_folder(&inputs),
    };
    // 2. Name the outputs.
    let mut outputs = Vec::with_capacity(inputs.len());
    for (given, input) in files.spectra.iter().zip(&inputs) {
        let Ok(below) = input.strip_prefix(&root) else {
            return Err(Error::Usage(format!(
                "{} is not below {}, which {} names",
                given.display(),
                root.display(),
                files.option_names.of("input_root")
            )));
        };
        // an input on another drive has its root left
        let folders = below
            .parent()
            .into_iter()
            .flat_map(Path::components)
            .filter(|part| matches!(part, Component::Normal(_)));
        let folder: PathBuf = folders.collect();
        outputs.push(name_outputs_of(files, given, &folder));
    }
    refuse_equal_outputs(&outputs)?;
    Ok(outputs)
}

/// Names the outputs of an input. They lie in this subfolder of the folders of tables and of best-fit spectra.
fn name_outputs_of(files: &FitFiles, input: &Path, subfolder: &Path) -> FileOutputs {
    let named = |prefix: &str, extension: &str| {
        let mut name = OsString::from(prefix);
        name.push(name_without_endings(input));
        name.push(".");
        name.push(extension);
        subfolder.join(name)
    };
    let extension = files.format.extension();
    let (table, models) = if files.format == Format::Rvtab {
        // rvspecfit's layout always has a file of models beside the table.
        let table = files.output.join(named("rvtab_", extension));
        let models = models_path(&table);
        (table, Some(models))
    } else {
        let table = files.output.join(named("", extension));
        let models = files.models.as_ref();
        (
            table,
            models.map(|folder| folder.join(named("models_", "fits"))),
        )
    };
    FileOutputs {
        input: input.to_path_buf(),
        table,
        models,
    }
}

/// Returns the file name of an input without its endings, such as `.fits.gz`.
fn name_without_endings(input: &Path) -> OsString {
    let mut name = PathBuf::from(input.file_name().unwrap_or_default());
    for endings in INPUT_ENDINGS {
        let is_known = name
            .extension()
            .is_some_and(|ending| endings.iter().any(|one| ending.eq_ignore_ascii_case(one)));
        if is_known {
            name.set_extension("");
        }
    }
    name.into_os_string()
}

/// Returns the absolute path without `.` and `..`; links are not followed, because the names are what is repeated.
fn clean_absolute(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).map_err(|source| Error::Io {
        path: path.to_path_buf(),
        source,
    })?;
    let mut clean = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            other => clean.push(other),
        }
    }
    Ok(clean)
}

/// Returns the deepest folder that has all of these files below it.
fn deepest_common_folder(files: &[PathBuf]) -> PathBuf {
    let mut folders = files.iter().filter_map(|file| file.parent());
    let mut common: Vec<Component> = folders
        .next()
        .into_iter()
        .flat_map(Path::components)
        .collect();
    for folder in folders {
        let shared = common
            .iter()
            .zip(folder.components())
            .take_while(|(one, other)| *one == other);
        let length = shared.count();
        common.truncate(length);
    }
    common.into_iter().collect()
}

/// Fails if the folder of the outputs, or that of the models, has the name or the place of a file.
fn refuse_tables_name(files: &FitFiles) -> Result<()> {
    let per_file = files.option_names.of("per_file");
    for folder in [Some(&files.output), files.models.as_ref()]
        .into_iter()
        .flatten()
    {
        let is_tables_name = folder.extension().is_some_and(|extension| {
            ["parquet", "fits", "csv"]
                .iter()
                .any(|one| extension.eq_ignore_ascii_case(one))
        });
        if folder.is_file() || (is_tables_name && !folder.is_dir()) {
            return Err(Error::Usage(format!(
                "{} is the name of a file: {per_file} writes into a folder",
                folder.display()
            )));
        }
    }
    Ok(())
}

/// Fails if two inputs have the same output.
fn refuse_equal_outputs(outputs: &[FileOutputs]) -> Result<()> {
    let mut inputs: BTreeMap<String, &Path> = BTreeMap::new();
    for outputs in outputs {
        for path in outputs.paths() {
            let Some(other) = inputs.insert(path.display().to_string(), &outputs.input) else {
                continue;
            };
            let (input, path) = (outputs.input.display(), path.display());
            let message = if other == outputs.input {
                format!("{input} is given more than once: {path} would be written as often")
            } else {
                format!(
                    "{} and {input} would have the same output {path}: fit them into different folders",
                    other.display()
                )
            };
            return Err(Error::Usage(message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(inputs: &[&str]) -> FitFiles {
        let inputs = inputs.iter().map(PathBuf::from).collect();
        let mut files = FitFiles::new("model.toml", inputs, "out");
        files.per_file = true;
        files
    }

    fn tables(files: &FitFiles) -> Vec<String> {
        let outputs = name_outputs(files).unwrap();
        let tables = outputs.iter().map(|outputs| outputs.table.display());
        tables.map(|table| table.to_string()).collect()
    }

    #[test]
    fn outputs_repeat_the_path_below_the_deepest_common_folder() {
        let mut files = run(&["data/a/b/coadd-1.fits.gz", "./data/a/../c/x.1.npz"]);
        files.format = Format::Rvtab;
        let outputs = name_outputs(&files).unwrap();
        assert_eq!(
            outputs[0].table,
            Path::new("out/a/b/rvtab_coadd-1.fits"),
            "the links of the input's path are as they were given"
        );
        assert_eq!(
            outputs[0].models.as_deref(),
            Some(Path::new("out/a/b/rvmod_coadd-1.fits"))
        );
        assert_eq!(outputs[1].table, Path::new("out/c/rvtab_x.1.fits"));
        files.input_root = Some(".".into());
        assert_eq!(
            tables(&files),
            [
                "out/data/a/b/rvtab_coadd-1.fits",
                "out/data/c/rvtab_x.1.fits"
            ]
        );
        files.input_root = Some("data/a".into());
        let error = name_outputs(&files).unwrap_err().to_string();
        assert!(error.contains("x.1.npz is not below"), "{error}");
        // popfit's own tables, and their models in a folder of theirs
        let mut files = run(&["a/x", "a/y.FITS.GZ"]);
        assert_eq!(tables(&files), ["out/x.parquet", "out/y.parquet"]);
        (files.format, files.models) = (Format::Csv, Some("models".into()));
        let outputs = name_outputs(&files).unwrap();
        assert_eq!(outputs[0].table, Path::new("out/x.csv"));
        assert_eq!(
            outputs[0].models.as_deref(),
            Some(Path::new("models/models_x.fits"))
        );
        assert_eq!(tables(&run(&["a/b/x.npz"])), ["out/x.parquet"]);
    }

    #[test]
    fn inputs_with_one_output_are_refused() {
        let refused = |inputs: &[&str]| name_outputs(&run(inputs)).unwrap_err().to_string();
        let error = refused(&["a/x.fits", "a/y.npz", "a/x.fits.gz"]);
        assert!(
            error.contains("a/x.fits and a/x.fits.gz would have the same output out/x.parquet"),
            "{error}"
        );
        let error = refused(&["a/x.fits", "a/x.fits"]);
        assert!(error.contains("given more than once"), "{error}");
        let error = refused(&["a/x.fits", "./a/x.fits"]);
        assert!(error.contains("the same output"), "{error}");
        let mut files = run(&["a/x.fits"]);
        files.output = "results.parquet".into();
        let error = name_outputs(&files).unwrap_err().to_string();
        assert!(error.contains("writes into a folder"), "{error}");
    }
}
