//! Rotational broadening against rvspecfit (`tests/data/synb/forward_ref.npz`) on both devices. A custom stage provides
//! the row to be broadened; a delta function shows the kernel.

use std::sync::Arc;

use popfit::low_level::cpu::CpuDevice;
#[cfg(feature = "gpu")]
use popfit::low_level::gpu::GpuDevice;
use popfit::low_level::recording::*;
use popfit::low_level::solver::{Backend, Batch, LevenbergMarquardt};
#[cfg(feature = "gpu")]
use popfit_testing::required::{Need, found};
use popfit_testing::{array, data_folder};

/// Returns the rows of a broadened template: value, derivative by vsini / (10 km/s).
fn broaden_row(
    device: &dyn Backend,
    precision: Precision,
    row: &[f64],
    vsini: f64,
    inverse_step: f64,
) -> Vec<f64> {
    let used = row.len();
    let pixels = used.next_multiple_of(16);
    let parameters = vec![Parameter {
        name: "vsini".into(),
        origin: 0.0,
        scale: 10.0,
    }];
    let mut recording = Recording {
        parameters,
        precision,
        ..Recording::default()
    };
    let predictor = recording.buffer("predictor", Scope::Batch, Kind::Float, pixels);
    let input = recording.buffer("row", Scope::Member, Kind::Float, pixels);
    let output = recording.buffer("broadened", Scope::Member, Kind::Float, 2 * pixels);
    let data = recording.buffer("data", Scope::Spectrum, Kind::Float, pixels);
    let weight = recording.buffer("weight", Scope::Spectrum, Kind::Float, pixels);
    let text = "fn fill(x: f32, u: ptr<function, array<f32, 1>>, out: ptr<function, array<f32, 1>>) { out[0] = x; }";
    recording.stages = vec![
        Stage::Prior(Prior::WITHOUT_HULLS),
        Stage::Custom(Custom {
            name: "copy".into(),
            output: input,
            rows: 1,
            pixels,
            predictors: 1,
            predictor,
            scale: None,
            table: Arc::default(),
            wgsl: text.into(),
            many: None,
            rust: pointwise(|x, _, out| out[0] = x),
        }),
        Stage::Broaden(Broaden {
            input,
            output,
            rows: 1,
            columns: pixels,
            segments: vec![Segment {
                start: 0,
                end: used,
                inverse_step,
            }],
            rotation: Rotation::Parameter {
                parameter: 0,
                most: 500.0,
            },
            derivatives: true,
        }),
        Stage::Normal(Normal {
            model: output,
            pixels,
            columns: vec![0],
            data,
            weight,
            continuum: None,
            loss: None,
        }),
    ];
    let mut values = row.to_vec();
    values.resize(pixels, 0.0);
    let ones = Values::F32(vec![1.0; pixels].into());
    let blocks = vec![
        (predictor, Values::F64(values.into())),
        (data, ones.clone()),
        (weight, ones),
    ];
    let batch = Batch {
        spectra: 1,
        blocks,
        lower: vec![0.0],
        upper: vec![50.0],
        prior_mean: vec![0.0],
        prior_weight: vec![0.0],
        group: vec![0],
        starts: vec![vsini / 10.0],
        ..Batch::default()
    };
    let mut population = device
        .population(Arc::new(recording), &LevenbergMarquardt::default(), 1)
        .unwrap();
    pollster::block_on(population.load(&batch)).unwrap();
    let rows = pollster::block_on(population.inspect(output)).unwrap();
    [&rows[..used], &rows[pixels..pixels + used]].concat()
}

/// Returns every device with the precision of its rows, and the tolerance of a weight.
fn devices() -> Vec<(&'static str, Box<dyn Backend>, Precision, f64)> {
    let mut devices: Vec<(&'static str, Box<dyn Backend>, Precision, f64)> = vec![
        ("cpu, f64", Box::new(CpuDevice), Precision::F64, 1e-6),
        ("cpu, f32", Box::new(CpuDevice), Precision::F32, 5e-6),
    ];
    #[cfg(feature = "gpu")]
    devices.extend(found(Need::Gpu, GpuDevice::best()).map(|device| {
        (
            "gpu",
            Box::new(device) as Box<dyn Backend>,
            Precision::F32,
            5e-6,
        )
    }));
    devices
}

/// Returns 1 / Δlnλ of the synb templates.
fn inverse_step() -> f64 {
    let (_, wavelength) = array(&data_folder().join("synb/forward_ref.npz"), "lam_templ");
    (wavelength.len() - 1) as f64 / (wavelength[wavelength.len() - 1] / wavelength[0]).ln()
}

