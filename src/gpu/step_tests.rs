//! Tests of the kernel `step` against its Rust twin, with the same members in states that fits rarely reach: after
//! rejections and rescaled steps, while they finish or stride, at bounds, and with sums that are not finite.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::adapter::{self, AdapterChoice};
use super::context::{GpuContext, Options};
use super::layout::{CONTROL_CELLS, Layout, RUNNING_STATUS, StateField};
use super::population::GpuPopulation;
use crate::buffers::{LossSums, Parameter, Sums};
use crate::kernels::product::Variant;
use crate::math::Real;
use crate::math::triangle::{packed_index, packed_length};
use crate::recording::Recording;
use crate::solver::member::{Member, Phase, PredictedReduction};
use crate::solver::round::step::{Rules, step_member};
use crate::solver::{Bounds, Damping, LevenbergMarquardt, Tolerances};
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
/// Number of parameters.
const PARAMETERS: usize = 3;
const MEMBERS: usize = 16_384;
/// Largest difference of a number on the two devices, relative to its size.
const MAX_RELATIVE_DIFFERENCE: f64 = 2e-3;
/// Phases, indexed by their numbers in WGSL.
const PHASES: [Phase; 4] = [
    Phase::Searching,
    Phase::Finishing,
    Phase::Released,
    Phase::Striding,
];

/// Cells of the control buffer that the kernel reads and that are compared.
const COMPARED_CELLS: [&str; 5] = ["STATUS", "ROUNDS", "REJECTIONS", "MODE", "FINISHING"];

/// Returns the index of a cell of the control buffer.
fn cell_index(name: &str) -> usize {
    CONTROL_CELLS.iter().position(|cell| *cell == name).unwrap()
}

/// A member, and the bounds of its parameters.
#[derive(Clone, Debug)]
struct BoundedMember {
    member: Member,
    lower: Vec<f64>,
    upper: Vec<f64>,
}

/// Draws one of these values.
fn draw<T: Copy>(random: &mut Random, values: &[T]) -> T {
    values[random.below(values.len())]
}

/// Rounds x to f32, so that both devices see the same number.
fn round_to_f32(x: f64) -> f64 {
    f64::from(x as f32)
}

/// Returns the product of a packed matrix and a vector.
fn multiply_packed(matrix: &[f64], x: &[f64]) -> Vec<f64> {
    let row = |p: usize| {
        (0..x.len())
            .map(|q| matrix[packed_index(p, q)] * x[q])
            .sum()
    };
    (0..x.len()).map(row).collect()
}

/// Draws the sums at the accepted point: a cost, a gradient of a third to 10⁻⁵ of the square root of the cost, or of 0,
/// and a normal matrix.
fn draw_sums(random: &mut Random) -> Sums {
    // The floor of the damping's diagonal restrains parameters whose columns are small.
    let scale: Vec<f64> = (0..PARAMETERS)
        .map(|_| draw(random, &[1.0, 1.0, 1.0, 1e-3]))
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
    let mut normal_matrix = vec![0.0; packed_length(PARAMETERS)];
    for p in 0..PARAMETERS {
        (0..=p).for_each(|q| normal_matrix[packed_index(p, q)] = round_to_f32(product(p, q)));
    }
    let chi2: f64 = draw(random, &[0.5, 60.0, 3000.0, 2e5]);
    let share = draw(random, &[0.3, 0.1, 0.01, 1e-3, 1e-4, 1e-5]);
    let size = if random.below(60) == 0 {
        0.0
    } else {
        share * chi2.sqrt()
    };
    let slope =
        |scale: &f64| round_to_f32(scale * draw(random, &[-size, size]) * (0.5 + random.uniform()));
    let gradient = scale.iter().map(slope).collect();
    Sums {
        chi2,
        penalty: draw(random, &[0.0, 0.0, 0.0, 0.25]),
        ln_det: 0.0,
        loss: LossSums::default(),
        gradient,
        normal_matrix,
    }
}

