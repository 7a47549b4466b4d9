//! Curves that lend their arrays, in f64 or f32: the bits of the same numbers given as f64, and no copy of the whole
//! input.

use popfit::{
    Control, CurveFit, CurveFitter, Curves, Device, Estimator, Formula, NelderMead, Values,
};
use popfit_testing::fits::devices;

const POINTS: usize = 25;

/// More than one task of small fits.
const FITS: usize = 5000;

/// Arrays in f32, and the same numbers in f64.
struct Arrays {
    single: Vec<f32>,
    double: Vec<f64>,
}

impl Arrays {
    fn new(values: impl Iterator<Item = f64>) -> Arrays {
        let single: Vec<f32> = values.map(|x| x as f32).collect();
        Arrays {
            double: single.iter().map(|x| f64::from(*x)).collect(),
            single,
        }
    }
}

struct Data {
    x: Arrays,
    own_x: Arrays,
    y: Arrays,
    sigma: Arrays,
    starts: Arrays,
    lower: Arrays,
    upper: Arrays,
    mask: Vec<bool>,
}

fn data() -> Data {
    let x = |j: usize| 0.2 * j as f64;
    let curve_points = || (0..FITS).flat_map(|k| (0..POINTS).map(move |j| (k, j)));
    let noise = |k: usize, j: usize| 0.05 * ((k * 31 + j * 7) as f64 * 12.9898).sin();
    let y = move |(k, j): (usize, usize)| {
        (3.0 + (k % 7) as f64) * (-(0.4 + 0.05 * (k % 13) as f64) * x(j)).exp() + noise(k, j)
    };
    Data {
        x: Arrays::new((0..POINTS).map(x)),
        own_x: Arrays::new(curve_points().map(|(k, j)| x(j) + 0.001 * (k % 5) as f64)),
        // One curve is bad, one starts far off.
        y: Arrays::new(curve_points().map(|point| {
            if point == (17, 3) {
                f64::NAN
            } else {
                y(point) * if point.0 == 40 { 1e12 } else { 1.0 }
            }
        })),
        sigma: Arrays::new(curve_points().map(|(k, j)| 0.05 + 0.01 * ((k + j) % 5) as f64)),
        // Some starts are 0.
        starts: Arrays::new((0..FITS).flat_map(|k| [if k % 50 == 0 { 0.0 } else { 2.5 }, 0.7])),
        lower: Arrays::new((0..FITS).flat_map(|_| [-1e3, 0.0])),
        upper: Arrays::new((0..FITS).flat_map(|k| [1e14, if k % 3 == 0 { 0.8 } else { 5.0 }])),
        mask: curve_points().map(|(k, j)| (k + 2 * j) % 11 == 0).collect(),
    }
}

impl Data {
    /// The curves in f64, given, and in f32, lent: plain, weighted, bounded, on own grids.
    fn curves(&self, kind: usize) -> [Curves<'_>; 2] {
        let double = |arrays: &Arrays| Values::from(arrays.double.clone());
        fn single(arrays: &Arrays) -> Values<'_> {
            Values::from(&arrays.single)
        }
        let both = [
            match kind {
                3 => {
                    Curves::on_own_grids(double(&self.own_x), double(&self.y), double(&self.starts))
                }
                _ => Curves::on_common_grid(double(&self.x), double(&self.y), double(&self.starts)),
            },
            match kind {
                3 => {
                    Curves::on_own_grids(single(&self.own_x), single(&self.y), single(&self.starts))
                }
                _ => Curves::on_common_grid(single(&self.x), single(&self.y), single(&self.starts)),
            },
        ];
        let [owned, borrowed] = both;
        match kind {
            1 => [
                owned.sigma(double(&self.sigma)).mask(self.mask.clone()),
                borrowed.sigma(single(&self.sigma)).mask(&self.mask),
            ],
            2 => [
                owned.bounds(double(&self.lower), double(&self.upper)),
                borrowed.bounds(single(&self.lower), single(&self.upper)),
            ],
            _ => [owned, borrowed],
        }
    }
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|x| x.to_bits()).collect()
}

fn fit_bits(fits: &[CurveFit]) -> Vec<Vec<u64>> {
    fits.iter()
        .map(|fit| {
            [
                &fit.parameters[..],
                &fit.errors,
                &fit.covariance,
                &[fit.chi2],
            ]
            .into_iter()
            .flat_map(bits)
            .collect()
        })
        .collect()
}

