//! Profiles of runs: their counts are right, and profiling changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use popfit::spectra::SpectraReader;
use popfit::{
    Control, Device, DeviceProfile, FitTable, Journal, NelderMead, Profile, Solver, Spectra,
    SpectralFitter, Status,
};
use popfit_testing::fits::{devices, fitter, pick, same_bits};
use popfit_testing::profile::{DEVICE, HOST};
use popfit_testing::tiny::{self, Layer, network, spectra};
use serde_json::Value;

/// Yields batches of eight spectra.
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

/// Two labels, a hidden layer of 16, 64 pixels, and a velocity.
fn setup(device: &Device) -> (SpectralFitter, Spectra<'static>) {
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
    let (outputs, weight) = (tiny::PIXELS, weights(16 * tiny::PIXELS, 2.3));
    let output = Layer {
        outputs,
        weight,
        bias: vec![2.0; tiny::PIXELS],
    };
    let emulator = network(&["a", "b"], "silu", &[hidden, output]);
    let labels: Vec<f64> = (0..2 * SPECTRA)
        .map(|k| 2.0 * (k as f64 * 0.7).sin())
        .collect();
    let all = spectra(&emulator, &labels, 0.01);
    let model = tiny::builder(emulator, 0.5)
        .velocity(-50.0..=50.0)
        .build()
        .unwrap();
    (fitter(model, device).batch_size(8), all)
}

fn run(fitter: &SpectralFitter, spectra: &Spectra, profile: bool) -> (FitTable, Option<Profile>) {
    let mut table = fitter.table();
    let control = Control::default().profile(profile);
    let summary = fitter
        .fit_stream(
            &mut Slices(spectra.clone().into_owned(), 0),
            &mut table,
            &control,
        )
        .unwrap();
    (table, summary.profile)
}

fn stage(device: &DeviceProfile, name: &str) -> (f64, f64) {
    let stage = device
        .stages
        .iter()
        .find(|stage| stage.name == name)
        .unwrap();
    (stage.operations, stage.bytes)
}

#[test]
fn looking_changes_no_bit() {
    for device in devices() {
        let (fitter, spectra) = setup(&device);
        let polished =
            Solver::LevenbergMarquardtThenNelderMead(Default::default(), NelderMead::default());
        let simplices =
            SpectralFitter::new(fitter.model().clone(), device.clone()).solver(polished);
        for fitter in [fitter, simplices] {
            let ((plain, none), (measured, profile)) =
                (run(&fitter, &spectra, false), run(&fitter, &spectra, true));
            assert!(none.is_none() && profile.is_some());
            assert_eq!((plain.len(), measured.len()), (SPECTRA, SPECTRA));
            for (a, b) in plain.to_rows().into_iter().zip(measured.to_rows()) {
                same_bits(a, b, &device.name());
            }
        }
    }
}

#[test]
fn stages_add_up() {
    for device in devices() {
        let (fitter, spectra) = setup(&device);
        let profile = run(&fitter, &spectra, true).1.unwrap();
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
        // flux and ivar
        assert_eq!(bytes("read"), (2 * 8 * SPECTRA * tiny::PIXELS) as f64);
        assert_eq!((bytes("write"), bytes("fit")), (0.0, 0.0));

        let own = &profile.devices[0];
        assert_eq!(own.name, device.name());
        let names: Vec<&str> = own.stages.iter().map(|stage| stage.name).collect();
        assert_eq!(names, DEVICE);
        let total: f64 = own.stages.iter().map(|stage| stage.share).sum();
        assert!((total - 1.0).abs() < 1e-9, "{total}");
        assert!(own.busy > 0.0 && own.busy < 1.05, "{}", own.busy);
        assert!(own.bytes_held > (SPECTRA / 5 * tiny::PIXELS * 4) as u64);
        for stage in &own.stages {
            let has_operations = !matches!(stage.name, "upload" | "compact" | "readback");
            assert!(stage.calls > 0 && stage.bytes > 0.0, "{stage:?}");
            assert_eq!(stage.operations > 0.0, has_operations, "{stage:?}");
            assert!(
                own.clock == "submissions" || stage.seconds > 0.0,
                "{}: {stage:?}",
                own.clock
            );
        }
    }
}

