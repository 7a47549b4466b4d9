//! A run over files, without a word on the terminal: `popfit fit` is made of it, and programs call it.
//!
//! Everything is checked before the first fit, and before any file is written.

mod per_file;
mod settings;
mod summary;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use popfit::low_level::InputFiles;
use popfit::low_level::Journal;
use popfit::low_level::ModelWriter;
use popfit::low_level::checks::{check_spectra, list_notes, list_pixel_notes};
use popfit::low_level::report::{About, Collector, ReportFile};
use popfit::spectra::{FilesReader, SpectraReader};
use popfit::{
    Control, Error, ExposureVelocity, FitRow, Metadata, ModelFile, Precision, Result, Sink,
    Spectra, SpectralFitter, Status, Summary, WriteOptions,
};

use super::output::{ResultWriter, schema};
use super::output_files::{Extras, OutputFiles};
use super::profile::ProfileFiles;
use super::rows::CountingSink;
use super::{report, selection};
pub use settings::{BuiltModel, Event, FitDevice, FitFiles, FitModel, FitSettings, OptionNames};
use summary::fitted;
pub use summary::{FailedFile, FitFilesSummary, PerFileSummary, StatusCount};

/// Fits every selected spectrum of the files, and writes the result table and what else is asked for. It prints
/// nothing and catches no signal; its events go to [`FitFiles::on_event`].
///
/// A run that `control` ends early still writes its table, with the status `interrupted` where a spectrum was not
/// fitted, and a run with [`FitFiles::resume`] goes on from there. With [`FitFiles::per_file`] it writes the tables of
/// the files that it has fitted to their ends, and a run with [`FitFiles::skip_existing`] goes on from there.
///
/// # Errors
/// Returns [`Error::Interrupted`] if the run was ended before its table was written, or if the table existed before and
/// stays as it was; [`Error::NothingSelected`] if none of the wanted output_files is there; [`Error::OutputExists`] and
/// [`Error::OutputLocked`] for the files that it writes; [`Error::Journal`] if there is another run to resume; and the
/// errors of model files, of readers, of [`SpectralFitter::fit_journaled`] and of the table's writer.
pub fn fit_files(files: FitFiles, control: &Control) -> Result<FitFilesSummary> {
    control.scope(|| {
        if files.per_file {
            per_file::fit_into_tables(files, control)
        } else {
            fit_into_one_table(files, control)
        }
    })?
}

