//! A run that writes a table for each of its inputs, as rvspecfit's `rvs_desi_fit` does.
//!
//! One stream fits the spectra of all inputs, small files together, and its sink gives the rows of each input to
//! outputs of its own. There is no journal: outputs that are there are what a run goes on from.

mod existing;
mod inputs;
mod outputs;
mod run;
mod sink;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use popfit::low_level::DeviceRows;
use popfit::low_level::checks::check_spectra;
use popfit::{Control, Error, Metadata, ModelFile, Result, Summary};

use super::settings::{BuiltModel, Event, FitFiles};
use super::summary::{FailedFile, FitFilesSummary, PerFileSummary};
use crate::output_files::OutputFiles;
use crate::selection;
use existing::compare_metadata;
use inputs::{InputFile, InputsReader, Phase};
use outputs::{FileOutputs, name_outputs};
use run::FileRun;
use sink::{SplitSink, Tally};

/// Makes the run in the current pool of threads.
pub(super) fn fit_into_tables(mut files: FitFiles, control: &Control) -> Result<FitFilesSummary> {
    // 1. Name the outputs, and refuse what cannot be written.
    refuse_settings(&files, control)?;
    let outputs = name_outputs(&files)?;
    let output_files = OutputFiles::of_files(
        outputs
            .iter()
            .flat_map(FileOutputs::paths)
            .cloned()
            .collect(),
    );
    output_files.spare(files.inputs())?;
    if !files.overwrite && !files.skip_existing {
        output_files.refuse_existing(false, files.option_names)?;
    }
    let skips = |outputs: &FileOutputs| files.skip_existing && outputs.are_there();
    let (skipped, fitted): (Vec<_>, Vec<_>) = outputs.into_iter().partition(skips);

    // 2. Open the model and the device.
    selection::check(&files.selection, files.option_names)?;
    let BuiltModel { model, text, file } = files.open_model()?;
    files.selection = model.complete_selection(std::mem::take(&mut files.selection));
    output_files.spare(file.iter().flat_map(ModelFile::inputs))?;
    let fitter = files
        .settings_of_layout(file.as_ref(), &model)?
        .fitter(model, file.as_ref())?;
    // without a file, this checks the model alone
    check_spectra(&fitter, [])?;
    let metadata = Metadata {
        model: text,
        ..Metadata::of(&fitter)
    };
    for warning in compare_metadata(&skipped, &metadata, files.format, files.option_names) {
        files.report(Event::Warning(warning));
    }

    // 3. Open the inputs. One that cannot be fitted does not stop the others.
    let given: Vec<PathBuf> = files.spectra.clone();
    let selected = files.selection.clone();
    let mut run = FileRun::new(
        &fitter,
        file.as_ref(),
        &selected,
        files.format,
        metadata,
        control,
    );
    run.skips_existing = files.skip_existing;
    let replaces = files.overwrite || files.skip_existing;
    let mut failed = Vec::new();
    let mut notes = Vec::new();
    for outputs in fitted {
        if control.cancel.load(Ordering::Relaxed) {
            return Err(Error::Interrupted {
                path: files.output,
                kept: false,
            });
        }
        let input = outputs.input.clone();
        // outputs that were not all there are replaced, and those that come later are not
        let replaces = replaces && outputs.paths().any(|path| path.exists());
        match InputFile::open(&run, outputs, replaces) {
            Ok((file, more)) => {
                notes.extend(more);
                run.add_file(file);
            }
            Err(error) if run.is_ended_by(&error) => return Err(error),
            Err(error) => failed.push(FailedFile::new(input, error.to_string())),
        }
    }
    let spectra = run.files.iter().map(|file| file.spectra).sum();
    if skipped.is_empty() && failed.is_empty() {
        selection::refuse_empty(&files.selection, spectra)?;
    }
    let heads: Vec<_> = run.files.iter().map(|file| file.head.clone()).collect();
    files.report_notes(&fitter, &notes, &heads);
    drop(heads);

    // 4. Fit.
    files.report(Event::Begin { spectra });
    let begin = Instant::now();
    let tally = Tally::new(&fitter.parameters());
    let fitted = fit_inputs(&run, tally, control, begin);
    let (mut summary, tally) = fitted.inspect_err(|_| {
        let files_there = run
            .files
            .iter()
            .filter(|file| file.phase() == Phase::Written);
        let remains = format!(
            "files that have their tables: {}; {} goes on with the others",
            files_there.count() + skipped.len(),
            files.option_names.of("skip_existing")
        );
        files.report(Event::Remains(remains));
    })?;

    // 5. Count files and rows.
    let mut per_file = PerFileSummary {
        skipped: skipped.len(),
        ..PerFileSummary::default()
    };
    for file in &run.files {
        match file.phase() {
            Phase::Written => per_file.written += 1,
            Phase::AlreadyThere => per_file.skipped += 1,
            Phase::Failed(cause) => {
                failed.push(FailedFile::new(file.outputs.input.clone(), cause));
            }
            Phase::Waiting | Phase::Begun | Phase::Read => {
                per_file.left += 1;
                summary.interrupted += file.spectra;
            }
        }
    }
    failed.sort_by_key(|failed| given.iter().position(|input| *input == failed.file));
    per_file.failed = failed;
    summary.fits = tally.rows;
    Ok(FitFilesSummary {
        summary,
        statuses: tally.counts.list(),
        bad_inputs: tally.faults.lines(),
        flags: tally.flags.lines(),
        time: begin.elapsed(),
        per_file: Some(per_file),
    })
}

