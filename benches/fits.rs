//! Whole fits on the CPU device, start to table: `cargo bench -p popfit-bench --features faer --bench fits`.
//!
//! `synb`: 128 spectra with velocity and continuum; opening the network, reading the file, library, first guess and
//! writing a Parquet table are included. Beside the GF/s of the network's products stand those of faer's large product
//! on all cores. `emulator`: the bare network (4 labels, no velocity, no continuum), every fit from the centre of the
//! labels, truths uniform within ±0.8 scaled labels, signal to noise 20 to 100, stopping at Δχ² below 1e-6 χ².

#[path = "shared/ceiling.rs"]
mod ceiling;

use std::path::{Path, PathBuf};
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use popfit::low_level::{Schema, TableWriter};
use popfit::spectra::open_reader;
use popfit::{
    Continuum, Device, Emulator, Interpolation, LevenbergMarquardt, SpectralFitter, SpectralModel,
    WriteOptions,
};
use popfit_testing::noisy::noisy_templates;

/// Folder of the workspace, of which `popfit-bench` is a package.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const SPECTRA: usize = 512;
/// Operations of a linearisation in the products of the demo's network: its value and four tangents.
const PRODUCTS: f64 = 2.0 * 5.0 * (4 * 256 + 2 * 256 * 256 + 256 * 200 + 200 * 3861) as f64;

fn emulator() -> Emulator {
    Emulator::open(format!("{ROOT}/data/emulator.safetensors")).expect("the demo's emulator")
}

/// Files of 128 spectra: the reference's beside the project, else the demo's 64 twice.
fn spectra_files() -> Vec<PathBuf> {
    let reference = Path::new(ROOT).join("tests/data/synb/fixed_vsini/spectra.npz");
    if reference.is_file() {
        println!("synb: the 128 reference spectra");
        return vec![reference];
    }
    println!("synb: the demo's 64 spectra, twice");
    vec![format!("{ROOT}/data/spectra.npz").into(); 2]
}

/// Everything between two files: a new fitter every time, as the template library is part of the job.
fn start_to_table(files: &[PathBuf], table: &Path) -> popfit::Result<u64> {
    let model = SpectralModel::builder()
        .arm("", emulator())
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::rbf(10))
        .marginalise(true)
        .build()?;
    let fitter = SpectralFitter::new(model, Device::cpu());
    let schema = Schema::of(&fitter, false);
    let mut writer = TableWriter::create(
        table,
        &schema,
        WriteOptions {
            overwrite: true,
            ..WriteOptions::default()
        },
    )?;
    let mut fits = 0;
    for file in files {
        fits += fitter
            .fit_stream(open_reader(file)?.as_mut(), &mut writer)?
            .fits;
    }
    writer.finish()?;
    Ok(fits)
}

fn synb(c: &mut Criterion) {
    let (files, folder) = (
        spectra_files(),
        tempfile::tempdir().expect("a temporary folder"),
    );
    let mut group = c.benchmark_group("synb");
    group.sample_size(10).throughput(Throughput::Elements(128));
    group.bench_function("128 spectra, 2 starts", |b| {
        b.iter(|| {
            let fits =
                start_to_table(&files, &folder.path().join("table.parquet")).expect("a table");
            assert_eq!(fits, 128);
        });
    });
    group.finish();
}

fn bare_emulator(c: &mut Criterion) {
    let (spectra, starts) = noisy_templates(&emulator(), SPECTRA).expect("spectra");
    let arm = popfit::Arm::new("", emulator())
        .interpolation(Interpolation::Linear)
        .continuum(Continuum::none());
    let model = SpectralModel::builder()
        .add_arm(arm)
        .build()
        .expect("a model");
    let settings = LevenbergMarquardt::default().ftol(1e-6);
    let fitter = SpectralFitter::new(model, Device::cpu()).solver(settings);
    let table = fitter.fit_from(&spectra, &starts).expect("a table");
    let evaluations = table
        .evaluations()
        .iter()
        .copied()
        .map(f64::from)
        .sum::<f64>()
        / SPECTRA as f64;
    let converged = table
        .to_rows()
        .iter()
        .filter(|row| row.status.is_success() && row.chi2 / (row.dof as f64) < 1.15)
        .count();
    println!(
        "emulator: {evaluations:.2} linearisations a fit, {converged} of {SPECTRA} at the minimum"
    );
    let seconds = |_| {
        let begin = Instant::now();
        fitter
            .fit_from(&spectra, &starts)
            .map(|_| begin.elapsed().as_secs_f64())
            .expect("a table")
    };
    let least = (0..5).map(seconds).fold(f64::INFINITY, f64::min);
    // all fits begin at one point, whose rows are made once
    let rate = |each: f64| PRODUCTS * each * SPECTRA as f64 / least / 1e9;
    let (made, all) = (rate(evaluations - 1.0), rate(evaluations));
    println!(
        "emulator: {made:.0} GF/s in the network's products that are made, {all:.0} with those that need not be"
    );
    let most = ceiling::faer_ceiling();
    println!(
        "emulator: {:.0} % of the {most:.0} GF/s of faer's large product on all cores",
        100.0 * made / most
    );
    let mut group = c.benchmark_group("emulator");
    group
        .sample_size(10)
        .throughput(Throughput::Elements(SPECTRA as u64));
    group.bench_function("512 fits of 4 labels", |b| {
        b.iter(|| fitter.fit_from(&spectra, &starts).expect("a table"))
    });
    group.finish();
}

criterion_group!(benches, synb, bare_emulator);
criterion_main!(benches);
