//! Profiles of runs: their counts are right, and profiling changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use popfit::low_level::{DeviceProfile, Journal, Profile};
use popfit::spectra::SpectraReader;
use popfit::{Control, Device, FitTable, NelderMead, Solver, Spectra, SpectralFitter, Status};
use popfit_testing::fits::{devices, fitter, pick, same_bits};
use popfit_testing::profile::{DEVICE, HOST};
use popfit_testing::tiny::{self, Layer, network, spectra};
use serde_json::Value;

/// Yields batches of eight spectra. The number is that of the spectra read so far.
struct Slices(Spectra<'static>, usize);

impl SpectraReader for Slices {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn next_batch(&mut self, _max: usize) -> popfit::Result<Option<Spectra<'static>>> {
        let rows = self.1..(self.1 + 8).min(self.0.len());
        self.1 = rows.end;
        Ok(Some(self.0.slice(rows)).filter(|batch| !batch.is_empty()))
    }

    fn empty(&self) -> Spectra<'static> {
        self.0.slice(0..0)
    }
}

const SPECTRA: usize = 40;

/// Returns a fitter of a network with two labels, a hidden layer of 16 and 64 pixels, with a velocity, and its spectra.
fn fitter_and_spectra(device: &Device) -> (SpectralFitter, Spectra<'static>) {
    let weights = |count: usize, pace: f32| {
        (0..count)
            .map(|k| 0.3 * (pace * k as f32).sin())
            .collect::<Vec<f32>>()
    };
    let hidden = Layer {
        outputs: 16,
        weight: weights(32, 1.7),
        bias: weights(16, 0.9),
    };
    let output = Layer {
        outputs: tiny::PIXELS,
        weight: weights(16 * tiny::PIXELS, 2.3),
        bias: vec![2.0; tiny::PIXELS],
    };
    let emulator = network(&["a", "b"], "silu", &[hidden, output]);
    let labels: Vec<f64> = (0..2 * SPECTRA)
        .map(|k| 2.0 * (k as f64 * 0.7).sin())
        .collect();
    let all_spectra = spectra(&emulator, &labels, 0.01);
    let model = tiny::builder(emulator, 0.5)
        .velocity(-50.0..=50.0)
        .build()
        .unwrap();
    (fitter(model, device).batch_size(8), all_spectra)
}

fn fit_stream(
    fitter: &SpectralFitter,
    spectra: &Spectra,
    profile: bool,
) -> (FitTable, Option<Profile>) {
    let mut table = fitter.table();
    let control = Control {
        profile,
        ..Control::default()
    };
    let summary = fitter
        .clone()
        .control(control.clone())
        .fit_stream(&mut Slices(spectra.clone().into_owned(), 0), &mut table)
        .unwrap();
    (table, summary.profile)
}

fn operations_and_bytes(device: &DeviceProfile, name: &str) -> (f64, f64) {
    let stage = device
        .stages
        .iter()
        .find(|stage| stage.name == name)
        .unwrap();
    (stage.operations, stage.bytes)
}

#[test]
fn profiling_changes_no_bit() {
    for device in devices() {
        let (fitter, spectra) = fitter_and_spectra(&device);
        let polished =
            Solver::LevenbergMarquardtThenNelderMead(Default::default(), NelderMead::default());
        let simplices =
            SpectralFitter::new(fitter.model().clone(), device.clone()).solver(polished);
        for fitter in [fitter, simplices] {
            let (plain, no_profile) = fit_stream(&fitter, &spectra, false);
            let (measured, profile) = fit_stream(&fitter, &spectra, true);
            assert!(no_profile.is_none() && profile.is_some());
            assert_eq!((plain.len(), measured.len()), (SPECTRA, SPECTRA));
            for (plain_row, measured_row) in plain.to_rows().into_iter().zip(measured.to_rows()) {
                same_bits(plain_row, measured_row, &device.name());
            }
        }
    }
}

