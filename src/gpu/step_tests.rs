//! The kernel `step` and its Rust twin, driven with the same members in states that fits reach seldom: after rejections
//! and rescaled steps, while they finish or stride, at bounds, and with sums that are not finite.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::adapter::{self, Choice};
use super::context::{Context, Options};
use super::layout::{CONTROL, Field, Layout, RUNNING};
use super::population::GpuPopulation;
use crate::buffers::{Parameter, Sums};
use crate::math::Real;
use crate::math::triangle::{packed_index, packed_length};
use crate::recording::Recording;
use crate::solver::member::{Member, Phase, Promise};
use crate::solver::round::step::{Rules, step};
use crate::solver::thresholds::largest_cost;
use crate::solver::{Bounds, Damping, LevenbergMarquardt, Method};
use popfit_testing::random::Random;
use popfit_testing::required::{Need, skip};

const SETTINGS: LevenbergMarquardt = LevenbergMarquardt {
    max_rounds: 300,
    ftol: 1e-9,
    xtol: 1e-9,
    gtol: 1e-9,
    initial_damping: 1e-3,
    max_rejections: 16,
    diagonal_floor: 1e-4,
    largest_step: 3.0,
};
/// Parameters.
const COUNT: usize = 3;
const MEMBERS: usize = 16_384;
/// Largest difference of a number on the two devices, as a share of its size.
const DIFFERENCE: f64 = 2e-3;
/// Phases, each at the number that it has in WGSL.
const PHASES: [Phase; 4] = [Phase::Searching, Phase::Finishing, Phase::Released, Phase::Striding];

/// A member, and the bounds of its parameters.
struct Case {
    member: Member,
    lower: Vec<f64>,
    upper: Vec<f64>,
}

/// Returns one of some values.
fn one_of<T: Copy>(random: &mut Random, values: &[T]) -> T {
    values[random.below(values.len())]
}

/// Returns the f32 next to x, so that both devices see the same number.
fn single(x: f64) -> f64 {
    f64::from(x as f32)
}

/// Returns the product of a packed matrix and a vector.
fn times(matrix: &[f64], x: &[f64]) -> Vec<f64> {
    let row = |p: usize| (0..x.len()).map(|q| matrix[packed_index(p, q)] * x[q]).sum();
    (0..x.len()).map(row).collect()
}

/// Draws the sums at the accepted point: a cost, a gradient that is a third to 10⁻⁵ of its square root,
/// and a normal matrix.
fn sums(random: &mut Random) -> Sums {
    // the floor of the damping's diagonal holds parameters back whose columns are small
    let scale: Vec<f64> = (0..COUNT).map(|_| one_of(random, &[1.0, 1.0, 1.0, 1e-3])).collect();
    let column = |scale: &f64| -> Vec<f64> { (0..5).map(|_| scale * random.around(1.0)).collect() };
    let columns: Vec<Vec<f64>> = scale.iter().map(column).collect();
    let product = |p: usize, q: usize| columns[p].iter().zip(&columns[q]).map(|(a, b)| a * b).sum::<f64>();
    let mut normal_matrix = vec![0.0; packed_length(COUNT)];
    for p in 0..COUNT {
        (0..=p).for_each(|q| normal_matrix[packed_index(p, q)] = single(product(p, q)));
    }
    let chi2: f64 = one_of(random, &[0.5, 60.0, 3000.0, 2e5]);
    let size = one_of(random, &[0.3, 0.1, 0.01, 1e-3, 1e-4, 1e-5]) * chi2.sqrt();
    let slope = |scale: &f64| single(scale * one_of(random, &[-size, size]) * (0.5 + random.uniform()));
    let gradient = scale.iter().map(slope).collect();
    Sums { chi2, penalty: one_of(random, &[0.0, 0.0, 0.0, 0.25]), ln_det: 0.0, gradient, normal_matrix }
}

