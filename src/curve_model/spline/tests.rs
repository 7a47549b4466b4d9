use super::*;

fn table(axes: &[SplineAxis], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let total: usize = axes.iter().map(|axis| axis.count).product();
    let point = |mut k: usize| {
        let mut x = vec![0.0; axes.len()];
        for (d, axis) in axes.iter().enumerate().rev() {
            x[d] = axis.first + axis.step * (k % axis.count) as f64;
            k /= axis.count;
        }
        f(&x)
    };
    (0..total).map(point).collect()
}

const AXES: [SplineAxis; 3] = [
    SplineAxis {
        first: -1.0,
        step: 0.5,
        count: 5,
    },
    SplineAxis {
        first: 2.0,
        step: 0.25,
        count: 2,
    },
    SplineAxis {
        first: 0.0,
        step: 1.0,
        count: 3,
    },
];

#[test]
fn spline_goes_through_the_table() {
    for count in 1..=3 {
        let axes = &AXES[..count];
        let values = table(axes, |x| {
            x.iter()
                .enumerate()
                .map(|(d, x)| (x * (1.3 + d as f64)).sin())
                .sum()
        });
        let spline = Spline {
            axes: axes.to_vec(),
            coefficients: spline_coefficients(axes, &values),
        };
        for (k, value) in table(axes, |x| {
            let mut point = [0.0; MAX_SPLINE_AXES];
            point[..count].copy_from_slice(x);
            spline.evaluate(point).0
        })
        .iter()
        .enumerate()
        {
            assert!(
                (value - values[k]).abs() < 1e-13,
                "{count} {k}: {value} {}",
                values[k]
            );
        }
    }
}

/// Compares the spline with one from second derivatives, another way to the same curve.
#[test]
fn spline_has_the_second_derivatives_of_the_natural_spline() {
    let axis = SplineAxis::unit(5);
    let model = CurveModel::spline(&[axis], &[0.0, 1.0, 0.5, -2.0, 3.0]).unwrap();
    let value_at = |x: f64| model.values(&[x], &[1.0, 0.0, 0.0]).unwrap()[0];
    let second = second_derivatives(&[0.0, 1.0, 0.5, -2.0, 3.0]);
    let y = [0.0, 1.0, 0.5, -2.0, 3.0];
    for x in [0.25, 1.5, 2.125, 3.75] {
        let k = x as usize;
        let a = k as f64 + 1.0 - x;
        let b = x - k as f64;
        let cubic = |t: f64| (t * t * t - t) / 6.0;
        let exact = a * y[k] + b * y[k + 1] + cubic(a) * second[k] + cubic(b) * second[k + 1];
        assert!(
            (value_at(x) - exact).abs() < 1e-14,
            "{x}: {} {exact}",
            value_at(x)
        );
    }
    let slope = 1.0 - second[1] / 6.0;
    assert!(
        (value_at(-2.0) + 2.0 * slope).abs() < 1e-13,
        "{}",
        value_at(-2.0)
    );
}

/// Computes second derivatives by dense elimination, as in a textbook (Press et al. 2007, eq. 3.3.7).
fn second_derivatives(y: &[f64]) -> Vec<f64> {
    let n = y.len();
    let mut matrix = nalgebra::DMatrix::<f64>::identity(n, n);
    let mut right = nalgebra::DVector::<f64>::zeros(n);
    for k in 1..n - 1 {
        (matrix[(k, k - 1)], matrix[(k, k)], matrix[(k, k + 1)]) = (1.0, 4.0, 1.0);
        right[k] = 6.0 * (y[k - 1] - 2.0 * y[k] + y[k + 1]);
    }
    matrix.lu().solve(&right).unwrap().iter().copied().collect()
}

#[test]
fn derivatives_of_splines_agree_with_differences() {
    let values = table(&AXES, |x| (x[0] * 1.7).sin() + x[1] * x[2] + x[2].cos());
    let model = CurveModel::spline(&AXES, &values).unwrap();
    assert_eq!(model.parameters(), ["a", "x0", "y0", "z0", "c"]);
    // Points inside, in the last cell, and beyond the edge.
    let x = [-0.3, 0.9, 1.4, 2.1, 2.2, 2.6, 0.4, 1.9, -1.0];
    let parameters = [1.5, 0.01, -0.02, 0.03, 0.2];
    let derivatives = model.own_rows(&x, &parameters).unwrap();
    let differences = model
        .clone()
        .differences(true)
        .linearise(&x, &parameters)
        .unwrap();
    for check in super::super::compare(model.parameters(), &derivatives, &differences) {
        assert!(check.error < 1e-8, "{check:?}");
    }
}

#[test]
fn tables_that_are_no_grid_are_refused() {
    let axis = SplineAxis::unit(3);
    for (axes, values) in [
        (vec![], vec![]),
        (vec![axis; 4], vec![0.0; 81]),
        (vec![axis], vec![0.0; 2]),
        (vec![axis], vec![0.0, f64::NAN, 0.0]),
        (vec![SplineAxis::unit(1)], vec![0.0]),
        (vec![SplineAxis { step: 0.0, ..axis }], vec![0.0; 3]),
        (
            vec![SplineAxis {
                first: f64::INFINITY,
                ..axis
            }],
            vec![0.0; 3],
        ),
        (vec![SplineAxis::unit(usize::MAX); 3], vec![]),
    ] {
        assert!(CurveModel::spline(&axes, &values).is_err(), "{axes:?}");
    }
}