/// Draws the sums at the trial point, where the gradient has changed by more or less than the normal matrix predicts.
fn draw_sums_at_end(random: &mut Random, from: &Sums, delta: &[f64]) -> Sums {
    let rise = draw(random, &[-0.5, -0.01, -1e-4, -5e-6, 3e-7, 5e-6, 0.05, 0.3]);
    let bend = draw(random, &[0.2, 1.0, 1.6, 2.6]);
    let predicted_change = multiply_packed(&from.normal_matrix, delta);
    let gradient = from
        .gradient
        .iter()
        .zip(&predicted_change)
        .map(|(g, predicted_change)| round_to_f32(g - bend * predicted_change))
        .collect();
    let normal_matrix = from
        .normal_matrix
        .iter()
        .map(|a| round_to_f32(a * (1.0 + random.around(0.01))))
        .collect();
    let mut sums = Sums {
        chi2: round_to_f32(from.chi2 * (1.0 + rise)),
        gradient,
        normal_matrix,
        ..*from
    };
    if random.below(16) == 0 {
        *draw_number_of(random, &mut sums) = f64::NAN;
    }
    sums
}

/// Draws the cost, a number of the gradient, or one of the normal matrix.
fn draw_number_of<'a>(random: &mut Random, sums: &'a mut Sums) -> &'a mut f64 {
    match random.below(3) {
        0 => &mut sums.chi2,
        1 => &mut sums.gradient[random.below(PARAMETERS)],
        _ => &mut sums.normal_matrix[random.below(packed_length(PARAMETERS))],
    }
}

/// Makes the last step a Gauss–Newton step, and the next one q times as long.
fn make_creep(member: &mut Member, delta: &[f64], random: &mut Random) {
    let q = draw(random, &[0.3, 0.6, 0.97, 1.1]);
    let predicted_change = multiply_packed(&member.sums.normal_matrix, delta);
    member.predicted_reduction = PredictedReduction::Whole(round_to_f32(
        predicted_change.iter().zip(delta).map(|(a, b)| a * b).sum(),
    ));
    member.trial_sums.gradient = predicted_change
        .iter()
        .map(|g| round_to_f32(q * g))
        .collect();
}

/// Draws a member with an evaluated trial point.
fn draw_member(slot: usize, random: &mut Random) -> BoundedMember {
    let x: Vec<f64> = (0..PARAMETERS).map(|_| random.around(1.0)).collect();
    let mut member = Member::new(slot, slot, &x, 0.0);
    member.damping = Damping {
        mu: round_to_f32(draw(random, &[1e-7, 1e-4, 0.03, 0.3, 30.0]) * (1.0 + random.uniform())),
        nu: 2.0,
    };
    member.rounds = draw(random, &[0, 1, 2, 9, 250, SETTINGS.max_rounds - 1]);
    // Shorter steps would be lost in f32's rounding of the parameters.
    let size = draw(random, &[0.5, 0.02, 1e-3, 2e-4]);
    let delta: Vec<f64> = (0..PARAMETERS).map(|_| random.around(size)).collect();
    member.sums = draw_sums(random);
    member.trial = x
        .iter()
        .zip(&delta)
        .map(|(x, d)| round_to_f32(x + d))
        .collect();
    member.trial_sums = draw_sums_at_end(random, &member.sums, &delta);
    if member.rounds > 0 {
        member.damping.nu = draw(random, &[2.0, 4.0, 16.0]);
        member.rejections = draw(random, &[0, 0, 0, 0, 1, 2, SETTINGS.max_rejections]);
        member.phase = draw(random, &PHASES);
        member.finishing_steps = if member.phase == Phase::Searching {
            0
        } else {
            draw(random, &[1, 2, 3, 19, 20])
        };
        let shares = [0.3, 1e-3, 1e-5, 3e-7, 1e-9];
        let predicted_reduction =
            round_to_f32(member.sums.cost() * draw(random, &shares) * (1.0 + random.uniform()));
        member.predicted_reduction = if random.below(2) == 0 {
            PredictedReduction::Whole(predicted_reduction)
        } else {
            PredictedReduction::Rescaled(predicted_reduction)
        };
        if random.below(4) == 0 {
            make_creep(&mut member, &delta, random);
        }
    }
    // Bounds lie beyond both points, at any distance from them.
    let mut bounds = |sign: f64| -> Vec<f64> {
        let bound_beyond = |x: f64, random: &mut Random| {
            x + sign * draw(random, &[0.0, 1e-3, 0.3, 9.0, 9.0, 9.0]) * (1.0 + random.uniform())
        };
        let points = member.parameters.iter().zip(&member.trial);
        points
            .map(|(x, t)| {
                round_to_f32(bound_beyond(
                    if sign < 0.0 { x.min(*t) } else { x.max(*t) },
                    random,
                ))
            })
            .collect()
    };
    let lower = bounds(-1.0);
    let upper = bounds(1.0);
    BoundedMember {
        member,
        lower,
        upper,
    }
}

