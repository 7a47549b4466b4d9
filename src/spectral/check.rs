//! Comparison of the model's derivatives with differences of its values, in f64.

use std::sync::Arc;

use crate::curve_model::{DerivativeCheck, compare_row, is_worse};
use crate::error::Result;
use crate::first_guess;
use crate::model::LineSpread;
use crate::spectra::{Resolution, Spectra};
use crate::spectral::SpectralFitter;
use crate::spectral::inspect::{InspectedArm, InspectedRows, ModelPoint};
use crate::spectral::run::SpectralRun;

/// Number of points of the first guess that are checked.
const CHECKED_POINTS: usize = 3;
/// Step of the central differences, in the solver's units. Truncation and rounding errors are both about 1e-10.
const DIFFERENCE_STEP: f64 = 1e-5;
/// Velocity in km/s. At zero every pixel would lie on a knot of the interpolation.
const CHECKED_VELOCITY: f64 = 37.0;
/// Rotation velocity in km/s. The rotation kernel has a kink if its radius is a whole number of pixels.
const CHECKED_VSINI: f64 = 37.0;

impl SpectralFitter {
    /// Compares the model's derivatives with central differences at points of the first-guess library, in f64 on the
    /// CPU, and returns for each parameter the worst pixel. The spectra are the templates' own grids.
    ///
    /// # Errors
    /// Returns [`Error::InvalidSettings`](crate::Error::InvalidSettings) and [`Error::Usage`](crate::Error::Usage) for
    /// settings that a fit would refuse, [`Error::Model`](crate::Error::Model) if no point lies inside both the bounds
    /// and the training hulls, and [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn check_jacobian(&self) -> Result<Vec<DerivativeCheck>> {
        // 1. Arms that differ by their names alone have the same derivatives.
        let model = self.model.with_distinct_arms();
        if model.arms.len() < self.model.arms.len() {
            let fitter = SpectralFitter {
                model,
                shared: Arc::default(),
                ..self.clone()
            };
            return fitter.check_jacobian();
        }
        let wavelengths: Vec<&[f64]> = model
            .arms
            .iter()
            .map(|arm| arm.emulator.wavelength())
            .collect();
        let spectra = make_unit_spectrum(&wavelengths, self)?;
        let points = first_guess::library_points(&model, self.seed)?;
        // 2. A parameter that nothing depends on has no error.
        let parameters = &self.model.parameters;
        let mut worst_checks: Vec<DerivativeCheck> = parameters
            .iter()
            .map(|parameter| DerivativeCheck {
                parameter: parameter.solver.name.clone(),
                ..Default::default()
            })
            .collect();
        // 3. Compare at each point, by each parameter. NaN counts as the worst error.
        for u in points.iter().take(CHECKED_POINTS) {
            let mut point: Vec<f64> = parameters
                .iter()
                .zip(u)
                .map(|(parameter, u)| parameter.to_physical(*u))
                .collect();
            if let Some(p) = self.model.free_velocity() {
                point[p] = CHECKED_VELOCITY.clamp(parameters[p].lower, parameters[p].upper);
            }
            if let Some(p) = self.model.free_vsini() {
                point[p] = CHECKED_VSINI.clamp(parameters[p].lower, parameters[p].upper);
            }
            for (p, worst) in worst_checks.iter_mut().enumerate() {
                for check in self.check_derivatives(&spectra, &point, p)? {
                    if is_worse(check.error, worst.error) {
                        *worst = check;
                    }
                }
            }
        }
        Ok(worst_checks)
    }

    /// Compares the model's derivatives by parameter `p` with central differences in each arm that depends on it.
    fn check_derivatives(
        &self,
        spectra: &Spectra,
        point: &[f64],
        p: usize,
    ) -> Result<Vec<DerivativeCheck>> {
        // 1. Evaluate the model at the point, and a step below and above it.
        let mut run = self.make_run()?;
        let parameter = &self.model.parameters[p].solver;
        let step = DIFFERENCE_STEP * parameter.scale;
        let arms_below = inspect_moved(&mut run, spectra, point, p, -step)?;
        let arms_at_point = inspect_moved(&mut run, spectra, point, p, 0.0)?;
        let arms_above = inspect_moved(&mut run, spectra, point, p, step)?;
        // 2. Compare the derivatives, which follow the values row by row, with (above − below) / 2 step.
        let mut checks = Vec::new();
        for (a, arm) in self.model.arms.iter().enumerate() {
            let columns = self.model.derivative_parameters(a);
            let Some(column) = columns.iter().position(|&column| column == p) else {
                continue;
            };
            let pixels = arm.emulator.pixels();
            let padded_pixels = arms_at_point[a].prepared.weighted_flux.len();
            let row = &arms_at_point[a].model[(1 + column) * padded_pixels..][..pixels];
            let derivatives: Vec<f64> = row.iter().map(|by_u| by_u / parameter.scale).collect();
            let differences: Vec<f64> = arms_above[a]
                .model
                .iter()
                .zip(&arms_below[a].model)
                .take(pixels)
                .map(|(above, below)| (above - below) / (2.0 * DIFFERENCE_STEP * parameter.scale))
                .collect();
            checks.push(DerivativeCheck {
                arm: arm.name.clone(),
                ..compare_row(&parameter.name, &derivatives, &differences)
            });
        }
        Ok(checks)
    }
}

