//! `popfit demo`: the bundled spectra against what they were drawn from.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use popfit::demo_data;
use popfit::low_level::FlagCounts;
use popfit::low_level::report::{About, Collector, ReportFile, picture};
use popfit::low_level::{Schema, TableWriter};
use popfit::spectra::open_reader;
use popfit::{
    Device, Error, FitRow, FitTable, Metadata, ModelFile, OutputFile, Result, Spectra,
    SpectralFitter, Summary, WriteOptions,
};

use super::Failure;
use super::own_files::OwnFiles;
use super::rows::{Counts, cells, print};
use super::stdout::line;
use super::truth::Truth;

/// Spectra in the printed table.
const SHOWN: usize = 6;
const TABLES: [&str; 2] = ["results.parquet", "results.csv"];
const PICTURE: &str = "spectrum.svg";
const PAGE: &str = "report.html";
/// What is written after the fits.
const OUTPUTS: [&str; 4] = [TABLES[0], TABLES[1], PAGE, PICTURE];
/// The picture shows the spectrum whose signal-to-noise ratio is closest to this.
const PICTURED_SN: f64 = 40.0;

#[derive(clap::Args)]
pub struct Arguments {
    /// auto, cpu, gpu, gpu:N, gpu:pci=PLACE or gpu:NAME
    #[arg(long, default_value = "auto", value_name = "D")]
    device: String,
    /// The folder for the demo's model, emulator and spectra, and for results.parquet, results.csv, report.html and
    /// spectrum.svg; only files that a demo wrote are replaced
    #[arg(long, default_value = "popfit-demo", value_name = "DIR")]
    out: PathBuf,
}

/// Runs `popfit demo`: writes and fits the demo's spectra, prints the fits beside the true values, writes tables, a
/// report and a picture.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let folder = &arguments.out;
    let mut own = prepare(folder)?;
    let file = ModelFile::open(folder.join("model.toml"))?;
    let model = file.build()?;
    let truth = Truth::open(&folder.join("truth.npz"))?;
    let mut source = open_reader(folder.join("spectra.npz"))?;
    let mut fitter = SpectralFitter::new(model, arguments.device.parse::<Device>()?);
    if let Some(starts) = file.starts {
        fitter = fitter.starts(starts);
    }
    let metadata = Metadata {
        model: file.text,
        ..Metadata::of(&fitter)
    };
    // before the fits, which would be in vain
    let schema = Schema::of(&fitter, false);
    let writer = |name: &&str| -> Result<TableWriter, Failure> {
        let options = WriteOptions {
            metadata: metadata.clone(),
            overwrite: own.replaces(name, None)?,
        };
        Ok(TableWriter::create(
            arguments.out.join(name),
            &schema,
            options,
        )?)
    };
    let writers: Vec<_> = TABLES.iter().map(writer).collect::<Result<_, _>>()?;
    let page = own.replaces(PAGE, None)?;
    let page = ReportFile::create(
        folder.join(PAGE),
        &WriteOptions {
            overwrite: page,
            ..WriteOptions::default()
        },
    )?;
    let drawing = OutputFile::create(arguments.out.join(PICTURE), own.replaces(PICTURE, None)?)?;

    let begin = Instant::now();
    let mut table = fitter.table();
    let summary = fitter
        .fit_stream(source.as_mut(), &mut table)
        .map_err(Failure::running)?;
    let time = begin.elapsed();
    print_comparison(&table, &truth);
    print_first(&table, &truth);
    print_run(&table, &summary, time, &fitter.device_name());

    let rows = table.to_rows();
    for mut writer in writers {
        writer
            .append(&rows)
            .and_then(|()| writer.finish())
            .map_err(Failure::running)?;
    }
    let Some(shown) = pictured(&table, &truth) else {
        own.record(&TABLES).map_err(Failure::running)?;
        return Err(Failure::nothing_fitted(
            "no spectrum of the demo was fitted",
        ));
    };
    let spectra = Spectra::open(folder.join("spectra.npz"))?;
    let mut kept = Collector::new(&fitter.parameters());
    kept.add_with_spectra(&spectra, &rows);
    // without the time, so that the page of the same fits has the same bytes
    let version = env!("CARGO_PKG_VERSION").into();
    let about = About::default()
        .title("popfit demo".into())
        .version(version)
        .metadata(metadata);
    let about = about.units(fitter.units());
    page.write(&about, &kept, Some(&fitter))
        .map_err(Failure::running)?;
    let arms = fitter.model_spectrum(&spectra, &shown)?;
    drawing
        .write(picture::spectrum(&picture::title(&fitter, &shown), &arms))
        .map_err(Failure::running)?;
    own.record(&OUTPUTS).map_err(Failure::running)?;
    print_next(folder);
    Ok(())
}