/// Returns the fields of the state buffer at one point, each with its numbers.
fn fields_of_sums(sums: &Sums, names: [StateField; 5]) -> [(StateField, &[f64]); 5] {
    let [chi2, penalty, ln_det, gradient, normal] = names;
    let single = std::slice::from_ref;
    [
        (chi2, single(&sums.chi2)),
        (penalty, single(&sums.penalty)),
        (ln_det, single(&sums.ln_det)),
        (gradient, &sums.gradient),
        (normal, &sums.normal_matrix),
    ]
}

/// The buffers that the kernel reads and writes.
struct KernelBuffers {
    layout: Layout,
    state: Vec<u32>,
    control: Vec<i32>,
}

impl KernelBuffers {
    fn new(layout: Layout, members: &[BoundedMember]) -> KernelBuffers {
        let mut buffers = KernelBuffers {
            layout,
            state: vec![0; layout.state_length() * layout.capacity],
            control: vec![0; CONTROL_CELLS.len() * MEMBERS],
        };
        members
            .iter()
            .for_each(|bounded| buffers.set_member(&bounded.member));
        buffers
    }

    fn set_member(&mut self, member: &Member) {
        let promise = match member.predicted_reduction {
            PredictedReduction::None => f64::NAN,
            PredictedReduction::Whole(reduction) => reduction,
            PredictedReduction::Rescaled(reduction) => -reduction,
        };
        let trial = [
            StateField::TrialChi2,
            StateField::TrialPenalty,
            StateField::TrialLnDet,
            StateField::TrialGradient,
            StateField::TrialNormal,
        ];
        let accepted = [
            StateField::Chi2,
            StateField::Penalty,
            StateField::LnDet,
            StateField::Gradient,
            StateField::Normal,
        ];
        let other_fields: [(StateField, &[f64]); 5] = [
            (StateField::TrialParameters, &member.trial),
            (StateField::Accepted, &member.parameters),
            (StateField::Damping, &[member.damping.mu]),
            (StateField::DampingFactor, &[member.damping.nu]),
            (StateField::PredictedReduction, &[promise]),
        ];
        for (field, values) in other_fields
            .into_iter()
            .chain(fields_of_sums(&member.trial_sums, trial))
            .chain(fields_of_sums(&member.sums, accepted))
        {
            for (k, x) in values.iter().enumerate() {
                self.state[self.layout.element_index(field, k, member.slot)] =
                    (*x as f32).to_bits();
            }
        }
        let phase = PHASES
            .iter()
            .position(|phase| *phase == member.phase)
            .unwrap() as i32;
        let counts =
            [member.rounds, member.rejections, member.finishing_steps].map(u32::cast_signed);
        let cells = [RUNNING_STATUS, counts[0], counts[1], phase, counts[2]];
        for (name, value) in COMPARED_CELLS.into_iter().zip(cells) {
            self.control[cell_index(name) * MEMBERS + member.slot] = value;
        }
    }

