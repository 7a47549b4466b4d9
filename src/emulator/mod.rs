//! Emulators: trained networks that map labels to a rest-frame template.

mod grid;
mod native;
mod payne;

use std::path::Path;

pub use crate::solver::recording::{Activation, Transform};
use crate::error::{Error, Result};
pub use grid::TemplateGrid;

/// A label of an emulator: an input, its unit, its scaling z = (transform(x) − mean) / std and its training range.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    pub name: String,
    pub unit: String,
    pub transform: Transform,
    pub mean: f64,
    pub std: f64,
    pub min: f64,
    pub max: f64,
}

/// A dense layer: `weight` (outputs, inputs) row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    pub inputs: usize,
    pub outputs: usize,
    pub weight: Vec<f32>,
    pub bias: Vec<f32>,
    /// A folded batch norm after the activation: scale and offset.
    pub affine: Option<(Vec<f32>, Vec<f32>)>,
}

/// Network shapes. `w0` (pixels, hidden, labels), `b0` and `w1` (pixels, hidden), `b1` (pixels).
#[derive(Clone, Debug, PartialEq)]
pub enum Network {
    Dense(Vec<Layer>),
    PerPixel { hidden: usize, w0: Vec<f32>, b0: Vec<f32>, w1: Vec<f32>, b1: Vec<f32> },
}

/// Convex hull of the training set: outside where normal · z + offset > 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Hull {
    /// Indices of labels.
    pub axes: Vec<usize>,
    /// (facets, axes + 1): normal, offset.
    pub facets: Vec<f64>,
}

/// A trained network.
#[derive(Clone, Debug, PartialEq)]
pub struct Emulator {
    pub(crate) source: String,
    pub(crate) hash: String,
    pub(crate) labels: Vec<Label>,
    /// Å, vacuum; empty when the file carries none.
    pub(crate) wavelength: Vec<f64>,
    pub(crate) activation: Activation,
    /// `Identity` or `Exp`.
    pub(crate) output: Activation,
    pub(crate) network: Network,
    pub(crate) hulls: Vec<Hull>,
}
