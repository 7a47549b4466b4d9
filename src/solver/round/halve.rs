//! Stops starts that another start of their spectrum makes superfluous (successive halving). f64. Twin of
//! `shaders/halve.wgsl`; the limits are the constants of `solver/basin.rs`.
//!
//! A start gives way, from the first round on, in three cases:
//!
//! 1. The quadratic model of a better start predicts its cost and its slope along the line between them: both are in
//!    one basin.
//! 2. Its own step leads to a better start that has settled: the step ends within a tenth of the squared distance in
//!    errors, and predicts a reduction of 0.8 to 1 times the difference in cost. The better start has settled if its
//!    next step predicts at most 0.03 of that difference.
//! 3. From the fourth round on, its cost is more than 9 above that of the better one, and its next step predicts less
//!    than a thirtieth of that.
//!
//! Most second starts would lead to the same minimum. So all but the best start of a spectrum pause for two rounds
//! after their first one: by then the best has mostly settled, and a step that was computed long ago shows where it
//! leads. A start that is behind is judged by that step alone: comparing a cost far from the minimum with a model near
//! it stopped starts that would have won. A step that was shortened or follows a rejection does not count.
//!
//! The starts of a spectrum are loaded together and step in lockstep, and a decision uses the members of one group
//! after the same round and nothing else. So it does not depend on what else is in flight, nor on timing.

use crate::solver::basin::{
    EQUAL_COSTS, FIRST_ROUND, GAIN_FACTOR, HOPELESS_ROUND, LEAST_RISE, SETTLED_SHARE,
    is_same_basin, leads_to,
};
use crate::solver::member::{GaveWay, Member};

/// Decision about a member.
enum HalvingDecision {
    GoesOn,
    Pauses,
    GivesWay(GaveWay),
}

/// Marks which of the first `active` members give way to a better start of the same spectrum, or pause in the next
/// round. By one thread: it takes 0.2 ms for a thousand members, and rayon's pool may be busy with another worker's
/// tiles for longer. `ring`: the slot of the next start of the same spectrum, per slot.
pub fn halve_starts(members: &mut [Member], active: usize, ring: &[u32]) {
    // 1. Members are sorted by activity, so find them by their slots.
    let mut index_of_slot = vec![usize::MAX; ring.len()];
    for (index, member) in members.iter().enumerate() {
        index_of_slot[member.slot] = index;
    }
    // 2. Decide about all members before any changes.
    let mut decisions = Vec::with_capacity(active);
    for member in &members[..active] {
        let others =
            other_slots(ring, member.slot).filter_map(|slot| members.get(index_of_slot[slot]));
        decisions.push(decide(member, others));
    }
    // 3. Mark them.
    for (member, decision) in members.iter_mut().zip(decisions) {
        match decision {
            HalvingDecision::GoesOn => {}
            HalvingDecision::Pauses => member.pause = 1,
            HalvingDecision::GivesWay(reason) => member.gave_way = Some(reason),
        }
    }
}

/// Returns the slots of the other starts of a slot's spectrum, in the order of the ring.
fn other_slots(ring: &[u32], first: usize) -> impl Iterator<Item = usize> + Clone + '_ {
    let next_slot = move |slot: usize| ring.get(slot).map(|next| *next as usize);
    std::iter::successors(next_slot(first), move |slot| next_slot(*slot))
        .take_while(move |slot| *slot != first)
}

/// Decides whether a member goes on, pauses for a round, or gives way to one of `others`, the other starts of its
/// spectrum.
fn decide<'a>(
    member: &Member,
    others: impl Iterator<Item = &'a Member> + Clone,
) -> HalvingDecision {
    if member.status.is_some() || member.rounds < FIRST_ROUND {
        return HalvingDecision::GoesOn;
    }
    let mut better = others.filter(|other| is_better(other, member));
    let reason = better
        .clone()
        .find_map(|better| reason_to_give_way(member, better));
    if let Some(reason) = reason {
        return HalvingDecision::GivesWay(reason);
    }
    let is_after_first_round = member.rounds == FIRST_ROUND && member.pause == 0;
    if is_after_first_round && better.any(|better| better.status.is_none()) {
        HalvingDecision::Pauses
    } else {
        HalvingDecision::GoesOn
    }
}

/// Returns whether `member` may give way to `other`, which has a lower cost (or slot, if equal) and has not failed or
/// given way.
fn is_better(other: &Member, member: &Member) -> bool {
    let cost = member.sums.cost();
    let other_cost = other.sums.cost();
    let has_failed = other.status.is_some_and(|status| status.code() < 0);
    // A start that gave way in an earlier round may have been removed already. It must not count if it has not, either.
    let gave_way_before = other.gave_way.is_some() && other.age() < member.age();
    let is_lower = other_cost < cost || (other_cost == cost && other.slot < member.slot);
    !has_failed && !gave_way_before && is_lower
}

/// Returns why `member` should give way to the `better` start; `None` if it should not.
fn reason_to_give_way(member: &Member, better: &Member) -> Option<GaveWay> {
    let best_cost = better.sums.cost();
    let rise = member.sums.cost() - best_cost;
    // A member that paused while the better start went on is judged by its step: its cost is still that of a point far
    // from the minimum.
    let is_behind = member.rounds == FIRST_ROUND && better.rounds > FIRST_ROUND;
    if next_step_leads_to(member, better)
        || (!is_behind && is_same_basin(better.point(), member.point()))
    {
        return Some(GaveWay::SameBasin);
    }
    let possible_gain =
        LEAST_RISE.max(GAIN_FACTOR * member.predicted_reduction.value()) + EQUAL_COSTS * best_cost;
    let is_hopeless = member.rounds >= HOPELESS_ROUND && rise > possible_gain;
    is_hopeless.then_some(GaveWay::Hopeless)
}

