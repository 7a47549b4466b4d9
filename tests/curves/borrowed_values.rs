//! Curves that lend their arrays, in f64 or f32: the bits of the same numbers given as f64, and no copy of the whole
//! input.

use popfit::{CurveFit, CurveFitter, Curves, Device, Estimator, Formula, NelderMead, Values};
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
        Arrays { double: single.iter().map(|x| f64::from(*x)).collect(), single }
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
    let each = || (0..FITS).flat_map(|k| (0..POINTS).map(move |j| (k, j)));
    let noise = |k: usize, j: usize| 0.05 * ((k * 31 + j * 7) as f64 * 12.9898).sin();
    let y = move |(k, j): (usize, usize)| {
        (3.0 + (k % 7) as f64) * (-(0.4 + 0.05 * (k % 13) as f64) * x(j)).exp() + noise(k, j)
    };
    Data {
        x: Arrays::new((0..POINTS).map(x)),
        own_x: Arrays::new(each().map(|(k, j)| x(j) + 0.001 * (k % 5) as f64)),
        // one curve is bad, one is far off
        y: Arrays::new(
            each().map(|at| if at == (17, 3) { f64::NAN } else { y(at) * if at.0 == 40 { 1e12 } else { 1.0 } }),
        ),
        sigma: Arrays::new(each().map(|(k, j)| 0.05 + 0.01 * ((k + j) % 5) as f64)),
        // some begin at 0
        starts: Arrays::new((0..FITS).flat_map(|k| [if k % 50 == 0 { 0.0 } else { 2.5 }, 0.7])),
        lower: Arrays::new((0..FITS).flat_map(|_| [-1e3, 0.0])),
        upper: Arrays::new((0..FITS).flat_map(|k| [1e14, if k % 3 == 0 { 0.8 } else { 5.0 }])),
        mask: each().map(|(k, j)| (k + 2 * j) % 11 == 0).collect(),
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
                3 => Curves::on_own_grids(double(&self.own_x), double(&self.y), double(&self.starts)),
                _ => Curves::on_common_grid(double(&self.x), double(&self.y), double(&self.starts)),
            },
            match kind {
                3 => Curves::on_own_grids(single(&self.own_x), single(&self.y), single(&self.starts)),
                _ => Curves::on_common_grid(single(&self.x), single(&self.y), single(&self.starts)),
            },
        ];
        let [given, lent] = both;
        match kind {
            1 => [
                given.sigma(double(&self.sigma)).mask(self.mask.clone()),
                lent.sigma(single(&self.sigma)).mask(&self.mask),
            ],
            2 => [
                given.bounds(double(&self.lower), double(&self.upper)),
                lent.bounds(single(&self.lower), single(&self.upper)),
            ],
            _ => [given, lent],
        }
    }
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|x| x.to_bits()).collect()
}

fn fit_bits(fits: &[CurveFit]) -> Vec<Vec<u64>> {
    fits.iter()
        .map(|fit| {
            [&fit.parameters[..], &fit.errors, &fit.covariance, &[fit.chi2]].into_iter().flat_map(bits).collect()
        })
        .collect()
}

#[test]
fn f32_that_is_lent_gives_the_bits_of_f64() {
    let data = data();
    for device in devices() {
        let plain = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), device);
        let kinds =
            [plain.clone(), plain.clone().fix("k"), plain.clone().estimator(Estimator::Huber(1.0)).covariance(true)];
        for (fitter, kind) in kinds.iter().flat_map(|fitter| (0..4).map(move |kind| (fitter, kind))) {
            let [given, lent] = data.curves(kind);
            let (one, other) = (fitter.fit_columns(&given).unwrap(), fitter.fit_columns(&lent).unwrap());
            assert_eq!((&one.status, &one.rounds), (&other.status, &other.rounds));
            assert_eq!(
                [bits(&one.parameters), bits(&one.errors), bits(&one.chi2)],
                [bits(&other.parameters), bits(&other.errors), bits(&other.chi2)]
            );
            assert_eq!(one.covariance.as_deref().map(bits), other.covariance.as_deref().map(bits));
            let arrived = one.status.iter().filter(|status| status.is_success()).count();
            assert!(arrived > FITS * 9 / 10 && one.status_codes()[17] == -1, "{kind}: {arrived}");
        }
    }
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), Device::cpu());
    for (fitter, kind) in [(fitter.clone(), 0), (fitter.clone(), 3), (fitter.clone().tie("k", "a/5"), 1)] {
        let [given, lent] = data.curves(kind);
        let (one, other) = (fitter.fit(&given).unwrap(), fitter.fit(&lent).unwrap());
        assert_eq!(fit_bits(&one), fit_bits(&other));
    }
    let few = |kind| {
        data.curves(kind).map(|curves| fitter.clone().solver(NelderMead::default()).fit_columns(&curves).unwrap())
    };
    let [one, other] = few(2);
    assert_eq!(bits(&one.parameters), bits(&other.parameters));
}

#[test]
fn columns_give_parameters_by_name_and_covariances() {
    let data = data();
    let [given, _] = data.curves(1);
    let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)").unwrap(), Device::cpu());
    let (columns, fits) = (fitter.clone().covariance(true).fit_columns(&given).unwrap(), fitter.fit(&given).unwrap());
    assert_eq!(columns.names(), ["a", "k"]);
    let k: Vec<f64> = columns.column("k").unwrap().collect();
    assert!(k.len() == FITS && k[5] == columns.parameters[11] && columns.column("b").is_none());
    assert_eq!(columns.errors("a").unwrap().nth(5), Some(columns.errors[10]));
    let covariance = columns.covariance.as_ref().unwrap();
    for (k, fit) in
        fits.iter().enumerate().filter(|(k, fit)| fit.status.is_success() && columns.status[*k].is_success())
    {
        for i in 0..4 {
            let scale = fit.errors[i / 2] * fit.errors[i % 2];
            assert!((covariance[4 * k + i] - fit.covariance[i]).abs() < 0.01 * scale, "{k}: {fit:?}");
        }
    }
    assert!(covariance[4 * 17..4 * 18].iter().all(|c| c.is_nan()));
    assert!(fitter.fit_columns(&given).unwrap().covariance.is_none());
}
