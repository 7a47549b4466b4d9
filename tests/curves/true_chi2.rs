//! The χ² of every success is that of its parameters: noisy curves of twenty models from distant starts.

use popfit::Device;
use popfit_testing::fits::gpu;
use popfit_testing::regressions::{NOISES, REGRESSIONS, Regression, Route, Sample};

/// Smallest share of successes of any model.
const LEAST: f64 = 0.9;

/// Fits `curves` curves of every model and noise; every success has its own χ².
fn check(
    regressions: impl IntoIterator<Item = &'static Regression>,
    route: Route,
    device: &Device,
    curves: usize,
) {
    for regression in regressions {
        for noise in NOISES {
            let actual = regression
                .compare(
                    route,
                    device,
                    Sample {
                        curves,
                        noise,
                        seed: 2,
                    },
                )
                .unwrap();
            assert!(
                actual.wrong.is_empty(),
                "{}, noise {noise}: {:#?}",
                regression.name,
                actual.wrong
            );
            let share = actual.successes as f64 / curves as f64;
            assert!(
                share >= LEAST,
                "{}, noise {noise}: {share} succeed",
                regression.name
            );
        }
    }
}

#[test]
fn chi_square_of_columns_is_that_of_their_parameters() {
    check(&REGRESSIONS, Route::Columns, &Device::cpu(), 1000);
}

/// Models whose columns of the Jacobian may vanish: steps and peaks between two points. Others cost their compilation
/// alone.
#[test]
fn chi_square_of_gpu_columns_is_that_of_their_parameters() {
    let Some(gpu) = gpu() else { return };
    let narrow = ["logistic of 5 parameters", "tanh step", "Gaussian"];
    check(
        REGRESSIONS.iter().filter(|r| narrow.contains(&r.name)),
        Route::Columns,
        &gpu,
        1000,
    );
}

#[test]
fn chi_square_of_fits_is_that_of_their_parameters() {
    check(&REGRESSIONS, Route::Fits, &Device::cpu(), 500);
    check(&REGRESSIONS, Route::Closures, &Device::cpu(), 100);
}

/// Fits that stall far from the minimum continue by Gauss–Newton steps, and not parameter by parameter along a valley.
/// With the axes first, 0.95 and 0.84 of these fits succeeded.
#[test]
fn peaks_are_found_from_starts_beside_them() {
    for (name, least) in [("Gaussian", 0.98), ("two Gaussians on a line", 0.92)] {
        let regression = REGRESSIONS
            .iter()
            .find(|regression| regression.name == name)
            .unwrap();
        let curves = 200;
        let mut successes = 0;
        for noise in NOISES {
            let sample = Sample {
                curves,
                noise,
                seed: 1,
            };
            successes += regression
                .compare(Route::Closures, &Device::cpu(), sample)
                .unwrap()
                .successes;
        }
        let share = successes as f64 / (curves * NOISES.len()) as f64;
        println!("{name}: {share}");
        assert!(share >= least, "{name}: {share} succeed");
    }
}
