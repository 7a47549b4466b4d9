//! `step`: the same points after the first steps, most of which meet the box on their way.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use popfit::cpu::CpuDevice;
use popfit::solver::{Device, LevenbergMarquardt, Method, Outcome, optimise};

use super::cases::{Case, Model};
use super::{SIZES, gpu};

/// Of the longest component of the way; measured: 7e-5 after one step, 6e-4 after two.
const TOLERANCE: f64 = 5e-4;

/// How far each member has come when the population stops after some rounds, shape (members, parameters).
fn ways(device: &dyn Device, case: &Case, max_rounds: u32) -> Vec<Vec<f64>> {
    let method = Method::LevenbergMarquardt(LevenbergMarquardt { max_rounds, ..LevenbergMarquardt::default() });
    let recording = Arc::new(case.recording.clone());
    let mut population = device.population(recording, &method, case.batch.members().max(1)).unwrap();
    let outcomes = pollster::block_on(optimise(&mut *population, &case.batch, &AtomicBool::new(false), &mut |_| ()));
    let starts = case.batch.starts.chunks(case.recording.parameters.len());
    let way = |(o, start): (&Outcome, &[f64])| o.parameters.iter().zip(start).map(|(u, s)| u - s).collect();
    outcomes.unwrap().iter().zip(starts).map(way).collect()
}

/// Bounds so near to the two starts of each spectrum that first steps meet them.
fn boxed(model: Model, members: usize) -> Case {
    let mut case = Case::new(model, members, 53);
    let parameters = case.recording.parameters.len();
    let batch = &mut case.batch;
    for (i, (lower, upper)) in batch.lower.iter_mut().zip(&mut batch.upper).enumerate() {
        let first = 2 * (i / parameters) * parameters + i % parameters;
        let second = batch.starts.get(first + parameters).unwrap_or(&batch.starts[first]);
        *lower = f64::from((batch.starts[first].min(*second) - 0.02) as f32);
        *upper = f64::from((batch.starts[first].max(*second) + 0.02) as f32);
    }
    case
}

fn longest(way: &[f64]) -> f64 {
    way.iter().fold(0.0, |most, step| most.max(step.abs()))
}

fn meets_a_face(case: &Case, member: usize, way: &[f64]) -> bool {
    let of = |values: &[f64], row: usize, p: usize| values[row * way.len() + p];
    (0..way.len()).any(|p| {
        let place = of(&case.batch.starts, member, p) + way[p];
        let spectrum = case.batch.group[member] as usize;
        let faces = [of(&case.batch.lower, spectrum, p), of(&case.batch.upper, spectrum, p)];
        faces.iter().any(|face| (place - face).abs() < 1e-6)
    })
}

#[test]
fn first_steps_agree() {
    let Some(gpu) = gpu() else { return };
    let narrow = Model { narrow: true, ..Model::PLAIN };
    for model in [Model { custom: true, ..narrow }, Model { terms: 4, ..narrow }] {
        // a step each; what a second one starts from differs by the first one's rounding
        for (rounds, tolerance) in [(2, TOLERANCE), (3, 10.0 * TOLERANCE)] {
            let (mut most, mut steps, mut faces) = (0.0_f64, 0, 0);
            for members in SIZES {
                let case = boxed(model, members);
                for (m, (c, g)) in ways(&CpuDevice, &case, rounds).iter().zip(ways(&gpu, &case, rounds)).enumerate() {
                    let apart: Vec<f64> = c.iter().zip(&g).map(|(c, g)| c - g).collect();
                    let length = longest(c).max(longest(&g));
                    assert!(longest(&apart) <= tolerance * length, "{m} of {members} after {rounds}: {c:?} {g:?}");
                    most = most.max(longest(&apart) / length.max(1e-30));
                    steps += usize::from(length > 0.0);
                    faces += usize::from(meets_a_face(&case, m, c));
                }
            }
            println!("{rounds} rounds: {steps} ways, {faces} to a face, at most {most:e} of their lengths apart");
            assert!(steps > 150 && 2 * faces > steps);
        }
    }
}
