//! Factors that bring a network's output layer into the range of f16 numbers, for mixed precision.

use crate::emulator::Layer;
use crate::recording::Activation;

/// Exponent of the power of two below which scaled numbers stay: a quarter of the largest f16 number.
const MAX_EXPONENT: i32 = 14;
/// Largest absolute value of a label as a network scales it; 0.5 or 1 at the ends of the network's range.
const MAX_SCALED_LABEL: f32 = 4.0;
/// Upper bound of the slopes of all activation functions of hidden layers.
const MAX_ACTIVATION_SLOPE: f32 = 1.13;

/// Powers of two by which factors of an output layer's product are multiplied before they are rounded to f16, so that
/// neither the largest overflow nor the usual ones underflow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HalfFactors {
    /// Factor of the last hidden layer's values and derivatives.
    pub input: f32,
    pub weight: f32,
    /// Factor of the product, which undoes the others.
    pub product: f32,
}

impl HalfFactors {
    /// Returns the factors for an output layer behind these hidden layers; `None` if its weights, or bounds of its
    /// inputs, are 0 or not finite, or powers of two in f32 do not suffice.
    pub fn new(
        hidden_layers: &[Layer],
        activation: Activation,
        output_weights: &[f32],
    ) -> Option<HalfFactors> {
        let input = scale_below_max(&bounds_of_hidden_values(hidden_layers, activation))?;
        let weight = scale_below_max(output_weights)?;
        let product = 1.0 / input / weight;
        product.is_normal().then_some(HalfFactors {
            input,
            weight,
            product,
        })
    }
}

/// Returns the power of two that brings the largest absolute value of some numbers just below 2^[`MAX_EXPONENT`].
fn scale_below_max(numbers: &[f32]) -> Option<f32> {
    let largest = numbers.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
    if !largest.is_normal() || numbers.iter().any(|number| number.is_nan()) {
        return None;
    }
    let exponent = MAX_EXPONENT - 1 - largest.log2().floor() as i32;
    (exponent < f32::MAX_EXP).then(|| 2.0_f32.powi(exponent))
}

/// Returns upper bounds of the absolute values of the last of these hidden layers, and of its derivatives, while scaled
/// labels are at most [`MAX_SCALED_LABEL`].
fn bounds_of_hidden_values(hidden_layers: &[Layer], activation: Activation) -> Vec<f32> {
    let inputs = hidden_layers.first().map_or(0, |layer| layer.inputs);
    let mut values = vec![MAX_SCALED_LABEL; inputs];
    let mut slopes = values.clone();
    for layer in hidden_layers {
        let mut next_values = Vec::with_capacity(layer.outputs);
        let mut next_slopes = Vec::with_capacity(layer.outputs);
        for (row, j) in layer.weight.chunks_exact(layer.inputs).zip(0..) {
            let bound_of = |inputs: &[f32]| -> f32 {
                let terms = row.iter().zip(inputs);
                terms.map(|(weight, input)| weight.abs() * input).sum()
            };
            let value = match activation {
                Activation::Sigmoid | Activation::Tanh => 1.0,
                _ => bound_of(&values) + layer.bias[j].abs(),
            };
            let (scale, offset) = match &layer.affine {
                Some((scale, offset)) => (scale[j].abs(), offset[j].abs()),
                None => (1.0, 0.0),
            };
            next_values.push(scale * value + offset);
            next_slopes.push(scale * MAX_ACTIVATION_SLOPE * bound_of(&slopes));
        }
        values = next_values;
        slopes = next_slopes;
    }
    values.extend(slopes);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaled_factors_fit_in_f16_in_any_unit() {
        let factors = |activation, hidden_weight: f32, output_weight: f32| {
            let layer = Layer::new(vec![hidden_weight; 2], vec![0.0]);
            HalfFactors::new(&[layer], activation, &[0.0, output_weight])
        };
        let unit = factors(Activation::Relu, 1.0, 1.0).unwrap();
        // Slopes are at most 4 · 2 · 1.13.
        assert_eq!([unit.input, unit.weight], [1024.0, 8192.0]);
        assert_eq!(unit.product, 1.0 / 8_388_608.0);
        for scale in [1e-20_f32, 3e-4, 1.0, 7000.0, 1e20] {
            let scaled = factors(Activation::Silu, -scale, 1.0 / scale).unwrap();
            assert!((4096.0..16384.0).contains(&(scaled.input * scale * 9.04)));
            assert!((8192.0..16384.0).contains(&(scaled.weight / scale)));
            assert_eq!(scaled.product * scaled.input * scaled.weight, 1.0);
        }
        assert_eq!(factors(Activation::Relu, f32::NAN, 1.0), None);
        assert_eq!(factors(Activation::Relu, 1.0, f32::INFINITY), None);
        assert_eq!(factors(Activation::Tanh, 1.0, 0.0), None);
        assert_eq!(factors(Activation::Relu, 1e-30, 1e-30), None);
    }
}
