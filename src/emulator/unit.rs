//! Networks in the unit of their own templates. Devices compute in f32, in which the squares of fluxes of 1e-22 vanish.

use std::sync::Arc;

use super::{Activation, Emulator, Layer, Network};
use crate::math::Real;

/// A network keeps its unit, and its bits, if the median of its templates is 2 to at most ± this power.
const FARTHEST_POWER: i32 = 10;

impl Emulator {
    /// Returns the network that devices evaluate, whose templates are about 1, and their unit: a power of two. For a
    /// network whose templates are about 1 it is this network, and the unit is 1.
    pub(crate) fn in_own_unit(self: &Arc<Emulator>) -> (Arc<Emulator>, f64) {
        let middle: Vec<f64> = self
            .labels
            .iter()
            .map(|label| 0.5 * (label.min + label.max))
            .collect();
        let template = self
            .templates(&middle)
            .into_iter()
            .map(|flux| f64::from(flux).abs());
        let mut flux: Vec<f64> = template
            .filter(|flux| *flux > 0.0 && flux.is_finite())
            .collect();
        flux.sort_by(f64::total_cmp);
        let power = flux
            .get(flux.len() / 2)
            .map_or(0, |median| median.log2().round() as i32);
        if power.abs() <= FARTHEST_POWER {
            return (self.clone(), 1.0);
        }
        let mut emulator = Emulator::clone(self);
        emulator.divide(power);
        (emulator.into(), f64::from(power).exp2())
    }

    /// Divides the network's outputs by 2 to this power.
    fn divide(&mut self, power: i32) {
        let factor = f64::from(-power).exp2();
        let multiply = |values: &mut Vec<f32>| {
            values
                .iter_mut()
                .for_each(|x| *x = (f64::from(*x) * factor) as f32)
        };
        match &mut self.network {
            Network::PerPixel { w1, b1, .. } => [w1, b1].into_iter().for_each(multiply),
            Network::Dense(layers) => {
                let Some(Layer {
                    weight,
                    bias,
                    affine,
                    outputs,
                    ..
                }) = layers.last_mut()
                else {
                    return;
                };
                let shift = factor.ln();
                match (affine, self.output) {
                    (Some((scale, offset)), _) => [scale, offset].into_iter().for_each(multiply),
                    (None, Activation::Identity) => [weight, bias].into_iter().for_each(multiply),
                    // f32 resolves ln flux best near 0. The file's clip must be out of reach there, as it was before
                    (None, Activation::Exp { clip }) if clip >= f32::LARGEST_CLIP + shift.abs() => {
                        bias.iter_mut()
                            .for_each(|b| *b = (f64::from(*b) + shift) as f32);
                    }
                    (affine, _) => {
                        *affine = Some((vec![factor as f32; *outputs], vec![0.0; *outputs]))
                    }
                }
            }
        }
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
        let (factor, summand) = match output {
            Activation::Identity if !has_affine => (unit, unit),
            Activation::Identity => (1.0, 1.0),
            _ => (1.0, unit.ln()),
        };
        let weight: Vec<f32> = (0..PIXELS)
            .map(|j| (0.1 * (j as f64).sin() * factor) as f32)
            .collect();
        let mut last = Layer::new(weight, vec![summand as f32; PIXELS]);
        if has_affine {
            last =
                last.scale_and_offset(vec![unit as f32; PIXELS], vec![0.5 * unit as f32; PIXELS]);
        }
        let labels = vec![Label::new("teff", "K", 4000.0..=6000.0)];
        let layers = vec![Layer::new([1.0], [0.1]), last];
        Emulator::from_layers(EmulatorLayers::new(labels, Activation::Silu, layers).output(output))
            .unwrap()
    }

    /// Fails unless the templates in the network's own unit, times that unit, are the templates of the network.
    fn assert_same(emulator: Emulator) {
        let emulator = Arc::new(emulator);
        let (own, unit) = emulator.in_own_unit();
        assert_eq!(
            (own.hash(), own.source()),
            (emulator.hash(), emulator.source())
        );
        for labels in [[4100.0], [5000.0], [5700.0]] {
            for (given, own) in emulator
                .templates(&labels)
                .into_iter()
                .zip(own.templates(&labels))
            {
                assert!((1e-4..1e4).contains(&own), "{own}");
                // ln flux of 70 is known to 4e-6 in f32
                assert!(
                    (f64::from(own) * unit / f64::from(given) - 1.0).abs() < 1e-5,
                    "{own} {unit} {given}"
                );
            }
        }
    }

    /// Networks of every kind keep their templates, whatever their unit.
    #[test]
    fn templates_times_their_unit_are_those_of_the_network() {
        for power in [-100, -73, -11, 11, 66, 100] {
            for has_affine in [false, true] {
                assert_same(network(Activation::Identity, power, has_affine));
            }
            // the clip is out of reach, within reach, and below the largest exponent of f32
            for clip in [300.0, 100.0, 75.0] {
                assert_same(network(Activation::Exp { clip }, power, false));
            }
        }
        let (w1, b1) = (vec![1e-22; PIXELS], vec![1e-22; PIXELS]);
        let tiny = Network::PerPixel {
            hidden: 1,
            w0: vec![0.1; PIXELS],
            b0: vec![0.0; PIXELS],
            w1,
            b1,
        };
        let sigmoid = Activation::Sigmoid;
        assert_same(Emulator {
            network: tiny,
            activation: sigmoid,
            ..network(Activation::Identity, 0, false)
        });
    }

    /// Networks whose templates are near 1, or zero, are not changed.
    #[test]
    fn networks_near_one_are_the_given_ones() {
        for power in [-10, 0, 10] {
            let given = Arc::new(network(Activation::Identity, power, false));
            let (own, unit) = given.in_own_unit();
            assert!(Arc::ptr_eq(&own, &given) && unit == 1.0);
        }
        let zero = Layer::new(vec![0.0; PIXELS], vec![0.0; PIXELS]);
        let mut dark = network(Activation::Identity, 0, false);
        dark.network = Network::Dense(vec![Layer::new([1.0], [0.1]), zero]);
        assert_eq!(Arc::new(dark).in_own_unit().1, 1.0);
    }
}
