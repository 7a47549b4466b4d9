//! The spectral model as a recording: per arm the network, the template at the spectrum's pixels, the continuum and the
//! normal equations.

use std::sync::Arc;

use super::halves::HalfFactors;
use super::observe::{ArmBuffers, ArmLayout, ArmRecorder, RowBuffer, buffer_name};
use super::sampling::padded;
use super::{ModelArm, SpectralModel};
use crate::emulator::{Layer, Network, transpose_padded};
use crate::recording::{
    Activate, BufferId, HullRow, Kind, Labels, PerPixel, Precision, Prior, Product,
    REMAINDER_SCALE, Recording, Scope, Split, Stage, Values, remainder_weights,
};
use crate::solver::Objective;

/// The recording of a spectral model for spectra of one shape.
pub struct SpectralObjective {
    recording: Arc<Recording>,
    pub arms: Vec<ArmBuffers>,
    pub hull_weights: Option<BufferId>,
}

impl Objective for SpectralObjective {
    fn record(&self) -> Recording {
        (*self.recording).clone()
    }
}

impl SpectralObjective {
    /// Records the computing stages of χ², penalty and ln det C with derivatives, for a solver that needs them.
    pub fn new(
        model: &SpectralModel,
        layout: &[ArmLayout],
        precision: Precision,
    ) -> SpectralObjective {
        SpectralObjective::record_stages(model, layout, precision, false)
    }

    /// Records the computing stages of a model: the prior with the hull penalties, then each arm's template and
    /// comparison with data.
    fn record_stages(
        model: &SpectralModel,
        layout: &[ArmLayout],
        precision: Precision,
        values_only: bool,
    ) -> SpectralObjective {
        let mut recording = Recording {
            parameters: model.parameters.iter().map(|p| p.solver.clone()).collect(),
            precision,
            values_only,
            marginalise: model.marginalise,
            caps_cost: true,
            ..Recording::default()
        };
        // 1. Record the prior, with the penalties of the training hulls.
        let first_exposures = first_exposures(model);
        let hulls: Vec<HullRow> = first_exposures.flat_map(hull_rows).collect();
        let hull_weights = if hulls.is_empty() {
            None
        } else {
            let count = hulls.len();
            Some(recording.buffer("hull weights", Scope::Spectrum, Kind::Float, count))
        };
        recording.stages.push(Stage::Prior(Prior {
            hulls,
            weights: hull_weights,
        }));
        // 2. Record the stages of each arm. Several exposures of an arm have the same template.
        let mut arms = Vec::new();
        let exposures = model.exposure_count();
        for (layouts, first) in layout.chunks(exposures).zip((0..).step_by(exposures)) {
            let template = record_template(&mut recording, &model.arms[first]);
            let mut recorder = ArmRecorder::new(&mut recording, model, first, template);
            for (a, layout) in (first..).zip(layouts) {
                arms.push(recorder.record_exposure(a, *layout));
            }
        }
        SpectralObjective {
            recording: Arc::new(recording),
            arms,
            hull_weights,
        }
    }

    /// Returns the recorded stages, shared by all populations of this objective, so that devices compile them once.
    pub fn recording(&self) -> &Arc<Recording> {
        &self.recording
    }

    /// Shares the memory of the network's weights with another objective of the same model, before populations of this
    /// one are made.
    pub fn share_constants(&mut self, other: &SpectralObjective) {
        Arc::make_mut(&mut self.recording).share_constants(&other.recording);
    }

    /// Returns the length of an arm's pixel rows, padding included.
    pub fn padded_pixels(&self, arm: &ArmBuffers) -> usize {
        self.recording.block(arm.weight).length
    }

    /// Records the computing stages of χ², penalty and ln det C without derivatives, for a solver that needs none.
    pub fn evaluation(
        model: &SpectralModel,
        layout: &[ArmLayout],
        precision: Precision,
    ) -> SpectralObjective {
        SpectralObjective::record_stages(model, layout, precision, true)
    }
}

