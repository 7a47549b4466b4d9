//! Workers that share the populations of a device. The device is the CPU, used like a GPU with eight workers.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use popfit_testing::random::Random;

use super::*;
use crate::cpu::CpuDevice;
use crate::recording::{BufferId, Recording};
use crate::solver::{Backend, LevenbergMarquardt, Pending, Places};
use crate::spectra::SpectraReader;
use crate::{
    Continuum, Control, Device as DeviceChoice, Emulator, FitTable, Spectra, SpectralFitter,
    SpectralModel, Summary,
};

const SEED: u64 = 61;

/// The CPU as a GPU, whose workers share populations.
#[derive(Clone)]
struct FakeGpu {
    /// Maximum number of starts in flight.
    members: usize,
    workers: usize,
    /// Number of submissions until one fails; then the device works again.
    submissions_to_failure: Arc<AtomicUsize>,
    /// The submission panics instead.
    panics: bool,
}

/// A population of the CPU that counts submissions, and fails when the test wants it.
struct FakeGpuPopulation {
    population: Box<dyn Population>,
    gpu: FakeGpu,
}

impl FakeGpu {
    fn new(members: usize, workers: usize) -> FakeGpu {
        FakeGpu {
            members,
            workers,
            submissions_to_failure: Arc::new(AtomicUsize::new(usize::MAX)),
            panics: false,
        }
    }
}

impl Backend for FakeGpu {
    fn name(&self) -> String {
        CpuDevice.name()
    }

    fn enough(&self) -> usize {
        self.members
    }

    fn workers(&self) -> usize {
        self.workers
    }

    fn shares_populations(&self) -> bool {
        true
    }

    fn renew(&self, _: &Error) -> Result<bool> {
        Ok(true)
    }

    fn capacity(&self, recording: &Recording, memory: Option<u64>) -> Result<usize> {
        CpuDevice.capacity(recording, memory)
    }

    fn population(
        &self,
        recording: Arc<Recording>,
        settings: &LevenbergMarquardt,
        capacity: usize,
    ) -> Result<Box<dyn Population>> {
        let population = CpuDevice.population(recording, settings, capacity)?;
        Ok(Box::new(FakeGpuPopulation {
            population,
            gpu: self.clone(),
        }))
    }
}

impl Population for FakeGpuPopulation {
    fn capacity(&self) -> usize {
        self.population.capacity()
    }

    fn clear(&mut self) {
        self.population.clear();
    }

    fn spectra_capacity(&self) -> usize {
        self.population.spectra_capacity() + self.population.spectra_capacity() / 2
    }

    fn upload(&mut self, batch: &Batch, spectra: &[usize]) -> Result<()> {
        self.population.upload(batch, spectra)
    }

    fn enter_members(&mut self, batch: &Batch, places: &Places) -> Result<()> {
        self.population.enter_members(batch, places)
    }

    fn advance(&mut self, rounds: u32) -> Pending<'_, usize> {
        let submissions_left = self
            .gpu
            .submissions_to_failure
            .fetch_sub(1, Ordering::Relaxed);
        let fails = submissions_left == 1;
        assert!(!fails || !self.gpu.panics, "as the test wants it");
        if fails {
            let message = "as the test wants it".into();
            return Box::pin(async {
                Err(Error::DeviceLost {
                    device: "card".into(),
                    message,
                })
            });
        }
        self.population.advance(rounds)
    }

    fn active(&mut self) -> Pending<'_, Vec<usize>> {
        self.population.active()
    }

    fn read<'a>(&'a mut self, starts: &'a [usize]) -> Pending<'a, Vec<Outcome>> {
        self.population.read(starts)
    }

    fn measure(&mut self, meter: Arc<Meter>) {
        self.population.measure(meter);
    }

    fn inspect(&mut self, buffer: BufferId) -> Pending<'_, Vec<f64>> {
        self.population.inspect(buffer)
    }
}

/// Batches of spectra on two wavelength grids.
struct TwoGrids(Vec<Spectra<'static>>);

impl SpectraReader for TwoGrids {
    fn len(&self) -> u64 {
        self.0.iter().map(|spectra| spectra.len() as u64).sum()
    }

    fn next_batch(&mut self, _: usize) -> Result<Option<Spectra<'static>>> {
        Ok(self.0.pop())
    }

    fn empty(&self) -> Spectra<'static> {
        self.0[0].slice(0..0)
    }
}

