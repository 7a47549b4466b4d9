//! Robust losses: cosmic rays do not move a fit, fits of clean spectra hardly change, and devices and batches agree.

use popfit::{
    Continuum, Device, Emulator, Estimator, FitRow, FitTable, Flags, Spectra, SpectraSettings,
    SpectralModel,
};
use popfit_testing::fits::{demo_spectra, devices, fitter, pick, same_bits};
use popfit_testing::random::Random;
use popfit_testing::{array, demo_emulator, demo_file};

const LOSSES: [Estimator; 3] = [
    Estimator::Huber(1.345),
    Estimator::Student(4.0),
    Estimator::Cauchy(2.385),
];

fn model(loss: Estimator, continuum: Continuum) -> SpectralModel {
    let builder = SpectralModel::builder().arm("b", Emulator::open(demo_emulator()).unwrap());
    let builder = builder.velocity(-1000.0..=1000.0).continuum(continuum);
    builder
        .spectra(SpectraSettings::default().loss(loss))
        .build()
        .unwrap()
}

fn fit(loss: Estimator, spectra: &Spectra, device: &Device) -> FitTable {
    fitter(model(loss, Continuum::rbf(10)), device)
        .fit(spectra)
        .unwrap()
}

/// Returns the demo's spectra with cosmic rays of 20 to 500 errors in a share of their pixels, three in a row.
fn add_cosmic_rays(share: f64) -> Spectra<'static> {
    let mut spectra = demo_spectra();
    let count = spectra.len();
    let mut random = Random(56);
    let arm = &mut spectra.arms[0];
    let pixels = arm.pixels;
    let flux = arm.flux.to_mut();
    let ivar = arm.ivar.to_mut();
    for n in 0..count {
        for _ in 0..(share * pixels as f64 / 3.0) as usize {
            let first = n * pixels + random.below(pixels - 2);
            for j in first..first + 3 {
                flux[j] += (20.0 + 480.0 * random.uniform()) / ivar[j].max(1e-30).sqrt();
            }
        }
    }
    spectra
}

/// Returns the largest difference of two rows' parameters in the errors of the second.
fn offset(row: &FitRow, other: &FitRow) -> f64 {
    let pairs = row
        .parameters
        .iter()
        .zip(&other.parameters)
        .zip(&other.errors);
    pairs
        .filter(|(_, error)| error.is_finite())
        .map(|((a, b), error)| (a - b).abs() / error)
        .fold(0.0, f64::max)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    popfit_testing::median(values.collect())
}

#[test]
fn cosmic_rays_do_not_move_a_fit() {
    let clean = demo_spectra();
    let with_cosmic_rays = add_cosmic_rays(0.02);
    let device = Device::cpu();
    let plain = fit(Estimator::LeastSquares, &clean, &device).to_rows();
    let spoilt = fit(Estimator::LeastSquares, &with_cosmic_rays, &device).to_rows();
    assert!(
        median(spoilt.iter().zip(&plain).map(|(a, b)| offset(a, b))) > 10.0,
        "cosmic rays do nothing"
    );
    assert!(plain.iter().all(|row| row.downweighted.is_none()));
    for (loss, share) in LOSSES.into_iter().zip([0.0071, 0.0455, 0.0171]) {
        let rows = fit(loss, &with_cosmic_rays, &device).to_rows();
        let offsets = || rows.iter().zip(&plain).map(|(a, b)| offset(a, b));
        assert!(rows.iter().all(|row| row.status.is_success()), "{loss:?}");
        assert!(
            median(offsets()) < 0.7 && offsets().filter(|x| *x > 3.0).count() <= 2,
            "{loss:?}: {:?}",
            offsets().max_by(f64::total_cmp)
        );
        let downweighted = median(rows.iter().filter_map(|row| row.downweighted));
        assert!(
            (downweighted - share - 0.02).abs() < 0.006,
            "{loss:?}: {downweighted}"
        );
        let error_ratio = median(
            rows.iter()
                .zip(&plain)
                .map(|(a, b)| a.errors[0] / b.errors[0]),
        );
        assert!((1.0..1.1).contains(&error_ratio), "{loss:?}: {error_ratio}");
        let is_high = |row: &&FitRow| row.flags.intersects(Flags::HIGH_CHI2 | Flags::POOR_CHI2);
        assert!(rows.iter().filter(is_high).count() <= 6, "{loss:?}");
        // Clean spectra hardly change.
        let rows = fit(loss, &clean, &device).to_rows();
        let downweighted = median(rows.iter().filter_map(|row| row.downweighted));
        assert!(
            (downweighted - share).abs() < 0.003,
            "{loss:?}: {downweighted}"
        );
        assert!(
            median(rows.iter().zip(&plain).map(|(a, b)| offset(a, b))) < 0.6,
            "{loss:?}"
        );
    }
}