#[test]
fn borrowed_f32_gives_the_bits_of_f64() {
    let data = data();
    for device in devices() {
        let plain = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), device);
        let kinds = [
            plain.clone(),
            plain.clone().fix("k"),
            plain
                .clone()
                .estimator(Estimator::Huber(1.0))
                .covariance(true),
        ];
        for (fitter, kind) in kinds
            .iter()
            .flat_map(|fitter| (0..4).map(move |kind| (fitter, kind)))
        {
            let [given, lent] = data.curves(kind);
            let one = fitter.fit_columns(&given).unwrap();
            let other = fitter.fit_columns(&lent).unwrap();
            assert_eq!((&one.status, &one.rounds), (&other.status, &other.rounds));
            assert_eq!(
                [bits(&one.parameters), bits(&one.errors), bits(&one.chi2)],
                [
                    bits(&other.parameters),
                    bits(&other.errors),
                    bits(&other.chi2)
                ]
            );
            assert_eq!(
                one.covariance.as_deref().map(bits),
                other.covariance.as_deref().map(bits)
            );
            let arrived = one
                .status
                .iter()
                .filter(|status| status.is_success())
                .count();
            assert!(
                arrived > FITS * 9 / 10 && one.status[17].code() == -1,
                "{kind}: {arrived}"
            );
        }
    }
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), Device::cpu());
    for (fitter, kind) in [
        (fitter.clone(), 0),
        (fitter.clone(), 3),
        (fitter.clone().tie("k", "a/5"), 1),
    ] {
        let [given, lent] = data.curves(kind);
        let one = fitter.fit(&given).unwrap();
        let other = fitter.fit(&lent).unwrap();
        assert_eq!(fit_bits(&one), fit_bits(&other));
    }
    let few = |kind| {
        data.curves(kind).map(|curves| {
            fitter
                .clone()
                .solver(NelderMead::default())
                .fit_columns(&curves)
                .unwrap()
        })
    };
    let [one, other] = few(2);
    assert_eq!(bits(&one.parameters), bits(&other.parameters));
}

/// One row of starts, sigmas and mask gives the bits of as many rows as there are curves.
#[test]
fn one_row_holds_for_all_curves() {
    let data = data();
    let mask: Vec<bool> = (0..POINTS).map(|j| j % 9 == 4).collect();
    let mut sigma = data.sigma.single[..POINTS].to_vec();
    sigma[7] = f32::INFINITY;
    let start = [2.5, 0.7];
    let starts = start.repeat(FITS);
    let sigmas = sigma.repeat(FITS);
    let masks = mask.repeat(FITS);
    // One sigma holds for all points.
    let alike = [0.07f32];
    let all_alike = vec![0.07f32; FITS * POINTS];
    let common = |starts| Curves::on_common_grid(&data.x.double, &data.y.double, starts);
    let own = |starts| Curves::on_own_grids(&data.own_x.single, &data.y.single, starts);
    let pairs = || {
        [
            [common(&start[..]), common(&starts)],
            [
                common(&start[..]).sigma(&sigma),
                common(&starts).sigma(&sigmas),
            ],
            [
                common(&start[..]).sigma(&sigma).mask(&mask),
                common(&starts).sigma(&sigmas).mask(&masks),
            ],
            [
                common(&start[..]).mask(&mask).sigma(&data.sigma.single),
                common(&starts).mask(&masks).sigma(&data.sigma.single),
            ],
            [
                common(&start[..]).sigma(&alike[..]).mask(&mask),
                common(&starts).sigma(&all_alike).mask(&masks),
            ],
            [
                own(&start[..]).points(POINTS).sigma(&alike[..]),
                own(&starts).sigma(&all_alike),
            ],
            [
                own(&start[..]).points(POINTS).sigma(&sigma).mask(&mask),
                own(&starts).sigma(&sigmas).mask(&masks),
            ],
        ]
    };
    for device in devices() {
        let plain = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), device);
        for fitter in [plain.clone(), plain.fix("k")] {
            for [row, rows] in pairs() {
                let one = fitter.fit_columns(&row).unwrap();
                let other = fitter.fit_columns(&rows).unwrap();
                assert_eq!(one.status.len(), FITS);
                assert_eq!((&one.status, &one.rounds), (&other.status, &other.rounds));
                assert_eq!(
                    [bits(&one.parameters), bits(&one.errors), bits(&one.chi2)],
                    [
                        bits(&other.parameters),
                        bits(&other.errors),
                        bits(&other.chi2)
                    ]
                );
            }
        }
    }
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), Device::cpu());
    for fitter in [
        fitter.clone(),
        fitter.clone().tie("k", "a/5"),
        fitter.clone().solver(NelderMead::default()),
    ] {
        for [row, rows] in pairs() {
            let one = fitter.fit(&row).unwrap();
            let other = fitter.fit(&rows).unwrap();
            assert_eq!(fit_bits(&one), fit_bits(&other));
        }
    }
    // Intervals pick curves.
    let few = 3 * POINTS;
    let [row, rows] = [&start[..], &starts[..6]].map(|starts| {
        let curves = Curves::on_common_grid(&data.x.double, &data.y.double[..few], starts);
        curves.sigma(&sigma).mask(&mask)
    });
    let fits = fitter.fit(&rows).unwrap();
    let [one, other] = [&row, &rows].map(|curves| {
        fitter
            .confidence_intervals(curves, &fits, &["a"], &[1.0])
            .unwrap()
    });
    let ends = |all: &[Vec<popfit::Interval>]| {
        all.iter()
            .flatten()
            .map(|i| [i.lower, i.upper])
            .collect::<Vec<_>>()
    };
    assert!(ends(&one).len() == 3 && bits(&ends(&one).concat()) == bits(&ends(&other).concat()));
    // Interrupted curves stay at their starts.
    let control = Control {
        timeout: Some(std::time::Duration::ZERO),
        ..Control::default()
    };
    assert_eq!(
        fitter
            .clone()
            .control(control.clone())
            .fit_columns(&common(&start[..]))
            .unwrap()
            .parameters,
        starts
    );
}

