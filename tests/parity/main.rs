//! Every kernel on the GPU against its twin on the CPU, on random recordings of awkward sizes.
//!
//! The CPU computes rows and sums in f64 here, the GPU in f32, so that only rounding in f32 differs. The tolerances are
//! a few units of it (6e-8), relative to the largest value of a row, times the length of the chain of operations.
#![cfg(feature = "gpu")]

mod build;
mod calls;
mod cases;
mod compare;
mod orphans;
mod refill;
mod rows;
mod small;
mod steps;
mod uploaded;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cases::{Case, Model};
use compare::{compare, compare_sums};
use popfit::Estimator;
use popfit::low_level::cpu::CpuDevice;
use popfit::low_level::gpu::GpuDevice;
use popfit::low_level::recording::{BufferId, Scope};
use popfit::low_level::solver::{Backend, LevenbergMarquardt, Outcome, optimise};

/// Numbers of members: none, one, and about a workgroup.
const SIZES: [usize; 6] = [0, 1, 63, 64, 65, 130];

/// Opens the GPU, with its buffers poisoned; `None` if there is none and none is required.
fn gpu() -> Option<GpuDevice> {
    let poisoned = GpuDevice::best().and_then(GpuDevice::with_poison);
    popfit_testing::required::found(popfit_testing::required::Need::Gpu, poisoned)
}

fn inspect(device: &dyn Backend, case: &Case, buffer: BufferId) -> Vec<f64> {
    let recording = Arc::new(case.recording.clone());
    let mut population = device
        .population(
            recording,
            &LevenbergMarquardt::default(),
            case.batch.members().max(1),
        )
        .unwrap();
    pollster::block_on(population.load(&case.batch)).unwrap();
    pollster::block_on(population.inspect(buffer)).unwrap()
}

/// Returns the outcomes after one round: the sums at the starts.
fn linearise(device: &dyn Backend, case: &Case) -> Vec<Outcome> {
    let recording = Arc::new(case.recording.clone());
    let mut population = device
        .population(
            recording,
            &LevenbergMarquardt::default(),
            case.batch.members().max(1),
        )
        .unwrap();
    pollster::block_on(population.load(&case.batch)).unwrap();
    pollster::block_on(population.advance(1)).unwrap();
    pollster::block_on(population.read(&(0..case.batch.members()).collect::<Vec<_>>())).unwrap()
}

/// Fits a case in a population of this capacity.
fn fit(device: &dyn Backend, case: &Case, capacity: usize) -> Vec<Outcome> {
    let recording = Arc::new(case.recording.clone());
    let mut population = device
        .population(recording, &LevenbergMarquardt::default(), capacity)
        .unwrap();
    pollster::block_on(optimise(
        &mut *population,
        &case.batch,
        &AtomicBool::new(false),
        &mut |_| (),
    ))
    .unwrap()
}

/// Opens the GPU with one kernel per stage, so that all buffers are written.
fn unfused_gpu() -> Option<GpuDevice> {
    gpu().map(|gpu| gpu.with_fusion(false, false))
}

