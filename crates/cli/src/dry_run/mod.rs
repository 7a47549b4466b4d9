//! `popfit check MODEL SPECTRA…`: what a run would meet, tried on the first spectra.

mod arms;
mod choice;
mod widened;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Instant;

use popfit::low_level::Schema;
use popfit::low_level::checks::{check_spectra, list_notes, list_pixel_notes};
use popfit::low_level::{FlagCounts, read_memory_peak};
use popfit::spectra::{FilesReader, Selection, SpectraReader};
use popfit::{Device, ModelFile, Spectra, SpectralFitter, SpectralModel, VelocityScan};

use super::stdout::line;
use super::{Failure, selection};

/// Spectra that are fitted to see how long all would take.
const SAMPLE: usize = 256;
/// Characters of a line of column names.
const WIDTH: usize = 100;

#[derive(clap::Args)]
pub struct Arguments {
    /// Files of spectra: also try the model on them, without writing anything
    #[arg(value_name = "SPECTRA")]
    spectra: Vec<PathBuf>,
    #[command(flatten)]
    selection: selection::SelectionOptions,
    /// Device to try it on: auto, all, cpu, gpu, gpu:N, gpu:pci=PLACE or gpu:NAME
    #[arg(long, default_value = "auto", value_name = "D")]
    device: String,
}

impl Arguments {
    /// Returns the names of the arms that `--arms` keeps, also in the model; `None` to keep all.
    pub fn arms(&self) -> Option<&[String]> {
        self.selection.arms.as_deref()
    }

    /// Opens the files of spectra, so that a wrong name or option is told before anything else is printed; `None`
    /// without files.
    pub fn open(&self, model: &SpectralModel) -> Result<Option<Opened<'_>>, Failure> {
        let device = self.device.parse::<Device>()?;
        if self.spectra.is_empty() {
            return Ok(None);
        }
        let selection = self.selection.of_model(model)?;
        let source = FilesReader::open(&self.spectra, &selection)?;
        selection::refuse_empty(&selection, source.len())?;
        Ok(Some(Opened {
            paths: &self.spectra,
            device,
            selection,
            source,
        }))
    }
}

/// Files of spectra on which a model is to be tried.
pub struct Opened<'a> {
    paths: &'a [PathBuf],
    device: Device,
    selection: Selection,
    source: FilesReader,
}

/// Prints what a run would read, use and write; fits the first spectra, measures the memory that this
/// takes, and estimates the time for all.
pub fn run(
    Opened {
        paths,
        device,
        selection,
        mut source,
    }: Opened,
    file: &ModelFile,
) -> Result<(), Failure> {
    let mut fitter = SpectralFitter::new(file.build()?, device)
        .solver(file.solver.unwrap_or_default())
        .velocity_scan(file.velocity_scan.unwrap_or(VelocityScan::Off))
        .released_errors(file.released_errors.unwrap_or(false));
    if let Some(starts) = file.starts {
        fitter = fitter.starts(starts);
    }
    let files = source.files();
    check_spectra(&fitter, &files).map_err(|error| file.blame(error))?;
    // 1. What is read, and which wavelengths of it are used.
    line("");
    arms::print(&fitter, &files, paths)?;
    let missing = files.iter().flat_map(|file| list_notes(&fitter, file));
    let pixel_notes = list_pixel_notes(&fitter, &files);
    let print_note = |note: &String| line(format_args!("\nnote: {note}"));
    source
        .notes()
        .iter()
        .cloned()
        .chain(missing)
        .for_each(|note| print_note(&note));
    pixel_notes.iter().for_each(print_note);
    describe_covariances(&files).iter().for_each(print_note);
    // 2. What is written.
    let columns = Schema::of(&fitter, source.text_ids()).column_names()?;
    line(format_args!(
        "\nthe table would have {} columns:",
        columns.len()
    ));
    wrapped(&columns)
        .iter()
        .for_each(|names| line(format_args!("  {names}")));
    // 3. Which spectra are fitted.
    let total = source.len();
    line(format_args!(
        "\n{}",
        choice::describe(paths, &selection, total)?
    ));
    // 4. How they end, and how much memory and time that takes.
    let mut sample = Sample::read(&mut source)?;
    if let Some(sentence) = widened::describe(paths, &selection, &sample.batches)? {
        line(format_args!("\n{sentence}"));
    }
    let Some(first) = sample.batches.front() else {
        return Ok(());
    };
    if pixel_notes.is_empty() {
        list_pixel_notes(&fitter, [first])
            .iter()
            .for_each(print_note);
    }
    try_first(&fitter, &mut sample, total)
}