/// Returns the facets of each training hull of an arm's emulator, with the network inputs that are its axes.
fn hull_rows(arm: &ModelArm) -> Vec<HullRow> {
    let rows = arm.emulator.hulls().iter().map(|hull| HullRow {
        labels: hull
            .axes
            .iter()
            .map(|&axis| arm.inputs[axis].clone())
            .collect(),
        facets: hull.facets.clone(),
    });
    rows.collect()
}

/// Returns the first exposure of each arm.
fn first_exposures(model: &SpectralModel) -> impl Iterator<Item = &ModelArm> {
    model.arms.iter().step_by(model.exposure_count())
}

/// Returns the penalty weight √(10 n) of each hull, n being its arm's number of pixels in `pixels`, in all exposures
/// and masked ones included.
pub fn hull_weights(model: &SpectralModel, pixels: &[usize]) -> Vec<f64> {
    let mut weights = Vec::new();
    let pixels_of_arms = pixels.chunks(model.exposure_count());
    for (arm, pixels) in first_exposures(model).zip(pixels_of_arms) {
        let weight = (10.0 * pixels.iter().sum::<usize>() as f64).sqrt();
        weights.extend(arm.emulator.hulls().iter().map(|_| weight));
    }
    weights
}

/// Wraps f32 numbers as shared contents of a constant buffer.
fn f32_values(values: Vec<f32>) -> Values {
    Values::F32(values.into())
}

/// Records the stages that turn parameters into an arm's template: network inputs, then the network; returns the
/// template's rows.
fn record_template(recording: &mut Recording, arm: &ModelArm) -> RowBuffer {
    // 1. Record the network inputs: a row of values, then a row of derivatives per parameter of the arm.
    let derivatives = !recording.values_only;
    let rows = if derivatives {
        1 + arm.tangents().len()
    } else {
        1
    };
    let stride = arm.inputs.len().next_multiple_of(4);
    let buffer = recording.buffer(
        buffer_name(arm, "labels"),
        Scope::Member,
        Kind::Float,
        rows * stride,
    );
    recording.stages.push(Stage::Labels(Labels {
        inputs: arm.inputs.clone(),
        output: buffer,
        stride,
        derivatives,
    }));
    let labels = RowBuffer {
        buffer,
        rows,
        columns: stride,
    };
    // 2. Record the network.
    match &arm.emulator.network {
        Network::Dense(layers) => record_dense(recording, arm, layers, labels),
        Network::PerPixel { .. } => record_per_pixel(recording, arm, labels),
    }
}

