//! Device memory of a population: a plan that counts every byte, and the buffers made from it.

use std::sync::Arc;

use half::f16;
use rayon::prelude::*;

use super::context::Context;
use super::layout::{CONTROL, Layout, POISON};
use crate::error::Result;
use crate::kernels::shader::stride;
use crate::recording::{BufferId, Kind, Prior, Recording, Scope, Stage, Values};
use crate::threads;

/// Buffers are bound as vec4.
const ALIGNMENT: usize = 4;
/// Elements that poison a buffer in one copy.
const POISON_CHUNK: usize = 1 << 22;

/// Bytes that a thread copies at once, and the fewest times that it does so.
const PART_BYTES: usize = 4096;
const PARTS_PER_TASK: usize = 64;

/// Rows beyond the last that a cooperative product may write.
const SPARE_ROWS: usize = 16;

/// Returns how many 32-bit elements a buffer needs behind its last block, where f16 products read and write whole
/// matrices.
fn spare(recording: &Recording, id: BufferId) -> usize {
    recording
        .stages
        .iter()
        .map(|stage| spare_for(recording, stage, id))
        .max()
        .unwrap_or(0)
}

/// Returns how many 32-bit elements one stage needs behind the last block of a buffer; 0 for all but f16 products.
fn spare_for(recording: &Recording, stage: &Stage, id: BufferId) -> usize {
    match stage {
        Stage::Product(s) if recording.block(s.weight).kind != Kind::Half => 0,
        Stage::Product(s) if id == s.input => SPARE_ROWS * s.inner / 2,
        Stage::Product(s) if id == s.output => SPARE_ROWS * s.columns,
        _ => 0,
    }
}

/// Returns how many blocks a buffer of this scope has: one that all share, or one for each spectrum or member.
fn count_blocks(scope: Scope, layout: Layout) -> usize {
    match scope {
        Scope::Constant | Scope::Batch => 1,
        Scope::Spectrum => layout.spectra(),
        Scope::Member => layout.capacity,
    }
}

/// 32-bit elements of every buffer of a population. Linear in the capacity.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub members: usize,
    pub state: usize,
    pub control: usize,
    pub limits: usize,
    pub simplices: usize,
    pub arguments: usize,
    pub transfer: usize,
    pub blocks: Vec<usize>,
    /// The hulls' facets, one buffer a `prior`.
    pub tables: usize,
    pub readback: usize,
    /// Bytes of a load on its way: the spectra's blocks once more, in wgpu's own staging buffers.
    pub upload: usize,
}

impl Plan {
    /// Computes the size of each GPU buffer of a population, with three workgroup counts for each of the `dispatches`;
    /// `unwritten` buffers get the smallest size only.
    pub fn new(
        recording: &Recording,
        layout: Layout,
        dispatches: usize,
        unwritten: &[BufferId],
    ) -> Plan {
        let capacity = layout.capacity;
        let elements = |id: BufferId| {
            let blocks = if unwritten.contains(&id) {
                0
            } else {
                count_blocks(recording.block(id).scope, layout)
            };
            (blocks * stride(recording.block(id)) + spare(recording, id)).max(ALIGNMENT)
        };
        let blocks: Vec<usize> = (0..recording.buffers.len())
            .map(|i| elements(BufferId(i)))
            .collect();
        let loaded =
            |i: &usize| matches!(recording.buffers[*i].scope, Scope::Batch | Scope::Spectrum);
        let upload = (0..blocks.len()).filter(loaded).map(|i| blocks[i]).sum();
        let (state, control) = (layout.state_length() * capacity, CONTROL.len() * capacity);
        let simplices = layout.simplex_length() * layout.simplices();
        let even = |n: usize| n.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        let members = layout.members_length();
        let priors = recording.stages.iter().filter_map(|s| {
            if let Stage::Prior(prior) = s {
                Some(prior)
            } else {
                None
            }
        });
        let table = |prior: &Prior| even(prior.hulls.iter().map(|hull| hull.facets.len()).sum());
        Plan {
            members: even(members),
            state: even(state),
            control: even(control),
            limits: even(4 * layout.parameters * layout.spectra()),
            simplices: even(simplices),
            arguments: even(3 * dispatches),
            transfer: even(layout.transfer_length()),
            blocks,
            tables: priors.map(table).sum(),
            readback: even(members.max(layout.transfer_length())),
            upload,
        }
    }

    /// Returns the sizes of a population's buffers on the device (elements of 4 bytes), without tables and readback.
    fn sizes(&self) -> impl Iterator<Item = usize> + '_ {
        let fixed = [
            self.members,
            self.state,
            self.control,
            self.limits,
            self.simplices,
            self.arguments,
            self.transfer,
        ];
        fixed.into_iter().chain(self.blocks.iter().copied())
    }

    /// Returns the memory that the population takes in all, staging buffers of the upload included (bytes).
    pub fn bytes(&self) -> u64 {
        4 * (self.sizes().sum::<usize>() + self.readback + self.tables + self.upload) as u64
    }

    /// Returns the size of the largest buffer that kernels use (bytes).
    pub fn largest(&self) -> u64 {
        4 * self.sizes().max().unwrap_or(0) as u64
    }

    /// Returns whether each buffer is within the device's limits, and all together take at most `memory` bytes.
    pub fn fits(&self, limits: &wgpu::Limits, memory: u64) -> bool {
        self.bytes() <= memory
            && self.largest().max(4 * self.readback as u64) <= limits.max_buffer_size
            && self.largest() <= limits.max_storage_buffer_binding_size
    }
}

