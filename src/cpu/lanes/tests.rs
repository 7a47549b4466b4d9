//! Test that a lane and a member take the same steps inside their bounds if they get the same sums. The decisions that
//! both share are tested in `solver/round/step/decisions.rs`.

use std::sync::Arc;

use super::FitBlock;
use super::block::{RUNNING_LANE_STATUS, gradient, normal};
use crate::buffers::{LossSums, Sums};
use crate::math::lanes::{LANES, Lanes};
use crate::math::triangle::{packed_index, packed_length};
use crate::solver::member::{Member, Phase};
use crate::solver::round::step::{Rules, step_member};
use crate::solver::small::{Numbers, SmallBatch, SmallModel, SmallProblem};
use crate::solver::thresholds::CLOSE_POINTS_SHARE;
use crate::solver::{Bounds, Estimator, LevenbergMarquardt, Tolerances};

const SETTINGS: LevenbergMarquardt = LevenbergMarquardt {
    max_rounds: 60,
    ftol: 1e-12,
    xtol: 1e-12,
    gtol: 1e-12,
    initial_damping: 1e-3,
    max_rejections: 16,
    diagonal_floor: 1e-4,
    largest_step: 3.0,
    ..LevenbergMarquardt::OF_SPECTRA
};

/// Largest difference of two trial points, relative to a parameter and to 1. Rounding is enlarged by bent valleys.
const MAX_STEP_DIFFERENCE: f64 = 1e-6;
/// Damping below which the floor of its diagonal may be released, which lanes and members do in different rounds.
const NEGLIGIBLE_DAMPING: f64 = 1e-5;

