//! Joint fits of the clusters of a batch, after the single fits of its spectra. The members of all clusters are
//! evaluated together, round by round.

use std::sync::Arc;

use rayon::prelude::*;

use super::{Grids, ReadySpectrum, SpectralRun};
use crate::error::Result;
use crate::math::Real;
use crate::model::{ArmLayout, ParameterLimits, SpectralModel};
use crate::recording::Precision;
use crate::solver::{Outcome, Solver, Status, Tolerances};
use crate::spectral::SpectralFitter;
use crate::spectral::clusters::{Cluster, ClusterSettings, SharedPrior, SingleFit};
use crate::spectral::input::clusters::FileCluster;
use crate::spectral::results::clusters::mark_cluster_interrupted;
use crate::spectral::results::row::FitRow;
use crate::threads;

/// Spectra of one shape that were fitted alone and belong to clusters, as they were prepared for the fit.
pub(super) struct FittedGroup {
    pub layout: Vec<ArmLayout>,
    pub grids: Arc<[Grids]>,
    pub spectra: Vec<FittedSpectrum>,
}

/// A spectrum that was fitted alone.
pub(super) struct FittedSpectrum {
    pub ready: ReadySpectrum,
    /// End of its best start.
    pub outcome: Outcome,
}

/// Where the spectrum of a place is among the fitted groups.
#[derive(Clone, Copy)]
struct FittedPlace {
    group: usize,
    index: usize,
}

/// A member of a cluster that is still being fitted.
struct ActiveMember {
    cluster: usize,
    member: usize,
    fitted: FittedPlace,
}

impl SpectralRun<'_> {
    /// Fits the clusters with at least two spectra whose single fits have not failed, and replaces the rows of these
    /// spectra.
    pub(super) fn fit_clusters(
        &mut self,
        clusters: &[FileCluster],
        groups: Vec<FittedGroup>,
        rows: &mut [FitRow],
    ) -> Result<()> {
        // 1. Collect the members. A cluster with an interrupted spectrum is interrupted.
        let mut fitted_places = vec![None; rows.len()];
        for (group, fitted) in groups.iter().enumerate() {
            for (index, spectrum) in fitted.spectra.iter().enumerate() {
                fitted_places[spectrum.ready.place] = Some(FittedPlace { group, index });
            }
        }
        let mut members_of_clusters: Vec<Vec<FittedPlace>> = Vec::new();
        let mut places_of_clusters: Vec<Vec<usize>> = Vec::new();
        for FileCluster { places, .. } in clusters {
            if places
                .iter()
                .any(|&place| rows[place].status == Status::Interrupted)
            {
                interrupt(rows, places);
                continue;
            }
            let can_join = |place: &usize| {
                let row = &rows[*place];
                row.status.is_success() || row.status == Status::MaxRounds
            };
            let (places, members): (Vec<usize>, Vec<FittedPlace>) = places
                .iter()
                .copied()
                .filter(can_join)
                .filter_map(|place| Some((place, fitted_places[place]?)))
                .unzip();
            if let [place] = places[..] {
                rows[place].shared_members = Some(1);
            } else if places.len() > 1 {
                places_of_clusters.push(places);
                members_of_clusters.push(members);
            }
        }
        // 2. Fit them.
        let mut fits: Vec<Cluster> = threads::in_pool(|| {
            members_of_clusters
                .par_iter()
                .map(|members| begin_cluster(self.fitter, &groups, members))
                .collect()
        });
        self.advance_clusters(&mut fits, &members_of_clusters, &groups)?;
        // 3. Fill the rows.
        let row_builder = self.fitter.row_builder();
        for ((cluster, members), places) in fits
            .iter()
            .zip(&members_of_clusters)
            .zip(&places_of_clusters)
        {
            match cluster.status {
                None => interrupt(rows, places),
                // The single fits stand.
                Some(Status::NotFinite) => {}
                Some(_) => {
                    let spectra: Vec<&ReadySpectrum> = members
                        .iter()
                        .map(|fitted| &groups[fitted.group].spectra[fitted.index].ready)
                        .collect();
                    let mut joint_rows: Vec<FitRow> =
                        places.iter().map(|&place| rows[place].clone()).collect();
                    row_builder.fill_cluster_rows(&mut joint_rows, cluster, &spectra);
                    for (&place, row) in places.iter().zip(joint_rows) {
                        rows[place] = row;
                    }
                }
            }
        }
        Ok(())
    }

    /// Evaluates the trial points of all clusters that are being fitted, until none is left or the run is cancelled.
    fn advance_clusters(
        &mut self,
        clusters: &mut [Cluster],
        members_of_clusters: &[Vec<FittedPlace>],
        groups: &[FittedGroup],
    ) -> Result<()> {
        let shared = self.fitter.model.shared_parameters();
        while !self.is_cancelled() {
            // 1. Collect the members of each group, in the order of the clusters.
            let mut members_of_groups: Vec<Vec<ActiveMember>> =
                groups.iter().map(|_| Vec::new()).collect();
            for (c, (cluster, members)) in clusters.iter().zip(members_of_clusters).enumerate() {
                for (m, &fitted) in members
                    .iter()
                    .enumerate()
                    .filter(|_| cluster.status.is_none())
                {
                    members_of_groups[fitted.group].push(ActiveMember {
                        cluster: c,
                        member: m,
                        fitted,
                    });
                }
            }
            if members_of_groups.iter().all(Vec::is_empty) {
                break;
            }
            // 2. Evaluate them.
            let mut outcomes: Vec<Vec<Option<Outcome>>> = clusters
                .iter()
                .map(|cluster| vec![None; cluster.members.len()])
                .collect();
            for (group, members) in groups.iter().zip(&members_of_groups) {
                let ready: Vec<ReadySpectrum> = members
                    .iter()
                    .map(|active| {
                        let spectrum = &group.spectra[active.fitted.index].ready;
                        let trial = &clusters[active.cluster].members[active.member].trial;
                        make_trial(spectrum, trial, &shared)
                    })
                    .collect();
                let evaluated = self.evaluate_spectra(&group.layout, &group.grids, &ready)?;
                for (active, outcome) in members.iter().zip(evaluated) {
                    outcomes[active.cluster][active.member] = Some(outcome);
                }
            }
            // 3. Judge the trial points, and set the next ones.
            threads::in_pool(|| {
                clusters
                    .par_iter_mut()
                    .zip(outcomes)
                    .filter(|(cluster, _)| cluster.status.is_none())
                    .for_each(|(cluster, outcomes)| {
                        cluster.judge_trial(outcomes.into_iter().flatten().collect());
                    });
            });
        }
        Ok(())
    }
}

