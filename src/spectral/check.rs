//! Comparison of the model's derivatives with differences of its values, in f64.

use std::sync::Arc;

use crate::curve_model::{DerivativeCheck, compare_row, is_worse};
use crate::error::Result;
use crate::first_guess;
use crate::model::{LineSpread, ModelParameter};
use crate::spectra::{Resolution, Spectra};
use crate::spectral::SpectralFitter;
use crate::spectral::inspect::{InspectedArm, ModelPoint, ModelRows};
use crate::spectral::run::Run;

/// Number of points of the first guess that are checked.
const POINTS: usize = 3;
/// Step of the central differences, in the solver's units. Truncation and rounding errors are both about 1e-10.
const STEP: f64 = 1e-5;
/// Velocity in km/s. At zero every pixel would lie on a knot of the interpolation.
const VELOCITY: f64 = 37.0;
/// Rotation velocity in km/s. The rotation kernel has a kink if its radius is a whole number of pixels.
const VSINI: f64 = 37.0;

impl SpectralFitter {
    /// Compares the model's derivatives with central differences at points of the first-guess library, in f64 on the
    /// CPU, and returns for each parameter the worst pixel. The spectra are the templates' own grids.
    ///
    /// # Errors
    /// Returns [`Error::InvalidSettings`](crate::Error::InvalidSettings) and [`Error::Usage`](crate::Error::Usage) for
    /// settings that a fit would refuse, [`Error::Model`](crate::Error::Model) if no point lies inside both the bounds
    /// and the training hulls, and [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn check_jacobian(&self) -> Result<Vec<DerivativeCheck>> {
        // arms that differ by their names alone have the same derivatives
        let model = self.model.with_distinct_arms();
        if model.arms.len() < self.model.arms.len() {
            return SpectralFitter {
                model,
                shared: Arc::default(),
                ..self.clone()
            }
            .check_jacobian();
        }
        let spectra = own_grids(
            &model
                .arms
                .iter()
                .map(|a| a.emulator.wavelength())
                .collect::<Vec<_>>(),
            self,
        )?;
        let points = first_guess::library_points(&model, self.seed)?;
        let parameters = &self.model.parameters;
        // a parameter that nothing depends on has no error
        let named = |p: &ModelParameter| DerivativeCheck {
            parameter: p.solver.name.clone(),
            ..Default::default()
        };
        let mut worst: Vec<DerivativeCheck> = parameters.iter().map(named).collect();
        for u in points.iter().take(POINTS) {
            let mut point: Vec<f64> = parameters
                .iter()
                .zip(u)
                .map(|(p, u)| p.to_physical(*u))
                .collect();
            for (free, at) in [
                (self.model.free_velocity(), VELOCITY),
                (self.model.free_vsini(), VSINI),
            ] {
                if let Some(p) = free {
                    point[p] = at.clamp(parameters[p].lower, parameters[p].upper);
                }
            }
            for (p, worst) in worst.iter_mut().enumerate() {
                for check in self.column_checks(&spectra, &point, p)? {
                    if is_worse(check.error, worst.error) {
                        *worst = check;
                    }
                }
            }
        }
        Ok(worst)
    }

    /// Compares the model's derivatives by parameter `p` with central differences in each arm that depends on it.
    fn column_checks(
        &self,
        spectra: &Spectra,
        point: &[f64],
        p: usize,
    ) -> Result<Vec<DerivativeCheck>> {
        let mut run = self.run()?;
        let scale = self.model.parameters[p].solver.scale;
        let mut at = |offset: f64| inspect_moved(&mut run, spectra, point, p, offset * scale);
        let (low, middle, high) = (at(-STEP)?, at(0.0)?, at(STEP)?);
        let name = &self.model.parameters[p].solver.name;
        let mut checks = Vec::new();
        for (a, arm) in self.model.arms.iter().enumerate() {
            let columns = self.model.columns(arm);
            let Some(row) = columns.iter().position(|&column| column == p) else {
                continue;
            };
            let (pixels, padded) = (arm.emulator.pixels(), middle[a].prepared.data.len());
            let derivatives = middle[a].model[(1 + row) * padded..][..pixels]
                .iter()
                .map(|d| d / scale);
            let ends = high[a].model.iter().zip(&low[a].model).take(pixels);
            let differences: Vec<f64> = ends
                .map(|(high, low)| (high - low) / (2.0 * STEP * scale))
                .collect();
            let check = compare_row(name, &derivatives.collect::<Vec<f64>>(), &differences);
            checks.push(DerivativeCheck {
                arm: arm.name.clone(),
                ..check
            });
        }
        Ok(checks)
    }
}

/// Evaluates each arm's model of the first spectrum in f64 at a point whose parameter `p` is moved `by` a physical
/// amount.
fn inspect_moved(
    run: &mut Run,
    spectra: &Spectra,
    point: &[f64],
    p: usize,
    by: f64,
) -> Result<Vec<InspectedArm>> {
    let mut parameters = point.to_vec();
    parameters[p] += by;
    let moved = ModelPoint {
        place: 0,
        parameters: &parameters,
    };
    run.inspect(spectra, &[moved], ModelRows::WithDerivatives)
        .map(|mut one| one.swap_remove(0))
}

/// Returns a spectrum of flux 1 and ivar 1 on the wavelengths of each arm's template.
pub fn own_grids(wavelengths: &[&[f64]], fitter: &SpectralFitter) -> Result<Spectra<'static>> {
    let mut arms = Vec::new();
    for (arm, wavelength) in fitter.model.arms.iter().zip(wavelengths) {
        let ones = vec![1.0; wavelength.len()];
        let mut one =
            Spectra::from_arrays(wavelength.to_vec(), ones.clone(), ones, None, None)?.arms;
        for mut data in one.drain(..) {
            data.name = arm.name.clone();
            if arm.line_spread == LineSpread::File {
                data = data.with_resolution(smooth_resolution(wavelength.len()))?;
            }
            if let Some(widening) = fitter.model.widening() {
                data = data.with_mask_bits(&vec![0; wavelength.len()], widening)?;
            }
            arms.push(data);
        }
    }
    let mut spectra = Spectra::from_arrays(vec![1.0], vec![1.0], vec![1.0], None, None)?;
    spectra.arms = arms;
    Ok(spectra)
}

/// Returns a Gaussian with σ = 1 pixel, and five pixels on either side, as a resolution matrix.
fn smooth_resolution(pixels: usize) -> Resolution<'static> {
    let weight =
        |d: usize| (-0.5 * (d as f32 - 5.0).powi(2)).exp() / (2.0 * std::f32::consts::PI).sqrt();
    Resolution {
        diagonals: 11,
        values: (0..11).flat_map(|d| vec![weight(d); pixels]).collect(),
    }
}
