//! Search for the point where a profile reaches a level on one side of the best value: a bracket shrinks by the method
//! of false position (Illinois), on √Δ, which is a straight line for a quadratic profile. Each round of all searches is
//! one population.

use crate::curves::input::data::ParameterBounds;

/// Relative accuracy of √Δ at the limit, and of the distance from the best value.
const PROFILE_ACCURACY: f64 = 1e-7;
/// Number of errors within which a profile must rise to the level; otherwise it never does (lmfit's `maxiter`).
const MAX_DISTANCE_IN_ERRORS: f64 = 200.0;
/// Maximum number of fits for one limit.
const MAX_PROBES: u32 = 60;

/// A fit with the parameter held at `value`.
#[derive(Clone, Debug)]
struct Probe {
    value: f64,
    /// √Δ − √level; infinite where there is no fit.
    height: f64,
    /// All parameters; empty where there is no fit.
    parameters: Vec<f64>,
}

/// The search for one limit.
#[derive(Clone, Debug)]
pub(crate) struct ProfileSearch {
    pub curve: usize,
    pub parameter: usize,
    /// Value at which to fit next, as long as `limit` is not known.
    pub next: f64,
    pub limit: Option<f64>,
    best: f64,
    bounds: ParameterBounds,
    /// √ of the rise of χ² at the limit.
    level: f64,
    /// Distance from `best` of one error, with the sign of the side.
    error: f64,
    inside: Probe,
    outside: Option<Probe>,
    /// True if the last probe was inside.
    last_was_inside: Option<bool>,
    probes: u32,
}

impl ProfileSearch {
    /// Begins the search, from the best `parameters` in the direction of `error`, for the value of `parameter` at which
    /// χ² has risen by `level`. `error` is about the distance of Δ = 1, negative for the lower limit.
    pub fn new(
        curve: usize,
        parameter: usize,
        parameters: &[f64],
        error: f64,
        level: f64,
        bounds: ParameterBounds,
    ) -> ProfileSearch {
        let best = parameters[parameter];
        let level = level.sqrt();
        let inside = Probe {
            value: best,
            height: -level,
            parameters: parameters.to_vec(),
        };
        let mut search = ProfileSearch {
            curve,
            parameter,
            next: best,
            limit: None,
            best,
            bounds,
            level,
            error,
            inside,
            outside: None,
            last_was_inside: None,
            probes: 0,
        };
        search.move_to(best + error * level);
        search
    }

    /// Returns the parameters from which the next fit starts: on the line through the ends of the bracket, or, where
    /// there is only one, along `slope` (the derivatives of all parameters by this one).
    pub fn next_start(&self, slope: &[f64]) -> Vec<f64> {
        let step = self.next - self.inside.value;
        let outside = self
            .outside
            .as_ref()
            .filter(|probe| !probe.parameters.is_empty());
        let mut start = self.inside.parameters.clone();
        for (p, value) in start.iter_mut().enumerate() {
            let rate = match outside {
                Some(probe) => {
                    (probe.parameters[p] - self.inside.parameters[p])
                        / (probe.value - self.inside.value)
                }
                None => slope[p],
            };
            let extrapolated = *value + rate * step;
            if extrapolated.is_finite() {
                *value = extrapolated;
            }
        }
        start[self.parameter] = self.next;
        start
    }

    /// Records the rise of χ² in a fit at `next` (NaN: no fit) and the parameters there, and chooses the next value or
    /// ends the search.
    pub fn record_probe(&mut self, rise: f64, parameters: &[f64]) {
        self.probes += 1;
        let probe = if rise.is_finite() {
            Probe {
                value: self.next,
                height: rise.max(0.0).sqrt() - self.level,
                parameters: parameters.to_vec(),
            }
        } else {
            Probe {
                value: self.next,
                height: f64::INFINITY,
                parameters: Vec::new(),
            }
        };
        // 1. End at the level, or after too many probes.
        let height = probe.height;
        if height.abs() <= PROFILE_ACCURACY * self.level || self.probes == MAX_PROBES {
            self.limit = Some(if height.is_finite() {
                self.next
            } else {
                self.inside.value
            });
            return;
        }
        // 2. Replace one end of the bracket. If it is the same end as before, halve the height of the other, so that
        //    the next probe comes to lie on its side (Illinois).
        let is_inside = height < 0.0;
        let is_same_end = self.last_was_inside == Some(is_inside);
        self.last_was_inside = Some(is_inside);
        if is_inside {
            if let Some(outside) = self.outside.as_mut().filter(|_| is_same_end) {
                outside.height *= 0.5;
            }
            self.inside = probe;
        } else {
            // Against an infinite height there is no false position.
            if is_same_end
                && self
                    .outside
                    .as_ref()
                    .is_some_and(|outside| outside.height.is_finite())
            {
                self.inside.height *= 0.5;
            }
            self.outside = Some(probe);
        }
        self.choose_next();
    }

