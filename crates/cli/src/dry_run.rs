//! `popfit check MODEL SPECTRA…`: what a run would meet, tried on the first spectra.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use popfit::spectra::{FilesReader, SpectraReader, Wavelength};
use popfit::{Device, ModelFile, Spectra, SpectralFitter, VelocityScan};

use super::rows::{cells, print};
use super::stdout::line;
use super::{Failure, selection};

/// Spectra that are fitted to see how long all would take.
const SAMPLE: usize = 256;

#[derive(clap::Args)]
pub struct Arguments {
    /// Files of spectra: also try the model on them, without writing anything
    #[arg(value_name = "SPECTRA")]
    spectra: Vec<PathBuf>,
    #[command(flatten)]
    selection: selection::Arguments,
    /// Where to try it: auto, all, cpu, gpu, gpu:N or gpu:NAME
    #[arg(long, default_value = "auto", value_name = "D")]
    device: String,
}

impl Arguments {
    /// The arms that are kept, of the model too.
    pub fn arms(&self) -> Option<&[String]> {
        self.selection.arms.as_deref()
    }
}

/// Opens the files, prints what they hold for each arm, fits the first spectra, and says how long all would take.
pub fn run(arguments: &Arguments, file: &ModelFile) -> Result<(), Failure> {
    let device = arguments.device.parse::<Device>()?;
    if arguments.spectra.is_empty() {
        return Ok(());
    }
    let selection = arguments.selection.selection()?;
    let mut source = FilesReader::open(&arguments.spectra, &selection)?;
    selection::refuse_empty(&selection, source.len())?;
    let mut fitter = SpectralFitter::new(file.build()?, device)
        .solver(file.solver.unwrap_or_default())
        .velocity_scan(file.velocity_scan.unwrap_or(VelocityScan::Off))
        .released_errors(file.released_errors.unwrap_or(false));
    if let Some(starts) = file.starts {
        fitter = fitter.starts(starts);
    }
    let files = source.files();
    fitter.check_spectra(&files).map_err(|error| file.blame(error))?;
    line("");
    print_arms(&files);
    let missing = files.iter().flat_map(|file| fitter.notes(file));
    source.notes().iter().cloned().chain(missing).for_each(|note| line(format_args!("\nnote: {note}")));
    try_first(&fitter, &mut source)
}

/// Prints the files' arms: a row per file and arm.
fn print_arms(files: &[Spectra]) {
    let mut rows = vec![cells(["file", "arm", "pixels", "from Å", "to Å"])];
    for file in files {
        for arm in &file.arms {
            let ends = match &arm.wavelength {
                Wavelength::Shared(grid) => {
                    [grid.first(), grid.last()].map(|w| w.map_or("-".into(), |w| format!("{w:.2}")))
                }
                _ => ["each its own".to_string(), String::new()],
            };
            let head = [file.file.to_string(), arm.name.clone(), arm.pixels.to_string()];
            rows.push([&head[..], &ends].concat());
        }
    }
    print(&rows);
}

/// Fits the first spectra as the model file says, without options of `popfit fit`, and says how they end and how long all would take.
fn try_first(fitter: &SpectralFitter, source: &mut FilesReader) -> Result<(), Failure> {
    let total = source.len();
    let Some(first) = source.next_batch(SAMPLE)? else {
        line("\nno spectra");
        return Ok(());
    };
    let begin = Instant::now();
    let table = fitter.fit(&first).map_err(Failure::running)?;
    let seconds = begin.elapsed().as_secs_f64();
    let (count, converged) = (table.len(), table.status().iter().filter(|status| status.is_success()).count());
    let all = seconds * total as f64 / count.max(1) as f64;
    line(format_args!(
        "\nspectra: {total}; of the first {count}, {converged} fits converge. All would take about {} on {}",
        words(all),
        fitter.device_name()
    ));
    let mut causes = BTreeMap::new();
    for row in table.rows().filter(|row| !row.status.is_success()) {
        *causes.entry(row.status_text).or_insert(0) += 1;
    }
    for (cause, count) in causes {
        line(format_args!("{count} of them: {cause}"));
    }
    if converged == 0 {
        return Err(Failure::nothing_fitted("no fit converged"));
    }
    Ok(())
}

/// A time to one digit or two.
fn words(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => "a second".into(),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} minutes", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} hours", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}
