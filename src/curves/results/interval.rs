//! Confidence intervals from the profile likelihood: a parameter is held at trial values, the others are fitted again,
//! and the rise of χ² gives the probability that the true value lies nearer.

use crate::control::Control;
use crate::curves::input::data::{Curves, ParameterBounds};
use crate::curves::results::search::ProfileSearch;
use crate::curves::watch::Watch;
use crate::curves::{CurveFit, CurveRun};
use crate::error::{Error, Result};
use crate::math::probability::{tail_of, threshold};
use crate::values::Values;

/// Number of searches whose fits run together: more would only take memory.
const SEARCHES_PER_BATCH: usize = 8192;

/// A requested interval, of every curve.
struct IntervalRequest {
    parameter: usize,
    sigma: f64,
}

/// The search for one end of an interval.
struct EndSearch {
    /// Index of the request.
    request: usize,
    is_upper: bool,
    search: ProfileSearch,
}

/// Confidence interval of one parameter of one curve: its ends are where the parameter's profile reaches a probability.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Interval {
    /// Its name.
    pub parameter: String,
    /// The value that was asked for.
    pub sigma: f64,
    /// Probability that the truth lies inside.
    pub probability: f64,
    /// Lower end: the value itself where the parameter is held, −∞ (above: ∞) where a bound comes first or χ² does not
    /// rise so far within 200 errors, NaN for a curve or parameter without fit.
    pub lower: f64,
    /// Upper end, as `lower` is the lower one.
    pub upper: f64,
}

impl CurveRun {
    /// Returns the intervals of each curve, as
    /// [`CurveFitter::confidence_intervals`](crate::CurveFitter::confidence_intervals) says.
    pub(crate) fn confidence_intervals(
        &self,
        curves: &Curves,
        fits: &[CurveFit],
        parameters: &[&str],
        sigmas: &[f64],
        control: &Control,
    ) -> Result<Vec<Vec<Interval>>> {
        // 1. Check the arguments.
        let names = self.model.parameters();
        let (total, _) = curves.shape(&self.model)?;
        if fits.len() != total || fits.iter().any(|fit| fit.parameters.len() != names.len()) {
            let message = format!(
                "{} fits for {total} curves of {} parameters",
                fits.len(),
                names.len()
            );
            return Err(Error::mismatch("fits", message).naming("fits"));
        }
        let requests = self.interval_requests(parameters, sigmas)?;
        // 2. Fill in the intervals of parameters that are held. The ends of the others stay NaN for the moment.
        let blank_intervals: Vec<Interval> = requests
            .iter()
            .map(|request| self.blank_interval(request))
            .collect();
        let mut intervals = vec![blank_intervals; total];
        for (curve, (fit, intervals)) in fits.iter().zip(&mut intervals).enumerate() {
            if !fit.status.is_success() {
                continue;
            }
            let (lower, upper) = self.bounds_of(curves, curve);
            for (interval, request) in intervals.iter_mut().zip(&requests) {
                let p = request.parameter;
                if self.held[p] || lower[p] == upper[p] {
                    interval.lower = fit.parameters[p];
                    interval.upper = fit.parameters[p];
                }
            }
        }
        // 3. Search for the ends.
        let mut searches = self.begin_searches(curves, fits, &requests);
        let watch = Watch::new(Some(control), searches.len());
        for batch in searches.chunks_mut(SEARCHES_PER_BATCH) {
            let mut batch: Vec<&mut ProfileSearch> =
                batch.iter_mut().map(|end| &mut end.search).collect();
            self.close_brackets(curves, fits, &mut batch, &watch)?;
        }
        // 4. Write them into the intervals.
        for EndSearch {
            request,
            is_upper,
            search,
        } in searches
        {
            let interval = &mut intervals[search.curve][request];
            let limit = search.limit.unwrap_or(f64::NAN);
            if is_upper {
                interval.upper = limit;
            } else {
                interval.lower = limit;
            }
        }
        Ok(intervals)
    }

