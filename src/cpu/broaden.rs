//! Rotational broadening of template rows (see `docs/src/equations.md`): each segment convolved with Gray's profile of radius
//! R = (vsini/c)/Δlnλ pixels, zero beyond its ends. Rows out: value, ∂/∂u of vsini if it is a parameter, tangents. The kernel is
//! computed in f64, once a member and segment, and is as wide as the member's own vsini asks. Twin of `shaders/broaden.wgsl`.

use pulp::{Simd, WithSimd};

use crate::rows::Real;
use crate::rows::convolve::Padded;
use crate::rows::rotation::RotationKernel;
use crate::solver::recording::{Broaden as Stage, LIGHT, Parameter, Segment};

/// One member's rows.
pub struct Broaden<'a, R> {
    pub stage: &'a Stage,
    pub parameters: &'a [Parameter],
    pub u: &'a [f64],
    /// (rows, columns)
    pub input: &'a [R],
    /// (output_rows, columns)
    pub output: &'a mut [R],
}

impl<R: Real> Broaden<'_, R> {
    pub fn run(self) {
        pulp::Arch::new().dispatch(self);
    }

    /// Weights of a segment and their derivatives by u.
    fn kernel(&self, segment: &Segment) -> (Vec<R>, Vec<R>) {
        let (vsini, by_u) = self.stage.vsini(self.parameters, self.u);
        let by_vsini = segment.inverse_step / LIGHT;
        let kernel = RotationKernel::new(vsini * by_vsini);
        let slopes = kernel.slopes.iter().map(|s| R::of(s * by_vsini * by_u));
        (kernel.weights.iter().map(|w| R::of(*w)).collect(), slopes.collect())
    }
}

impl<R: Real> WithSimd for Broaden<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let columns = self.stage.columns;
        let is_free = self.stage.output_rows() > self.stage.rows;
        let kernels: Vec<(Vec<R>, Vec<R>)> = self.stage.segments.iter().map(|s| self.kernel(s)).collect();
        self.output.fill(R::ZERO);
        for (segment, (weights, slopes)) in self.stage.segments.iter().zip(&kernels) {
            let range = segment.start..segment.end;
            let mut padded = Padded::new(range.len(), weights.len() - 1);
            for (row, input) in self.input.chunks_exact(columns).enumerate() {
                padded.set(&input[range.clone()]);
                let target = if row == 0 || !is_free { row } else { row + 1 };
                padded.convolve(simd, weights, &mut self.output[target * columns..][range.clone()]);
                if row == 0 && is_free {
                    padded.convolve(simd, slopes, &mut self.output[columns..][range.clone()]);
                }
            }
        }
    }
}
