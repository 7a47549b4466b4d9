//! Transfers of numbers from the device to the host.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use web_time::Instant;

use super::context::GpuContext;
use super::faults::{Call, Fault};
use super::layout::{
    GAVE_WAY_CELL, Layout, ROUNDS_CELL, STATUS_CELL, StateField, verdict_from_code,
};
use crate::buffers::LossSums;
use crate::error::Result;
use crate::math::triangle::packed_length;
use crate::solver::{Outcome, Status};

/// A buffer that is being mapped. The future is ready when the device reports the mapping, whoever polls the device.
#[derive(Clone, Default)]
struct Mapping {
    shared: Arc<Mutex<(Option<bool>, Option<Waker>)>>,
}

impl Mapping {
    /// Stores the outcome of the mapping, and wakes the task that waits for it.
    fn complete(&self, success: bool) {
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
    fn wait_until_ready(&self, limit: Duration) -> bool {
        let begin = Instant::now();
        loop {
            let has_ended = self
                .shared
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .0
                .is_some();
            if has_ended || cfg!(target_arch = "wasm32") || begin.elapsed() > limit {
                return has_ended || cfg!(target_arch = "wasm32");
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Submits the commands, then copies the first `elements` of `source` to the mappable buffer `target` and reads them.
pub(super) async fn copy_and_read<T: bytemuck::Pod>(
    context: &GpuContext,
    mut commands: wgpu::CommandEncoder,
    source: &wgpu::Buffer,
    target: &wgpu::Buffer,
    elements: usize,
) -> Result<Vec<T>> {
    context.record_buffer_copy(&mut commands, source, target, 0, 4 * elements as u64);
    let submission = context.submit(commands);
    read_mapped(context, target, elements, submission).await
}

/// Reads the first `elements` of a mappable buffer once a submission is done. It does not wait for later submissions.
pub(super) async fn read_mapped<T: bytemuck::Pod>(
    context: &GpuContext,
    buffer: &wgpu::Buffer,
    elements: usize,
    submission: wgpu::SubmissionIndex,
) -> Result<Vec<T>> {
    if elements == 0 {
        context.check_health()?;
        return Ok(Vec::new());
    }
    // 1. Ask for the mapping, and wait for it.
    let slice = buffer.slice(..4 * elements as u64);
    let mapping = Mapping::default();
    let callback = mapping.clone();
    let injected_fault = context.fault_at_call(Call::Readback);
    slice.map_async(wgpu::MapMode::Read, move |result| {
        callback.complete(result.is_ok())
    });
    context.wait_for(Some(submission), injected_fault)?;
    if !mapping.wait_until_ready(context.time_limit()) {
        context.mark_unresponsive();
        context.check_health()?;
    }
    let is_mapped = mapping.await;
    context.check_health()?;
    if !is_mapped || injected_fault == Some(Fault::Mapping) {
        return Err(context.failure("a buffer could not be mapped"));
    }
    // 2. Copy the values, and release the buffer.
    let view = slice
        .get_mapped_range()
        .map_err(|e| context.failure(e.to_string()))?;
    let mut values = bytemuck::pod_collect_to_vec(&view);
    drop(view);
    buffer.unmap();
    // 3. Spoil the values if a test asks for it.
    match injected_fault {
        Some(Fault::Zeros) => values.fill(T::zeroed()),
        // Integers are no normal numbers when read as floats, and stay as they are.
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
pub(super) fn lm_outcomes(
    layout: Layout,
    slots: &[usize],
    state: &[f32],
    control: &[i32],
) -> Vec<Outcome> {
    slots
        .iter()
        .map(|slot| lm_outcome(layout, *slot, state, control))
        .collect()
}

/// Returns the outcome of the member in a slot, from the state and control that were read from the device.
fn lm_outcome(layout: Layout, slot: usize, state: &[f32], control: &[i32]) -> Outcome {
    let number = |field, index| f64::from(state[layout.element_index(field, index, slot)]);
    let numbers = |field, length| (0..length).map(|i| number(field, i)).collect();
    let cell = |cell: usize| control[cell * layout.capacity + slot];
    let rounds = u32::try_from(cell(ROUNDS_CELL)).unwrap_or(0);
    Outcome {
        status: Status::from_code(cell(STATUS_CELL)),
        gave_way: verdict_from_code(cell(GAVE_WAY_CELL)),
        rounds,
        evaluations: rounds,
        parameters: numbers(StateField::Accepted, layout.parameters),
        chi2: number(StateField::Chi2, 0),
        penalty: number(StateField::Penalty, 0),
        ln_det: number(StateField::LnDet, 0),
        loss: LossSums {
            curvature: number(StateField::Loss, 0),
            matrix_curvature: number(StateField::Loss, 1),
            scatter: number(StateField::Loss, 2),
            downweighted: number(StateField::Loss, 3),
        },
        gradient: numbers(StateField::Gradient, layout.parameters),
        normal_matrix: numbers(StateField::Normal, packed_length(layout.parameters)),
    }
}