/// The first spectra of a run, of as many files as it takes.
struct Sample {
    batches: VecDeque<Spectra<'static>>,
    count: usize,
    empty: Spectra<'static>,
}

impl Sample {
    /// Reads the first spectra of the run, at most `SAMPLE` of them, in batches.
    fn read(source: &mut FilesReader) -> Result<Sample, Failure> {
        let mut sample = Sample {
            batches: VecDeque::new(),
            count: 0,
            empty: source.empty(),
        };
        while sample.count < SAMPLE
            && let Some(batch) = source.next_batch(SAMPLE - sample.count)?
        {
            sample.count += batch.len();
            sample.batches.push_back(batch);
        }
        Ok(sample)
    }
}

impl SpectraReader for Sample {
    fn len(&self) -> u64 {
        self.count as u64
    }

    fn next_batch(&mut self, _: usize) -> popfit::Result<Option<Spectra<'static>>> {
        Ok(self.batches.pop_front())
    }

    fn empty(&self) -> Spectra<'static> {
        self.empty.clone()
    }
}

/// Returns a note for each arm of a file whose noise has a covariance; those of files that are alike are one.
fn describe_covariances(files: &[Spectra]) -> Vec<String> {
    let mut notes = Vec::new();
    for arm in files.iter().flat_map(|file| &file.arms) {
        let Some(covariance) = &arm.covariance else {
            continue;
        };
        let name = match arm.name.as_str() {
            "" => "the noise".to_string(),
            name => format!("arm {name}: the noise"),
        };
        let note = format!(
            "{name} has a covariance of {} diagonals, with which fits are ended on the CPU",
            covariance.diagonals
        );
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

/// Joins names with commas into lines of about [`WIDTH`] characters.
fn wrapped(names: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for name in names {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 2 + name.chars().count() <= WIDTH => {
                last.push_str(", ");
                last.push_str(name);
            }
            _ => {
                lines
                    .iter_mut()
                    .last()
                    .into_iter()
                    .for_each(|last| last.push(','));
                lines.push(name.clone());
            }
        }
    }
    lines
}

/// Fits the sample of first spectra; prints the memory that this check has taken, how many converge, why others fail,
/// and how long all `total` would take.
fn try_first(fitter: &SpectralFitter, sample: &mut Sample, total: u64) -> Result<(), Failure> {
    let begin = Instant::now();
    let mut table = fitter.table();
    fitter
        .fit_stream(sample, &mut table)
        .map_err(Failure::running)?;
    let seconds = begin.elapsed().as_secs_f64();
    let (count, converged) = (
        table.len(),
        table
            .status()
            .iter()
            .filter(|status| status.is_success())
            .count(),
    );
    if let Some(bytes) = read_memory_peak() {
        line(format_args!(
            "memory: {} MiB at the peak of this check; a run on the CPU takes about as much, one on a GPU more",
            bytes.div_ceil(1 << 20)
        ));
    }
    let all = seconds * total as f64 / count.max(1) as f64;
    line(format_args!(
        "\nfits: {converged} of the first {count} converge; all {total} would take about {} on {}",
        words(all),
        fitter.device_name()
    ));
    let mut causes: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for row in table.to_rows() {
        if !row.status.is_success() {
            causes.entry(row.status_text).or_insert((0, row.message)).0 += 1;
        }
    }
    for (cause, (count, example)) in causes {
        let example = if example.is_empty() {
            String::new()
        } else {
            format!(" ({example})")
        };
        line(format_args!("{count} of them: {cause}{example}"));
    }
    let mut flags = FlagCounts::new(table.names());
    table.to_rows().iter().for_each(|row| flags.add(row));
    flags.lines().into_iter().for_each(line);
    if converged == 0 {
        return Err(Failure::nothing_fitted("no fit converged"));
    }
    Ok(())
}

/// Formats an estimated time in words: seconds, minutes, hours or days.
fn words(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => "a second".into(),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} minutes", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} hours", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_columns_fill_lines() {
        let names: Vec<String> = (0..30).map(|k| format!("column_{k}")).collect();
        let lines = wrapped(&names);
        assert_eq!(lines.join(" "), names.join(", "));
        assert!(
            lines.len() == 4 && lines.iter().all(|line| line.len() <= WIDTH + 1),
            "{lines:?}"
        );
        assert!(wrapped(&[]).is_empty());
    }
}
