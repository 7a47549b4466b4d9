//! Curves that stay on a GPU have the results of curves that are uploaded for each fit, to the bit.

use popfit::low_level::gpu::{Fault, Faults, GpuDevice};
use popfit::low_level::solver::Backend as _;
use popfit::low_level::solver::profile::DeviceCalls;
use popfit::{CurveColumns, CurveFitter, Curves, Device, Error, Formula};
use popfit_testing::sequence::Sequence;

use super::gpu;

const POINTS: usize = 25;
/// Number of fits for which one buffer on the device is too small.
const FITS_OF_TWO_BUFFERS: usize = (1 << 15) + 1030;

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
        let mut y = Vec::new();
        let mut sigma = Vec::new();
        let mut mask = Vec::new();
        let mut starts = Vec::new();
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

    /// Returns the curves without weights.
    fn curves(&self) -> Curves<'_> {
        Curves::on_common_grid(&self.x, &self.y, &self.starts)
    }

    /// Returns starts that differ from the first ones.
    fn other_starts(&self) -> Vec<f64> {
        self.starts.iter().map(|start| 1.2 * start + 0.01).collect()
    }
}

fn fitter(device: impl Into<Device>) -> CurveFitter {
    CurveFitter::new(Formula::parse("a*exp(-k*x) + c").unwrap(), device.into())
}

/// Returns the bits of all numbers of the columns, and their messages.
fn result_bits(
    columns: &CurveColumns,
) -> (Vec<u64>, Vec<popfit::Status>, Vec<u32>, Vec<Option<String>>) {
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
        columns.status.clone(),
        columns.rounds.clone(),
        messages,
    )
}

/// Asserts that curves of `fitter`, made from starts, have the same results when they stay on its device, from their
/// first starts and from others.
fn assert_same_results<'d>(
    fitter: &CurveFitter,
    curves: impl Fn(&'d [f64]) -> Curves<'d>,
    starts: [&'d [f64]; 2],
) {
    let expected = starts.map(|starts| result_bits(&fitter.fit_columns(&curves(starts)).unwrap()));
    let mut uploaded = fitter.upload(curves(starts[0])).unwrap();
    assert!(uploaded.is_on_device());
    let columns = uploaded.fit().unwrap().read().unwrap();
    assert!(
        result_bits(&columns) == expected[0],
        "from their first starts"
    );
    uploaded.set_starts(starts[1]).unwrap();
    let columns = uploaded.fit().unwrap().read().unwrap();
    assert!(result_bits(&columns) == expected[1], "from others");
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
        let other_starts = decays.other_starts();
        let grids = x.repeat(count);
        let fitter = fitter(gpu.clone());
        let starts = [&starts[..], &other_starts];
        assert_same_results(
            &fitter,
            |starts| Curves::on_common_grid(x, y, starts),
            starts,
        );
        let weighted = |starts| Curves::on_common_grid(x, y, starts).sigma(sigma);
        assert_same_results(&fitter.clone().covariance(true), weighted, starts);
        let masked = |starts| Curves::on_own_grids(&grids, y, starts).mask(&mask[..]);
        assert_same_results(&fitter.bounds("k", 0.0, 50.0), masked, starts);
    }
}

#[test]
fn invalid_curves_between_valid_ones_keep_their_messages() {
    let Some(gpu) = gpu() else { return };
    let mut decays = Decays::new(1500);
    decays.y[30 * POINTS + 3] = f64::NAN;
    decays.starts[3 * 1100] = f64::INFINITY;
    // So far from the data that the fit has units of its own.
    decays.starts[3 * 700] = 1e9;
    let fitter = fitter(gpu);
    let expected = fitter.fit_columns(&decays.curves()).unwrap();
    let mut uploaded = fitter.upload(decays.curves()).unwrap();
    let columns = uploaded.fit().unwrap().read().unwrap();
    assert!(result_bits(&columns) == result_bits(&expected));
    assert!(columns.message(30).is_some() && columns.message(1100).is_some());
}

#[test]
fn starts_may_begin_and_cease_to_need_units_of_their_own() {
    let Some(gpu) = gpu() else { return };
    for (count, distant_fit) in [(200, 70), (FITS_OF_TWO_BUFFERS, FITS_OF_TWO_BUFFERS - 3)] {
        let decays = Decays::new(count);
        let mut with_distant_start = decays.starts.clone();
        with_distant_start[3 * distant_fit] = 1e9;
        // On one side of the square root of 2 in f64 and on the other in f32; units change there.
        with_distant_start[4] = 1.414_213_59;
        let fitter = fitter(gpu.clone());
        let curves = |starts| Curves::on_common_grid(&decays.x, &decays.y, starts);
        assert_same_results(&fitter, curves, [&decays.starts, &with_distant_start]);
        let mut without_it = with_distant_start.clone();
        without_it[3 * distant_fit] = decays.starts[3 * distant_fit];
        assert_same_results(&fitter, curves, [&with_distant_start, &without_it]);
    }
}

