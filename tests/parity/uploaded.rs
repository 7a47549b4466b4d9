//! Curves that stay on a GPU have the results of curves that are sent for each fit, to the bit.

use popfit::low_level::gpu::{Fault, Faults, GpuDevice};
use popfit::low_level::solver::Device as _;
use popfit::{CurveColumns, CurveFitter, Curves, Device, DeviceCalls, Error, Formula};
use popfit_testing::sequence::Sequence;

use super::gpu;

const POINTS: usize = 25;
/// More than one place has room for.
const MANY: usize = (1 << 15) + 1030;

/// Noisy decays, and a start for each.
struct Decays {
    x: Vec<f64>,
    y: Vec<f64>,
    sigma: Vec<f64>,
    mask: Vec<bool>,
    starts: Vec<f64>,
}

impl Decays {
    fn new(count: usize) -> Decays {
        let mut random = Sequence(count as u64);
        let x: Vec<f64> = (0..POINTS).map(|j| 0.2 * j as f64).collect();
        let (mut y, mut sigma, mut mask, mut starts) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let [a, k, c] = [
                3.0 + random.uniform(),
                0.8 + random.uniform(),
                random.normal(),
            ];
            y.extend(
                x.iter()
                    .map(|x| a * (-k * x).exp() + c + 0.05 * random.normal()),
            );
            sigma.extend((0..POINTS).map(|_| 0.04 + 0.02 * random.uniform()));
            mask.extend((0..POINTS).map(|_| random.uniform() < 0.1));
            starts.extend([
                a + 0.5 * random.normal(),
                k * (1.0 + 0.3 * random.normal()),
                c,
            ]);
        }
        Decays {
            x,
            y,
            sigma,
            mask,
            starts,
        }
    }

    fn plain(&self) -> Curves<'_> {
        Curves::on_common_grid(&self.x, &self.y, &self.starts)
    }

    /// Starts elsewhere.
    fn other_starts(&self) -> Vec<f64> {
        self.starts.iter().map(|start| 1.2 * start + 0.01).collect()
    }
}

fn fitter(device: impl Into<Device>) -> CurveFitter {
    CurveFitter::new(Formula::parse("a*exp(-k*x) + c").unwrap(), device.into())
}

/// All that columns have, in bits.
fn bits(columns: &CurveColumns) -> (Vec<u64>, Vec<i8>, Vec<u32>, Vec<Option<String>>) {
    let covariance = columns.covariance.as_deref().unwrap_or(&[]);
    let numbers = [
        &columns.parameters[..],
        &columns.errors,
        &columns.chi2,
        covariance,
    ]
    .concat();
    let messages = (0..columns.len())
        .map(|k| columns.message(k).map(str::to_owned))
        .collect();
    (
        numbers.into_iter().map(f64::to_bits).collect(),
        columns.status_codes(),
        columns.rounds.clone(),
        messages,
    )
}

