//! `small`: fits from start to end in f32 on both devices, of a decay whose lanes are written by hand.

use std::sync::Arc;

use super::{SIZES, gpu};
use popfit::low_level::cpu::CpuDevice;
use popfit::low_level::solver::small::{
    LaneBlock, LaneGrid, LaneModel, Rounding, SmallBatch, SmallColumns, SmallModel, SmallProblem, WAITING,
};
use popfit::low_level::solver::{Device, Estimator, LevenbergMarquardt};
use popfit::{Formula, Status};

const POINTS: usize = 21;

/// a exp(-k x) + c and its derivatives by a, k, c, in one precision.
macro_rules! decay {
    ($real:ty) => {
        Arc::new(|block: LaneBlock<'_, $real>| {
            for (place, j) in block.points.clone().enumerate() {
                for l in 0..block.parameters[0].0.len() {
                    let [a, k, c] = [0, 1, 2].map(|p| block.parameters[p].0[l]);
                    let x = match block.grid {
                        LaneGrid::Shared(x) => x[j],
                        LaneGrid::Own(x) => x[j].0[l],
                    };
                    let e = (-k * x).exp();
                    let value = a * e + c;
                    let value = block.y.get(j).map_or(value, |y| y.0[l] - value);
                    for (row, value) in [value, e, -a * x * e, 1.0].into_iter().enumerate() {
                        block.rows[place * block.stride + row].0[l] = value;
                    }
                }
            }
        })
    };
}

/// A rounding that nobody can vouch for: no fit ends in f32 by it, as none does on a GPU.
fn boundless() -> LaneModel<f32> {
    Arc::new(|block: LaneBlock<'_, f32>| {
        for place in 0..block.points.len() {
            (block.rows[place * block.stride].0, block.rows[place * block.stride + 1].0) =
                ([0.0; _], [f32::INFINITY; _]);
        }
    })
}

/// Parameters, variances, chi2, statuses.
type Fits = (Vec<f64>, Vec<f64>, Vec<f64>, Vec<i8>);

fn fit(device: &dyn Device, model: SmallModel, batch: &SmallBatch<'_>) -> Fits {
    let count = batch.starts.len() / 3;
    let small = SmallProblem {
        capacity: 50,
        parameters: 3,
        predictors: 1,
        points: POINTS,
        model,
        wgsl: Formula::parse("a*exp(-k*x) + c").unwrap().wgsl(true).to_owned(),
        ends_in_ones: false,
        settings: LevenbergMarquardt::default().diagonal_floor(0.3).largest_step(10.0),
        tolerance: 1e-9,
        largest_cost: f64::INFINITY,
        estimator: Estimator::LeastSquares,
        priors: Vec::new(),
        rounding: Rounding { points: boundless(), times: 1.0, sums: None },
    };
    let (mut parameters, mut variances) = (batch.starts.to_vec(), vec![f64::NAN; 3 * count]);
    let (mut chi2, mut promises) = (vec![f64::NAN; count], vec![f64::NAN; count]);
    let (mut status, mut rounds) = (vec![WAITING; count], vec![0; count]);
    let mut columns = SmallColumns {
        parameters: &mut parameters,
        variances: &mut variances,
        chi2: &mut chi2,
        promises: &mut promises,
        status: &mut status,
        rounds: &mut rounds,
    };
    device.small_fitter(small).unwrap().unwrap().fit(batch, &mut columns).unwrap();
    (parameters, variances, chi2, status)
}

fn random(k: usize) -> f64 {
    ((k * 7919 + 13) % 1009) as f64 / 1009.0 - 0.5
}

#[test]
fn whole_fits_agree() {
    let Some(gpu) = gpu() else { return };
    for count in SIZES {
        for (own_grid, bounded) in [(false, false), (true, true)] {
            let x: Vec<f64> = (0..if own_grid { count * POINTS } else { POINTS })
                .map(|i| 0.2 * (i % POINTS) as f64 + 0.01 * (i / POINTS) as f64)
                .collect();
            let at = |k: usize, j: usize| x[if own_grid { k * POINTS + j } else { j }];
            let noiseless = |k: usize, j: usize| (3.0 + random(k)) * (-(1.0 + random(k + 7)) * at(k, j)).exp() + 1.0;
            let each = || (0..count).flat_map(|k| (0..POINTS).map(move |j| (k, j)));
            let y: Vec<f64> = each().map(|(k, j)| noiseless(k, j) + 0.1 * random(31 * k + j)).collect();
            let sigma: Vec<f64> = each().map(|(k, j)| 0.05 + 0.01 * ((k + j) % 5) as f64).collect();
            let mask: Vec<bool> = each().map(|(k, j)| (k + 2 * j) % 9 == 0).collect();
            let starts: Vec<f64> = (0..count).flat_map(|k| [2.5, 1.2, 0.5 + 0.1 * random(k)]).collect();
            let bounds = ([0.0, 0.8, -10.0], [3.0, 9.0, 10.0]);
            let batch = SmallBatch {
                units: None,
                x: &x,
                own_grid,
                y: &y,
                sigma: bounded.then_some(&sigma),
                mask: bounded.then_some(&mask),
                starts: &starts,
                bounds: bounded.then_some((&bounds.0, &bounds.1)),
            };
            let exact = fit(&CpuDevice, SmallModel::Double(decay!(f64), None), &batch);
            let cpu = fit(&CpuDevice, SmallModel::Single(decay!(f32), None), &batch);
            let found = fit(&gpu, SmallModel::Single(decay!(f32), None), &batch);
            for k in 0..count {
                let success = |fits: &Fits| Status::from_code(fits.3[k].into()).is_some_and(Status::is_success);
                assert!(success(&cpu) && success(&found) && success(&exact), "{k}: {} {}", cpu.3[k], found.3[k]);
                assert!((cpu.2[k] / found.2[k] - 1.0).abs() < 1e-4, "{k}: chi2 {} {}", cpu.2[k], found.2[k]);
                for i in 3 * k..3 * k + 3 {
                    // at a bound there is no error: the parameter itself must agree
                    let sigma = (exact.1[i] * exact.2[k] / POINTS as f64).sqrt();
                    let most = if sigma.is_nan() { 1e-6 * cpu.0[i].abs() } else { 0.02 * sigma };
                    assert!((cpu.0[i] - found.0[i]).abs() <= most, "{k}: {} {} {sigma}", cpu.0[i], found.0[i]);
                    assert!((cpu.0[i] - exact.0[i]).abs() <= most, "{k}: {} {} {sigma}", cpu.0[i], exact.0[i]);
                }
            }
        }
    }
}