    /// Returns a request for each pair of the named parameters (none: all that may move) and the sigmas (none: 1, 2,
    /// 3).
    fn interval_requests(
        &self,
        parameters: &[&str],
        sigmas: &[f64],
    ) -> Result<Vec<IntervalRequest>> {
        let names = self.model.parameters();
        let sigmas = if sigmas.is_empty() {
            &[1.0, 2.0, 3.0]
        } else {
            sigmas
        };
        if let Some(sigma) = sigmas.iter().find(|s| !(**s > 0.0 && **s <= 30.0)) {
            let message =
                format!("a confidence interval of sigma {sigma}: it must lie between 0 and 30");
            return Err(Error::invalid("sigmas", message));
        }
        let indices: Vec<usize> = match parameters {
            [] => (0..names.len())
                .filter(|&p| !self.held[p] && self.untied_index(&names[p]).is_ok())
                .collect(),
            named => named
                .iter()
                .map(|name| self.untied_index(name))
                .collect::<Result<_>>()?,
        };
        let mut requests = Vec::new();
        for parameter in indices {
            for &sigma in sigmas {
                requests.push(IntervalRequest { parameter, sigma });
            }
        }
        Ok(requests)
    }

    /// Returns the interval for a request with its name, sigma and probability, but NaN as both ends.
    fn blank_interval(&self, request: &IntervalRequest) -> Interval {
        Interval {
            parameter: self.model.parameters()[request.parameter].clone(),
            sigma: request.sigma,
            probability: 1.0 - tail_of(request.sigma),
            lower: f64::NAN,
            upper: f64::NAN,
        }
    }

    /// Sets up the searches for both ends of each requested interval of each successful fit whose parameter may move.
    fn begin_searches(
        &self,
        curves: &Curves,
        fits: &[CurveFit],
        requests: &[IntervalRequest],
    ) -> Vec<EndSearch> {
        let sigmas_are_known = !self.is_scaled();
        let mut searches = Vec::new();
        for (curve, fit) in fits.iter().enumerate() {
            if !fit.status.is_success() {
                continue;
            }
            // The root of the rise of χ² at a distance of one error.
            let unit = if sigmas_are_known {
                1.0
            } else {
                (self.cost(fit) / fit.dof as f64).sqrt()
            };
            let (lower, upper) = self.bounds_of(curves, curve);
            let errors = self.errors_by_curvature(curves, curve, fit);
            for (request, wanted) in requests.iter().enumerate() {
                let p = wanted.parameter;
                if self.held[p] || lower[p] == upper[p] || (!sigmas_are_known && fit.dof <= 0) {
                    continue;
                }
                let dof = (!sigmas_are_known).then_some(fit.dof as f64);
                let level = threshold(tail_of(wanted.sigma), dof) * unit * unit;
                let error = match errors[p] / unit {
                    error if error > 0.0 && error.is_finite() => error,
                    // The first step of lmfit where there is no error.
                    _ => (0.2 * fit.parameters[p].abs()).max(1e-3) / level.sqrt(),
                };
                let bounds = ParameterBounds {
                    lower: lower[p],
                    upper: upper[p],
                };
                for (is_upper, error) in [(false, -error), (true, error)] {
                    let search =
                        ProfileSearch::new(curve, p, &fit.parameters, error, level, bounds);
                    searches.push(EndSearch {
                        request,
                        is_upper,
                        search,
                    });
                }
            }
        }
        searches
    }

