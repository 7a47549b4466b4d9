//! Confidence intervals from the profile likelihood: a parameter is held at trial values, the others are fitted again,
//! and the rise of χ² says how probable it is that the truth lies nearer.

use crate::control::Control;
use crate::curves::input::data::{Curves, ParameterBounds};
use crate::curves::results::search::Search;
use crate::curves::watch::Watch;
use crate::curves::{CurveFit, CurveRun};
use crate::error::{Error, Result};
use crate::math::probability::{tail_of, threshold};
use crate::values::Values;

/// Number of searches whose fits run together: more would only take memory.
const TOGETHER: usize = 8192;

/// An interval that is asked for, of every curve.
struct Request {
    parameter: usize,
    sigma: f64,
}

/// The search for one end of an interval.
struct EndSearch {
    /// Index of the request.
    request: usize,
    is_upper: bool,
    search: Search,
}

/// Confidence interval of one parameter of one curve: its ends are where the parameter's profile reaches a probability.
#[derive(Clone, Debug, PartialEq)]
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
        // 1. Check what is asked for.
        let names = self.model.parameters();
        let (total, _) = curves.shape(self.model.predictors(), names)?;
        if fits.len() != total || fits.iter().any(|fit| fit.parameters.len() != names.len()) {
            let message = format!(
                "{} fits for {total} curves of {} parameters",
                fits.len(),
                names.len()
            );
            return Err(Error::mismatch("fits", message).naming("fits"));
        }
        let requests = self.interval_requests(parameters, sigmas)?;
        // 2. Fill in the intervals of parameters that are held. The others wait for their ends.
        let blank = |request: &Request| self.blank_interval(request);
        let mut intervals = vec![requests.iter().map(blank).collect::<Vec<_>>(); total];
        for (curve, (fit, intervals)) in fits.iter().zip(&mut intervals).enumerate() {
            let (lower, upper) = self.bounds_of(curves, curve);
            for (interval, request) in intervals
                .iter_mut()
                .zip(&requests)
                .filter(|_| fit.status.is_success())
            {
                let p = request.parameter;
                if self.held[p] || lower[p] == upper[p] {
                    (interval.lower, interval.upper) = (fit.parameters[p], fit.parameters[p]);
                }
            }
        }
        // 3. Search for the ends.
        let mut searches = self.searches(curves, fits, &requests);
        let watch = Watch::new(Some(control), searches.len());
        for some in searches.chunks_mut(TOGETHER) {
            let mut some: Vec<&mut Search> = some.iter_mut().map(|end| &mut end.search).collect();
            self.close_brackets(curves, fits, &mut some, &watch)?;
        }
        for EndSearch {
            request,
            is_upper,
            search,
        } in searches
        {
            let interval = &mut intervals[search.curve][request];
            *(if is_upper {
                &mut interval.upper
            } else {
                &mut interval.lower
            }) = search.limit.unwrap_or(f64::NAN);
        }
        Ok(intervals)
    }

    /// Returns all pairs of the named parameters (none: all that may move) and the sigmas (none: 1, 2, 3), whose
    /// intervals are wanted.
    fn interval_requests(&self, parameters: &[&str], sigmas: &[f64]) -> Result<Vec<Request>> {
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
        let chosen: Vec<usize> = match parameters {
            [] => (0..names.len())
                .filter(|&p| !self.held[p] && self.untied_index(&names[p]).is_ok())
                .collect(),
            some => some
                .iter()
                .map(|name| self.untied_index(name))
                .collect::<Result<_>>()?,
        };
        let of_parameter = |parameter| {
            sigmas
                .iter()
                .map(move |&sigma| Request { parameter, sigma })
        };
        Ok(chosen.into_iter().flat_map(of_parameter).collect())
    }

    /// Returns the interval for a request with its name, sigma and probability, but NaN as both ends.
    fn blank_interval(&self, request: &Request) -> Interval {
        Interval {
            parameter: self.model.parameters()[request.parameter].clone(),
            sigma: request.sigma,
            probability: 1.0 - tail_of(request.sigma),
            lower: f64::NAN,
            upper: f64::NAN,
        }
    }

    /// Sets up the searches for both ends of each requested interval of each successful fit whose parameter may move.
    fn searches(&self, curves: &Curves, fits: &[CurveFit], requests: &[Request]) -> Vec<EndSearch> {
        let known = !self.is_scaled();
        let mut searches = Vec::new();
        for (curve, fit) in fits
            .iter()
            .enumerate()
            .filter(|(_, fit)| fit.status.is_success())
        {
            // root of the rise of χ² that is one error
            let unit = if known {
                1.0
            } else {
                (self.cost(fit) / fit.dof as f64).sqrt()
            };
            let (lower, upper) = self.bounds_of(curves, curve);
            let errors = self.errors_by_curvature(curves, curve, fit);
            for (
                request,
                &Request {
                    parameter: p,
                    sigma,
                },
            ) in requests.iter().enumerate()
            {
                if self.held[p] || lower[p] == upper[p] || (!known && fit.dof <= 0) {
                    continue;
                }
                let level =
                    threshold(tail_of(sigma), (!known).then_some(fit.dof as f64)) * unit * unit;
                let error = match errors[p] / unit {
                    error if error > 0.0 && error.is_finite() => error,
                    // as lmfit where it knows none
                    _ => (0.2 * fit.parameters[p].abs()).max(1e-3) / level.sqrt(),
                };
                let bounds = ParameterBounds {
                    lower: lower[p],
                    upper: upper[p],
                };
                for (is_upper, error) in [(false, -error), (true, error)] {
                    let search = Search::new(curve, p, &fit.parameters, error, level, bounds);
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

    /// Returns the errors of a fit by the curvature of its cost, by which a rise is looked for: not those of the
    /// sandwich formula.
    fn errors_by_curvature(&self, curves: &Curves, curve: usize, fit: &CurveFit) -> Vec<f64> {
        let count = fit.errors.len();
        let settings = self.settings();
        let plain = CurveRun {
            sandwich_errors: false,
            ..self.clone()
        };
        let of_curve = || {
            let (_, points) = curves.shape(settings.predictors, settings.names).ok()?;
            plain.covariance_at(
                &curves.curve(curve, points, &settings).ok()?,
                &fit.parameters,
            )
        };
        // without the covariance matrices of the data they would be wrong
        match (self.is_sandwich() && curves.covariance.is_none())
            .then(of_curve)
            .flatten()
        {
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
        searches: &mut [&mut Search],
        watch: &Watch,
    ) -> Result<()> {
        loop {
            let mut open: Vec<&mut &mut Search> =
                searches.iter_mut().filter(|s| s.limit.is_none()).collect();
            if open.is_empty() || watch.is_stopped() {
                return Ok(());
            }
            let (mut starts, mut lowest, mut highest) = (Vec::new(), Vec::new(), Vec::new());
            for search in &open {
                let (mut lower, mut upper) = self.bounds_of(curves, search.curve);
                let (p, fit) = (search.parameter, &fits[search.curve]);
                let mut start = search.start(&slope(fit, p));
                for q in 0..start.len() {
                    start[q] = start[q].clamp(lower[q], upper[q]);
                    // a held parameter stays where it is
                    if self.held[q] {
                        start[q] = fit.parameters[q];
                    }
                }
                (lower[p], upper[p]) = (start[p], start[p]);
                starts.extend(start);
                lowest.extend(lower);
                highest.extend(upper);
            }
            let members: Vec<usize> = open.iter().map(|search| search.curve).collect();
            let picked = curves
                .pick(&members, fits.len(), starts)
                .bounds(lowest, highest);
            let probed = self.fit(&picked, &watch.of_part())?;
            if watch.is_stopped() {
                // Probes that were interrupted say nothing.
                return Ok(());
            }
            for (search, fit) in open.iter_mut().zip(probed) {
                let rise = self.cost(&fit) - self.cost(&fits[search.curve]);
                search.take_probe(rise, &fit.parameters);
            }
            watch.add(open.iter().filter(|search| search.limit.is_some()).count());
        }
    }

    /// Returns a fit's χ² plus the penalty of its priors.
    pub(crate) fn cost(&self, fit: &CurveFit) -> f64 {
        fit.chi2 + self.penalty(&fit.parameters)
    }

    /// Returns the lower and upper bounds of a curve's parameters: the curve's own or, without them, the fitter's.
    pub(crate) fn bounds_of(&self, curves: &Curves, curve: usize) -> (Vec<f64>, Vec<f64>) {
        let of = |own: &Option<Values>, otherwise: &[f64]| {
            let count = otherwise.len();
            own.as_ref().map_or_else(
                || otherwise.to_vec(),
                |own| own.to_vec(curve * count..(curve + 1) * count),
            )
        };
        (
            of(&curves.lower, &self.lower),
            of(&curves.upper, &self.upper),
        )
    }
}

/// Returns, by the covariance, by how much each parameter changes per unit of parameter `p` if it follows it: cov(q, p)
/// / cov(p, p).
fn slope(fit: &CurveFit, p: usize) -> Vec<f64> {
    let count = fit.parameters.len();
    (0..count)
        .map(|q| fit.covariance[q * count + p] / fit.covariance[p * count + p])
        .collect()
}
