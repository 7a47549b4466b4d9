//! A fit does not know what is fitted beside it, before it, or how badly.

use popfit::{CurveColumns, CurveFitter, Curves, Device, Estimator, Status};

use super::problems::{Problem, images};
use popfit_testing::fits::devices;

#[test]
fn a_fit_has_the_same_bits_in_any_order_and_batch() {
    for device in devices() {
        let Problem { formula, x, y, starts } = images(0.5, 3000);
        let fitter = CurveFitter::new(formula, device);
        let of = |fits: &[usize]| -> CurveColumns {
            let y: Vec<f64> = fits.iter().flat_map(|k| &y[k * 25..(k + 1) * 25]).copied().collect();
            let starts: Vec<f64> = fits.iter().flat_map(|k| &starts[k * 5..(k + 1) * 5]).copied().collect();
            fitter.fit_columns(&Curves::on_common_grid(x.clone(), y, starts)).unwrap()
        };
        let all = of(&(0..3000).collect::<Vec<_>>());
        let backwards: Vec<usize> = (0..3000).rev().collect();
        for some in [&backwards[..], &[7], &[2999, 0, 64]] {
            let columns = of(some);
            for (i, &k) in some.iter().enumerate() {
                assert_eq!(columns.parameters[i * 5..(i + 1) * 5], all.parameters[k * 5..(k + 1) * 5]);
                assert_eq!(columns.errors[i * 5..(i + 1) * 5], all.errors[k * 5..(k + 1) * 5]);
                assert_eq!((columns.chi2[i], columns.rounds[i]), (all.chi2[k], all.rounds[k]));
            }
        }
    }
}

/// Columns that other fits were put into before.
#[test]
fn used_columns_leave_no_trace() {
    for device in devices() {
        let Problem { formula, x, y, starts } = images(0.5, 300);
        let counts: Vec<f64> = y.iter().map(|y| y.round().max(0.0)).collect();
        let (y, starts) = ([y, counts].concat(), starts.repeat(2));
        let plain = || CurveFitter::new(formula.clone(), device.clone());
        let fitters = [
            ("plain", plain()),
            ("bounds", plain().bounds("s", 0.0, 10.0)),
            ("a bound", plain().bounds("s", 0.0, 1.02)),
            ("held", plain().fix("c")),
            ("a prior", plain().prior("c", 10.0, 0.1)),
            ("loss", plain().estimator(Estimator::SoftL1(1.0))),
            ("counts", plain().estimator(Estimator::Poisson)),
        ];
        for (what, fitter) in &fitters {
            let part = |fits: std::ops::Range<usize>| {
                let (y, starts) = (&y[25 * fits.start..25 * fits.end], &starts[5 * fits.start..5 * fits.end]);
                Curves::on_common_grid(x.clone(), y.to_vec(), starts.to_vec())
            };
            let mut used = fitter.fit_columns(&part(0..300)).unwrap();
            fitter.fit_columns_into(&part(300..600), &mut used).unwrap();
            let fresh = fitter.fit_columns(&part(300..600)).unwrap();
            // NaN for NaN
            assert_eq!(format!("{used:?}"), format!("{fresh:?}"), "{what} on {}", device.name());
        }
    }
}

#[test]
fn bad_fits_do_not_spoil_the_others() {
    let Problem { formula, x, mut y, mut starts } = images(0.5, 8);
    y[30] = f64::INFINITY;
    starts[10] = f64::NAN;
    // the model is not finite where s = 0
    starts[18] = 0.0;
    let fitter = CurveFitter::new(formula, Device::cpu());
    let mut mask = vec![false; 200];
    mask[100..121].fill(true);
    let mut sigma = vec![1.0; 200];
    sigma[130] = -1.0;
    let columns = fitter.fit_columns(&Curves::on_common_grid(x, y, starts).mask(mask).sigma(sigma)).unwrap();
    let status = &columns.status;
    for k in [1, 2, 4, 5] {
        assert!(status[k] == Status::BadInput && columns.parameters[5 * k].is_nan(), "{k}: {columns:?}");
    }
    assert_eq!(status[3], Status::NotFinite);
    assert!([0, 6, 7].iter().all(|k| status[*k].is_success()), "{columns:?}");
}
