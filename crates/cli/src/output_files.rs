//! The files that `popfit fit` writes: none takes the place of an input, nor of another file unless the user allows it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use popfit::low_level::Journal;
use popfit::low_level::models_path;
use popfit::{Error, Result};

use super::fit_files::OptionNames;
use super::output::Format;
use super::profile;

/// The table first, then what comes with it.
pub struct OutputFiles(Vec<PathBuf>);

/// Outputs that are written beside the table.
pub struct Extras<'a> {
    pub format: Format,
    /// The file of best-fit spectra.
    pub models: Option<&'a Path>,
    /// The folder of the report's page.
    pub report: Option<&'a Path>,
    pub profile: bool,
}

impl OutputFiles {
    /// Lists the files that a run will write: the table, and models, report page and profile if asked for.
    pub fn new(table: &Path, extras: &Extras<'_>) -> Result<OutputFiles> {
        let is_table = |path: &Path| place(path) == place(table);
        if extras.report.is_some_and(is_table) {
            return Err(Error::Usage(format!(
                "{}: the table and the page's folder",
                table.display()
            )));
        }
        if extras.models.is_some_and(is_table) {
            return Err(Error::Usage(format!(
                "{}: the table and the best-fit spectra",
                table.display()
            )));
        }
        let beside = (extras.format == Format::Rvtab).then(|| models_path(table));
        let models = extras.models.map(Path::to_path_buf).or(beside);
        let page = extras.report.map(|folder| folder.join("index.html"));
        let profiles = extras.profile.then(|| profile::files(table));
        let all = [Some(table.to_path_buf()), models, page]
            .into_iter()
            .chain(profiles.into_iter().flatten().map(Some));
        Ok(OutputFiles(all.flatten().collect()))
    }

    /// Lists the files of a run that writes a table for each of its inputs.
    pub fn of_files(files: Vec<PathBuf>) -> OutputFiles {
        OutputFiles(files)
    }

    /// Fails if one of the files to be written is one of these inputs, also through links.
    pub fn spare(&self, inputs: impl IntoIterator<Item = PathBuf>) -> Result<()> {
        let real = |path: &Path| path.canonicalize().ok();
        let output_files: HashSet<PathBuf> =
            self.0.iter().filter_map(|target| real(target)).collect();
        match inputs
            .into_iter()
            .find(|input| real(input).is_some_and(|input| output_files.contains(&input)))
        {
            Some(input) => {
                let message = format!(
                    "{} would be overwritten: it is one of the inputs",
                    input.display()
                );
                Err(Error::Usage(message))
            }
            None => Ok(()),
        }
    }

    /// Fails if a file to be written exists, unless the run resumes and an earlier run's journal is beside the table.
    pub fn refuse_existing(&self, resume: bool, names: OptionNames) -> Result<()> {
        let Some(existing) = self.0.iter().find(|target| target.is_file()) else {
            return Ok(());
        };
        let Some(table) = self.0.first().filter(|_| resume) else {
            return Err(Error::OutputExists {
                path: existing.clone(),
            });
        };
        if Journal::is_beside(table) {
            return Ok(());
        }
        let (existing, overwrite) = (existing.display(), names.of("overwrite"));
        Err(Error::Usage(format!(
            "{existing}: there is nothing to resume, because no journal is beside {}: the run that wrote it \
             has ended. Give {overwrite} to fit all spectra again, or choose another name",
            table.display()
        )))
    }

    /// Fails if a file to be written is not the interrupted run's own, or was changed since, unless `overwrite`.
    pub fn claim(&self, journal: &mut Journal, overwrite: bool, names: OptionNames) -> Result<()> {
        journal.claim_outputs(&self.0, overwrite).map_err(|error| match error {
            Error::OutputExists { path } => Error::Usage(format!(
                "{path}: this file is not of the interrupted run, or has changed since. Move it away, or give \
                 {overwrite} to replace it",
                path = path.display(),
                overwrite = names.of("overwrite")
            )),
            other => other,
        })
    }

    /// Has the journal note the state of all files if `result`, that of writing one, is a success; returns `result`.
    pub fn record(&self, journal: &mut Journal, result: Result<()>) -> Result<()> {
        // a file that may not last under its name is this run's nevertheless
        if matches!(result, Ok(()) | Err(Error::Unsettled { .. })) {
            journal.record_outputs(&self.0)?;
        }
        result
    }
}

/// Returns the path in its real folder, so that `./out.fits` and `out.fits` are one; as it is if there is no such
/// folder.
fn place(path: &Path) -> PathBuf {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_path_buf(),
    }
}
