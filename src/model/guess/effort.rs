//! The effort of a first guess, which grows where little of a spectrum counts.

use super::Prepared;
use super::choose::MOST_COMPETING;

/// The share of its pixels in effect below which a spectrum is scarce.
const SCARCE: f64 = 0.125;
/// Starts of a spectrum with a basis of its own: where so little of a grid is left, a continuum takes up much of what
/// distinguishes templates, and how well they fit says little of how well a fit from them will.
const STARTS_OF_OWN_BASIS: usize = 8;
/// Starts of a scarce spectrum. Of 600 spectra with 5 or 10 % of their pixels, at 10 to 32 terms, 25 missed the minimum
/// with 8 starts at one velocity per template, 44 with 8 at four velocities, 14 with 16 and 8 with 32.
const STARTS_OF_SCARCE: usize = 32;
/// Velocities at which each template of a scarce spectrum is judged.
const VELOCITIES_OF_SCARCE: usize = 4;
/// Maximum number of starts per spectrum, where the user does not set it.
pub const MOST_STARTS: usize = if MOST_COMPETING > STARTS_OF_SCARCE { MOST_COMPETING } else { STARTS_OF_SCARCE };

/// Number of templates, velocities and starts that are tried for one spectrum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Every template, and not only the best by their lines, is judged with a continuum of its own.
    pub refits_all: bool,
    /// Number of velocities at which each template is judged: those of the lowest minima of its scores.
    pub velocities: usize,
    /// Number of starts; `None` for those that compete with the best.
    pub starts: Option<usize>,
}

impl Effort {
    /// Decides for a spectrum whether all templates are refitted, and how many velocities and starts it gets, by its
    /// continuum and effective pixels.
    pub fn new(prepared: &Prepared) -> Effort {
        if prepared.arms.iter().all(|arm| arm.basis.is_empty()) {
            Effort { refits_all: false, velocities: 1, starts: None }
        } else if pixels_in_effect(prepared) < SCARCE * prepared.pixels as f64 {
            Effort { refits_all: true, velocities: VELOCITIES_OF_SCARCE, starts: Some(STARTS_OF_SCARCE) }
        } else {
            Effort { refits_all: true, velocities: 1, starts: Some(STARTS_OF_OWN_BASIS) }
        }
    }
}

/// Returns the effective number of pixels, (Σ w)² / Σ w² of the inverse variances w (Kish 1965, Survey Sampling,
/// §11.7), summed over arms.
fn pixels_in_effect(prepared: &Prepared) -> f64 {
    let of_arm = |weight: &[f32]| {
        let ivar = weight.iter().map(|w| f64::from(*w).powi(2));
        let (sum, squares) = ivar.fold((0.0, 0.0), |(sum, squares), w| (sum + w, squares + w * w));
        if squares > 0.0 { sum * sum / squares } else { 0.0 }
    };
    prepared.arms.iter().map(|arm| of_arm(&arm.weight)).sum()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{all_prepared, demo};
    use super::*;

    /// Pixels whose weight is lowered by many orders count as little as masked ones.
    #[test]
    fn lowered_weights_count_as_masked_pixels() {
        for factor in [0.0, 1e-8] {
            let (model, _, mut spectra) = demo();
            let arm = &mut spectra.arms[0];
            let lowered = arm.pixels * 9 / 10;
            arm.ivar
                .to_mut()
                .chunks_mut(arm.pixels)
                .for_each(|ivar| ivar[..lowered].iter_mut().for_each(|w| *w *= factor));
            for prepared in all_prepared(&model, &spectra).1 {
                let share = pixels_in_effect(&prepared) / prepared.pixels as f64;
                assert!((0.05..0.1).contains(&share), "{factor}: {share}");
                assert_eq!(Effort::new(&prepared).starts, Some(MOST_STARTS), "{factor}");
            }
        }
    }
}
