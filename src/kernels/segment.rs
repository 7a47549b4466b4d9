//! Segments of template pixels, interpolation between them, and the radial velocity.

use crate::buffers::Parameter;

/// A log-uniform segment of template pixels `start..end`, `inverse_step` = 1/Δlnλ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    pub start: usize,
    pub end: usize,
    pub inverse_step: f64,
}

/// Interpolation between the pixels of a template.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[non_exhaustive]
pub enum Interpolation {
    #[default]
    Cubic,
    Linear,
}

crate::words::named!(Interpolation, "interpolation", ["cubic" => Cubic, "linear" => Linear]);

/// The radial velocity: free or fixed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Velocity {
    /// Index into [`Recording::parameters`](crate::recording::Recording::parameters), km/s.
    Parameter(usize),
    /// km/s.
    Fixed(f64),
}

impl Velocity {
    /// Returns the velocity in km/s and its derivative by u, at the solver's `u`.
    pub(super) fn evaluate(self, parameters: &[Parameter], u: &[f64]) -> (f64, f64) {
        match self {
            Velocity::Fixed(v) => (v, 0.0),
            Velocity::Parameter(p) => (
                parameters[p].origin + parameters[p].scale * u[p],
                parameters[p].scale,
            ),
        }
    }
}
