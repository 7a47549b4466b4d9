//! The network's forward pass on the host: scaled labels, hull distances, templates. For first guesses, plots and checks; the
//! fit's own passes run on a device.

use faer::{Accum, MatMut, MatRef, Par, linalg::matmul::matmul};

use pulp::NullaryFnOnce;

use super::{Activation, Emulator, Label, Layer, Network, Transform};
use crate::rows::Real;

/// Share of a label's training range by which a sum of tied labels may miss its end.
const RANGE_ROUNDING: f64 = 1e-9;

impl Emulator {
    /// z = (transform(x) − mean) / std for rows of `labels`, (n, labels) in physical units; the same shape comes out.
    pub fn scaled(&self, labels: &[f64]) -> Vec<f64> {
        let scale = |(&x, i): (&f64, usize)| {
            let label = &self.labels[i];
            let x = match label.transform {
                Transform::Identity => x,
                Transform::Log10 => x.log10(),
            };
            (x - label.mean) / label.std
        };
        labels.iter().zip((0..self.labels.len()).cycle()).map(scale).collect()
    }

    /// Largest facet distance of one scaled label vector over all hulls: positive outside, −∞ without hulls.
    pub fn outside(&self, z: &[f64]) -> f64 {
        let mut largest = f64::NEG_INFINITY;
        for hull in &self.hulls {
            for facet in hull.facets.chunks_exact(hull.axes.len() + 1) {
                let (normal, offset) = facet.split_at(hull.axes.len());
                let distance = normal.iter().zip(&hull.axes).map(|(n, &axis)| n * z[axis]).sum::<f64>() + offset[0];
                // A NaN label is outside.
                largest = if distance.is_nan() { f64::INFINITY } else { largest.max(distance) };
            }
        }
        largest
    }

    /// Whether a label vector, in physical units, lies outside the training set: outside a hull, or, by a label that no hull covers,
    /// outside that label's training range. A NaN label is outside.
    pub fn extrapolates(&self, labels: &[f64]) -> bool {
        let leaves_range = |(x, label): (&f64, &Label)| {
            let rounding = RANGE_ROUNDING * (label.max - label.min);
            !(label.min - rounding..=label.max + rounding).contains(x)
        };
        let mut uncovered = self.uncovered_labels().map(|k| (&labels[k], &self.labels[k]));
        uncovered.any(leaves_range) || self.outside(&self.scaled(labels)) > 0.0
    }

    /// Indices of the labels that no hull covers: their training ranges are all that is known of the training set.
    pub fn uncovered_labels(&self) -> impl Iterator<Item = usize> {
        let is_covered = |k: &usize| self.hulls.iter().any(|hull| hull.axes.contains(k));
        (0..self.labels.len()).filter(move |k| !is_covered(k))
    }

    /// Templates (n, pixels) for rows of `labels`, (n, labels) in physical units; one matrix product a layer.
    pub fn templates(&self, labels: &[f64]) -> Vec<f32> {
        let z: Vec<f32> = self.scaled(labels).iter().map(|&z| z as f32).collect();
        let rows = labels.len() / self.labels.len();
        let mut flux = match &self.network {
            Network::Dense(layers) => return self.dense(layers, z, rows),
            Network::PerPixel { hidden, w0, b0, w1, b1 } => {
                let mut flux = Vec::with_capacity(rows * b1.len());
                for z in z.chunks_exact(self.labels.len()) {
                    let hidden_rows = w0.chunks_exact(hidden * z.len()).zip(b0.chunks_exact(*hidden));
                    for ((w0, b0), (w1, b1)) in hidden_rows.zip(w1.chunks_exact(*hidden).zip(b1)) {
                        let units = w0.chunks_exact(z.len()).zip(b0).zip(w1);
                        let unit = |((w0, b0), w1): ((&[f32], &f32), &f32)| {
                            let input = w0.iter().zip(z).map(|(w, z)| w * z).sum::<f32>() + b0;
                            w1 * activated(self.activation, input)
                        };
                        flux.push(units.map(unit).sum::<f32>() + b1);
                    }
                }
                flux
            }
        };
        pulp::Arch::new().dispatch(Elementwise { values: &mut flux, activation: self.output });
        flux
    }