    /// Chooses the next value to fit at, inside the bracket or, without an outer end, farther out; or ends the search
    /// with a limit.
    fn choose_next(&mut self) {
        let inside = &self.inside;
        // 1. Without an outer end move farther out, unless the bound or the maximum distance has been reached.
        let Some(outside) = &self.outside else {
            let distance = inside.value - self.best;
            let bound = if self.error > 0.0 {
                self.bounds.upper
            } else {
                self.bounds.lower
            };
            let max_distance = MAX_DISTANCE_IN_ERRORS * self.error.abs() * self.level.max(1.0);
            if inside.value == bound || distance.abs() > max_distance {
                self.limit = Some(f64::INFINITY.copysign(self.error));
                return;
            }
            // Extrapolate √Δ as a straight line, and go a little farther.
            let rise = (inside.height + self.level).max(1e-3 * self.level);
            self.move_to(self.best + distance * (1.1 * self.level / rise).clamp(1.5, 4.0));
            return;
        };
        // 2. End if the bracket is narrow enough.
        let width = outside.value - inside.value;
        if width.abs() <= PROFILE_ACCURACY * (outside.value - self.best).abs() {
            self.limit = Some(inside.value);
            return;
        }
        // 3. Otherwise take the false position.
        let share = if outside.height.is_finite() {
            inside.height / (inside.height - outside.height)
        } else {
            0.5
        };
        self.next = inside.value + share.clamp(0.01, 0.99) * width;
    }

    /// Sets the next value to fit at, clamped to the bounds; if that is no move, ends the search with an infinite
    /// limit.
    fn move_to(&mut self, value: f64) {
        self.next = value.clamp(self.bounds.lower, self.bounds.upper);
        if self.next == self.inside.value {
            self.limit = Some(f64::INFINITY.copysign(self.error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_limit(bounds: (f64, f64), error: f64, rise: impl Fn(f64) -> f64) -> (f64, u32) {
        let bounds = ParameterBounds {
            lower: bounds.0,
            upper: bounds.1,
        };
        let mut search = ProfileSearch::new(0, 0, &[1.0], error, 4.0, bounds);
        while search.limit.is_none() {
            let next = search.next;
            search.record_probe(rise(next), &[next]);
        }
        (search.limit.unwrap(), search.probes)
    }

    #[test]
    fn profile_search_finds_the_limit_or_infinity() {
        let unbounded = (f64::NEG_INFINITY, f64::INFINITY);
        let (limit, probes) = find_limit(unbounded, 0.5, |v| ((v - 1.0) / 0.5).powi(2));
        assert!(
            (limit - 2.0).abs() < 1e-6 && probes == 1,
            "{limit} {probes}"
        );
        // A skew profile, and an error that is a hundred times too small.
        let skew = |v: f64| (4.0 * (v.ln() - v + 1.0)).abs();
        for (error, side) in [
            (0.5, 1.0),
            (0.005, 1.0),
            (-0.5, -1.0),
            (-0.01, -1.0),
            (50.0, 1.0),
        ] {
            let (limit, probes) = find_limit((0.0, f64::INFINITY), error, |v| {
                if v > 0.0 { skew(v) } else { f64::NAN }
            });
            assert!(
                (skew(limit) - 4.0).abs() < 1e-5 && (limit - 1.0) * side > 0.0,
                "{error}: {limit}"
            );
            assert!(probes < 15, "{error}: {probes}");
        }
        // A bound, a plateau, and a wall.
        assert_eq!(
            find_limit((0.0, 1.5), 0.5, |v| (v - 1.0).powi(2)).0,
            f64::INFINITY
        );
        assert_eq!(
            find_limit((1.0, 9.0), -0.5, |v| (v - 1.0).powi(2)).0,
            f64::NEG_INFINITY
        );
        assert_eq!(
            find_limit(unbounded, -0.5, |v| (v - 1.0).powi(2).min(3.0)).0,
            f64::NEG_INFINITY
        );
        let (limit, _) = find_limit(unbounded, 0.5, |v| {
            if v < 1.25 {
                (v - 1.0).powi(2)
            } else {
                f64::NAN
            }
        });
        assert!((limit - 1.25).abs() < 1e-5, "{limit}");
    }
}
