//! What every network must satisfy, wherever it came from.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::collections::HashSet;

use super::{Emulator, Hull, Label, Layer, Network, Transform};
use crate::error::{Error, Result};
use crate::rows::bad_wavelength;

impl Emulator {
    /// Shapes chain, nothing is empty, weights are finite, scalings and ranges make sense.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.labels.is_empty() || self.pixels() == 0 {
            return Err("a network without labels or without pixels".to_string());
        }
        names(&self.labels)?;
        self.labels.iter().try_for_each(label)?;
        match &self.network {
            Network::Dense(layers) => dense(layers, self.labels.len())?,
            Network::PerPixel { hidden, w0, b0, w1, b1 } => {
                per_pixel([*hidden, self.labels.len(), b1.len()], [w0, b0, w1, b1])?;
            }
        }
        if !self.wavelength.is_empty() && self.wavelength.len() != self.pixels() {
            let (found, pixels) = (self.wavelength.len(), self.pixels());
            return Err(format!("ShapeMismatch: wavelength has {found} values, the network {pixels} pixels"));
        }
        self.hulls.iter().enumerate().try_for_each(|(k, h)| hull(k, h, self.labels.len()))
    }
}

/// Å: finite, positive and strictly increasing.
pub(super) fn wavelength(values: &[f64], what: &str) -> Result<()> {
    match bad_wavelength(values) {
        Some((index, message)) => Err(Error::BadWavelength { what: what.to_string(), index, message }),
        None => Ok(()),
    }
}

/// Names are distinct and not empty.
pub(super) fn names(labels: &[Label]) -> Result<(), String> {
    let mut seen = HashSet::new();
    match labels.iter().find(|l| l.name.is_empty() || !seen.insert(&l.name)) {
        Some(label) => Err(format!("label name `{}` is empty or repeated", label.name)),
        None => Ok(()),
    }
}

fn label(label: &Label) -> Result<(), String> {
    let Label { name, transform, mean, std, min, max, .. } = label;
    if !(mean.is_finite() && std.is_finite() && *std > 0.0) {
        return Err(format!("label {name}: mean {mean} and std {std} are no scaling"));
    }
    if !(min.is_finite() && max.is_finite() && min < max) {
        return Err(format!("label {name}: {min} to {max} is no training range"));
    }
    if *transform == Transform::Log10 && *min <= 0.0 {
        return Err(format!("label {name}: the logarithm of {min} is needed"));
    }
    Ok(())
}

fn dense(layers: &[Layer], labels: usize) -> Result<(), String> {
    let mut inputs = labels;
    for (k, layer) in layers.iter().enumerate() {
        let outputs = layer.outputs;
        if layer.inputs != inputs || outputs == 0 {
            let found = layer.inputs;
            return Err(format!("ShapeMismatch: layer {k} is {found} → {outputs}, but {inputs} numbers enter it"));
        }
        let affine = layer.affine.iter().flat_map(|(scale, offset)| [("scale", scale), ("offset", offset)]);
        for (name, vector) in affine.chain([("bias", &layer.bias)]) {
            if vector.len() != outputs {
                return Err(format!("ShapeMismatch: layer {k} has {outputs} outputs, its {name} {}", vector.len()));
            }
            finite(&format!("layer {k}: {name}"), vector)?;
        }
        if inputs.checked_mul(outputs) != Some(layer.weight.len()) {
            return Err(format!("ShapeMismatch: layer {k} has {} weights", layer.weight.len()));
        }
        finite(&format!("layer {k}: weight"), &layer.weight)?;
        inputs = outputs;
    }
    Ok(())
}

fn per_pixel([hidden, labels, pixels]: [usize; 3], [w0, b0, w1, b1]: [&Vec<f32>; 4]) -> Result<(), String> {
    let rows = pixels.checked_mul(hidden).filter(|&n| n > 0).ok_or("no hidden units")?;
    let expected =
        [("w_array_0", w0, rows.checked_mul(labels)), ("b_array_0", b0, Some(rows)), ("w_array_1", w1, Some(rows))];
    for (name, array, length) in expected {
        if Some(array.len()) != length {
            let shape = format!("{pixels} pixels, {hidden} hidden units and {labels} labels");
            return Err(format!("ShapeMismatch: {name} has {} values, for {shape}", array.len()));
        }
        finite(name, array)?;
    }
    finite("b_array_1", b1)
}

fn finite(name: &str, values: &[f32]) -> Result<(), String> {
    match values.iter().position(|x| !x.is_finite()) {
        Some(index) => Err(format!("{name}: value {index} is not finite in f32")),
        None => Ok(()),
    }
}

fn hull(k: usize, hull: &Hull, labels: usize) -> Result<(), String> {
    let Hull { axes, facets } = hull;
    let distinct: HashSet<_> = axes.iter().collect();
    if axes.is_empty() || distinct.len() != axes.len() || axes.iter().any(|&axis| axis >= labels) {
        return Err(format!("hull {k}: axes {axes:?} among {labels} labels"));
    }
    if facets.is_empty() || facets.len() % (axes.len() + 1) != 0 || facets.iter().any(|x| !x.is_finite()) {
        return Err(format!("hull {k}: its facets are not finite rows of {}", axes.len() + 1));
    }
    Ok(())
}
