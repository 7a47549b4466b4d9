//! Kernels one by one, through the public seams: `cargo bench --bench kernels`, `… -- product` for one of them.
//!
//! A recording holds what leads to a kernel once, then the kernel 32 times, for 64 members with the rows of a DESI-like
//! arm (4 labels, velocity; 4000 pixels, 200 hidden). A time is one round's, loading not included; the throughput is
//! what the kernel's sums are on paper ([`Cost`]), so that Gelem/s are GF/s. What leads there is in the time, and not
//! in the operations: a few per cent. `step` is a round of nothing but priors: step, halve and compact.

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use popfit::low_level::buffers::Cost;
use popfit::low_level::cpu::CpuDevice;
use popfit::low_level::recording::*;
use popfit::low_level::solver::{Backend, Batch, LevenbergMarquardt};

const MEMBERS: usize = 64;
const REPEATS: usize = 32;
const LABELS: usize = 4;
const HIDDEN: usize = 208;
const PIXELS: usize = 4000;
const TERMS: usize = 10;
const DIAGONALS: usize = 11;
/// 1 / Δlnλ
const INVERSE_STEP: f64 = 8000.0;
const KERNELS: [&str; 12] = [
    "step",
    "labels",
    "product",
    "activate",
    "per_pixel",
    "broaden",
    "resolve",
    "prefilter",
    "resample",
    "continuum",
    "normal",
    "estimate",
];

/// Buffers of an arm.
struct Arm {
    labels: BufferId,
    hidden: BufferId,
    template: BufferId,
    coefficients: BufferId,
    rows: BufferId,
    index: BufferId,
    fraction: BufferId,
    data: BufferId,
    weight: BufferId,
    basis: Basis,
    solution: BufferId,
}

/// A pseudo-random number in ±1.
fn noise(k: usize) -> f32 {
    ((k as f32 * 12.9898).sin() * 43_758.547).fract()
}

fn noises(count: usize, size: f32) -> Values {
    Values::F32(
        (0..count)
            .map(|k| size * noise(k))
            .collect::<Vec<f32>>()
            .into(),
    )
}

fn parameters() -> Vec<Parameter> {
    let names = ["a", "b", "c", "d", "velocity", "vsini"];
    let scale = |name: &str| match name {
        "velocity" => (10.0, 100.0),
        "vsini" => (100.0, 50.0),
        _ => (0.0, 1.0),
    };
    let make = |name: &str| Parameter {
        name: name.into(),
        origin: scale(name).0,
        scale: scale(name).1,
    };
    names.into_iter().map(make).collect()
}

fn arm(recording: &mut Recording) -> Arm {
    let mut member =
        |name: &str, length| recording.buffer(name, Scope::Member, Kind::Float, length);
    let (labels, hidden) = (member("labels", 5 * LABELS), member("hidden", 5 * HIDDEN));
    let (template, coefficients) = (
        member("template", 5 * PIXELS),
        member("coefficients", 6 * PIXELS),
    );
    let (rows, solution) = (
        member("rows", 6 * PIXELS),
        member("solution", TERMS + TERMS * TERMS),
    );
    let index = recording.buffer("index", Scope::Batch, Kind::Index, PIXELS);
    let mut batch = |name: &str, scope, length| recording.buffer(name, scope, Kind::Float, length);
    let (fraction, basis) = (
        batch("fraction", Scope::Batch, PIXELS),
        batch("basis", Scope::Batch, TERMS * PIXELS),
    );
    let data = batch("data", Scope::Spectrum, PIXELS);
    let weight = batch("weight", Scope::Spectrum, PIXELS);
    let transform = batch("transform", Scope::Spectrum, TERMS * TERMS);
    let basis = Basis {
        terms: TERMS,
        basis,
        transform,
    };
    Arm {
        labels,
        hidden,
        template,
        coefficients,
        rows,
        index,
        fraction,
        data,
        weight,
        basis,
        solution,
    }
}

fn product(
    recording: &mut Recording,
    (input, inner): (BufferId, usize),
    (output, columns): (BufferId, usize),
) -> Stage {
    let weight = recording.constant("weight", noises(inner * columns, 0.1));
    Stage::Product(Product {
        input,
        weight,
        output,
        rows: 5,
        inner,
        columns,
        factor: 1.0,
        added_to: None,
    })
}