/// Returns whether `member`'s next step leads to the point of the `better` start, which will not fall much further.
fn next_step_leads_to(member: &Member, better: &Member) -> bool {
    let rise = member.sums.cost() - better.sums.cost();
    let has_settled = better.status.is_some()
        || (better.rounds > FIRST_ROUND
            && credible_reduction(better)
                .is_some_and(|reduction| reduction <= SETTLED_SHARE * rise));
    match credible_reduction(member) {
        Some(reduction) if has_settled => {
            leads_to(better.point(), member.point(), &member.trial, reduction)
        }
        _ => false,
    }
}

/// Returns the reduction that a member's next step predicts; `None` where the step was rescaled or follows a rejection.
fn credible_reduction(member: &Member) -> Option<f64> {
    member
        .predicted_reduction
        .of_whole_step()
        .filter(|_| member.rejections == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solver::Status;
    use crate::solver::basin::PAUSE_ROUNDS;
    use crate::solver::member::PredictedReduction;

    /// Makes a member at x with the cost 100 + (x − minimum)². Its next step goes `share` of the way to the minimum.
    fn member(slot: usize, x: f64, minimum: f64, share: f64) -> Member {
        let mut member = Member::new(slot, 0, &[x], 0.1);
        let distance = minimum - x;
        let trial = x + share * distance;
        member.sums.chi2 = 100.0 + distance * distance;
        member.sums.penalty = 0.0;
        member.sums.gradient[0] = distance;
        member.sums.normal_matrix[0] = 1.0;
        member.trial[0] = trial;
        member.rounds = 1;
        member.predicted_reduction =
            PredictedReduction::Whole(distance * distance - (minimum - trial).powi(2));
        member
    }

    /// Returns why the second member gave way, if it did, and its pause. Its cost is always the higher one.
    fn halve_second(first: &Member, second: &Member) -> (Option<GaveWay>, u32) {
        let mut members = [first.clone(), second.clone()];
        halve_starts(&mut members, 2, &[1, 0]);
        assert!(members[0].gave_way.is_none() && members[0].pause == 0);
        (members[1].gave_way, members[1].pause)
    }

    /// Fails unless the second member goes on without another pause.
    fn assert_second_goes_on(first: &Member, second: &Member) {
        assert_eq!(halve_second(first, second), (None, second.pause));
    }

    #[test]
    fn halving_pauses_worse_starts_and_stops_those_in_the_same_basin() {
        let mut best = member(0, 1.0, 0.0, 1.0);
        let mut second = member(1, 4.0, 0.0, 0.8);
        assert_eq!(
            halve_second(&best, &second).0,
            Some(GaveWay::SameBasin),
            "one parabola is recognised at once"
        );
        // The better start's model no longer predicts this cost.
        second.sums.chi2 += 2.0;
        assert_eq!(halve_second(&best, &second), (None, 1));
        best.rounds = 2;
        second.pause = 1 + PAUSE_ROUNDS;
        assert_eq!(
            halve_second(&best, &second),
            (None, second.pause),
            "the better start has not settled"
        );
        best.predicted_reduction = PredictedReduction::Whole(0.3);
        assert_eq!(halve_second(&best, &second).0, Some(GaveWay::SameBasin));
        // No step counts that was shortened, or follows a rejection.
        for make_incredible in [
            |m: &mut Member| {
                m.predicted_reduction = PredictedReduction::Rescaled(m.predicted_reduction.value())
            },
            |m: &mut Member| m.rejections = 1,
        ] {
            let mut incredible_best = best.clone();
            make_incredible(&mut incredible_best);
            assert_second_goes_on(&incredible_best, &second);
            let mut incredible_second = second.clone();
            make_incredible(&mut incredible_second);
            assert_second_goes_on(&best, &incredible_second);
            incredible_best.status = Some(Status::Ftol);
            assert_eq!(
                halve_second(&incredible_best, &second).0,
                Some(GaveWay::SameBasin),
                "a start that has ended has settled"
            );
        }
        // Steps that end too far away, in another basin, at a lower cost, or at a higher one.
        for (trial, reduction) in [(2.5, 15.0), (8.0, 15.0), (0.8, 18.0), (0.8, 10.0)] {
            second.trial = vec![trial];
            second.predicted_reduction = PredictedReduction::Whole(reduction);
            assert_second_goes_on(&best, &second);
        }
        // A start that failed is not better.
        best.status = Some(Status::NotFinite);
        second.pause = 0;
        assert_second_goes_on(&best, &second);
    }

    #[test]
    fn halving_stops_starts_whose_predicted_reduction_is_small_against_their_rise() {
        let mut best = member(0, 0.1, 0.0, 1.0);
        let mut second = member(1, 5.0, 4.0, 1.0);
        second.sums.chi2 += 40.0;
        assert_eq!(
            halve_second(&best, &second),
            (None, 1),
            "too early to be hopeless"
        );
        best.rounds = HOPELESS_ROUND;
        second.rounds = HOPELESS_ROUND;
        assert_eq!(halve_second(&best, &second).0, Some(GaveWay::Hopeless));
        second.predicted_reduction = PredictedReduction::Whole(2.0);
        assert_eq!(halve_second(&best, &second), (None, 0));
    }
}
