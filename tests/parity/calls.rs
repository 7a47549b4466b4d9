//! A GPU counts its calls, and these follow from sizes alone.

use std::sync::Arc;

use popfit::low_level::gpu::{Fault, Faults, GpuDevice};
use popfit::low_level::solver::profile::DeviceCalls;
use popfit::low_level::solver::{Backend, LevenbergMarquardt};
use popfit::{CurveFitter, Curves, Formula};

use super::cases::{Case, Model};
use super::gpu;

const MEMBERS: usize = 130;
/// Number of kernels of a round besides those of the stages: `step`, `halve` and `compact`.
const KERNELS_BESIDES_STAGES: u64 = 3;
const ROUNDS: u32 = 5;

/// Makes a device that counts only its own calls: on a shared device those of other tests would count, too. Its
/// injected fault never occurs.
fn count_calls_apart(shared: GpuDevice) -> GpuDevice {
    shared
        .with_faults(Faults::new(Fault::Zeros, u64::MAX, false))
        .unwrap()
}

#[test]
fn small_fits_upload_data_and_starts_and_read_back_parameters_and_errors() {
    let Some(shared) = gpu() else { return };
    let gpu = count_calls_apart(shared);
    // Gaussians on 5 × 5 pixels, in whole blocks of fits.
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
    let calls = gpu.calls() - start;
    assert!(columns.status.iter().all(|status| status.is_success()));
    assert_eq!(
        (
            calls.dispatches,
            calls.barriers,
            calls.submissions,
            calls.waits
        ),
        (1, 0, 1, 1),
        "{calls:?}"
    );
    let grid = 4 * 2 * 25;
    assert_eq!(
        (calls.uploads, calls.uploaded_bytes),
        (3, grid + 120 * FITS as u64),
        "{calls:?}"
    );
    assert_eq!(
        (calls.copies, calls.copied_bytes),
        (1, 48 * FITS as u64),
        "{calls:?}"
    );
}

#[test]
fn calls_of_a_population_follow_from_its_sizes() {
    let Some(shared) = gpu() else { return };
    let gpu = count_calls_apart(shared);
    let case = Case::new(Model::PLAIN, MEMBERS, 31);
    let kernels = case.recording.stages.len() as u64 + KERNELS_BESIDES_STAGES;
    let settings = LevenbergMarquardt::default();
    let since = |earlier: DeviceCalls| gpu.calls() - earlier;

    let new_population = || {
        gpu.population(Arc::new(case.recording.clone()), &settings, MEMBERS)
            .unwrap()
    };
    // The first population on a device tests the products.
    drop(new_population());

    let start = gpu.calls();
    let mut population = new_population();
    let created = since(start);
    assert_eq!((created.dispatches, created.waits), (0, 0), "{created:?}");
    assert!(created.buffers > 0 && created.buffer_bytes > 0);

    let start = gpu.calls();
    pollster::block_on(population.load(&case.batch)).unwrap();
    let loaded = since(start);
    // Copies of the data, and the kernel that writes members to their slots.
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
    // The host waits once, for the list of members and two words, however many have ended.
    let list_bytes = 4 * (2 + MEMBERS as u64);
    assert_eq!(
        (
            advanced.submissions,
            advanced.waits,
            advanced.copies,
            advanced.copied_bytes
        ),
        (1, 1, 1, list_bytes)
    );
    // The list of members that have entered, and the sizes of the dispatches.
    assert_eq!((advanced.uploads, advanced.buffers), (2, 0));
    // Each kernel of this model reads or writes a buffer that the one before it has written.
    assert_eq!(advanced.barriers, advanced.dispatches - 1);

    let start = gpu.calls();
    pollster::block_on(population.read(&[0, 1])).unwrap();
    let read = since(start);
    assert_eq!(
        (read.submissions, read.waits, read.dispatches, read.uploads),
        (1, 1, 1, 1),
        "{read:?}"
    );
    // The count and two slots; points, sums and steps of these members alone, and their seven control cells.
    let parameters = case.recording.parameters.len() as u64;
    let state = 2 * (2 * parameters + 7 + parameters * (parameters + 1) / 2) + 3;
    assert_eq!(
        (read.uploaded_bytes, read.copied_bytes),
        (12, 12 + 2 * 4 * (state + 7)),
        "{read:?}"
    );
}