#[test]
fn shares_of_stages_add_up_and_counts_are_right() {
    for device in devices() {
        let (fitter, spectra) = fitter_and_spectra(&device);
        let profile = fit_stream(&fitter, &spectra, true).1.unwrap();
        assert_eq!((profile.fits, profile.devices.len()), (SPECTRA as u64, 1));
        assert!(profile.memory_peak.is_none_or(|bytes| bytes > 1 << 20));
        let names: Vec<&str> = profile.host.iter().map(|stage| stage.name).collect();
        assert_eq!(names, HOST);
        let total: f64 = profile.host.iter().map(|stage| stage.share).sum();
        assert!((total - 1.0).abs() < 1e-9, "{total}");
        let calls = |name: &str| {
            profile
                .host
                .iter()
                .find(|stage| stage.name == name)
                .unwrap()
                .calls
        };
        assert_eq!(
            (
                calls("read"),
                calls("first guess"),
                calls("posterior"),
                calls("write")
            ),
            (6, 5, 0, 5)
        );
        assert_eq!(
            (profile.recalled, profile.interrupted, profile.opening),
            (0, 0, None)
        );
        let bytes = |name: &str| {
            profile
                .host
                .iter()
                .find(|stage| stage.name == name)
                .unwrap()
                .bytes
        };
        // Bytes of flux and ivar.
        assert_eq!(bytes("read"), (2 * 8 * SPECTRA * tiny::PIXELS) as f64);
        assert_eq!((bytes("write"), bytes("fit")), (0.0, 0.0));

        let device_profile = &profile.devices[0];
        assert_eq!(device_profile.name, device.name());
        let names: Vec<&str> = device_profile
            .stages
            .iter()
            .map(|stage| stage.name)
            .collect();
        assert_eq!(names, DEVICE);
        let total: f64 = device_profile.stages.iter().map(|stage| stage.share).sum();
        assert!((total - 1.0).abs() < 1e-9, "{total}");
        assert!(
            device_profile.busy > 0.0 && device_profile.busy < 1.05,
            "{}",
            device_profile.busy
        );
        assert!(device_profile.bytes_held > (SPECTRA / 5 * tiny::PIXELS * 4) as u64);
        for stage in &device_profile.stages {
            let has_operations = !matches!(stage.name, "upload" | "compact" | "readback");
            assert!(stage.calls > 0 && stage.bytes > 0.0, "{stage:?}");
            assert_eq!(stage.operations > 0.0, has_operations, "{stage:?}");
            assert!(
                device_profile.clock == "submissions" || stage.seconds > 0.0,
                "{}: {stage:?}",
                device_profile.clock
            );
        }
    }
}

/// Operations meet counts by hand: a member has a row of values and two of tangents, to which the velocity adds one;
/// two labels are padded to four.
#[test]
fn operations_are_those_of_the_matrix_products() {
    for device in devices() {
        let (fitter, spectra) = fitter_and_spectra(&device);
        // With room for so few starts, no rows are kept for other members.
        let (table, profile) = fit_stream(&fitter.batch_size(1).starts(1), &spectra, true);
        let device_profile = &profile.unwrap().devices[0];
        let active: usize = device_profile
            .rounds
            .iter()
            .flat_map(|rounds| &rounds.active)
            .sum();
        // The table has the rounds of each spectrum's best start.
        let best: u32 = table.to_rows().into_iter().map(|row| row.rounds).sum();
        assert!(active >= best as usize, "{active}, {best}");
        let members = active as f64;
        let rows = 3.0;
        let hidden = 16.0;
        let pixels = 64.0;
        let labels = rows * 2.0;
        assert_eq!(
            operations_and_bytes(device_profile, "hidden").0,
            members * (labels + 2.0 * rows * 4.0 * hidden + (rows + 1.0) * hidden)
        );
        assert_eq!(
            operations_and_bytes(device_profile, "template").0,
            members * (2.0 * rows * hidden * pixels + (rows + 1.0) * pixels)
        );
        // The sums are χ², Jᵀr and JᵀJ.
        assert_eq!(
            operations_and_bytes(device_profile, "normal matrix").0,
            members * 4.0 * 5.0 * pixels
        );
        let mut pairs = device_profile.rounds.windows(2);
        assert!(pairs.all(|pair| {
            pair[0].begin + pair[0].seconds <= pair[1].begin + pair[1].seconds + 0.01
        }));
    }
}

/// Rows that several starts share are computed and counted once on the CPU; the sums of every member are counted.
#[test]
fn shared_rows_are_counted_once() {
    let (fitter, spectra) = fitter_and_spectra(&Device::cpu());
    let copies = pick(&spectra, &[7; SPECTRA]);
    let device_profile = fit_stream(&fitter, &copies, true)
        .1
        .unwrap()
        .devices
        .swap_remove(0);
    let active: usize = device_profile
        .rounds
        .iter()
        .flat_map(|rounds| &rounds.active)
        .sum();
    let rows = 3.0;
    let pixels = 64.0;
    let computed_members = operations_and_bytes(&device_profile, "template").0
        / (2.0 * rows * 16.0 * pixels + (rows + 1.0) * pixels);
    let first_members = 2 * SPECTRA;
    // Members that begin together with the first do not share its rows.
    assert!(
        computed_members >= (active - first_members) as f64
            && computed_members <= (active - first_members / 4) as f64,
        "{computed_members} of {active}"
    );
    assert_eq!(
        operations_and_bytes(&device_profile, "normal matrix").0,
        active as f64 * 4.0 * 5.0 * pixels
    );
}