/// Models whose sums are compared, with their kernel and tolerance: `prior`, `continuum` and `normal`. A sum over
/// pixels carries the rows' errors (2e-5 of a row) and those of the continuum's solve, whose condition is below 100.
const SUMS: [(&str, Model, f64); 23] = [
    (
        "prior",
        Model {
            hulls: true,
            priors: true,
            ..Model::PLAIN
        },
        5e-5,
    ),
    ("normal", Model::PLAIN, 5e-5),
    (
        "continuum",
        Model {
            terms: 5,
            ..Model::PLAIN
        },
        2e-4,
    ),
    (
        "continuum",
        Model {
            terms: 12,
            marked: true,
            ..Model::PLAIN
        },
        2e-4,
    ),
    (
        "normal",
        Model {
            velocity_fixed: true,
            terms: 3,
            ..Model::PLAIN
        },
        2e-4,
    ),
    (
        "normal",
        Model {
            rotation: true,
            spread: true,
            resolution: true,
            terms: 3,
            ..Model::PLAIN
        },
        2e-4,
    ),
    (
        "normal",
        Model {
            linear: true,
            marked: true,
            terms: 6,
            ..Model::PLAIN
        },
        2e-4,
    ),
    (
        "normal",
        Model {
            integrate: true,
            rotation: true,
            terms: 3,
            ..Model::PLAIN
        },
        2e-4,
    ),
    (
        "prior",
        Model {
            tied: true,
            hulls: true,
            ..Model::PLAIN
        },
        5e-5,
    ),
    (
        "normal",
        Model {
            custom: true,
            ..Model::PLAIN
        },
        5e-6,
    ),
    ("estimate", model_under(Estimator::LeastSquares), 5e-6),
    // y/m² is largest where the mean is nearly 0, which is a difference of larger numbers.
    ("estimate", model_under(Estimator::Poisson), 3e-5),
    ("estimate", model_under(Estimator::Huber(1.0)), 5e-6),
    ("estimate", model_under(Estimator::SoftL1(0.5)), 5e-6),
    ("estimate", model_under(Estimator::Cauchy(1.0)), 5e-6),
    ("estimate", model_under(Estimator::Arctan(2.0)), 5e-6),
    ("estimate", model_under(Estimator::Student(3.0)), 5e-6),
    (
        "normal",
        Model {
            loss: Some(Estimator::Cauchy(2.0)),
            ..Model::PLAIN
        },
        5e-5,
    ),
    (
        "continuum",
        Model {
            loss: Some(Estimator::Huber(1.345)),
            terms: 5,
            ..Model::PLAIN
        },
        2e-4,
    ),
    (
        "continuum",
        Model {
            loss: Some(Estimator::Cauchy(2.385)),
            terms: 12,
            marked: true,
            ..Model::PLAIN
        },
        2e-4,
    ),
    (
        "normal",
        Model {
            loss: Some(Estimator::Student(4.0)),
            terms: 3,
            rotation: true,
            ..Model::PLAIN
        },
        2e-4,
    ),
    (
        "normal",
        Model {
            loss: Some(Estimator::SoftL1(1.0)),
            terms: 6,
            linear: true,
            ..Model::PLAIN
        },
        2e-4,
    ),
    (
        "normal",
        Model {
            loss: Some(Estimator::Student(4.0)),
            terms: 1,
            hulls: true,
            ..Model::PLAIN
        },
        2e-4,
    ),
];

/// Returns a user's model under an estimator.
const fn model_under(estimator: Estimator) -> Model {
    Model {
        custom: true,
        estimator: Some(estimator),
        ..Model::PLAIN
    }
}

#[test]
fn sums_agree() {
    let Some(gpu) = unfused_gpu() else { return };
    compare_all_sums(&gpu, &SIZES);
}

/// The kernel that sums also resamples and solves for the continuum, which it does on no software adapter.
#[test]
fn fused_sums_agree() {
    let Some(gpu) = gpu() else { return };
    let gpu = gpu.with_fusion(false, true);
    compare_all_sums(&gpu, &[0, 1, 65]);
}

fn compare_all_sums(gpu: &GpuDevice, sizes: &[usize]) {
    for (kernel, model, tolerance) in SUMS {
        for &members in sizes {
            let case = Case::new(model, members, 7 + members as u64);
            let comparison = compare_sums(
                &format!("{kernel}, {members} members"),
                &linearise(&CpuDevice, &case),
                &linearise(gpu, &case),
                tolerance,
            );
            comparison.unwrap_or_else(|e| panic!("{e}"));
        }
    }
}

