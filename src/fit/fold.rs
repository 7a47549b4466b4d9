//! A look past the fold of a minimum.
//!
//! Some templates depend on a label so weakly that the spectrum, followed along that label, turns back: it has a minimum on either side of
//! this *fold*. The normal matrix A at one minimum does not show the other. Fits that took many rounds, as ways through a bent valley do,
//! are therefore checked: each label p is moved alone by δ, and the rise of the cost F is compared with that of the quadratic model,
//!
//! ```text
//! ρ = (F(u + δ e_p) − F(u)) / (δ² A_pp − 2 δ g_p).
//! ```
//!
//! ρ is about 1 where nothing folds, and near 0 where the template has turned back. One more start then begins there.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use super::pass::{Left, Watched};
use super::ready::Ready;
use super::solve::{Passes, winner};
use super::waiting::Entering;
use crate::error::Result;
use crate::model::{Limits, ModelArm, SpectralModel, Start};
use crate::rows::triangle::packed_index;
use crate::solver::basin::LEAST_RISE;
use crate::solver::{GaveWay, Outcome, Status};

/// Distances by which labels are moved, as shares of the distance between their bounds, and the rounds from which on a
/// fit is looked at so. Of `synb` fits one in seven takes five rounds, one in twenty six. A fold in the middle between
/// two minima Δ apart makes ρ = (1 − δ / Δ)². Therefore both distances together see minima that are 0.065 to 0.66 of
/// the range apart.
const LOOKS: [(f64, u32); 2] = [(0.1, 6), (0.3, 5)];
/// Smallest part of a move that bounds may leave, as a share of the distance between them.
const LEAST: f64 = 0.05;
/// Labels that are moved, by what they change the lines, δ² A_pp over the whole range, as a share of the most that a label changes: one that tells
/// less does not make two minima, and one that tells most does not fold there.
const TELLING: std::ops::Range<f64> = 0.04..0.5;
/// ρ of a side from which a start sets out, at most. All of nine wrong minima of 75,000 spectra had a side with less; of fits of six or
/// more rounds one in eight has one.
const RETURNED: f64 = 0.3;

/// A point far from a minimum: one label is another there.
#[derive(Clone, Debug, PartialEq)]
struct Side {
    u: Vec<f64>,
    /// Rise of the cost that the quadratic model allows.
    rise: f64,
}

/// A minimum that is looked at again.
struct Look {
    /// Its spectrum's place among those that were fitted together.
    spectrum: usize,
    cost: f64,
    sides: Vec<Side>,
}

impl Look {
    /// `None` where nothing asks for a look at the lowest outcome of a spectrum, or nothing is to be seen.
    fn new(model: &SpectralModel, (spectrum, ready): (usize, &Ready), lowest: &Outcome) -> Option<Look> {
        let is_success = lowest.status.is_some_and(Status::is_success);
        let moves: Vec<f64> =
            LOOKS.iter().filter(|(_, rounds)| lowest.rounds >= *rounds).map(|(share, _)| *share).collect();
        if !ready.may_look || !is_success || moves.is_empty() {
            return None;
        }
        let labels: BTreeSet<usize> = model.arms.iter().flat_map(ModelArm::tangents).collect();
        let labels: Vec<Label> =
            labels.into_iter().filter_map(|p| Label::new(model, (p, ready.limits[p]), lowest)).collect();
        let most = labels.iter().map(|label| label.effect).fold(0.0, f64::max);
        let tell = labels.iter().filter(|label| most > 0.0 && TELLING.contains(&(label.effect / most)));
        let sides = tell.flat_map(|label| label.sides(lowest, &moves)).filter(|side| !is_outside_hulls(model, &side.u));
        let sides: Vec<Side> = sides.collect();
        (!sides.is_empty()).then(|| Look { spectrum, cost: cost(lowest), sides })
    }

    /// Returns the point from which one more start sets out, if any: the side where the cost has come back furthest.
    /// `seen` are the outcomes at the sides.
    fn start(&self, seen: &[Outcome]) -> Option<Vec<f64>> {
        let share = |(side, seen): (&Side, &Outcome)| (cost(seen) - self.cost) / side.rise;
        let shares = self.sides.iter().zip(seen).map(|pair| (share(pair), pair.0));
        let returned = shares.filter(|(share, _)| *share < RETURNED);
        returned.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, side)| side.u.clone())
    }
}

