//! Random networks of the demo's shape, with as many labels and pixels as one likes.

use popfit::emulator::{Activation, EmulatorLayers, Label, Layer};
use popfit::{Emulator, Result};

use popfit_testing::sequence::Sequence;

/// The demo's hidden layers.
const HIDDEN: [usize; 4] = [256, 256, 256, 200];
/// Å, and the step of its logarithm: the demo's pixels reach as far.
const START: f64 = 3600.0;
const STEP: f64 = 1.3e-4;
/// Lines are about this many pixels wide.
const WIDTH: f64 = 4.0;

/// Returns an emulator with random weights, of this many labels and pixels, to measure speed with.
pub fn network(labels: usize, pixels: usize) -> Result<Emulator> {
    let mut random = Sequence(5);
    let sizes = [&[labels], &HIDDEN[..], &[pixels]].concat();
    let layers = sizes
        .windows(2)
        .enumerate()
        .map(|(k, pair)| layer(pair[0], pair[1], k == HIDDEN.len(), &mut random));
    let layers: Vec<Layer> = layers.collect();
    let label = |k| Label::new(format!("label{k}"), "", -1.0..=1.0).scaled(0.0, 1.0);
    let labels = (0..labels).map(label).collect();
    let network = EmulatorLayers {
        name: "random network".into(),
        output: Activation::Exp { clip: 300.0 },
        wavelength: (0..pixels)
            .map(|j| START * (STEP * j as f64).exp())
            .collect(),
        ..EmulatorLayers::new(labels, Activation::Silu, layers)
    };
    Emulator::from_layers(network)
}

/// Returns a network layer with random weights and biases; the last one's weights are smoothed over pixels.
fn layer(inputs: usize, outputs: usize, is_last: bool, random: &mut Sequence) -> Layer {
    let size = (1.5 / inputs as f64).sqrt();
    let mut weight: Vec<f64> = (0..inputs * outputs)
        .map(|_| size * random.normal())
        .collect();
    if is_last {
        weight = smooth(&weight, inputs);
    }
    let bias: Vec<f64> = (0..outputs)
        .map(|_| if is_last { 0.0 } else { 0.3 * random.normal() })
        .collect();
    let narrow = |values: &[f64]| values.iter().map(|x| *x as f32).collect::<Vec<f32>>();
    Layer::new(narrow(&weight), narrow(&bias))
}

/// Averages each row (a pixel's weights) with its neighbours' and halves it, so that spectra have lines several pixels
/// wide.
fn smooth(rows: &[f64], inputs: usize) -> Vec<f64> {
    const REACH: i32 = 15;
    let taps: Vec<f64> = (-REACH..=REACH)
        .map(|k| (-0.5 * (f64::from(k) / WIDTH).powi(2)).exp())
        .collect();
    let total: f64 = taps.iter().sum();
    let pixels = (rows.len() / inputs) as i32;
    let mut out = vec![0.0; rows.len()];
    for (at, row) in out.chunks_exact_mut(inputs).enumerate() {
        for (k, tap) in taps.iter().enumerate() {
            let near = (at as i32 + k as i32 - REACH).clamp(0, pixels - 1) as usize;
            let own = &rows[near * inputs..(near + 1) * inputs];
            row.iter_mut()
                .zip(own)
                .for_each(|(sum, x)| *sum += 0.5 * tap / total * x);
        }
    }
    out
}
