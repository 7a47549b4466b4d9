//! Whole fits on the CPU device, start to table: `cargo bench --bench fits`.
//!
//! `synb`: 128 spectra with velocity and continuum; opening the network, reading the file, library, first guess and writing a
//! Parquet table are included.
//! `emulator`: the bare network (4 labels, no velocity, no continuum), every fit from the centre of the labels, truths uniform
//! within ±0.8 scaled labels, signal to noise 20 to 100, stopping at Δχ² below 1e-6 χ².

use std::path::{Path, PathBuf};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use popfit::spectra::{Wavelength, open_reader};
use popfit::{
    Continuum, Control, Device, Emulator, Fitter, Interpolation, LevenbergMarquardt, Metadata, Schema, Spectra,
    SpectralModel, TableWriter,
};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
const SPECTRA: usize = 512;

fn emulator() -> Emulator {
    Emulator::open(format!("{DATA}/emulator.safetensors")).expect("the demo's emulator")
}

/// Files of 128 spectra: the reference's beside the project, else the demo's 64 twice.
fn spectra_files() -> Vec<PathBuf> {
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/synb/fixed_vsini/spectra.npz");
    if reference.is_file() {
        println!("synb: the 128 reference spectra");
        return vec![reference];
    }
    println!("synb: the demo's 64 spectra, twice");
    vec![format!("{DATA}/spectra.npz").into(); 2]
}

/// Everything between two files: a new fitter every time, as the template library is part of the job.
fn start_to_table(files: &[PathBuf], table: &Path) -> popfit::Result<u64> {
    let model = SpectralModel::builder()
        .arm("", emulator())
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::rbf(10))
        .marginalise(true)
        .build()?;
    let fitter = Fitter::new(model, Device::cpu(), LevenbergMarquardt::default())?;
    let schema = Schema { parameters: fitter.parameters(), text_ids: false, posterior: false };
    let mut writer = TableWriter::create(table, &schema, &Metadata::default())?;
    let mut fits = 0;
    for file in files {
        fits += fitter.fit_with(open_reader(file)?.as_mut(), &mut writer, &Control::default())?.fits;
    }
    writer.finish()?;
    Ok(fits)
}

fn synb(c: &mut Criterion) {
    let (files, folder) = (spectra_files(), tempfile::tempdir().expect("a temporary folder"));
    let mut group = c.benchmark_group("synb");
    group.sample_size(10).throughput(Throughput::Elements(128));
    group.bench_function("128 spectra, 2 starts", |b| {
        b.iter(|| {
            let fits = start_to_table(&files, &folder.path().join("table.parquet")).expect("a table");
            assert_eq!(fits, 128);
        });
    });
    group.finish();
}

/// Uniform in (0, 1): a fixed sequence, so that every run fits the same spectra.
struct Sequence(u64);

impl Sequence {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Noisy templates and where their fits start, the centre of the labels.
fn noisy_templates(emulator: &Emulator) -> (Spectra, Vec<f64>) {
    let mut random = Sequence(7);
    let physical = |label: &popfit::emulator::Label, z: f64| {
        let x = label.mean + label.std * z;
        if label.transform == popfit::emulator::Transform::Log10 { 10f64.powf(x) } else { x }
    };
    let labels = emulator.labels();
    let truths: Vec<f64> = (0..SPECTRA)
        .flat_map(|_| labels.iter().map(|l| physical(l, 1.6 * random.uniform() - 0.8)).collect::<Vec<_>>())
        .collect();
    let (mut flux, mut ivar) = (Vec::new(), Vec::new());
    for clean in emulator.templates(&truths).chunks_exact(emulator.pixels()) {
        let mean = clean.iter().map(|x| f64::from(*x)).sum::<f64>() / clean.len() as f64;
        let noise = mean / (20.0 + 80.0 * random.uniform());
        for x in clean {
            let sigma = noise * (0.7 + 0.6 * random.uniform());
            flux.push(f64::from(*x) + sigma * random.normal());
            ivar.push(sigma.powi(-2));
        }
    }
    let wavelength = Wavelength::from(emulator.wavelength().to_vec());
    let spectra = Spectra::from_arrays(wavelength, flux, ivar, None, None).expect("spectra");
    let start: Vec<f64> = labels.iter().map(|l| physical(l, 0.0)).collect();
    (spectra, start.repeat(SPECTRA))
}

fn bare_emulator(c: &mut Criterion) {
    let (spectra, starts) = noisy_templates(&emulator());
    let arm = popfit::Arm::new("", emulator()).interpolation(Interpolation::Linear).continuum(Continuum::none());
    let model = SpectralModel::builder().add_arm(arm).build().expect("a model");
    let settings = LevenbergMarquardt { ftol: 1e-6, ..LevenbergMarquardt::default() };
    let fitter = Fitter::new(model, Device::cpu(), settings).expect("settings");
    let table = fitter.fit_from(&spectra, &starts).expect("a table");
    let evaluations = table.rows.iter().map(|r| f64::from(r.evaluations)).sum::<f64>() / SPECTRA as f64;
    let converged = table.rows.iter().filter(|r| r.status.is_success() && r.chi2 / (r.dof as f64) < 1.15).count();
    println!("emulator: {evaluations:.2} linearisations a fit, {converged} of {SPECTRA} at the minimum");
    let mut group = c.benchmark_group("emulator");
    group.sample_size(10).throughput(Throughput::Elements(SPECTRA as u64));
    group.bench_function("512 fits of 4 labels", |b| b.iter(|| fitter.fit_from(&spectra, &starts).expect("a table")));
    group.finish();
}

criterion_group!(benches, synb, bare_emulator);
criterion_main!(benches);
