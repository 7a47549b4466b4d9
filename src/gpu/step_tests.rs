//! The kernel `step` and its Rust twin, driven with the same members in states that fits reach seldom: after rejections
//! and rescaled steps, while they finish or stride, at bounds, and with sums that are not finite.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::adapter::{self, Choice};
use super::context::{Context, Options};
use super::layout::{CONTROL, Field, Layout, RUNNING};
use super::population::GpuPopulation;
use crate::buffers::{LossSums, Parameter, Sums};
use crate::math::Real;
use crate::math::triangle::{packed_index, packed_length};
use crate::recording::Recording;
use crate::solver::member::{Member, Phase, PredictedReduction};
use crate::solver::round::step::{Rules, step_member};
use crate::solver::{Bounds, Damping, LevenbergMarquardt, Method, Tolerances};
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
    ..LevenbergMarquardt::OF_SPECTRA
};
/// Parameters.
const COUNT: usize = 3;
const MEMBERS: usize = 16_384;
/// Largest difference of a number on the two devices, as a share of its size.
const DIFFERENCE: f64 = 2e-3;
/// Phases, each at the number that it has in WGSL.
const PHASES: [Phase; 4] = [
    Phase::Searching,
    Phase::Finishing,
    Phase::Released,
    Phase::Striding,
];

/// Cells of the control buffer that the kernel reads.
const CELLS: [&str; 5] = ["STATUS", "ROUNDS", "REJECTIONS", "MODE", "FINISHING"];

/// Returns the index of a cell of the control buffer.
fn cell(name: &str) -> usize {
    CONTROL.iter().position(|other| *other == name).unwrap()
}

/// A member, and the bounds of its parameters.
#[derive(Clone, Debug)]
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
    let row = |p: usize| {
        (0..x.len())
            .map(|q| matrix[packed_index(p, q)] * x[q])
            .sum()
    };
    (0..x.len()).map(row).collect()
}

/// Draws the sums at the accepted point: a cost, a gradient of a third to 10⁻⁵ of the square root of the cost, or of 0,
/// and a normal matrix.
fn sums(random: &mut Random) -> Sums {
    // the floor of the damping's diagonal holds parameters back whose columns are small
    let scale: Vec<f64> = (0..COUNT)
        .map(|_| one_of(random, &[1.0, 1.0, 1.0, 1e-3]))
        .collect();
    let column = |scale: &f64| -> Vec<f64> { (0..5).map(|_| scale * random.around(1.0)).collect() };
    let columns: Vec<Vec<f64>> = scale.iter().map(column).collect();
    let product = |p: usize, q: usize| {
        columns[p]
            .iter()
            .zip(&columns[q])
            .map(|(a, b)| a * b)
            .sum::<f64>()
    };
    let mut normal_matrix = vec![0.0; packed_length(COUNT)];
    for p in 0..COUNT {
        (0..=p).for_each(|q| normal_matrix[packed_index(p, q)] = single(product(p, q)));
    }
    let chi2: f64 = one_of(random, &[0.5, 60.0, 3000.0, 2e5]);
    let share = one_of(random, &[0.3, 0.1, 0.01, 1e-3, 1e-4, 1e-5]);
    let size = if random.below(60) == 0 {
        0.0
    } else {
        share * chi2.sqrt()
    };
    let slope =
        |scale: &f64| single(scale * one_of(random, &[-size, size]) * (0.5 + random.uniform()));
    let gradient = scale.iter().map(slope).collect();
    Sums {
        chi2,
        penalty: one_of(random, &[0.0, 0.0, 0.0, 0.25]),
        ln_det: 0.0,
        loss: LossSums::default(),
        gradient,
        normal_matrix,
    }
}

/// Draws the sums at the other end of a step, whose gradient changes by more or less than the normal matrix says.
fn sums_at_end(random: &mut Random, from: &Sums, delta: &[f64]) -> Sums {
    let rise = one_of(random, &[-0.5, -0.01, -1e-4, -5e-6, 3e-7, 5e-6, 0.05, 0.3]);
    let bend = one_of(random, &[0.2, 1.0, 1.6, 2.6]);
    let told = times(&from.normal_matrix, delta);
    let gradient = from
        .gradient
        .iter()
        .zip(&told)
        .map(|(g, told)| single(g - bend * told))
        .collect();
    let normal_matrix = from
        .normal_matrix
        .iter()
        .map(|a| single(a * (1.0 + random.around(0.01))))
        .collect();
    let mut sums = Sums {
        chi2: single(from.chi2 * (1.0 + rise)),
        gradient,
        normal_matrix,
        ..*from
    };
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
    member.predicted_reduction =
        PredictedReduction::Whole(single(told.iter().zip(delta).map(|(a, b)| a * b).sum()));
    member.trial_sums.gradient = told.iter().map(|g| single(q * g)).collect();
}

