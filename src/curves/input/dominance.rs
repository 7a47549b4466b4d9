//! Points of so little sigma that they alone hold a fit ("force the curve through this point").
//!
//! With P free parameters at least P points are needed. Where fewer than that outweigh all others, they hold one
//! direction, and the others the rest. The squares of the weights then stand side by side in the normal matrix, and
//! damping by its diagonal shortens steps along the others to nothing.

/// Largest |y| / sigma of a point that outweighs all others: beyond it, the rounding of y is a hundredth of sigma and
/// more, and the point's residual is not known.
const MAX_SIGNAL: f64 = 1e14;
/// Ratio from which on damping may keep a fit from its minimum.
const DOMINANT: f64 = 1e4;

/// Returns the ratio of the largest of some weights (those of masked points are 0) to the one that is the `free`-th
/// largest; 1 where there are not so many.
fn ratio(weights: impl Iterator<Item = f64>, free: usize) -> f64 {
    let mut weights: Vec<f64> = weights.filter(|weight| *weight > 0.0).collect();
    if free < 2 || weights.len() < free {
        return 1.0;
    }
    let (larger, least, _) = weights.select_nth_unstable_by(free - 1, |a, b| b.total_cmp(a));
    larger.iter().copied().fold(*least, f64::max) / *least
}

/// Returns whether points that are fewer than the `free` parameters outweigh all others, and no float can hold their
/// residuals. `points` are the weight and |y| of each point that is not masked.
pub fn is_beyond_floats(points: impl Iterator<Item = (f64, f64)> + Clone, free: usize) -> bool {
    // as a rule no signal is so high
    let highest = points
        .clone()
        .map(|(weight, y)| weight * y.abs())
        .fold(0.0, f64::max);
    highest > MAX_SIGNAL && ratio(points.map(|(weight, _)| weight), free) > DOMINANT
}

/// Returns whether points that are fewer than the `free` parameters outweigh all others so far that damping may keep a
/// fit from its minimum.
pub fn is_dominated(weights: &[f64], free: usize) -> bool {
    ratio(weights.iter().copied(), free) > DOMINANT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_points_of_large_weight_dominate() {
        let with = |heavy: &[f64]| [&[20.0; 8][..], heavy, &[0.0]].concat();
        let is_beyond = |weights: Vec<f64>, y: f64, free| {
            is_beyond_floats(weights.iter().map(|w| (*w, y)), free)
        };
        assert!(is_dominated(&with(&[1e6]), 2) && !is_dominated(&with(&[1e6, 1e6]), 2));
        assert!(is_beyond(with(&[1e15]), -2.0, 2) && !is_beyond(with(&[1e13]), 2.0, 2));
        assert!(is_beyond(with(&[1e15, 1e15]), 2.0, 3) && !is_beyond(with(&[1e15; 3]), 2.0, 3));
        // a single parameter is determined by one point, and marks of bad points outweigh nothing
        assert!(!is_beyond(with(&[1e15]), 2.0, 1) && !is_dominated(&with(&[1e-30; 50]), 2));
    }
}