fn per_pixel(recording: &mut Recording, arm: &Arm) -> Stage {
    let hidden = 5;
    let mut constant = |count| recording.constant("weights", noises(count, 0.3));
    Stage::PerPixel(PerPixel {
        input: arm.labels,
        input_stride: LABELS,
        labels: LABELS,
        hidden,
        w0: constant(hidden * LABELS * PIXELS),
        b0: constant(hidden * PIXELS),
        w1: constant(hidden * PIXELS),
        b1: constant(PIXELS),
        activation: Activation::Sigmoid,
        output: arm.template,
        rows: 5,
        columns: PIXELS,
    })
}

fn activate(recording: &mut Recording, arm: &Arm) -> Stage {
    let bias = recording.constant("bias", noises(PIXELS, 0.1));
    let activation = Activation::Silu;
    Stage::Activate(Activate {
        buffer: arm.template,
        bias,
        affine: None,
        activation,
        rows: 5,
        columns: PIXELS,
    })
}

/// From template to rows at the spectrum's pixels.
fn observe(recording: &mut Recording, arm: &Arm, kernel: &str) -> Stage {
    let segments = vec![Segment {
        start: 0,
        end: PIXELS,
        inverse_step: INVERSE_STEP,
    }];
    let (input, output) = (arm.template, arm.coefficients);
    match kernel {
        "broaden" => {
            let rotation = Rotation::Parameter {
                parameter: LABELS + 1,
                most: 200.0,
            };
            Stage::Broaden(Broaden {
                input,
                output,
                rows: 5,
                columns: PIXELS,
                segments,
                rotation,
                derivatives: true,
            })
        }
        "resolve" => {
            let matrix = recording.constant("matrix", noises(DIAGONALS * PIXELS, 0.1));
            Stage::Resolve(Resolve {
                input,
                output,
                rows: 5,
                pixels: PIXELS,
                diagonals: DIAGONALS,
                matrix,
            })
        }
        "prefilter" => Stage::Prefilter(Prefilter {
            input,
            output,
            rows: 5,
            columns: PIXELS,
            segments,
        }),
        _ => Stage::Resample(Resample {
            input: arm.template,
            input_columns: PIXELS,
            output: arm.rows,
            rows: 5,
            pixels: PIXELS,
            index: arm.index,
            fraction: arm.fraction,
            segments,
            interpolation: Interpolation::Cubic,
            velocity: Velocity::Parameter(LABELS),
            derivatives: true,
        }),
    }
}

fn sums(arm: &Arm, kernel: &str) -> Stage {
    let Arm {
        rows: model,
        data,
        weight,
        basis,
        solution,
        ..
    } = *arm;
    let (pixels, columns) = (PIXELS, vec![4, 0, 1, 2, 3]);
    match kernel {
        "continuum" => Stage::Continuum(Continuum {
            model,
            pixels,
            data,
            weight,
            basis,
            solution,
            loss: None,
        }),
        "normal" => Stage::Normal(Normal {
            model,
            pixels,
            columns,
            data,
            weight,
            continuum: Some((basis, solution)),
            loss: None,
        }),
        _ => {
            let estimator = popfit::Estimator::Huber(1.345);
            Stage::Estimate(Estimate {
                estimator,
                model,
                pixels,
                columns,
                data,
                weight,
            })
        }
    }
}

/// Returns a recording of the stages that lead to a kernel and of the kernel many times, and the cost on paper of all
/// these times together.
fn recording(kernel: &str) -> (Recording, Arm, f64) {
    let mut recording = Recording {
        parameters: parameters(),
        ..Recording::default()
    };
    let arm = arm(&mut recording);
    let label = |p| LabelInput {
        source: Source::Parameter(p),
        transform: Transform::Identity,
        mean: 0.1,
        std: 1.0,
    };
    let inputs = (0..LABELS).map(label).collect();
    let labels = Stage::Labels(Labels {
        inputs,
        output: arm.labels,
        stride: LABELS,
        derivatives: true,
    });
    let (from, hidden, to) = (
        (arm.labels, LABELS),
        (arm.hidden, HIDDEN),
        (arm.template, PIXELS),
    );
    let [hide, last, short] = [(from, hidden), (hidden, to), (from, to)]
        .map(|(input, output)| product(&mut recording, input, output));
    let resample = observe(&mut recording, &arm, "resample");
    let continuum = sums(&arm, "continuum");
    let before = match kernel {
        "step" | "labels" => vec![],
        "product" => vec![labels.clone(), hide],
        "per_pixel" => vec![labels.clone()],
        "activate" | "broaden" | "resolve" | "prefilter" | "resample" => {
            vec![labels.clone(), short]
        }
        _ => vec![labels.clone(), short, resample, continuum],
    };
    let stage = match kernel {
        "step" => None,
        "labels" => Some(labels),
        "product" => Some(last),
        "per_pixel" => Some(per_pixel(&mut recording, &arm)),
        "activate" => Some(activate(&mut recording, &arm)),
        "broaden" | "resolve" | "prefilter" | "resample" => {
            Some(observe(&mut recording, &arm, kernel))
        }
        _ => Some(sums(&arm, kernel)),
    };
    let cost = match &stage {
        Some(stage) => REPEATS as f64 * stage.cost(recording.declared()).operations,
        None => Cost::of_step(recording.parameters.len()).operations,
    };
    recording.stages = std::iter::once(Stage::Prior(Prior::WITHOUT_HULLS))
        .chain(before)
        .collect();
    recording.stages.extend(
        stage
            .into_iter()
            .flat_map(|stage| std::iter::repeat_n(stage, REPEATS)),
    );
    (recording, arm, cost)
}