/// The buffers of a population.
#[derive(Debug)]
pub(super) struct Buffers {
    pub members: wgpu::Buffer,
    pub state: wgpu::Buffer,
    pub control: wgpu::Buffer,
    pub limits: wgpu::Buffer,
    pub simplices: wgpu::Buffer,
    pub arguments: wgpu::Buffer,
    pub transfer: wgpu::Buffer,
    pub blocks: Vec<wgpu::Buffer>,
    pub readback: wgpu::Buffer,
}

impl Buffers {
    /// Creates the buffers, and fills those whose contents are constant; in tests it poisons all of them first.
    pub fn new(context: &Context, recording: &Recording, plan: &Plan) -> Result<Buffers> {
        if !plan.fits(&context.limits, u64::MAX) {
            return Err(context.too_large(format!(
                "a buffer of {} bytes is above the limits",
                plan.largest()
            )));
        }
        context.guarded(|| {
            let storage = wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_DST
                | wgpu::BufferUsages::COPY_SRC;
            let make = |name: &str, elements, usage| create(context, name, elements, usage);
            let names = recording.buffers.iter().map(|b| b.name.as_str());
            let buffers = Buffers {
                members: make("members", plan.members, storage),
                state: make("state", plan.state, storage),
                control: make("control", plan.control, storage),
                limits: make("limits", plan.limits, storage),
                simplices: make("simplices", plan.simplices, storage),
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
                readback: readback(context, plan.readback),
            };
            if context.options.poison || cfg!(test) {
                buffers.poison(context, plan.largest() as usize / 4);
            }
            for (i, block) in recording.buffers.iter().enumerate() {
                if let Some(values) = &block.values {
                    upload(context, recording, BufferId(i), &buffers.blocks[i], values);
                }
            }
            Ok(buffers)
        })
    }

    /// Fills all buffers, of `largest` elements at most, with NaN, so that what a kernel fails to write is seen.
    fn poison(&self, context: &Context, largest: usize) {
        let elements = POISON_CHUNK.min(largest);
        let chunk = create(
            context,
            "poison",
            elements,
            wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
        );
        context.write(&chunk, 0, bytemuck::cast_slice(&vec![POISON; elements]));
        let mut encoder = context
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let fixed = [
            &self.members,
            &self.state,
            &self.control,
            &self.limits,
            &self.simplices,
            &self.arguments,
            &self.transfer,
        ];
        for buffer in fixed.into_iter().chain(&self.blocks) {
            for start in (0..buffer.size()).step_by(4 * elements) {
                let length = chunk.size().min(buffer.size() - start);
                context.copy(&mut encoder, &chunk, buffer, start, length);
            }
        }
        context.submit(encoder);
    }
}