/// Fails for settings that this kind of run does not have.
fn refuse_settings(files: &FitFiles, control: &Control) -> Result<()> {
    let name = |field: &str| files.option_names.of(field);
    let refused = if files.resume {
        format!(
            "{} goes on with a run that writes one table; with {}, {} goes on with the files that are not there yet",
            name("resume"),
            name("per_file"),
            name("skip_existing")
        )
    } else if files.overwrite && files.skip_existing {
        format!(
            "{} and {}: outputs that are there are either replaced or skipped; give one of the two",
            name("overwrite"),
            name("skip_existing")
        )
    } else if files.report.is_some() {
        format!(
            "{} makes a page about one table, which a run with {} does not write; the command popfit report makes one \
             about any of popfit's own tables",
            name("report"),
            name("per_file")
        )
    } else if control.profile {
        format!(
            "{} writes its files beside one table: measure a run without {}",
            name("profile"),
            name("per_file")
        )
    } else {
        return Ok(());
    };
    Err(Error::Usage(refused))
}

/// Fits the inputs in one stream, and returns its summary and the counts of rows.
///
/// An error that no row takes up, such as that of a bad spectrum in a strict run, ends a stream. The files that were
/// begun and are not written are then fitted one by one, so that the error is that of its file, and those that wait
/// follow in a new stream.
fn fit_inputs(
    run: &FileRun<'_>,
    mut tally: Tally,
    control: &Control,
    begin: Instant,
) -> Result<(Summary, Tally)> {
    let mut total = Summary::default();
    let mut groups: Vec<Vec<usize>> = vec![(0..run.files.len()).collect()];
    while let Some(group) = groups.pop() {
        let Some(first) = group.first().map(|index| &run.files[*index]) else {
            continue;
        };
        if run.is_stopped() {
            break;
        }
        // 1. Fit the group.
        let mut source = InputsReader::new(run, first, group.clone());
        let mut sink = SplitSink::new(run, tally);
        let control = control_of_stream(run, control, begin);
        let done = run
            .fitter
            .clone()
            .control(control)
            .fit_stream(&mut source, &mut sink);
        let done = done.and_then(|summary| sink.finish().map(|()| summary));
        if done.is_err() {
            sink.discard();
        }
        tally = sink.tally;
        let error = match done {
            Ok(summary) => {
                add_summary(&mut total, summary);
                continue;
            }
            Err(error) => error,
        };
        // 2. Find the file at fault.
        let is_begun =
            |index: &usize| matches!(run.files[*index].phase(), Phase::Begun | Phase::Read);
        let is_waiting = |index: &usize| run.files[*index].phase() == Phase::Waiting;
        let begun: Vec<usize> = group.iter().copied().filter(is_begun).collect();
        if begun.is_empty() || run.is_ended_by(&error) {
            return Err(error);
        }
        let waiting = group.iter().copied().filter(is_waiting).collect();
        begun
            .iter()
            .for_each(|index| run.files[*index].enter(Phase::Waiting));
        groups.push(waiting);
        match begun[..] {
            [only] => run.files[only].fail(&error),
            _ => groups.extend(begun.iter().rev().map(|index| vec![*index])),
        }
    }
    Ok((total, tally))
}

/// Returns the control of a stream over inputs that are neither written nor failed: with the time that is left, and
/// with a progress that goes on.
fn control_of_stream(run: &FileRun<'_>, control: &Control, begin: Instant) -> Control {
    let is_done = |phase: &Phase| !matches!(phase, Phase::Waiting | Phase::Begun | Phase::Read);
    let done = run.files.iter().filter(|file| is_done(&file.phase()));
    let done: u64 = done.map(|file| file.spectra).sum();
    let total: u64 = run.files.iter().map(|file| file.spectra).sum();
    let mut of_stream = control.clone();
    if let Some(report) = control.progress.clone() {
        of_stream.progress = Some(Arc::new(move |finished, _| report(done + finished, total)));
    }
    of_stream.timeout = control
        .timeout
        .map(|timeout| timeout.saturating_sub(begin.elapsed()));
    of_stream
}

/// Adds the rows of devices, the warnings and the times of a stream to those of the run.
fn add_summary(total: &mut Summary, stream: Summary) {
    for DeviceRows { device, rows } in stream.by_device {
        match total.by_device.iter_mut().find(|one| one.device == device) {
            Some(one) => one.rows += rows,
            None => total.by_device.push(DeviceRows { device, rows }),
        }
    }
    for (stage, time) in stream.stages {
        match total.stages.iter_mut().find(|(name, _)| *name == stage) {
            Some((_, sum)) => *sum += time,
            None => total.stages.push((stage, time)),
        }
    }
    total.failures.extend(stream.failures);
}
