//! Rows that each kernel writes, with one kernel per stage; products and layers in every variant.

use popfit::low_level::cpu::CpuDevice;
use popfit::low_level::gpu::GpuDevice;
use popfit::low_level::solver::Backend;

use super::cases::{self, Case, Model};
use super::compare::compare;
use super::{SIZES, gpu, inspect, unfused_gpu};

/// Kernels, with the buffer that they write and the tolerance. A label has two roundings; a product of 16 terms and an
/// activation about ten more; a spline is a sum of 25 + 4 terms, its argument a difference of pixel positions of order
/// 100 (6e-6 pixels: 100 x 6e-8); a second network adds its own; the custom model has a quotient, for which WGSL allows
/// 2.5 units. Two numbers that differ by rounding may be rounded to different f16 numbers, 1e-3 apart.
pub const ROWS: [(&str, &str, Model, f64); 17] = [
    ("labels", "labels", Model::PLAIN, 5e-7),
    (
        "product",
        "layer 0",
        Model {
            activation: None,
            ..Model::PLAIN
        },
        1e-6,
    ),
    ("activate", "layer 0", Model::PLAIN, 2e-6),
    ("product", "template", Model::PLAIN, 4e-6),
    ("split", "halves", HALVES, 1e-3),
    ("product", "template", HALVES, 1e-3),
    (
        "per_pixel",
        "template",
        Model {
            per_pixel: true,
            ..Model::PLAIN
        },
        3e-6,
    ),
    ("prefilter", "coefficients", Model::PLAIN, 5e-6),
    ("resample", "rows", Model::PLAIN, 2e-5),
    (
        "resample",
        "rows",
        Model {
            linear: true,
            ..Model::PLAIN
        },
        2e-5,
    ),
    (
        "integrate",
        "rows",
        Model {
            integrate: true,
            ..Model::PLAIN
        },
        3e-5,
    ),
    (
        "integrate",
        "rows",
        Model {
            integrate: true,
            linear: true,
            ..Model::PLAIN
        },
        3e-5,
    ),
    (
        "labels",
        "labels",
        Model {
            tied: true,
            ..Model::PLAIN
        },
        5e-7,
    ),
    (
        "broaden",
        "broadened",
        Model {
            rotation: true,
            ..Model::PLAIN
        },
        1e-5,
    ),
    (
        "resolve",
        "spread rows",
        Model {
            spread: true,
            ..Model::PLAIN
        },
        5e-6,
    ),
    (
        "resolve",
        "rows",
        Model {
            rotation: true,
            resolution: true,
            ..Model::PLAIN
        },
        3e-5,
    ),
    (
        "custom",
        "rows",
        Model {
            custom: true,
            ..Model::PLAIN
        },
        8e-7,
    ),
];

/// A model with products of halves. Its rows are f32 on the CPU, too, so that most numbers are rounded alike.
const HALVES: Model = Model {
    halves: true,
    narrow: true,
    ..Model::PLAIN
};

#[test]
fn rows_agree() {
    let Some(gpu) = unfused_gpu() else { return };
    compare_rows(&gpu, |_| true);
}

/// Kernels of `shaders/variants`.
pub const VARIANTS: [&str; 3] = ["product", "product_chain", "product_cooperative"];

/// Products in tiles, which are not the default of a software adapter.
#[test]
fn tiled_products_agree() {
    for tiles in 0..3 {
        let Some(gpu) = unfused_gpu() else { return };
        compare_rows(&gpu.with_tiles(tiles), |kernel| VARIANTS.contains(&kernel));
    }
}

/// Products that are activated before they are written, as on no software adapter.
#[test]
fn tiled_layers_agree() {
    for tiles in 0..3 {
        let Some(gpu) = gpu() else { return };
        let gpu = gpu.with_tiles(tiles).with_fusion(true, false);
        compare_rows(&gpu, |kernel| {
            VARIANTS.contains(&kernel) || kernel == "activate"
        });
        compare_activations(&gpu);
    }
}

/// Products of cooperative matrices, which are not the default of a software adapter, and which most lack.
#[test]
fn cooperative_products_agree() {
    match unfused_gpu().map(GpuDevice::with_cooperative_products) {
        Some(Some(gpu)) => compare_rows(&gpu, |kernel| VARIANTS.contains(&kernel)),
        Some(None) => {
            popfit_testing::required::report_skip("the adapter has no cooperative matrices")
        }
        None => {}
    }
}

/// Values of products of f16 numbers, two for each factor, are as exact as those of f32 numbers, also of cooperative
/// matrices where the adapter has them. Without the products of what rounding leaves they are 5e-4 off.
#[test]
fn values_of_split_products_are_as_exact_as_f32() {
    let Some(gpu) = unfused_gpu() else { return };
    let cooperative = unfused_gpu().and_then(GpuDevice::with_cooperative_products);
    let devices: Vec<&dyn Backend> = [&CpuDevice as &dyn Backend, &gpu]
        .into_iter()
        .chain(cooperative.as_ref().map(|gpu| gpu as &dyn Backend))
        .collect();
    let row = cases::COLUMNS;
    for members in SIZES {
        let template = |device: &dyn Backend, model: Model| {
            let case = Case::new(model, members, members as u64 + 1);
            let rows = inspect(device, &case, case.buffer("template"));
            let rows_of_members = rows.chunks_exact(row * (1 + cases::LABELS));
            rows_of_members
                .flat_map(|rows| rows[..row].to_vec())
                .collect::<Vec<f64>>()
        };
        let expected = template(&CpuDevice, Model::PLAIN);
        for device in &devices {
            let actual = template(*device, HALVES);
            let label = format!("{}, {members} members", device.name());
            compare(&label, &expected, &actual, (row, 1.0), 4e-6).unwrap_or_else(|e| panic!("{e}"));
        }
    }
}

fn compare_rows(gpu: &GpuDevice, is_compared: impl Fn(&str) -> bool) {
    for (kernel, buffer, model, tolerance) in
        ROWS.into_iter().filter(|(kernel, ..)| is_compared(kernel))
    {
        for members in SIZES {
            let case = Case::new(model, members, members as u64 + 1);
            let id = case.buffer(buffer);
            let expected = inspect(&CpuDevice, &case, id);
            let actual = inspect(gpu, &case, id);
            // A label near zero is a difference of numbers of order one.
            let floor = if matches!(kernel, "labels" | "product") {
                1.0
            } else {
                0.0
            };
            let row = case.recording.block(id).length / case.rows(id);
            let comparison = compare(
                &format!("{kernel}, {members} members"),
                &expected,
                &actual,
                (row, floor),
                tolerance,
            );
            comparison.unwrap_or_else(|e| panic!("{e}"));
        }
    }
}

#[test]
fn activations_agree() {
    let Some(gpu) = unfused_gpu() else { return };
    compare_activations(&gpu);
}

fn compare_activations(gpu: &GpuDevice) {
    for activation in cases::ACTIVATIONS {
        let case = Case::new(
            Model {
                activation: Some(activation),
                ..Model::PLAIN
            },
            17,
            3,
        );
        let id = case.buffer("layer 0");
        let expected = inspect(&CpuDevice, &case, id);
        let actual = inspect(gpu, &case, id);
        compare(
            &format!("{activation:?}"),
            &expected,
            &actual,
            (16, 0.0),
            3e-6,
        )
        .unwrap_or_else(|e| panic!("{e}"));
    }
}