#[test]
fn masked_spectra_end_with_the_same_status() {
    let Some(gpu) = gpu() else { return };
    for model in [
        Model {
            masked: true,
            ..Model::PLAIN
        },
        Model {
            masked: true,
            terms: 4,
            ..Model::PLAIN
        },
    ] {
        let case = Case::new(model, 5, 11);
        let cpu = fit(&CpuDevice, &case, 5);
        let gpu = fit(&gpu, &case, 5);
        for (cpu, gpu) in cpu.iter().zip(&gpu) {
            assert!(
                cpu.status == gpu.status || (is_success(cpu) && is_success(gpu)),
                "{:?} {:?}",
                cpu.status,
                gpu.status
            );
        }
        // A continuum that no pixel sees leaves the solve. Without pixels there is nothing to fit, with a continuum or
        // without.
        assert_eq!(gpu[0].status, Some(popfit::Status::Gtol));
        assert!(gpu[4].status.is_some_and(popfit::Status::is_success));
    }
}

fn is_success(outcome: &Outcome) -> bool {
    outcome.status.is_some_and(popfit::Status::is_success)
}

/// Returns the outcome of lowest cost of each spectrum; starts that gave way do not count.
fn find_winners<'a>(case: &Case, outcomes: &'a [Outcome]) -> Vec<&'a Outcome> {
    let cost = |o: &Outcome| {
        if o.gave_way.is_none() {
            o.chi2 + o.penalty
        } else {
            f64::INFINITY
        }
    };
    let mut winners: Vec<Option<&Outcome>> = vec![None; case.batch.spectra];
    for (spectrum, outcome) in case.batch.group.iter().zip(outcomes) {
        let winner = &mut winners[*spectrum as usize];
        if winner.is_none_or(|best| cost(outcome) < cost(best)) {
            *winner = Some(outcome);
        }
    }
    winners.into_iter().flatten().collect()
}

/// `halve` and `compact`: the same members give way, and as many of them after their first round. Single ones may lie
/// at a threshold.
#[test]
fn halving_agrees() {
    let Some(gpu) = gpu() else { return };
    let narrow = Model {
        narrow: true,
        ..Model::PLAIN
    };
    for (case, model) in [
        (
            Case::new(Model { terms: 4, ..narrow }, 130, 31),
            Model { terms: 4, ..narrow },
        ),
        (Case::new(narrow, 65, 31), narrow),
        // More members than `compact` sorts at a time.
        (Case::new(narrow, 130, 31).with_tripled_starts(), narrow),
        (
            Case::new(
                Model {
                    masked: true,
                    ..Model::PLAIN
                },
                64,
                31,
            ),
            Model {
                masked: true,
                ..Model::PLAIN
            },
        ),
        (Case::new(Model::PLAIN, 1, 31), Model::PLAIN),
        (Case::new(Model::PLAIN, 0, 31), Model::PLAIN),
    ] {
        let members = case.batch.members();
        let cpu = fit(&CpuDevice, &case, members.max(1));
        let gpu = fit(&gpu, &case, members.max(1));
        let gave_way = cpu.iter().filter(|o| o.gave_way.is_some()).count();
        let differ = cpu
            .iter()
            .zip(&gpu)
            .filter(|(c, g)| c.gave_way != g.gave_way)
            .count();
        assert!(
            differ <= members / 40,
            "{differ} of {members} verdicts differ"
        );
        // Starts give way after the first round, or after those that follow the pause.
        let early_on_cpu = count_early_halvings(&cpu);
        let early_on_gpu = count_early_halvings(&gpu);
        assert!(
            early_on_cpu.abs_diff(early_on_gpu) <= members / 40
                && (members < 2 || model.masked || early_on_cpu > 0),
            "{early_on_cpu} and {early_on_gpu} of {members}"
        );
        assert!(
            members < 2 || model.masked || gave_way > members / 8,
            "{gave_way} of {members} gave way"
        );
        for outcomes in [&cpu, &gpu] {
            let stays = |group: &u32| {
                (0..members)
                    .any(|m| case.batch.group[m] == *group && outcomes[m].gave_way.is_none())
            };
            assert!(
                (0..case.batch.spectra as u32).all(|group| stays(&group)),
                "a whole group gave way"
            );
        }
    }
}

