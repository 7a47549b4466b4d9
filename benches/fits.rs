//! Whole fits on the CPU device, start to table: `cargo bench --bench fits`.
//!
//! `synb`: the demo's 64 spectra, twice, with velocity and continuum, first guess and library included.
//! `emulator`: the bare network (4 labels, no velocity, no continuum), every fit from the centre of the labels, truths uniform
//! within ±0.8 scaled labels, signal to noise 20 to 100, stopping at Δχ² below 1e-6 χ².

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use popfit::spectra::{Ids, Wavelength};
use popfit::{Continuum, Device, Emulator, Fitter, Interpolation, LevenbergMarquardt, Spectra, SpectralModel};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
const SPECTRA: usize = 512;

fn emulator() -> Emulator {
    Emulator::open(format!("{DATA}/emulator.safetensors")).expect("the demo's emulator")
}

fn synb(c: &mut Criterion) {
    let half = Spectra::open(format!("{DATA}/spectra.npz")).expect("the demo's spectra");
    let mut twice = half.clone();
    for arm in &mut twice.arms {
        arm.flux.extend_from_within(..);
        arm.ivar.extend_from_within(..);
        arm.mask.extend_from_within(..);
    }
    twice.ids = Ids::Integer((0..2 * half.len() as i64).collect());
    let mut group = c.benchmark_group("synb");
    group.sample_size(10).throughput(Throughput::Elements(twice.len() as u64));
    group.bench_function("128 spectra, 2 starts", |b| {
        b.iter(|| {
            // a new fitter every time: the template library is part of the job
            let model = SpectralModel::builder()
                .arm("", emulator())
                .velocity(-1000.0..=1000.0)
                .continuum(Continuum::rbf(10))
                .marginalise(true)
                .build()
                .expect("a model");
            let fitter = Fitter::new(model, Device::cpu(), LevenbergMarquardt::default()).expect("settings");
            fitter.fit(&twice).expect("a table")
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
