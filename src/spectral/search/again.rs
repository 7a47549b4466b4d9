//! Further fits of spectra that have been fitted: where χ²/dof is large (`poor.rs`), and from beyond a fold
//! (`fold.rs`).

use crate::error::Result;
use crate::solver::{GaveWay, Outcome, Status};
use crate::spectral::input::ready::{Monitor, ReadySpectra, ReadySpectrum, Starts};
use crate::spectral::search::solve::{Passes, winner};

/// Starts from which a spectrum is fitted once more.
pub struct MoreStarts {
    /// Index of the spectrum among those that were fitted together.
    pub spectrum: usize,
    pub starts: Starts,
}

impl Passes {
    /// Fits spectra from more starts, and adds the outcomes to those in `found`. A spectrum may occur several times.
    pub fn fit_again(
        &mut self,
        spectra: ReadySpectra,
        found: &mut [Vec<Outcome>],
        more: Vec<MoreStarts>,
        monitor: Monitor,
    ) -> Result<()> {
        if more.is_empty() {
            return Ok(());
        }
        let own: Vec<ReadySpectrum> = more
            .iter()
            .map(|one| spectra.spectra[one.spectrum].clone())
            .collect();
        let places: Vec<usize> = more.iter().map(|one| one.spectrum).collect();
        let starts = more.into_iter().map(|one| one.starts).collect();
        let ends = self.rounds(spectra.with_spectra(&own), starts, monitor)?;
        for (k, ends) in places.into_iter().zip(ends) {
            add_outcomes(&mut found[k], ends, spectra.model.marginalise);
        }
        Ok(())
    }
}

/// Adds the outcomes of more starts to those of their spectrum. A failed one is marked so that it cannot win. Without
/// outcomes the run was cancelled, and the spectrum's fit counts as interrupted.
fn add_outcomes(group: &mut Vec<Outcome>, ends: Vec<Outcome>, marginalise: bool) {
    if ends.is_empty()
        && let Some(lowest) = winner(group, marginalise)
    {
        group[lowest].status = Some(Status::Interrupted);
    }
    for mut end in ends {
        let may_win = end
            .status
            .is_some_and(|status| status.is_success() || status == Status::Interrupted);
        end.gave_way = end.gave_way.or((!may_win).then_some(GaveWay::Hopeless));
        group.push(end);
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
    fn a_failed_start_does_not_win_and_a_missing_one_interrupts() {
        let found = || vec![outcome(7.0, Some(Status::Ftol))];
        let with = |ends: Vec<Outcome>| {
            let mut group = found();
            add_outcomes(&mut group, ends, false);
            (winner(&group, false), group[0].status, group.len())
        };
        assert_eq!(
            with(vec![outcome(6.0, Some(Status::Ftol))]),
            (Some(1), Some(Status::Ftol), 2)
        );
        assert_eq!(
            with(vec![outcome(6.0, Some(Status::Stalled))]),
            (Some(0), Some(Status::Ftol), 2)
        );
        let both = [5.0, 6.0].map(|chi2| outcome(chi2, Some(Status::Ftol)));
        assert_eq!(with(both.to_vec()), (Some(1), Some(Status::Ftol), 3));
        assert_eq!(with(Vec::new()), (Some(0), Some(Status::Interrupted), 1));
    }
}