/// Asserts that curves of `fitter`, made from starts, have the same results when they stay on its device, from their
/// first starts and from others.
fn assert_same<'d>(
    fitter: &CurveFitter,
    curves: impl Fn(&'d [f64]) -> Curves<'d>,
    starts: [&'d [f64]; 2],
) {
    let expected = starts.map(|starts| bits(&fitter.fit_columns(&curves(starts)).unwrap()));
    let mut uploaded = fitter.upload(curves(starts[0])).unwrap();
    assert!(uploaded.is_on_device());
    let mut columns = uploaded.fit().unwrap().read().unwrap();
    assert!(bits(&columns) == expected[0], "from their first starts");
    uploaded.set_starts(starts[1]).unwrap();
    uploaded.fit().unwrap().read_into(&mut columns).unwrap();
    assert!(bits(&columns) == expected[1], "from others");
}

#[test]
fn curves_that_stay_on_the_gpu_have_the_same_results() {
    let Some(gpu) = gpu() else { return };
    for count in [1, 64, 1025] {
        let decays = Decays::new(count);
        let Decays {
            x,
            y,
            sigma,
            mask,
            starts,
        } = &decays;
        let (others, grids) = (decays.other_starts(), x.repeat(count));
        let plain = fitter(gpu.clone());
        let starts = [&starts[..], &others];
        assert_same(
            &plain,
            |starts| Curves::on_common_grid(x, y, starts),
            starts,
        );
        let weighted = |starts| Curves::on_common_grid(x, y, starts).sigma(sigma);
        assert_same(&plain.clone().covariance(true), weighted, starts);
        let masked = |starts| Curves::on_own_grids(&grids, y, starts).mask(&mask[..]);
        assert_same(&plain.bounds("k", 0.0, 50.0), masked, starts);
    }
}

#[test]
fn bad_curves_between_good_ones_stay_bad() {
    let Some(gpu) = gpu() else { return };
    let mut decays = Decays::new(1500);
    decays.y[30 * POINTS + 3] = f64::NAN;
    decays.starts[3 * 1100] = f64::INFINITY;
    // so far from the data that the fit has units of its own
    decays.starts[3 * 700] = 1e9;
    let fitter = fitter(gpu);
    let expected = fitter.fit_columns(&decays.plain()).unwrap();
    let mut uploaded = fitter.upload(decays.plain()).unwrap();
    let columns = uploaded.fit().unwrap().read().unwrap();
    assert!(bits(&columns) == bits(&expected));
    assert!(columns.message(30).is_some() && columns.message(1100).is_some());
}

#[test]
fn starts_may_come_to_need_units_of_their_own_and_cease_to() {
    let Some(gpu) = gpu() else { return };
    for (count, far) in [(200, 70), (MANY, MANY - 3)] {
        let decays = Decays::new(count);
        let mut others = decays.starts.clone();
        others[3 * far] = 1e9;
        // on either side of the square root of 2 in f64 and in f32, where units change
        others[4] = 1.414_213_59;
        let fitter = fitter(gpu.clone());
        let curves = |starts| Curves::on_common_grid(&decays.x, &decays.y, starts);
        assert_same(&fitter, curves, [&decays.starts, &others]);
        let mut near = others.clone();
        near[3 * far] = decays.starts[3 * far];
        assert_same(&fitter, curves, [&others, &near]);
    }
}

#[test]
fn one_row_of_starts_holds_for_all_and_a_wrong_number_changes_nothing() {
    let Some(gpu) = gpu() else { return };
    let decays = Decays::new(100);
    let fitter = fitter(gpu);
    let expected = bits(&fitter.fit_columns(&decays.plain()).unwrap());
    let mut uploaded = fitter.upload(decays.plain()).unwrap();
    assert!(matches!(
        uploaded.set_starts(vec![1.0; 9]),
        Err(Error::ShapeMismatch { .. })
    ));
    assert!(uploaded.is_on_device());
    assert!(bits(&uploaded.fit().unwrap().read().unwrap()) == expected);
    uploaded.set_starts(vec![3.0, 1.0, 0.1]).unwrap();
    let repeated = Curves::on_common_grid(&decays.x, &decays.y, [3.0, 1.0, 0.1].repeat(100));
    assert!(
        bits(&uploaded.fit().unwrap().read().unwrap())
            == bits(&fitter.fit_columns(&repeated).unwrap())
    );
}

#[test]
fn curves_of_several_places_are_sent_once() {
    let Some(shared) = gpu() else { return };
    let gpu = shared
        .with_faults(Faults::new(Fault::Zeros, u64::MAX, false))
        .unwrap();
    let decays = Decays::new(MANY);
    let fitter = fitter(gpu.clone());
    let mut since = gpu.calls();
    let mut calls = || {
        let (now, earlier) = (gpu.calls(), since);
        since = now;
        now - earlier
    };
    let blocks = MANY.next_multiple_of(64) as u64;
    let mut uploaded = fitter.upload(decays.plain()).unwrap();
    assert_eq!(
        calls().uploaded_bytes,
        4 * POINTS as u64 + (100 + 12) * blocks
    );
    uploaded.fit().unwrap();
    let DeviceCalls {
        uploaded_bytes,
        copied_bytes,
        dispatches,
        waits,
        ..
    } = calls();
    assert_eq!(
        (uploaded_bytes, copied_bytes, dispatches, waits),
        (0, 0, 2, 2)
    );
    let columns = uploaded.fit().unwrap().read().unwrap();
    let DeviceCalls {
        uploaded_bytes,
        copied_bytes,
        dispatches,
        ..
    } = calls();
    assert_eq!(
        (uploaded_bytes, copied_bytes, dispatches),
        (0, 4 * 8 * blocks, 2)
    );
    uploaded.set_starts(decays.other_starts()).unwrap();
    let DeviceCalls {
        uploaded_bytes,
        buffers,
        ..
    } = calls();
    assert_eq!((uploaded_bytes, buffers), (12 * blocks, 0));
    assert!(bits(&columns) == bits(&fitter.fit_columns(&decays.plain()).unwrap()));
}

#[test]
fn what_has_no_place_on_a_device_is_fitted_when_it_is_read() {
    let Some(gpu) = gpu() else { return };
    let decays = Decays::new(70);
    let other_starts = decays.other_starts();
    let elsewhere = Curves::on_common_grid(&decays.x, &decays.y, &other_starts);
    let on_gpu = fitter(gpu);
    let others = [
        fitter(Device::cpu()),
        on_gpu.clone().starts(2),
        on_gpu.clone().exact(true),
        on_gpu.clone().tie("c", "0.1*a"),
        on_gpu.clone().prior("k", 1.0, 0.5),
    ];
    for fitter in others {
        let mut uploaded = fitter.upload(decays.plain()).unwrap();
        assert!(!uploaded.is_on_device());
        assert!(
            bits(&uploaded.fit().unwrap().read().unwrap())
                == bits(&fitter.fit_columns(&decays.plain()).unwrap())
        );
        uploaded.set_starts(&other_starts).unwrap();
        assert!(!uploaded.is_on_device());
        assert!(
            bits(&uploaded.fit().unwrap().read().unwrap())
                == bits(&fitter.fit_columns(&elsewhere).unwrap())
        );
    }
    let nothing = Curves::on_common_grid(&decays.x, Vec::<f64>::new(), Vec::<f64>::new());
    let mut uploaded = on_gpu.upload(nothing).unwrap();
    assert!(!uploaded.is_on_device() && uploaded.fit().unwrap().read().unwrap().is_empty());
}

/// Uploads, fits, reads, gives other starts, fits and reads again on a GPU that meets a fault at each of its calls in
/// turn: nothing fails, and after a failure the curves are the host's.
fn sweep(shared: &GpuDevice, fault: Fault) {
    let decays = Decays::new(300);
    let starts = decays.other_starts();
    let mut met = 0;
    for call in 1.. {
        let gpu = shared
            .clone()
            .with_faults(Faults::new(fault, call, false))
            .unwrap();
        let fitter = fitter(gpu.clone()).cpu_fallback(true);
        let mut uploaded = fitter.upload(decays.plain()).unwrap();
        let first = uploaded.fit().unwrap().read().unwrap();
        uploaded.set_starts(&starts).unwrap();
        let second = uploaded.fit().unwrap().read().unwrap();
        for columns in [first, second] {
            assert!(
                columns.status.iter().all(|status| status.is_success()),
                "{fault:?} at call {call}"
            );
        }
        if uploaded.is_on_device() {
            break;
        }
        met += 1;
    }
    assert!(
        met >= 4,
        "{fault:?}: the calls of upload, fit, read and set_starts are more than {met}"
    );
}

#[test]
fn a_device_that_fails_at_any_call_leaves_the_curves_to_the_host() {
    let Some(gpu) = gpu() else { return };
    sweep(&gpu, Fault::Lost);
    sweep(&gpu, Fault::OutOfMemory);
}
