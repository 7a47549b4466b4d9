//! Galleries: the picked spectra that are drawn, under headings, with their models. A spectrum is drawn in the first
//! gallery that has it, and the galleries of flags link to spectra that are drawn before.

use std::collections::BTreeMap;

use super::collect::{Collector, reduced_chi_square};
use super::number::format_count;
use super::panel::SpectrumPanel;
use super::picks::PickedRow;
use crate::flag::FLAG_DESCRIPTIONS;
use crate::spectra::{ArmSpectra, Spectra};
use crate::spectral::{ArmFit, SpectralFitter};

/// Number of spectra nearest the median χ²/dof that are drawn.
const TYPICAL_PANELS: usize = 4;
/// Number of spectra drawn for each flag, beside those that another gallery shows.
const PANELS_PER_FLAG: usize = 3;
/// Number of links of a flag's gallery to spectra that another gallery shows.
const MAX_LINKS_PER_FLAG: usize = 8;

/// Spectra under one heading.
pub struct Gallery {
    pub title: String,
    /// The heading's small print.
    pub note: String,
    /// True if the gallery is folded until the reader opens it.
    pub folded: bool,
    pub panels: Vec<SpectrumPanel>,
    /// Places in the input of spectra that belong here, too, and that an earlier gallery shows.
    pub elsewhere: Vec<u64>,
}

/// Returns the galleries of drawn spectra: requested, without a fit, worst, typical (near the median χ²/dof), each
/// flag's. No spectrum is drawn twice, and none whose pixels have not been seen.
pub fn build_galleries(collector: &Collector, fitter: &SpectralFitter) -> Vec<Gallery> {
    // A spectrum is drawn in the first gallery that takes it, so the most interesting ones come first.
    let picks = &collector.picks;
    let mut builder = GalleryBuilder {
        collector,
        fitter,
        drawn: BTreeMap::new(),
    };
    let mut galleries = vec![
        builder.build_gallery(
            "Requested",
            "the spectra whose ids were asked for",
            picks.requested().collect(),
        ),
        builder.build_gallery(
            "Without a fit",
            "one for each cause",
            picks.failed().collect(),
        ),
        builder.build_gallery(
            "Largest χ²/dof",
            "about 1 is what noise alone gives",
            picks.worst().collect(),
        ),
        builder.build_gallery(
            "Typical fits",
            "nearest the median χ²/dof, from a sample",
            nearest_median(collector),
        ),
    ];
    galleries.extend((0..FLAG_DESCRIPTIONS.len()).map(|flag| builder.build_flag_gallery(flag)));
    galleries.retain(|gallery| !gallery.panels.is_empty() || !gallery.elsewhere.is_empty());
    galleries
}

/// Galleries under construction.
struct GalleryBuilder<'a> {
    collector: &'a Collector,
    fitter: &'a SpectralFitter,
    /// Flags of the spectra that are drawn, by their places in the input.
    drawn: BTreeMap<u64, u32>,
}

impl GalleryBuilder<'_> {
    /// Returns a gallery with this title and note, with a panel of each chosen row that is not drawn in an earlier one.
    fn build_gallery(&mut self, title: &str, note: &str, chosen: Vec<PickedRow>) -> Gallery {
        let panels = chosen
            .iter()
            .filter_map(|pick| self.build_panel(pick))
            .collect();
        Gallery {
            title: title.into(),
            note: note.into(),
            folded: false,
            panels,
            elsewhere: Vec::new(),
        }
    }

    /// Returns the gallery of the flag at index `place`: panels of examples, and links to those drawn already.
    fn build_flag_gallery(&mut self, place: usize) -> Gallery {
        let flag = &FLAG_DESCRIPTIONS[place];
        let elsewhere = self
            .drawn
            .iter()
            .filter(|(_, flags)| **flags & flag.bit != 0)
            .map(|(input_index, _)| *input_index)
            .take(MAX_LINKS_PER_FLAG)
            .collect();
        let mut panels = Vec::new();
        for pick in self.collector.picks.flagged(place) {
            if panels.len() < PANELS_PER_FLAG {
                panels.extend(self.build_panel(&pick));
            }
        }
        let flagged = self.collector.flags.by_flag()[place];
        let noun = if flagged == 1 { "spectrum" } else { "spectra" };
        Gallery {
            title: format!("Flag: {}", flag.label),
            note: format!("{} {noun}: {}", format_count(flagged), flag.meaning),
            folded: true,
            panels,
            elsewhere,
        }
    }

    /// Returns a panel with data and model of a chosen row; `None` if one exists already or its spectrum was not read.
    fn build_panel(&mut self, pick: &PickedRow) -> Option<SpectrumPanel> {
        let spectra = self.collector.picks.spectrum(pick)?;
        let flags = pick.row.flags.bits();
        if self.drawn.insert(pick.input_index, flags).is_some() {
            return None;
        }
        let (arms, velocity) = match self.fitter.model_spectrum(spectra, pick.row) {
            Ok(arms) => (arms, self.fitter.velocity_of(pick.row)),
            Err(_) => (arms_without_model(spectra), f64::NAN),
        };
        Some(SpectrumPanel {
            input_index: pick.input_index,
            row: pick.row.clone(),
            arms,
            velocity,
        })
    }
}

/// Returns sampled fits whose χ²/dof is nearest to the median of all, the nearest first, without the worst fits.
fn nearest_median(collector: &Collector) -> Vec<PickedRow<'_>> {
    let mut sorted = collector.point_values(0);
    sorted.retain(|chi_square| chi_square.is_finite());
    sorted.sort_by(f64::total_cmp);
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or(1.0);
    let mut sample: Vec<PickedRow> = collector.picks.sample().collect();
    sample.retain(|pick| {
        let mut worst = collector.picks.worst();
        !worst.any(|worst| worst.input_index == pick.input_index)
    });
    let distance = |pick: &PickedRow| (reduced_chi_square(pick.row) - median).abs();
    sample.sort_by(|a, b| {
        distance(a)
            .total_cmp(&distance(b))
            .then(a.input_index.cmp(&b.input_index))
    });
    sample.truncate(TYPICAL_PANELS);
    sample
}

/// Returns the arms of a spectrum to draw without a model.
fn arms_without_model(spectra: &Spectra) -> Vec<ArmFit> {
    spectra.arms.iter().map(arm_without_model).collect()
}

/// Returns an arm of a spectrum to draw without a model: flux, errors and mask, with NaN as the model.
fn arm_without_model(arm: &ArmSpectra) -> ArmFit {
    let flux = arm.flux.to_double();
    let ivar = arm.ivar.to_double();
    let is_usable = |pixel: usize| {
        let is_masked = arm.mask.get(pixel).is_some_and(|masked| *masked);
        ivar[pixel] > 0.0 && flux[pixel].is_finite() && !is_masked
    };
    ArmFit {
        name: arm.name.clone(),
        wavelength: arm.grid(0).into_owned(),
        error: ivar.iter().map(|ivar| ivar.sqrt().recip()).collect(),
        model: vec![f64::NAN; arm.pixels],
        mask: (0..arm.pixels).map(|pixel| !is_usable(pixel)).collect(),
        flux: flux.to_vec(),
        chi2: f64::NAN,
        chi2_continuum: f64::NAN,
        signal_to_noise: arm.signal_to_noise(0),
        ..ArmFit::default()
    }
}