    /// Returns the errors of a fit by the curvature of its cost, which predict the rise of χ²: not those of the
    /// sandwich formula.
    fn errors_by_curvature(&self, curves: &Curves, curve: usize, fit: &CurveFit) -> Vec<f64> {
        // Without the covariance matrices of the data, which this curve does not have, the errors would be wrong.
        if !self.is_sandwich() || curves.covariance.is_some() {
            return fit.errors.clone();
        }
        let run = CurveRun {
            sandwich_errors: false,
            ..self.clone()
        };
        let settings = self.settings();
        let covariance = curves
            .shape(&self.model)
            .ok()
            .and_then(|(_, points)| curves.curve(curve, points, &settings).ok())
            .and_then(|curve| run.covariance_at(&curve, &fit.parameters));
        let count = fit.errors.len();
        match covariance {
            Some(covariance) => (0..count)
                .map(|p| covariance[p * count + p].sqrt())
                .collect(),
            None => fit.errors.clone(),
        }
    }

    /// Refits curves, with the searched parameter held at each search's next value, until all searches have found their
    /// limits, or the run is stopped.
    fn close_brackets(
        &self,
        curves: &Curves,
        fits: &[CurveFit],
        searches: &mut [&mut ProfileSearch],
        watch: &Watch,
    ) -> Result<()> {
        loop {
            let mut open: Vec<&mut &mut ProfileSearch> = searches
                .iter_mut()
                .filter(|search| search.limit.is_none())
                .collect();
            if open.is_empty() || watch.is_stopped() {
                return Ok(());
            }
            // 1. Hold each searched parameter at its next value, by bounds of its own.
            let mut starts = Vec::new();
            let mut lower_bounds = Vec::new();
            let mut upper_bounds = Vec::new();
            for search in &open {
                let (mut lower, mut upper) = self.bounds_of(curves, search.curve);
                let p = search.parameter;
                let fit = &fits[search.curve];
                let mut start = search.next_start(&slopes_along(fit, p));
                for q in 0..start.len() {
                    start[q] = start[q].clamp(lower[q], upper[q]);
                    if self.held[q] {
                        start[q] = fit.parameters[q];
                    }
                }
                lower[p] = start[p];
                upper[p] = start[p];
                starts.extend(start);
                lower_bounds.extend(lower);
                upper_bounds.extend(upper);
            }
            // 2. Fit all of them together.
            let indices: Vec<usize> = open.iter().map(|search| search.curve).collect();
            let held_curves = curves
                .pick_curves(&indices, fits.len(), starts)
                .bounds(lower_bounds, upper_bounds);
            let probes = self.fit_from_all_starts(&held_curves, &watch.of_part())?;
            if watch.is_stopped() {
                // Probes that were interrupted mean nothing.
                return Ok(());
            }
            // 3. Move the brackets.
            for (search, probe) in open.iter_mut().zip(probes) {
                let rise = self.cost(&probe) - self.cost(&fits[search.curve]);
                search.record_probe(rise, &probe.parameters);
            }
            watch.add_ended(open.iter().filter(|search| search.limit.is_some()).count());
        }
    }

    /// Returns a fit's χ² plus the penalty of its priors.
    pub(crate) fn cost(&self, fit: &CurveFit) -> f64 {
        fit.chi2 + self.penalty(&fit.parameters)
    }

    /// Returns the lower and upper bounds of a curve's parameters: the curve's own or, without them, the fitter's.
    pub(crate) fn bounds_of(&self, curves: &Curves, curve: usize) -> (Vec<f64>, Vec<f64>) {
        let own_or = |of_curves: &Option<Values>, of_fitter: &[f64]| {
            let count = of_fitter.len();
            match of_curves {
                Some(bounds) => bounds.to_vec(curve * count..(curve + 1) * count),
                None => of_fitter.to_vec(),
            }
        };
        (
            own_or(&curves.lower, &self.lower),
            own_or(&curves.upper, &self.upper),
        )
    }
}

/// Returns, by the covariance, the change of each parameter per unit of parameter `p` if it follows it: cov(q, p) /
/// cov(p, p).
fn slopes_along(fit: &CurveFit, p: usize) -> Vec<f64> {
    let count = fit.parameters.len();
    (0..count)
        .map(|q| fit.covariance[q * count + p] / fit.covariance[p * count + p])
        .collect()
}