/// Draws a member with an evaluated trial point.
fn case(slot: usize, random: &mut Random) -> Case {
    let x: Vec<f64> = (0..COUNT).map(|_| random.around(1.0)).collect();
    let mut member = Member::new(slot, slot, &x, 0.0);
    member.damping = Damping {
        mu: single(one_of(random, &[1e-7, 1e-4, 0.03, 0.3, 30.0]) * (1.0 + random.uniform())),
        nu: 2.0,
    };
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
        member.finishing_steps = if member.phase == Phase::Searching {
            0
        } else {
            one_of(random, &[1, 2, 3, 19, 20])
        };
        let shares = [0.3, 1e-3, 1e-5, 3e-7, 1e-9];
        let promised =
            single(member.sums.cost() * one_of(random, &shares) * (1.0 + random.uniform()));
        member.predicted_reduction = if random.below(2) == 0 {
            PredictedReduction::Whole(promised)
        } else {
            PredictedReduction::Rescaled(promised)
        };
        if random.below(4) == 0 {
            creep(&mut member, &delta, random);
        }
    }
    let mut bounds = |sign: f64| -> Vec<f64> {
        let room = |x: f64, random: &mut Random| {
            x + sign * one_of(random, &[0.0, 1e-3, 0.3, 9.0, 9.0, 9.0]) * (1.0 + random.uniform())
        };
        let ends = member.parameters.iter().zip(&member.trial);
        ends.map(|(x, t)| single(room(if sign < 0.0 { x.min(*t) } else { x.max(*t) }, random)))
            .collect()
    };
    let (lower, upper) = (bounds(-1.0), bounds(1.0));
    Case {
        member,
        lower,
        upper,
    }
}

