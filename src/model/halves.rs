//! Networks whose output layers can multiply f16 numbers, as they do in mixed precision.

use crate::emulator::Layer;
use crate::recording::Activation;

/// Largest finite f16 number.
const MAX_F16: f32 = 65504.0;
/// Largest absolute value of a label as a network scales it; 0.5 or 1 at the ends of the network's range.
const MAX_SCALED_LABEL: f32 = 4.0;
/// Upper bound of the slopes of all activation functions of hidden layers.
const MAX_ACTIVATION_SLOPE: f32 = 1.13;

/// Returns whether no weight of an output layer, no value of the last of these hidden layers, and no derivative can be
/// above the largest f16 number while scaled labels are at most [`MAX_SCALED_LABEL`].
pub fn factors_fit_in_f16(
    hidden_layers: &[Layer],
    activation: Activation,
    output_weights: &[f32],
) -> bool {
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
    let is_small = |number: &f32| number.abs() <= MAX_F16;
    values
        .iter()
        .chain(&slopes)
        .chain(output_weights)
        .all(is_small)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_above_the_largest_f16_number_do_not_fit() {
        let fits = |activation, hidden_weight: f32, output_weight: f32| {
            let layer = Layer::new(vec![hidden_weight; 2], vec![0.0]);
            factors_fit_in_f16(&[layer], activation, &[output_weight])
        };
        assert!(fits(Activation::Relu, -7000.0, -65000.0));
        assert!(!fits(Activation::Relu, 1.0, -66000.0));
        assert!(!fits(Activation::Relu, f32::NAN, 1.0));
        // 4 · 2 · 1.13 · 8000 is above 65504. The values of a sigmoid are at most 1, but its slopes are not.
        assert!(!fits(Activation::Relu, -8000.0, 1.0));
        assert!(!fits(Activation::Sigmoid, -8000.0, 1.0));
    }
}
