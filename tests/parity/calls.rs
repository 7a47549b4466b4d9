//! What a GPU is asked for is counted, and follows from sizes alone.

use std::sync::Arc;

use popfit::DeviceCalls;
use popfit::low_level::gpu::{Fault, Faults};
use popfit::low_level::solver::{Device, LevenbergMarquardt, Method};

use super::cases::{Case, Model};
use super::gpu;

const MEMBERS: usize = 130;
/// Kernels of a round beside those of the stages: `step`, `halve` and `compact`.
const OF_MEMBERS: u64 = 3;
const ROUNDS: u32 = 5;

#[test]
fn a_population_asks_for_what_its_sizes_say() {
    let Some(shared) = gpu() else { return };
    // other tests' calls on the shared device count, too; this one meets a fault at no call
    let gpu = shared.with_faults(Faults::new(Fault::Zeros, u64::MAX, false)).unwrap();
    let case = Case::new(Model::PLAIN, MEMBERS, 31);
    let kernels = case.recording.stages.len() as u64 + OF_MEMBERS;
    let method = Method::LevenbergMarquardt(LevenbergMarquardt::default());
    let since = |earlier: DeviceCalls| gpu.calls() - earlier;

    let make = || gpu.population(Arc::new(case.recording.clone()), &method, MEMBERS).unwrap();
    // the first one tests the products
    drop(make());

    let start = gpu.calls();
    let mut population = make();
    let made = since(start);
    assert_eq!((made.dispatches, made.waits), (0, 0), "{made:?}");
    assert!(made.buffers > 0 && made.buffer_bytes > 0);

    let start = gpu.calls();
    pollster::block_on(population.load(&case.batch)).unwrap();
    let loaded = since(start);
    assert_eq!((loaded.dispatches, loaded.waits, loaded.submissions, loaded.buffers), (0, 0, 1, 0), "{loaded:?}");

    let start = gpu.calls();
    pollster::block_on(population.advance(ROUNDS)).unwrap();
    let advanced = since(start);
    assert_eq!(advanced.dispatches, u64::from(ROUNDS) * kernels);
    // whatever has ended, the host waits once, for two words
    assert_eq!((advanced.submissions, advanced.waits, advanced.copies, advanced.copied_bytes), (1, 1, 1, 8));
    assert_eq!((advanced.uploads, advanced.buffers), (0, 0));
    // each kernel of this model reads or writes what the one before has written
    assert_eq!(advanced.barriers, advanced.dispatches - 1);

    let start = gpu.calls();
    pollster::block_on(population.read(&[0, 1])).unwrap();
    let read = since(start);
    assert_eq!((read.submissions, read.waits, read.dispatches, read.uploads), (1, 1, 0, 0), "{read:?}");
    // what the host knows it does not read again
    let start = gpu.calls();
    pollster::block_on(population.read(&[2])).unwrap();
    assert_eq!(since(start), DeviceCalls::default());
}
