//! Rows of bins split into stretches, one per SIMD lane, that lie side by side: each lane walks along a stretch of its
//! own. Sums over neighbouring bins then need no sums across lanes, and a shift moves all stretches alike.

use pulp::{Simd, WithSimd};

/// Layout of rows of bins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stretches {
    /// Number of stretches.
    pub lanes: usize,
    /// Bins per stretch.
    pub length: usize,
}

impl Stretches {
    /// Plans to split a row of `bins` bins into one contiguous stretch per f32 lane of the processor's vectors.
    pub fn new(bins: usize) -> Stretches {
        let lanes = pulp::Arch::new().dispatch(CountSimdLanes);
        Stretches {
            lanes,
            length: bins.div_ceil(lanes),
        }
    }

    /// Copies a row so that lane k holds its k-th stretch, with some bins before and after it: (before + length +
    /// after, lanes), 0 beyond the row.
    pub fn lay_out(&self, row: &[f32], before: usize, after: usize) -> Vec<f32> {
        let places = before + self.length + after;
        let mut laid_out = vec![0f32; places * self.lanes];
        for lane in 0..self.lanes {
            // A lane holds the row's bins from `start - before` on. Where that is negative, it begins with zeros.
            let start = lane * self.length;
            let zeros = before.saturating_sub(start);
            let first_bin = start.saturating_sub(before);
            let values = row.iter().skip(first_bin).take(places - zeros.min(places));
            let targets = laid_out
                .iter_mut()
                .skip(zeros * self.lanes + lane)
                .step_by(self.lanes);
            for (target, value) in targets.zip(values) {
                *target = *value;
            }
        }
        laid_out
    }
}

/// Counts the f32 lanes of the processor's vectors.
struct CountSimdLanes;

impl WithSimd for CountSimdLanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_holds_its_stretch_and_the_bins_around_it() {
        let row: Vec<f32> = (1..=10).map(|k| k as f32).collect();
        let stretches = Stretches {
            lanes: 3,
            length: 4,
        };
        let laid_out = stretches.lay_out(&row, 5, 1);
        let expected = |bin: i64| {
            usize::try_from(bin)
                .ok()
                .and_then(|bin| row.get(bin))
                .copied()
                .unwrap_or(0.0)
        };
        for (k, lanes) in laid_out.chunks_exact(3).enumerate() {
            for (lane, value) in lanes.iter().enumerate() {
                assert_eq!(*value, expected(4 * lane as i64 + k as i64 - 5));
            }
        }
        assert_eq!(laid_out.len(), 30);
        assert!(Stretches::new(10).length * Stretches::new(10).lanes >= 10);
    }
}
