//! From the device to the host.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use web_time::Instant;

use super::context::Context;
use super::faults::{Call, Fault};
use super::layout::{EVALUATIONS, Field, GAVE_WAY, Layout, NO_VALUE, ROUNDS, STATUS, verdict};
use crate::buffers::LossSums;
use crate::error::Result;
use crate::math::triangle::packed_length;
use crate::solver::simplex::TRIALS_PER_SIMPLEX as LANES;
use crate::solver::{Outcome, Status};

/// A buffer that is being mapped: ready when the device says so, whoever polls it.
#[derive(Clone, Default)]
struct Mapping {
    shared: Arc<Mutex<(Option<bool>, Option<Waker>)>>,
}

impl Mapping {
    /// Stores the outcome of the mapping, and wakes the task that waits for it.
    fn finish(&self, success: bool) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.0 = Some(success);
        if let Some(waker) = shared.1.take() {
            waker.wake();
        }
    }
}

impl Future for Mapping {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<bool> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        match shared.0 {
            Some(success) => Poll::Ready(success),
            None => {
                shared.1 = Some(task.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Mapping {
    /// Waits until the mapping has ended or `limit` is over; returns whether it has ended, and `true` at once in a
    /// browser.
    fn is_ready(&self, limit: Duration) -> bool {
        let begin = Instant::now();
        loop {
            let ready = self
                .shared
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .0
                .is_some();
            if ready || cfg!(target_arch = "wasm32") || begin.elapsed() > limit {
                return ready || cfg!(target_arch = "wasm32");
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Submits the commands, then copies the first `elements` of `source` to the mappable buffer `target` and reads them.
pub(super) async fn fetch<T: bytemuck::Pod>(
    context: &Context,
    mut commands: wgpu::CommandEncoder,
    source: &wgpu::Buffer,
    target: &wgpu::Buffer,
    elements: usize,
) -> Result<Vec<T>> {
    context.copy(&mut commands, source, target, 0, 4 * elements as u64);
    let submission = context.submit(commands);
    read(context, target, elements, submission).await
}

/// Reads the first `elements` of a mappable buffer, once a submission is done. It does not wait for later ones.
pub(super) async fn read<T: bytemuck::Pod>(
    context: &Context,
    buffer: &wgpu::Buffer,
    elements: usize,
    submission: wgpu::SubmissionIndex,
) -> Result<Vec<T>> {
    if elements == 0 {
        context.check()?;
        return Ok(Vec::new());
    }
    let slice = buffer.slice(..4 * elements as u64);
    let mapping = Mapping::default();
    let callback = mapping.clone();
    let met = context.meet(Call::Readback);
    slice.map_async(wgpu::MapMode::Read, move |result| {
        callback.finish(result.is_ok())
    });
    context.wait(Some(submission), met)?;
    if !mapping.is_ready(context.limit()) {
        context.give_up();
        context.check()?;
    }
    let mapped = mapping.await;
    context.check()?;
    if !mapped || met == Some(Fault::Mapping) {
        return Err(context.failure("a buffer could not be mapped"));
    }
    let view = slice
        .get_mapped_range()
        .map_err(|e| context.failure(e.to_string()))?;
    let mut values = bytemuck::pod_collect_to_vec(&view);
    drop(view);
    buffer.unmap();
    match met {
        Some(Fault::Zeros) => values.fill(T::zeroed()),
        // integers are no normal numbers, and stay
        Some(Fault::Wrong) => {
            let numbers = bytemuck::cast_slice_mut::<T, f32>(&mut values).iter_mut();
            numbers.filter(|x| x.is_normal()).for_each(|x| *x *= 1.01);
        }
        Some(Fault::Garbage) => {
            bytemuck::cast_slice_mut::<T, u32>(&mut values).fill(f32::NAN.to_bits())
        }
        _ => {}
    }
    Ok(values)
}

/// Returns the outcomes of the members in some slots; `state` and `control` are as read from the device.
pub(super) fn outcomes(
    layout: Layout,
    slots: &[usize],
    state: &[f32],
    control: &[i32],
) -> Vec<Outcome> {
    slots
        .iter()
        .map(|slot| outcome(layout, *slot, state, control))
        .collect()
}

/// Returns the outcome of the member in a slot, from the state and control that were read from the device.
fn outcome(layout: Layout, slot: usize, state: &[f32], control: &[i32]) -> Outcome {
    let number = |field, index| f64::from(state[layout.at(field, index, slot)]);
    let list = |field, length| (0..length).map(|i| number(field, i)).collect();
    let rounds = u32::try_from(control[ROUNDS * layout.capacity + slot]).unwrap_or(0);
    Outcome {
        status: Status::from_code(control[STATUS * layout.capacity + slot]),
        gave_way: verdict(control[GAVE_WAY * layout.capacity + slot]),
        rounds,
        evaluations: rounds,
        parameters: list(Field::Accepted, layout.parameters),
        chi2: number(Field::Chi2, 0),
        penalty: number(Field::Penalty, 0),
        ln_det: number(Field::LnDet, 0),
        loss: LossSums {
            curvature: number(Field::Loss, 0),
            matrix_curvature: number(Field::Loss, 1),
            scatter: number(Field::Loss, 2),
            downweighted: number(Field::Loss, 3),
        },
        gradient: list(Field::Gradient, layout.parameters),
        normal_matrix: list(Field::Normal, packed_length(layout.parameters)),
    }
}

/// Returns the outcomes of some simplices: their best vertices, with the objective in place of χ².
pub(super) fn simplex_outcomes(
    layout: Layout,
    simplices: &[usize],
    fields: &[f32],
    control: &[i32],
) -> Vec<Outcome> {
    simplices
        .iter()
        .map(|simplex| simplex_outcome(layout, *simplex, fields, control))
        .collect()
}

/// Returns the status, best vertex and objective of one simplex, from what was read from the device.
fn simplex_outcome(layout: Layout, simplex: usize, fields: &[f32], control: &[i32]) -> Outcome {
    let (count, slots) = (layout.simplices(), layout.capacity);
    let number = |field: usize| f64::from(fields[field * count + simplex]);
    let value = |v: usize| number(layout.values() + v);
    // vertices beyond those of the free parameters are poisoned
    let known = (0..=layout.parameters).filter(|&v| value(v) < f64::from(NO_VALUE));
    let best = known.min_by(|&a, &b| value(a).total_cmp(&value(b)));
    let vertex = best.unwrap_or(0);
    let count_in =
        |cell: usize| u32::try_from(control[cell * slots + simplex * LANES]).unwrap_or(0);
    Outcome {
        status: Status::from_code(control[STATUS * slots + simplex * LANES]),
        gave_way: None,
        rounds: count_in(ROUNDS),
        evaluations: count_in(EVALUATIONS),
        parameters: (0..layout.parameters)
            .map(|p| number(vertex * layout.parameters + p))
            .collect(),
        chi2: best.map_or(f64::INFINITY, value),
        penalty: 0.0,
        ln_det: 0.0,
        loss: LossSums::default(),
        gradient: Vec::new(),
        normal_matrix: Vec::new(),
    }
}
