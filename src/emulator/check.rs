//! Requirements that every network must satisfy, from a file or from memory.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::collections::HashSet;

use super::{Activation, Emulator, Hull, Label, Layer, Network, TemplateGrid, Transform};
use crate::error::{Error, Result};
use crate::math::bad_wavelength;
use crate::names::check_name;

impl Emulator {
    /// Checks a network's labels, shapes, weights, hulls and wavelengths; `fault` turns a message about any but the
    /// wavelengths into the error.
    pub(super) fn check(&self, fault: impl Fn(String) -> Error) -> Result<()> {
        self.check_network().map_err(fault)?;
        check_wavelength(&self.wavelength, &self.source)
    }

    /// Checks that layers fit each other, nothing is empty, weights are finite, and labels' scalings and training
    /// ranges are valid.
    fn check_network(&self) -> Result<(), String> {
        // 1. Labels and activations.
        if self.labels.is_empty() {
            return Err("the network has no labels".to_string());
        }
        if self.pixels() == 0 {
            return Err("the network has no pixels".to_string());
        }
        check_activations(self.activation, self.output)?;
        check_names(&self.labels)?;
        self.labels.iter().try_for_each(check_label)?;
        // 2. Weights.
        match &self.network {
            Network::Dense(layers) => check_dense(layers, self.labels.len())?,
            Network::PerPixel {
                hidden,
                w0,
                b0,
                w1,
                b1,
            } => {
                check_per_pixel([*hidden, self.labels.len(), b1.len()], [w0, b0, w1, b1])?;
            }
        }
        // 3. Wavelengths and hulls.
        if !self.wavelength.is_empty() && self.wavelength.len() != self.pixels() {
            return Err(format!(
                "`wavelength` has {} values, but the network has {} pixels",
                self.wavelength.len(),
                self.pixels()
            ));
        }
        self.hulls
            .iter()
            .enumerate()
            .try_for_each(|(k, hull)| check_hull(k, hull, self.labels.len()))
    }
}

/// Checks a grid in Å: finite, positive, strictly increasing, and uniform in ln λ in pieces. An empty grid is
/// valid, because it may be set later.
pub(super) fn check_wavelength(values: &[f64], what: &str) -> Result<()> {
    if values.is_empty() {
        return Ok(());
    }
    if let Some((index, message)) = bad_wavelength(values) {
        return Err(Error::BadWavelength {
            what: what.to_string(),
            index,
            message,
        });
    }
    TemplateGrid::from_wavelengths(values, what).map(|_| ())
}

/// Fails unless the hidden activation has a name in files and the output is the identity or an exponential with a
/// positive clip.
fn check_activations(activation: Activation, output: Activation) -> Result<(), String> {
    if Activation::of_name(activation.name()) != Some(activation) {
        let names: Vec<&str> = Activation::NAMES.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "{} is not an activation for hidden layers (known: {})",
            activation.name(),
            names.join(", ")
        ));
    }
    match output {
        Activation::Identity => Ok(()),
        Activation::Exp { clip } if clip.is_finite() && clip > 0.0 => Ok(()),
        Activation::Exp { clip } => Err(format!(
            "the clip of the output is {clip}: expected a positive number"
        )),
        other => Err(format!(
            "{} is no function of the output layer (known: identity, exp)",
            other.name()
        )),
    }
}

/// Fails if a label's name is empty or the same as another's, or if files and terminals cannot show a name or a unit.
pub(super) fn check_names(labels: &[Label]) -> Result<(), String> {
    for label in labels {
        check_name("name of a label", &label.name)?;
        check_name("unit of a label", &label.unit)?;
    }
    let mut distinct_names = HashSet::new();
    match labels
        .iter()
        .find(|label| label.name.is_empty() || !distinct_names.insert(&label.name))
    {
        Some(label) => Err(format!(
            "label name `{}` is empty or repeated: each label needs a name of its own",
            label.name
        )),
        None => Ok(()),
    }
}

/// Fails unless a label's std is positive, min is below max and all four numbers are finite; with log₁₀, min must be
/// positive.
fn check_label(label: &Label) -> Result<(), String> {
    let Label {
        name,
        transform,
        mean,
        std,
        min,
        max,
        ..
    } = label;
    if !(mean.is_finite() && std.is_finite() && *std > 0.0) {
        return Err(format!(
            "label {name}: mean {mean} and std {std} do not make a scaling: both must be finite, and std positive"
        ));
    }
    if !(min.is_finite() && max.is_finite() && min < max) {
        return Err(format!(
            "label {name}: {min} to {max} is not a training range: min must be below max"
        ));
    }
    if *transform == Transform::Log10 && *min <= 0.0 {
        return Err(format!(
            "label {name}: its transform is log10, so min must be positive, not {min}"
        ));
    }
    Ok(())
}

