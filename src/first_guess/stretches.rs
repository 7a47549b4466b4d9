//! Rows of bins in as many stretches as the machine adds numbers at once, side by side: each lane walks along a stretch
//! of its own. Sums over neighbouring bins then need none across lanes, and shifts move all stretches alike.

use pulp::{Simd, WithSimd};

/// Layout of rows of this many bins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stretches {
    /// Their number.
    pub lanes: usize,
    /// Bins in each.
    pub length: usize,
}

impl Stretches {
    /// Plans to split a row of `bins` bins into one contiguous stretch per f32 lane of the processor's vectors.
    pub fn new(bins: usize) -> Stretches {
        let lanes = pulp::Arch::new().dispatch(Lanes);
        Stretches {
            lanes,
            length: bins.div_ceil(lanes),
        }
    }

    /// Copies a row so that lane k holds its k-th stretch, with some bins before and after it: (before + length +
    /// after, lanes), 0 beyond the row.
    pub fn lay_out(&self, row: &[f32], before: usize, after: usize) -> Vec<f32> {
        let places = before + self.length + after;
        let mut out = vec![0f32; places * self.lanes];
        for lane in 0..self.lanes {
            let first = lane * self.length;
            // the row's bins from `first` - `before` on
            let (skipped, begin) = (before.saturating_sub(first), first.saturating_sub(before));
            let values = row.iter().skip(begin).take(places - skipped.min(places));
            let to = out
                .iter_mut()
                .skip(skipped * self.lanes + lane)
                .step_by(self.lanes);
            to.zip(values).for_each(|(to, value)| *to = *value);
        }
        out
    }
}

/// Numbers that the machine adds at once.
struct Lanes;

impl WithSimd for Lanes {
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
    fn every_lane_has_its_stretch_and_what_is_around_it() {
        let row: Vec<f32> = (1..=10).map(|k| k as f32).collect();
        let stretches = Stretches {
            lanes: 3,
            length: 4,
        };
        let out = stretches.lay_out(&row, 5, 1);
        let value = |bin: i64| {
            usize::try_from(bin)
                .ok()
                .and_then(|bin| row.get(bin))
                .copied()
                .unwrap_or(0.0)
        };
        for (k, lanes) in out.chunks_exact(3).enumerate() {
            for (lane, found) in lanes.iter().enumerate() {
                assert_eq!(*found, value(4 * lane as i64 + k as i64 - 5));
            }
        }
        assert_eq!(out.len(), 30);
        assert!(Stretches::new(10).length * Stretches::new(10).lanes >= 10);
    }
}