/// Draws the sums at the other end of a step, whose gradient changes by more or less than the normal matrix says.
fn sums_at_end(random: &mut Random, from: &Sums, delta: &[f64]) -> Sums {
    let rise = one_of(random, &[-0.5, -0.01, -1e-4, -5e-6, 3e-7, 5e-6, 0.05, 0.3]);
    let bend = one_of(random, &[0.2, 1.0, 1.6, 2.6]);
    let told = times(&from.normal_matrix, delta);
    let gradient = from.gradient.iter().zip(&told).map(|(g, told)| single(g - bend * told)).collect();
    let normal_matrix = from.normal_matrix.iter().map(|a| single(a * (1.0 + random.around(0.01)))).collect();
    let mut sums = Sums { chi2: single(from.chi2 * (1.0 + rise)), gradient, normal_matrix, ..*from };
    if random.below(16) == 0 {
        *one_of_mut(random, &mut sums) = f64::NAN;
    }
    sums
}

/// Returns the cost or a number of the gradient or of the normal matrix.
fn one_of_mut<'a>(random: &mut Random, sums: &'a mut Sums) -> &'a mut f64 {
    match random.below(3) {
        0 => &mut sums.chi2,
        1 => &mut sums.gradient[random.below(COUNT)],
        _ => &mut sums.normal_matrix[random.below(packed_length(COUNT))],
    }
}

/// Makes the last step a Gauss–Newton step, and the next one q times as long.
fn creep(member: &mut Member, delta: &[f64], random: &mut Random) {
    let q = one_of(random, &[0.3, 0.6, 0.97, 1.1]);
    let told = times(&member.sums.normal_matrix, delta);
    member.promise = Promise::Whole(single(told.iter().zip(delta).map(|(a, b)| a * b).sum()));
    member.trial_sums.gradient = told.iter().map(|g| single(q * g)).collect();
}

/// Draws a member with an evaluated trial point.
fn case(slot: usize, random: &mut Random) -> Case {
    let x: Vec<f64> = (0..COUNT).map(|_| random.around(1.0)).collect();
    let mut member = Member::new(slot, slot, &x, 0.0);
    member.damping =
        Damping { mu: single(one_of(random, &[1e-7, 1e-4, 0.03, 0.3, 30.0]) * (1.0 + random.uniform())), nu: 2.0 };
    member.rounds = one_of(random, &[0, 1, 2, 9, 250, SETTINGS.max_rounds - 1]);
    // shorter steps would be lost in f32's rounding of the parameters
    let size = one_of(random, &[0.5, 0.02, 1e-3, 2e-4]);
    let delta: Vec<f64> = (0..COUNT).map(|_| random.around(size)).collect();
    member.sums = sums(random);
    member.trial = x.iter().zip(&delta).map(|(x, d)| single(x + d)).collect();
    member.trial_sums = sums_at_end(random, &member.sums, &delta);
    if member.rounds > 0 {
        member.damping.nu = one_of(random, &[2.0, 4.0, 16.0]);
        member.rejections = one_of(random, &[0, 0, 0, 0, 1, 2, SETTINGS.max_rejections]);
        member.phase = one_of(random, &PHASES);
        member.finishing_steps = if member.phase == Phase::Searching { 0 } else { one_of(random, &[1, 2, 3, 19, 20]) };
        let shares = [0.3, 1e-3, 1e-5, 3e-7, 1e-9];
        let promised = single(member.sums.cost() * one_of(random, &shares) * (1.0 + random.uniform()));
        member.promise = if random.below(2) == 0 { Promise::Whole(promised) } else { Promise::Rescaled(promised) };
        if random.below(4) == 0 {
            creep(&mut member, &delta, random);
        }
    }
    let mut bounds = |sign: f64| -> Vec<f64> {
        let room = |x: f64, random: &mut Random| {
            x + sign * one_of(random, &[0.0, 1e-3, 0.3, 9.0, 9.0, 9.0]) * (1.0 + random.uniform())
        };
        let ends = member.parameters.iter().zip(&member.trial);
        ends.map(|(x, t)| single(room(if sign < 0.0 { x.min(*t) } else { x.max(*t) }, random))).collect()
    };
    let (lower, upper) = (bounds(-1.0), bounds(1.0));
    Case { member, lower, upper }
}