/// Evaluates each arm's model of the first spectrum in f64 at a point whose parameter `p` is moved by an offset
/// in physical units.
fn inspect_moved(
    run: &mut SpectralRun,
    spectra: &Spectra,
    point: &[f64],
    p: usize,
    offset: f64,
) -> Result<Vec<InspectedArm>> {
    let mut parameters = point.to_vec();
    parameters[p] += offset;
    let moved_point = ModelPoint {
        place: 0,
        parameters: &parameters,
    };
    let mut inspected = run.inspect(spectra, &[moved_point], InspectedRows::WithDerivatives)?;
    Ok(inspected.swap_remove(0))
}

/// Returns a spectrum of flux 1 and ivar 1 on the wavelengths of each arm's template.
pub fn make_unit_spectrum(
    wavelengths: &[&[f64]],
    fitter: &SpectralFitter,
) -> Result<Spectra<'static>> {
    let mut arms = Vec::new();
    for (arm, wavelength) in fitter.model.arms.iter().zip(wavelengths) {
        let ones = vec![1.0; wavelength.len()];
        let spectrum = Spectra::from_arrays(wavelength.to_vec(), ones.clone(), ones, None, None)?;
        for mut data in spectrum.arms {
            data.name = arm.name.clone();
            if arm.line_spread == LineSpread::File {
                data = data.with_resolution(make_gaussian_resolution(wavelength.len()))?;
            }
            if let Some(widening) = fitter.model.widening() {
                data = data.with_mask_bits(&vec![0; wavelength.len()], widening)?;
            }
            arms.push(data);
        }
    }
    // The arms of a spectrum with a single pixel are replaced.
    let mut spectra = Spectra::from_arrays(vec![1.0], vec![1.0], vec![1.0], None, None)?;
    spectra.arms = arms;
    Ok(spectra)
}

/// Returns a Gaussian with σ = 1 pixel, and five pixels on either side, as a resolution matrix.
fn make_gaussian_resolution(pixels: usize) -> Resolution<'static> {
    let mut values = Vec::with_capacity(11 * pixels);
    for diagonal in 0..11 {
        let offset = diagonal as f32 - 5.0;
        let weight = (-0.5 * offset.powi(2)).exp() / (2.0 * std::f32::consts::PI).sqrt();
        values.extend(vec![weight; pixels]);
    }
    Resolution {
        diagonals: 11,
        values: values.into(),
    }
}
