//! Fits whose solution lies on faces of their box: none ends on a face that holds it in vain.

use std::ops::Range;

use popfit::{
    Continuum, CurveFit, CurveFitter, Curves, Device, Emulator, FitRow, Flags, Formula,
    LabelSettings, LevenbergMarquardt, NelderMead, SpectralFitter, SpectralModel,
};
use popfit_testing::fits::{devices, fitter, pick, synb_spectra};
use popfit_testing::random::Random;

const POINTS: usize = 20;
const TERMS: usize = 5;
const FITS: usize = 2000;

/// Polynomials in boxes of their own, whose terms resemble each other so much that few parameters may go where they
/// would without bounds.
struct Polynomials {
    x: Vec<f64>,
    y: Vec<f64>,
    sigma: Vec<f64>,
    lower: Vec<f64>,
    upper: Vec<f64>,
    starts: Vec<f64>,
}

impl Polynomials {
    fn new() -> Polynomials {
        let mut random = Random(1);
        let lower: Vec<f64> = (0..FITS * TERMS).map(|_| -random.uniform()).collect();
        let upper: Vec<f64> = lower.iter().map(|l| l + 0.1 + random.uniform()).collect();
        Polynomials {
            x: (0..POINTS).map(|j| j as f64 / POINTS as f64).collect(),
            y: (0..FITS * POINTS)
                .map(|_| 2.0 * random.uniform() - 1.0)
                .collect(),
            sigma: vec![1.0; FITS * POINTS],
            starts: lower
                .iter()
                .zip(&upper)
                .map(|(l, u)| l + (u - l) * random.uniform())
                .collect(),
            lower,
            upper,
        }
    }

    fn fit(
        &self,
        device: &Device,
        settings: LevenbergMarquardt,
        some: Range<usize>,
    ) -> Vec<CurveFit> {
        let points = |all: &[f64]| all[some.start * POINTS..some.end * POINTS].to_vec();
        let terms = |all: &[f64]| all[some.start * TERMS..some.end * TERMS].to_vec();
        let curves = Curves::on_common_grid(self.x.clone(), points(&self.y), terms(&self.starts))
            .bounds(terms(&self.lower), terms(&self.upper))
            .sigma(points(&self.sigma));
        let formula = Formula::parse("a + b*x + c*x^2 + d*x^3 + f*x^4").unwrap();
        CurveFitter::new(formula, device.clone())
            .solver(settings)
            .fit(&curves)
            .unwrap()
    }
}

/// The solution is unique: the cost falls in no direction, except out of the bounds.
#[test]
fn bounded_polynomials_end_where_the_cost_falls_only_outwards() {
    let all = Polynomials::new();
    let basis = |p: usize| all.x.iter().map(move |x| x.powi(p as i32));
    for device in devices() {
        for (n, fit) in all
            .fit(&device, LevenbergMarquardt::default(), 0..FITS)
            .iter()
            .enumerate()
        {
            assert!(fit.status.is_success(), "{device:?} {n} {fit:?}");
            let mut residual = all.y[n * POINTS..][..POINTS].to_vec();
            for (p, value) in fit.parameters.iter().enumerate() {
                residual
                    .iter_mut()
                    .zip(basis(p))
                    .for_each(|(r, b)| *r -= value * b);
            }
            let size = |a: f64, b: f64| a + b * b;
            let cost = residual.iter().copied().fold(0.0, size);
            for (p, &value) in fit.parameters.iter().enumerate() {
                let downhill: f64 = residual.iter().zip(basis(p)).map(|(r, b)| r * b).sum();
                let cosine = downhill / (cost * basis(p).fold(0.0, size)).sqrt();
                let low = value == all.lower[n * TERMS + p];
                let high = value == all.upper[n * TERMS + p];
                assert!(
                    (cosine < 1e-3 || high) && (cosine > -1e-3 || low),
                    "{device:?} {n} {p} {cosine} {fit:?}"
                );
            }
        }
    }
}

