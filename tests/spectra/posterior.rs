//! Posteriors of the velocity.

use popfit::{Device, FitTable, VelocityPosterior, VelocityScan};
use popfit_testing::fits::{fitter, gpu, pick, synb_spectra};
use popfit_testing::{synb_model, tiny};

/// Fits every 16th of the synb spectra.
fn fit(scan: VelocityScan, device: &Device) -> FitTable {
    let indices: Vec<usize> = (0..128).step_by(16).collect();
    let spectra = pick(&synb_spectra(), &indices);
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

/// A scan with everything else refitted profiles the joint likelihood, so its error is that of the covariance. With the
/// labels fixed, the error is smaller. Both posteriors are nearly Gaussian here, and centred on the fit.
#[test]
fn refitted_scans_have_the_joint_error_and_fixed_ones_a_smaller_one() {
    let refitted = fit(VelocityScan::Refitted, &Device::cpu());
    let fixed = fit(VelocityScan::Fixed, &Device::cpu());
    for ((row, joint), conditional) in refitted
        .to_rows()
        .into_iter()
        .zip(posteriors(&refitted))
        .zip(posteriors(&fixed))
    {
        let velocity = row.parameters[0];
        let error = row.errors[0];
        println!("{velocity:.3} ± {error:.4}: {joint:?} {conditional:?}");
        assert!((joint.error / error - 1.0).abs() < 0.05);
        assert!(conditional.error < 1.02 * joint.error);
        for posterior in [joint, conditional] {
            assert!((posterior.velocity - velocity).abs() < 0.1 * error);
            assert!(posterior.skewness.abs() < 0.3 && (posterior.kurtosis - 3.0).abs() < 0.6);
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
fn devices_agree_on_posteriors() {
    let Some(device) = gpu() else { return };
    let cpu = fit(VelocityScan::Fixed, &Device::cpu());
    let gpu = fit(VelocityScan::Fixed, &device);
    for (cpu, gpu) in posteriors(&cpu).into_iter().zip(posteriors(&gpu)) {
        assert!(
            (cpu.error / gpu.error - 1.0).abs() < 0.02
                && (cpu.velocity - gpu.velocity).abs() < 0.05 * cpu.error
        );
        assert!(
            (cpu.skewness - gpu.skewness).abs() < 0.05 && (cpu.kurtosis - gpu.kurtosis).abs() < 0.1
        );
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
        let mut memory = 1 << 12;
        let small = loop {
            match fitter.clone().max_memory(memory).fit(&spectra) {
                Ok(table) => break table,
                Err(popfit::Error::OutOfMemory { .. }) => memory += memory / 8,
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(
            posteriors(&small),
            posteriors(&large),
            "{} with {memory} bytes",
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
