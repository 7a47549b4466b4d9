//! Stops members that another start of their spectrum makes superfluous (successive halving): those that sit in the basin of a
//! better one or are on their way to it, and those that are hopelessly above it. After their first round all but the best sit out one,
//! as the best then knows more of its basin. A decision uses a group's members after the same round, nothing else, so
//! that it never depends on timing. f64. Twin of `shaders/halve.wgsl`.

use crate::solver::basin::{EQUAL, FIRST_ROUND, HOPELESS, HOPELESS_ROUND, LEAST_RISE, SETTLED, leads_to, same_basin};
use crate::solver::member::{GaveWay, Member};

/// What becomes of a member.
enum Verdict {
    GoesOn,
    SitsOut,
    GivesWay(GaveWay),
}

/// Marks those of the first `active` members that give way, or sit out; `ring` leads from a slot to the next of its group. By one thread: it takes
/// 0.2 ms for a thousand members, and rayon's pool may be busy with another worker's tiles for longer.
pub fn halve(members: &mut [Member], active: usize, ring: &[u32]) {
    let mut place = vec![usize::MAX; ring.len()];
    members.iter().enumerate().for_each(|(at, member)| place[member.slot] = at);
    let verdict = |member: &Member| {
        let next = |slot: usize| ring.get(slot).map(|next| *next as usize).filter(|next| *next != member.slot);
        let others = || {
            let slots = std::iter::successors(next(member.slot), |slot| next(*slot));
            slots.filter_map(|slot| members.get(place[slot])).filter(|other| is_better(other, member))
        };
        let is_first = member.rounds == FIRST_ROUND && member.pause == 0;
        match others().find_map(|other| gives_way(member, other)) {
            _ if member.status.is_some() || member.rounds < FIRST_ROUND => Verdict::GoesOn,
            Some(why) => Verdict::GivesWay(why),
            None if is_first && others().any(|other| other.status.is_none()) => Verdict::SitsOut,
            None => Verdict::GoesOn,
        }
    };
    let verdicts: Vec<_> = members[..active].iter().map(verdict).collect();
    for (member, verdict) in members.iter_mut().zip(verdicts) {
        match verdict {
            Verdict::GoesOn => {}
            Verdict::SitsOut => member.pause = 1,
            Verdict::GivesWay(why) => member.gave_way = Some(why),
        }
    }
}

/// Whether `other` is one that `member` may give way to: its cost, then its slot, is lower.
fn is_better(other: &Member, member: &Member) -> bool {
    let (cost, best) = (member.sums.cost(), other.sums.cost());
    let failed = other.status.is_some_and(|status| status.code() < 0);
    // it may have left already, and must not count if it has not
    let gone = other.gave_way.is_some() && other.age() < member.age();
    !failed && !gone && (best < cost || (best == cost && other.slot < member.slot))
}

/// Whether `member` gives way to a better one.
fn gives_way(member: &Member, other: &Member) -> Option<GaveWay> {
    let best = other.sums.cost();
    let rise = member.sums.cost() - best;
    let settled = other.status.is_some() || other.predicted_reduction.abs() <= SETTLED * rise;
    let leads = settled && leads_to(other.point(), &member.parameters, &member.trial);
    if leads || same_basin(other.point(), member.point()) {
        return Some(GaveWay::SameBasin);
    }
    let allowed = LEAST_RISE.max(HOPELESS * member.predicted_reduction.abs()) + EQUAL * best;
    let hopeless = (settled || member.rounds >= HOPELESS_ROUND) && rise > allowed;
    hopeless.then_some(GaveWay::Hopeless)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solver::Status;

    /// At x in a bowl around `centre`, its next step going `share` of the way there.
    fn member(slot: usize, x: f64, centre: f64, share: f64) -> Member {
        let mut member = Member::new(slot, 0, &[x], 0.1);
        let left = centre - x;
        let (sums, trial) = (&mut member.sums, x + share * left);
        (sums.chi2, sums.penalty, sums.gradient[0], sums.normal_matrix[0]) = (100.0 + left * left, 0.0, left, 1.0);
        (member.trial[0], member.rounds) = (trial, 1);
        member.predicted_reduction = left * left - (centre - trial).powi(2);
        member
    }

    /// What becomes of the second, which is always the higher.
    fn second(first: &Member, second: &Member) -> (Option<GaveWay>, u32) {
        let mut members = [first.clone(), second.clone()];
        halve(&mut members, 2, &[1, 0]);
        assert!(members[0].gave_way.is_none() && members[0].pause == 0);
        (members[1].gave_way, members[1].pause)
    }

    #[test]
    fn who_is_not_the_best_sits_out_and_gives_way_where_its_step_leads_to_it() {
        let basin = (Some(GaveWay::SameBasin), 0);
        let [mut best, mut other] = [member(0, 1.0, 0.0, 1.0), member(1, 4.0, 0.0, 0.8)];
        assert_eq!(second(&best, &other), basin);
        // a bowl that is no parabola: the cost is not what the better one's model tells
        other.sums.chi2 += 8.0;
        assert_eq!(second(&best, &other), basin, "the promise of 1 is small beside a rise of 23");
        best.predicted_reduction = 5.0;
        assert_eq!(second(&best, &other), (None, 1), "the better one has far to go itself");
        other.pause = 2;
        assert_eq!(second(&best, &other), (None, 2), "it sits out once");
        best.status = Some(Status::Ftol);
        assert_eq!(second(&best, &other).0, basin.0);
        // not far enough; and into another bowl
        other.trial = vec![2.5];
        assert_eq!(second(&best, &other), (None, 2));
        other.trial = vec![8.0];
        assert_eq!(second(&best, &other), (None, 2));
        // no better one goes on
        other.pause = 0;
        assert_eq!(second(&best, &other), (None, 0));
        best.status = Some(Status::NotFinite);
        assert_eq!(second(&best, &other), (None, 0));
    }

    #[test]
    fn hopeless_is_who_promises_next_to_nothing_of_what_it_lacks() {
        let [mut best, mut other] = [member(0, 0.1, 0.0, 1.0), member(1, 5.0, 4.0, 1.0)];
        other.sums.chi2 += 40.0;
        assert_eq!(second(&best, &other).0, Some(GaveWay::Hopeless), "a promise of 1, 40 above what has settled");
        best.predicted_reduction = 39.0;
        assert_eq!(second(&best, &other), (None, 1), "who knows where the better one ends");
        (best.rounds, other.rounds) = (HOPELESS_ROUND, HOPELESS_ROUND);
        assert_eq!(second(&best, &other).0, Some(GaveWay::Hopeless));
        other.predicted_reduction = 2.0;
        assert_eq!(second(&best, &other), (None, 0));
    }
}