fn model() -> SpectralModel {
    let emulator = Emulator::open(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/data/emulator.safetensors"
    ))
    .unwrap();
    let model = SpectralModel::builder()
        .arm("", emulator)
        .velocity(-1000.0..=1000.0);
    model.continuum(Continuum::rbf(10)).build().unwrap()
}

/// Returns the demo's spectra again and again, each time with other noise, on wavelengths that are multiplied by
/// `stretch`.
fn noisy_spectra(count: usize, stretch: f64) -> Spectra<'static> {
    let demo = Spectra::open(concat!(env!("CARGO_MANIFEST_DIR"), "/data/spectra.npz")).unwrap();
    let arm = &demo.arms[0];
    let pixels = arm.pixels;
    let mut random = Random(SEED);
    let mut flux = Vec::new();
    let mut ivar = Vec::new();
    for spectrum in (0..count).map(|k| k % demo.len()) {
        let range = spectrum * pixels..(spectrum + 1) * pixels;
        for (flux_of_pixel, ivar_of_pixel) in arm
            .flux
            .double(range.clone())
            .iter()
            .zip(&*arm.ivar.double(range))
        {
            let noise = random.normal() / ivar_of_pixel.max(1e-30).sqrt();
            flux.push(flux_of_pixel + noise);
            ivar.push(ivar_of_pixel / 2.0);
        }
    }
    let wavelength: Vec<f64> = arm.grid(0).iter().map(|x| x * stretch).collect();
    Spectra::from_arrays(wavelength, flux, ivar, None, None).unwrap()
}

fn fit(device: DeviceChoice, batch: usize, source: &mut dyn SpectraReader) -> (FitTable, Summary) {
    let fitter = SpectralFitter::new(model(), device).batch_size(batch);
    let mut table = fitter.table();
    let summary = fitter
        .clone()
        .control(Control {
            profile: true,
            ..Control::default()
        })
        .fit_stream(source, &mut table)
        .unwrap();
    (table, summary)
}

fn assert_same_rows(expected: &FitTable, table: &FitTable) {
    assert_eq!(expected.len(), table.len());
    for (a, b) in expected.to_rows().into_iter().zip(table.to_rows()) {
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
    }
}

/// Returns the number of rounds in which fewer than a tenth of the members took part, the number of all rounds, and how
/// many rounds there were if all were full.
fn count_rounds(summary: &Summary, members: usize) -> (usize, usize, f64) {
    let profile = summary.profile.as_ref().unwrap();
    let active_members: Vec<usize> = profile.devices[0]
        .rounds
        .iter()
        .flat_map(|rounds| rounds.active.clone())
        .collect();
    let sparse_rounds = active_members
        .iter()
        .filter(|count| **count < members / 10)
        .count();
    (
        sparse_rounds,
        active_members.len(),
        active_members.iter().sum::<usize>() as f64 / members as f64,
    )
}

/// Fits batches of 64 spectra in a population of 64. One after the other, they take as many rounds as their slowest
/// fits. Which spectra are in flight together depends on the timing of the threads, but no bit of a row does.
#[test]
fn batches_fill_each_others_rounds() {
    let spectra = noisy_spectra(1024, 1.0);
    let (alone, _) = fit(DeviceChoice::cpu(), 64, &mut spectra.reader());
    let (apart, one_by_one) = fit(
        DeviceChoice::from_single(FakeGpu::new(64, 1)),
        64,
        &mut spectra.reader(),
    );
    let (shared, together) = fit(
        DeviceChoice::from_single(FakeGpu::new(64, 8)),
        64,
        &mut spectra.reader(),
    );
    assert_same_rows(&alone, &apart);
    assert_same_rows(&alone, &shared);
    let (sparse_alone, rounds_alone, _) = count_rounds(&one_by_one, 64);
    let (sparse_shared, rounds_shared, full_rounds) = count_rounds(&together, 64);
    println!(
        "{sparse_alone} of {rounds_alone} rounds with few members; shared {sparse_shared} of {rounds_shared}, \
         {full_rounds} if all were full"
    );
    assert!(4 * rounds_shared < 3 * rounds_alone && 3 * sparse_shared < sparse_alone);
    // Evaluations that look for a second minimum do not shorten the submissions of four rounds that they share.
    let submissions = together.profile.as_ref().unwrap().devices[0].rounds.len();
    assert!(rounds_shared > 3 * submissions, "{submissions} submissions");
}