/// Returns the number of starts that gave way after their first round.
fn count_early_halvings(outcomes: &[Outcome]) -> usize {
    outcomes
        .iter()
        .filter(|outcome| outcome.gave_way.is_some() && outcome.rounds == 1)
        .count()
}

/// `step` and `compact`: small fits end at the same minimum, within 0.02 σ; where the secant term matters, after as
/// many rounds.
#[test]
fn fits_agree() {
    let Some(gpu) = gpu() else { return };
    for model in [
        Model {
            terms: 4,
            narrow: true,
            ..Model::PLAIN
        },
        Model {
            custom: true,
            tight: true,
            narrow: true,
            ..Model::PLAIN
        },
        Model {
            custom: true,
            bent: true,
            narrow: true,
            ..Model::PLAIN
        },
        Model {
            narrow: true,
            ..model_under(Estimator::Poisson)
        },
        Model {
            narrow: true,
            ..model_under(Estimator::Cauchy(1.0))
        },
        Model {
            loss: Some(Estimator::Huber(1.345)),
            terms: 4,
            narrow: true,
            ..Model::PLAIN
        },
        Model {
            loss: Some(Estimator::Student(4.0)),
            narrow: true,
            ..Model::PLAIN
        },
    ] {
        for members in SIZES {
            let case = Case::new(model, members, 23);
            let cpu = fit(&CpuDevice, &case, members.max(1));
            let gpu = fit(&gpu, &case, members + 3);
            assert_eq!(cpu.len(), gpu.len());
            let count_rounds =
                |outcomes: &[Outcome]| outcomes.iter().map(|o| f64::from(o.rounds)).sum::<f64>();
            let cpu_rounds = count_rounds(&cpu);
            let gpu_rounds = count_rounds(&gpu);
            println!("{members} members: {cpu_rounds} rounds on the CPU, {gpu_rounds} on the GPU");
            let difference = (cpu_rounds - gpu_rounds).abs();
            assert!(
                !model.bent || difference <= 3.0 + 0.02 * cpu_rounds,
                "{members} members: {cpu_rounds} and {gpu_rounds} rounds"
            );
            let mut different_fits = Vec::new();
            for (cpu, gpu) in find_winners(&case, &cpu)
                .into_iter()
                .zip(find_winners(&case, &gpu))
            {
                assert!(gpu.status.is_some(), "a member is still running");
                let is_close = (0..cpu.parameters.len()).all(|p| {
                    let sigma = 1.0 / cpu.normal_matrix[p * (p + 3) / 2].max(1e-30).sqrt();
                    (cpu.parameters[p] - gpu.parameters[p]).abs() <= 0.02 * sigma
                });
                if !is_close || is_success(cpu) != is_success(gpu) {
                    different_fits.push((cpu, gpu));
                }
            }
            assert!(
                different_fits.is_empty(),
                "{} of {members} fits: {:#?}",
                different_fits.len(),
                different_fits[0]
            );
        }
    }
}

/// Returns the bits of all numbers of an outcome.
fn outcome_bits(outcome: &Outcome) -> Vec<u64> {
    let head = [
        outcome.status.map_or(99, popfit::Status::code) as u64,
        u64::from(outcome.rounds),
    ];
    let scalars = [outcome.chi2, outcome.penalty, outcome.ln_det];
    let numbers = outcome
        .parameters
        .iter()
        .chain(&outcome.gradient)
        .chain(&outcome.normal_matrix)
        .chain(&scalars);
    head.into_iter()
        .chain(numbers.map(|x| x.to_bits()))
        .collect()
}

#[test]
fn a_fit_has_the_same_bits_alone_in_any_batch_and_order() {
    let Some(gpu) = gpu() else { return };
    let case = Case::new(
        Model {
            terms: 4,
            priors: true,
            ..Model::PLAIN
        },
        130,
        5,
    );
    let in_order = fit(&gpu, &case, 200);
    let reversed_order: Vec<usize> = (0..130).rev().collect();
    let reversed = fit(&gpu, &case.select(&reversed_order), 130);
    for (i, outcome) in reversed.iter().enumerate() {
        assert_eq!(outcome_bits(outcome), outcome_bits(&in_order[129 - i]));
    }
    // The two starts of a spectrum enter as one group.
    for slot in [0, 64, 128] {
        let alone = fit(&gpu, &case.select(&[slot, slot + 1]), 2);
        assert_eq!(outcome_bits(&alone[0]), outcome_bits(&in_order[slot]));
        assert_eq!(outcome_bits(&alone[1]), outcome_bits(&in_order[slot + 1]));
    }
}

