//! Device memory of a population: a plan with the size of every buffer, and the buffers created from it.

use std::sync::Arc;

use half::f16;
use rayon::prelude::*;

use super::context::GpuContext;
use super::layout::{CONTROL_CELLS, Layout, POISON};
use crate::error::Result;
use crate::kernels::shader::stride;
use crate::recording::{BufferId, Kind, Recording, Scope, Stage, Values};
use crate::threads;

/// Buffers are multiples of this many elements, because they are bound as vec4.
const BUFFER_ALIGNMENT: usize = 4;
/// Maximum number of elements of a buffer that one copy fills with NaN.
const POISON_CHUNK_ELEMENTS: usize = 1 << 22;

/// Number of bytes that a thread copies at once.
const COPY_CHUNK_BYTES: usize = 4096;
/// Minimum number of such chunks per task.
const CHUNKS_PER_TASK: usize = 64;

/// Number of rows beyond the last that a cooperative product may write.
const SPARE_PRODUCT_ROWS: usize = 16;

/// Returns how many 32-bit elements a buffer needs behind its last block, where f16 products read and write whole
/// matrices.
fn spare_elements(recording: &Recording, id: BufferId) -> usize {
    recording
        .stages
        .iter()
        .map(|stage| spare_elements_of_stage(recording, stage, id))
        .max()
        .unwrap_or(0)
}

/// Returns how many 32-bit elements one stage needs behind the last block of a buffer; 0 for all but f16 products.
fn spare_elements_of_stage(recording: &Recording, stage: &Stage, id: BufferId) -> usize {
    match stage {
        Stage::Product(product) if recording.block(product.weight).kind != Kind::Half => 0,
        Stage::Product(product) if id == product.input => SPARE_PRODUCT_ROWS * product.inner / 2,
        Stage::Product(product) if id == product.output => {
            let rows = product.added_to.unwrap_or(1);
            SPARE_PRODUCT_ROWS * rows * product.columns
        }
        _ => 0,
    }
}

/// Returns how many blocks a buffer of this scope has: one that all share, or one for each spectrum or member.
fn count_blocks(scope: Scope, layout: Layout) -> usize {
    match scope {
        Scope::Constant | Scope::Batch => 1,
        Scope::Spectrum => layout.spectra_capacity(),
        Scope::Member => layout.capacity,
    }
}

/// Returns the number of elements, rounded up to the alignment of buffers, at least one such multiple.
fn align(elements: usize) -> usize {
    elements
        .next_multiple_of(BUFFER_ALIGNMENT)
        .max(BUFFER_ALIGNMENT)
}

/// Sizes of all buffers of a population, in elements of 32 bits. They are linear in the capacity.
#[derive(Clone, Debug)]
pub(super) struct BufferPlan {
    pub members: usize,
    pub state: usize,
    pub control: usize,
    pub limits: usize,
    pub arguments: usize,
    pub transfer: usize,
    pub blocks: Vec<usize>,
    /// The facets of the hulls, with one buffer per stage `prior`.
    pub tables: usize,
    pub readback: usize,
    /// Blocks that are being uploaded, which wgpu holds once more in its own staging buffers.
    pub upload: usize,
}

impl BufferPlan {
    /// Computes the size of each GPU buffer of a population, with three workgroup counts per dispatch. Buffers
    /// that are `unwritten` get the smallest size.
    pub fn new(
        recording: &Recording,
        layout: Layout,
        dispatches: usize,
        unwritten: &[BufferId],
    ) -> BufferPlan {
        // 1. The buffers that the recording declares, and those of them that each batch uploads.
        let mut blocks = Vec::with_capacity(recording.buffers.len());
        let mut upload = 0;
        for (i, buffer) in recording.buffers.iter().enumerate() {
            let id = BufferId(i);
            let n_blocks = if unwritten.contains(&id) {
                0
            } else {
                count_blocks(buffer.scope, layout)
            };
            let elements =
                (n_blocks * stride(buffer) + spare_elements(recording, id)).max(BUFFER_ALIGNMENT);
            blocks.push(elements);
            if matches!(buffer.scope, Scope::Batch | Scope::Spectrum) {
                upload += elements;
            }
        }
        // 2. The tables of the priors' hulls.
        let mut tables = 0;
        for stage in &recording.stages {
            if let Stage::Prior(prior) = stage {
                tables += align(prior.hulls.iter().map(|hull| hull.facets.len()).sum());
            }
        }
        // 3. The buffers of the solver.
        let members = layout.members_length();
        BufferPlan {
            members: align(members),
            state: align(layout.state_length() * layout.capacity),
            control: align(CONTROL_CELLS.len() * layout.capacity),
            limits: align(4 * layout.parameters * layout.spectra_capacity()),
            arguments: align(3 * dispatches),
            transfer: align(layout.transfer_length()),
            blocks,
            tables,
            readback: align(members.max(layout.transfer_length())),
            upload,
        }
    }

