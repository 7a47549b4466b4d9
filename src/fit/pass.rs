//! A population of one shape of spectra, and the objective that it was made for.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::ready::Starts;
use super::waiting::{Entering, Waiting};
use crate::error::{Error, Result};
use crate::model::{Prepared, SpectralObjective};
use crate::recording::Precision;
use crate::rows::Real;
use crate::solver::{Outcome, Population, Queue, linearise, stream};

/// Differences of an objective that is computed twice in f32: its own, in units of χ², and what a pixel's model may be
/// off.
const AGREE: (f64, f64) = (0.01, 1e-3);
const ROUNDING: f64 = 1e-5;

/// The flag that stops a pass, and the function that is told the share of it that is done.
pub type Watched<'a> = (&'a AtomicBool, &'a mut dyn FnMut(f64));

/// The outcomes of each spectrum's starts, and the submission after which they left.
pub type Left = (Vec<Vec<Outcome>>, Vec<u32>);

/// A population and the objective that it was made for.
pub struct Pass {
    pub objective: Arc<SpectralObjective>,
    pub population: Box<dyn Population>,
}

impl Pass {
    /// Fits each spectrum from its starts; with the outcomes comes when they left ([`Waiting::left`]).
    pub fn run(&mut self, spectra: Entering, starts: Vec<Starts>, (cancel, watch): Watched) -> Result<Left> {
        let members = starts.iter().map(Vec::len).sum::<usize>() * self.population.lanes();
        let mut queue = Waiting::new(&self.objective, spectra, starts);
        let mut progress = |left: usize| watch(1.0 - left as f64 / members.max(1) as f64);
        queue.watch = Some((self.population.lanes(), &mut progress));
        pollster::block_on(stream(self.population.as_mut(), &mut queue, cancel))?;
        Ok((queue.outcomes, queue.left))
    }

    /// The sums at each spectrum's starts.
    pub fn sums(&mut self, spectra: Entering, starts: Vec<Starts>) -> Result<Vec<Vec<Outcome>>> {
        let capacity = self.population.capacity();
        let mut queue = Waiting::new(&self.objective, spectra, starts);
        let mut all = Vec::new();
        while let Some(batch) = queue.next(capacity, capacity) {
            all.extend(pollster::block_on(linearise(self.population.as_mut(), &batch))?);
        }
        let mut rest = all.into_iter();
        Ok(queue.starts.iter().map(|own| rest.by_ref().take(own.len()).collect()).collect())
    }
}

/// Relative error of an objective: GPUs add in f32.
pub fn objective_noise(on_gpu: bool, precision: Precision) -> f64 {
    match precision {
        _ if on_gpu => f32::COST_NOISE,
        Precision::F64 => f64::SIMPLEX_NOISE,
        Precision::F32 | Precision::Mixed => f32::SIMPLEX_NOISE,
    }
}

pub fn objective(outcome: &Outcome, marginalise: bool) -> f64 {
    let value = outcome.chi2 + outcome.penalty + if marginalise { outcome.ln_det } else { 0.0 };
    if value.is_finite() { value } else { f64::INFINITY }
}

/// [`Error::DeviceUntrusted`] when the objective that a device told `before` of a point is not what it tells of it
/// `now`, in another readback, with `sums`: one of them is wrong. `share` of χ² is allowed beside rounding.
pub fn agree(
    device: &str,
    (before, now): (f64, f64),
    (sums, prepared): (&Outcome, &Prepared),
    share: f64,
) -> Result<()> {
    // spectra without noise leave nothing but the rounding of their pixels
    let rounding = prepared.unmasked as f64 * (ROUNDING * prepared.signal_to_noise).powi(2);
    let allowed = AGREE.0 + (AGREE.1 + share) * (sums.chi2 + sums.penalty) + rounding;
    if before.is_finite() && now.is_finite() && (before - now).abs() > allowed {
        let message = format!("a fit ends at an objective of {before}, which is {now} when asked again");
        return Err(Error::DeviceUntrusted { device: device.into(), message });
    }
    Ok(())
}
