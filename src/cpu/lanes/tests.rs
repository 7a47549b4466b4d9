//! The steps of lanes and that of a member, driven with the same sums: how each solves for a step in its box. What both
//! decide by is tested in `solver/round/step/decisions.rs`.

use std::sync::Arc;

use super::Block;
use super::block::{RUNNING, gradient, normal};
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

/// Largest difference of two trial points, as a share of a parameter and of 1: rounding, which bent valleys enlarge.
const DIFFERENCE: f64 = 1e-6;
/// Damping below which its floor may be released, in another round in lanes than in a member.
const LITTLE_DAMPING: f64 = 1e-5;

/// Returns uniform numbers from −1 to 1, by Knuth's linear congruential sequence.
fn uniform(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

/// Residuals r_i = Σ_p a_ip (t_p − x_p) + c_ip (t_p² − x_p²), which are all 0 at t.
struct Problem {
    /// (residuals, P)
    slopes: Vec<Vec<f64>>,
    bends: Vec<Vec<f64>>,
    /// (P)
    truth: Vec<f64>,
}

impl Problem {
    fn new(count: usize, smallest: f64, random: &mut impl FnMut() -> f64) -> Problem {
        let scale = |p: usize| if p % 3 == 1 { smallest } else { 1.0 };
        let mut row = |size: f64| (0..count).map(|p| scale(p) * size * random()).collect();
        let mut rows = |size: f64| (0..count + 3).map(|_| row(size)).collect();
        let (slopes, bends) = (rows(1.0), rows(0.7));
        Problem {
            slopes,
            bends,
            truth: (0..count).map(|_| 2.0 * random()).collect(),
        }
    }

    fn sums(&self, x: &[f64]) -> Sums {
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

/// What a run has compared.
#[derive(Default, Debug)]
struct Seen {
    steps: usize,
    rejections: usize,
    shortened: usize,
    on_faces: usize,
}

/// Fits as many problems as there are lanes, each by a member, too, and compares their trial points and damping from
/// round to round. A fit is followed as long as it searches: members and lanes end by rules of their own.
fn compare(count: usize, boxed: bool, seen: &mut Seen) {
    let mut random = uniform(7 + count as u64);
    // some columns are so small that the floor of the damping's diagonal holds their parameters back
    let smallest = |l: usize| if l.is_multiple_of(2) { 1.0 } else { 0.003 };
    let problems: Vec<Problem> = (0..LANES)
        .map(|l| Problem::new(count, smallest(l), &mut random))
        .collect();
    let starts: Vec<f64> = (0..LANES * count).map(|_| 2.0 * random()).collect();
    let mut bound = |sign: f64| -> Vec<f64> {
        starts
            .iter()
            .map(|x| {
                if boxed {
                    x + sign * (0.4 + 0.4 * random())
                } else {
                    sign * f64::INFINITY
                }
            })
            .collect()
    };
    let (lower, upper) = (bound(-1.0), bound(1.0));
    let (small, batch) = (
        small(count),
        batch(&starts, boxed.then_some((&lower[..], &upper[..]))),
    );
    let mut block = block(&small, &batch);
    let mut members: Vec<Member> = starts
        .chunks(count)
        .map(|start| Member::new(0, 0, start, SETTINGS.initial_damping))
        .collect();
    let mut followed = [true; LANES];
    for _ in 0..SETTINGS.max_rounds {
        for (l, problem) in problems.iter().enumerate() {
            let trial: Vec<f64> = block.trial.iter().map(|x| x.0[l]).collect();
            put(&mut block, l, &problem.sums(&trial));
            members[l].trial_sums = problem.sums(&members[l].trial);
        }
        block.step(&small);
        for (l, (member, followed)) in members.iter_mut().zip(&mut followed).enumerate() {
            let own = l * count..(l + 1) * count;
            let bounds = Bounds {
                lower: &lower[own.clone()],
                upper: &upper[own],
            };
            *followed = *followed && compare_step(member, bounds, (&block, l), seen);
        }
    }
}

/// Takes a member's step and compares it with that of a lane of the block; returns `false`, without a look at it, once
/// the member no longer searches far from its end.
fn compare_step(
    member: &mut Member,
    bounds: Bounds<'_>,
    (block, l): (&Block<f64>, usize),
    seen: &mut Seen,
) -> bool {
    let rules = Rules {
        bounds,
        settings: &SETTINGS,
        tolerances: Tolerances::of_members(&SETTINGS, false, 1e-13),
        trusts_last_step: true,
    };
    step_member(member, &rules);
    let searches = member.is_active() && member.phase == Phase::Searching;
    if !(searches && is_far(member) && member.damping.mu > LITTLE_DAMPING) {
        return false;
    }
    let count = member.trial.len();
    assert_eq!(
        block.status.0[l], RUNNING,
        "{count} {l}: the lane has ended"
    );
    let mu = (member.damping.mu, block.mu.0[l]);
    assert!(
        (mu.0 - mu.1).abs() <= DIFFERENCE * mu.0,
        "{count} {l}: {mu:?}"
    );
    for (p, x) in member.trial.iter().enumerate() {
        let y = block.trial[p].0[l];
        assert!(
            (x - y).abs() <= DIFFERENCE * (1.0 + x.abs()),
            "{count} {l} {p}: {x} {y}"
        );
        seen.on_faces += usize::from(*x == bounds.lower[p] || *x == bounds.upper[p]);
    }
    seen.steps += 1;
    seen.rejections += usize::from(member.rejections > 0);
    seen.shortened += usize::from(block.share.0[l] < 1.0);
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
fn small(parameters: usize) -> SmallProblem {
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

fn batch<'a>(starts: &'a [f64], bounds: Option<(&'a [f64], &'a [f64])>) -> SmallBatch<'a> {
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
fn block(small: &SmallProblem, batch: &SmallBatch<'_>) -> Block<f64> {
    let mut block = Block::new(small, batch, true);
    let rows = |values: &[f64]| -> Vec<Lanes<f64>> {
        let row = |p: usize| Lanes(std::array::from_fn(|l| values[l * small.parameters + p]));
        (0..small.parameters).map(row).collect()
    };
    block.trial = rows(batch.starts);
    block.accepted = block.trial.clone();
    if let Some((lower, upper)) = batch.bounds {
        (block.lower, block.upper) = (rows(lower), rows(upper));
    }
    let all = Lanes::splat;
    block
        .unit
        .iter_mut()
        .chain(&mut block.per_unit)
        .for_each(|unit| *unit = all(1.0));
    (block.mu, block.nu) = (all(SETTINGS.initial_damping), all(2.0));
    (block.floor, block.promise, block.status) =
        (all(SETTINGS.diagonal_floor), all(f64::NAN), all(RUNNING));
    block
}

/// Writes the sums at a lane's trial point into the block.
fn put(block: &mut Block<f64>, l: usize, sums: &Sums) {
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
fn lanes_take_the_steps_of_a_member() {
    let mut seen = Seen::default();
    for count in 1..=7 {
        for boxed in [false, true] {
            compare(count, boxed, &mut seen);
        }
    }
    println!("{seen:?}");
    assert!(
        seen.steps > 3000 && seen.rejections > 350 && seen.shortened > 700 && seen.on_faces > 2500,
        "{seen:?}"
    );
}