#[test]
fn spectra_on_other_wavelengths_wait_until_the_population_is_empty() {
    let source = || {
        TwoGrids(
            (0..12)
                .map(|k| noisy_spectra(16, if k % 3 == 0 { 1.0 + 1e-4 } else { 1.0 }))
                .collect(),
        )
    };
    let (alone, _) = fit(DeviceChoice::cpu(), 16, &mut source());
    let (shared, _) = fit(
        DeviceChoice::from_single(FakeGpu::new(40, 5)),
        16,
        &mut source(),
    );
    assert_same_rows(&alone, &shared);
}

#[test]
fn a_failure_repeats_the_batches_in_flight_with_the_same_bits() {
    let spectra = noisy_spectra(192, 1.0);
    let (alone, _) = fit(DeviceChoice::cpu(), 16, &mut spectra.reader());
    let gpu = FakeGpu::new(64, 4);
    gpu.submissions_to_failure.store(5, Ordering::Relaxed);
    let (shared, summary) = fit(DeviceChoice::from_single(gpu), 16, &mut spectra.reader());
    assert_same_rows(&alone, &shared);
    assert!(
        (1..=4).contains(&summary.failures.len()),
        "{:?}",
        summary.failures
    );
}

/// The passes that the workers of an earlier call have left share the population that fails.
#[test]
fn populations_that_have_failed_are_not_used_again() {
    let spectra = noisy_spectra(96, 1.0);
    let gpu = FakeGpu::new(64, 4);
    let fitter =
        SpectralFitter::new(model(), DeviceChoice::from_single(gpu.clone())).batch_size(16);
    let before = fitter.fit(&spectra).unwrap();
    for submission in [1, 3] {
        gpu.submissions_to_failure
            .store(submission, Ordering::Relaxed);
        assert_same_rows(&before, &fitter.fit(&spectra).unwrap());
        assert!(
            gpu.submissions_to_failure.load(Ordering::Relaxed) > submission,
            "no submission failed"
        );
        // A single worker finds the passes that four workers have left.
        assert_same_rows(
            &fitter.fit(&spectra.slice(0..16)).unwrap(),
            &fitter.fit(&spectra.slice(0..16)).unwrap(),
        );
    }
}

#[test]
fn a_cancelled_run_does_not_cancel_the_next_one() {
    let spectra = noisy_spectra(96, 1.0);
    for device in [
        DeviceChoice::cpu(),
        DeviceChoice::from_single(FakeGpu::new(64, 1)),
        DeviceChoice::from_single(FakeGpu::new(64, 4)),
    ] {
        let fitter = SpectralFitter::new(model(), device).batch_size(16);
        let whole = fitter.fit(&spectra).unwrap();
        for _ in 0..2 {
            let cancel = Arc::new(AtomicBool::new(false));
            let flag = cancel.clone();
            let control = Control {
                cancel,
                progress: Some(Arc::new(move |_, _| flag.store(true, Ordering::Relaxed))),
                ..Control::default()
            };
            let table = fitter.clone().control(control).fit(&spectra).unwrap();
            assert!(table.status().contains(&crate::Status::Interrupted));
            assert_same_rows(&whole, &fitter.fit(&spectra).unwrap());
        }
    }
}

/// A bad spectrum ends a strict run, but the fits of other workers in front of it are finished.
#[test]
fn a_bad_spectrum_does_not_fail_other_workers() {
    let mut spectra = noisy_spectra(96, 1.0);
    let arm = &mut spectra.arms[0];
    arm.flux.to_mut()[70 * arm.pixels] = f64::NAN;
    let fitter = SpectralFitter::new(model(), DeviceChoice::from_single(FakeGpu::new(64, 4)))
        .batch_size(16)
        .strict(true);
    let mut table = fitter.table();
    let error = fitter
        .fit_stream(&mut spectra.reader(), &mut table)
        .unwrap_err();
    assert!(
        matches!(error, Error::BadSpectrum { row: 70, .. }),
        "{error}"
    );
    assert_eq!(table.len(), 64);
}

#[test]
fn a_panic_ends_the_run() {
    let spectra = noisy_spectra(192, 1.0);
    let gpu = FakeGpu {
        panics: true,
        ..FakeGpu::new(64, 4)
    };
    gpu.submissions_to_failure.store(5, Ordering::Relaxed);
    let fitted =
        std::panic::catch_unwind(|| fit(DeviceChoice::from_single(gpu), 16, &mut spectra.reader()));
    assert!(fitted.is_err());
}
