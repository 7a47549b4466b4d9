//! `popfit-bench --scaling`: what a fit costs by the number of spectra, starts, pixels and labels.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use popfit::{Continuum, Device, OutputFile, Result, Spectra, SpectralFitter, SpectralModel};
use serde::Serialize;

use super::machine;
use super::network::network;
use super::scaling_plot;
use popfit_cli::{Failure, cells, line, print};
use popfit_testing::noisy::noisy_templates;

/// One number is changed, the others stay here.
const STARTS: usize = 2;
const LABELS: usize = 4;
/// The demo's network has 3861.
const PIXELS: usize = 3840;
const WORDS: &str = "noisy templates of random networks of the demo's shape (SiLU, 256, 256, 256 and 200 hidden, exp), \
    velocity within ±300 km/s and 10 continuum terms; preparation, first guess, fit and errors, without reading, \
    writing and the library";

/// Quantity that is changed from measurement to measurement.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    Spectra,
    Starts,
    Pixels,
    Labels,
}

impl Axis {
    pub const ALL: [Axis; 4] = [Axis::Spectra, Axis::Starts, Axis::Pixels, Axis::Labels];

    /// Returns the axis's name for tables and plots.
    pub const fn name(self) -> &'static str {
        match self {
            Axis::Spectra => "spectra",
            Axis::Starts => "starts",
            Axis::Pixels => "pixels",
            Axis::Labels => "labels",
        }
    }

    /// Returns the values at which the time is measured on this axis; few small ones if `quick`.
    fn values(self, quick: bool) -> &'static [usize] {
        match (self, quick) {
            (Axis::Spectra, false) => &[64, 128, 256, 512, 1024, 2048, 4096],
            (Axis::Spectra, true) => &[4, 16],
            (Axis::Starts, false) => &[1, 2, 4],
            (Axis::Starts, true) => &[1, 2],
            (Axis::Pixels, false) => &[PIXELS / 4, PIXELS / 2, PIXELS],
            (Axis::Pixels, true) => &[PIXELS / 8, PIXELS / 4],
            (Axis::Labels, false) => &[2, 3, 4, 6, 8],
            (Axis::Labels, true) => &[2, 4],
        }
    }
}

/// One measurement.
#[derive(Clone, Serialize)]
pub struct Point {
    pub axis: Axis,
    /// Value of the number that the axis changes.
    pub value: usize,
    pub device: String,
    pub spectra: usize,
    pub milliseconds_per_fit: f64,
    pub fits_per_s: f64,
    /// Linearisations of each spectrum's best start, on average.
    pub linearisations: f64,
    /// Share that ended with a success.
    pub converged: f64,
}

/// Content of the file that `--json` writes.
#[derive(Serialize)]
struct Report {
    machine: String,
    versions: BTreeMap<String, String>,
    data: &'static str,
    points: Vec<Point>,
}

/// Files for the plot and, if wanted, for the numbers.
pub struct Outputs {
    pub plot: OutputFile,
    pub json: Option<OutputFile>,
}

/// Measures the time per fit by spectra, starts, pixels and labels on every device; prints a table, writes plot and
/// JSON.
pub fn run(devices: &[Device], quick: bool, outputs: Outputs) -> std::result::Result<(), Failure> {
    let budget = Duration::from_secs_f64(if quick { 0.05 } else { 2.0 });
    let usual = if quick { 8 } else { 512 };
    let mut points = Vec::new();
    for axis in Axis::ALL {
        for &value in axis.values(quick) {
            let at = |own: Axis, usual: usize| if own == axis { value } else { usual };
            let pixels = at(Axis::Pixels, if quick { PIXELS / 4 } else { PIXELS });
            let (labels, count) = (at(Axis::Labels, LABELS), at(Axis::Spectra, usual));
            let (model, spectra) = spectra(labels, pixels, count).map_err(Failure::running)?;
            for device in devices {
                let fitter = SpectralFitter::new(model.clone(), device.clone())
                    .starts(at(Axis::Starts, STARTS));
                points.push(
                    measure(axis, value, &fitter, &spectra, budget).map_err(Failure::running)?,
                );
            }
        }
    }
    line(WORDS);
    print_points(&points);
    let plot = outputs.plot.path().display().to_string();
    scaling_plot::draw(outputs.plot, &points).map_err(Failure::running)?;
    let report = Report {
        machine: machine::machine(&devices[1..]),
        versions: machine::versions(),
        data: WORDS,
        points,
    };
    line(format_args!("\n{}\nwrote {plot}", report.machine));
    outputs
        .json
        .map_or(Ok(()), |file| super::bench::write(file, &report))
}

/// Returns a model of (labels, pixels, spectra) this size with a random network, and noisy spectra of it.
fn spectra(
    labels: usize,
    pixels: usize,
    count: usize,
) -> Result<(SpectralModel, Spectra<'static>)> {
    let emulator = network(labels, pixels)?;
    let (spectra, _) = noisy_templates(&emulator, count)?;
    let model = SpectralModel::builder()
        .arm("", emulator)
        .velocity(-300.0..=300.0)
        .continuum(Continuum::rbf(10));
    Ok((model.build()?, spectra))
}

/// Fits the spectra repeatedly until `budget` is spent, and returns the shortest time as a point of the plot.
fn measure(
    axis: Axis,
    value: usize,
    fitter: &SpectralFitter,
    spectra: &Spectra,
    budget: Duration,
) -> Result<Point> {
    // a first time for what is made once
    fitter.fit(&spectra.slice(0..spectra.len().min(4)))?;
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    let table = loop {
        let start = Instant::now();
        let table = fitter.fit(spectra)?;
        best = best.min(start.elapsed().as_secs_f64());
        if begin.elapsed() > budget {
            break table;
        }
    };
    let count = spectra.len() as f64;
    let rows = table.to_rows();
    let mean = |of: &dyn Fn(&popfit::FitRow) -> f64| rows.iter().map(of).sum::<f64>() / count;
    Ok(Point {
        axis,
        value,
        device: fitter.device_name(),
        spectra: spectra.len(),
        milliseconds_per_fit: 1e3 * best / count,
        fits_per_s: count / best,
        linearisations: mean(&|row| f64::from(row.evaluations)),
        converged: mean(&|row| f64::from(u8::from(row.status.is_success()))),
    })
}

/// Prints a table with a row per measured point.
fn print_points(points: &[Point]) {
    let mut table = vec![cells([
        "",
        "value",
        "device",
        "spectra",
        "ms/fit",
        "fits/s",
        "linearisations",
        "converged",
    ])];
    for point in points {
        table.push(vec![
            point.axis.name().into(),
            point.value.to_string(),
            point.device.clone(),
            point.spectra.to_string(),
            format!("{:.3}", point.milliseconds_per_fit),
            format!("{:.1}", point.fits_per_s),
            format!("{:.1}", point.linearisations),
            format!("{:.3}", point.converged),
        ]);
    }
    print(&table);
}
