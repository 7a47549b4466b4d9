//! Priors, bounds, fixed labels, marginalisation, and the check of the Jacobian.

use popfit::{
    Arm, Continuum, Device, Emulator, FitTable, Flags, Interpolation, LabelSettings, SpectralModel,
    SpectralModelBuilder,
};
use popfit_testing::fits::{devices, fitter, pick, sound, synb_spectra};
use popfit_testing::{synb_model, tiny};

fn emulator() -> Emulator {
    Emulator::open(popfit_testing::demo_emulator()).unwrap()
}

fn builder() -> SpectralModelBuilder {
    SpectralModel::builder()
        .arm("", emulator())
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::rbf(10))
}

fn fit(model: SpectralModel, device: &Device) -> FitTable {
    let table = fitter(model, device)
        .fit(&pick(&synb_spectra(), &[0, 6, 7]))
        .unwrap();
    sound(&table);
    assert!(
        table.status().iter().all(|status| status.is_success()),
        "{table:?}"
    );
    table
}

fn prior(mean: f64, sigma: f64) -> LabelSettings {
    LabelSettings::default().prior(mean, sigma)
}

#[test]
fn a_tight_prior_determines_the_parameter_and_a_loose_one_does_not() {
    for device in devices() {
        let free = fit(builder().build().unwrap(), &device);
        let loose = fit(
            builder().label("feh", prior(0.0, 1e4)).build().unwrap(),
            &device,
        );
        let tight = fit(
            builder().label("feh", prior(-1.0, 1e-4)).build().unwrap(),
            &device,
        );
        for ((free, loose), tight) in free
            .to_rows()
            .into_iter()
            .zip(loose.to_rows())
            .zip(tight.to_rows())
        {
            assert!(
                (loose.parameters[3] - free.parameters[3]).abs() < 0.02 * free.errors[3],
                "{loose:?}\n{free:?}"
            );
            assert!(
                (tight.parameters[3] + 1.0).abs() < 1e-3 && tight.errors[3] < 1.0001e-4,
                "{tight:?}"
            );
            assert!(
                tight.chi2 > free.chi2 - 0.01 && tight.objective > tight.chi2,
                "{tight:?}\n{free:?}"
            );
        }
    }
}

#[test]
fn a_prior_as_wide_as_the_error_halves_the_variance() {
    let free = fit(builder().build().unwrap(), &Device::cpu());
    let row = &free.row(0); // S/N 159: as good as linear
    let mean = row.parameters[1] + row.errors[1];
    let sigma = row.errors[1];
    let with_prior = fit(
        builder().label("teff", prior(mean, sigma)).build().unwrap(),
        &Device::cpu(),
    );
    let moved = (with_prior.row(0).parameters[1] - row.parameters[1]) / sigma;
    let error_ratio = with_prior.row(0).errors[1] / sigma;
    println!("moved by {moved:.4} sigma, error times {error_ratio:.4}");
    assert!((moved - 0.5).abs() < 0.02 && (error_ratio - 0.5f64.sqrt()).abs() < 0.01);
}

#[test]
fn a_fit_that_would_go_beyond_a_bound_ends_at_the_bound() {
    for device in devices() {
        let free = fit(builder().build().unwrap(), &device);
        // The bound lies above every solution, but inside the training hull.
        let highest = free
            .to_rows()
            .into_iter()
            .map(|row| row.parameters[2])
            .fold(f64::MIN, f64::max);
        let bound = highest + 0.02;
        let bounds = LabelSettings::default().bounds(bound..=5.2);
        let table = fit(builder().label("logg", bounds).build().unwrap(), &device);
        for (row, free) in table.to_rows().into_iter().zip(free.to_rows()) {
            assert_eq!((row.at_bound & 4, row.parameters[2]), (4, bound), "{row:?}");
            assert!(
                row.flags.contains(Flags::AT_BOUND) && row.errors[2].is_nan(),
                "{row:?}"
            );
            assert!(
                row.errors[0].is_finite() && row.chi2 > free.chi2,
                "{row:?}\n{free:?}"
            );
            // These are the correlations with it: pairs (0,2), (1,2), (2,3), (2,4).
            assert!(
                [1, 4, 7, 8].iter().all(|k| row.correlations[*k].is_nan())
                    && row.correlations[0].is_finite(),
                "{row:?}"
            );
        }
    }
}