/// In every seventh fit three points have nearly all the weight: the matrices of its damped steps factorise after
/// several attempts, those of the others at once.
#[test]
fn bounded_fits_end_alone_as_among_others() {
    let mut all = Polynomials::new();
    for sigma in all.sigma.chunks_mut(7 * POINTS) {
        (0..POINTS)
            .filter(|j| ![7, 11, 16].contains(j))
            .for_each(|j| sigma[j] = 1e13);
    }
    let fit = |range| {
        let settings = LevenbergMarquardt::default()
            .initial_damping(1e-20)
            .diagonal_floor(0.0);
        all.fit(&Device::cpu(), settings, range)
    };
    for (n, fit_of_all) in fit(0..FITS).iter().enumerate() {
        let alone = &fit(n..n + 1)[0];
        assert_eq!(
            (&fit_of_all.parameters, fit_of_all.evaluations),
            (&alone.parameters, alone.evaluations),
            "{n}"
        );
    }
}

/// A simplex uses neither slopes nor bounds, and finds nothing lower.
#[test]
fn spectra_in_narrow_boxes_end_as_low_as_a_simplex() {
    let bounds = |low, high| LabelSettings::default().bounds(low..=high);
    let model = SpectralModel::builder()
        .arm("", Emulator::open(popfit_testing::demo_emulator()).unwrap())
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::rbf(10))
        .label("teff", bounds(4800.0, 5800.0))
        .label("logg", bounds(3.5, 4.5))
        .label("feh", bounds(-1.5, -0.5))
        .build()
        .unwrap();
    let spectra = pick(&synb_spectra(), &(0..32).collect::<Vec<usize>>());
    let simplex = SpectralFitter::new(model.clone(), Device::cpu())
        .solver(NelderMead::default())
        .fit(&spectra)
        .unwrap();
    for device in devices() {
        let steps = fitter(model.clone(), &device).fit(&spectra).unwrap();
        let above = |(a, b): (FitRow, FitRow)| a.objective / b.objective - 1.0;
        let most = steps
            .to_rows()
            .into_iter()
            .zip(simplex.to_rows())
            .map(above)
            .fold(f64::MIN, f64::max);
        println!("{device:?}: at most {most:.1e} of the objective above the simplex");
        assert!(
            most < 1e-5
                && steps
                    .to_rows()
                    .into_iter()
                    .filter(|row| row.at_bound.count_ones() > 1)
                    .count()
                    > 10
        );
    }
}

/// Bounds beyond the precision of f32 are reached in f64, by `fit` and by columns.
#[test]
fn bounds_beyond_f32_precision_are_reached_exactly() {
    let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
    let scatter = |x: f64| 0.01 * (9.0 * x).sin();
    let y: Vec<f64> = x
        .iter()
        .map(|x| 2.0 * (-0.3 * x).exp() + 0.5 * (-2.0 * x).exp() + scatter(*x))
        .collect();
    let formula = Formula::parse("a*exp(-k*x) + b*exp(-q*x)").unwrap();
    let fitter = CurveFitter::new(formula, Device::cpu()).bounds("b", 0.8, 4.0);
    for start in [
        [1.5, 0.4, 1.0, 1.5],
        [2.5, 0.2, 2.0, 3.0],
        [1.0, 0.5, 3.0, 2.0],
        [3.0, 0.1, 0.9, 5.0],
    ] {
        let curves = Curves::on_common_grid(x.clone(), y.clone(), start.to_vec());
        let fit = fitter.fit(&curves).unwrap().swap_remove(0);
        let columns = fitter.fit_columns(&curves).unwrap();
        assert!(
            fit.parameters[2] == 0.8 && columns.parameters[2] == 0.8,
            "{fit:?} {columns:?}"
        );
        assert!(
            fit.flags == Flags::AT_BOUND && columns.flags[0] == Flags::AT_BOUND,
            "{fit:?} {columns:?}"
        );
        for (a, b) in fit.errors.iter().zip(&columns.errors) {
            assert!(
                a.is_nan() && b.is_nan() || (a / b - 1.0).abs() < 1e-3,
                "{fit:?} {columns:?}"
            );
        }
    }
}
