//! The network on the host: scaled labels, hull distances, and templates, which the CPU device's kernels compute. First
//! guesses, plots and checks use it; fits evaluate the network on a device.

use super::{Emulator, Label, Layer, Network, Transform};
use crate::kernels::{activate, per_pixel};
use crate::math::product::Packed;

/// Share of a label's training range by which a sum of tied labels may miss its end.
const RANGE_ROUNDING: f64 = 1e-9;

impl Label {
    /// Scales a physical label value to the network's input, z = (transform(x) − mean) / std.
    fn scale_value(&self, x: f64) -> f64 {
        let transformed = match self.transform {
            Transform::Identity => x,
            Transform::Log10 => x.log10(),
        };
        (transformed - self.mean) / self.std
    }
}

impl Emulator {
    /// Returns z = (transform(x) − mean) / std for rows of `labels`, (n, labels) in physical units; the same shape
    /// comes out.
    #[doc(hidden)]
    pub fn scaled(&self, labels: &[f64]) -> Vec<f64> {
        labels
            .iter()
            .zip(self.labels.iter().cycle())
            .map(|(x, label)| label.scale_value(*x))
            .collect()
    }

    /// Returns the largest facet distance of one scaled label vector over all hulls: positive outside, −∞ without
    /// hulls.
    #[doc(hidden)]
    pub fn outside(&self, z: &[f64]) -> f64 {
        let mut largest_distance = f64::NEG_INFINITY;
        for hull in &self.hulls {
            for facet in hull.facets.chunks_exact(hull.axes.len() + 1) {
                let (normal, offset) = facet.split_at(hull.axes.len());
                let distance = normal
                    .iter()
                    .zip(&hull.axes)
                    .map(|(n, &axis)| n * z[axis])
                    .sum::<f64>()
                    + offset[0];
                // A NaN label is outside.
                largest_distance = if distance.is_nan() {
                    f64::INFINITY
                } else {
                    largest_distance.max(distance)
                };
            }
        }
        largest_distance
    }

    /// Returns whether a label vector, in physical units, lies outside the training set: outside a hull, or, by a label
    /// that no hull covers, outside that label's training range. A NaN label is outside.
    pub(crate) fn extrapolates(&self, labels: &[f64]) -> bool {
        let leaves_range = self.uncovered_labels().any(|k| {
            let label = &self.labels[k];
            let rounding = RANGE_ROUNDING * (label.max - label.min);
            !(label.min - rounding..=label.max + rounding).contains(&labels[k])
        });
        leaves_range || self.outside(&self.scaled(labels)) > 0.0
    }

    /// Returns the indices of the labels that are no axis of a hull, so that only their training ranges bound them.
    #[doc(hidden)]
    pub fn uncovered_labels(&self) -> impl Iterator<Item = usize> {
        let is_covered = |k: &usize| self.hulls.iter().any(|hull| hull.axes.contains(k));
        (0..self.labels.len()).filter(move |k| !is_covered(k))
    }

    /// Computes templates (n, pixels) for rows of `labels`, (n, labels) in physical units; one matrix product per
    /// layer.
    pub fn templates(&self, labels: &[f64]) -> Vec<f32> {
        self.evaluator().templates(labels)
    }

