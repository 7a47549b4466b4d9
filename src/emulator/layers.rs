//! A dense network in memory: the parts of which it is made.

use std::ops::RangeInclusive;

use super::{Activation, Emulator, Hull, Label, Layer, Network, Transform};

/// The parts of a dense network, for [`Emulator::from_layers`].
///
/// [`new`](EmulatorLayers::new) takes the parts that every network has. A literal that ends with
/// `..EmulatorLayers::new(labels, activation, layers)` adds others.
#[derive(Clone, Debug)]
pub struct EmulatorLayers {
    /// Name of the network in messages and tables, `"network in memory"` by default.
    pub name: String,
    /// Inputs of the network, in their order.
    pub labels: Vec<Label>,
    /// Layers, from the labels to the pixels.
    pub layers: Vec<Layer>,
    /// Activation of the hidden layers.
    pub activation: Activation,
    /// Function of the last layer's outputs: [`Activation::Identity`] (the default), or [`Activation::Exp`] for a
    /// network of ln flux.
    pub output: Activation,
    /// Wavelengths of the pixels in Å in vacuum; empty (the default) if [`Emulator::with_wavelength`] gives them later.
    pub wavelength: Vec<f64>,
    /// Convex hulls of the training set; none by default.
    pub hulls: Vec<Hull>,
}

impl EmulatorLayers {
    /// Describes a network by labels, hidden activation and layers, with outputs that are the flux, and no wavelengths
    /// or hulls yet.
    pub fn new(labels: Vec<Label>, activation: Activation, layers: Vec<Layer>) -> EmulatorLayers {
        EmulatorLayers {
            name: "network in memory".to_string(),
            labels,
            layers,
            activation,
            output: Activation::Identity,
            wavelength: Vec::new(),
            hulls: Vec::new(),
        }
    }

    /// Returns the emulator of these parts, without checking them and with an empty hash.
    pub(super) fn into_unchecked(self) -> Emulator {
        Emulator {
            source: self.name,
            hash: String::new(),
            labels: self.labels,
            wavelength: self.wavelength,
            activation: self.activation,
            activation_is_assumed: false,
            output: self.output,
            network: Network::Dense(self.layers),
            hulls: self.hulls,
        }
    }
}

impl Label {
    /// Returns a label with this training range (physical) and The Payne's scaling, z = (x − min)/(max − min) − ½.
    pub fn new(
        name: impl Into<String>,
        unit: impl Into<String>,
        range: RangeInclusive<f64>,
    ) -> Label {
        let (min, max) = range.into_inner();
        Label {
            name: name.into(),
            unit: unit.into(),
            transform: Transform::Identity,
            mean: 0.5 * (min + max),
            std: max - min,
            min,
            max,
        }
    }

    /// Sets the scaling z = (x − mean) / std.
    #[must_use]
    pub fn scaled(self, mean: f64, std: f64) -> Label {
        Label {
            transform: Transform::Identity,
            mean,
            std,
            ..self
        }
    }

    /// Sets the scaling z = (log₁₀ x − mean) / std. The training range stays that of x itself.
    #[must_use]
    pub fn scaled_log10(self, mean: f64, std: f64) -> Label {
        Label {
            transform: Transform::Log10,
            mean,
            std,
            ..self
        }
    }
}

impl Layer {
    /// Makes the layer W x + b from a weight (outputs, inputs), row by row, and a bias (outputs).
    pub fn new(weight: impl Into<Vec<f32>>, bias: impl Into<Vec<f32>>) -> Layer {
        let weight = weight.into();
        let bias = bias.into();
        let outputs = bias.len();
        Layer {
            inputs: weight.len() / outputs.max(1),
            outputs,
            weight,
            bias,
            affine: None,
        }
    }

    /// Sets a factor and a summand per output, applied after the activation, as a batch norm does at inference.
    #[must_use]
    pub fn scale_and_offset(
        mut self,
        scale: impl Into<Vec<f32>>,
        offset: impl Into<Vec<f32>>,
    ) -> Layer {
        self.affine = Some((scale.into(), offset.into()));
        self
    }
}

impl std::fmt::Display for Activation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Activation {
    type Err = crate::Error;

    /// Reads the name of a hidden layer's activation.
    fn from_str(name: &str) -> crate::Result<Activation> {
        Activation::of_name(name).ok_or_else(|| {
            let names = Activation::NAMES.iter().map(|(name, _)| *name);
            let hint = crate::suggest::hint(name, names);
            crate::Error::invalid(
                "activation",
                format!("`{name}` is not an activation for hidden layers{hint}"),
            )
        })
    }
}
