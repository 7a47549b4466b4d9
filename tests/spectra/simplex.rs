//! Nelder–Mead, alone and as a polish, on the synb spectra: from the same first guess it reaches the minima of
//! Levenberg–Marquardt, or lower ones, because it minimises the objective with its ln det.

use popfit::{
    Continuum, Device, LabelSettings, LevenbergMarquardt, NelderMead, Solver, SpectralFitter,
    SpectralModel,
};
use popfit_testing::fits::{column, devices, gpu, pick, sound, synb_spectra};
use popfit_testing::synb::{self, masked_constant};
use popfit_testing::{array, rotating_model, synb_model, tiny};

/// Returns the objectives of every `step`-th spectrum less those of the reference.
fn objective_gaps(folder: &str, solver: Solver, device: &Device, step: usize) -> Vec<f64> {
    let model = match folder {
        "fixed_vsini" => synb_model(),
        _ => rotating_model(),
    };
    let spectra = synb::spectra(folder);
    let indices: Vec<usize> = (0..spectra.len()).step_by(step).collect();
    let table = SpectralFitter::new(model, device.clone())
        .solver(solver)
        .fit(&pick(&spectra, &indices))
        .unwrap();
    sound(&table);
    let (_, reference) = array(&synb::folder(folder).join("rvspecfit.npz"), "ref_m2logl");
    let gaps: Vec<f64> = table
        .to_rows()
        .iter()
        .zip(&indices)
        .map(|(row, &n)| row.objective + masked_constant(&spectra, n) - reference[n])
        .collect();
    let evaluations = table
        .to_rows()
        .into_iter()
        .map(|row| row.evaluations)
        .sum::<u32>()
        / table.len() as u32;
    println!(
        "{}: {evaluations} evaluations per spectrum, gaps {gaps:.4?}",
        device.name()
    );
    assert!(
        table
            .to_rows()
            .into_iter()
            .all(|row| row.errors.iter().filter(|e| e.is_nan()).count() <= 4)
    );
    gaps
}

#[test]
fn nelder_mead_alone_reaches_the_minima() {
    let fixed = objective_gaps(
        "fixed_vsini",
        NelderMead::default().into(),
        &Device::cpu(),
        1,
    );
    assert!(fixed.iter().all(|gap| *gap <= 0.1));
    let free = objective_gaps(
        "free_vsini",
        NelderMead::default().into(),
        &Device::cpu(),
        1,
    );
    assert!(free.iter().all(|gap| *gap <= 0.1));
}

/// Without a linearisation, restarts replace the quadratic surface and need many more evaluations.
#[test]
fn nelder_mead_without_derivatives_comes_near_the_minima() {
    let spectra = synb_spectra().slice(0..12);
    let fit = |simplex: NelderMead| {
        SpectralFitter::new(synb_model(), Device::cpu())
            .solver(simplex)
            .starts(1)
            .fit(&spectra)
            .unwrap()
    };
    let linearised = fit(NelderMead::default());
    let derivative_free = fit(NelderMead::default().linearise(false));
    sound(&derivative_free);
    for (linearised, derivative_free) in linearised.to_rows().iter().zip(derivative_free.to_rows())
    {
        assert!(
            derivative_free.objective - linearised.objective < 0.1,
            "{} {}",
            linearised.objective,
            derivative_free.objective
        );
        assert!(
            derivative_free.evaluations > 3 * linearised.evaluations,
            "{} {}",
            linearised.evaluations,
            derivative_free.evaluations
        );
    }
}

#[test]
fn a_polish_by_nelder_mead_ends_no_higher() {
    let lm = LevenbergMarquardt::default();
    let before = objective_gaps("free_vsini", lm.into(), &Device::cpu(), 4);
    let after = objective_gaps(
        "free_vsini",
        Solver::LevenbergMarquardtThenNelderMead(lm, NelderMead::default()),
        &Device::cpu(),
        4,
    );
    assert!(
        before
            .iter()
            .zip(&after)
            .all(|(before, after)| after <= before),
        "{before:?} {after:?}"
    );
    // The ln det moves the optimum, so the polish lowers the objective.
    assert!(after.iter().sum::<f64>() < before.iter().sum::<f64>());
}

#[test]
fn nelder_mead_reaches_the_minima_on_the_gpu() {
    let Some(device) = gpu() else { return };
    let gaps = objective_gaps("fixed_vsini", NelderMead::default().into(), &device, 43);
    assert!(gaps.iter().all(|gap| *gap <= 0.1));
}

/// Bounds from columns hold all parameters of one spectrum. Its row has the held values, and the others are fitted.
#[test]
fn a_spectrum_without_free_parameters_has_a_row() {
    let emulator = tiny::linear(&["a"], tiny::wave);
    let labels = [1.0, 2.0, 3.0];
    let mut spectra = tiny::spectra(&emulator, &labels, 0.01);
    spectra.columns = vec![
        column("LOW", vec![-9.0, 1.5, -9.0]),
        column("HIGH", vec![9.0, 1.5, 9.0]),
    ];
    let settings = LabelSettings::default()
        .bounds(-9.0..=9.0)
        .lower_column("LOW")
        .upper_column("HIGH");
    let model = SpectralModel::builder()
        .arm("", emulator)
        .continuum(Continuum::none())
        .label("a", settings)
        .build()
        .unwrap();
    let simplex = NelderMead::default();
    let solvers = [
        simplex.into(),
        Solver::LevenbergMarquardtThenNelderMead(LevenbergMarquardt::default(), simplex),
    ];
    for device in devices() {
        for solver in solvers {
            let table = SpectralFitter::new(model.clone(), device.clone())
                .solver(solver)
                .fit(&spectra)
                .unwrap();
            println!("{}: {:?}", device.name(), table);
            assert_eq!(table.row(1).parameters, [1.5]);
            assert_eq!(table.row(1).errors, [0.0]);
            for n in [0, 2] {
                assert!(table.row(n).status.is_success());
                assert!(
                    (table.row(n).parameters[0] - labels[n]).abs() < 5.0 * table.row(n).errors[0]
                );
            }
        }
    }
}