/// Returns √⟨ψ²⟩/⟨ψ′⟩ over normal residuals of a standard deviation, to which the sandwich's errors are proportional.
fn sandwich_factor(loss: Estimator, deviation: f64) -> f64 {
    let psi = |r: f64| match loss {
        Estimator::Huber(c) => r.clamp(-c, c),
        Estimator::Student(dof) => (dof + 1.0) * r / (dof + r * r),
        Estimator::Cauchy(c) => r / (1.0 + (r / c).powi(2)),
        _ => r,
    };
    let step = 1e-3;
    let mut scatter = 0.0;
    let mut curvature = 0.0;
    for k in -8000..8000 {
        let x = step * (f64::from(k) + 0.5);
        let h = 1e-5;
        let r = x * deviation;
        let density = step * (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
        scatter += density * psi(r).powi(2);
        curvature += density * (psi(r + h) - psi(r - h)) / (2.0 * h);
    }
    scatter.sqrt() / curvature
}

/// Returns the demo's spectra with their inverse variances multiplied by a factor.
fn rescale_ivar(factor: f64) -> Spectra<'static> {
    let mut spectra = demo_spectra();
    spectra.arms[0]
        .ivar
        .to_mut()
        .iter_mut()
        .for_each(|w| *w *= factor);
    spectra
}

#[test]
fn wrong_errors_are_flagged_as_without_a_loss() {
    for (factor, flag) in [
        (9.0, Flags::HIGH_CHI2 | Flags::POOR_CHI2),
        (1.0 / 9.0, Flags::LOW_CHI2),
    ] {
        for loss in LOSSES {
            let rows = fit(loss, &rescale_ivar(factor), &Device::cpu()).to_rows();
            let flagged = rows.iter().filter(|row| row.flags.contains(flag)).count();
            assert!(
                flagged > rows.len() / 2,
                "{loss:?}, ivar times {factor}: {flagged} of {}",
                rows.len()
            );
        }
    }
}

/// If all given errors are wrong by the same factor, the errors of the fits are those of the sandwich for residuals of
/// the true size, and they agree with the scatter of the fits. A loss has a scale of its own, so that their efficiency
/// depends on the factor.
#[test]
fn errors_of_fits_follow_the_scatter_of_the_residuals() {
    let (_, truth) = array(&demo_file("truth.npz"), "parameters");
    for loss in LOSSES {
        let as_is = fit(loss, &demo_spectra(), &Device::cpu()).to_rows();
        for deviation in [1.0, 3.0, 1.0 / 3.0] {
            let rows = fit(loss, &rescale_ivar(deviation * deviation), &Device::cpu()).to_rows();
            let expected =
                sandwich_factor(loss, deviation) / sandwich_factor(loss, 1.0) / deviation;
            for p in 0..rows[0].parameters.len() {
                let ratios = rows
                    .iter()
                    .zip(&as_is)
                    .map(|(a, b)| a.errors[p] / b.errors[p]);
                let ratio = median(ratios.filter(|ratio| ratio.is_finite()));
                assert!(
                    (ratio / expected - 1.0).abs() < 0.04,
                    "{loss:?}, {deviation}, {p}: {ratio}, not {expected}"
                );
            }
            let pairs = rows
                .iter()
                .zip(truth.chunks_exact(rows[0].parameters.len()));
            let width = 1.4826
                * median(
                    pairs
                        .flat_map(|(row, truth)| pulls(row, truth))
                        .map(f64::abs),
                );
            assert!(
                (0.85..1.15).contains(&width),
                "{loss:?}, errors wrong by {deviation}: pulls of {width}"
            );
        }
    }
}

/// Returns the distances of a row's parameters from the truth, in those of their errors that are finite.
fn pulls(row: &FitRow, truth: &[f64]) -> Vec<f64> {
    let parameters = row.parameters.iter().zip(&row.errors).zip(truth);
    parameters
        .filter(|((_, error), _)| error.is_finite())
        .map(|((x, error), truth)| (x - truth) / error)
        .collect()
}

#[test]
fn devices_and_batches_agree() {
    let spectra = add_cosmic_rays(0.02).slice(0..12);
    for loss in LOSSES {
        for continuum in [Continuum::rbf(10), Continuum::chebyshev(1)] {
            let tables: Vec<FitTable> = devices()
                .iter()
                .map(|device| {
                    fitter(model(loss, continuum), device)
                        .fit(&spectra)
                        .unwrap()
                })
                .collect();
            for (device, table) in devices().iter().zip(&tables) {
                let picked = fitter(model(loss, continuum), device)
                    .fit(&pick(&spectra, &[7, 2, 7]))
                    .unwrap();
                for (k, n) in [7, 2, 7].into_iter().enumerate() {
                    same_bits(picked.row(k), table.row(n), "in another batch");
                }
                for (row, first) in table.to_rows().iter().zip(tables[0].to_rows()) {
                    assert!(
                        offset(row, &first) < 0.05,
                        "{loss:?}, {}: {row:?}\n{first:?}",
                        device.name()
                    );
                }
            }
        }
    }
}

#[test]
fn only_robust_losses_are_for_spectra() {
    let build = |loss| {
        let builder = SpectralModel::builder().arm("b", Emulator::open(demo_emulator()).unwrap());
        builder
            .spectra(SpectraSettings::default().loss(loss))
            .build()
            .err()
            .map(|error| error.to_string())
    };
    assert!(build(Estimator::Poisson).unwrap().contains("for curves"));
    assert!(
        build(Estimator::Huber(-1.0))
            .unwrap()
            .contains("must be positive")
    );
    assert_eq!(build(Estimator::SoftL1(1.0)), None);
}
