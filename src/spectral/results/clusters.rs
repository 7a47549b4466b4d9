//! The rows of a cluster, from its joint fit.

use super::row::FitRow;
use super::row_builder::RowBuilder;
use crate::flag::Flags;
use crate::math::covariance::covariance;
use crate::solver::{Outcome, Status};
use crate::spectral::clusters::{Cluster, ClusterMember};
use crate::spectral::input::ready::ReadySpectrum;

/// Flags of the single fit and of its input, which the joint fit keeps.
const KEPT_FLAGS: Flags = Flags::START_CLIPPED
    .union(Flags::NEGATIVE_FLUX)
    .union(Flags::MULTIMODAL);

impl RowBuilder<'_> {
    /// Replaces the single fits in the rows of a cluster's members by the joint one. `rows` and `spectra` are those of
    /// the members, in their order; the limits of `spectra` have the model's priors.
    pub fn fill_cluster_rows(
        &self,
        rows: &mut [FitRow],
        cluster: &Cluster,
        spectra: &[&ReadySpectrum],
    ) {
        let count = rows.len();
        // 1. Set the parameters. They tell which of them are at a bound.
        let mut is_free = Vec::with_capacity(count);
        for ((row, member), spectrum) in rows.iter_mut().zip(&cluster.members).zip(spectra) {
            let ClusterMember { outcome, point, .. } = member;
            row.evaluations += cluster.rounds;
            row.chi2 = outcome.chi2;
            row.objective = self.objective(outcome, &spectrum.prepared) + cluster.prior_cost();
            row.shared_members = Some(count as u64);
            row.shared_p = cluster.probability();
            row.at_bound = 0;
            row.flags = row.flags & KEPT_FLAGS;
            let end = Outcome {
                parameters: point.clone(),
                ..outcome.clone()
            };
            is_free.push(self.set_parameters(row, &end, &spectrum.limits));
        }
        // 2. Set the errors. A member's covariance is its block of the joint one.
        let tolerance = self.tolerance();
        let informations = cluster.information(&is_free);
        for (k, (row, spectrum)) in rows.iter_mut().zip(spectra).enumerate() {
            let covariance = covariance(&informations[k], &is_free[k], tolerance);
            self.set_errors(row, &covariance, &is_free[k], &spectrum.limits);
        }
        if self.released_errors {
            self.set_released_errors(rows, cluster, spectra);
        }
        self.equate_shared_errors(rows);
        // 3. Set status and flags.
        for ((row, member), spectrum) in rows.iter_mut().zip(&cluster.members).zip(spectra) {
            self.set_status(row, cluster.status);
            let prepared = &spectrum.prepared;
            let chi2 = self
                .misfit
                .chi_square(&member.outcome, prepared.unmasked, row.dof as f64);
            self.set_flags(row, chi2, prepared, &spectrum.limits);
        }
    }

    /// Sets the errors that the joint fit would have if no parameter of any member were at a bound.
    fn set_released_errors(
        &self,
        rows: &mut [FitRow],
        cluster: &Cluster,
        spectra: &[&ReadySpectrum],
    ) {
        let is_free: Vec<Vec<bool>> = spectra
            .iter()
            .map(|spectrum| {
                spectrum
                    .limits
                    .iter()
                    .map(|limits| !limits.is_held())
                    .collect()
            })
            .collect();
        let informations = cluster.information(&is_free);
        for (k, (row, spectrum)) in rows.iter_mut().zip(spectra).enumerate() {
            let information = &informations[k];
            row.released_errors =
                self.release_errors(information, &spectrum.limits, self.tolerance());
        }
    }

    /// Gives the shared labels the same errors in all rows: those of single rows differ in their last bits.
    fn equate_shared_errors(&self, rows: &mut [FitRow]) {
        for p in self.model.shared_parameters() {
            let least = |errors: &dyn Fn(&FitRow) -> Option<f64>| {
                rows.iter().filter_map(errors).fold(f64::INFINITY, f64::min)
            };
            let error = least(&|row| row.errors.get(p).copied());
            let released_error = least(&|row| row.released_errors.get(p).copied());
            for row in rows.iter_mut() {
                for (errors, error) in [
                    (&mut row.errors, error),
                    (&mut row.released_errors, released_error),
                ] {
                    if let Some(own) = errors.get_mut(p).filter(|own| own.is_finite()) {
                        *own = error;
                    }
                }
            }
        }
    }
}

/// Marks the rows of a cluster as interrupted, if its joint fit has not ended or one of its spectra was not fitted.
pub fn mark_cluster_interrupted(row: &mut FitRow) {
    row.mark_failed(Status::Interrupted, Status::Interrupted.name());
    row.message =
        "interrupted before the joint fit of its cluster has ended; the parameters are those of its single fit".into();
}