/// Returns the fields of the state buffer at one point, each with its numbers.
fn fields(sums: &Sums, names: [Field; 5]) -> [(Field, &[f64]); 5] {
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
        let (state, control) = (
            vec![0; layout.state_length() * layout.capacity],
            vec![0; CONTROL.len() * MEMBERS],
        );
        let mut device = Device {
            layout,
            state,
            control,
        };
        cases.iter().for_each(|case| device.put(&case.member));
        device
    }

    fn put(&mut self, member: &Member) {
        let promise = match member.predicted_reduction {
            PredictedReduction::None => f64::NAN,
            PredictedReduction::Whole(reduction) => reduction,
            PredictedReduction::Rescaled(reduction) => -reduction,
        };
        let trial = [
            Field::TrialChi2,
            Field::TrialPenalty,
            Field::TrialLnDet,
            Field::TrialGradient,
            Field::TrialNormal,
        ];
        let accepted = [
            Field::Chi2,
            Field::Penalty,
            Field::LnDet,
            Field::Gradient,
            Field::Normal,
        ];
        let others: [(Field, &[f64]); 5] = [
            (Field::TrialParameters, &member.trial),
            (Field::Accepted, &member.parameters),
            (Field::Damping, &[member.damping.mu]),
            (Field::DampingFactor, &[member.damping.nu]),
            (Field::PredictedReduction, &[promise]),
        ];
        for (field, values) in others
            .into_iter()
            .chain(fields(&member.trial_sums, trial))
            .chain(fields(&member.sums, accepted))
        {
            for (k, x) in values.iter().enumerate() {
                self.state[self.layout.at(field, k, member.slot)] = (*x as f32).to_bits();
            }
        }
        let phase = PHASES
            .iter()
            .position(|phase| *phase == member.phase)
            .unwrap() as i32;
        let counts =
            [member.rounds, member.rejections, member.finishing_steps].map(u32::cast_signed);
        let cells = [RUNNING, counts[0], counts[1], phase, counts[2]];
        for (name, value) in CELLS.into_iter().zip(cells) {
            self.control[cell(name) * MEMBERS + member.slot] = value;
        }
    }

    fn number(&self, field: Field, k: usize, slot: usize) -> f64 {
        f64::from(f32::from_bits(self.state[self.layout.at(field, k, slot)]))
    }

    /// Runs the kernel on all members.
    fn step(
        &mut self,
        context: &Arc<Context>,
        recording: &Recording,
        settings: &LevenbergMarquardt,
        cases: &[Case],
    ) {
        let method = Method::LevenbergMarquardt(*settings);
        let population = GpuPopulation::new(
            context.clone(),
            Arc::new(recording.clone()),
            &method,
            MEMBERS,
        )
        .unwrap();
        let nothing = vec![0.0; COUNT];
        let rows = cases
            .iter()
            .flat_map(|case| [&case.lower, &case.upper, &nothing, &nothing]);
        let limits: Vec<f32> = rows.flat_map(|row| row.iter().map(|x| *x as f32)).collect();
        let done = pollster::block_on(population.run_step(&self.state, &self.control, &limits));
        (self.state, self.control) = done.unwrap();
    }

    /// Describes where the device's member differs from this one after a step; `None` if it does not.
    fn difference(&self, member: &Member) -> Option<String> {
        let slot = member.slot;
        let near = |x: f64, y: f64, size: f64| {
            (x - y).abs() <= DIFFERENCE * size || x.is_nan() && y.is_nan()
        };
        let rows = |field: Field, values: &[f64], size: f64| {
            let other: Vec<f64> = (0..values.len())
                .map(|k| self.number(field, k, slot))
                .collect();
            let differs = values.iter().zip(&other).any(|(x, y)| !near(*x, *y, size));
            differs.then(|| format!("{field:?} {values:?} {other:?}"))
        };
        let cells = CELLS.map(|name| self.control[cell(name) * MEMBERS + slot]);
        let status = member.status.map_or(RUNNING, |status| status.code());
        if cells[0] != status {
            return Some(format!("status {:?} {}", member.status, cells[0]));
        }
        let Sums {
            chi2,
            gradient,
            normal_matrix,
            ..
        } = &member.sums;
        let cost = member.sums.cost();
        let slope = gradient
            .iter()
            .map(|g| g.abs())
            .fold(1e-4 * cost.sqrt(), f64::max);
        let ended = rows(Field::Accepted, &member.parameters, 1.0)
            .or_else(|| rows(Field::Chi2, &[*chi2], 1e-3 * cost))
            .or_else(|| rows(Field::Gradient, gradient, slope))
            .or_else(|| rows(Field::Normal, normal_matrix, 1.0));
        if ended.is_some() || member.status.is_some() {
            return ended;
        }
        let phase = PHASES
            .iter()
            .position(|phase| *phase == member.phase)
            .unwrap() as i32;
        let counts = [
            member.rejections.cast_signed(),
            phase,
            member.finishing_steps.cast_signed(),
        ];
        if counts != cells[2..] {
            return Some(format!("counts {counts:?} {cells:?}"));
        }
        let Damping { mu, nu } = member.damping;
        let promised = member.predicted_reduction.value();
        let signed = if matches!(member.predicted_reduction, PredictedReduction::Rescaled(_)) {
            -promised
        } else {
            promised
        };
        let step = member
            .trial
            .iter()
            .zip(&member.parameters)
            .map(|(t, x)| (t - x).abs())
            .fold(1e-4, f64::max);
        rows(Field::Damping, &[mu], mu)
            .or_else(|| rows(Field::DampingFactor, &[nu], nu))
            .or_else(|| rows(Field::TrialParameters, &member.trial, step))
            .or_else(|| {
                rows(
                    Field::PredictedReduction,
                    &[signed],
                    promised.max(1e-7 * cost),
                )
            })
    }
}

impl Case {
    /// Takes a step of the member, and returns how it went on: its phases before and after, and its status.
    fn step(&mut self, recording: &Recording, settings: &LevenbergMarquardt) -> String {
        let rules = Rules {
            bounds: Bounds {
                lower: &self.lower,
                upper: &self.upper,
            },
            settings,
            tolerances: Tolerances::of_members(settings, recording.caps_cost, f32::COST_NOISE),
            trusts_last_step: recording.trusts_steps(),
        };
        let before = self.member.phase;
        step_member(&mut self.member, &rules);
        format!(
            "{before:?} to {:?} {:?}",
            self.member.phase, self.member.status
        )
    }

