//! The kernel that moves members that enter and leave, beside its twin.

use std::sync::Arc;

use popfit_testing::random::Random;
use popfit_testing::required::{Need, skip};

use super::adapter::{self, Choice};
use super::commands::record_alone;
use super::context::{Context, Options};
use super::layout::{CONTROL, POISON};
use super::population::GpuPopulation;
use super::readback;
use super::transfer::{Transfer, workgroups};
use crate::buffers::Parameter;
use crate::recording::Recording;
use crate::solver::{Batch, LevenbergMarquardt, Method, NelderMead, Places};

const PARAMETERS: usize = 5;
/// Number of starts that have room.
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
fn read_all(population: &GpuPopulation, buffer: &wgpu::Buffer, elements: usize) -> Vec<u32> {
    let GpuPopulation {
        context, buffers, ..
    } = population;
    let nothing = context
        .device
        .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    pollster::block_on(readback::fetch(
        context,
        nothing,
        buffer,
        &buffers.readback,
        elements,
    ))
    .unwrap()
}

/// Puts members into their slots.
fn enter(population: &GpuPopulation, entering: &Transfer, lanes: usize) {
    let GpuPopulation {
        context,
        buffers,
        enters,
        ..
    } = population;
    context.write(
        &buffers.transfer,
        0,
        bytemuck::cast_slice(&entering.words(lanes)),
    );
    context.submit(record_alone(
        context,
        enters,
        workgroups(entering.length(lanes)),
    ));
}

/// Collects the numbers of the starts in these places.
fn collect(population: &GpuPopulation, starts: &[usize], lanes: usize) -> Transfer {
    let GpuPopulation {
        context,
        buffers,
        leaves,
        ..
    } = population;
    let slots = starts
        .iter()
        .flat_map(|start| start * lanes..(start + 1) * lanes)
        .collect();
    let mut transfer = Transfer::new(PARAMETERS, slots);
    let (head, numbers) = (transfer.head(lanes), transfer.length(lanes));
    context.write(&buffers.transfer, 0, bytemuck::cast_slice(&head));
    let commands = record_alone(context, leaves, workgroups(numbers));
    let elements = head.len() + numbers;
    let words: Vec<u32> = pollster::block_on(readback::fetch(
        context,
        commands,
        &buffers.transfer,
        &buffers.readback,
        elements,
    ))
    .unwrap();
    transfer.take(&words[head.len()..]);
    transfer
}

#[test]
fn members_enter_their_slots_and_leave_as_they_are() {
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
        parameters: (0..PARAMETERS).map(parameter).collect(),
        ..Recording::default()
    };
    let recording = Arc::new(recording);
    let mut random = Random(SEED);
    let methods = [
        Method::LevenbergMarquardt(LevenbergMarquardt::default()),
        Method::NelderMead(NelderMead::default()),
    ];
    for (method, counts) in methods
        .into_iter()
        .flat_map(|method| [[1, 66], [64, 1], [23, 40]].map(|c| (method, c)))
    {
        let population =
            GpuPopulation::new(context.clone(), recording.clone(), &method, CAPACITY).unwrap();
        let (lanes, slots) = (method.lanes(), CAPACITY * method.lanes());
        // 1. The second batch lies between the starts of the first.
        let mut free: Vec<usize> = (0..CAPACITY).collect();
        let mut state = Vec::new();
        let mut control = vec![POISON; CONTROL.len() * slots];
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
            let mut entered = Transfer::of_batch(PARAMETERS, &batch, &places, method);
            // new members have many equal numbers, which would hide an exchange
            entered
                .state
                .iter_mut()
                .for_each(|word| *word = random.below(1 << 30) as u32);
            entered
                .control
                .iter_mut()
                .for_each(|cell| *cell = random.below(1 << 30) as i32);
            entered
                .simplices
                .iter_mut()
                .for_each(|word| *word = random.below(1 << 30) as u32);
            enter(&population, &entered, lanes);
            state.resize(entered.layout.state_length() * slots, POISON);
            for (k, slot) in entered.slots.iter().enumerate() {
                let members = entered.slots.len();
                (0..CONTROL.len()).for_each(|cell| {
                    control[cell * slots + slot] =
                        entered.control[cell * members + k].cast_unsigned();
                });
                (0..entered.layout.state_length()).for_each(|field| {
                    state[field * slots + slot] = entered.state[field * members + k]
                });
            }
            // 2. They leave in another order.
            let mut order: Vec<usize> = (0..count).collect();
            order.reverse();
            let left = collect(
                &population,
                &order.iter().map(|k| starts[*k]).collect::<Vec<_>>(),
                lanes,
            );
            let reversed = |words: &[u32], lanes: usize| -> Vec<u32> {
                let fields = words.chunks(count * lanes);
                fields
                    .flat_map(|field| {
                        order
                            .iter()
                            .flat_map(|k| field[k * lanes..(k + 1) * lanes].to_vec())
                    })
                    .collect()
            };
            let cells: Vec<u32> = entered
                .control
                .iter()
                .map(|cell| cell.cast_unsigned())
                .collect();
            let cells_left: Vec<u32> = left
                .control
                .iter()
                .map(|cell| cell.cast_unsigned())
                .collect();
            assert_eq!(left.state, reversed(&entered.state, lanes));
            assert_eq!(cells_left, reversed(&cells, lanes));
            assert_eq!(left.simplices, reversed(&entered.simplices, 1));
        }
        // 3. No other slot is touched.
        assert_eq!(
            read_all(&population, &population.buffers.state, state.len()),
            state
        );
        assert_eq!(
            read_all(&population, &population.buffers.control, control.len()),
            control
        );
    }
}
