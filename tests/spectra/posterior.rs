//! The velocity's posterior.

use popfit::{Device, FitTable, VelocityPosterior, VelocityScan};
use popfit_testing::fits::{fitter, gpu, pick, synb_spectra};
use popfit_testing::{synb_model, tiny};

/// Every 16th of the synb spectra.
fn fit(scan: VelocityScan, device: &Device) -> FitTable {
    let some: Vec<usize> = (0..128).step_by(16).collect();
    let spectra = pick(&synb_spectra(), &some);
    fitter(synb_model(), device)
        .velocity_scan(scan)
        .fit(&spectra)
        .unwrap()
}

fn posteriors(table: &FitTable) -> Vec<VelocityPosterior> {
    table
        .to_rows()
        .into_iter()
        .map(|row| row.posterior.unwrap())
        .collect()
}

/// A scan with everything else refitted profiles the joint likelihood: its error is that of the covariance. With the
/// labels fixed it is smaller. Both are nearly Gaussian here, and centred on the fit.
#[test]
fn refitted_scans_have_the_joint_error_and_fixed_ones_less() {
    let refitted = fit(VelocityScan::Refitted, &Device::cpu());
    let fixed = fit(VelocityScan::Fixed, &Device::cpu());
    for ((row, joint), conditional) in refitted
        .to_rows()
        .into_iter()
        .zip(posteriors(&refitted))
        .zip(posteriors(&fixed))
    {
        let (velocity, error) = (row.parameters[0], row.errors[0]);
        println!("{velocity:.3} ± {error:.4}: {joint:?} {conditional:?}");
        assert!((joint.error / error - 1.0).abs() < 0.05);
        assert!(conditional.error < 1.02 * joint.error);
        for found in [joint, conditional] {
            assert!((found.velocity - velocity).abs() < 0.1 * error);
            assert!(found.skewness.abs() < 0.3 && (found.kurtosis - 3.0).abs() < 0.6);
        }
    }
}

#[test]
fn without_a_scan_there_is_no_posterior() {
    let table = fit(VelocityScan::Off, &Device::cpu());
    assert!(
        table
            .to_rows()
            .into_iter()
            .all(|row| row.posterior.is_none())
    );
}

#[test]
fn devices_agree() {
    let Some(device) = gpu() else { return };
    let (cpu, gpu) = (
        fit(VelocityScan::Fixed, &Device::cpu()),
        fit(VelocityScan::Fixed, &device),
    );
    for (c, g) in posteriors(&cpu).into_iter().zip(posteriors(&gpu)) {
        assert!(
            (c.error / g.error - 1.0).abs() < 0.02
                && (c.velocity - g.velocity).abs() < 0.05 * c.error
        );
        assert!((c.skewness - g.skewness).abs() < 0.05 && (c.kurtosis - g.kurtosis).abs() < 0.1);
    }
}

/// A grid that is larger than the population is evaluated in parts, to the same numbers.
#[test]
fn a_small_population_scans_as_a_large_one() {
    let emulator = tiny::linear(&["a"], tiny::wave);
    let spectra = tiny::spectra(&emulator, &[1.0, -2.0], 0.01);
    let model = tiny::builder(emulator, 0.5)
        .velocity(-20.0..=20.0)
        .build()
        .unwrap();
    for device in popfit_testing::fits::devices() {
        let fitter = fitter(model.clone(), &device)
            .velocity_scan(VelocityScan::Fixed)
            .starts(1);
        let large = fitter.fit(&spectra).unwrap();
        let mut least = 1 << 12;
        let small = loop {
            match fitter.clone().max_memory(least).fit(&spectra) {
                Ok(table) => break table,
                Err(popfit::Error::OutOfMemory { .. }) => least += least / 8,
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(
            posteriors(&small),
            posteriors(&large),
            "{} with {least} bytes",
            device.name()
        );
    }
}

#[test]
fn a_fixed_velocity_cannot_be_scanned() {
    let model = tiny::model(tiny::linear(&["a"], tiny::wave), 0.0);
    let spectra = tiny::spectra(&tiny::linear(&["a"], tiny::wave), &[1.0], 0.01);
    let error = fitter(model, &Device::cpu())
        .velocity_scan(VelocityScan::Fixed)
        .fit(&spectra)
        .unwrap_err();
    assert!(error.to_string().contains("fixed"), "{error}");
}