    /// Returns the sizes of a population's buffers on the device (elements of 4 bytes), without tables and readback.
    fn device_sizes(&self) -> impl Iterator<Item = usize> + '_ {
        let solver_buffers = [
            self.members,
            self.state,
            self.control,
            self.limits,
            self.arguments,
            self.transfer,
        ];
        solver_buffers
            .into_iter()
            .chain(self.blocks.iter().copied())
    }

    /// Returns the memory that the population takes in all, staging buffers of the upload included (bytes).
    pub fn total_bytes(&self) -> u64 {
        4 * (self.device_sizes().sum::<usize>() + self.readback + self.tables + self.upload) as u64
    }

    /// Returns the size of the largest buffer that kernels use (bytes).
    pub fn largest_bytes(&self) -> u64 {
        4 * self.device_sizes().max().unwrap_or(0) as u64
    }

    /// Returns whether each buffer is within the device's limits, and all together take at most `memory` bytes.
    pub fn is_within_limits(&self, limits: &wgpu::Limits, memory: u64) -> bool {
        self.total_bytes() <= memory
            && self.largest_bytes().max(4 * self.readback as u64) <= limits.max_buffer_size
            && self.largest_bytes() <= limits.max_storage_buffer_binding_size
    }
}

/// The buffers of a population.
#[derive(Debug)]
pub(super) struct Buffers {
    pub members: wgpu::Buffer,
    pub state: wgpu::Buffer,
    pub control: wgpu::Buffer,
    pub limits: wgpu::Buffer,
    pub arguments: wgpu::Buffer,
    pub transfer: wgpu::Buffer,
    pub blocks: Vec<wgpu::Buffer>,
    pub readback: wgpu::Buffer,
}

impl Buffers {
    /// Creates the buffers, and fills those whose contents are constant; in tests it poisons all of them first.
    pub fn new(context: &GpuContext, recording: &Recording, plan: &BufferPlan) -> Result<Buffers> {
        if !plan.is_within_limits(&context.limits, u64::MAX) {
            return Err(context.too_large(format!(
                "a buffer of {} bytes is above the limits",
                plan.largest_bytes()
            )));
        }
        context.catch_errors(|| {
            let storage = wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_DST
                | wgpu::BufferUsages::COPY_SRC;
            let make = |name: &str, elements, usage| create_buffer(context, name, elements, usage);
            let names = recording.buffers.iter().map(|buffer| buffer.name.as_str());
            let buffers = Buffers {
                members: make("members", plan.members, storage),
                state: make("state", plan.state, storage),
                control: make("control", plan.control, storage),
                limits: make("limits", plan.limits, storage),
                arguments: make(
                    "arguments",
                    plan.arguments,
                    storage | wgpu::BufferUsages::INDIRECT,
                ),
                transfer: make("transfer", plan.transfer, storage),
                blocks: names
                    .zip(&plan.blocks)
                    .map(|(name, elements)| make(name, *elements, storage))
                    .collect(),
                readback: create_readback(context, plan.readback),
            };
            if context.options.poison || cfg!(test) {
                buffers.fill_with_nan(context, plan.largest_bytes() as usize / 4);
            }
            for (i, block) in recording.buffers.iter().enumerate() {
                if let Some(values) = &block.values {
                    upload_first_block(context, recording, BufferId(i), &buffers.blocks[i], values);
                }
            }
            Ok(buffers)
        })
    }

