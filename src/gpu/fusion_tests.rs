//! Tests of the stages that share a kernel, and that fused kernels leave the same bits as one kernel per stage, for the
//! stages of a spectrum.

use std::sync::Arc;

use super::adapter::{self, AdapterChoice};
use super::context::{GpuContext, Options};
use super::fusion::{AllowedFusions, Fused};
use super::population::GpuPopulation;
use crate::error::Result;
use crate::kernels::product::{Products, TILES, Variant};
use crate::recording::{
    Activate, Activation, Basis, BufferId, Continuum, Interpolation, Kind, LabelInput, Labels,
    Normal, Parameter, Prior, Product, Recording, Resample, Scope, Segment, Source, Stage,
    Transform, Values, Velocity,
};
use crate::solver::{Batch, LevenbergMarquardt, Population};

/// Number of rows of a member: a template and its derivatives.
const ROWS: usize = 5;
const TERMS: usize = 10;
const LABELS: usize = ROWS - 1;
/// Stride of a row of labels.
const STRIDE: usize = 4;

#[derive(Clone, Copy)]
pub(super) struct Size {
    pub members: usize,
    pub hidden: usize,
    pub columns: usize,
    pub pixels: usize,
}

/// Returns the bits that the example's stages leave.
fn run_stages(context: &Arc<GpuContext>, fused: Fused, size: Size) -> Result<Vec<u32>> {
    let (recording, batch) = make_example(size);
    let fusions = context.limit_fusions(fused);
    let settings = LevenbergMarquardt::default();
    let mut population = GpuPopulation::with_fusions(
        context.clone(),
        fusions,
        Arc::new(recording),
        &settings,
        size.members,
    )?;
    pollster::block_on(population.load(&batch))?;
    pollster::block_on(population.run_stages())
}

/// Returns a pseudorandom number from −1 to 1.
fn pseudorandom(k: usize) -> f32 {
    ((k * 7919 + 13) % 1009) as f32 / 504.0 - 1.0
}

/// Returns `count` pseudorandom numbers, each changed by `scale`.
fn numbers(count: usize, scale: impl Fn(f32) -> f32) -> Values {
    Values::F32(
        (0..count)
            .map(|k| scale(pseudorandom(k)))
            .collect::<Vec<_>>()
            .into(),
    )
}

/// Makes a recording and a batch of a network of three layers, resampled at the velocity of each member, with a
/// continuum.
pub(super) fn make_example(size: Size) -> (Recording, Batch) {
    let mut recording = Recording::default();
    for p in 0..=LABELS {
        let scale = if p == 0 { 100.0 } else { 1.0 };
        recording.parameters.push(Parameter {
            name: p.to_string(),
            origin: 0.0,
            scale,
        });
    }
    recording.stages.push(Stage::Prior(Prior::WITHOUT_HULLS));
    let rows = record_layers(&mut recording, size);
    let mut batch = Batch {
        spectra: size.members,
        ..Batch::default()
    };
    record_sums(&mut recording, &mut batch, (rows, size));
    let parameters = size.members * (1 + LABELS);
    batch.lower = vec![-2.0; parameters];
    batch.upper = vec![2.0; parameters];
    batch.prior_mean = vec![0.0; parameters];
    batch.prior_weight = vec![0.0; parameters];
    batch.group = (0..size.members as u32).collect();
    batch.starts = (0..parameters)
        .map(|k| f64::from(pseudorandom(k)))
        .collect();
    (recording, batch)
}

/// Records the stages from the labels to a template, and returns the buffer of its rows.
fn record_layers(recording: &mut Recording, size: Size) -> BufferId {
    let label_input = |p| LabelInput {
        source: Source::Parameter(p),
        transform: Transform::Identity,
        mean: 0.0,
        std: 1.0,
    };
    let mut input = recording.buffer("labels", Scope::Member, Kind::Float, ROWS * STRIDE);
    let inputs = (1..=LABELS).map(label_input).collect();
    recording.stages.push(Stage::Labels(Labels {
        inputs,
        output: input,
        stride: STRIDE,
        derivatives: true,
    }));
    let mut inner = STRIDE;
    for (columns, activation) in [
        (size.hidden, Activation::Silu),
        (size.hidden + 16, Activation::Tanh),
        (size.columns, Activation::Exp { clip: 50.0 }),
    ] {
        let width = 1.0 / inner as f32;
        let weight = recording.constant("weight", numbers(inner * columns, |x| width * x));
        let bias = recording.constant("bias", numbers(columns, |x| 0.1 * x));
        // The second hidden layer has a folded batch norm.
        let affine = (activation == Activation::Tanh).then(|| {
            let scale = recording.constant("scale", numbers(columns, |x| 1.0 + 0.2 * x));
            let offset = recording.constant("offset", numbers(columns, |x| 0.3 * x));
            (scale, offset)
        });
        let output = recording.buffer("rows", Scope::Member, Kind::Float, ROWS * columns);
        let rows = ROWS;
        recording.stages.push(Stage::Product(Product {
            input,
            weight,
            output,
            rows,
            inner,
            columns,
            factor: 1.0,
            added_to: None,
        }));
        let activate = Activate {
            buffer: output,
            bias,
            affine,
            activation,
            rows,
            columns,
        };
        recording.stages.push(Stage::Activate(activate));
        input = output;
        inner = columns;
    }
    input
}