    /// Returns the network of some of its pixels. It keeps the hash of the whole one.
    pub(crate) fn select_pixels(&self, pixels: &[usize]) -> Emulator {
        let select_rows = |values: &[f32], width: usize| -> Vec<f32> {
            let rows = pixels.iter().map(|pixel| &values[pixel * width..][..width]);
            rows.flatten().copied().collect()
        };
        let network = match &self.network {
            Network::Dense(layers) => {
                let mut selected = layers.clone();
                if let Some(last) = selected.last_mut() {
                    last.outputs = pixels.len();
                    last.weight = select_rows(&last.weight, last.inputs);
                    last.bias = select_rows(&last.bias, 1);
                    if let Some((scale, offset)) = &mut last.affine {
                        *scale = select_rows(scale, 1);
                        *offset = select_rows(offset, 1);
                    }
                }
                Network::Dense(selected)
            }
            Network::PerPixel {
                hidden,
                w0,
                b0,
                w1,
                b1,
            } => Network::PerPixel {
                hidden: *hidden,
                w0: select_rows(w0, hidden * self.labels.len()),
                b0: select_rows(b0, *hidden),
                w1: select_rows(w1, *hidden),
                b1: select_rows(b1, 1),
            },
        };
        let wavelength = pixels
            .iter()
            .filter_map(|pixel| self.wavelength.get(*pixel));
        Emulator {
            source: self.source.clone(),
            hash: self.hash.clone(),
            labels: self.labels.clone(),
            wavelength: wavelength.copied().collect(),
            activation: self.activation,
            activation_is_assumed: self.activation_is_assumed,
            output: self.output,
            network,
            hulls: self.hulls.clone(),
        }
    }

    /// Rearranges the weights once, so that several calls of [`Evaluator::templates`] are fast.
    pub(crate) fn evaluator(&self) -> Evaluator<'_> {
        let weights = match &self.network {
            Network::Dense(layers) => {
                let packed = layers
                    .iter()
                    .map(|layer| Packed::transposed(&layer.weight, layer.outputs, layer.inputs));
                PackedWeights::Dense(packed.collect())
            }
            Network::PerPixel {
                hidden,
                w0,
                b0,
                w1,
                b1,
            } => {
                let columns = b1.len();
                PackedWeights::PerPixel {
                    w0: transpose_padded(w0, hidden * self.labels.len(), columns),
                    b0: transpose_padded(b0, *hidden, columns),
                    w1: transpose_padded(w1, *hidden, columns),
                }
            }
        };
        Evaluator {
            emulator: self,
            weights,
        }
    }
}

/// A network with its weights in the layouts of the CPU device's kernels.
pub(crate) struct Evaluator<'a> {
    emulator: &'a Emulator,
    weights: PackedWeights,
}

/// Weights in the layouts of the CPU device's kernels.
enum PackedWeights {
    /// By layer.
    Dense(Vec<Packed<f32>>),
    /// (hidden, labels, pixels), (hidden, pixels), (hidden, pixels)
    PerPixel {
        w0: Vec<f32>,
        b0: Vec<f32>,
        w1: Vec<f32>,
    },
}

impl Evaluator<'_> {
    /// Computes templates (n, pixels) for rows of `labels`, (n, labels) in physical units, with weights rearranged
    /// before. A row has the same bits in any call.
    pub fn templates(&self, labels: &[f64]) -> Vec<f32> {
        let z: Vec<f32> = self
            .emulator
            .scaled(labels)
            .iter()
            .map(|&z| z as f32)
            .collect();
        match (&self.emulator.network, &self.weights) {
            (Network::Dense(layers), PackedWeights::Dense(packed)) => {
                self.evaluate_dense(layers, packed, z)
            }
            (Network::PerPixel { hidden, b1, .. }, PackedWeights::PerPixel { w0, b0, w1 }) => {
                let columns = b1.len();
                let labels = self.emulator.labels.len();
                let mut flux = vec![0.0; z.len() / labels * columns];
                for (input, output) in z.chunks_exact(labels).zip(flux.chunks_exact_mut(columns)) {
                    per_pixel::PerPixelRows {
                        rows: 1,
                        columns,
                        hidden: *hidden,
                        labels,
                        input_stride: labels,
                        activation: self.emulator.activation,
                        input,
                        w0,
                        b0,
                        w1,
                        b1,
                        output,
                    }
                    .run_vectorised();
                }
                flux
            }
            _ => Vec::new(),
        }
    }

    /// Computes h ← scale · σ(W h + b) + offset for each layer, with the output function as σ of the last, as on
    /// devices.
    fn evaluate_dense(&self, layers: &[Layer], packed: &[Packed<f32>], z: Vec<f32>) -> Vec<f32> {
        let mut values = z;
        for (k, (layer, packed)) in layers.iter().zip(packed).enumerate() {
            values = packed.product(&values);
            let activation = if k + 1 < layers.len() {
                self.emulator.activation
            } else {
                self.emulator.output
            };
            let affine = layer
                .affine
                .as_ref()
                .map(|(scale, offset)| (&scale[..], &offset[..]));
            for block in values.chunks_exact_mut(layer.outputs) {
                activate::ActivationRows {
                    block,
                    columns: layer.outputs,
                    bias: &layer.bias,
                    affine,
                    activation,
                }
                .run_vectorised();
            }
        }
        values
    }
}