#[test]
fn rows_of_another_length_are_refused() {
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), Device::cpu());
    let x = [0.0, 1.0, 2.0];
    let y = [1.0; 6];
    let common = |starts| Curves::on_common_grid(x, y, starts);
    let own = |starts| Curves::on_own_grids([0.0, 1.0, 2.0, 0.0, 1.0, 2.0], y, starts);
    let start = &[1.0, 1.0][..];
    let both = &[1.0; 4][..];
    for (curves, said) in [
        (
            common(&[1.0; 3][..]),
            "starts: 3 numbers, no multiple of 2 parameters (a, k)",
        ),
        (
            Curves::on_common_grid(x, &y[..5], start),
            "y: 5 numbers, not curves × points = 1 × 3, by starts and x",
        ),
        (
            common(start).sigma([1.0; 2]),
            "sigma: 2 numbers, not curves × points = 2 × 3, by starts and x",
        ),
        (
            common(both).mask(vec![false; 4]),
            "mask: 4 numbers, not curves × points = 2 × 3, by starts and x",
        ),
        (
            common(start).bounds([0.0; 2], [9.0; 2]),
            "lower: 2 numbers, not curves × parameters = 2 × 2, as starts",
        ),
        (own(both).points(2), "points: 2, but x has 3 for each curve"),
    ] {
        assert_eq!(fitter.fit(&curves).unwrap_err().to_string(), said);
    }
    // Without a number of points they are one curve.
    assert_eq!(fitter.fit(&own(start)).unwrap().len(), 1);
    assert_eq!(fitter.fit(&own(start).points(3)).unwrap().len(), 2);
}

#[test]
fn columns_return_parameters_by_name_and_covariances() {
    let data = data();
    let [given, _] = data.curves(1);
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), Device::cpu());
    let columns = fitter.clone().covariance(true).fit_columns(&given).unwrap();
    let fits = fitter.fit(&given).unwrap();
    assert_eq!(columns.names(), ["a", "k"]);
    let k: Vec<f64> = columns.column("k").unwrap().collect();
    assert!(k.len() == FITS && k[5] == columns.parameters[11] && columns.column("b").is_none());
    assert_eq!(
        columns.errors("a").unwrap().nth(5),
        Some(columns.errors[10])
    );
    let covariance = columns.covariance.as_ref().unwrap();
    for (k, fit) in fits
        .iter()
        .enumerate()
        .filter(|(k, fit)| fit.status.is_success() && columns.status[*k].is_success())
    {
        for i in 0..4 {
            let scale = fit.errors[i / 2] * fit.errors[i % 2];
            assert!(
                (covariance[4 * k + i] - fit.covariance[i]).abs() < 0.01 * scale,
                "{k}: {fit:?}"
            );
        }
    }
    assert!(covariance[4 * 17..4 * 18].iter().all(|c| c.is_nan()));
    assert!(fitter.fit_columns(&given).unwrap().covariance.is_none());
}