/// Makes the run in the current pool of threads.
fn fit_into_one_table(mut files: FitFiles, control: &Control) -> Result<FitFilesSummary> {
    let opened = Instant::now();
    // 1. Read model and spectra, and refuse what cannot be fitted or written.
    let output_files = files.output_files(control.profile)?;
    selection::check(&files.selection, files.option_names)?;
    let BuiltModel { model, text, file } = files.open_model()?;
    files.selection = model.complete_selection(std::mem::take(&mut files.selection));
    let mut inputs = InputFiles::new(&files.spectra);
    let mut source = FilesReader::open(&files.spectra, &files.selection)?;
    output_files.spare(file.iter().flat_map(ModelFile::inputs))?;
    selection::refuse_empty(&files.selection, source.len())?;
    let fitter = files
        .settings_of_layout(file.as_ref(), &model)?
        .fitter(model, file.as_ref())?
        .control(control.clone());
    let spectra = source.files();
    check_spectra(&fitter, &spectra).map_err(|error| match &file {
        Some(file) => file.blame(error),
        None => error,
    })?;
    files.report_notes(&fitter, source.notes(), &spectra);
    let metadata = Metadata {
        model: text,
        ..Metadata::of(&fitter)
    };
    if !inputs.read(&control.cancel)? {
        return Err(Error::Interrupted {
            path: files.output,
            kept: false,
        });
    }

    // 2. Open the journal, and begin the outputs.
    let key = format!(
        "{}\nformat = {}",
        fitter.resume_key(&metadata.model, &files.selection, &inputs),
        files.format.layout()
    );
    let mut journal = Journal::open(&files.output, &key, files.resume)?;
    if let Some(damage) = journal.damage() {
        files.report(Event::Warning(damage.into()));
    }
    if files.resume && !journal.has_rows() {
        let output = files.output.display();
        files.report(Event::Note(format!(
            "nothing is kept beside {output}: it is made from the start"
        )));
    }
    output_files.claim(&mut journal, files.overwrite, files.option_names)?;
    let is_new = !files.output.exists();
    // An output that exists now is this run's own; one that comes later is not.
    let overwrite = files.overwrite;
    let may_replace = |file: &Path| overwrite || file.exists();
    let options = WriteOptions {
        metadata: metadata.clone(),
        overwrite: may_replace(&files.output),
    };
    let mut table = ResultWriter::create(files.format, &files.output, &fitter, &spectra, options)?;
    let models = files.models.as_deref().map(|path| {
        let options = WriteOptions {
            metadata: metadata.clone(),
            overwrite: may_replace(path),
        };
        ModelWriter::create(path, &fitter, &spectra, &schema(&fitter, &spectra), options)
    });
    let mut models = models.transpose()?;
    drop(spectra);
    let page = files
        .report
        .as_deref()
        .map(|folder| page(folder, may_replace, files.option_names))
        .transpose()?;
    let profiles = control
        .profile
        .then(|| ProfileFiles::create(&files.output, may_replace))
        .transpose()?;

    // 3. Fit.
    files.report(Event::Begin {
        spectra: source.len(),
    });
    let begin = Instant::now();
    let collector = page.is_some().then(|| Collector::new(&fitter.parameters()));
    let mut outputs = TableAndModels {
        table: &mut table,
        models: models.as_mut(),
    };
    let mut sink = CountingSink::new(&mut outputs, &fitter.parameters(), collector);
    let summary = fitter.fit_journaled(&mut source, &mut sink, &mut journal);
    let CountingSink {
        counts,
        faults,
        flags,
        report: kept,
        ..
    } = sink;
    let summary = summary.map_err(|error| files.failed(error, &journal))?;
    inputs.check()?;

    // 4. Write the outputs.
    if counts.any(Status::Interrupted) && !is_new {
        drop(table);
        let kept = journal.has_rows();
        journal.leave();
        return Err(Error::Interrupted {
            path: files.output,
            kept,
        });
    }
    let finished = table.finish(&summary.by_rows, Some(&mut journal));
    let finished = output_files.record(&mut journal, finished);
    finished.map_err(|error| files.failed(error, &journal))?;
    if let Some(models) = models {
        let finished = models.finish_journaled(&mut journal);
        let finished = output_files.record(&mut journal, finished);
        finished.map_err(|error| files.with_table_alone(error, "the best-fit spectra"))?;
    }
    let time = begin.elapsed();
    if let (Some(page), Some(kept)) = (page, kept) {
        let about = about(&files.output, &fitter, metadata, &summary, time);
        let written = page.write_journaled(&about, &kept, Some(&fitter), &mut journal);
        let written = output_files.record(&mut journal, written);
        written.map_err(|error| files.with_table_alone(error, "the page"))?;
    }
    let (statuses, bad_inputs, flags) = (counts.list(), faults.lines(), flags.lines());
    let mut done = FitFilesSummary {
        summary,
        statuses,
        bad_inputs,
        flags,
        time,
        per_file: None,
    };
    if let (Some(profile), Some(files)) = (&mut done.summary.profile, profiles) {
        profile.opening = Some((begin - opened).as_secs_f64());
        files.write(profile)?;
    }
    if counts.any(Status::Interrupted) {
        journal.leave();
    } else {
        // the outputs are whole
        done.summary.failures.extend(
            journal
                .remove()
                .err()
                .map(|error| format!("{error}; remove it by hand")),
        );
    }
    Ok(done)
}

impl FitFiles {
    /// Returns the files that the run will write; fails, before anything is read, if one is an input or must not be
    /// replaced.
    fn output_files(&self, profile: bool) -> Result<OutputFiles> {
        self.refuse_settings_of_per_file()?;
        self.format.check_extension(&self.output)?;
        let extras = Extras {
            format: self.format,
            models: self.models.as_deref(),
            report: self.report.as_deref(),
            profile,
        };
        let output_files = OutputFiles::new(&self.output, &extras)?;
        output_files.spare(self.inputs())?;
        if !self.overwrite {
            output_files.refuse_existing(self.resume, self.option_names)?;
        }
        Ok(output_files)
    }