/// Transposes `values` (n, width) to (width, columns), with zeros in the columns beyond n.
pub(crate) fn transpose_padded(values: &[f32], width: usize, columns: usize) -> Vec<f32> {
    let mut transposed = vec![0.0; width * columns];
    for (j, row) in values.chunks_exact(width).enumerate() {
        for (k, value) in row.iter().enumerate() {
            transposed[k * columns + j] = *value;
        }
    }
    transposed
}

#[cfg(test)]
mod tests {
    use crate::emulator::{Emulator, Hull};

    /// A network of some pixels computes what the whole one computes there, whatever its shape.
    #[test]
    fn selected_pixels_keep_their_values() {
        for path in [
            "data/emulator.safetensors",
            "tests/data/per_pixel/network.npz",
        ] {
            let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
            let emulator = Emulator::open(path).unwrap();
            let labels: Vec<f64> = emulator
                .labels()
                .iter()
                .map(|label| 0.5 * (label.min + label.max))
                .collect();
            let whole = emulator.templates(&labels);
            let pixels = [0, 3, emulator.pixels() - 1];
            let selected = emulator.select_pixels(&pixels);
            assert_eq!(
                selected.templates(&labels),
                pixels.map(|pixel| whole[pixel])
            );
        }
    }

    /// Labels that a hull covers are judged by it, the others by their training ranges.
    #[test]
    fn extrapolation_is_by_hull_or_by_range() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/emulator.safetensors");
        let mut with_both_hulls = Emulator::open(path).unwrap();
        // The hull of teff and logg reaches from 4000 K to 9000 K, that of feh and alpha from −2.5 to 0.5.
        with_both_hulls.labels[0].max = 7000.0;
        with_both_hulls.labels[2].max = 0.25;
        let without_hulls = Emulator {
            hulls: Vec::new(),
            ..with_both_hulls.clone()
        };
        let with_one_hull = Emulator {
            hulls: vec![Hull {
                axes: vec![0, 1],
                ..with_both_hulls.hulls[0].clone()
            }],
            ..with_both_hulls.clone()
        };
        let cases = [
            ([6000.0, 4.0, -1.0, 0.2], [false; 3]),
            ([8000.0, 4.0, -1.0, 0.2], [false, true, false]),
            ([6000.0, 4.0, 0.4, 0.2], [false, true, true]),
            ([20_000.0, 4.0, -1.0, 0.2], [true; 3]),
            ([6000.0, 4.0, -1.0, f64::NAN], [true; 3]),
            // The end of a range, and values beyond it by rounding and by more.
            ([7000.0, 4.0, 0.25, 0.2], [false; 3]),
            ([6000.0, 4.0, 0.25 + 1e-12, 0.2], [false; 3]),
            ([6000.0, 4.0, 0.25 + 1e-6, 0.2], [false, true, true]),
        ];
        for (labels, expected) in cases {
            let extrapolates = [&with_both_hulls, &without_hulls, &with_one_hull]
                .map(|emulator| emulator.extrapolates(&labels));
            assert_eq!(extrapolates, expected, "{labels:?}");
        }
        let uncovered = |emulator: &Emulator| emulator.uncovered_labels().collect::<Vec<_>>();
        assert_eq!(
            [
                uncovered(&with_both_hulls),
                uncovered(&without_hulls),
                uncovered(&with_one_hull)
            ],
            [vec![], vec![0, 1, 2, 3], vec![2, 3]]
        );
    }
}