    /// h ← scale · σ(W h + b) + offset for each layer, with the output function as σ of the last, as on devices.
    fn dense(&self, layers: &[Layer], z: Vec<f32>, rows: usize) -> Vec<f32> {
        let mut input = z;
        for (k, layer) in layers.iter().enumerate() {
            let mut out = product(&input, layer, rows);
            for row in out.chunks_exact_mut(layer.outputs) {
                row.iter_mut().zip(&layer.bias).for_each(|(x, b)| *x += b);
                let activation = if k + 1 < layers.len() { self.activation } else { self.output };
                pulp::Arch::new().dispatch(Elementwise { values: row, activation });
                if let Some((scale, offset)) = &layer.affine {
                    row.iter_mut()
                        .zip(scale.iter().zip(offset))
                        .for_each(|(x, (scale, offset))| *x = *x * scale + offset);
                }
            }
            input = out;
        }
        input
    }
}

/// input (rows, inputs) · weightᵀ: (rows, outputs).
fn product(input: &[f32], layer: &Layer, rows: usize) -> Vec<f32> {
    let mut out = vec![0.0; rows * layer.outputs];
    let target = MatMut::from_row_major_slice_mut(&mut out, rows, layer.outputs);
    let left = MatRef::from_row_major_slice(&input[..rows * layer.inputs], rows, layer.inputs);
    let weight = MatRef::from_row_major_slice(&layer.weight, layer.outputs, layer.inputs);
    matmul(target, Accum::Replace, left, weight.transpose(), 1.0, Par::Seq);
    out
}

fn activated(activation: Activation, x: f32) -> f32 {
    let mut values = [x];
    Elementwise { values: &mut values, activation }.call();
    values[0]
}

/// An activation over a slice, compiled to vector code.
struct Elementwise<'a> {
    values: &'a mut [f32],
    activation: Activation,
}

impl NullaryFnOnce for Elementwise<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Elementwise { values, activation } = self;
        // the match is outside the loop, so that each loop vectorises
        macro_rules! each {
            ($function:expr) => {
                values.iter_mut().for_each(|x| *x = $function(*x))
            };
        }
        match activation {
            Activation::Silu => each!(|x: f32| x * x.sigmoid()),
            Activation::LeakyRelu => each!(|x: f32| if x > 0.0 { x } else { 0.01 * x }),
            Activation::Relu => each!(|x: f32| x.max(0.0)),
            Activation::Sigmoid => each!(|x: f32| x.sigmoid()),
            Activation::Tanh => each!(|x: f32| Real::tanh(x)),
            Activation::Gelu => each!(|x: f32| 0.5 * x * (1.0 + Real::erf(x * std::f32::consts::FRAC_1_SQRT_2))),
            Activation::Identity => {}
            Activation::Exp { clip } => {
                let clip = clip.min(f32::LARGEST_CLIP) as f32;
                each!(|x: f32| x.clamp(-clip, clip).e_to());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::emulator::{Emulator, Hull};

    /// Labels that a hull covers are judged by it, the others by their training ranges.
    #[test]
    fn extrapolation_is_by_hull_or_by_range() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/emulator.safetensors");
        let mut whole = Emulator::open(path).unwrap();
        // the hull of teff and logg reaches from 4000 K to 9000 K, that of feh and alpha from −2.5 to 0.5
        (whole.labels[0].max, whole.labels[2].max) = (7000.0, 0.25);
        let none = Emulator { hulls: Vec::new(), ..whole.clone() };
        let some = Emulator { hulls: vec![Hull { axes: vec![0, 1], ..whole.hulls[0].clone() }], ..whole.clone() };
        let cases = [
            ([6000.0, 4.0, -1.0, 0.2], [false; 3]),
            ([8000.0, 4.0, -1.0, 0.2], [false, true, false]),
            ([6000.0, 4.0, 0.4, 0.2], [false, true, true]),
            ([20_000.0, 4.0, -1.0, 0.2], [true; 3]),
            ([6000.0, 4.0, -1.0, f64::NAN], [true; 3]),
            // the end of a range, and what a sum may round beyond it
            ([7000.0, 4.0, 0.25, 0.2], [false; 3]),
            ([6000.0, 4.0, 0.25 + 1e-12, 0.2], [false; 3]),
            ([6000.0, 4.0, 0.25 + 1e-6, 0.2], [false, true, true]),
        ];
        for (labels, expected) in cases {
            let found = [&whole, &none, &some].map(|emulator| emulator.extrapolates(&labels));
            assert_eq!(found, expected, "{labels:?}");
        }
        let uncovered = |emulator: &Emulator| emulator.uncovered_labels().collect::<Vec<_>>();
        assert_eq!([uncovered(&whole), uncovered(&none), uncovered(&some)], [vec![], vec![0, 1, 2, 3], vec![2, 3]]);
    }
}