#[test]
fn the_trace_has_a_row_for_every_thread() {
    let (fitter, spectra) = fitter_and_spectra(&Device::cpu());
    let profile = fit_stream(&fitter, &spectra, true).1.unwrap();
    let events: Vec<Value> = serde_json::from_str(&profile.trace()).unwrap();
    let row_names: Vec<&str> = events
        .iter()
        .filter(|event| event["ph"] == "M")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    // Rounds of two workers overlap, or do not.
    assert!((5..=6).contains(&row_names.len()), "{row_names:?}");
    assert_eq!(row_names[..2], ["reader", "writer"]);
    assert!(
        row_names[2].contains("worker 1") && row_names[4].starts_with("cpu"),
        "{row_names:?}"
    );
    let spans: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    for name in HOST
        .into_iter()
        .filter(|name| !["posterior", "hash"].contains(name))
        .chain(["rounds"])
    {
        assert!(spans.iter().any(|span| span["name"] == name), "{name}");
    }
    for span in &spans {
        let number = |key: &str| span[key].as_f64().unwrap();
        assert!(
            number("ts") >= 0.0 && number("dur") >= 0.0 && number("tid") < row_names.len() as f64,
            "{span}"
        );
        assert!(
            number("ts") + number("dur") <= 1e6 * profile.seconds,
            "{span}"
        );
        assert!(
            span["args"]["batch"].is_u64() || span["name"] == "rounds",
            "{span}"
        );
    }
    let times_of_row = |row: u64| {
        spans
            .iter()
            .filter(move |span| span["tid"] == row)
            .map(|span| (&span["ts"], &span["dur"]))
    };
    // Spans of one thread do not overlap, nor do the rounds in a row.
    for row in 0..row_names.len() as u64 {
        let mut times: Vec<(f64, f64)> = times_of_row(row)
            .map(|(ts, dur)| (ts.as_f64().unwrap(), dur.as_f64().unwrap()))
            .collect();
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(
            times
                .windows(2)
                .all(|pair| pair[0].0 + pair[0].1 <= pair[1].0 + 1e-3),
            "{times:?}"
        );
    }
    // The curve has a point at the begin and at the end of rounds.
    let curve: Vec<&Value> = events.iter().filter(|event| event["ph"] == "C").collect();
    assert_eq!(
        curve.len(),
        2 * spans.iter().filter(|span| span["name"] == "rounds").count()
    );
    assert!(
        curve
            .iter()
            .any(|point| point["args"]["members"].as_u64() > Some(0)),
        "{curve:?}"
    );
}

/// A run is cancelled, and another one resumes it.
#[test]
fn fitted_recalled_and_interrupted_rows_are_counted() {
    let (fitter, spectra) = fitter_and_spectra(&Device::cpu());
    let folder = tempfile::tempdir().unwrap();
    let fit_with_journal = |control: &Control| {
        let mut journal = Journal::open(&folder.path().join("out.csv"), "", true).unwrap();
        let mut source = Slices(spectra.clone().into_owned(), 0);
        let mut table = fitter.table();
        let summary = fitter
            .clone()
            .control(control.clone())
            .fit_journaled(&mut source, &mut table, &mut journal)
            .unwrap();
        assert_eq!(table.len(), SPECTRA);
        let interrupted = table
            .to_rows()
            .into_iter()
            .filter(|row| row.status == Status::Interrupted)
            .count() as u64;
        assert_eq!(summary.interrupted, interrupted);
        let profile = summary.profile.unwrap();
        let hash = profile
            .host
            .iter()
            .find(|stage| stage.name == "hash")
            .unwrap()
            .clone();
        ([profile.fits, profile.recalled, profile.interrupted], hash)
    };
    let cancel = Arc::new(AtomicBool::new(false));
    let stop = cancel.clone();
    let progress = move |done, _| stop.store(done > 0, Ordering::Relaxed);
    let ([fits, recalled, interrupted], _) = fit_with_journal(&Control {
        progress: Some(Arc::new(progress)),
        cancel,
        profile: true,
        ..Control::default()
    });
    assert!(
        recalled == 0 && fits + interrupted == SPECTRA as u64 && interrupted > 0,
        "{fits} {interrupted}"
    );
    let ([fits_of_second_run, recalled, interrupted], hash) = fit_with_journal(&Control {
        profile: true,
        ..Control::default()
    });
    assert_eq!(
        (fits_of_second_run, recalled, interrupted),
        (SPECTRA as u64 - fits, fits, 0)
    );
    // The spectra of every batch are hashed when its rows are kept, and again when rows are recalled.
    let bytes_of_spectra = (2 * 8 * SPECTRA * tiny::PIXELS) as f64;
    assert!(
        hash.bytes >= bytes_of_spectra && hash.bytes <= 2.0 * bytes_of_spectra,
        "{hash:?}"
    );
}