/// Records the stages of a network of dense layers whose inputs are `labels`; returns the rows of the template.
fn record_dense(
    recording: &mut Recording,
    arm: &ModelArm,
    layers: &[Layer],
    labels: RowBuffer,
) -> RowBuffer {
    let RowBuffer {
        buffer: mut input,
        rows,
        columns: mut inner,
    } = labels;
    for (k, layer) in layers.iter().enumerate() {
        let is_last = k + 1 == layers.len();
        let name = |contents: &str| format!("{}.layer.{k}.{contents}", arm.name);
        // 1. Store the weights, padded. A growing vector would take twice the memory.
        let columns = padded(layer.outputs);
        let mut weights = transpose_padded(&layer.weight, layer.inputs, columns);
        weights.reserve_exact((inner * columns).saturating_sub(weights.len()));
        weights.resize(inner * columns, 0.0);
        // 2. In mixed precision, the last layer multiplies f16 numbers if its factors fit. The product of what their
        //    rounding left of the values is added below.
        let half_factors = if recording.precision == Precision::Mixed && is_last && k > 0 {
            HalfFactors::new(&layers[..k], arm.emulator.activation, &weights)
        } else {
            None
        };
        let mut remainder = None;
        let weight = if let Some(factors) = half_factors {
            weights
                .iter_mut()
                .for_each(|weight| *weight *= factors.weight);
            let mut half_buffer = |contents, length| {
                recording.buffer(name(contents), Scope::Member, Kind::Half, length)
            };
            let split = Split {
                input,
                halves: half_buffer("halves", rows * inner),
                remainder: half_buffer("remainder", 2 * inner),
                rows,
                columns: inner,
                factor: factors.input,
            };
            input = split.halves;
            recording.stages.push(Stage::Split(split));
            let values = f32_values(remainder_weights(&weights));
            let remainder_weight = recording.half_constant(name("remainder weight"), values);
            remainder = Some((split.remainder, remainder_weight));
            recording.half_constant(name("weight"), f32_values(weights))
        } else {
            recording.constant(name("weight"), f32_values(weights))
        };
        // 3. Record the product with the weights, then bias, affine map and activation.
        let bias = recording.constant(
            name("bias"),
            f32_values(pad_with_zeros(&layer.bias, columns)),
        );
        let affine = layer.affine.as_ref().map(|(scale, offset)| {
            let scale = f32_values(pad_with_zeros(scale, columns));
            let scale = recording.constant(name("scale"), scale);
            let offset = f32_values(pad_with_zeros(offset, columns));
            (scale, recording.constant(name("offset"), offset))
        });
        let output = recording.buffer(name("rows"), Scope::Member, Kind::Float, rows * columns);
        recording.stages.push(Stage::Product(Product {
            input,
            weight,
            output,
            rows,
            inner,
            columns,
            factor: half_factors.map_or(1.0, |factors| factors.product),
            added_to: None,
        }));
        if let (Some((input, weight)), Some(factors)) = (remainder, half_factors) {
            recording.stages.push(Stage::Product(Product {
                input,
                weight,
                output,
                rows: 1,
                inner: 2 * inner,
                columns,
                factor: factors.product / REMAINDER_SCALE,
                added_to: Some(rows),
            }));
        }
        let activation = if is_last {
            arm.emulator.output
        } else {
            arm.emulator.activation
        };
        recording.stages.push(Stage::Activate(Activate {
            buffer: output,
            bias,
            affine,
            activation,
            rows,
            columns,
        }));
        input = output;
        inner = columns;
    }
    RowBuffer {
        buffer: input,
        rows,
        columns: inner,
    }
}

/// Returns a copy of the values, padded with zeros to `columns` elements.
fn pad_with_zeros(values: &[f32], columns: usize) -> Vec<f32> {
    let mut padded_values = values.to_vec();
    padded_values.resize(columns, 0.0);
    padded_values
}

/// Records the stage of an emulator with one small network per pixel; returns the rows of the template.
fn record_per_pixel(recording: &mut Recording, arm: &ModelArm, labels: RowBuffer) -> RowBuffer {
    let Network::PerPixel {
        hidden,
        w0,
        b0,
        w1,
        b1,
    } = &arm.emulator.network
    else {
        return labels;
    };
    let RowBuffer {
        buffer: input,
        rows,
        columns: input_stride,
    } = labels;
    let labels = arm.inputs.len();
    let columns = padded(arm.emulator.pixels());
    // The weights of a pixel are adjacent in the file, those of adjacent pixels on the device.
    let transpose =
        |values: &[f32], width: usize| f32_values(transpose_padded(values, width, columns));
    let stage = PerPixel {
        input,
        input_stride,
        labels,
        hidden: *hidden,
        w0: recording.constant(buffer_name(arm, "w0"), transpose(w0, hidden * labels)),
        b0: recording.constant(buffer_name(arm, "b0"), transpose(b0, *hidden)),
        w1: recording.constant(buffer_name(arm, "w1"), transpose(w1, *hidden)),
        b1: recording.constant(
            buffer_name(arm, "b1"),
            f32_values(pad_with_zeros(b1, columns)),
        ),
        activation: arm.emulator.activation,
        output: recording.buffer(
            buffer_name(arm, "template"),
            Scope::Member,
            Kind::Float,
            rows * columns,
        ),
        rows,
        columns,
    };
    let output = stage.output;
    recording.stages.push(Stage::PerPixel(stage));
    RowBuffer {
        buffer: output,
        rows,
        columns,
    }
}