/// Records the stages from a template to a member's sums.
fn record_sums(recording: &mut Recording, batch: &mut Batch, (input, size): (BufferId, Size)) {
    let Size {
        columns, pixels, ..
    } = size;
    let mut fill =
        |recording: &mut Recording, (name, scope), length: usize, of: &dyn Fn(f32) -> f32| {
            let kind = if name == "index" {
                Kind::Index
            } else {
                Kind::Float
            };
            let id = recording.buffer(name, scope, kind, length);
            let blocks = if scope == Scope::Spectrum {
                batch.spectra
            } else {
                1
            };
            let index = || Values::I32((0..length as i32).collect::<Vec<_>>().into());
            let values = if kind == Kind::Index {
                index()
            } else {
                numbers(blocks * length, of)
            };
            batch.blocks.push((id, values));
            id
        };
    let index = fill(recording, ("index", Scope::Batch), pixels, &|_| 0.0);
    let fraction = fill(recording, ("fraction", Scope::Batch), pixels, &|x| {
        0.4 + 0.4 * x
    });
    let data = fill(recording, ("data", Scope::Spectrum), pixels, &|x| 20.0 + x);
    let weight = fill(recording, ("weight", Scope::Spectrum), pixels, &|x| 2.0 + x);
    let basis = fill(recording, ("basis", Scope::Batch), TERMS * pixels, &|x| {
        0.1 * x
    });
    let transform = fill(
        recording,
        ("transform", Scope::Spectrum),
        TERMS * TERMS,
        &|x| 0.1 * x,
    );
    let output = recording.buffer("model", Scope::Member, Kind::Float, (ROWS + 1) * pixels);
    recording.stages.push(Stage::Resample(Resample {
        input,
        input_columns: columns,
        output,
        rows: ROWS,
        pixels,
        index,
        fraction,
        segments: vec![Segment {
            start: 0,
            end: columns,
            inverse_step: 10_000.0,
        }],
        interpolation: Interpolation::Cubic,
        velocity: Velocity::Parameter(0),
        derivatives: true,
    }));
    let basis = Basis {
        terms: TERMS,
        basis,
        transform,
    };
    let solution = recording.buffer("solution", Scope::Member, Kind::Float, TERMS * (TERMS + 1));
    let model = output;
    recording.stages.push(Stage::Continuum(Continuum {
        model,
        pixels,
        data,
        weight,
        basis,
        solution,
        loss: None,
    }));
    recording.stages.push(Stage::Normal(Normal {
        model,
        pixels,
        columns: (0..=LABELS).collect(),
        data,
        weight,
        continuum: Some((basis, solution)),
        loss: None,
    }));
}

/// Five rows per member leave rows of a tile empty, and 31 members leave tiles and chains empty.
const SIZE: Size = Size {
    members: 31,
    hidden: 16,
    columns: 80,
    pixels: 80,
};

#[test]
fn layers_share_a_kernel_where_a_device_allows_it() {
    let (recording, _) = make_example(SIZE);
    let fused = Fused {
        layers: true,
        ..Fused::UNFUSED
    };
    // The hidden layers have two and four constants. The second one has 32 columns, and a workgroup takes three members
    // of five rows.
    let allowed = AllowedFusions {
        fused,
        storage_buffers: 3 + 2 + 4,
        workgroup_bytes: 4 * 32 * 3 * ROWS as u32,
    };
    let count_stages = |fusions: AllowedFusions, full: Variant| -> Vec<usize> {
        let products = Products { full, halves: full };
        let groups = fusions.group_stages(&recording, products);
        groups.iter().map(ExactSizeIterator::len).collect()
    };
    let tiles = TILES[0];
    // The stages are the priors, the labels, three layers of two stages, and three that are not fused.
    assert_eq!(count_stages(allowed, tiles), [2, 4, 2, 1, 1, 1]);
    let apart = [2, 2, 2, 2, 1, 1, 1];
    let fewer_buffers = AllowedFusions {
        storage_buffers: allowed.storage_buffers - 1,
        ..allowed
    };
    assert_eq!(count_stages(fewer_buffers, tiles), apart);
    let less_memory = AllowedFusions {
        workgroup_bytes: allowed.workgroup_bytes - 1,
        ..allowed
    };
    assert_eq!(count_stages(less_memory, tiles), apart);
    let registers = count_stages(allowed, Variant::Registers);
    assert_eq!(registers, [2, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    let inner_rows = allowed.unwritten_buffers(
        &recording,
        Products {
            full: tiles,
            halves: tiles,
        },
    );
    assert_eq!(inner_rows.len(), 1);
}

#[test]
fn fused_kernels_have_the_same_bits_as_single_ones() {
    let Ok((_, adapter)) = adapter::choose_adapter(AdapterChoice::Best) else {
        return;
    };
    let context = Arc::new(GpuContext::open(adapter, Options::default()).unwrap());
    for tiles in TILES {
        let context = Arc::new(context.reopen().unwrap());
        let _ = context.product.set(tiles);
        let expected = run_stages(&context, Fused::UNFUSED, SIZE).unwrap();
        assert!(
            expected
                .iter()
                .filter(|x| f32::from_bits(**x).is_finite())
                .count()
                > 30 * 20
        );
        for fused in Fused::all_choices() {
            assert_eq!(
                run_stages(&context, fused, SIZE).unwrap(),
                expected,
                "{tiles:?}, {fused:?}"
            );
        }
    }
}
