//! From template rows to rows at a spectrum's pixels: rotation, line spread, Doppler shift (see `docs/src/equations.md`).

use super::BufferId;

/// A log-uniform run of template pixels `start..end`, `inverse_step` = 1/Δlnλ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    pub start: usize,
    pub end: usize,
    pub inverse_step: f64,
}

/// Interpolation between the pixels of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Interpolation {
    #[default]
    Cubic,
    Linear,
}

crate::words::named!(Interpolation, "interpolation", ["cubic" => Cubic, "linear" => Linear]);

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rotation {
    /// Index into [`Recording::parameters`](super::Recording::parameters), and the largest vsini that it may take; km/s.
    Parameter { parameter: usize, most: f64 },
    /// km/s.
    Fixed(f64),
}

/// Rotational broadening (Gray 2005, limb darkening 0.6) inside each segment, zero beyond its edges. Output rows: the value,
/// ∂/∂vsini if it is a parameter, then the input's tangents, derivatives by the solver's `u`. Nothing happens at vsini ≤ 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Broaden {
    pub input: BufferId,
    pub output: BufferId,
    /// Rows of the input: 1 + tangents.
    pub rows: usize,
    pub columns: usize,
    pub segments: Vec<Segment>,
    pub rotation: Rotation,
    /// With a row for vsini, if it is a parameter.
    pub derivatives: bool,
}

impl Broaden {
    /// Rows of the output.
    pub fn output_rows(&self) -> usize {
        self.rows + usize::from(self.derivatives && matches!(self.rotation, Rotation::Parameter { .. }))
    }

    /// vsini in km/s at `u`, and its derivative by u.
    pub fn vsini(&self, parameters: &[super::Parameter], u: &[f64]) -> (f64, f64) {
        match self.rotation {
            Rotation::Fixed(v) => (v, 0.0),
            Rotation::Parameter { parameter, .. } => {
                let super::Parameter { origin, scale, .. } = &parameters[parameter];
                (origin + scale * u[parameter], *scale)
            }
        }
    }
}

/// Pixels to B-spline coefficients inside each segment: 25 taps √3 (√3−2)^|k|, edges replicated.
#[derive(Clone, Debug, PartialEq)]
pub struct Prefilter {
    pub input: BufferId,
    pub output: BufferId,
    pub rows: usize,
    pub columns: usize,
    pub segments: Vec<Segment>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Velocity {
    /// Index into [`Recording::parameters`](super::Recording::parameters), km/s.
    Parameter(usize),
    /// km/s.
    Fixed(f64),
}

/// Doppler shift and resampling. Output rows: the value, ∂/∂v if the velocity is a parameter, then the input's tangents,
/// derivatives by the solver's `u`. Pixel j reads the template at fractional index `index[j] + fraction[j] − atanh(v/c)/Δlnλ`,
/// clamped to its segment. `index` packs `segment << 24 | whole index`.
#[derive(Clone, Debug, PartialEq)]
pub struct Resample {
    pub input: BufferId,
    pub input_columns: usize,
    pub output: BufferId,
    /// Rows of the input: 1 + tangents.
    pub rows: usize,
    /// Stride of the output, a multiple of 16; the last ones may be padding of weight 0.
    pub pixels: usize,
    pub index: BufferId,
    pub fraction: BufferId,
    pub segments: Vec<Segment>,
    pub interpolation: Interpolation,
    pub velocity: Velocity,
    /// With a row for the velocity, if it is a parameter.
    pub derivatives: bool,
}

impl Resample {
    /// Rows of the output.
    pub fn output_rows(&self) -> usize {
        self.rows + usize::from(self.derivatives && matches!(self.velocity, Velocity::Parameter(_)))
    }
}

/// A banded matrix applied to every row: output\[j\] = Σ_d matrix\[d\]\[j + o_d\] input\[j + o_d\], offsets o = diagonals / 2, …,
/// −diagonals / 2, zero beyond the ends. That is DESI's storage: R\[row\]\[column\] = matrix\[d\]\[column\], row = column − o_d.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolve {
    pub input: BufferId,
    pub output: BufferId,
    pub rows: usize,
    /// Stride of both, and of `matrix`.
    pub pixels: usize,
    /// Odd.
    pub diagonals: usize,
    /// (diagonals, pixels)
    pub matrix: BufferId,
}
