//! A GPU that is lost, short of memory, slow or wrong at the k-th call, for every k until a run passes untouched: no panic, no hang, and
//! the rows that the device makes when nothing is wrong, or a clear error; with the CPU's help, the CPU's rows.
#![cfg(feature = "gpu")]

mod common;

use common::fits::{bits, fitter, same_bits};
use common::tiny::{self, linear, spectra, wave};
use popfit::gpu::{Fault, Faults, GpuDevice};
use popfit::spectra::SpectraReader;
use popfit::{
    Control, CurveFitter, Curves, Device, Error, FitTable, Fitter, Formula, Journal, Metadata, NelderMead, Result,
    Schema, Spectra, Summary, TableWriter,
};

const SPECTRA: usize = 12;
/// Calls that a run of this size can make: a sweep ends before.
const MANY: u64 = 200;

/// The best adapter. Without one a test says so and passes, unless `POPFIT_REQUIRE_GPU=1`.
fn gpu() -> Option<GpuDevice> {
    match GpuDevice::best() {
        Ok(device) => Some(device),
        Err(error) if std::env::var("POPFIT_REQUIRE_GPU").as_deref() == Ok("1") => panic!("{error}"),
        Err(_) => {
            println!("skipped: no adapter");
            None
        }
    }
}

fn setup(device: &Device, count: usize) -> (Fitter, Spectra) {
    let emulator = linear(&["a", "b"], wave);
    let labels: Vec<f64> = (0..2 * count).map(|k| 5.0 * (k as f64 * 0.7).sin()).collect();
    let all = spectra(&emulator, &labels, 0.01);
    (fitter(tiny::model(emulator, 0.5), device), all)
}

/// What a fit is, bit by bit.
type Bits = Vec<String>;
/// Fits on a device, with or without the CPU's help.
type Work = fn(&Device, bool) -> Result<Bits>;

fn lm(device: &Device, fallback: bool) -> Result<Bits> {
    let (fitter, all) = setup(device, SPECTRA);
    let table = fitter.cpu_fallback(fallback).fit(&all)?;
    Ok(table.rows.iter().map(|row| format!("{:?}", bits(row))).collect())
}

/// In a population of few: spectra enter where others have left.
fn refilled(device: &Device, fallback: bool) -> Result<Bits> {
    let (fitter, all) = setup(device, 160);
    let table = fitter.memory(Some(120_000)).cpu_fallback(fallback).fit(&all)?;
    Ok(table.rows.iter().map(|row| format!("{:?}", bits(row))).collect())
}

fn simplex(device: &Device, fallback: bool) -> Result<Bits> {
    let (fitter, all) = setup(device, 3);
    let fitter = Fitter::new(fitter.model().clone(), device.clone(), NelderMead::default())?;
    let table = fitter.cpu_fallback(fallback).fit(&all)?;
    Ok(table.rows.iter().map(|row| format!("{:?}", bits(row))).collect())
}

/// Decays of different rates.
fn curves() -> (Formula, Curves) {
    let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
    let noise = |j: usize, k: usize| 0.01 * ((j * 7 + k) as f64 * 12.9898).sin();
    let curve =
        |k: usize| (0..x.len()).map(move |j| 3.0 * (-(0.5 + 0.1 * k as f64) * 0.2 * j as f64).exp() + noise(j, k));
    let y = (0..9).flat_map(curve).collect();
    (Formula::parse("a*exp(-k*x)").unwrap(), Curves::shared(x, y, [1.0, 0.7].repeat(9)))
}

fn curve_fits(device: &Device, fallback: bool) -> Result<Bits> {
    let (formula, curves) = curves();
    let fits = CurveFitter::new(formula, device.clone())?.cpu_fallback(fallback).fit(&curves)?;
    let one = |x: &f64| format!("{:x}", x.to_bits());
    Ok(fits.iter().flat_map(|fit| fit.parameters.iter().chain(&fit.errors).chain([&fit.chi2]).map(one)).collect())
}

fn curve_columns(device: &Device, fallback: bool) -> Result<Bits> {
    let (formula, curves) = curves();
    let fits = CurveFitter::new(formula, device.clone())?.cpu_fallback(fallback).fit_columns(&curves)?;
    let one = |x: &f64| format!("{:x}", x.to_bits());
    Ok(fits.parameters.iter().chain(&fits.errors).chain(&fits.chi2).map(one).collect())
}

