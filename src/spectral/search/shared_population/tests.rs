//! Workers that share the populations of a device. The device is the CPU as if it were a card with eight workers.

use std::sync::atomic::AtomicUsize;

use popfit_testing::random::Random;

use super::*;
use crate::cpu::CpuDevice;
use crate::recording::{BufferId, Recording};
use crate::solver::{Device, Method, Pending, Places};
use crate::spectra::SpectraReader;
use crate::{
    Continuum, Control, Device as Chosen, Emulator, FitTable, Spectra, SpectralFitter,
    SpectralModel, Summary,
};

const SEED: u64 = 61;

/// The CPU, whose workers share populations.
#[derive(Clone)]
struct Card {
    /// Maximum number of starts in flight.
    members: usize,
    workers: usize,
    /// Number of submissions until one fails; then the device works again.
    submissions_to_failure: Arc<AtomicUsize>,
    /// The submission panics instead.
    panics: bool,
}

/// A population that counts submissions.
struct CardPopulation {
    population: Box<dyn Population>,
    card: Card,
}

impl Card {
    fn new(members: usize, workers: usize) -> Card {
        Card {
            members,
            workers,
            submissions_to_failure: Arc::new(AtomicUsize::new(usize::MAX)),
            panics: false,
        }
    }
}

impl Device for Card {
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
        method: &Method,
        capacity: usize,
    ) -> Result<Box<dyn Population>> {
        let population = CpuDevice.population(recording, method, capacity)?;
        Ok(Box::new(CardPopulation {
            population,
            card: self.clone(),
        }))
    }
}

impl Population for CardPopulation {
    fn capacity(&self) -> usize {
        self.population.capacity()
    }

