//! Points of so small a sigma that they alone determine a fit ("force the curve through this point").
//!
//! With P free parameters at least P points are needed. Where fewer than P points outweigh all others, they determine
//! some directions, and the other points the rest. The squares of both weights are then added in the normal matrix, and
//! damping by its diagonal shortens steps along the other directions to nothing.

/// Largest |y| / sigma of a point that outweighs all others: beyond it, the rounding of y is at least a hundredth of
/// sigma, and the point's residual is rounding.
const MAX_SIGNAL_TO_NOISE: f64 = 1e14;
/// Ratio of weights above which damping may keep a fit from its minimum.
const MIN_DOMINANT_WEIGHT_RATIO: f64 = 1e4;

/// Returns the ratio of the largest weight (those of masked points are 0) to the `free`-th largest; 1 if there are
/// fewer weights.
fn dominant_weight_ratio(weights: impl Iterator<Item = f64>, free: usize) -> f64 {
    let mut weights: Vec<f64> = weights.filter(|weight| *weight > 0.0).collect();
    if free < 2 || weights.len() < free {
        return 1.0;
    }
    let (larger, smallest_needed, _) =
        weights.select_nth_unstable_by(free - 1, |a, b| b.total_cmp(a));
    larger.iter().copied().fold(*smallest_needed, f64::max) / *smallest_needed
}

/// Returns whether points that are fewer than the `free` parameters outweigh all others, and no float can hold their
/// residuals. `points` are the weight and |y| of each point that is not masked.
pub fn is_beyond_floats(points: impl Iterator<Item = (f64, f64)> + Clone, free: usize) -> bool {
    // As a rule no signal is so high, and the weights need not be sorted.
    let highest_signal_to_noise = points
        .clone()
        .map(|(weight, y)| weight * y.abs())
        .fold(0.0, f64::max);
    highest_signal_to_noise > MAX_SIGNAL_TO_NOISE
        && dominant_weight_ratio(points.map(|(weight, _)| weight), free) > MIN_DOMINANT_WEIGHT_RATIO
}

/// Returns whether points that are fewer than the `free` parameters outweigh all others so far that damping may keep a
/// fit from its minimum.
pub fn is_dominated(weights: &[f64], free: usize) -> bool {
    dominant_weight_ratio(weights.iter().copied(), free) > MIN_DOMINANT_WEIGHT_RATIO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_points_of_large_weight_dominate() {
        let weights_with = |heavy: &[f64]| [&[20.0; 8][..], heavy, &[0.0]].concat();
        let is_beyond = |weights: Vec<f64>, y: f64, free| {
            is_beyond_floats(weights.iter().map(|w| (*w, y)), free)
        };
        assert!(
            is_dominated(&weights_with(&[1e6]), 2) && !is_dominated(&weights_with(&[1e6, 1e6]), 2)
        );
        assert!(
            is_beyond(weights_with(&[1e15]), -2.0, 2) && !is_beyond(weights_with(&[1e13]), 2.0, 2)
        );
        assert!(
            is_beyond(weights_with(&[1e15, 1e15]), 2.0, 3)
                && !is_beyond(weights_with(&[1e15; 3]), 2.0, 3)
        );
        // One point determines a single parameter, and tiny weights that mark bad points outweigh nothing.
        assert!(
            !is_beyond(weights_with(&[1e15]), 2.0, 1)
                && !is_dominated(&weights_with(&[1e-30; 50]), 2)
        );
    }
}