/// Returns a delta function in the middle of 201 pixels.
fn delta_function() -> Vec<f64> {
    (0..201).map(|j| if j == 100 { 1.0 } else { 0.0 }).collect()
}

#[test]
fn a_broadened_delta_function_is_the_reference_kernel() {
    let step = inverse_step();
    for (name, device, precision, tolerance) in devices() {
        for vsini in ["0.5", "1", "2", "5", "10", "30", "100", "300"] {
            let (_, expected) = array(
                &data_folder().join("synb/forward_ref.npz"),
                &format!("kernel_vsini_{vsini}"),
            );
            let rows = broaden_row(
                &*device,
                precision,
                &delta_function(),
                vsini.parse().unwrap(),
                step,
            );
            let first = 100 - expected.len() / 2;
            let gap = expected
                .iter()
                .zip(&rows[first..])
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f64::max);
            println!("{name}: kernel of {vsini} km/s differs by at most {gap:.1e}");
            assert!(gap < tolerance, "{name}, {vsini} km/s: {gap}");
            assert!(
                rows[..first].iter().all(|w| w.abs() < 1e-7),
                "{name}: wider than the reference"
            );
        }
    }
}

#[test]
fn devices_agree_on_segments_narrower_than_the_kernel() {
    for pixels in [1usize, 8, 63, 64, 65, 130] {
        let row: Vec<f64> = (0..pixels)
            .map(|j| f64::from((1.0 + 0.5 * (j as f64).sin()) as f32))
            .collect();
        for vsini in [0.0, 3.0, 480.0] {
            let expected = broaden_row(&CpuDevice, Precision::F64, &row, vsini, 9000.0);
            for (name, device, precision, _) in devices() {
                let rows = broaden_row(&*device, precision, &row, vsini, 9000.0);
                let gap = rows
                    .iter()
                    .zip(&expected)
                    .map(|(a, b)| (a - b).abs())
                    .fold(0.0, f64::max);
                assert!(gap < 5e-6, "{name}: {pixels} pixels, {vsini} km/s: {gap}");
            }
        }
    }
}

#[test]
fn derivatives_meet_differences_and_rows_without_rotation_are_unchanged() {
    let step = inverse_step();
    for (name, device, precision, tolerance) in devices() {
        for vsini in [0.5, 7.0, 33.0, 101.0, 299.0, 499.0] {
            let rows = broaden_row(&*device, precision, &delta_function(), vsini, step);
            let exact =
                |v: f64| broaden_row(&CpuDevice, Precision::F64, &delta_function(), v, step);
            let low = exact(vsini - 1e-3);
            let high = exact(vsini + 1e-3);
            for j in 0..201 {
                let difference = (high[j] - low[j]) / 2e-4;
                let gap = (rows[201 + j] - difference).abs();
                // The kernel has a kink within 1e-3 km/s of every whole radius.
                assert!(
                    gap < tolerance.max(2e-6),
                    "{name}, {vsini} km/s, pixel {j}: {} {difference}",
                    rows[201 + j]
                );
            }
        }
        let without_rotation = broaden_row(&*device, precision, &delta_function(), 0.0, step);
        assert_eq!(without_rotation[..201], delta_function()[..], "{name}");
        // At 0 the derivative is that towards larger vsini.
        let faster = broaden_row(&CpuDevice, Precision::F64, &delta_function(), 1e-3, step);
        for j in 0..201 {
            assert!(
                (without_rotation[201 + j] - (faster[j] - delta_function()[j]) / 1e-4).abs()
                    < tolerance,
                "{name}, pixel {j}"
            );
        }
    }
}

#[test]
fn broadened_templates_meet_the_reference() {
    let path = data_folder().join("synb/forward_ref.npz");
    let (shape, flux) = array(&path, "flux");
    let (_, expected) = array(&path, "templ_rot");
    let (_, vsini) = array(&path, "vsini");
    let step = inverse_step();
    let pixels = shape[1];
    for (name, device, precision, _) in devices() {
        let mut largest_gap = 0f64;
        let rotating = (0..shape[0]).filter(|&n| vsini[n].is_finite());
        for n in rotating {
            let range = n * pixels..(n + 1) * pixels;
            let rows = broaden_row(&*device, precision, &flux[range.clone()], vsini[n], step);
            // rvspecfit's template is zero beyond its ends.
            let half = (vsini[n] / LIGHT * step).ceil() as usize + 1;
            let pairs = rows
                .iter()
                .zip(&expected[range])
                .take(pixels - half)
                .skip(half);
            let gap = pairs.map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max);
            assert!(gap < 1e-5, "{name}, case {n}, {} km/s: {gap}", vsini[n]);
            largest_gap = largest_gap.max(gap);
        }
        println!("{name}: broadened templates differ by at most {largest_gap:.1e}");
    }
}