/// Returns uniform numbers from −1 to 1, by Knuth's linear congruential sequence.
fn uniform_numbers(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

/// Residuals r_i = Σ_p a_ip (t_p − x_p) + c_ip (t_p² − x_p²), which are all 0 at t.
struct QuadraticProblem {
    /// (residuals, P)
    slopes: Vec<Vec<f64>>,
    bends: Vec<Vec<f64>>,
    /// (P)
    truth: Vec<f64>,
}

impl QuadraticProblem {
    fn new(count: usize, smallest: f64, random: &mut impl FnMut() -> f64) -> QuadraticProblem {
        let scale = |p: usize| if p % 3 == 1 { smallest } else { 1.0 };
        let mut row = |size: f64| (0..count).map(|p| scale(p) * size * random()).collect();
        let mut rows = |size: f64| (0..count + 3).map(|_| row(size)).collect();
        let slopes = rows(1.0);
        let bends = rows(0.7);
        QuadraticProblem {
            slopes,
            bends,
            truth: (0..count).map(|_| 2.0 * random()).collect(),
        }
    }

    fn evaluate_sums(&self, x: &[f64]) -> Sums {
        let count = x.len();
        let mut sums = Sums {
            chi2: 0.0,
            penalty: 0.0,
            ln_det: 0.0,
            loss: LossSums::default(),
            ..Sums::poisoned(count)
        };
        sums.gradient.fill(0.0);
        sums.normal_matrix.fill(0.0);
        for (slopes, bends) in self.slopes.iter().zip(&self.bends) {
            let term = |p: usize| {
                slopes[p] * (self.truth[p] - x[p])
                    + bends[p] * (self.truth[p] * self.truth[p] - x[p] * x[p])
            };
            let r: f64 = (0..count).map(term).sum();
            let j: Vec<f64> = (0..count)
                .map(|p| slopes[p] + 2.0 * bends[p] * x[p])
                .collect();
            sums.chi2 += r * r;
            for p in 0..count {
                sums.gradient[p] += j[p] * r;
                (0..=p).for_each(|q| sums.normal_matrix[packed_index(p, q)] += j[p] * j[q]);
            }
        }
        sums
    }
}

/// Numbers of compared steps of each kind.
#[derive(Default, Debug)]
struct ComparedSteps {
    steps: usize,
    rejections: usize,
    shortened: usize,
    at_bounds: usize,
}

/// Fits as many problems as there are lanes, each also by a member, and compares their trial points and damping from
/// round to round. A fit is followed as long as it searches, because members and lanes end by different rules.
fn compare_fits(count: usize, is_bounded: bool, compared: &mut ComparedSteps) {
    let mut random = uniform_numbers(7 + count as u64);
    // Some columns are so small that the floor of the damping's diagonal restrains their parameters.
    let smallest = |l: usize| if l.is_multiple_of(2) { 1.0 } else { 0.003 };
    let problems: Vec<QuadraticProblem> = (0..LANES)
        .map(|l| QuadraticProblem::new(count, smallest(l), &mut random))
        .collect();
    let starts: Vec<f64> = (0..LANES * count).map(|_| 2.0 * random()).collect();
    let mut bound = |sign: f64| -> Vec<f64> {
        starts
            .iter()
            .map(|x| {
                if is_bounded {
                    x + sign * (0.4 + 0.4 * random())
                } else {
                    sign * f64::INFINITY
                }
            })
            .collect()
    };
    let lower = bound(-1.0);
    let upper = bound(1.0);
    let small_problem = make_problem(count);
    let batch = make_batch(&starts, is_bounded.then_some((&lower[..], &upper[..])));
    let mut block = make_block(&small_problem, &batch);
    let mut members: Vec<Member> = starts
        .chunks(count)
        .map(|start| Member::new(0, 0, start, SETTINGS.initial_damping))
        .collect();
    let mut is_followed = [true; LANES];
    for _ in 0..SETTINGS.max_rounds {
        for (l, problem) in problems.iter().enumerate() {
            let trial: Vec<f64> = block.trial.iter().map(|x| x.0[l]).collect();
            write_sums(&mut block, l, &problem.evaluate_sums(&trial));
            members[l].trial_sums = problem.evaluate_sums(&members[l].trial);
        }
        block.step_lanes(&small_problem);
        for (l, (member, is_followed)) in members.iter_mut().zip(&mut is_followed).enumerate() {
            let range = l * count..(l + 1) * count;
            let bounds = Bounds {
                lower: &lower[range.clone()],
                upper: &upper[range],
            };
            *is_followed = *is_followed && compare_step(member, bounds, (&block, l), compared);
        }
    }
}

/// Takes a member's step and compares it with that of a lane of the block; returns `false`, without a comparison,
/// once the member no longer searches far from its end.
fn compare_step(
    member: &mut Member,
    bounds: Bounds<'_>,
    (block, l): (&FitBlock<f64>, usize),
    compared: &mut ComparedSteps,
) -> bool {
    let rules = Rules {
        bounds,
        settings: &SETTINGS,
        tolerances: Tolerances::of_members(&SETTINGS, false, 1e-13),
        trusts_last_step: true,
    };
    step_member(member, &rules);
    let searches = member.is_active() && member.phase == Phase::Searching;
    if !(searches && is_far(member) && member.damping.mu > NEGLIGIBLE_DAMPING) {
        return false;
    }
    let count = member.trial.len();
    assert_eq!(
        block.status.0[l], RUNNING_LANE_STATUS,
        "{count} {l}: the lane has ended"
    );
    let mu = (member.damping.mu, block.mu.0[l]);
    assert!(
        (mu.0 - mu.1).abs() <= MAX_STEP_DIFFERENCE * mu.0,
        "{count} {l}: {mu:?}"
    );
    for (p, x) in member.trial.iter().enumerate() {
        let y = block.trial[p].0[l];
        assert!(
            (x - y).abs() <= MAX_STEP_DIFFERENCE * (1.0 + x.abs()),
            "{count} {l} {p}: {x} {y}"
        );
        compared.at_bounds += usize::from(*x == bounds.lower[p] || *x == bounds.upper[p]);
    }
    compared.steps += 1;
    compared.rejections += usize::from(member.rejections > 0);
    compared.shortened += usize::from(block.step_share.0[l] < 1.0);
    true
}

/// Returns whether a member's next step is too long for the secant term, which lanes lack.
fn is_far(member: &Member) -> bool {
    let delta: Vec<f64> = member
        .trial
        .iter()
        .zip(&member.parameters)
        .map(|(to, from)| to - from)
        .collect();
    let row = |p: usize| (0..delta.len()).map(move |q| (q, packed_index(p, q)));
    let slope = |p: usize| {
        row(p)
            .map(|(q, k)| member.sums.normal_matrix[k] * delta[q])
            .sum::<f64>()
    };
    let curvature: f64 = (0..delta.len()).map(|p| delta[p] * slope(p)).sum();
    curvature > 10.0 * CLOSE_POINTS_SHARE * member.sums.cost()
}

/// Returns a description of fits without a model, whose sums this test makes.
fn make_problem(parameters: usize) -> SmallProblem {
    SmallProblem {
        capacity: LANES,
        parameters,
        predictors: 1,
        points: 1,
        model: SmallModel::Double(Arc::new(|_| {}), None),
        wgsl: String::new(),
        ends_in_ones: false,
        settings: SETTINGS,
        budget: 1000,
        is_pointwise: true,
        is_sandwich: false,
        tolerances: Tolerances::with_reduction(&SETTINGS, SETTINGS.ftol, f64::INFINITY, 1e-6),
        estimator: Estimator::LeastSquares,
        priors: Vec::new(),
        rounding: None,
        correlations: false,
    }
}

fn make_batch<'a>(starts: &'a [f64], bounds: Option<(&'a [f64], &'a [f64])>) -> SmallBatch<'a> {
    SmallBatch {
        x: &[],
        own_grid: false,
        y: Numbers::Double(&[]),
        sigma: None,
        mask: None,
        starts,
        units: None,
        bounds,
        first: 0,
        numbers: None,
    }
}

