//! Nelder–Mead, alone and as a polish, on the synb spectra: from the same first guess it reaches the minima of
//! Levenberg–Marquardt, and below, as it minimises the objective with its ln det.

use popfit::{
    Continuum, Device, LabelColumns, LabelSettings, LevenbergMarquardt, NelderMead, Solver,
    SpectralFitter, SpectralModel,
};
use popfit_testing::fits::{column, devices, gpu, pick, sound, synb_spectra};
use popfit_testing::synb::{self, masked_constant};
use popfit_testing::{array, rotating_model, synb_model, tiny};

/// Objectives of every `step`-th spectrum above the reference.
fn gaps(folder: &str, solver: Solver, device: &Device, step: usize) -> Vec<f64> {
    let model = match folder {
        "fixed_vsini" => synb_model(),
        _ => rotating_model(),
    };
    let all = synb::spectra(folder);
    let some: Vec<usize> = (0..all.len()).step_by(step).collect();
    let table = SpectralFitter::new(model, device.clone())
        .solver(solver)
        .fit(&pick(&all, &some))
        .unwrap();
    sound(&table);
    let (_, reference) = array(&synb::folder(folder).join("rvspecfit.npz"), "ref_m2logl");
    let gap = |(row, n): (popfit::FitRow, &usize)| {
        row.objective + masked_constant(&all, *n) - reference[*n]
    };
    let gaps: Vec<f64> = table.to_rows().into_iter().zip(&some).map(gap).collect();
    let evaluations = table
        .to_rows()
        .into_iter()
        .map(|r| r.evaluations)
        .sum::<u32>()
        / table.len() as u32;
    println!(
        "{}: {evaluations} evaluations a spectrum, gaps {gaps:.4?}",
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
fn alone_it_reaches_the_minima() {
    let fixed = gaps(
        "fixed_vsini",
        NelderMead::default().into(),
        &Device::cpu(),
        1,
    );
    assert!(fixed.iter().all(|gap| *gap <= 0.1));
    let free = gaps(
        "free_vsini",
        NelderMead::default().into(),
        &Device::cpu(),
        1,
    );
    assert!(free.iter().all(|gap| *gap <= 0.1));
}

/// Without a linearisation restarts take the place of the surface, and many more evaluations.
#[test]
fn without_derivatives_it_comes_near_the_minima() {
    let spectra = synb_spectra().slice(0..12);
    let fit = |simplex: NelderMead| {
        SpectralFitter::new(synb_model(), Device::cpu())
            .solver(simplex)
            .starts(1)
            .fit(&spectra)
            .unwrap()
    };
    let (with, without) = (
        fit(NelderMead::default()),
        fit(NelderMead::default().linearise(false)),
    );
    sound(&without);
    for (a, b) in with.rows().zip(without.rows()) {
        assert!(
            b.objective() - a.objective() < 0.1,
            "{} {}",
            a.objective(),
            b.objective()
        );
        assert!(
            b.evaluations() > 3 * a.evaluations(),
            "{} {}",
            a.evaluations(),
            b.evaluations()
        );
    }
}

#[test]
fn as_a_polish_it_ends_no_higher() {
    let lm = LevenbergMarquardt::default();
    let before = gaps("free_vsini", lm.into(), &Device::cpu(), 4);
    let after = gaps(
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
    // the ln det moves the optimum: something is gained
    assert!(after.iter().sum::<f64>() < before.iter().sum::<f64>());
}

#[test]
fn on_the_gpu_too() {
    let Some(device) = gpu() else { return };
    let gaps = gaps("fixed_vsini", NelderMead::default().into(), &device, 43);
    assert!(gaps.iter().all(|gap| *gap <= 0.1));
}

/// Bounds from columns that hold everything of one spectrum: its row is the start, the others fit on.
#[test]
fn a_spectrum_with_nothing_free_is_a_row() {
    let emulator = tiny::linear(&["a"], tiny::wave);
    let labels = [1.0, 2.0, 3.0];
    let mut spectra = tiny::spectra(&emulator, &labels, 0.01);
    spectra.columns = vec![
        column("LOW", vec![-9.0, 1.5, -9.0]),
        column("HIGH", vec![9.0, 1.5, 9.0]),
    ];
    let columns = LabelColumns::default().lower("LOW").upper("HIGH");
    let settings = LabelSettings::default().bounds(-9.0..=9.0).columns(columns);
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
            assert_eq!(table.row(1).to_row().parameters, [1.5]);
            assert_eq!(table.row(1).to_row().errors, [0.0]);
            for n in [0, 2] {
                assert!(table.row(n).to_row().status.is_success());
                assert!(
                    (table.row(n).to_row().parameters[0] - labels[n]).abs()
                        < 5.0 * table.row(n).to_row().errors[0]
                );
            }
        }
    }
}
