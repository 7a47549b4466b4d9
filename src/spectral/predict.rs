//! Model spectra of given parameters, without data.

use crate::error::{Error, Result};
use crate::model::LineSpread;
use crate::spectra::{ArmSpectra, Spectra};
use crate::spectral::SpectralFitter;
use crate::spectral::check::make_unit_spectrum;
use crate::spectral::inspect::{InspectedRows, ModelPoint};

/// The model of one arm at given parameters. Arrays are (pixels).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ArmPrediction {
    /// Name of the model's arm.
    pub name: String,
    /// Wavelengths in Å, vacuum.
    pub wavelength: Vec<f64>,
    /// Flux in the units of the network, shifted, broadened and resolved by the model, but not multiplied by a
    /// continuum; NaN in pixels that a fit at these parameters leaves out: those that the network does not reach,
    /// with a margin, and those that the model masks.
    pub flux: Vec<f64>,
}

impl SpectralFitter {
    /// Evaluates the model on the CPU at the values `parameters` of its free parameters, in the order of
    /// [`parameters`](SpectralFitter::parameters), as a fit evaluates it. The pixels are those of the first of the
    /// spectra `like`, with its resolution if the model asks for it, or else those of the networks. Fluxes, errors and
    /// masks of `like` have no effect, and arms that it lacks are left out.
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] for another number of values than the model has free parameters, and for a
    /// value outside its bounds; [`Error::Usage`] for spectra without a row, and if no pixel is left; and the errors
    /// that a [`fit`](SpectralFitter::fit) of these spectra would have for their arms and wavelengths.
    pub fn predict(
        &self,
        parameters: &[f64],
        like: Option<&Spectra>,
    ) -> Result<Vec<ArmPrediction>> {
        self.check_values(parameters)?;
        // 1. Evaluate the model on the pixels of a spectrum of ones.
        let ones = match like {
            Some(spectra) if spectra.is_empty() => {
                return Err(Error::Usage("there is no spectrum to be like".into()));
            }
            Some(spectra) => ones_like(spectra),
            None => self.ones_on_own_grids()?,
        };
        let point = ModelPoint {
            place: 0,
            parameters,
        };
        let inspected_arms = self
            .make_run()?
            .inspect(&ones, &[point], InspectedRows::Values)?
            .swap_remove(0);
        // 2. Leave out the arms that the spectrum lacks, and the pixels that a fit would leave out. All pixels of the
        //    spectrum have a weight, so the model has left out those that have none now.
        let mut predictions = Vec::with_capacity(inspected_arms.len());
        for (arm, inspected) in self.model.arms.iter().zip(inspected_arms) {
            let data = match ones.arms.as_slice() {
                [only] if self.model.arms.len() == 1 => Some(only),
                arms => arms.iter().find(|data| data.name == arm.name),
            };
            let Some(data) = data else { continue };
            let mut flux = Vec::with_capacity(data.pixels);
            for j in 0..data.pixels {
                let counts = inspected.prepared.weight[j] != 0.0;
                flux.push(if counts {
                    inspected.model[j] * arm.unit
                } else {
                    f64::NAN
                });
            }
            predictions.push(ArmPrediction {
                name: arm.name.clone(),
                wavelength: data.grid(0).into_owned(),
                flux,
            });
        }
        Ok(predictions)
    }

    /// Returns a spectrum of ones on the wavelengths of each arm's network.
    fn ones_on_own_grids(&self) -> Result<Spectra<'static>> {
        if let Some(arm) = self
            .model
            .arms
            .iter()
            .find(|arm| arm.line_spread == LineSpread::File)
        {
            return Err(Error::Usage(format!(
                "arm {:?}: its line spread is that of each spectrum (`line_spread = \"file\"`): give spectra whose \
                 resolution is to be used",
                arm.name
            )));
        }
        let wavelengths: Vec<&[f64]> = self
            .model
            .arms
            .iter()
            .map(|arm| arm.emulator.wavelength())
            .collect();
        make_unit_spectrum(&wavelengths, self)
    }

    /// Fails unless there is a value within its bounds for each free parameter.
    fn check_values(&self, values: &[f64]) -> Result<()> {
        let names = self.parameters();
        if values.len() != names.len() {
            let message = format!(
                "{} values are given for the free parameters {}",
                values.len(),
                names.join(", ")
            );
            return Err(Error::invalid("parameters", message));
        }
        for ((name, value), (lower, upper)) in names.iter().zip(values).zip(self.model.bounds()) {
            if !(lower..=upper).contains(value) {
                let message =
                    format!("{name} = {value} is outside the model's bounds, {lower} to {upper}");
                return Err(Error::invalid("parameters", message));
            }
        }
        Ok(())
    }
}

/// Returns the first of the spectra with fluxes and weights of 1 and without masks.
fn ones_like(spectra: &Spectra) -> Spectra<'static> {
    let mut first = spectra.slice(0..1);
    if first.exposures.take().is_some() {
        first.arms = first.arms.iter().map(|arm| arm.copy_rows(&[0])).collect();
    }
    for arm in &mut first.arms {
        let ones = vec![1.0; arm.pixels];
        *arm = ArmSpectra {
            flux: ones.clone().into(),
            ivar: ones.into(),
            mask: Vec::new().into(),
            covariance: None,
            ..arm.clone()
        };
    }
    first
}