/// Returns a block with a fit in each lane, at its start.
fn make_block(problem: &SmallProblem, batch: &SmallBatch<'_>) -> FitBlock<f64> {
    let mut block = FitBlock::new(problem, batch);
    let rows = |values: &[f64]| -> Vec<Lanes<f64>> {
        let row = |p: usize| Lanes(std::array::from_fn(|l| values[l * problem.parameters + p]));
        (0..problem.parameters).map(row).collect()
    };
    block.trial = rows(batch.starts);
    block.accepted = block.trial.clone();
    if let Some((lower, upper)) = batch.bounds {
        (block.lower, block.upper) = (rows(lower), rows(upper));
    }
    let splat = Lanes::splat;
    block
        .unit
        .iter_mut()
        .chain(&mut block.inverse_unit)
        .for_each(|unit| *unit = splat(1.0));
    (block.mu, block.nu) = (splat(SETTINGS.initial_damping), splat(2.0));
    (
        block.diagonal_floor,
        block.predicted_reduction,
        block.status,
    ) = (
        splat(SETTINGS.diagonal_floor),
        splat(f64::NAN),
        splat(RUNNING_LANE_STATUS),
    );
    block
}

/// Writes the sums at a lane's trial point into the block.
fn write_sums(block: &mut FitBlock<f64>, l: usize, sums: &Sums) {
    block.trial_sums[0].0[l] = sums.chi2;
    for p in 0..sums.gradient.len() {
        block.trial_sums[gradient(p)].0[l] = sums.gradient[p];
        (0..=p).for_each(|q| {
            block.trial_sums[normal(p, q)].0[l] = sums.normal_matrix[packed_index(p, q)]
        });
    }
    assert_eq!(sums.normal_matrix.len(), packed_length(sums.gradient.len()));
}

#[test]
fn lanes_and_members_take_the_same_steps() {
    let mut compared = ComparedSteps::default();
    for count in 1..=7 {
        for is_bounded in [false, true] {
            compare_fits(count, is_bounded, &mut compared);
        }
    }
    println!("{compared:?}");
    assert!(
        compared.steps > 3000
            && compared.rejections > 350
            && compared.shortened > 700
            && compared.at_bounds > 2500,
        "{compared:?}"
    );
}