/// Writes the demo's input files into `folder`; fails if a file of that name exists that no demo wrote.
fn prepare(folder: &Path) -> Result<OwnFiles, Failure> {
    std::fs::create_dir_all(folder).map_err(|source| Error::Io {
        path: folder.to_path_buf(),
        source,
    })?;
    let mut own = OwnFiles::open(folder)?;
    for name in OUTPUTS {
        drop(OutputFile::create(
            folder.join(name),
            own.replaces(name, None)?,
        )?);
    }
    let mut replaces = [false; demo_data::FILES.len()];
    for ((name, contents), replaces) in demo_data::FILES.iter().zip(&mut replaces) {
        *replaces = own.replaces(name, Some(contents))?;
    }
    for ((name, contents), replaces) in demo_data::FILES.into_iter().zip(replaces) {
        OutputFile::create(folder.join(name), replaces)?.write(contents)?;
    }
    own.record(&demo_data::FILES.map(|(name, _)| name))?;
    Ok(own)
}

/// Prints each parameter's median error, and mean and standard deviation of (fit − truth) / error, which should be 0
/// and 1.
fn print_comparison(table: &FitTable, truth: &Truth) {
    let mut rows = vec![cells([
        "parameter",
        "median error",
        "pull: mean",
        "pull: sd",
    ])];
    for name in table.names() {
        let Some((values, standard_errors)) = table.floats(name).zip(table.errors(name)) else {
            continue;
        };
        let (mut errors, mut pulls) = (Vec::new(), Vec::new());
        for (k, (&value, &error)) in values.iter().zip(standard_errors).enumerate() {
            let Some(true_value) = truth.value(k, name) else {
                continue;
            };
            if table.status()[k].is_success() && error > 0.0 {
                errors.push(error);
                pulls.push((value - true_value) / error);
            }
        }
        let (mean, sd) = moments(&pulls);
        rows.push(vec![
            name.clone(),
            format!("{:.4}", median(errors)),
            format!("{mean:.2}"),
            format!("{sd:.2}"),
        ]);
    }
    print(&rows);
    line("pull = (fit − truth) / error: mean 0 and sd 1 if fits and errors are right\n");
}

/// Prints the first spectra: each parameter's fit ± error, and the truth below.
fn print_first(table: &FitTable, truth: &Truth) {
    let mut head = cells(["id", "S/N", "chi2/dof"]);
    head.extend(table.names().iter().cloned());
    head.push("status".into());
    let mut rows = vec![head];
    for k in 0..table.len().min(SHOWN) {
        let row = table.row(k);
        let sn = truth.sn.get(k).map_or("-".into(), |sn| format!("{sn:.0}"));
        let mut fitted = vec![
            row.id.to_string(),
            sn,
            format!("{:.3}", row.chi2 / row.dof as f64),
        ];
        let mut true_values = cells(["  truth", "", ""]);
        for ((name, value), error) in table.names().iter().zip(&row.parameters).zip(&row.errors) {
            fitted.push(format!("{value:.3} ± {error:.3}"));
            true_values.push(
                truth
                    .value(k, name)
                    .map_or("-".into(), |value| format!("{value:.3}        ")),
            );
        }
        fitted.push(row.status_text);
        rows.extend([fitted, true_values]);
    }
    print(&rows);
    line("");
}

/// Prints the counts of statuses, the speed, the time of each stage, and the device.
fn print_run(table: &FitTable, summary: &Summary, time: Duration, device: &str) {
    let seconds = time.as_secs_f64();
    let (mut counts, mut flags, rows) = (
        Counts::default(),
        FlagCounts::new(table.names()),
        table.to_rows(),
    );
    counts.add(&rows);
    rows.iter().for_each(|row| flags.add(row));
    let rate = summary.fits as f64 / seconds.max(1e-9);
    line(format_args!(
        "{} spectra: {counts}; {seconds:.2} s, {rate:.1} spectra/s",
        summary.fits
    ));
    flags.lines().into_iter().for_each(line);
    let stages: Vec<String> = summary
        .stages
        .iter()
        .filter(|(_, time)| !time.is_zero())
        .map(|(name, time)| format!("{name} {:.3} s", time.as_secs_f64()))
        .collect();
    line(format_args!("{}", stages.join(", ")));
    line(format_args!("device: {device}"));
}

/// Returns the converged fit whose signal-to-noise ratio is nearest that chosen for the picture; `None` if none
/// converged.
fn pictured(table: &FitTable, truth: &Truth) -> Option<FitRow> {
    let distance = |k: usize| {
        truth
            .sn
            .get(k)
            .map_or(f64::INFINITY, |sn| (sn - PICTURED_SN).abs())
    };
    let fitted = (0..table.len()).filter(|&k| table.status()[k].is_success());
    fitted
        .min_by(|&a, &b| distance(a).total_cmp(&distance(b)))
        .map(|k| table.row(k))
}

/// Prints what was written, and two commands to try next.
fn print_next(folder: &Path) {
    let folder = folder.display();
    line(format_args!(
        "wrote {} in {folder}: open {PAGE} in a browser",
        OUTPUTS.join(", ")
    ));
    line("\nnext, fit the same spectra by yourself, and begin a model file for a network:");
    line(format_args!(
        "  popfit fit {folder}/model.toml {folder}/spectra.npz -o fits.parquet --report page"
    ));
    line(format_args!("  popfit init {folder}/emulator.safetensors"));
}

/// Returns the median of the values (the upper middle one of an even number); NaN without values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns (mean, standard deviation) of the values.
fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, variance.sqrt())
}
