//! Further fits of spectra whose first fits have a large χ²/dof (`poor.rs`), and fits from beyond a fold (`fold.rs`).

use crate::error::Result;
use crate::solver::{GaveWay, Outcome, Status};
use crate::spectral::input::ready::{Monitor, ReadySpectra, ReadySpectrum, StartPoints};
use crate::spectral::search::solve::{SpectralPasses, find_winner};

/// Further starts from which a spectrum is fitted.
pub struct MoreStarts {
    /// Index of the spectrum among those that were fitted together.
    pub spectrum: usize,
    pub starts: StartPoints,
}

impl SpectralPasses {
    /// Fits spectra from more starts, and adds the new outcomes to `outcomes`. A spectrum may occur several times.
    pub fn fit_again(
        &mut self,
        spectra: ReadySpectra,
        outcomes: &mut [Vec<Outcome>],
        more_starts: Vec<MoreStarts>,
        monitor: Monitor,
    ) -> Result<()> {
        if more_starts.is_empty() {
            return Ok(());
        }
        let refitted_spectra: Vec<ReadySpectrum> = more_starts
            .iter()
            .map(|entry| spectra.spectra[entry.spectrum].clone())
            .collect();
        let indices: Vec<usize> = more_starts.iter().map(|entry| entry.spectrum).collect();
        let starts = more_starts.into_iter().map(|entry| entry.starts).collect();
        let refitted_spectra = spectra.with_spectra(&refitted_spectra);
        let new_outcomes = self
            .linearise
            .fit_from_starts(refitted_spectra, starts, monitor)?;
        for (spectrum, new_group) in indices.into_iter().zip(new_outcomes) {
            add_outcomes(
                &mut outcomes[spectrum],
                new_group,
                spectra.model.marginalise,
            );
        }
        Ok(())
    }
}

/// Adds the outcomes of more starts to those of their spectrum. Failed ones are marked so that they cannot win. If
/// there are none, the run was cancelled, and the spectrum's fit counts as interrupted.
fn add_outcomes(group: &mut Vec<Outcome>, new_outcomes: Vec<Outcome>, marginalise: bool) {
    if new_outcomes.is_empty()
        && let Some(lowest) = find_winner(group, marginalise)
    {
        group[lowest].status = Some(Status::Interrupted);
    }
    for mut outcome in new_outcomes {
        let may_win = outcome
            .status
            .is_some_and(|status| status.is_success() || status == Status::Interrupted);
        if !may_win {
            outcome.gave_way = outcome.gave_way.or(Some(GaveWay::Hopeless));
        }
        group.push(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(chi2: f64, status: Option<Status>) -> Outcome {
        Outcome {
            chi2,
            penalty: 0.0,
            ln_det: 0.0,
            status,
            ..Outcome::default()
        }
    }

    #[test]
    fn failed_outcomes_cannot_win_and_missing_ones_interrupt_the_fit() {
        let fitted_with = |new_outcomes: Vec<Outcome>| {
            let mut group = vec![outcome(7.0, Some(Status::Ftol))];
            add_outcomes(&mut group, new_outcomes, false);
            (find_winner(&group, false), group[0].status, group.len())
        };
        assert_eq!(
            fitted_with(vec![outcome(6.0, Some(Status::Ftol))]),
            (Some(1), Some(Status::Ftol), 2)
        );
        assert_eq!(
            fitted_with(vec![outcome(6.0, Some(Status::Stalled))]),
            (Some(0), Some(Status::Ftol), 2)
        );
        let two_outcomes = [5.0, 6.0].map(|chi2| outcome(chi2, Some(Status::Ftol)));
        assert_eq!(
            fitted_with(two_outcomes.to_vec()),
            (Some(1), Some(Status::Ftol), 3)
        );
        assert_eq!(
            fitted_with(Vec::new()),
            (Some(0), Some(Status::Interrupted), 1)
        );
    }
}