/// A spectrum each, starts near zero.
fn batch(recording: &Recording, arm: &Arm) -> Batch {
    let (count, all) = (
        recording.parameters.len(),
        MEMBERS * recording.parameters.len(),
    );
    let floats = |count: usize, of: &dyn Fn(usize) -> f32| {
        Values::F32((0..count).map(of).collect::<Vec<_>>().into())
    };
    let basis = |k: usize| ((k / PIXELS) as f32 * (k % PIXELS) as f32 * 7.8e-4).cos();
    let unit = |k: usize| {
        if (k % (TERMS * TERMS)).is_multiple_of(TERMS + 1) {
            1.0
        } else {
            0.0
        }
    };
    let index = (0..PIXELS as i32).collect::<Vec<_>>();
    Batch {
        spectra: MEMBERS,
        blocks: vec![
            (arm.index, Values::I32(index.into())),
            (arm.fraction, floats(PIXELS, &|_| 0.3)),
            (arm.basis.basis, floats(TERMS * PIXELS, &basis)),
            (arm.basis.transform, floats(MEMBERS * TERMS * TERMS, &unit)),
            (arm.data, floats(MEMBERS * PIXELS, &|k| 10.0 + noise(k))),
            (arm.weight, floats(MEMBERS * PIXELS, &|_| 10.0)),
        ],
        lower: vec![-1.0; all],
        upper: vec![1.0; all],
        prior_mean: vec![0.0; all],
        prior_weight: vec![1.0; all],
        group: (0..MEMBERS as u32).collect(),
        starts: (0..all)
            .map(|k| 0.3 * f64::from(noise(k % count + k)))
            .collect(),
        ..Batch::default()
    }
}

/// The CPU, and the first GPU that is not software.
fn devices() -> Vec<(&'static str, Box<dyn Backend>)> {
    let mut all: Vec<(&'static str, Box<dyn Backend>)> = vec![("cpu", Box::new(CpuDevice))];
    #[cfg(feature = "gpu")]
    if let Ok(device) = popfit::low_level::gpu::GpuDevice::hardware() {
        all.push(("gpu", Box::new(device)));
    }
    all
}

fn kernels(c: &mut Criterion) {
    for (kind, device) in devices() {
        println!("{kind}: {}", device.name());
        for kernel in KERNELS {
            let mut group = c.benchmark_group(kernel);
            group
                .sample_size(10)
                .measurement_time(Duration::from_secs(2));
            let (recording, arm, cost) = recording(kernel);
            let batch = batch(&recording, &arm);
            let settings = LevenbergMarquardt::default();
            let mut population = device
                .population(Arc::new(recording), &settings, MEMBERS)
                .expect("a population");
            if cost > 0.0 {
                group.throughput(Throughput::Elements(MEMBERS as u64 * cost as u64));
            }
            group.bench_function(kind, |b| {
                b.iter_custom(|times| {
                    let mut total = Duration::ZERO;
                    for _ in 0..times {
                        pollster::block_on(population.load(&batch)).expect("a batch");
                        let begin = Instant::now();
                        pollster::block_on(population.advance(1)).expect("a round");
                        total += begin.elapsed();
                    }
                    total
                });
            });
            group.finish();
        }
    }
}

criterion_group!(benches, kernels);
criterion_main!(benches);