/// The error that a lasting fault must end with.
fn is_clear(fault: Fault, error: &Error) -> bool {
    match fault {
        Fault::Lost | Fault::Stall | Fault::Crash => matches!(error, Error::DeviceLost { .. }),
        Fault::OutOfMemory => matches!(error, Error::OutOfMemory { .. }),
        Fault::Mapping => matches!(error, Error::Device { .. }),
        Fault::Zeros | Fault::Garbage | Fault::Wrong => matches!(error, Error::DeviceUntrusted { .. }),
    }
}

/// Kinds of runs: whether a fault lasts, and whether the CPU helps.
const KINDS: [(bool, bool); 3] = [(false, false), (true, true), (true, false)];

/// The k-th call goes wrong, or all from the k-th on, for every k, or, after the first, for every `step`-th.
fn sweep(fault: Fault, (name, work): (&str, Work), step: usize) {
    let Some(gpu) = gpu() else { return };
    let (reference, cpu) = (work(&gpu.clone().into(), false).unwrap(), work(&Device::cpu(), false).unwrap());
    for (lasting, fallback) in KINDS.into_iter().take(if step == 1 { 3 } else { 2 }) {
        let (mut failed, mut helped) = (0, 0);
        for k in (1..).step_by(step) {
            let what = || format!("{name}: {fault:?}, call {k}, lasting: {lasting}, fallback: {fallback}");
            assert!(k < MANY, "{}", what());
            let faults = Faults::new(fault, k, lasting);
            let device = gpu.clone().with_faults(faults.clone()).unwrap().into();
            match work(&device, fallback) {
                Ok(rows) if rows == reference => {}
                Ok(rows) if fallback && rows == cpu => helped += 1,
                Ok(rows) => panic!("{}: other rows: {rows:?}", what()),
                // once made anew it is as good as new
                Err(error) if lasting && !fallback && is_clear(fault, &error) => failed += 1,
                Err(error) => panic!("{}: {error}", what()),
            }
            if faults.calls() < k {
                println!("{}: {failed} errors, {helped} runs ended by the CPU", what());
                break;
            }
        }
        assert_eq!((failed > 0, helped > 0), (lasting && !fallback, lasting && fallback), "{name}: {fault:?}");
    }
}

#[test]
fn a_lost_device() {
    sweep(Fault::Lost, ("lm", lm), 1);
    sweep(Fault::Lost, ("curves", curve_fits), 4);
    sweep(Fault::Lost, ("columns", curve_columns), 4);
}

#[test]
fn too_little_memory() {
    sweep(Fault::OutOfMemory, ("lm", lm), 1);
    sweep(Fault::OutOfMemory, ("curves", curve_fits), 4);
    sweep(Fault::OutOfMemory, ("columns", curve_columns), 4);
}

#[test]
fn work_without_memory_is_done_with_half_as_many_at_once() {
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (reference, _) = stream(&gpu.clone().into(), &folder.path().join("whole"));
    let mut halved = 0;
    for k in (40..120).step_by(9) {
        let device = gpu.clone().with_faults(Faults::new(Fault::OutOfMemory, k, false)).unwrap().into();
        let (table, summary) = stream(&device, &folder.path().join(k.to_string()));
        for (row, expected) in table.rows.iter().zip(&reference.rows) {
            same_bits(row, expected, &format!("call {k}"));
        }
        halved += usize::from(summary.failures.iter().any(|failure| failure.contains("starts at once")));
    }
    assert!(halved > 0, "no submission ran out of memory");
}

#[test]
fn a_buffer_that_cannot_be_mapped() {
    sweep(Fault::Mapping, ("lm", lm), 1);
}

#[test]
fn zeros_in_place_of_results() {
    sweep(Fault::Zeros, ("lm", lm), 1);
    sweep(Fault::Zeros, ("refilled", refilled), 3);
    sweep(Fault::Zeros, ("simplex", simplex), 6);
    sweep(Fault::Zeros, ("curves", curve_fits), 3);
    sweep(Fault::Zeros, ("columns", curve_columns), 1);
}

#[test]
fn noise_in_place_of_results() {
    sweep(Fault::Garbage, ("lm", lm), 1);
    sweep(Fault::Garbage, ("curves", curve_fits), 3);
    sweep(Fault::Garbage, ("columns", curve_columns), 1);
}

/// Curves are polished on the host, in f64, wherever they come from; simplices that are moved find the same minimum with other bits.
#[test]
fn results_that_are_a_little_off() {
    sweep(Fault::Wrong, ("lm", lm), 1);
}

