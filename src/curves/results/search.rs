//! Search for the point where a profile reaches a level on one side of the best value: a bracket that closes by the
//! false position (Illinois), on √Δ, which is a straight line for a quadratic profile. Each round of all searches is
//! one population.

use crate::curves::input::data::ParameterBounds;

/// Relative accuracy of √Δ at the limit, and of the distance from the best value.
const ACCURACY: f64 = 1e-7;
/// A profile that has not risen to the level within this many errors never does (lmfit's `maxiter`).
const FARTHEST: f64 = 200.0;
/// Maximum number of fits for one limit.
const MOST_PROBES: u32 = 60;

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
pub(crate) struct Search {
    pub curve: usize,
    pub parameter: usize,
    /// Value at which to fit next, as long as `limit` is not known.
    pub next: f64,
    pub limit: Option<f64>,
    best: f64,
    bounds: ParameterBounds,
    /// √ of the rise that is looked for.
    level: f64,
    /// Distance from `best` of one error, with the sign of the side.
    error: f64,
    inside: Probe,
    outside: Option<Probe>,
    /// True if the last probe was inside.
    last: Option<bool>,
    probes: u32,
}

impl Search {
    /// Begins the search, from the best `parameters` in the direction of `error`, for the value of `parameter` at which
    /// χ² has risen by `level`. `error` is about the distance of Δ = 1, negative for the lower limit.
    pub fn new(
        curve: usize,
        parameter: usize,
        parameters: &[f64],
        error: f64,
        level: f64,
        bounds: ParameterBounds,
    ) -> Search {
        let (best, level) = (parameters[parameter], level.sqrt());
        let inside = Probe {
            value: best,
            height: -level,
            parameters: parameters.to_vec(),
        };
        let mut search = Search {
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
            last: None,
            probes: 0,
        };
        search.move_to(best + error * level);
        search
    }

    /// Returns the parameters from which the next fit starts: on the line through the ends of the bracket, or, where
    /// there is only one, along `slope` (the derivatives of all parameters by this one).
    pub fn start(&self, slope: &[f64]) -> Vec<f64> {
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
            let moved = *value + rate * step;
            if moved.is_finite() {
                *value = moved;
            }
        }
        start[self.parameter] = self.next;
        start
    }

    /// Records the rise of χ² in a fit at `next` (NaN: no fit) and the parameters there, and chooses the next value or
    /// ends the search.
    pub fn take_probe(&mut self, rise: f64, parameters: &[f64]) {
        self.probes += 1;
        let height = if rise.is_finite() {
            rise.max(0.0).sqrt() - self.level
        } else {
            f64::INFINITY
        };
        let known = if rise.is_finite() {
            parameters.to_vec()
        } else {
            Vec::new()
        };
        let probe = Probe {
            value: self.next,
            height,
            parameters: known,
        };
        if height.abs() <= ACCURACY * self.level || self.probes == MOST_PROBES {
            self.limit = Some(if height.is_finite() {
                self.next
            } else {
                self.inside.value
            });
            return;
        }
        // twice on the same side: the other end counts half, so that it will move, too
        let again = self.last == Some(height < 0.0);
        self.last = Some(height < 0.0);
        if height < 0.0 {
            if let Some(outside) = self.outside.as_mut().filter(|_| again) {
                outside.height *= 0.5;
            }
            self.inside = probe;
        } else {
            // half of an infinite height is no less
            if again
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
        let Some(outside) = &self.outside else {
            let distance = inside.value - self.best;
            let end = if self.error > 0.0 {
                self.bounds.upper
            } else {
                self.bounds.lower
            };
            if inside.value == end
                || distance.abs() > FARTHEST * self.error.abs() * self.level.max(1.0)
            {
                self.limit = Some(f64::INFINITY.copysign(self.error));
                return;
            }
            // √Δ / distance goes on as it did, and a little farther
            let risen = (inside.height + self.level).max(1e-3 * self.level);
            self.move_to(self.best + distance * (1.1 * self.level / risen).clamp(1.5, 4.0));
            return;
        };
        let gap = outside.value - inside.value;
        if gap.abs() <= ACCURACY * (outside.value - self.best).abs() {
            self.limit = Some(inside.value);
            return;
        }
        let share = if outside.height.is_finite() {
            inside.height / (inside.height - outside.height)
        } else {
            0.5
        };
        self.next = inside.value + share.clamp(0.01, 0.99) * gap;
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

    fn run(bounds: (f64, f64), error: f64, rise: impl Fn(f64) -> f64) -> (f64, u32) {
        let bounds = ParameterBounds {
            lower: bounds.0,
            upper: bounds.1,
        };
        let mut search = Search::new(0, 0, &[1.0], error, 4.0, bounds);
        while search.limit.is_none() {
            let next = search.next;
            search.take_probe(rise(next), &[next]);
        }
        (search.limit.unwrap(), search.probes)
    }

    #[test]
    fn finds_the_level_or_says_that_there_is_none() {
        let open = (f64::NEG_INFINITY, f64::INFINITY);
        let (limit, probes) = run(open, 0.5, |v| ((v - 1.0) / 0.5).powi(2));
        assert!(
            (limit - 2.0).abs() < 1e-6 && probes == 1,
            "{limit} {probes}"
        );
        // a skew profile, and an error that is a hundred times too small
        let skew = |v: f64| (4.0 * (v.ln() - v + 1.0)).abs();
        for (error, side) in [
            (0.5, 1.0),
            (0.005, 1.0),
            (-0.5, -1.0),
            (-0.01, -1.0),
            (50.0, 1.0),
        ] {
            let (limit, probes) = run((0.0, f64::INFINITY), error, |v| {
                if v > 0.0 { skew(v) } else { f64::NAN }
            });
            assert!(
                (skew(limit) - 4.0).abs() < 1e-5 && (limit - 1.0) * side > 0.0,
                "{error}: {limit}"
            );
            assert!(probes < 15, "{error}: {probes}");
        }
        // a bound, a plateau, and a wall
        assert_eq!(run((0.0, 1.5), 0.5, |v| (v - 1.0).powi(2)).0, f64::INFINITY);
        assert_eq!(
            run((1.0, 9.0), -0.5, |v| (v - 1.0).powi(2)).0,
            f64::NEG_INFINITY
        );
        assert_eq!(
            run(open, -0.5, |v| (v - 1.0).powi(2).min(3.0)).0,
            f64::NEG_INFINITY
        );
        let (limit, _) = run(open, 0.5, |v| {
            if v < 1.25 {
                (v - 1.0).powi(2)
            } else {
                f64::NAN
            }
        });
        assert!((limit - 1.25).abs() < 1e-5, "{limit}");
    }
}
