//! Models that take many curves in a call: the bits of one call for each, and few calls.

use std::sync::{Arc, Mutex};

use popfit::{Closure, Context, CurveFit, CurveFitter, CurveModel, Curves, Device, Failure, Model, Status};

/// a exp(−k x) + c, which counts the rows of each call.
#[derive(Clone, Default)]
struct Counting {
    rows: Arc<Mutex<Vec<usize>>>,
    /// Index of the curve for which it fails, or panics, and how often it was asked for another one alone.
    fails: Option<usize>,
    panics: Option<usize>,
}

fn decay(x: &[f64], p: &[f64], values: &mut [f64]) {
    values.iter_mut().zip(x).for_each(|(y, x)| *y = p[0] * (-p[1] * x).exp() + p[2]);
}

impl Model for Counting {
    fn predictors(&self) -> Vec<String> {
        vec!["x".into()]
    }

    fn parameters(&self) -> Vec<String> {
        ["a", "k", "c"].map(String::from).to_vec()
    }

    fn values(&self, x: &[f64], parameters: &[f64], values: &mut [f64]) {
        decay(x, parameters, values);
    }

    fn takes_many(&self) -> bool {
        true
    }

    fn values_many(&self, contexts: &[Context], x: &[f64], p: &[f64], values: &mut [f64]) -> Result<(), Failure> {
        assert!(p.len() == 3 * contexts.len() && values.len() == x.len() * contexts.len());
        self.rows.lock().unwrap().push(contexts.len());
        for ((context, p), values) in contexts.iter().zip(p.chunks_exact(3)).zip(values.chunks_exact_mut(x.len())) {
            if self.fails == Some(context.index) {
                return Err(format!("no curve {}", context.index).into());
            }
            assert!(self.panics != Some(context.index), "curve {}", context.index);
            decay(x, p, values);
        }
        Ok(())
    }
}

const CURVES: usize = 3000;
const POINTS: usize = 20;

/// Noisy decays on a common grid, or on grids of their own.
fn curves(own_grid: bool) -> Curves<'static> {
    let x: Vec<f64> = (0..POINTS).map(|j| 0.25 * j as f64).collect();
    let noise = |i: usize| 0.05 * (i as f64 * 1.7).sin();
    let of = |k: usize| [3.0 + (k % 7) as f64, 0.5 + 0.1 * (k % 5) as f64, 0.3];
    let mut y = vec![0.0; CURVES * POINTS];
    y.chunks_exact_mut(POINTS).enumerate().for_each(|(k, row)| decay(&x, &of(k), row));
    y.iter_mut().enumerate().for_each(|(i, y)| *y += noise(i));
    let starts = [4.0, 0.6, 0.1].repeat(CURVES);
    match own_grid {
        true => Curves::on_own_grids(x.repeat(CURVES), y, starts),
        false => Curves::on_common_grid(x, y, starts),
    }
}

/// Returns everything that a fit computes, as bits.
fn bits(fit: &CurveFit) -> (Status, u32, u32, Vec<u64>) {
    let numbers = fit.parameters.iter().chain(&fit.errors).chain(&fit.covariance).chain([&fit.chi2]);
    (fit.status, fit.rounds, fit.evaluations, numbers.map(|x| x.to_bits()).collect())
}

fn model(counting: &Counting) -> CurveModel {
    CurveModel::new(counting.clone()).unwrap()
}

#[test]
fn many_curves_in_a_call_have_the_bits_of_one() {
    let closure = || Closure::new(&["x"], &["a", "k", "c"], decay).unwrap();
    let set: [fn(CurveFitter) -> CurveFitter; 4] = [
        |fitter| fitter,
        |fitter| fitter.bounds("c", 0.05, 9.0).bounds("a", 0.0, 8.0).fix("k"),
        |fitter| fitter.solver(CurveFitter::NELDER_MEAD).polish(false),
        |fitter| fitter.estimator(popfit::Estimator::Cauchy(0.1)),
    ];
    for (case, set) in set.into_iter().enumerate() {
        for own_grid in [false, true] {
            let counting = Counting::default();
            let fits = set(CurveFitter::new(model(&counting), Device::cpu())).fit(&curves(own_grid)).unwrap();
            let alone = set(CurveFitter::new(closure(), Device::cpu())).fit(&curves(own_grid)).unwrap();
            let differs = fits.iter().zip(&alone).position(|(a, b)| bits(a) != bits(b));
            assert_eq!(differs, None, "case {case}, {own_grid}: {:?}", differs.map(|k| (&fits[k], &alone[k])));
            let rows = counting.rows.lock().unwrap();
            let (most, all) = (rows.iter().max().unwrap(), rows.iter().sum::<usize>());
            assert!(own_grid || *most >= 500, "case {case}: {most} rows of {all} in {} calls", rows.len());
        }
    }
}

/// A curve whose model fails or panics ends alone; the others have the bits that they have without it.
#[test]
fn who_fails_in_a_call_ends_alone() {
    let expected = CurveFitter::new(model(&Counting::default()), Device::cpu()).fit(&curves(false)).unwrap();
    for (fails, panics) in [(Some(7), None), (None, Some(1234)), (Some(2), Some(2999))] {
        let failing = Counting { fails, panics, ..Counting::default() };
        let fits = CurveFitter::new(model(&failing), Device::cpu()).fit(&curves(false)).unwrap();
        for (k, (fit, expected)) in fits.iter().zip(&expected).enumerate() {
            match k {
                _ if fails == Some(k) => assert_eq!(fit.message, format!("the model failed: no curve {k}")),
                _ if panics == Some(k) => assert_eq!(fit.message, format!("the model panicked: curve {k}")),
                _ => assert_eq!(bits(fit), bits(expected), "{k}"),
            }
        }
    }
}

/// By default the function is a loop, and fits do not call it.
#[test]
fn by_default_curves_are_evaluated_one_by_one() {
    let closure = Closure::new(&["x"], &["a", "k", "c"], decay).unwrap();
    let (x, p) = ([0.0, 1.0, 2.0], [3.0, 0.5, 1.0, 4.0, 0.7, 2.0]);
    let (mut both, mut one) = ([0.0; 6], [0.0; 3]);
    closure.values_many(&[Context::default(); 2], &x, &p, &mut both).unwrap();
    for k in 0..2 {
        closure.values(&x, &p[3 * k..3 * k + 3], &mut one);
        assert_eq!(both[3 * k..3 * k + 3], one);
    }
    closure.values_many(&[], &x, &[], &mut []).unwrap();
    assert!(!closure.takes_many());
}
