//! What a GPU is asked for is counted, and follows from sizes alone.

use std::sync::Arc;

use popfit::low_level::gpu::{Fault, Faults, GpuDevice};
use popfit::low_level::solver::{Device, LevenbergMarquardt, Method};
use popfit::{CurveFitter, Curves, DeviceCalls, Formula};

use super::cases::{Case, Model};
use super::gpu;

const MEMBERS: usize = 130;
/// Kernels of a round beside those of the stages: `step`, `halve` and `compact`.
const OF_MEMBERS: u64 = 3;
const ROUNDS: u32 = 5;

/// A device that counts its calls alone: those of other tests on a shared device would count, too. It meets a fault at
/// no call.
fn counting(shared: GpuDevice) -> GpuDevice {
    shared
        .with_faults(Faults::new(Fault::Zeros, u64::MAX, false))
        .unwrap()
}

#[test]
fn small_fits_send_their_data_and_starts_and_get_parameters_and_errors() {
    let Some(shared) = gpu() else { return };
    let gpu = counting(shared);
    // Gauss functions on 5 × 5 pixels, as many as whole blocks
    const FITS: usize = 128;
    let pixel = |j: usize| [(j % 5) as f64, (j / 5) as f64];
    let x: Vec<f64> = (0..2)
        .flat_map(|d| (0..25).map(move |j| pixel(j)[d]))
        .collect();
    let value = |k: usize, j: usize| {
        let [dx, dy] = pixel(j).map(|x| x - 2.0 - 0.001 * k as f64);
        500.0 * (-0.5 * (dx * dx + dy * dy)).exp() + 10.0 + ((7 * j + k) % 11) as f64
    };
    let y: Vec<f64> = (0..FITS)
        .flat_map(|k| (0..25).map(move |j| value(k, j)))
        .collect();
    let starts = [450.0, 1.9, 2.2, 1.1, 12.0].repeat(FITS);
    let fitter = CurveFitter::new(Formula::builtin("gauss2d").unwrap(), gpu.clone().into());
    let start = gpu.calls();
    let columns = fitter
        .fit_columns(&Curves::on_common_grid(x, y, starts))
        .unwrap();
    let seen = gpu.calls() - start;
    assert!(columns.status.iter().all(|status| status.is_success()));
    assert_eq!(
        (seen.dispatches, seen.barriers, seen.submissions, seen.waits),
        (1, 0, 1, 1),
        "{seen:?}"
    );
    let grid = 4 * 2 * 25;
    assert_eq!(
        (seen.uploads, seen.uploaded_bytes),
        (3, grid + 120 * FITS as u64),
        "{seen:?}"
    );
    assert_eq!(
        (seen.copies, seen.copied_bytes),
        (1, 48 * FITS as u64),
        "{seen:?}"
    );
}

#[test]
fn a_population_asks_for_what_its_sizes_say() {
    let Some(shared) = gpu() else { return };
    let gpu = counting(shared);
    let case = Case::new(Model::PLAIN, MEMBERS, 31);
    let kernels = case.recording.stages.len() as u64 + OF_MEMBERS;
    let method = Method::LevenbergMarquardt(LevenbergMarquardt::default());
    let since = |earlier: DeviceCalls| gpu.calls() - earlier;

    let make = || {
        gpu.population(Arc::new(case.recording.clone()), &method, MEMBERS)
            .unwrap()
    };
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
    // copies of the data, and the kernel that puts members into their slots
    assert_eq!(
        (
            loaded.dispatches,
            loaded.waits,
            loaded.submissions,
            loaded.buffers
        ),
        (1, 0, 2, 0),
        "{loaded:?}"
    );

    let start = gpu.calls();
    population.submit(ROUNDS).unwrap();
    pollster::block_on(population.advance(ROUNDS)).unwrap();
    let advanced = since(start);
    assert_eq!(advanced.dispatches, u64::from(ROUNDS) * kernels);
    // whatever has ended, the host waits once, for the list of members and two words
    let list = 4 * (2 + MEMBERS as u64);
    assert_eq!(
        (
            advanced.submissions,
            advanced.waits,
            advanced.copies,
            advanced.copied_bytes
        ),
        (1, 1, 1, list)
    );
    // the list of members that have entered, and the sizes of the dispatches
    assert_eq!((advanced.uploads, advanced.buffers), (2, 0));
    // each kernel of this model reads or writes what the one before has written
    assert_eq!(advanced.barriers, advanced.dispatches - 1);

    let start = gpu.calls();
    pollster::block_on(population.read(&[0, 1])).unwrap();
    let read = since(start);
    assert_eq!(
        (read.submissions, read.waits, read.dispatches, read.uploads),
        (1, 1, 1, 1),
        "{read:?}"
    );
    // two counts and two slots; points, sums and steps of these members alone, and their nine cells
    let parameters = case.recording.parameters.len() as u64;
    let state = 2 * (2 * parameters + 7 + parameters * (parameters + 1) / 2) + 3;
    assert_eq!(
        (read.uploaded_bytes, read.copied_bytes),
        (16, 16 + 2 * 4 * (state + 9)),
        "{read:?}"
    );
}