    /// Fills all buffers, of `largest` elements at most, with NaN, so that a missing write of a kernel is detected.
    fn fill_with_nan(&self, context: &GpuContext, largest: usize) {
        let elements = POISON_CHUNK_ELEMENTS.min(largest);
        let chunk = create_buffer(
            context,
            "poison",
            elements,
            wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
        );
        context.write_buffer(&chunk, 0, bytemuck::cast_slice(&vec![POISON; elements]));
        let mut encoder = context
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let solver_buffers = [
            &self.members,
            &self.state,
            &self.control,
            &self.limits,
            &self.arguments,
            &self.transfer,
        ];
        for buffer in solver_buffers.into_iter().chain(&self.blocks) {
            for start in (0..buffer.size()).step_by(4 * elements) {
                let length = chunk.size().min(buffer.size() - start);
                context.record_buffer_copy(&mut encoder, &chunk, buffer, start, length);
            }
        }
        context.submit(encoder);
    }
}

/// Creates a named GPU buffer of `elements` elements of 32 bits.
pub(super) fn create_buffer(
    context: &GpuContext,
    name: &str,
    elements: usize,
    usage: wgpu::BufferUsages,
) -> wgpu::Buffer {
    context.create_buffer(&wgpu::BufferDescriptor {
        label: Some(name),
        size: 4 * elements as u64,
        usage,
        mapped_at_creation: false,
    })
}

/// Creates a GPU buffer of `elements` elements of 32 bits that the host can map to read.
pub(super) fn create_readback(context: &GpuContext, elements: usize) -> wgpu::Buffer {
    create_buffer(
        context,
        "readback",
        elements,
        wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
    )
}

/// Writes `values` to the first block of a recording's GPU buffer, converted to its kind of number.
pub(super) fn upload_first_block(
    context: &GpuContext,
    recording: &Recording,
    id: BufferId,
    buffer: &wgpu::Buffer,
    values: &Values,
) {
    upload_blocks(context, recording, id, buffer, values, &[0]);
}

/// Writes consecutive blocks of `values`, converted to the buffer's kind of number, to these block indices on the GPU.
pub(super) fn upload_blocks(
    context: &GpuContext,
    recording: &Recording,
    id: BufferId,
    buffer: &wgpu::Buffer,
    values: &Values,
    places: &[usize],
) {
    let length = recording.block(id).length;
    let stride = stride(recording.block(id));
    if recording.block(id).kind == Kind::Half {
        let halves = round_to_halves(values);
        return write_blocks(context, buffer, &halves, length, stride, places);
    }
    match values {
        Values::F32(floats) => write_blocks(context, buffer, floats, length, stride, places),
        Values::I32(indices) => write_blocks(context, buffer, indices, length, stride, places),
        Values::Blocks(arrays) => write_arrays(context, buffer, arrays, stride, places),
        Values::F64(doubles) => {
            let floats: Vec<f32> = doubles.iter().map(|x| *x as f32).collect();
            write_blocks(context, buffer, &floats, length, stride, places);
        }
    }
}

/// Writes arrays of equal length, at most `stride` elements, to these block indices of a GPU buffer. They are copied
/// straight into the memory that the device copies from, because they are most of a batch's bytes.
fn write_arrays(
    context: &GpuContext,
    buffer: &wgpu::Buffer,
    arrays: &[Arc<Vec<f32>>],
    stride: usize,
    places: &[usize],
) {
    debug_assert!(
        arrays.iter().all(|array| array.len() == arrays[0].len()),
        "blocks of unequal length"
    );
    let fill_blocks = arrays.first().is_some_and(|array| array.len() == stride);
    let mut remaining = arrays;
    for run in split_into_runs(places, fill_blocks) {
        let (run_arrays, later) = remaining.split_at(run.len().min(remaining.len()));
        let bytes: usize = run_arrays
            .iter()
            .map(|array| size_of_val(array.as_slice()))
            .sum();
        let offset = 4 * (run[0] * stride) as u64;
        context.counts.uploads.add(bytes as u64);
        // Without a view wgpu has reported an error, which the next `GpuContext::check_health` returns.
        let view = wgpu::BufferSize::new(bytes as u64)
            .and_then(|size| context.queue.write_buffer_with(buffer, offset, size));
        if let Some(mut view) = view {
            copy_arrays(run_arrays, view.slice(..));
        }
        remaining = later;
    }
}