/// χ² and penalties, what the steps reduce.
fn cost(outcome: &Outcome) -> f64 {
    outcome.chi2 + outcome.penalty
}

/// A label that may be moved, at a minimum.
struct Label {
    parameter: usize,
    /// Bounds in u, and their distance.
    lower: f64,
    upper: f64,
    range: f64,
    /// δ² A_pp of a move over the whole range.
    effect: f64,
}

impl Label {
    /// `None` of one that is held or has no bounds, and where it is said where it starts: then nobody wants it elsewhere.
    fn new(model: &SpectralModel, (parameter, limits): (usize, Limits), at: &Outcome) -> Option<Label> {
        let [lower, upper] = [limits.lower, limits.upper].map(|bound| model.parameters[parameter].to_u(bound));
        let range = upper - lower;
        let effect = range * range * at.normal_matrix[packed_index(parameter, parameter)];
        let is_open = range > 0.0 && range.is_finite() && limits.start.is_none();
        is_open.then_some(Label { parameter, lower, upper, range, effect })
    }

    /// Either side of a minimum, as far away as `moves` say. Where the quadratic model hardly rises, all is one valley.
    fn sides<'a>(&'a self, at: &'a Outcome, moves: &'a [f64]) -> impl Iterator<Item = Side> + 'a {
        let p = self.parameter;
        let side = move |share: f64| {
            let mut u = at.parameters.clone();
            u[p] = (u[p] + share * self.range).clamp(self.lower, self.upper);
            let delta = u[p] - at.parameters[p];
            let rise = delta * (delta * at.normal_matrix[packed_index(p, p)] - 2.0 * at.gradient[p]);
            (delta.abs() >= LEAST * self.range && rise >= LEAST_RISE).then_some(Side { u, rise })
        };
        moves.iter().flat_map(|share| [-share, *share]).filter_map(side)
    }
}

/// Returns whether a point is outside the training hulls: where no template was trained there is nothing to be found.
fn is_outside_hulls(model: &SpectralModel, u: &[f64]) -> bool {
    model.arms.iter().any(|arm| {
        let value = |p: usize| model.parameters[p].to_physical(u[p]);
        let labels: Vec<f64> = arm.inputs.iter().map(|input| input.source.value(value)).collect();
        arm.emulator.extrapolates(&labels)
    })
}

impl Passes {
    /// Looks at the lowest outcomes again, lets one more start set out where they seem to have a fold, and adds what becomes of it.
    pub fn look_past_folds(&mut self, spectra: Entering, found: &mut Left, watched: Watched) -> Result<()> {
        let ((model, grids, ready), (outcomes, left)) = (spectra, found);
        let look = |(k, group): (usize, &Vec<Outcome>)| {
            let lowest = winner(group, model.marginalise)?;
            Look::new(model, (k, &ready[k]), &group[lowest])
        };
        let looks: Vec<Look> = outcomes.iter().enumerate().filter_map(look).collect();
        let mut seen = self.outcomes_at_sides(spectra, &looks)?.into_iter();
        let begin = |look: Look| {
            let seen: Vec<Outcome> = seen.by_ref().take(look.sides.len()).collect();
            Some((look.spectrum, look.start(&seen)?))
        };
        let begins: Vec<(usize, Vec<f64>)> = looks.into_iter().filter_map(begin).collect();
        if begins.is_empty() {
            return Ok(());
        }
        let some: Vec<Ready> = begins.iter().map(|(k, _)| ready[*k].clone()).collect();
        let starts = begins.iter().map(|(_, u)| vec![u.clone()]).collect();
        let (ends, left_later) = self.rounds((model, grids, &some), starts, watched)?;
        let before = left.iter().max().map_or(0, |last| last + 1);
        for (((k, _), end), later) in begins.into_iter().zip(ends).zip(left_later) {
            add_end(&mut outcomes[k], end.into_iter().next(), model.marginalise);
            left[k] = before + later;
        }
        Ok(())
    }

    /// The outcomes at the sides of all looks, one after the other.
    fn outcomes_at_sides(&mut self, (model, grids, ready): Entering, looks: &[Look]) -> Result<Vec<Outcome>> {
        let mut all = Vec::new();
        for load in loads(ready, looks, self.capacity) {
            let never = AtomicBool::new(false);
            all.extend(self.evaluate(model, grids, &load, (false, (&never, &mut |_| {})))?);
        }
        Ok(all)
    }
}