    fn number(&self, field: StateField, k: usize, slot: usize) -> f64 {
        f64::from(f32::from_bits(
            self.state[self.layout.element_index(field, k, slot)],
        ))
    }

    /// Runs the kernel on all members.
    fn run_kernel(
        &mut self,
        context: &Arc<GpuContext>,
        recording: &Recording,
        settings: &LevenbergMarquardt,
        members: &[BoundedMember],
    ) {
        let population = GpuPopulation::new(
            context.clone(),
            Arc::new(recording.clone()),
            settings,
            MEMBERS,
        )
        .unwrap();
        let no_prior = vec![0.0; PARAMETERS];
        let rows = members
            .iter()
            .flat_map(|bounded| [&bounded.lower, &bounded.upper, &no_prior, &no_prior]);
        let limits: Vec<f32> = rows.flat_map(|row| row.iter().map(|x| *x as f32)).collect();
        let result = pollster::block_on(population.run_step(&self.state, &self.control, &limits));
        (self.state, self.control) = result.unwrap();
    }

    /// Describes a difference of the device's member from this one after a step; `None` if there is none.
    fn find_difference(&self, member: &Member) -> Option<String> {
        let slot = member.slot;
        let is_near = |x: f64, y: f64, size: f64| {
            (x - y).abs() <= MAX_RELATIVE_DIFFERENCE * size || x.is_nan() && y.is_nan()
        };
        let compare_field = |field: StateField, values: &[f64], size: f64| {
            let on_device: Vec<f64> = (0..values.len())
                .map(|k| self.number(field, k, slot))
                .collect();
            let differs = values
                .iter()
                .zip(&on_device)
                .any(|(x, y)| !is_near(*x, *y, size));
            differs.then(|| format!("{field:?} {values:?} {on_device:?}"))
        };
        let cells = COMPARED_CELLS.map(|name| self.control[cell_index(name) * MEMBERS + slot]);
        let status = member.status.map_or(RUNNING_STATUS, |status| status.code());
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
        let difference = compare_field(StateField::Accepted, &member.parameters, 1.0)
            .or_else(|| compare_field(StateField::Chi2, &[*chi2], 1e-3 * cost))
            .or_else(|| compare_field(StateField::Gradient, gradient, slope))
            .or_else(|| compare_field(StateField::Normal, normal_matrix, 1.0));
        if difference.is_some() || member.status.is_some() {
            return difference;
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
        let predicted_reduction = member.predicted_reduction.value();
        let signed_reduction =
            if matches!(member.predicted_reduction, PredictedReduction::Rescaled(_)) {
                -predicted_reduction
            } else {
                predicted_reduction
            };
        let step = member
            .trial
            .iter()
            .zip(&member.parameters)
            .map(|(t, x)| (t - x).abs())
            .fold(1e-4, f64::max);
        compare_field(StateField::Damping, &[mu], mu)
            .or_else(|| compare_field(StateField::DampingFactor, &[nu], nu))
            .or_else(|| compare_field(StateField::TrialParameters, &member.trial, step))
            .or_else(|| {
                compare_field(
                    StateField::PredictedReduction,
                    &[signed_reduction],
                    predicted_reduction.max(1e-7 * cost),
                )
            })
    }
}

impl BoundedMember {
    /// Takes a step of the member, and returns its transition: its phases before and after, and its status.
    fn take_step(&mut self, recording: &Recording, settings: &LevenbergMarquardt) -> String {
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
    fn perturb(&self, random: &mut Random) -> BoundedMember {
        let mut perturbed = self.clone();
        let mut change = |x: &mut f64, roundings: f64| {
            *x *= 1.0 + roundings * 1.2e-7 * (2.0 * random.uniform() - 1.0)
        };
        for sums in [&mut perturbed.member.sums, &mut perturbed.member.trial_sums] {
            change(&mut sums.chi2, 0.5);
            sums.gradient
                .iter_mut()
                .chain(&mut sums.normal_matrix)
                .for_each(|x| change(x, 8.0));
        }
        change(&mut perturbed.member.damping.mu, 8.0);
        if let PredictedReduction::Whole(reduction) | PredictedReduction::Rescaled(reduction) =
            &mut perturbed.member.predicted_reduction
        {
            change(reduction, 8.0);
        }
        perturbed
    }
}

/// Number of members per transition.
type Transitions = BTreeMap<String, usize>;

/// Takes a step of random members on the GPU and on the host, and fails where two differ. Members whose transition
/// depends on rounding alone are not compared, and must be few.
fn compare_steps(
    context: &Arc<GpuContext>,
    recording: &Recording,
    settings: &LevenbergMarquardt,
    seed: u64,
) -> Transitions {
    let mut random = Random(seed);
    let mut members: Vec<BoundedMember> = (0..MEMBERS)
        .map(|slot| draw_member(slot, &mut random))
        .collect();
    let mut buffers = KernelBuffers::new(
        Layout {
            parameters: PARAMETERS,
            capacity: MEMBERS,
        },
        &members,
    );
    buffers.run_kernel(context, recording, settings, &members);
    let mut transitions = Transitions::new();
    let mut ties = 0;
    let mut differences = Vec::new();
    for bounded in &mut members {
        let before = bounded.clone();
        let transition = bounded.take_step(recording, settings);
        if let Some(difference) = buffers.find_difference(&bounded.member) {
            let is_tie = (0..16)
                .any(|_| before.perturb(&mut random).take_step(recording, settings) != transition);
            match is_tie {
                true => ties += 1,
                false => differences.push(format!(
                    "{difference}\n  before {before:?}\n  after {bounded:?}"
                )),
            }
        }
        *transitions.entry(transition).or_default() += 1;
    }
    println!("{ties} ties");
    let first_differences = differences[..differences.len().min(3)].join("\n");
    assert!(
        differences.is_empty() && ties <= MEMBERS / 1000,
        "{ties} ties, {} differ\n{first_differences}",
        differences.len()
    );
    transitions
}

#[test]
fn members_in_any_state_take_the_same_step_on_gpu_and_host() {
    let adapter = match adapter::choose_adapter(AdapterChoice::Best) {
        Ok((_, adapter)) => adapter,
        Err(error) => return skip(Need::Gpu, error),
    };
    // The adapter's own kernel, and that of cards, whose loops are unrolled.
    let open = || GpuContext::open(adapter.clone(), Options::default()).unwrap();
    let contexts = [Arc::new(open()), Arc::new(open())];
    let tiles = Variant::Tiles { x: 8, y: 8 };
    contexts[1].product.set(tiles).unwrap();
    let parameter = |p: usize| Parameter {
        name: p.to_string(),
        origin: 0.0,
        scale: 1.0,
    };
    let recording = Recording {
        parameters: (0..PARAMETERS).map(parameter).collect(),
        ..Recording::default()
    };
    // The second time costs are capped, and steps converge by their lengths.
    let by_length = LevenbergMarquardt {
        ftol: 1e-13,
        xtol: 1e-3,
        ..SETTINGS
    };
    let capped = Recording {
        caps_cost: true,
        ..recording.clone()
    };
    let mut transitions = Transitions::new();
    for context in &contexts {
        for counts in [
            compare_steps(context, &recording, &SETTINGS, 11),
            compare_steps(context, &capped, &by_length, 12),
        ] {
            for (transition, count) in counts {
                *transitions.entry(transition).or_default() += count;
            }
        }
    }
    println!("{transitions:#?}");
    let changes_of_phase = [
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
    for part in changes_of_phase.map(str::to_owned).into_iter().chain(ends) {
        let count: usize = transitions
            .iter()
            .filter(|(transition, _)| transition.contains(&part))
            .map(|(_, count)| count)
            .sum();
        assert!(count >= 10, "{part}: {count}");
    }
}