#[test]
fn a_device_that_does_not_answer() {
    sweep(Fault::Stall, ("lm", lm), 1);
    sweep(Fault::Stall, ("columns", curve_columns), 1);
}

#[test]
fn a_device_that_is_lost_while_the_host_waits() {
    sweep(Fault::Crash, ("lm", lm), 1);
}

/// Yields batches of four.
struct Fours {
    all: Spectra,
    next: usize,
}

impl SpectraReader for Fours {
    fn len(&self) -> u64 {
        self.all.len() as u64
    }

    fn next_batch(&mut self, _: usize) -> Result<Option<Spectra>> {
        let rows = self.next..(self.next + 4).min(self.all.len());
        self.next = rows.end;
        Ok(Some(self.all.slice(rows)).filter(|batch| !batch.is_empty()))
    }

    fn empty(&self) -> Spectra {
        self.all.slice(0..0)
    }
}

/// A run of six batches, kept in a journal, and what it says of itself.
fn stream(device: &Device, journal: &std::path::Path) -> (FitTable, Summary) {
    let (fitter, all) = setup(device, 24);
    let fitter = fitter.cpu_fallback(true);
    let mut table = fitter.table();
    let mut journal = Journal::open(journal, "key", true).unwrap();
    let mut source = Fours { all, next: 0 };
    let summary = fitter.fit_journaled(&mut source, &mut table, &Control::default(), &mut journal).unwrap();
    (table, summary)
}

/// The device of every row.
fn makers(summary: &Summary) -> Vec<String> {
    summary.by_rows.iter().flat_map(|(name, rows)| std::iter::repeat_n(name.clone(), *rows as usize)).collect()
}

#[test]
fn a_run_says_which_rows_the_cpu_has_made_and_a_resumed_one_knows() {
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let alone = |name: &str, device: &Device| stream(device, &folder.path().join(name)).0;
    let (on_gpu, on_cpu) = (alone("gpu", &gpu.clone().into()), alone("cpu", &Device::cpu()));
    let mut mixed = 0;
    for (n, lasting) in [(1, true), (60, true), (90, true), (110, true), (130, true), (60, false), (100, false)] {
        let target = folder.path().join(format!("{n} {lasting}"));
        let faults = Faults::new(Fault::Lost, n, lasting);
        let device = Device::from(gpu.clone().with_faults(faults).unwrap());
        let (table, summary) = stream(&device, &target);
        let makers = makers(&summary);
        assert_eq!((table.len(), makers.len(), summary.fits), (24, 24, 24));
        for (k, (row, maker)) in table.rows.iter().zip(&makers).enumerate() {
            let reference = if *maker == device.name() { &on_gpu } else { &on_cpu };
            same_bits(row, &reference.rows[k], &format!("row {k}, by {maker}, lost at call {n}"));
        }
        let by_cpu = makers.iter().filter(|name| **name == Device::cpu().name()).count();
        assert!(lasting || by_cpu == 0, "made anew: {:?}", summary.by_rows);
        assert!(by_cpu == 0 || !summary.failures.is_empty());
        mixed += usize::from(by_cpu > 0 && by_cpu < 24);
        println!("lost at call {n}, lasting: {lasting}: {:?}, {:?}", summary.by_device, summary.by_rows);
        // another run finds everything in the journal, on a device that works
        let (again, resumed) = stream(&Device::from(gpu.clone()), &target);
        assert_eq!(resumed.by_rows, summary.by_rows);
        again.rows.iter().zip(&table.rows).for_each(|(a, b)| same_bits(a, b, "resumed"));
    }
    assert!(mixed > 0, "no run was lost between two batches");
}

#[test]
fn tables_tell_who_made_their_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (fitter, all) = setup(&Device::cpu(), 3);
    let table = fitter.fit(&all).unwrap();
    for extension in ["parquet", "fits"] {
        let path = folder.path().join(format!("out.{extension}"));
        let schema = Schema { parameters: table.parameters.clone(), ..Schema::default() };
        let mut writer = TableWriter::create(&path, &schema, &Metadata::default()).unwrap();
        writer.append(&table.rows).unwrap();
        writer.made_by(&[("gpu:X".into(), 2), ("cpu".into(), 1)]);
        writer.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let holds = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(holds("popfit.rows") && holds("0-1 gpu:X") && holds("2-2 cpu"), "{extension}");
        assert_eq!(FitTable::read(&path).unwrap().0.len(), 3);
    }
}
