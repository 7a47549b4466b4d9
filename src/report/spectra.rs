//! Galleries: the picked spectra that are drawn, under headings, with their models. A spectrum is drawn in the first
//! gallery that has it, and the galleries of flags link to spectra that are drawn before.

use std::collections::BTreeMap;

use super::collect::{Collector, reduced};
use super::number::count;
use super::panel::Panel;
use super::picks::Pick;
use crate::flag::Flags;
use crate::spectra::{ArmSpectra, Spectra};
use crate::spectral::{ArmFit, FitRow, SpectralFitter};

/// Number of spectra drawn of those nearest the median.
const TYPICAL: usize = 4;
/// Number of spectra drawn for each flag, beside those that another gallery shows.
const PER_FLAG: usize = 3;
/// Number of links of a flag's gallery to spectra that another gallery shows.
const LINKS: usize = 8;

/// Spectra under one heading.
pub struct Gallery {
    pub title: String,
    /// The heading's small print.
    pub note: String,
    /// Folded until the reader opens it.
    pub folded: bool,
    pub panels: Vec<Panel>,
    /// Places in the input of spectra that belong here, too, and that an earlier gallery shows.
    pub elsewhere: Vec<u64>,
}

/// Returns the galleries of drawn spectra: requested, without a fit, worst, typical (near the median χ²/dof), each
/// flag's. No spectrum is drawn twice, and none whose pixels have not been seen.
pub fn galleries(kept: &Collector, fitter: &SpectralFitter) -> Vec<Gallery> {
    let picks = &kept.picks;
    let mut drawing = Drawing {
        kept,
        fitter,
        drawn: BTreeMap::new(),
    };
    let mut all = vec![
        drawing.gallery(
            "Requested",
            "the spectra whose ids were asked for",
            picks.requested().collect(),
        ),
        drawing.gallery(
            "Without a fit",
            "one for each cause",
            picks.failed().collect(),
        ),
        drawing.gallery(
            "Largest χ²/dof",
            "about 1 is what noise alone gives",
            picks.worst().collect(),
        ),
        drawing.gallery(
            "Typical fits",
            "nearest the median χ²/dof, from a sample",
            nearest_median(kept),
        ),
    ];
    all.extend((0..Flags::DESCRIPTIONS.len()).map(|place| drawing.flag_gallery(place)));
    all.retain(|gallery| !gallery.panels.is_empty() || !gallery.elsewhere.is_empty());
    all
}

/// Galleries under construction.
struct Drawing<'a> {
    kept: &'a Collector,
    fitter: &'a SpectralFitter,
    /// Flags of the spectra that are drawn, by their places in the input.
    drawn: BTreeMap<u64, u32>,
}

impl Drawing<'_> {
    /// Returns a gallery with this title and note, with a panel of each chosen row that is not drawn in an earlier one.
    fn gallery(&mut self, title: &str, note: &str, chosen: Vec<Pick>) -> Gallery {
        let panels = chosen.iter().filter_map(|pick| self.panel(pick)).collect();
        Gallery {
            title: title.into(),
            note: note.into(),
            folded: false,
            panels,
            elsewhere: Vec::new(),
        }
    }

    /// Returns the gallery of the flag at index `place`: panels of examples, and links to those drawn already.
    fn flag_gallery(&mut self, place: usize) -> Gallery {
        let flag = &Flags::DESCRIPTIONS[place];
        let carriers = self
            .drawn
            .iter()
            .filter(|(_, flags)| **flags & flag.bit != 0);
        let elsewhere = carriers.map(|(order, _)| *order).take(LINKS).collect();
        let mut panels = Vec::new();
        for pick in self.kept.picks.flagged(place) {
            if panels.len() < PER_FLAG {
                panels.extend(self.panel(&pick));
            }
        }
        let spectra = if self.kept.flags.by_flag()[place] == 1 {
            "spectrum"
        } else {
            "spectra"
        };
        let note = format!(
            "{} {spectra}: {}",
            count(self.kept.flags.by_flag()[place]),
            flag.meaning
        );
        Gallery {
            title: format!("Flag: {}", flag.label),
            note,
            folded: true,
            panels,
            elsewhere,
        }
    }

    /// Returns a panel with data and model of a chosen row; `None` if one exists already or its spectrum was not read.
    fn panel(&mut self, pick: &Pick) -> Option<Panel> {
        let spectra = self.kept.picks.spectrum(pick)?;
        if self
            .drawn
            .insert(pick.order, pick.row.flags.bits())
            .is_some()
        {
            return None;
        }
        let fitted = self.fitter.model_spectrum(spectra, pick.row);
        let velocity = if fitted.is_ok() {
            self.fitter.velocity_of(pick.row)
        } else {
            f64::NAN
        };
        let arms = fitted.unwrap_or_else(|_| data_alone(spectra));
        Some(Panel {
            order: pick.order,
            row: pick.row.clone(),
            arms,
            velocity,
        })
    }
}

/// Returns sampled fits whose χ²/dof is nearest to the median of all, the nearest first, without the worst fits.
fn nearest_median(kept: &Collector) -> Vec<Pick<'_>> {
    let mut all = kept.column(0);
    all.retain(|x| x.is_finite());
    all.sort_by(f64::total_cmp);
    let median = all.get(all.len() / 2).copied().unwrap_or(1.0);
    let is_worst = |pick: &Pick| kept.picks.worst().any(|other| other.order == pick.order);
    let mut sample: Vec<Pick> = kept.picks.sample().filter(|pick| !is_worst(pick)).collect();
    let distance = |row: &FitRow| (reduced(row) - median).abs();
    sample.sort_by(|a, b| {
        distance(a.row)
            .total_cmp(&distance(b.row))
            .then(a.order.cmp(&b.order))
    });
    sample.truncate(TYPICAL);
    sample
}

/// Returns the arms of a spectrum to draw without a model.
fn data_alone(spectra: &Spectra) -> Vec<ArmFit> {
    spectra.arms.iter().map(arm_alone).collect()
}

/// Returns an arm of a spectrum to draw without a model: flux, errors and mask, with NaN as the model.
fn arm_alone(arm: &ArmSpectra) -> ArmFit {
    let (flux, ivar) = (arm.flux.to_double(), arm.ivar.to_double());
    let counts = |j: usize| {
        ivar[j] > 0.0 && flux[j].is_finite() && !arm.mask.get(j).is_some_and(|masked| *masked)
    };
    ArmFit {
        name: arm.name.clone(),
        wavelength: arm.grid(0).into_owned(),
        error: ivar.iter().map(|w| w.sqrt().recip()).collect(),
        model: vec![f64::NAN; arm.pixels],
        mask: (0..arm.pixels).map(|j| !counts(j)).collect(),
        flux: flux.to_vec(),
        chi2: f64::NAN,
        chi2_continuum: f64::NAN,
        signal_to_noise: arm.signal_to_noise(0),
        ..ArmFit::default()
    }
}
