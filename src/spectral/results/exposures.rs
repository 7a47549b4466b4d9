//! Velocities of the exposures of an object.

/// Velocities of the exposures that were fitted together, each with its own; km/s.
#[derive(Clone, Debug, PartialEq)]
pub struct ExposureVelocities {
    /// (exposures) Velocity of each exposure, in the order of the spectra; NaN without data.
    pub velocities: Vec<f64>,
    /// (exposures) Standard errors of the velocities; NaN where there is none.
    pub errors: Vec<f64>,
}