/// The model is linear. With its bounds released, a fit has the errors of a fit without bounds.
#[test]
fn released_errors_are_those_of_a_fit_without_bounds() {
    // The labels are strongly correlated.
    let emulator = tiny::linear(&["a", "b", "c"], |l, j| tiny::wave(0, j) + tiny::wave(l, j));
    let spectra = tiny::spectra(&emulator, &[1.0, -2.0, 0.5, 0.8, 0.5, 0.5], 0.01);
    let bounds = |low: f64, high: f64| LabelSettings::default().start(high).bounds(low..=high);
    let builder = || tiny::builder(emulator.clone(), 0.2);
    for device in devices() {
        let fit = |builder: SpectralModelBuilder| {
            fitter(builder.build().unwrap(), &device)
                .starts(1)
                .released_errors(true)
                .fit(&spectra)
                .unwrap()
        };
        let free = fit(builder());
        let bounded = fit(builder()
            .label("a", bounds(0.0, 0.3))
            .label("c", bounds(0.5, 0.5)));
        let held = fit(builder().label("c", bounds(0.5, 0.5)));
        for ((free, bounded), held) in free
            .to_rows()
            .into_iter()
            .zip(bounded.to_rows())
            .zip(held.to_rows())
        {
            assert_eq!(
                (free.at_bound, bounded.at_bound, held.at_bound),
                (0, 1, 0),
                "{bounded:?}"
            );
            assert_eq!(free.released_errors, free.errors);
            assert_eq!(
                (bounded.errors[0].is_nan(), bounded.released_errors[2]),
                (true, 0.0),
                "{bounded:?}"
            );
            let ratio = |p: usize| bounded.released_errors[p] / held.errors[p];
            assert!(
                (0..2).all(|p| (ratio(p) - 1.0).abs() < 1e-3),
                "{}: {bounded:?}\n{held:?}",
                device.name()
            );
            assert!(
                bounded.errors[1] < 0.8 * bounded.released_errors[1],
                "{bounded:?}"
            );
        }
    }
}

#[test]
fn a_fixed_label_and_one_with_equal_bounds_give_the_same_fit() {
    let fixed = LabelSettings::default().fixed(0.2);
    let held = LabelSettings::default().bounds(0.2..=0.2);
    for device in devices() {
        let fixed = fit(
            builder().label("alpha", fixed.clone()).build().unwrap(),
            &device,
        );
        let held = fit(
            builder().label("alpha", held.clone()).build().unwrap(),
            &device,
        );
        assert_eq!(fixed.names(), ["velocity", "teff", "logg", "feh"]);
        assert_eq!(held.names(), ["velocity", "teff", "logg", "feh", "alpha"]);
        assert!(fixed.column("alpha").is_none() && held.errors("alpha") == Some(&[0.0; 3][..]));
        for (fixed, held) in fixed.to_rows().into_iter().zip(held.to_rows()) {
            assert_eq!((held.parameters[4], held.dof), (0.2, fixed.dof));
            assert!((fixed.chi2 - held.chi2).abs() < 0.01, "{fixed:?}\n{held:?}");
            let distance =
                popfit_testing::fits::offset(&fixed, &held.parameters[..4], &fixed.errors);
            assert!(distance < 0.02, "{distance}: {fixed:?}\n{held:?}");
        }
    }
}

#[test]
fn a_velocity_fixed_at_the_minimum_has_the_chi2_of_the_free_fit() {
    let free = fit(builder().build().unwrap(), &Device::cpu());
    let velocity = free.row(0).parameters[0];
    let fixed = fit(
        builder().fixed_velocity(velocity).build().unwrap(),
        &Device::cpu(),
    );
    assert_eq!(fixed.names(), ["teff", "logg", "feh", "alpha"]);
    assert!((fixed.row(0).chi2 - free.row(0).chi2).abs() < 0.01);
    assert_eq!(fixed.row(0).dof, free.row(0).dof + 1);
}

#[test]
fn marginalisation_changes_the_objective_alone() {
    let plain = fit(builder().build().unwrap(), &Device::cpu());
    let marginal = fit(synb_model(), &Device::cpu());
    for (plain, marginal) in plain.to_rows().into_iter().zip(marginal.to_rows()) {
        assert_eq!(plain.objective, plain.chi2); // inside the hull, no prior
        assert!((marginal.objective - marginal.chi2).abs() > 1.0);
        assert!((marginal.chi2 - plain.chi2).abs() < 0.01);
    }
}

#[test]
fn derivatives_agree_with_central_differences() {
    let largest_error = |model: SpectralModel| {
        let checks = fitter(model, &Device::cpu()).check_jacobian().unwrap();
        let names: Vec<String> = checks.iter().map(|c| c.parameter.clone()).collect();
        assert_eq!(names, ["velocity", "teff", "logg", "feh", "alpha"]);
        for check in &checks {
            println!("{}: {:.1e}", check.parameter, check.error);
        }
        assert!(checks.iter().all(|c| c.error.is_finite()), "{checks:?}");
        checks.iter().map(|c| c.error).fold(0.0, f64::max)
    };
    assert!(largest_error(synb_model()) < 1e-6);
    let linear = Arm::new("", emulator()).interpolation(Interpolation::Linear);
    let linear = SpectralModel::builder()
        .add_arm(linear)
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::none());
    assert!(largest_error(linear.build().unwrap()) < 1e-6);
}