/// The spectra of looks, with their sides as starts, in loads that have room; one that alone has none is split.
fn loads(ready: &[Ready], looks: &[Look], capacity: usize) -> Vec<Vec<Ready>> {
    let (mut all, mut room): (Vec<Vec<Ready>>, usize) = (Vec::new(), 0);
    for look in looks {
        for sides in look.sides.chunks(capacity.max(1)) {
            let starts = sides.iter().map(|side| Start { u: side.u.clone(), basin: 0 }).collect();
            let one = Ready { starts, ..ready[look.spectrum].clone() };
            match all.last_mut().filter(|_| sides.len() <= room) {
                Some(load) => load.push(one),
                None => {
                    all.push(vec![one]);
                    room = capacity.max(1);
                }
            }
            room -= sides.len();
        }
    }
    all
}

/// Adds the end of the start that set out beyond a fold. One that failed does not win, and without one, as the run was cancelled, the
/// spectrum's fit has not ended.
fn add_end(group: &mut Vec<Outcome>, end: Option<Outcome>, marginalise: bool) {
    match end {
        Some(mut end) => {
            let stands = end.status.is_some_and(|status| status.is_success() || status == Status::Interrupted);
            end.gave_way = end.gave_way.or((!stands).then_some(GaveWay::Hopeless));
            group.push(end);
        }
        None => {
            if let Some(lowest) = winner(group, marginalise) {
                group[lowest].status = Some(Status::Interrupted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(chi2: f64, status: Option<Status>) -> Outcome {
        Outcome { chi2, penalty: 0.0, ln_det: 0.0, status, ..Outcome::default() }
    }

    /// Label 1 between 0 and 10, at 9: there is less room above than below, and far less promised.
    fn label() -> (Label, Outcome) {
        let label = Label { parameter: 1, lower: 0.0, upper: 10.0, range: 10.0, effect: 400.0 };
        let normal_matrix = vec![1.0, 0.0, 4.0];
        (label, Outcome { parameters: vec![5.0, 9.0], gradient: vec![0.0, 0.0], normal_matrix, ..outcome(7.0, None) })
    }

    #[test]
    fn labels_move_inside_their_bounds() {
        let (label, mut at) = label();
        // δ² A = 9 · 4 below; above 1 · 4 is no fold
        assert_eq!(label.sides(&at, &[0.3]).collect::<Vec<_>>(), [Side { u: vec![5.0, 6.0], rise: 36.0 }]);
        // held by its bound the cost falls towards it, and rises the more on the way back
        (at.parameters[1], at.gradient[1]) = (10.0, 2.0);
        assert_eq!(label.sides(&at, &[0.3]).collect::<Vec<_>>(), [Side { u: vec![5.0, 7.0], rise: 36.0 + 12.0 }]);
    }

    #[test]
    fn a_start_sets_out_where_the_cost_comes_back_furthest() {
        let sides = [36.0, 36.0, 100.0].map(|rise| Side { u: vec![rise], rise });
        let look = Look { spectrum: 0, cost: 7.0, sides: sides.to_vec() };
        let start = |chi2: [f64; 3]| look.start(&chi2.map(|chi2| outcome(chi2, None)));
        assert_eq!(start([43.0, 19.0, 57.0]), None);
        assert_eq!(start([f64::NAN, 10.0, 9.0]), Some(vec![100.0]));
        // lower than the minimum
        assert_eq!(start([6.0, 10.0, 9.0]), Some(vec![36.0]));
    }

    #[test]
    fn a_failed_start_does_not_win_and_a_missing_one_interrupts() {
        let found = || vec![outcome(7.0, Some(Status::Ftol))];
        let with = |end: Option<Outcome>| {
            let mut group = found();
            add_end(&mut group, end, false);
            (winner(&group, false), group[0].status, group.len())
        };
        assert_eq!(with(Some(outcome(6.0, Some(Status::Ftol)))), (Some(1), Some(Status::Ftol), 2));
        assert_eq!(with(Some(outcome(6.0, Some(Status::Stalled)))), (Some(0), Some(Status::Ftol), 2));
        assert_eq!(with(None), (Some(0), Some(Status::Interrupted), 1));
    }
}
