//! Rotational broadening against rvspecfit (`tests/data/synb/forward_ref.npz`), stage by stage on both devices: a
//! custom stage hands a row over to be broadened, a delta function shows the kernel.

use std::sync::Arc;

use popfit::low_level::cpu::CpuDevice;
#[cfg(feature = "gpu")]
use popfit::low_level::gpu::GpuDevice;
use popfit::low_level::recording::*;
use popfit::low_level::solver::{Batch, Device, LevenbergMarquardt, Method};
#[cfg(feature = "gpu")]
use popfit_testing::required::{Need, found};
use popfit_testing::{array, data_folder};

/// Rows of the broadened template: value, derivative by vsini / (10 km/s).
fn broadened(
    device: &dyn Device,
    precision: Precision,
    row: &[f64],
    vsini: f64,
    inverse_step: f64,
) -> Vec<f64> {
    let (pixels, used) = (row.len().next_multiple_of(16), row.len());
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
        .population(
            Arc::new(recording),
            &Method::LevenbergMarquardt(LevenbergMarquardt::default()),
            1,
        )
        .unwrap();
    pollster::block_on(population.load(&batch)).unwrap();
    let seen = pollster::block_on(population.inspect(output)).unwrap();
    [&seen[..used], &seen[pixels..pixels + used]].concat()
}

/// Every device with the precision of its rows, and the tolerance of a weight.
fn devices() -> Vec<(&'static str, Box<dyn Device>, Precision, f64)> {
    let mut all: Vec<(&'static str, Box<dyn Device>, Precision, f64)> = vec![
        ("cpu, f64", Box::new(CpuDevice), Precision::F64, 1e-6),
        ("cpu, f32", Box::new(CpuDevice), Precision::F32, 5e-6),
    ];
    #[cfg(feature = "gpu")]
    all.extend(found(Need::Gpu, GpuDevice::best()).map(|device| {
        (
            "gpu",
            Box::new(device) as Box<dyn Device>,
            Precision::F32,
            5e-6,
        )
    }));
    all
}

/// 1 / Δlnλ of the synb templates.
fn inverse_step() -> f64 {
    let (_, wavelength) = array(&data_folder().join("synb/forward_ref.npz"), "lam_templ");
    (wavelength.len() - 1) as f64 / (wavelength[wavelength.len() - 1] / wavelength[0]).ln()
}

/// A delta function in the middle of 201 pixels.
fn delta() -> Vec<f64> {
    (0..201).map(|j| if j == 100 { 1.0 } else { 0.0 }).collect()
}

#[test]
fn kernels_of_a_delta_function() {
    let step = inverse_step();
    for (name, device, precision, tolerance) in devices() {
        for vsini in ["0.5", "1", "2", "5", "10", "30", "100", "300"] {
            let (_, expected) = array(
                &data_folder().join("synb/forward_ref.npz"),
                &format!("kernel_vsini_{vsini}"),
            );
            let rows = broadened(&*device, precision, &delta(), vsini.parse().unwrap(), step);
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
fn segments_narrower_than_the_kernel() {
    for pixels in [1usize, 8, 63, 64, 65, 130] {
        let row: Vec<f64> = (0..pixels)
            .map(|j| f64::from((1.0 + 0.5 * (j as f64).sin()) as f32))
            .collect();
        for vsini in [0.0, 3.0, 480.0] {
            let expected = broadened(&CpuDevice, Precision::F64, &row, vsini, 9000.0);
            for (name, device, precision, _) in devices() {
                let found = broadened(&*device, precision, &row, vsini, 9000.0);
                let gap = found
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
fn slopes_meet_differences_and_nothing_happens_without_rotation() {
    let step = inverse_step();
    for (name, device, precision, tolerance) in devices() {
        for vsini in [0.5, 7.0, 33.0, 101.0, 299.0, 499.0] {
            let rows = broadened(&*device, precision, &delta(), vsini, step);
            let at = |v: f64| broadened(&CpuDevice, Precision::F64, &delta(), v, step);
            let (low, high) = (at(vsini - 1e-3), at(vsini + 1e-3));
            for j in 0..201 {
                let difference = (high[j] - low[j]) / 2e-4;
                let gap = (rows[201 + j] - difference).abs();
                // a kink of the kernel is anywhere within 1e-3 km/s of a whole radius
                assert!(
                    gap < tolerance.max(2e-6),
                    "{name}, {vsini} km/s, pixel {j}: {} {difference}",
                    rows[201 + j]
                );
            }
        }
        let still = broadened(&*device, precision, &delta(), 0.0, step);
        assert_eq!(still[..201], delta()[..], "{name}");
        // from 0 a member can only speed up: its slope is that from above
        let faster = broadened(&CpuDevice, Precision::F64, &delta(), 1e-3, step);
        for j in 0..201 {
            assert!(
                (still[201 + j] - (faster[j] - delta()[j]) / 1e-4).abs() < tolerance,
                "{name}, pixel {j}"
            );
        }
    }
}

#[test]
fn broadened_templates() {
    let path = data_folder().join("synb/forward_ref.npz");
    let ((shape, flux), (_, expected)) = (array(&path, "flux"), array(&path, "templ_rot"));
    let (_, vsini) = array(&path, "vsini");
    let step = inverse_step();
    let pixels = shape[1];
    for (name, device, precision, _) in devices() {
        let mut worst = 0f64;
        let rotating = (0..shape[0]).filter(|&n| vsini[n].is_finite());
        for n in rotating {
            let range = n * pixels..(n + 1) * pixels;
            let rows = broadened(&*device, precision, &flux[range.clone()], vsini[n], step);
            // rvspecfit's template is zero beyond its ends
            let half = (vsini[n] / LIGHT * step).ceil() as usize + 1;
            let pairs = rows
                .iter()
                .zip(&expected[range])
                .take(pixels - half)
                .skip(half);
            let gap = pairs.map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max);
            assert!(gap < 1e-5, "{name}, case {n}, {} km/s: {gap}", vsini[n]);
            worst = worst.max(gap);
        }
        println!("{name}: broadened templates differ by at most {worst:.1e}");
    }
}
