//! Test of the kernel that moves members into their slots and out of them.

use std::sync::Arc;

use popfit_testing::random::Random;
use popfit_testing::required::{Need, skip};

use super::adapter::{self, AdapterChoice};
use super::commands::record_alone;
use super::context::{GpuContext, Options};
use super::layout::{CONTROL_CELLS, POISON};
use super::population::GpuPopulation;
use super::readback;
use super::transfer::{Transfer, workgroups_for};
use crate::buffers::Parameter;
use crate::recording::Recording;
use crate::solver::{Batch, LevenbergMarquardt, Places};

const PARAMETERS: usize = 5;
/// Number of starts of the population.
const CAPACITY: usize = 67;
const SEED: u64 = 23;

/// Draws a batch of starts of one spectrum each, inside of its bounds.
fn draw_batch(count: usize, random: &mut Random) -> Batch {
    let starts = (0..count * PARAMETERS)
        .map(|_| random.around(1.0))
        .collect();
    let bound = |value: f64| vec![value; count * PARAMETERS];
    let group = (0..count as u32).collect();
    Batch {
        spectra: count,
        lower: bound(-3.0),
        upper: bound(3.0),
        group,
        starts,
        ..Batch::default()
    }
}

/// Reads all words of a buffer of a population.
fn read_buffer(population: &GpuPopulation, buffer: &wgpu::Buffer, elements: usize) -> Vec<u32> {
    let GpuPopulation {
        context, buffers, ..
    } = population;
    let no_commands = context
        .device
        .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    pollster::block_on(readback::copy_and_read(
        context,
        no_commands,
        buffer,
        &buffers.readback,
        elements,
    ))
    .unwrap()
}

/// Puts members into their slots.
fn enter_members(population: &GpuPopulation, entering: &Transfer) {
    let GpuPopulation {
        context,
        buffers,
        enter_kernel,
        ..
    } = population;
    context.write_buffer(
        &buffers.transfer,
        0,
        bytemuck::cast_slice(&entering.upload_words()),
    );
    context.submit(record_alone(
        context,
        enter_kernel,
        workgroups_for(entering.count_numbers()),
    ));
}

/// Collects the numbers of the starts in these places.
fn collect_starts(population: &GpuPopulation, slots: Vec<usize>) -> Transfer {
    let GpuPopulation {
        context,
        buffers,
        leave_kernel,
        ..
    } = population;
    let mut transfer = Transfer::new(PARAMETERS, slots);
    let header = transfer.header();
    let numbers = transfer.count_numbers();
    context.write_buffer(&buffers.transfer, 0, bytemuck::cast_slice(&header));
    let commands = record_alone(context, leave_kernel, workgroups_for(numbers));
    let elements = header.len() + numbers;
    let words: Vec<u32> = pollster::block_on(readback::copy_and_read(
        context,
        commands,
        &buffers.transfer,
        &buffers.readback,
        elements,
    ))
    .unwrap();
    transfer.store_collected(&words[header.len()..]);
    transfer
}

#[test]
fn members_enter_their_slots_and_are_collected_unchanged() {
    let adapter = match adapter::choose_adapter(AdapterChoice::Best) {
        Ok((_, adapter)) => adapter,
        Err(error) => return skip(Need::Gpu, error),
    };
    let context = Arc::new(GpuContext::open(adapter, Options::default()).unwrap());
    let parameter = |p: usize| Parameter {
        name: p.to_string(),
        origin: 0.0,
        scale: 1.0,
    };
    let recording = Recording {
        parameters: (0..PARAMETERS).map(parameter).collect(),
        ..Recording::default()
    };
    let recording = Arc::new(recording);
    let mut random = Random(SEED);
    let settings = LevenbergMarquardt::default();
    for counts in [[1, 66], [64, 1], [23, 40]] {
        let population =
            GpuPopulation::new(context.clone(), recording.clone(), &settings, CAPACITY).unwrap();
        let slots = CAPACITY;
        // 1. The second batch lies between the starts of the first.
        let mut free: Vec<usize> = (0..CAPACITY).collect();
        let mut state = Vec::new();
        let mut control = vec![POISON; CONTROL_CELLS.len() * slots];
        for count in counts {
            let batch = draw_batch(count, &mut random);
            let starts: Vec<usize> = (0..count)
                .map(|_| free.swap_remove(random.below(free.len())))
                .collect();
            let places = Places {
                spectra: (0..count).collect(),
                starts: starts.clone(),
                ring: vec![0; CAPACITY],
            };
            let mut entered = Transfer::from_batch(PARAMETERS, &batch, &places, settings);
            // New members have many equal numbers, which would hide an exchange, so we replace them by random ones.
            entered
                .state
                .iter_mut()
                .for_each(|word| *word = random.below(1 << 30) as u32);
            entered
                .control
                .iter_mut()
                .for_each(|cell| *cell = random.below(1 << 30) as i32);
            enter_members(&population, &entered);
            state.resize(entered.layout.state_length() * slots, POISON);
            for (k, slot) in entered.slots.iter().enumerate() {
                let members = entered.slots.len();
                (0..CONTROL_CELLS.len()).for_each(|cell| {
                    control[cell * slots + slot] =
                        entered.control[cell * members + k].cast_unsigned();
                });
                (0..entered.layout.state_length()).for_each(|field| {
                    state[field * slots + slot] = entered.state[field * members + k]
                });
            }
            // 2. The members are collected in another order.
            let mut order: Vec<usize> = (0..count).collect();
            order.reverse();
            let collected = collect_starts(&population, order.iter().map(|k| starts[*k]).collect());
            let reversed = |words: &[u32]| -> Vec<u32> {
                let fields = words.chunks(count);
                fields
                    .flat_map(|field| order.iter().map(|k| field[*k]))
                    .collect()
            };
            let cells: Vec<u32> = entered
                .control
                .iter()
                .map(|cell| cell.cast_unsigned())
                .collect();
            let collected_cells: Vec<u32> = collected
                .control
                .iter()
                .map(|cell| cell.cast_unsigned())
                .collect();
            assert_eq!(collected.state, reversed(&entered.state));
            assert_eq!(collected_cells, reversed(&cells));
        }
        // 3. No other slot is touched.
        assert_eq!(
            read_buffer(&population, &population.buffers.state, state.len()),
            state
        );
        assert_eq!(
            read_buffer(&population, &population.buffers.control, control.len()),
            control
        );
    }
}