/// Creates a named GPU buffer of `elements` elements of 32 bits.
pub(super) fn create(
    context: &Context,
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
pub(super) fn readback(context: &Context, elements: usize) -> wgpu::Buffer {
    create(
        context,
        "readback",
        elements,
        wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
    )
}

/// Writes `values` to the first block of a recording's GPU buffer, converted to its kind of number.
pub(super) fn upload(
    context: &Context,
    recording: &Recording,
    id: BufferId,
    buffer: &wgpu::Buffer,
    values: &Values,
) {
    upload_to(context, recording, id, buffer, values, &[0]);
}

/// Writes consecutive blocks of `values`, converted to the buffer's kind of number, to these block indices on the GPU.
pub(super) fn upload_to(
    context: &Context,
    recording: &Recording,
    id: BufferId,
    buffer: &wgpu::Buffer,
    values: &Values,
    places: &[usize],
) {
    let (length, stride) = (recording.block(id).length, stride(recording.block(id)));
    if recording.block(id).kind == Kind::Half {
        return write(context, buffer, &halves(values), length, stride, places);
    }
    match values {
        Values::F32(v) => write(context, buffer, v, length, stride, places),
        Values::I32(v) => write(context, buffer, v, length, stride, places),
        Values::Blocks(blocks) => write_blocks(context, buffer, blocks, stride, places),
        Values::F64(v) => {
            let narrow: Vec<f32> = v.iter().map(|x| *x as f32).collect();
            write(context, buffer, &narrow, length, stride, places);
        }
    }
}

/// Writes blocks of equal length, at most `stride` elements, to these block indices of a GPU buffer, straight into the
/// memory that the device copies from: they are most of a batch's bytes.
fn write_blocks(
    context: &Context,
    buffer: &wgpu::Buffer,
    blocks: &[Arc<Vec<f32>>],
    stride: usize,
    places: &[usize],
) {
    debug_assert!(
        blocks.iter().all(|block| block.len() == blocks[0].len()),
        "blocks of unequal length"
    );
    let mut rest = blocks;
    for run in neighbours(
        places,
        blocks.first().is_some_and(|block| block.len() == stride),
    ) {
        let (now, later) = rest.split_at(run.len().min(rest.len()));
        let bytes: usize = now.iter().map(|block| size_of_val(block.as_slice())).sum();
        let size = wgpu::BufferSize::new(bytes as u64);
        // without a view wgpu has reported an error, which the next `Context::check` returns
        let offset = 4 * (run[0] * stride) as u64;
        context.counts.uploads.add(bytes as u64);
        if let Some(mut view) =
            size.and_then(|size| context.queue.write_buffer_with(buffer, offset, size))
        {
            copy_blocks(now, view.slice(..));
        }
        rest = later;
    }
}

/// Copies blocks of equal length one after another into `free`, which they fill, by all threads: one alone would take
/// longer than a card takes to fit the spectra.
fn copy_blocks(blocks: &[Arc<Vec<f32>>], free: wgpu::WriteOnly<'_, [u8]>) {
    let block_bytes = blocks
        .first()
        .map_or(1, |block| size_of_val(block.as_slice()).max(1));
    // copies the bytes that begin at `place` of all blocks
    let fill = |mut place: usize, mut part: &mut [u8]| {
        while !part.is_empty() {
            let block: &[u8] = bytemuck::cast_slice(&blocks[place / block_bytes]);
            let from = &block[place % block_bytes..];
            let (now, later) = part.split_at_mut(from.len().min(part.len()));
            now.copy_from_slice(&from[..now.len()]);
            (place, part) = (place + now.len(), later);
        }
    };
    let (parts, mut rest) = free.into_chunks::<PART_BYTES>();
    let parts: Vec<wgpu::WriteOnly<'_, [u8; PART_BYTES]>> = parts.into_iter().collect();
    let (place, mut last) = (PART_BYTES * parts.len(), vec![0; rest.len()]);
    let copy = |(k, part): (usize, wgpu::WriteOnly<'_, [u8; PART_BYTES]>)| {
        let mut bytes = [0; PART_BYTES];
        fill(PART_BYTES * k, &mut bytes);
        part.write(bytes);
    };
    threads::in_pool(|| {
        parts
            .into_par_iter()
            .enumerate()
            .with_min_len(PARTS_PER_TASK)
            .for_each(copy)
    });
    fill(place, &mut last);
    rest.copy_from_slice(&last);
}

/// Splits block indices into runs that one copy can write: neighbours, if blocks fill their places (`is_whole`).
fn neighbours(places: &[usize], is_whole: bool) -> impl Iterator<Item = &[usize]> {
    places.chunk_by(move |a, b| is_whole && a + 1 == *b)
}

/// Rounds values to f16 (to nearest, ties to even), and returns their bits.
fn halves(values: &Values) -> Vec<u16> {
    match values {
        Values::F32(v) => v.iter().map(|x| f16::from_f32(*x).to_bits()).collect(),
        other => other
            .to_f64()
            .iter()
            .map(|x| f16::from_f64(*x).to_bits())
            .collect(),
    }
}

/// Writes consecutive blocks of `length` elements to these block indices of a GPU buffer, `stride` words apart.
/// Neighbouring blocks are written in one copy.
pub(super) fn write<T: bytemuck::Pod>(
    context: &Context,
    buffer: &wgpu::Buffer,
    values: &[T],
    length: usize,
    stride: usize,
    places: &[usize],
) {
    if values.is_empty() || length == 0 {
        return;
    }
    let mut rest = values;
    for run in neighbours(places, length * size_of::<T>() == 4 * stride) {
        let (now, later) = rest.split_at((run.len() * length).min(rest.len()));
        context.write(
            buffer,
            4 * (run[0] * stride) as u64,
            bytemuck::cast_slice(now),
        );
        rest = later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_any_length_are_copied_one_after_another() {
        for (count, length) in [(0, 3), (1, 1), (3, 5), (700, 37), (3, 4096), (5, 4099)] {
            let blocks: Vec<_> = (0..count)
                .map(|k| Arc::new((0..length).map(|j| (k * length + j) as f32).collect()))
                .collect();
            let mut copied = vec![0.0f32; count * length];
            copy_blocks(
                &blocks,
                wgpu::WriteOnly::from_mut(bytemuck::cast_slice_mut(&mut copied)),
            );
            assert!(
                copied.iter().enumerate().all(|(k, x)| *x == k as f32),
                "{count} of {length}"
            );
        }
    }

    #[test]
    fn neighbours_are_written_at_once_where_blocks_fill_their_places() {
        let runs = |is_whole| {
            neighbours(&[3, 4, 5, 9, 7, 8], is_whole)
                .map(<[usize]>::len)
                .collect::<Vec<_>>()
        };
        assert_eq!(runs(true), [3, 1, 2]);
        assert_eq!(runs(false), [1; 6]);
    }
}