/// Returns the fields of the state buffer at one point, each with its numbers.
fn fields<'a>(sums: &'a Sums, names: [Field; 5]) -> [(Field, &'a [f64]); 5] {
    let [chi2, penalty, ln_det, gradient, normal] = names;
    let one = std::slice::from_ref;
    [
        (chi2, one(&sums.chi2)),
        (penalty, one(&sums.penalty)),
        (ln_det, one(&sums.ln_det)),
        (gradient, &sums.gradient),
        (normal, &sums.normal_matrix),
    ]
}

/// The buffers that the kernel reads and writes.
struct Device {
    layout: Layout,
    state: Vec<u32>,
    control: Vec<i32>,
}

impl Device {
    fn new(layout: Layout, cases: &[Case]) -> Device {
        let (state, control) = (vec![0; layout.state_length() * layout.capacity], vec![0; CONTROL.len() * MEMBERS]);
        let mut device = Device { layout, state, control };
        cases.iter().for_each(|case| device.put(&case.member));
        device
    }

    fn put(&mut self, member: &Member) {
        let promise = match member.promise {
            Promise::None => f64::NAN,
            Promise::Whole(reduction) => reduction,
            Promise::Rescaled(reduction) => -reduction,
        };
        let trial =
            [Field::TrialChi2, Field::TrialPenalty, Field::TrialLnDet, Field::TrialGradient, Field::TrialNormal];
        let accepted = [Field::Chi2, Field::Penalty, Field::LnDet, Field::Gradient, Field::Normal];
        let others: [(Field, &[f64]); 5] = [
            (Field::TrialParameters, &member.trial),
            (Field::Accepted, &member.parameters),
            (Field::Damping, &[member.damping.mu]),
            (Field::DampingFactor, &[member.damping.nu]),
            (Field::PredictedReduction, &[promise]),
        ];
        for (field, values) in
            others.into_iter().chain(fields(&member.trial_sums, trial)).chain(fields(&member.sums, accepted))
        {
            for (k, x) in values.iter().enumerate() {
                self.state[self.layout.at(field, k, member.slot)] = (*x as f32).to_bits();
            }
        }
        let phase = PHASES.iter().position(|phase| *phase == member.phase).unwrap() as i32;
        let cells = [RUNNING, member.rounds as i32, member.rejections as i32, phase, member.finishing_steps as i32];
        for (cell, value) in cells.into_iter().enumerate() {
            self.control[cell * MEMBERS + member.slot] = value;
        }
    }

    fn number(&self, field: Field, k: usize, slot: usize) -> f64 {
        f64::from(f32::from_bits(self.state[self.layout.at(field, k, slot)]))
    }

    /// Runs the kernel on all members.
    fn step(&mut self, context: &Arc<Context>, recording: &Recording, settings: &LevenbergMarquardt, cases: &[Case]) {
        let method = Method::LevenbergMarquardt(*settings);
        let population = GpuPopulation::new(context.clone(), Arc::new(recording.clone()), &method, MEMBERS).unwrap();
        let nothing = vec![0.0; COUNT];
        let rows = cases.iter().flat_map(|case| [&case.lower, &case.upper, &nothing, &nothing]);
        let limits: Vec<f32> = rows.flat_map(|row| row.iter().map(|x| *x as f32)).collect();
        let done = pollster::block_on(population.run_step(&self.state, &self.control, &limits));
        (self.state, self.control) = done.unwrap();
    }

    /// Describes where the device's member differs from this one after a step; `None` if it does not.
    fn difference(&self, member: &Member) -> Option<String> {
        let slot = member.slot;
        let cell = |cell: usize| self.control[cell * MEMBERS + slot];
        let near = |x: f64, y: f64, size: f64| (x - y).abs() <= DIFFERENCE * size || x.is_nan() && y.is_nan();
        let rows = |field: Field, values: &[f64], size: f64| {
            let other: Vec<f64> = (0..values.len()).map(|k| self.number(field, k, slot)).collect();
            let differs = values.iter().zip(&other).any(|(x, y)| !near(*x, *y, size));
            differs.then(|| format!("{field:?} {values:?} {other:?}"))
        };
        let status = member.status.map_or(RUNNING, |status| status.code());
        if cell(0) != status {
            return Some(format!("status {:?} {}", member.status, cell(0)));
        }
        // where a finite cost is next to nothing, its last digits are rounding
        let cost = member.sums.cost();
        let ended = rows(Field::Accepted, &member.parameters, 1.0)
            .or_else(|| rows(Field::Chi2, &[member.sums.chi2], 1e-3 * cost));
        if ended.is_some() || member.status.is_some() {
            return ended;
        }
        let phase = PHASES.iter().position(|phase| *phase == member.phase).unwrap() as i32;
        let counts = [member.rejections as i32, phase, member.finishing_steps as i32];
        if counts != [cell(2), cell(3), cell(4)] {
            return Some(format!("counts {counts:?} {:?}", [cell(2), cell(3), cell(4)]));
        }
        let (mu, nu) = (member.damping.mu, member.damping.nu);
        let promised = member.promise.reduction();
        let signed = if matches!(member.promise, Promise::Rescaled(_)) { -promised } else { promised };
        let step = member.trial.iter().zip(&member.parameters).map(|(t, x)| (t - x).abs()).fold(1e-4, f64::max);
        rows(Field::Damping, &[mu], mu)
            .or_else(|| rows(Field::DampingFactor, &[nu], nu))
            .or_else(|| rows(Field::TrialParameters, &member.trial, step))
            .or_else(|| rows(Field::PredictedReduction, &[signed], promised.max(1e-7 * cost)))
    }
}

/// How members went on: their phases before and after the step, and their status. With the number of each.
type Seen = BTreeMap<String, usize>;

/// Takes a step of as many random members on the GPU and on the host, and fails where two differ.
fn compare(context: &Arc<Context>, settings: &LevenbergMarquardt, seed: u64) -> Seen {
    let parameter = |p: usize| Parameter { name: p.to_string(), origin: 0.0, scale: 1.0 };
    let recording = Recording { parameters: (0..COUNT).map(parameter).collect(), ..Recording::default() };
    let mut random = Random(seed);
    let mut cases: Vec<Case> = (0..MEMBERS).map(|slot| case(slot, &mut random)).collect();
    let mut device = Device::new(Layout { parameters: COUNT, capacity: MEMBERS }, &cases);
    device.step(context, &recording, settings, &cases);
    let (mut seen, mut differences) = (Seen::new(), Vec::new());
    for Case { member, lower, upper } in &mut cases {
        let before = member.clone();
        let rules = Rules {
            bounds: Bounds { lower, upper },
            settings,
            cost_error: f32::COST_NOISE,
            largest_cost: largest_cost(recording.caps_cost),
            trusts_last_step: recording.trusts_steps(),
        };
        step(member, &rules);
        *seen.entry(format!("{:?} to {:?} {:?}", before.phase, member.phase, member.status)).or_default() += 1;
        if let Some(what) = device.difference(member) {
            differences.push(format!("{what}\n  before {before:?}\n  after {member:?}\n  bounds {lower:?} {upper:?}"));
        }
    }
    let first = differences[..differences.len().min(3)].join("\n");
    assert!(differences.is_empty(), "{} differ\n{first}", differences.len());
    seen
}

#[test]
fn members_in_any_state_take_the_same_step() {
    let adapter = match adapter::choose(Choice::Best) {
        Ok(adapter) => adapter,
        Err(error) => return skip(Need::Gpu, error),
    };
    let context = Arc::new(Context::open(adapter, Options::default()).unwrap());
    let mut seen = compare(&context, &SETTINGS, 11);
    // steps converge by their lengths
    let by_length = LevenbergMarquardt { ftol: 1e-13, xtol: 1e-3, ..SETTINGS };
    for (way, count) in compare(&context, &by_length, 12) {
        *seen.entry(way).or_default() += count;
    }
    println!("{seen:#?}");
    let rare = ["Finishing to Striding None", "Searching to Released None", "Released to Released Some(Xtol)"];
    assert!(rare.iter().all(|way| seen.get(*way).is_some_and(|count| *count >= 10)), "{seen:#?}");
}
