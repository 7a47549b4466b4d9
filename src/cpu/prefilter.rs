//! B-spline coefficients of template rows: c_j = Σ_k √3 (√3−2)^|k| t_(j+k), k = −12…12, the inverse of (1, 4, 1)/6, inside each
//! segment with its edges replicated. (rows, columns), flux units. Twin of `shaders/prefilter.wgsl`.

use pulp::NullaryFnOnce;

use crate::rows::Real;
use crate::solver::recording::Segment;

/// Taps on either side.
pub const REACH: usize = 12;

/// √3 (√3−2)^k, k = 0…12.
pub fn taps() -> [f64; REACH + 1] {
    let root = 3f64.sqrt();
    std::array::from_fn(|k| root * (root - 2.0).powi(k as i32))
}

/// One row of one member.
pub struct Prefilter<'a, R> {
    pub input: &'a [R],
    pub output: &'a mut [R],
    pub segments: &'a [Segment],
}

impl<R: Real> Prefilter<'_, R> {
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl<R: Real> NullaryFnOnce for Prefilter<'_, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let taps = taps().map(R::of);
        self.output.fill(R::ZERO);
        for segment in self.segments {
            let input = &self.input[segment.start..segment.end];
            let output = &mut self.output[segment.start..segment.end];
            let count = input.len();
            let first = REACH.min(count);
            let last = count.saturating_sub(REACH).max(first);
            for j in (0..first).chain(last..count) {
                output[j] = edge(input, j, &taps);
            }
            interior(input, &mut output[first..last], &taps);
        }
    }
}

#[inline(always)]
fn edge<R: Real>(input: &[R], j: usize, taps: &[R; REACH + 1]) -> R {
    let mut sum = taps[0] * input[j];
    for (k, tap) in taps.iter().enumerate().skip(1) {
        let (left, right) = (j.saturating_sub(k), (j + k).min(input.len() - 1));
        sum = tap.fused(input[left] + input[right], sum);
    }
    sum
}

/// `output[0]` is pixel `REACH` of `input`.
#[inline(always)]
fn interior<R: Real>(input: &[R], output: &mut [R], taps: &[R; REACH + 1]) {
    const LANES: usize = 16;
    let mut blocks = output.chunks_exact_mut(LANES);
    let mut start = 0;
    for block in &mut blocks {
        let window: &[R] = &input[start..start + LANES + 2 * REACH];
        let mut sum = [R::ZERO; LANES];
        for (i, s) in sum.iter_mut().enumerate() {
            *s = taps[0] * window[REACH + i];
        }
        for k in 1..=REACH {
            for (i, s) in sum.iter_mut().enumerate() {
                *s = taps[k].fused(window[REACH - k + i] + window[REACH + k + i], *s);
            }
        }
        block.copy_from_slice(&sum);
        start += LANES;
    }
    for (i, out) in blocks.into_remainder().iter_mut().enumerate() {
        *out = edge(input, start + REACH + i, taps);
    }
}
