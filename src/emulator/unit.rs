//! Networks in a unit in which their templates are about 1. Devices compute in f32, in which the squares of fluxes of
//! 1e-22 vanish.

use std::sync::Arc;

use super::{Activation, Emulator, Network};
use crate::math::Real;

/// Largest power of two, of either sign, of a median template with which a network keeps its unit, and its bits.
const MAX_KEPT_POWER: i32 = 10;

impl Emulator {
    /// Returns the network that devices evaluate, whose templates are about 1, and their unit: a power of two. For a
    /// network whose templates are about 1 it is this network, and the unit is 1.
    pub(crate) fn in_template_unit(self: &Arc<Emulator>) -> (Arc<Emulator>, f64) {
        // 1. Find the median flux of a template in the middle of the training ranges.
        let middle: Vec<f64> = self
            .labels
            .iter()
            .map(|label| 0.5 * (label.min + label.max))
            .collect();
        let mut flux: Vec<f64> = self
            .templates(&middle)
            .into_iter()
            .map(|flux| f64::from(flux).abs())
            .filter(|flux| *flux > 0.0 && flux.is_finite())
            .collect();
        flux.sort_by(f64::total_cmp);
        let power = flux
            .get(flux.len() / 2)
            .map_or(0, |median| median.log2().round() as i32);
        // 2. Divide the network by it if it is far from 1.
        if power.abs() <= MAX_KEPT_POWER {
            return (self.clone(), 1.0);
        }
        let mut emulator = Emulator::clone(self);
        emulator.divide_outputs(power);
        (emulator.into(), f64::from(power).exp2())
    }

    /// Divides the network's outputs by 2 to this power.
    fn divide_outputs(&mut self, power: i32) {
        let factor = f64::from(-power).exp2();
        match &mut self.network {
            Network::PerPixel { w1, b1, .. } => {
                multiply(w1, factor);
                multiply(b1, factor);
            }
            Network::Dense(layers) => {
                let Some(layer) = layers.last_mut() else {
                    return;
                };
                let shift = factor.ln();
                match (&mut layer.affine, self.output) {
                    (Some((scale, offset)), _) => {
                        multiply(scale, factor);
                        multiply(offset, factor);
                    }
                    (None, Activation::Identity) => {
                        multiply(&mut layer.weight, factor);
                        multiply(&mut layer.bias, factor);
                    }
                    // f32 resolves ln flux best near 0. The file's clip must be out of reach there, as it was before.
                    (None, Activation::Exp { clip }) if clip >= f32::LARGEST_CLIP + shift.abs() => {
                        for bias in &mut layer.bias {
                            *bias = (f64::from(*bias) + shift) as f32;
                        }
                    }
                    (affine, _) => {
                        let outputs = layer.outputs;
                        *affine = Some((vec![factor as f32; outputs], vec![0.0; outputs]));
                    }
                }
            }
        }
    }
}

/// Multiplies values by a factor in f64.
fn multiply(values: &mut [f32], factor: f64) {
    for value in values {
        *value = (f64::from(*value) * factor) as f32;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::emulator::{Activation, Emulator, EmulatorLayers, Label, Layer, Network};

    const PIXELS: usize = 40;

    /// Returns a network of one label with this output function, whose templates are about 2^`power`.
    fn network(output: Activation, power: i32, has_affine: bool) -> Emulator {
        let unit = f64::from(power).exp2();
        let (factor, bias) = match output {
            Activation::Identity if !has_affine => (unit, unit),
            Activation::Identity => (1.0, 1.0),
            _ => (1.0, unit.ln()),
        };
        let weight: Vec<f32> = (0..PIXELS)
            .map(|j| (0.1 * (j as f64).sin() * factor) as f32)
            .collect();
        let mut last = Layer::new(weight, vec![bias as f32; PIXELS]);
        if has_affine {
            last =
                last.scale_and_offset(vec![unit as f32; PIXELS], vec![0.5 * unit as f32; PIXELS]);
        }
        let labels = vec![Label::new("teff", "K", 4000.0..=6000.0)];
        let layers = vec![Layer::new([1.0], [0.1]), last];
        Emulator::from_layers(EmulatorLayers {
            output,
            ..EmulatorLayers::new(labels, Activation::Silu, layers)
        })
        .unwrap()
    }

    /// Fails unless the templates of the rescaled network, times its unit, are the templates of the network.
    fn assert_same_templates(emulator: Emulator) {
        let emulator = Arc::new(emulator);
        let (rescaled, unit) = emulator.in_template_unit();
        assert_eq!(
            (rescaled.hash(), rescaled.source()),
            (emulator.hash(), emulator.source())
        );
        for labels in [[4100.0], [5000.0], [5700.0]] {
            for (flux, rescaled_flux) in emulator
                .templates(&labels)
                .into_iter()
                .zip(rescaled.templates(&labels))
            {
                assert!((1e-4..1e4).contains(&rescaled_flux), "{rescaled_flux}");
                // A ln flux of 70 is known to 4e-6 in f32.
                assert!(
                    (f64::from(rescaled_flux) * unit / f64::from(flux) - 1.0).abs() < 1e-5,
                    "{rescaled_flux} {unit} {flux}"
                );
            }
        }
    }

    /// Networks of every kind keep their templates, in any unit.
    #[test]
    fn templates_times_their_unit_are_those_of_the_network() {
        for power in [-100, -73, -11, 11, 66, 100] {
            for has_affine in [false, true] {
                assert_same_templates(network(Activation::Identity, power, has_affine));
            }
            // The clip is out of reach, within reach, and below the largest exponent of f32
            for clip in [300.0, 100.0, 75.0] {
                assert_same_templates(network(Activation::Exp { clip }, power, false));
            }
        }
        let tiny = Network::PerPixel {
            hidden: 1,
            w0: vec![0.1; PIXELS],
            b0: vec![0.0; PIXELS],
            w1: vec![1e-22; PIXELS],
            b1: vec![1e-22; PIXELS],
        };
        assert_same_templates(Emulator {
            network: tiny,
            activation: Activation::Sigmoid,
            ..network(Activation::Identity, 0, false)
        });
    }

    /// Networks whose templates are near 1, or zero, are not changed.
    #[test]
    fn networks_with_templates_near_one_are_unchanged() {
        for power in [-10, 0, 10] {
            let emulator = Arc::new(network(Activation::Identity, power, false));
            let (rescaled, unit) = emulator.in_template_unit();
            assert!(Arc::ptr_eq(&rescaled, &emulator) && unit == 1.0);
        }
        let zero = Layer::new(vec![0.0; PIXELS], vec![0.0; PIXELS]);
        let mut dark = network(Activation::Identity, 0, false);
        dark.network = Network::Dense(vec![Layer::new([1.0], [0.1]), zero]);
        assert_eq!(Arc::new(dark).in_template_unit().1, 1.0);
    }
}
