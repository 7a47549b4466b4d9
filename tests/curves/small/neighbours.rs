//! The results of a fit do not depend on other fits before it or in its batch, nor on how these end.

use popfit::{CurveColumns, CurveFitter, Curves, Device, Estimator, Formula, Status};

use super::problems::{Problem, images};
use popfit_testing::fits::devices;
use popfit_testing::random::Random;

#[test]
fn a_fit_has_the_same_bits_in_any_order_and_batch() {
    for device in devices() {
        let Problem {
            formula,
            x,
            y,
            starts,
        } = images(0.5, 3000);
        let fitter = CurveFitter::new(formula, device);
        let fit_subset = |fits: &[usize]| -> CurveColumns {
            let y: Vec<f64> = fits
                .iter()
                .flat_map(|k| &y[k * 25..(k + 1) * 25])
                .copied()
                .collect();
            let starts: Vec<f64> = fits
                .iter()
                .flat_map(|k| &starts[k * 5..(k + 1) * 5])
                .copied()
                .collect();
            fitter
                .fit_columns(&Curves::on_common_grid(x.clone(), y, starts))
                .unwrap()
        };
        let all = fit_subset(&(0..3000).collect::<Vec<_>>());
        let backwards: Vec<usize> = (0..3000).rev().collect();
        for subset in [&backwards[..], &[7], &[2999, 0, 64]] {
            let columns = fit_subset(subset);
            for (i, &k) in subset.iter().enumerate() {
                assert_eq!(
                    columns.parameters[i * 5..(i + 1) * 5],
                    all.parameters[k * 5..(k + 1) * 5]
                );
                assert_eq!(
                    columns.errors[i * 5..(i + 1) * 5],
                    all.errors[k * 5..(k + 1) * 5]
                );
                assert_eq!(
                    (columns.chi2[i], columns.rounds[i]),
                    (all.chi2[k], all.rounds[k])
                );
            }
        }
    }
}

#[test]
fn bad_curves_in_columns_do_not_make_the_others_fail() {
    let Problem {
        formula,
        x,
        mut y,
        mut starts,
    } = images(0.5, 8);
    y[30] = f64::INFINITY;
    starts[10] = f64::NAN;
    // The model is not finite where s = 0.
    starts[18] = 0.0;
    let fitter = CurveFitter::new(formula, Device::cpu());
    let mut mask = vec![false; 200];
    mask[100..121].fill(true);
    let mut sigma = vec![1.0; 200];
    sigma[130] = -1.0;
    let columns = fitter
        .fit_columns(&Curves::on_common_grid(x, y, starts).mask(mask).sigma(sigma))
        .unwrap();
    let status = &columns.status;
    for k in [1, 2, 4, 5] {
        assert!(
            status[k] == Status::BadInput && columns.parameters[5 * k].is_nan(),
            "{k}: {columns:?}"
        );
    }
    assert_eq!(status[3], Status::NotFinite);
    assert!(
        [0, 6, 7].iter().all(|k| status[*k].is_success()),
        "{columns:?}"
    );
}

/// Few fits are evaluated by points, many side by side, and a fit has the same bits either way: alone, among few, and
/// among more than there are lanes, by every route that has lanes.
#[test]
fn a_fit_has_the_same_bits_alone_and_among_many() {
    const POINTS: usize = 67;
    let max_fits = 131;
    let random = &mut Random(8);
    let x: Vec<f64> = (0..POINTS).map(|j| 0.07 * j as f64).collect();
    let mut y = Vec::new();
    for _ in 0..max_fits {
        let [a, k, c] = [
            2.0 + random.uniform(),
            1.0 + 0.4 * random.uniform(),
            random.uniform(),
        ];
        y.extend(
            x.iter()
                .map(|x| a * (k * x + c).cos() + 0.05 * random.normal()),
        );
    }
    let own_x: Vec<f64> = (0..max_fits * POINTS)
        .map(|i| x[i % POINTS] * (1.0 + 1e-3 * (i / POINTS) as f64))
        .collect();
    let sigma: Vec<f64> = (0..max_fits * POINTS)
        .map(|_| 0.05 * (0.5 + random.uniform()))
        .collect();
    let mask: Vec<bool> = (0..max_fits * POINTS)
        .map(|_| random.uniform() < 0.1)
        .collect();
    let curves = |first: usize, count: usize, is_plain: bool| {
        let rows = first * POINTS..(first + count) * POINTS;
        let y = y[rows.clone()].to_vec();
        let starts = [2.0, 1.1, 0.4].repeat(count);
        match is_plain {
            true => Curves::on_common_grid(x.clone(), y, starts),
            false => Curves::on_own_grids(own_x[rows.clone()].to_vec(), y, starts)
                .sigma(sigma[rows.clone()].to_vec())
                .mask(mask[rows].to_vec()),
        }
    };
    let fitter = || CurveFitter::new(Formula::parse("a*cos(k*x + c)").unwrap(), Device::cpu());
    let bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for fitter in [
        fitter(),
        fitter().estimator(Estimator::Huber(1.3)),
        fitter().solver(CurveFitter::NELDER_MEAD),
    ] {
        for is_plain in [true, false] {
            let all = fitter.fit(&curves(0, max_fits, is_plain)).unwrap();
            let all_columns = fitter.fit_columns(&curves(0, max_fits, is_plain)).unwrap();
            assert!(all.iter().all(|fit| fit.status.is_success()));
            for (first, count) in [
                (0, 1),
                (130, 1),
                (3, 2),
                (40, 17),
                (1, 63),
                (64, 64),
                (5, 65),
            ] {
                let some = curves(first, count, is_plain);
                let columns = fitter.fit_columns(&some).unwrap();
                for (k, fit) in fitter.fit(&some).unwrap().iter().enumerate() {
                    let expected = &all[first + k];
                    assert_eq!(
                        bits(&fit.parameters),
                        bits(&expected.parameters),
                        "{count} from {first}: {k}"
                    );
                    assert_eq!(bits(&fit.errors), bits(&expected.errors));
                    assert_eq!(
                        (fit.status, fit.rounds, fit.evaluations),
                        (expected.status, expected.rounds, expected.evaluations)
                    );
                }
                let own = 3 * first..3 * (first + count);
                assert_eq!(
                    bits(&columns.parameters),
                    bits(&all_columns.parameters[own.clone()])
                );
                assert_eq!(bits(&columns.errors), bits(&all_columns.errors[own]));
            }
        }
    }
}