#[test]
fn one_row_of_starts_is_used_for_all_fits_and_a_wrong_number_is_rejected() {
    let Some(gpu) = gpu() else { return };
    let decays = Decays::new(100);
    let fitter = fitter(gpu);
    let expected = result_bits(&fitter.fit_columns(&decays.curves()).unwrap());
    let mut uploaded = fitter.upload(decays.curves()).unwrap();
    assert!(matches!(
        uploaded.set_starts(vec![1.0; 9]),
        Err(Error::ShapeMismatch { .. })
    ));
    assert!(uploaded.is_on_device());
    assert!(result_bits(&uploaded.fit().unwrap().read().unwrap()) == expected);
    uploaded.set_starts(vec![3.0, 1.0, 0.1]).unwrap();
    let repeated = Curves::on_common_grid(&decays.x, &decays.y, [3.0, 1.0, 0.1].repeat(100));
    assert!(
        result_bits(&uploaded.fit().unwrap().read().unwrap())
            == result_bits(&fitter.fit_columns(&repeated).unwrap())
    );
}

#[test]
fn curves_are_uploaded_once() {
    let Some(shared) = gpu() else { return };
    let gpu = shared
        .with_faults(Faults::new(Fault::Zeros, u64::MAX, false))
        .unwrap();
    let decays = Decays::new(FITS_OF_TWO_BUFFERS);
    let fitter = fitter(gpu.clone());
    let mut last_calls = gpu.calls();
    let mut new_calls = || {
        let earlier = std::mem::replace(&mut last_calls, gpu.calls());
        last_calls - earlier
    };
    let packed_fits = FITS_OF_TWO_BUFFERS.next_multiple_of(64) as u64;
    let mut uploaded = fitter.upload(decays.curves()).unwrap();
    assert_eq!(
        new_calls().uploaded_bytes,
        4 * POINTS as u64 + (100 + 12) * packed_fits
    );
    uploaded.fit().unwrap();
    let DeviceCalls {
        uploaded_bytes,
        copied_bytes,
        dispatches,
        waits,
        ..
    } = new_calls();
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
    } = new_calls();
    assert_eq!(
        (uploaded_bytes, copied_bytes, dispatches),
        (0, 4 * 8 * packed_fits, 2)
    );
    uploaded.set_starts(decays.other_starts()).unwrap();
    let DeviceCalls {
        uploaded_bytes,
        buffers,
        ..
    } = new_calls();
    assert_eq!((uploaded_bytes, buffers), (12 * packed_fits, 0));
    assert!(result_bits(&columns) == result_bits(&fitter.fit_columns(&decays.curves()).unwrap()));
}

#[test]
fn curves_that_cannot_stay_on_a_device_are_fitted_when_read() {
    let Some(gpu) = gpu() else { return };
    let decays = Decays::new(70);
    let other_starts = decays.other_starts();
    let from_other_starts = Curves::on_common_grid(&decays.x, &decays.y, &other_starts);
    let on_gpu = fitter(gpu);
    let fitters = [
        fitter(Device::cpu()),
        on_gpu.clone().starts(2),
        on_gpu.clone().exact(true),
        on_gpu.clone().tie("c", "0.1*a"),
        on_gpu.clone().prior("k", 1.0, 0.5),
    ];
    for fitter in fitters {
        let mut uploaded = fitter.upload(decays.curves()).unwrap();
        assert!(!uploaded.is_on_device());
        assert!(
            result_bits(&uploaded.fit().unwrap().read().unwrap())
                == result_bits(&fitter.fit_columns(&decays.curves()).unwrap())
        );
        uploaded.set_starts(&other_starts).unwrap();
        assert!(!uploaded.is_on_device());
        assert!(
            result_bits(&uploaded.fit().unwrap().read().unwrap())
                == result_bits(&fitter.fit_columns(&from_other_starts).unwrap())
        );
    }
    let no_curves = Curves::on_common_grid(&decays.x, Vec::<f64>::new(), Vec::<f64>::new());
    let mut uploaded = on_gpu.upload(no_curves).unwrap();
    assert!(!uploaded.is_on_device() && uploaded.fit().unwrap().read().unwrap().is_empty());
}

/// Uploads, fits, reads, sets other starts, fits and reads again on a GPU that meets a fault at each of its calls in
/// turn. No fit may fail, and after a fault the curves must be on the host.
fn inject_fault_at_each_call(shared: &GpuDevice, fault: Fault) {
    let decays = Decays::new(300);
    let starts = decays.other_starts();
    let mut injected_faults = 0;
    for call in 1.. {
        let gpu = shared
            .clone()
            .with_faults(Faults::new(fault, call, false))
            .unwrap();
        let fitter = fitter(gpu.clone()).cpu_fallback(true);
        let mut uploaded = fitter.upload(decays.curves()).unwrap();
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
        injected_faults += 1;
    }
    assert!(
        injected_faults >= 4,
        "{fault:?}: the calls of upload, fit, read and set_starts are more than {injected_faults}"
    );
}

#[test]
fn a_device_that_fails_at_any_call_leaves_the_curves_to_the_host() {
    let Some(gpu) = gpu() else { return };
    inject_fault_at_each_call(&gpu, Fault::Lost);
    inject_fault_at_each_call(&gpu, Fault::OutOfMemory);
}