    /// Returns the member with numbers that differ by a few roundings of f32.
    fn rounded_otherwise(&self, random: &mut Random) -> Case {
        let mut other = self.clone();
        let mut change = |x: &mut f64, roundings: f64| {
            *x *= 1.0 + roundings * 1.2e-7 * (2.0 * random.uniform() - 1.0)
        };
        for sums in [&mut other.member.sums, &mut other.member.trial_sums] {
            change(&mut sums.chi2, 0.5);
            sums.gradient
                .iter_mut()
                .chain(&mut sums.normal_matrix)
                .for_each(|x| change(x, 8.0));
        }
        change(&mut other.member.damping.mu, 8.0);
        if let PredictedReduction::Whole(reduction) | PredictedReduction::Rescaled(reduction) =
            &mut other.member.predicted_reduction
        {
            change(reduction, 8.0);
        }
        other
    }
}

/// Numbers of members that went on in each way.
type Seen = BTreeMap<String, usize>;

/// Takes a step of as many random members on the GPU and on the host, and fails where two differ. Those that rounding
/// alone makes go on in another way are not compared, and must be few.
fn compare(
    context: &Arc<Context>,
    recording: &Recording,
    settings: &LevenbergMarquardt,
    seed: u64,
) -> Seen {
    let mut random = Random(seed);
    let mut cases: Vec<Case> = (0..MEMBERS).map(|slot| case(slot, &mut random)).collect();
    let mut device = Device::new(
        Layout {
            parameters: COUNT,
            capacity: MEMBERS,
        },
        &cases,
    );
    device.step(context, recording, settings, &cases);
    let (mut seen, mut ties, mut differences) = (Seen::new(), 0, Vec::new());
    for case in &mut cases {
        let before = case.clone();
        let way = case.step(recording, settings);
        if let Some(what) = device.difference(&case.member) {
            let is_tie = (0..16).any(|_| {
                before
                    .rounded_otherwise(&mut random)
                    .step(recording, settings)
                    != way
            });
            match is_tie {
                true => ties += 1,
                false => differences.push(format!("{what}\n  before {before:?}\n  after {case:?}")),
            }
        }
        *seen.entry(way).or_default() += 1;
    }
    println!("{ties} ties");
    let first = differences[..differences.len().min(3)].join("\n");
    assert!(
        differences.is_empty() && ties <= MEMBERS / 1000,
        "{ties} ties, {} differ\n{first}",
        differences.len()
    );
    seen
}

#[test]
fn members_in_any_state_take_the_same_step() {
    let adapter = match adapter::choose(Choice::Best) {
        Ok((_, adapter)) => adapter,
        Err(error) => return skip(Need::Gpu, error),
    };
    let context = Arc::new(Context::open(adapter, Options::default()).unwrap());
    let parameter = |p: usize| Parameter {
        name: p.to_string(),
        origin: 0.0,
        scale: 1.0,
    };
    let recording = Recording {
        parameters: (0..COUNT).map(parameter).collect(),
        ..Recording::default()
    };
    let mut seen = compare(&context, &recording, &SETTINGS, 11);
    // costs are capped, and steps converge by their lengths
    let by_length = LevenbergMarquardt {
        ftol: 1e-13,
        xtol: 1e-3,
        ..SETTINGS
    };
    for (way, count) in compare(
        &context,
        &Recording {
            caps_cost: true,
            ..recording
        },
        &by_length,
        12,
    ) {
        *seen.entry(way).or_default() += count;
    }
    println!("{seen:#?}");
    let ways = [
        "Finishing to Striding None",
        "Searching to Released None",
        "Finishing to Released None",
    ];
    let ends = [
        "Ftol)",
        "Xtol)",
        "FtolXtol)",
        "Gtol)",
        "Stalled)",
        "NotFinite)",
        "MaxRounds)",
    ]
    .map(|end| format!("({end}"));
    for what in ways.map(str::to_owned).into_iter().chain(ends) {
        let count: usize = seen
            .iter()
            .filter(|(way, _)| way.contains(&what))
            .map(|(_, count)| count)
            .sum();
        assert!(count >= 10, "{what}: {count}");
    }
}