    fn lanes(&self) -> usize {
        self.population.lanes()
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
        let left = self
            .card
            .submissions_to_failure
            .fetch_sub(1, Ordering::Relaxed);
        assert!(left != 1 || !self.card.panics, "as the test wants it");
        if left == 1 {
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

/// Spectra, some after others on the same wavelengths times 1 + 1e-4.
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
    let (pixels, mut random) = (arm.pixels, Random(SEED));
    let (mut flux, mut ivar) = (Vec::new(), Vec::new());
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

fn fit(device: Chosen, batch: usize, source: &mut dyn SpectraReader) -> (FitTable, Summary) {
    let fitter = SpectralFitter::new(model(), device).batch_size(batch);
    let mut table = fitter.table();
    let summary = fitter
        .fit_stream(source, &mut table, &Control::default().profile(true))
        .unwrap();
    (table, summary)
}

fn assert_same_rows(one: &FitTable, other: &FitTable) {
    assert_eq!(one.len(), other.len());
    for (a, b) in one.to_rows().into_iter().zip(other.to_rows()) {
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
    }
}

/// Rounds of a run in which fewer than a tenth of the members took part, all rounds, and rounds if all were full.
fn rounds(summary: &Summary, members: usize) -> (usize, usize, f64) {
    let profile = summary.profile.as_ref().unwrap();
    let active: Vec<usize> = profile.devices[0]
        .rounds
        .iter()
        .flat_map(|rounds| rounds.active.clone())
        .collect();
    let few = active.iter().filter(|count| **count < members / 10).count();
    (
        few,
        active.len(),
        active.iter().sum::<usize>() as f64 / members as f64,
    )
}

/// Batches of 64 spectra in a population of 64: one after the other they have as many rounds as their slowest fits.
/// Which spectra meet depends on the threads' times, and no bit of a row does.
#[test]
fn batches_fill_each_others_rounds() {
    let spectra = noisy_spectra(1024, 1.0);
    let (alone, _) = fit(Chosen::cpu(), 64, &mut spectra.reader());
    let (apart, one_by_one) = fit(Chosen::one(Card::new(64, 1)), 64, &mut spectra.reader());
    let (shared, together) = fit(Chosen::one(Card::new(64, 8)), 64, &mut spectra.reader());
    assert_same_rows(&alone, &apart);
    assert_same_rows(&alone, &shared);
    let (few_before, before, _) = rounds(&one_by_one, 64);
    let (few, all, full) = rounds(&together, 64);
    println!(
        "{few_before} of {before} rounds with few members; shared {few} of {all}, {full} if all were full"
    );
    assert!(4 * all < 3 * before && 3 * few < few_before);
}

#[test]
fn spectra_on_other_wavelengths_wait() {
    let source = || {
        TwoGrids(
            (0..12)
                .map(|k| noisy_spectra(16, if k % 3 == 0 { 1.0 + 1e-4 } else { 1.0 }))
                .collect(),
        )
    };
    let (alone, _) = fit(Chosen::cpu(), 16, &mut source());
    let (shared, _) = fit(Chosen::one(Card::new(40, 5)), 16, &mut source());
    assert_same_rows(&alone, &shared);
}

#[test]
fn a_failure_is_one_of_all_batches_in_flight() {
    let spectra = noisy_spectra(192, 1.0);
    let (alone, _) = fit(Chosen::cpu(), 16, &mut spectra.reader());
    let card = Card::new(64, 4);
    card.submissions_to_failure.store(5, Ordering::Relaxed);
    let (shared, summary) = fit(Chosen::one(card), 16, &mut spectra.reader());
    assert_same_rows(&alone, &shared);
    assert!(
        (1..=4).contains(&summary.failures.len()),
        "{:?}",
        summary.failures
    );
}

/// Passes that workers of an earlier call have left share the population that fails.
#[test]
fn populations_that_have_failed_are_not_used_again() {
    let spectra = noisy_spectra(96, 1.0);
    let card = Card::new(64, 4);
    let fitter = SpectralFitter::new(model(), Chosen::one(card.clone())).batch_size(16);
    let before = fitter.fit(&spectra).unwrap();
    for submission in [1, 3] {
        card.submissions_to_failure
            .store(submission, Ordering::Relaxed);
        assert_same_rows(&before, &fitter.fit(&spectra).unwrap());
        assert!(
            card.submissions_to_failure.load(Ordering::Relaxed) > submission,
            "no submission failed"
        );
        // one worker finds what four have left
        assert_same_rows(
            &fitter.fit(&spectra.slice(0..16)).unwrap(),
            &fitter.fit(&spectra.slice(0..16)).unwrap(),
        );
    }
}

/// A run that was cancelled leaves nothing to the next one.
#[test]
fn a_cancelled_run_cancels_no_other() {
    let spectra = noisy_spectra(96, 1.0);
    for device in [
        Chosen::cpu(),
        Chosen::one(Card::new(64, 1)),
        Chosen::one(Card::new(64, 4)),
    ] {
        let fitter = SpectralFitter::new(model(), device).batch_size(16);
        let whole = fitter.fit(&spectra).unwrap();
        for _ in 0..2 {
            let cancel = Arc::new(AtomicBool::new(false));
            let flag = cancel.clone();
            let control = Control::default()
                .cancel(cancel)
                .progress(move |_, _| flag.store(true, Ordering::Relaxed));
            let rows = crate::spectral::stream::in_memory::fit_in_memory(
                &fitter, &spectra, None, &control,
            )
            .unwrap();
            assert!(
                rows.iter()
                    .any(|row| row.status == crate::Status::Interrupted)
            );
            assert_same_rows(&whole, &fitter.fit(&spectra).unwrap());
        }
    }
}

/// The spectrum that ends a strict run ends no fit of another worker.
#[test]
fn a_bad_spectrum_is_no_failure_of_others() {
    let mut spectra = noisy_spectra(96, 1.0);
    let arm = &mut spectra.arms[0];
    arm.flux.to_mut()[70 * arm.pixels] = f64::NAN;
    let fitter = SpectralFitter::new(model(), Chosen::one(Card::new(64, 4)))
        .batch_size(16)
        .strict(true);
    let mut table = fitter.table();
    let error = fitter
        .fit_stream(&mut spectra.reader(), &mut table, &Control::default())
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
    let card = Card {
        panics: true,
        ..Card::new(64, 4)
    };
    card.submissions_to_failure.store(5, Ordering::Relaxed);
    let fitted = std::panic::catch_unwind(|| fit(Chosen::one(card), 16, &mut spectra.reader()));
    assert!(fitted.is_err());
}