#[test]
fn buffers_that_fused_kernels_skip_cannot_be_inspected() {
    let Some(gpu) = gpu() else { return };
    let case = Case::new(
        Model {
            terms: 4,
            ..Model::PLAIN
        },
        3,
        2,
    );
    let gpu = gpu.with_fusion(true, true);
    let recording = Arc::new(case.recording.clone());
    let settings = LevenbergMarquardt::default();
    let mut population = gpu.population(recording, &settings, 3).unwrap();
    pollster::block_on(population.load(&case.batch)).unwrap();
    let message = pollster::block_on(population.inspect(case.buffer("rows")))
        .unwrap_err()
        .to_string();
    assert!(message.contains("rows is never written"), "{message}");
    assert!(pollster::block_on(population.inspect(case.buffer("coefficients"))).is_ok());
    // With fused kernels a member needs less memory.
    let capacity = |gpu: &GpuDevice| gpu.capacity(&case.recording, Some(1 << 20)).unwrap();
    assert!(capacity(&gpu) > capacity(&unfused_gpu().unwrap()));
}

#[test]
fn comparisons_find_perturbed_and_poisoned_numbers() {
    let case = Case::new(
        Model {
            terms: 4,
            ..Model::PLAIN
        },
        3,
        2,
    );
    let id = case.buffer("template");
    let rows = inspect(&CpuDevice, &case, id);
    let scale = rows[..cases::COLUMNS]
        .iter()
        .fold(0.0, |m, x| f64::max(m, x.abs()));
    let mut wrong = rows.clone();
    wrong[40] += 5e-6 * scale;
    assert!(compare("same", &rows, &rows, (cases::COLUMNS, 0.0), 4e-6).is_ok());
    assert!(compare("perturbed", &rows, &wrong, (cases::COLUMNS, 0.0), 4e-6).is_err());
    wrong[40] = f64::NAN;
    assert!(compare("poisoned", &rows, &wrong, (cases::COLUMNS, 0.0), 4e-6).is_err());
    let sums = linearise(&CpuDevice, &case);
    for perturb in [
        (|o: &mut Outcome| o.normal_matrix[2] *= 1.001) as fn(&mut Outcome),
        |o| o.gradient[1] += 1e-3 * (o.chi2 * o.normal_matrix[2]).sqrt(),
        |o| o.chi2 *= 1.001,
        |o| o.ln_det += 0.01,
    ] {
        let mut wrong = sums.clone();
        perturb(&mut wrong[1]);
        assert!(compare_sums("same", &sums, &sums, 2e-4).is_ok());
        assert!(compare_sums("perturbed", &sums, &wrong, 2e-4).is_err());
    }
}

#[test]
fn capacity_follows_memory_and_too_little_is_an_error() {
    let Some(gpu) = gpu() else { return };
    let case = Case::new(
        Model {
            terms: 4,
            ..Model::PLAIN
        },
        1,
        1,
    );
    let capacity = |memory| gpu.capacity(&case.recording, memory);
    let small = capacity(Some(1 << 20)).unwrap();
    let large = capacity(Some(1 << 24)).unwrap();
    assert!(
        small >= 1 && large > 10 * small && large < 20 * small,
        "{small} {large}"
    );
    assert!(capacity(None).unwrap() <= 65_535);
    assert!(capacity(Some(1000)).is_err());
    let member_buffers = case
        .recording
        .buffers
        .iter()
        .filter(|buffer| buffer.scope == Scope::Member)
        .count();
    assert!(member_buffers > 3);
}
