//! The spectral model as a recording: hidden layers, template, observe, continuum, normal equations, arm by arm.

use std::sync::Arc;

use super::observe::{ArmBuffers, ArmLayout, Rows, record_spectrum};
use super::sampling::padded;
use super::{ModelArm, SpectralModel};
use crate::emulator::{Layer, Network, transpose_padded};
use crate::recording::{
    Activate, BufferId, HullRow, Kind, Labels, Narrow, PerPixel, Precision, Prior, Product,
    Recording, Scope, Stage, Values,
};
use crate::solver::Objective;

/// A spectral model for spectra of one shape.
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
        SpectralObjective::recorded(model, layout, precision, false)
    }

    /// Records the computing stages of a model: the prior with the hull penalties, then each arm's template and
    /// comparison with data.
    fn recorded(
        model: &SpectralModel,
        layout: &[ArmLayout],
        precision: Precision,
        values_only: bool,
    ) -> SpectralObjective {
        let parameters = model.parameters.iter().map(|p| p.solver.clone()).collect();
        let marginalise = model.marginalise;
        let mut recording = Recording {
            parameters,
            precision,
            values_only,
            marginalise,
            caps_cost: precision != Precision::Mixed,
            ..Recording::default()
        };
        let hulls: Vec<HullRow> = model.arms.iter().flat_map(hulls).collect();
        let count = hulls.len();
        let buffer = (count > 0)
            .then(|| recording.buffer("hull weights", Scope::Spectrum, Kind::Float, count));
        recording.stages.push(Stage::Prior(Prior {
            hulls,
            weights: buffer,
        }));
        let arms = model.arms.iter().zip(layout).map(|(arm, layout)| {
            let template = record_template(&mut recording, arm);
            record_spectrum(&mut recording, model, arm, *layout, template)
        });
        let arms = arms.collect();
        SpectralObjective {
            recording: Arc::new(recording),
            arms,
            hull_weights: buffer,
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
    pub fn pixels(&self, arm: &ArmBuffers) -> usize {
        self.recording.block(arm.weight).length
    }

    /// Records the computing stages of χ², penalty and ln det C without derivatives, for a solver that needs none.
    pub fn evaluation(
        model: &SpectralModel,
        layout: &[ArmLayout],
        precision: Precision,
    ) -> SpectralObjective {
        SpectralObjective::recorded(model, layout, precision, true)
    }
}

/// Returns the facets of each training hull of an arm's emulator, with the network inputs that are its axes.
fn hulls(arm: &ModelArm) -> Vec<HullRow> {
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

/// Returns the penalty weight √(10 n) of each hull, n being its arm's number of pixels in `pixels`, masked ones
/// included.
pub fn hull_weights(model: &SpectralModel, pixels: &[usize]) -> Vec<f64> {
    let of_arm =
        |(arm, n): (&ModelArm, &usize)| vec![(10.0 * *n as f64).sqrt(); arm.emulator.hulls().len()];
    model.arms.iter().zip(pixels).flat_map(of_arm).collect()
}

/// Wraps f32 numbers as shared contents of a constant buffer.
fn floats(values: Vec<f32>) -> Values {
    Values::F32(values.into())
}

/// Records the stages that turn parameters into an arm's template: network inputs, then the network; returns the
/// template's rows.
fn record_template(recording: &mut Recording, arm: &ModelArm) -> Rows {
    let derivatives = !recording.values_only;
    let rows = if derivatives {
        1 + arm.tangents().len()
    } else {
        1
    };
    let stride = arm.inputs.len().next_multiple_of(4);
    let name = |what: &str| format!("{}.{what}", arm.name);
    let labels = recording.buffer(name("labels"), Scope::Member, Kind::Float, rows * stride);
    recording.stages.push(Stage::Labels(Labels {
        inputs: arm.inputs.clone(),
        output: labels,
        stride,
        derivatives,
    }));
    let labels = Rows {
        buffer: labels,
        rows,
        columns: stride,
    };
    match &arm.emulator.network {
        Network::Dense(layers) => record_dense(recording, arm, layers, labels),
        Network::PerPixel { .. } => record_per_pixel(recording, arm, labels),
    }
}

/// Records the stages of a network of dense layers whose inputs are `labels`; returns the rows of the template.
fn record_dense(recording: &mut Recording, arm: &ModelArm, layers: &[Layer], labels: Rows) -> Rows {
    let Rows {
        buffer: mut input,
        rows,
        columns: mut inner,
    } = labels;
    for (k, layer) in layers.iter().enumerate() {
        let last = k + 1 == layers.len();
        let name = |what: &str| format!("{}.layer.{k}.{what}", arm.name);
        let columns = padded(layer.outputs);
        let mut weights = transpose_padded(&layer.weight, layer.inputs, columns);
        // a vector that grows would take twice the memory
        weights.reserve_exact((inner * columns).saturating_sub(weights.len()));
        weights.resize(inner * columns, 0.0);
        let in_halves =
            recording.precision == Precision::Mixed && last && k > 0 && fit_halves(&weights);
        let weight = if in_halves {
            let narrow = recording.buffer(name("halves"), Scope::Member, Kind::Half, rows * inner);
            recording.stages.push(Stage::Narrow(Narrow {
                input,
                output: narrow,
                length: rows * inner,
            }));
            input = narrow;
            recording.half_constant(name("weight"), floats(weights))
        } else {
            recording.constant(name("weight"), floats(weights))
        };
        let bias = recording.constant(name("bias"), floats(extended(&layer.bias, columns)));
        let affine = layer.affine.as_ref().map(|(scale, offset)| {
            let scale = recording.constant(name("scale"), floats(extended(scale, columns)));
            (
                scale,
                recording.constant(name("offset"), floats(extended(offset, columns))),
            )
        });
        let output = recording.buffer(name("rows"), Scope::Member, Kind::Float, rows * columns);
        recording.stages.push(Stage::Product(Product {
            input,
            weight,
            output,
            rows,
            inner,
            columns,
        }));
        let activation = if last {
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
        (input, inner) = (output, columns);
    }
    Rows {
        buffer: input,
        rows,
        columns: inner,
    }
}

/// Returns whether every value stays finite when rounded to f16.
fn fit_halves(values: &[f32]) -> bool {
    values.iter().all(|x| half::f16::from_f32(*x).is_finite())
}

/// Returns a copy of the values, padded with zeros to `columns` elements.
fn extended(values: &[f32], columns: usize) -> Vec<f32> {
    let mut out = values.to_vec();
    out.resize(columns, 0.0);
    out
}

/// Records the stage of an emulator with one small network per pixel; returns the rows of the template.
fn record_per_pixel(recording: &mut Recording, arm: &ModelArm, input: Rows) -> Rows {
    let Network::PerPixel {
        hidden,
        w0,
        b0,
        w1,
        b1,
    } = &arm.emulator.network
    else {
        return input;
    };
    let Rows {
        buffer: input,
        rows,
        columns: input_stride,
    } = input;
    let (pixels, labels) = (arm.emulator.pixels(), arm.inputs.len());
    let columns = padded(pixels);
    // pixel-major in the file, pixel fastest on the device
    let flip = |values: &[f32], width: usize| floats(transpose_padded(values, width, columns));
    let name = |what: &str| format!("{}.{what}", arm.name);
    let stage = PerPixel {
        input,
        input_stride,
        labels,
        hidden: *hidden,
        w0: recording.constant(name("w0"), flip(w0, hidden * labels)),
        b0: recording.constant(name("b0"), flip(b0, *hidden)),
        w1: recording.constant(name("w1"), flip(w1, *hidden)),
        b1: recording.constant(name("b1"), floats(extended(b1, columns))),
        activation: arm.emulator.activation,
        output: recording.buffer(name("template"), Scope::Member, Kind::Float, rows * columns),
        rows,
        columns,
    };
    let output = stage.output;
    recording.stages.push(Stage::PerPixel(stage));
    Rows {
        buffer: output,
        rows,
        columns,
    }
}
