//! Which of the kept spectra are drawn, and their models.

use super::collect::{Collector, KeptSpectrum, reduced};
use super::panel::Panel;
use crate::fit::{ArmFit, SpectralFitter};
use crate::spectra::{Spectra, Wavelength};

/// Spectra drawn of those nearest the median.
const TYPICAL: usize = 4;

pub const FAILED: &str = "Without a fit";
pub const WORST: &str = "Worst fits";
pub const MEDIAN: &str = "Typical fits";

/// Those without a fit, then the worst, then those nearest the median χ²/dof; none twice.
pub fn panels(kept: &Collector, fitter: &SpectralFitter) -> Vec<Panel> {
    let mut chosen: Vec<(&'static str, u64, &KeptSpectrum)> = Vec::new();
    chosen.extend(kept.failed.values().map(|(order, spectrum)| (FAILED, *order, spectrum)));
    chosen.extend(kept.worst.iter().map(|(order, spectrum)| (WORST, order, spectrum)));
    for (order, spectrum) in nearest_median(kept) {
        let fresh = chosen.iter().all(|(_, other, _)| *other != order);
        if fresh && chosen.iter().filter(|(group, ..)| *group == MEDIAN).count() < TYPICAL {
            chosen.push((MEDIAN, order, spectrum));
        }
    }
    let draw = |(group, _, kept): (&'static str, u64, &KeptSpectrum)| {
        let fitted = fitter.model_spectrum(&kept.spectra, &kept.row);
        Panel { group, kept: kept.clone(), arms: fitted.unwrap_or_else(|_| data_alone(&kept.spectra)) }
    };
    chosen.into_iter().map(draw).collect()
}

/// The sample, the nearest to the median χ²/dof of all fits first.
fn nearest_median(kept: &Collector) -> Vec<(u64, &KeptSpectrum)> {
    let mut all = kept.column(0);
    all.retain(|x| x.is_finite());
    all.sort_by(f64::total_cmp);
    let median = all.get(all.len() / 2).copied().unwrap_or(1.0);
    let mut sample: Vec<(u64, &KeptSpectrum)> = kept.sample.iter().collect();
    let distance = |spectrum: &KeptSpectrum| (reduced(&spectrum.row) - median).abs();
    sample.sort_by(|(i, a), (j, b)| distance(a).total_cmp(&distance(b)).then(i.cmp(j)));
    sample
}

/// A spectrum without a fit.
fn data_alone(spectra: &Spectra) -> Vec<ArmFit> {
    let arm = |arm: &crate::spectra::ArmSpectra| ArmFit {
        name: arm.name.clone(),
        wavelength: match &arm.wavelength {
            Wavelength::Shared(wavelength) => wavelength.to_vec(),
            Wavelength::Own(wavelength) => wavelength.clone(),
        },
        flux: arm.flux.clone(),
        error: arm.ivar.iter().map(|w| w.sqrt().recip()).collect(),
        model: vec![f64::NAN; arm.pixels],
        mask: (0..arm.pixels)
            .map(|j| !(arm.ivar[j] > 0.0 && arm.flux[j].is_finite()) || arm.mask.get(j).is_some_and(|masked| *masked))
            .collect(),
        chi2: f64::NAN,
        unmasked: 0,
        chi2_continuum: f64::NAN,
        signal_to_noise: arm.signal_to_noise(0),
    };
    spectra.arms.iter().map(arm).collect()
}
