//! Saddles where parameters act alike, as the rates of two exponentials do once they are equal.
//!
//! Let columns p and q of the Jacobian be parallel, c_q = r c_p. Along the null direction (δ_p, δ_q) = (−r, 1) t the
//! model does not change to first order, and every solver that follows the Jacobian stays where it is. To second order
//! it does: a e^(−k x) + b e^(−q x) at k = q becomes ½ (b / a) (a + b) t² x² e^(−k x) larger. Only one sign of b / a
//! lowers the cost, and the other pair, a and b, may be moved along its own null direction until that sign is right.

use crate::curves::ends::plateau::Lower;
use crate::curves::ends::polish::{Problem, Rows, Step};

/// Largest squared sine between columns that are alike.
const ALIKE: f64 = 1e-8;
/// Maximum number of pairs that are looked at: where many parameters act alike, the model has more than it needs.
const MOST_PAIRS: usize = 6;
/// Steps along a null direction, as shares of the parameters' sizes.
const STEPS: [f64; 3] = [0.3, 0.03, 1e-3];
/// Shares of the first parameter of a pair in what both of them do: of the same and of opposite signs.
const SHARES: [f64; 3] = [0.5, 1.5, -0.5];
/// Relative change of the cost that is rounding where the model does not change.
const FLAT: f64 = 1e-10;

/// Parameters with parallel columns of the Jacobian.
#[derive(Clone, Copy, Debug)]
struct Pair {
    parameters: [usize; 2],
    /// Ratio of the second column to the first.
    ratio: f64,
}

impl Pair {
    /// Returns whether the pairs have no parameter in common.
    fn is_apart_from(self, other: Pair) -> bool {
        self.parameters
            .iter()
            .all(|p| !other.parameters.contains(p))
    }
}

impl Problem<'_> {
    /// Returns the lowest point that is found beside one where pairs of parameters act alike; `None` if none lowers the
    /// cost by more than `gain`.
    pub fn lowest_where_alike(
        &self,
        gain: f64,
        rows: &Rows,
        parameters: &[f64],
    ) -> Option<Vec<f64>> {
        let (pairs, level) = (self.alike(rows, parameters), rows.cost() - gain);
        let here = pairs
            .iter()
            .flat_map(|pair| self.lower_along_null(level, parameters, *pair));
        let has_other = |pair: &&Pair| pairs.iter().any(|other| other.is_apart_from(**pair));
        let moved = |pair: &Pair| {
            SHARES
                .into_iter()
                .map(|share| (*pair, share))
                .collect::<Vec<_>>()
        };
        let from_another = |(pair, share): (Pair, f64)| {
            let point = self.shared_otherwise(parameters, pair, share)?;
            self.costs.set(self.costs.get() + 1);
            let there = self
                .rows(&point)
                .filter(|there| there.cost() <= rows.cost() * (1.0 + FLAT))?;
            let others = self
                .alike(&there, &point)
                .into_iter()
                .filter(move |other| other.is_apart_from(pair));
            Some(
                others
                    .flat_map(|other| self.lower_along_null(level, &point, other))
                    .collect::<Vec<_>>(),
            )
        };
        let elsewhere = pairs
            .iter()
            .filter(has_other)
            .flat_map(moved)
            .filter_map(from_another)
            .flatten();
        let lowest = here
            .chain(elsewhere)
            .min_by(|a, b| a.cost.total_cmp(&b.cost));
        lowest.map(|lowest| lowest.parameters)
    }

    /// Returns the pairs of parameters inside their bounds whose columns are parallel, at most [`MOST_PAIRS`].
    fn alike(&self, rows: &Rows, parameters: &[f64]) -> Vec<Pair> {
        if rows.is_independent.get() {
            return Vec::new();
        }
        let inside = self.inside(parameters);
        let pairs = inside
            .iter()
            .enumerate()
            .flat_map(|(i, &q)| inside[..i].iter().map(move |&p| [p, q]));
        let parallel = |parameters: [usize; 2]| {
            let [here, both, there] = rows.products(parameters);
            let sine_square = 1.0 - (both / here) * (both / there);
            // infinite where the square of a column is beyond f64's range
            (sine_square.abs() <= ALIKE).then_some(Pair {
                parameters,
                ratio: both / here,
            })
        };
        pairs.filter_map(parallel).take(MOST_PAIRS).collect()
    }

    /// Returns the points of lower cost along a pair's null direction, on both sides.
    fn lower_along_null(&self, cost: f64, parameters: &[f64], pair: Pair) -> Vec<Lower> {
        let [p, q] = pair.parameters;
        // the longest step that moves neither parameter by more than its size
        let longest = self
            .size(parameters, q)
            .min(self.size(parameters, p) / pair.ratio.abs());
        let steps = STEPS.into_iter().flat_map(|share| [share, -share]);
        let point = |share: f64| {
            let t = share * longest;
            let changes = &[-pair.ratio * t, t];
            self.lower_by(
                cost,
                parameters,
                Step {
                    parameters: &pair.parameters,
                    changes,
                },
                1.0,
            )
        };
        steps.filter_map(point).collect()
    }

    /// Returns the point on a pair's null direction where the first of its parameters has this `share` in what both
    /// do; `None` outside the bounds.
    fn shared_otherwise(&self, parameters: &[f64], pair: Pair, share: f64) -> Option<Vec<f64>> {
        let [p, q] = pair.parameters;
        let sum = parameters[p] + pair.ratio * parameters[q];
        let mut point = parameters.to_vec();
        (point[p], point[q]) = (share * sum, (1.0 - share) * sum / pair.ratio);
        let is_inside = [p, q]
            .iter()
            .all(|&i| self.curve.lower[i] < point[i] && point[i] < self.curve.upper[i]);
        is_inside.then_some(point)
    }
}