/// Copies arrays of equal length one after another into `target`, which they fill. All threads copy: a single one would
/// take longer than a card takes to fit the spectra.
fn copy_arrays(arrays: &[Arc<Vec<f32>>], target: wgpu::WriteOnly<'_, [u8]>) {
    let (chunks, mut last_chunk) = target.into_chunks::<COPY_CHUNK_BYTES>();
    let chunks: Vec<wgpu::WriteOnly<'_, [u8; COPY_CHUNK_BYTES]>> = chunks.into_iter().collect();
    let last_offset = COPY_CHUNK_BYTES * chunks.len();
    threads::in_pool(|| {
        chunks
            .into_par_iter()
            .enumerate()
            .with_min_len(CHUNKS_PER_TASK)
            .for_each(|(k, chunk)| {
                let mut bytes = [0; COPY_CHUNK_BYTES];
                copy_bytes(arrays, COPY_CHUNK_BYTES * k, &mut bytes);
                chunk.write(bytes);
            })
    });
    let mut last_bytes = vec![0; last_chunk.len()];
    copy_bytes(arrays, last_offset, &mut last_bytes);
    last_chunk.copy_from_slice(&last_bytes);
}

/// Copies the bytes of arrays of equal length, taken as one sequence, from `offset` on until `target` is full.
fn copy_bytes(arrays: &[Arc<Vec<f32>>], mut offset: usize, mut target: &mut [u8]) {
    let array_bytes = arrays
        .first()
        .map_or(1, |array| size_of_val(array.as_slice()).max(1));
    while !target.is_empty() {
        let array: &[u8] = bytemuck::cast_slice(&arrays[offset / array_bytes]);
        let source = &array[offset % array_bytes..];
        let (copied, remaining) = target.split_at_mut(source.len().min(target.len()));
        copied.copy_from_slice(&source[..copied.len()]);
        offset += copied.len();
        target = remaining;
    }
}

/// Splits block indices into runs that one copy can write. These are runs of consecutive indices if blocks fill their
/// places (`fill_blocks`), else single indices.
fn split_into_runs(places: &[usize], fill_blocks: bool) -> impl Iterator<Item = &[usize]> {
    places.chunk_by(move |place, next_place| fill_blocks && place + 1 == *next_place)
}

/// Rounds values to f16 (to nearest, ties to even), and returns their bits.
fn round_to_halves(values: &Values) -> Vec<u16> {
    match values {
        Values::F32(floats) => floats.iter().map(|x| f16::from_f32(*x).to_bits()).collect(),
        values => values
            .to_f64()
            .iter()
            .map(|x| f16::from_f64(*x).to_bits())
            .collect(),
    }
}

/// Writes consecutive blocks of `length` elements to these block indices of a GPU buffer, `stride` words apart.
/// Neighbouring blocks are written in one copy.
pub(super) fn write_blocks<T: bytemuck::Pod>(
    context: &GpuContext,
    buffer: &wgpu::Buffer,
    values: &[T],
    length: usize,
    stride: usize,
    places: &[usize],
) {
    if values.is_empty() || length == 0 {
        return;
    }
    let mut remaining = values;
    for run in split_into_runs(places, length * size_of::<T>() == 4 * stride) {
        let (run_values, later) = remaining.split_at((run.len() * length).min(remaining.len()));
        context.write_buffer(
            buffer,
            4 * (run[0] * stride) as u64,
            bytemuck::cast_slice(run_values),
        );
        remaining = later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_any_length_are_copied_one_after_another() {
        for (count, length) in [(0, 3), (1, 1), (3, 5), (700, 37), (3, 4096), (5, 4099)] {
            let arrays: Vec<_> = (0..count)
                .map(|k| Arc::new((0..length).map(|j| (k * length + j) as f32).collect()))
                .collect();
            let mut copied = vec![0.0f32; count * length];
            copy_arrays(
                &arrays,
                wgpu::WriteOnly::from_mut(bytemuck::cast_slice_mut(&mut copied)),
            );
            assert!(
                copied.iter().enumerate().all(|(k, x)| *x == k as f32),
                "{count} of {length}"
            );
        }
    }

    #[test]
    fn consecutive_places_form_runs_only_where_blocks_fill_them() {
        let run_lengths = |fill_blocks| {
            split_into_runs(&[3, 4, 5, 9, 7, 8], fill_blocks)
                .map(<[usize]>::len)
                .collect::<Vec<_>>()
        };
        assert_eq!(run_lengths(true), [3, 1, 2]);
        assert_eq!(run_lengths(false), [1; 6]);
    }
}
