//! `step`: the same points after the first steps, most of which meet the box on their way.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use popfit::low_level::cpu::CpuDevice;
use popfit::low_level::solver::{Device, LevenbergMarquardt, Method, optimise};

use super::cases::{Case, Model};
use super::compare::compare;
use super::{SIZES, gpu};

/// Returns the way of each member when the population stops after some rounds, shape (members, parameters).
fn ways(device: &dyn Device, case: &Case, max_rounds: u32) -> Vec<f64> {
    let method = Method::LevenbergMarquardt(LevenbergMarquardt::default().max_rounds(max_rounds));
    let recording = Arc::new(case.recording.clone());
    let mut population = device
        .population(recording, &method, case.batch.members().max(1))
        .unwrap();
    let outcomes = pollster::block_on(optimise(
        &mut *population,
        &case.batch,
        &AtomicBool::new(false),
        &mut |_| (),
    ));
    let ends = outcomes.unwrap().into_iter().flat_map(|o| o.parameters);
    ends.zip(&case.batch.starts)
        .map(|(end, start)| end - start)
        .collect()
}

/// Bounds so near to the two starts of each spectrum that first steps meet them.
fn boxed(model: Model, members: usize) -> Case {
    let mut case = Case::new(model, members, 53);
    let parameters = case.recording.parameters.len();
    let batch = &mut case.batch;
    for (i, (lower, upper)) in batch.lower.iter_mut().zip(&mut batch.upper).enumerate() {
        let first = 2 * (i / parameters) * parameters + i % parameters;
        let second = batch
            .starts
            .get(first + parameters)
            .unwrap_or(&batch.starts[first]);
        *lower = f64::from((batch.starts[first].min(*second) - 0.02) as f32);
        *upper = f64::from((batch.starts[first].max(*second) + 0.02) as f32);
    }
    case
}

/// Numbers of `ways` that end on a face of the box.
fn at_faces(case: &Case, ways: &[f64]) -> usize {
    let parameters = case.recording.parameters.len();
    let at_one = |i: usize| {
        let bound = case.batch.group[i / parameters] as usize * parameters + i % parameters;
        let end = case.batch.starts[i] + ways[i];
        [case.batch.lower[bound], case.batch.upper[bound]]
            .iter()
            .any(|face| (end - face).abs() < 1e-6)
    };
    (0..ways.len()).filter(|&i| at_one(i)).count()
}

#[test]
fn first_steps_agree() {
    let Some(gpu) = gpu() else { return };
    let narrow = Model {
        narrow: true,
        ..Model::PLAIN
    };
    for model in [
        Model {
            custom: true,
            ..narrow
        },
        Model { terms: 4, ..narrow },
    ] {
        // of the way's longest part; measured: 7e-5 and 6e-4, as the second step starts from where the first one's
        // rounding leads
        for (rounds, tolerance) in [(2, 5e-4), (3, 5e-3)] {
            let (mut faces, mut numbers) = (0, 0);
            for members in SIZES {
                let case = boxed(model, members);
                let (cpu, gpu) = (ways(&CpuDevice, &case, rounds), ways(&gpu, &case, rounds));
                let what = format!("{members} members, {rounds} rounds");
                compare(
                    &what,
                    &cpu,
                    &gpu,
                    (case.recording.parameters.len(), 0.0),
                    tolerance,
                )
                .unwrap_or_else(|e| panic!("{e}"));
                faces += at_faces(&case, &cpu);
                numbers += cpu.len();
            }
            println!("{rounds} rounds: {faces} of {numbers} at a face");
            assert!(8 * faces > numbers, "{faces} of {numbers} at a face");
        }
    }
}