    /// Fails for settings that only a run with a table for each input has.
    fn refuse_settings_of_per_file(&self) -> Result<()> {
        let given = [
            ("skip_existing", self.skip_existing),
            ("input_root", self.input_root.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((field, _)) => Err(Error::Usage(format!(
                "{} goes with {}; {} goes on with a run that writes one table",
                self.option_names.of(field),
                self.option_names.of("per_file"),
                self.option_names.of("resume"),
            ))),
        }
    }

    /// Returns the files that the run reads, as far as they are named.
    fn inputs(&self) -> impl Iterator<Item = PathBuf> {
        let model = match &self.model {
            FitModel::Path(path) => Some(path),
            FitModel::Built(_) => None,
        };
        let files = self.spectra.iter().chain(model).chain(&self.other_inputs);
        files.cloned()
    }

    /// Reports notes and advice on a run: those on its settings and model, those of its readers, and those on its files
    /// of spectra, which are given without their spectra.
    fn report_notes(&mut self, fitter: &SpectralFitter, of_readers: &[String], heads: &[Spectra]) {
        if self.settings.precision == Precision::Mixed && fitter.device_name().starts_with("cpu") {
            self.report(Event::Note(
                "mixed precision is for GPUs: on the CPU it only takes longer".into(),
            ));
        }
        let of_model = fitter.model().assumptions();
        for note in of_model.iter().chain(of_readers) {
            self.report(Event::Note(note.clone()));
        }
        let of_files = heads.iter().flat_map(|head| list_notes(fitter, head));
        let of_pixels = list_pixel_notes(fitter, heads);
        for advice in of_files.chain(of_pixels).collect::<Vec<_>>() {
            self.report(Event::Advice(advice));
        }
    }

    /// Builds the model from its file, with the selected arms, or takes the one in memory. Exposures are joined or
    /// separate as the settings say.
    pub(crate) fn open_model(&mut self) -> Result<BuiltModel> {
        let mut built = self.build_model()?;
        if let Some(join) = self.settings.join_exposures {
            built.text = model_text_with_exposures(&built.text, join);
            built.model = built.model.join_exposures(join);
            built
                .file
                .iter_mut()
                .for_each(|file| file.join_exposures(join));
        }
        Ok(built)
    }

    /// Builds the model from its file, with the selected arms, or takes the one in memory.
    fn build_model(&mut self) -> Result<BuiltModel> {
        match std::mem::replace(&mut self.model, FitModel::Path(Default::default())) {
            FitModel::Path(path) => {
                let mut file = ModelFile::open(path)?;
                if let Some(arms) = &self.selection.arms {
                    file.keep_arms(arms)?;
                }
                Ok(BuiltModel {
                    model: file.build()?,
                    text: file.text.clone(),
                    file: Some(file),
                })
            }
            FitModel::Built(built) => {
                let is_chosen = |arm: &str| {
                    self.selection
                        .arms
                        .as_ref()
                        .is_none_or(|arms| arms.iter().any(|one| one == arm))
                };
                let other = built
                    .model
                    .arms()
                    .map(|(arm, _)| arm.to_string())
                    .find(|arm| !is_chosen(arm));
                match other {
                    None => Ok(*built),
                    Some(arm) => Err(Error::Usage(format!(
                        "the model in memory has the arm {arm}, which is not selected: choose its arms when it is made"
                    ))),
                }
            }
        }
    }

    /// Reports what is left of a run that fails with this error, and how to go on; returns the error.
    fn failed(&mut self, error: Error, journal: &Journal) -> Error {
        let resume = self.option_names.of("resume");
        if matches!(error, Error::Unsettled { .. }) {
            self.report(Event::Remains(format!("{resume} writes it again")));
        } else if journal.has_rows() {
            let now = if self.output.exists() {
                "is as it was"
            } else {
                "was not written"
            };
            let output = self.output.display();
            let remains =
                format!("{output} {now}; what was fitted is kept beside it, and {resume} goes on");
            self.report(Event::Remains(remains));
        }
        error
    }

    /// Reports that the run wrote its table, but, because of this error, not `what` comes after it; returns the error.
    fn with_table_alone(&mut self, error: Error, what: &str) -> Error {
        let (output, resume) = (self.output.display(), self.option_names.of("resume"));
        let remains =
            format!("{output} is whole; {resume} makes {what} without fitting anything again");
        self.report(Event::Remains(remains));
        error
    }
}

/// Returns a model file's text that joins exposures or not, so that the result table keeps the model that was fitted. A
/// text without its section gets it at the end. One that loses it is written anew, without comments.
fn model_text_with_exposures(text: &str, join: bool) -> String {
    let mut table: toml::Table = text.parse().unwrap_or_default();
    match (table.remove("exposures"), join) {
        (None, true) => {
            let velocity = ExposureVelocity::Shared;
            format!(
                "{}\n\n[exposures]\nvelocity = \"{velocity}\"\n",
                text.trim_end()
            )
        }
        (Some(_), false) => table.to_string(),
        _ => text.into(),
    }
}

/// The table, and the best-fit spectra where they are asked for.
struct TableAndModels<'s, 'a> {
    table: &'s mut ResultWriter<'a>,
    models: Option<&'s mut ModelWriter<'a>>,
}

impl Sink for TableAndModels<'_, '_> {
    fn append(&mut self, spectra: &Spectra, rows: &[FitRow]) -> Result<()> {
        self.table.append(spectra, rows)?;
        self.models
            .iter_mut()
            .try_for_each(|models| models.append(spectra, rows))
    }
}

/// Begins the report page `index.html` in `folder`, which is created if missing; it is written after the fits.
fn page(
    folder: &Path,
    may_replace: impl Fn(&Path) -> bool,
    names: OptionNames,
) -> Result<ReportFile> {
    if folder.is_file() {
        let report = names.of("report");
        return Err(Error::Usage(format!(
            "{} is a file: {report} takes a folder",
            folder.display()
        )));
    }
    std::fs::create_dir_all(folder).map_err(|source| Error::Io {
        path: folder.to_path_buf(),
        source,
    })?;
    let file = folder.join("index.html");
    let overwrite = may_replace(&file);
    ReportFile::create(
        file,
        &WriteOptions {
            overwrite,
            ..WriteOptions::default()
        },
    )
}

/// Returns the title, metadata and times that the report shows about the run.
fn about(
    output: &Path,
    fitter: &SpectralFitter,
    metadata: Metadata,
    summary: &Summary,
    time: Duration,
) -> About {
    About::default()
        .title(report::name(output))
        .version(env!("CARGO_PKG_VERSION").into())
        .metadata(metadata)
        .units(fitter.units())
        .time(time)
        .recalled(summary.fits.saturating_sub(fitted(summary)))
}
