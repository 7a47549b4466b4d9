//! A fitter keeps what its runs have made for the next ones, and no bit depends on it.

use popfit::low_level::gpu::{Fault, Faults, GpuDevice};
use popfit::{Device, DeviceCalls, NelderMead, SpectralFitter};
use popfit_testing::required::{Need, found};
use popfit_testing::tiny::{linear, model, spectra, wave};

const SPECTRA: usize = 512;

/// Labels of some spectra, all different.
fn labels(count: usize) -> Vec<f64> {
    (0..count).map(|k| (k as f64 * 0.37).sin()).collect()
}

#[test]
fn a_second_run_makes_no_buffer() {
    let Some(shared) = found(Need::Gpu, GpuDevice::best()) else {
        return;
    };
    // a device of its own, which meets a fault at no call: other tests' calls would count, too
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
    let before = device.calls();
    let second = fitter.fit_from(&spectra, &starts).unwrap();
    let DeviceCalls {
        buffers,
        dispatches,
        ..
    } = device.calls() - before;
    assert_eq!(buffers, 0);
    assert!(dispatches > 0);
    let columns = |table: popfit::FitTable| table.into_columns();
    assert_eq!(
        format!("{:?}", columns(first)),
        format!("{:?}", columns(second))
    );
}

/// Runs of other shapes and settings come between, and take nothing that is not theirs.
#[test]
fn runs_of_other_shapes_do_not_disturb() {
    let emulator = linear(&["a", "b"], wave);
    let (few, many) = (
        spectra(&emulator, &labels(6), 0.01),
        spectra(&emulator, &labels(1300), 0.01),
    );
    let fitter = SpectralFitter::new(model(emulator.clone(), 0.0), Device::cpu());
    let fresh = || SpectralFitter::new(model(emulator.clone(), 0.0), Device::cpu());
    let bits = |table: popfit::FitTable| format!("{:?}", table.into_columns());
    let objective = |fitter: &SpectralFitter, points: &[f64], derivatives| {
        format!("{:?}", fitter.objective(&few, points, derivatives).unwrap())
    };
    for _ in 0..2 {
        assert_eq!(
            bits(fitter.fit(&few).unwrap()),
            bits(fresh().fit(&few).unwrap())
        );
        assert_eq!(
            bits(fitter.fit(&many).unwrap()),
            bits(fresh().fit(&many).unwrap())
        );
        let simplex =
            |fitter: SpectralFitter| bits(fitter.solver(NelderMead::default()).fit(&few).unwrap());
        assert_eq!(simplex(fitter.clone()), simplex(fresh()));
        for (points, derivatives) in [(labels(6), false), (labels(6), true), (vec![0.5; 6], false)]
        {
            assert_eq!(
                objective(&fitter, &points, derivatives),
                objective(&fresh(), &points, derivatives)
            );
        }
    }
}