/// Marks the rows of these spectra as interrupted, except those that cannot be fitted.
fn interrupt(rows: &mut [FitRow], places: &[usize]) {
    for &place in places {
        let row = &mut rows[place];
        if row.status.is_success() || row.status == Status::MaxRounds {
            mark_cluster_interrupted(row);
        }
    }
}

/// Returns a spectrum with one start, a point in the solver's u. The prior on shared parameters is left out.
fn make_trial(spectrum: &ReadySpectrum, point: &[f64], shared: &[usize]) -> ReadySpectrum {
    let mut trial = crate::spectral::inspect::make_ready_spectrum(
        spectrum.place,
        point.to_vec(),
        &spectrum.limits,
        spectrum.prepared.clone(),
    );
    for &p in shared {
        trial.limits[p].prior = None;
    }
    trial
}

/// Prepares the fit of a cluster.
fn begin_cluster(
    fitter: &SpectralFitter,
    groups: &[FittedGroup],
    members: &[FittedPlace],
) -> Cluster {
    let model = &fitter.model;
    let fits: Vec<SingleFit> = members
        .iter()
        .map(|fitted| {
            let FittedSpectrum { ready, outcome } = &groups[fitted.group].spectra[fitted.index];
            let convert_bounds = |bound: fn(&ParameterLimits) -> f64| -> Vec<f64> {
                let parameters = model.parameters.iter().zip(&ready.limits);
                parameters
                    .map(|(parameter, limits)| parameter.to_u(bound(limits)))
                    .collect()
            };
            SingleFit {
                lower: convert_bounds(|limits| limits.lower),
                upper: convert_bounds(|limits| limits.upper),
                outcome: outcome.clone(),
            }
        })
        .collect();
    let solver = match fitter.solver {
        Solver::LevenbergMarquardt(solver) => solver,
        _ => Default::default(),
    };
    let cost_error = match fitter.precision.of_results() {
        Precision::F64 => f64::COST_NOISE,
        _ => f32::COST_NOISE,
    };
    let settings = ClusterSettings {
        solver,
        tolerances: Tolerances::of_members(&solver, true, cost_error),
        least_eigenvalue: fitter.row_builder().tolerance(),
    };
    Cluster::new(fits, model.shared_parameters(), find_prior(model), settings)
}

/// Returns the prior on the shared parameters, which is the model's, in the solver's u.
fn find_prior(model: &SpectralModel) -> SharedPrior {
    let parameters = model
        .shared_parameters()
        .into_iter()
        .map(|p| &model.parameters[p]);
    let (means, weights) = parameters
        .map(|parameter| match parameter.prior {
            Some((mean, sigma)) => (
                parameter.to_u(mean),
                (parameter.solver.scale / sigma).powi(2),
            ),
            None => (0.0, 0.0),
        })
        .unzip();
    SharedPrior { means, weights }
}
