//! Detection of arms with negative flux, which have the wrong sign, or from which too much sky was subtracted.
//!
//! The test uses the data alone, once per spectrum, so that its result is the same on every device. Because templates
//! are positive, the continuum fitted to the data without the model's lines ([`PreparedArm::weighted_continuum`]) has
//! the same sign as that of the final model.

use pulp::NullaryFnOnce;

use crate::math::probability::{Tail, chi2_tail};
use crate::model::{PreparedArm, Sampling};

/// Upper tail probability of χ² against zero flux below which an arm is not only noise.
const MAX_NOISE_PROBABILITY: f64 = 1e-6;
/// Smallest share of the weight in pixels of negative flux at which the continuum is evaluated. With less, only a few
/// extreme pixels could make it negative in half of the weight. The evaluation takes longer than the rest of the test.
const MIN_NEGATIVE_SHARE: f64 = 0.25;
/// Number of partial sums: as many as the widest registers hold.
const PARTIAL_SUMS: usize = 16;

/// Returns whether any arm has signal and a negative flux: in most of its pixels, or in most of its continuum's weight.
/// Masked pixels are left out, and so are arms with noise alone, whose sign is random.
pub fn has_negative_flux(arms: &[PreparedArm], samplings: &[&Sampling]) -> bool {
    arms.iter()
        .zip(samplings)
        .any(|(arm, sampling)| is_negative(arm, sampling))
}

/// Returns whether an arm has signal and its flux is negative in most pixels, or its continuum in most of the weight.
fn is_negative(arm: &PreparedArm, sampling: &Sampling) -> bool {
    let sums = FluxSums::add_up(&arm.weighted_flux, &arm.weight);
    let is_median_negative = 2 * sums.negative > sums.unmasked;
    let has_negative_share = sums.negative_weight > MIN_NEGATIVE_SHARE * sums.weight;
    // The cheapest conditions come first. Most arms fail them.
    (is_median_negative || has_negative_share)
        && chi2_tail(Tail::Upper, sums.chi2, f64::from(sums.unmasked)) < MAX_NOISE_PROBABILITY
        && (is_median_negative || is_continuum_negative(arm, sampling))
}

/// Returns whether the continuum is negative in pixels with more than half of the weight.
fn is_continuum_negative(arm: &PreparedArm, sampling: &Sampling) -> bool {
    let smooth = arm.weighted_continuum(sampling);
    // weight · continuum has the sign of the continuum, and is 0 in masked pixels.
    let sums = FluxSums::add_up(&smooth, &arm.weight);
    sums.negative_weight > 0.5 * sums.weight
}

/// Sums over the unmasked pixels of an arm.
struct FluxSums {
    /// Number of pixels.
    unmasked: u32,
    /// Number of pixels below zero.
    negative: u32,
    /// Σ weight² in arbitrary units.
    weight: f64,
    /// Part of `weight` from the pixels below zero.
    negative_weight: f64,
    /// Σ (√ivar flux)².
    chi2: f64,
}

impl FluxSums {
    /// Counts the pixels of a flux times √ivar and sums up weights and squares, in all pixels and in those where it is
    /// negative. `values` are 0 in pixels whose `weight` is 0.
    fn add_up(values: &[f32], weight: &[f32]) -> FluxSums {
        pulp::Arch::new().dispatch(FluxSummation { values, weight })
    }
}

/// Returns fewer than [`PARTIAL_SUMS`] numbers, padded with zeros.
fn pad_lanes(numbers: &[f32]) -> [f32; PARTIAL_SUMS] {
    let mut padded = [0.0; PARTIAL_SUMS];
    padded[..numbers.len()].copy_from_slice(numbers);
    padded
}

/// The inputs of the sums, for dispatch to the processor's vector instructions.
struct FluxSummation<'a> {
    values: &'a [f32],
    weight: &'a [f32],
}

impl NullaryFnOnce for FluxSummation<'_> {
    type Output = FluxSums;

    #[inline(always)]
    fn call(self) -> FluxSums {
        let FluxSummation { values, weight } = self;
        let mut unmasked = [0u32; PARTIAL_SUMS];
        let mut negative = [0u32; PARTIAL_SUMS];
        let mut weight_sums = [0f32; PARTIAL_SUMS];
        let mut negative_weights = [0f32; PARTIAL_SUMS];
        let mut chi2 = [0f32; PARTIAL_SUMS];
        // Chunks of constant length let the compiler use vector instructions.
        let (values, last_values) = values.as_chunks::<PARTIAL_SUMS>();
        let (weight, last_weight) = weight.as_chunks::<PARTIAL_SUMS>();
        let last_chunks: [[f32; PARTIAL_SUMS]; 2] = [last_values, last_weight].map(pad_lanes);
        let whole_chunks = values.iter().zip(weight);
        for (values, weight) in whole_chunks.chain([(&last_chunks[0], &last_chunks[1])]) {
            for (lane, (value, w)) in values.iter().zip(weight).enumerate() {
                let is_negative = u32::from(*value < 0.0);
                unmasked[lane] += u32::from(*w > 0.0);
                negative[lane] += is_negative;
                weight_sums[lane] += w * w;
                negative_weights[lane] += w * w * is_negative as f32;
                chi2[lane] += value * value;
            }
        }
        let sum = |lanes: [f32; PARTIAL_SUMS]| lanes.iter().map(|x| f64::from(*x)).sum();
        FluxSums {
            unmasked: unmasked.iter().sum(),
            negative: negative.iter().sum(),
            weight: sum(weight_sums),
            negative_weight: sum(negative_weights),
            chi2: sum(chi2),
        }
    }
}
