//! A fitter reuses the buffers of earlier runs, and no bit depends on that.

use popfit::low_level::gpu::{Fault, Faults, GpuDevice};
use popfit::low_level::solver::profile::DeviceCalls;
use popfit::{Device, NelderMead, SpectralFitter};
use popfit_testing::required::{Need, found};
use popfit_testing::tiny::{linear, model, spectra, wave};

const SPECTRA: usize = 512;

/// Returns labels of spectra, all different.
fn labels(count: usize) -> Vec<f64> {
    (0..count).map(|k| (k as f64 * 0.37).sin()).collect()
}

#[test]
fn a_second_run_allocates_no_buffer() {
    let Some(shared) = found(Need::Gpu, GpuDevice::best()) else {
        return;
    };
    // The test needs a device of its own, because calls of other tests would count, too. It has a fault at no call.
    let device = Device::from(
        shared
            .with_faults(Faults::new(Fault::Zeros, u64::MAX, false))
            .unwrap(),
    );
    let emulator = linear(&["a"], wave);
    let spectra = spectra(&emulator, &labels(SPECTRA), 0.01);
    let fitter = SpectralFitter::new(model(emulator, 0.0), device.clone());
    let starts = vec![0.1; SPECTRA];
    let first = fitter.fit_from(&spectra, &starts).unwrap();
    let calls_before = device.calls();
    let second = fitter.fit_from(&spectra, &starts).unwrap();
    let DeviceCalls {
        buffers,
        dispatches,
        ..
    } = device.calls() - calls_before;
    assert_eq!(buffers, 0);
    assert!(dispatches > 0);
    let columns = |table: popfit::FitTable| table.into_columns();
    assert_eq!(
        format!("{:?}", columns(first)),
        format!("{:?}", columns(second))
    );
}

/// Runs of other shapes and settings in between change no bit.
#[test]
fn runs_of_other_shapes_change_no_bit() {
    let emulator = linear(&["a", "b"], wave);
    let small_batch = spectra(&emulator, &labels(6), 0.01);
    let large_batch = spectra(&emulator, &labels(1300), 0.01);
    let fitter = SpectralFitter::new(model(emulator.clone(), 0.0), Device::cpu());
    let new_fitter = || SpectralFitter::new(model(emulator.clone(), 0.0), Device::cpu());
    let bits = |table: popfit::FitTable| format!("{:?}", table.into_columns());
    let objective = |fitter: &SpectralFitter, points: &[f64], derivatives| {
        format!(
            "{:?}",
            fitter.objective(&small_batch, points, derivatives).unwrap()
        )
    };
    for _ in 0..2 {
        assert_eq!(
            bits(fitter.fit(&small_batch).unwrap()),
            bits(new_fitter().fit(&small_batch).unwrap())
        );
        assert_eq!(
            bits(fitter.fit(&large_batch).unwrap()),
            bits(new_fitter().fit(&large_batch).unwrap())
        );
        let simplex = |fitter: SpectralFitter| {
            bits(
                fitter
                    .solver(NelderMead::default())
                    .fit(&small_batch)
                    .unwrap(),
            )
        };
        assert_eq!(simplex(fitter.clone()), simplex(new_fitter()));
        for (points, derivatives) in [(labels(6), false), (labels(6), true), (vec![0.5; 6], false)]
        {
            assert_eq!(
                objective(&fitter, &points, derivatives),
                objective(&new_fitter(), &points, derivatives)
            );
        }
    }
}