/// Fails unless each layer takes as many inputs as the one before has outputs, its arrays have matching lengths, and
/// all are finite.
fn check_dense(layers: &[Layer], labels: usize) -> Result<(), String> {
    let mut inputs = labels;
    for (k, layer) in layers.iter().enumerate() {
        // 1. The shape.
        let outputs = layer.outputs;
        if layer.inputs != inputs || outputs == 0 {
            let layer_inputs = layer.inputs;
            let source = if k == 0 {
                "labels"
            } else {
                "outputs of the layer before"
            };
            let hint = if outputs == inputs {
                "; is the weight transposed? It must be (outputs, inputs)"
            } else {
                ""
            };
            return Err(format!(
                "layer {k} is {layer_inputs} → {outputs}, but {inputs} numbers enter it, the {source}{hint}"
            ));
        }
        // 2. The vectors with one number per output.
        let affine = layer
            .affine
            .iter()
            .flat_map(|(scale, offset)| [("scale", scale), ("offset", offset)]);
        for (name, vector) in affine.chain([("bias", &layer.bias)]) {
            if vector.len() != outputs {
                return Err(format!(
                    "layer {k} has {outputs} outputs, but its {name} has {} numbers: expected {outputs}",
                    vector.len()
                ));
            }
            check_finite(&format!("layer {k}: {name}"), vector)?;
        }
        // 3. The weights.
        if inputs.checked_mul(outputs) != Some(layer.weight.len()) {
            let expected = inputs.saturating_mul(outputs);
            return Err(format!(
                "layer {k} has {} weights: expected {expected}, for {outputs} outputs of {inputs} inputs",
                layer.weight.len()
            ));
        }
        check_finite(&format!("layer {k}: weight"), &layer.weight)?;
        inputs = outputs;
    }
    Ok(())
}

/// Fails unless the weights of a network per pixel have the lengths that their shapes need and are finite.
fn check_per_pixel(
    [hidden, labels, pixels]: [usize; 3],
    [w0, b0, w1, b1]: [&Vec<f32>; 4],
) -> Result<(), String> {
    let rows = pixels
        .checked_mul(hidden)
        .filter(|&n| n > 0)
        .ok_or("no hidden units")?;
    let expected = [
        ("w_array_0", w0, rows.checked_mul(labels)),
        ("b_array_0", b0, Some(rows)),
        ("w_array_1", w1, Some(rows)),
    ];
    for (name, array, length) in expected {
        if Some(array.len()) != length {
            let shape = format!("{pixels} pixels, {hidden} hidden units and {labels} labels");
            return Err(format!(
                "`{name}` has {} values, which do not fit {shape}",
                array.len()
            ));
        }
        check_finite(name, array)?;
    }
    check_finite("b_array_1", b1)
}

/// Fails with the array's name and the first index whose value is not finite.
fn check_finite(name: &str, values: &[f32]) -> Result<(), String> {
    match values.iter().position(|x| !x.is_finite()) {
        Some(index) => Err(format!("{name}: value {index} is not finite in f32")),
        None => Ok(()),
    }
}

/// Fails unless hull `k` has different axes among the labels and whole, finite rows of facet coefficients.
fn check_hull(k: usize, hull: &Hull, labels: usize) -> Result<(), String> {
    let Hull { axes, facets } = hull;
    let distinct_axes: HashSet<_> = axes.iter().collect();
    if axes.is_empty()
        || distinct_axes.len() != axes.len()
        || axes.iter().any(|&axis| axis >= labels)
    {
        return Err(format!(
            "hull {k} acts on the labels {axes:?}: expected different indices from 0 to {}",
            labels - 1
        ));
    }
    if facets.is_empty()
        || facets.len() % (axes.len() + 1) != 0
        || facets.iter().any(|x| !x.is_finite())
    {
        return Err(format!(
            "hull {k} has {} facet numbers: expected finite rows of {}",
            facets.len(),
            axes.len() + 1
        ));
    }
    Ok(())
}