/// By hand: a member has a row of values and two of tangents, to which the velocity adds one; two labels are padded to
/// four.
#[test]
fn operations_are_those_of_the_products() {
    for device in devices() {
        let (fitter, spectra) = setup(&device);
        // with room for so few starts none is kept for others
        let (table, profile) = run(&fitter.batch_size(1).starts(1), &spectra, true);
        let own = &profile.unwrap().devices[0];
        let active: usize = own.rounds.iter().flat_map(|rounds| &rounds.active).sum();
        // the table has the rounds of each spectrum's best start
        let best: u32 = table.to_rows().into_iter().map(|row| row.rounds).sum();
        assert!(active >= best as usize, "{active}, {best}");
        let members = active as f64;
        let (rows, hidden, pixels) = (3.0, 16.0, 64.0);
        let labels = rows * 2.0;
        assert_eq!(
            stage(own, "hidden").0,
            members * (labels + 2.0 * rows * 4.0 * hidden + (rows + 1.0) * hidden)
        );
        assert_eq!(
            stage(own, "template").0,
            members * (2.0 * rows * hidden * pixels + (rows + 1.0) * pixels)
        );
        // χ², Jᵀr and JᵀJ
        assert_eq!(stage(own, "normal matrix").0, members * 4.0 * 5.0 * pixels);
        let looks = own.rounds.windows(2);
        assert!(
            looks
                .into_iter()
                .all(|two| two[0].begin + two[0].seconds <= two[1].begin + two[1].seconds + 0.01)
        );
    }
}

/// Rows that starts share are made once on the CPU, and counted so; sums are every member's own.
#[test]
fn what_is_not_made_is_not_counted() {
    let (fitter, spectra) = setup(&Device::cpu());
    let copies = pick(&spectra, &[7; SPECTRA]);
    let own = run(&fitter, &copies, true)
        .1
        .unwrap()
        .devices
        .swap_remove(0);
    let active: usize = own.rounds.iter().flat_map(|rounds| &rounds.active).sum();
    let (rows, pixels) = (3.0, 64.0);
    let made = stage(&own, "template").0 / (2.0 * rows * 16.0 * pixels + (rows + 1.0) * pixels);
    let firsts = 2 * SPECTRA;
    // those that begin together with the first know nothing of it
    assert!(
        made >= (active - firsts) as f64 && made <= (active - firsts / 4) as f64,
        "{made} of {active}"
    );
    assert_eq!(
        stage(&own, "normal matrix").0,
        active as f64 * 4.0 * 5.0 * pixels
    );
}

#[test]
fn the_trace_has_a_row_for_every_thread() {
    let (fitter, spectra) = setup(&Device::cpu());
    let profile = run(&fitter, &spectra, true).1.unwrap();
    let events: Vec<Value> = serde_json::from_str(&profile.trace()).unwrap();
    let named: Vec<&str> = events
        .iter()
        .filter(|e| e["ph"] == "M")
        .map(|e| e["args"]["name"].as_str().unwrap())
        .collect();
    // two workers' rounds overlap, or do not
    assert!((5..=6).contains(&named.len()), "{named:?}");
    assert_eq!(named[..2], ["reader", "writer"]);
    assert!(
        named[2].contains("worker 1") && named[4].starts_with("cpu"),
        "{named:?}"
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
            number("ts") >= 0.0 && number("dur") >= 0.0 && number("tid") < named.len() as f64,
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
    let of_row = |row: u64| {
        spans
            .iter()
            .filter(move |span| span["tid"] == row)
            .map(|span| (&span["ts"], &span["dur"]))
    };
    // what one thread does, it does one after the other, and so do a worker's rounds
    for row in 0..named.len() as u64 {
        let mut times: Vec<(f64, f64)> = of_row(row)
            .map(|(ts, dur)| (ts.as_f64().unwrap(), dur.as_f64().unwrap()))
            .collect();
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(
            times
                .windows(2)
                .all(|two| two[0].0 + two[0].1 <= two[1].0 + 1e-3),
            "{times:?}"
        );
    }
    // a curve goes up where rounds begin and down where they end
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

/// A run that is cancelled, and one that goes on with it.
#[test]
fn rows_are_counted_by_what_became_of_them() {
    let (fitter, spectra) = setup(&Device::cpu());
    let folder = tempfile::tempdir().unwrap();
    let run = |control: &Control| {
        let mut journal = Journal::open(&folder.path().join("out.csv"), "", true).unwrap();
        let (mut source, mut table) = (Slices(spectra.clone().into_owned(), 0), fitter.table());
        let summary = fitter
            .fit_journaled(&mut source, &mut table, control, &mut journal)
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
    let ([fits, recalled, interrupted], _) = run(&Control::default()
        .progress(progress)
        .cancel(cancel)
        .profile(true));
    assert!(
        recalled == 0 && fits + interrupted == SPECTRA as u64 && interrupted > 0,
        "{fits} {interrupted}"
    );
    let ([rest, recalled, interrupted], hash) = run(&Control::default().profile(true));
    assert_eq!(
        (rest, recalled, interrupted),
        (SPECTRA as u64 - fits, fits, 0)
    );
    // every batch's spectra are hashed by who keeps its rows, those that are known by who recalls them, too
    let each = (2 * 8 * SPECTRA * tiny::PIXELS) as f64;
    assert!(hash.bytes >= each && hash.bytes <= 2.0 * each, "{hash:?}");
}
