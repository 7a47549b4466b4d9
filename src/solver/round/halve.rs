//! Stops starts that another start of their spectrum makes superfluous (successive halving). f64. Twin of
//! `shaders/halve.wgsl`; the limits are the constants of `solver/basin.rs`.
//!
//! A start gives way, from the first round on, in three cases:
//!
//! 1. The quadratic model of a better start predicts its cost and its slope along the line between them: both are in
//!    one basin.
//! 2. Its own step leads to a better start that has settled: the step ends within a tenth of the squared distance in
//!    errors, and promises 0.8 to 1 of the difference in cost, of which the next step of the better one promises at
//!    most 0.03.
//! 3. From the fourth round on, it lies more than 9 above the better one, and its next step promises less than a
//!    thirtieth of that.
//!
//! Most second starts would lead to the same minimum. So all but the best start of a spectrum sit out two rounds after
//! their first one: by then the best has mostly settled, and a step that was computed long ago tells where it leads.
//! While they are behind, they are judged by that step alone. Comparing a cost far from the minimum with a model near
//! it stopped starts that would have won. A step that was shortened or follows a rejection is not believed.
//!
//! The starts of a spectrum are loaded together and step in lockstep, and a decision uses the members of one group
//! after the same round and nothing else. So it does not depend on what else is in flight, nor on timing.

use crate::solver::basin::{
    EQUAL, FIRST_ROUND, HOPELESS, HOPELESS_ROUND, LEAST_RISE, SETTLED, leads_to, same_basin,
};
use crate::solver::member::{GaveWay, Member};

/// Decision about a member.
enum Verdict {
    GoesOn,
    SitsOut,
    GivesWay(GaveWay),
}

/// Marks which of the first `active` members give way to a better start of the same spectrum, or sit out the next
/// round. By one thread: it takes 0.2 ms for a thousand members, and rayon's pool may be busy with another worker's
/// tiles for longer.
pub fn halve(members: &mut [Member], active: usize, ring: &[u32]) {
    let mut place = vec![usize::MAX; ring.len()];
    members
        .iter()
        .enumerate()
        .for_each(|(at, member)| place[member.slot] = at);
    let group = |member: &Member| {
        let (first, next) = (member.slot, |slot: usize| {
            ring.get(slot).map(|next| *next as usize)
        });
        let slots = std::iter::successors(next(first), move |slot| next(*slot))
            .take_while(move |slot| *slot != first);
        slots.filter_map(|slot| members.get(place[slot]))
    };
    let verdicts: Vec<_> = members[..active]
        .iter()
        .map(|member| judge(member, group(member)))
        .collect();
    for (member, verdict) in members.iter_mut().zip(verdicts) {
        match verdict {
            Verdict::GoesOn => {}
            Verdict::SitsOut => member.pause = 1,
            Verdict::GivesWay(why) => member.gave_way = Some(why),
        }
    }
}

/// Decides whether a member goes on, sits out a round, or gives way to one of `others`, the other starts of its group.
fn judge<'a>(member: &Member, others: impl Iterator<Item = &'a Member> + Clone) -> Verdict {
    if member.status.is_some() || member.rounds < FIRST_ROUND {
        return Verdict::GoesOn;
    }
    let is_first = member.rounds == FIRST_ROUND && member.pause == 0;
    let mut better = others.filter(|other| is_better(other, member));
    match better.clone().find_map(|other| gives_way(member, other)) {
        Some(why) => Verdict::GivesWay(why),
        None if is_first && better.any(|other| other.status.is_none()) => Verdict::SitsOut,
        None => Verdict::GoesOn,
    }
}

/// Returns whether `member` may give way to `other`, which has a lower cost (or slot, if equal) and has not failed or
/// left.
fn is_better(other: &Member, member: &Member) -> bool {
    let (cost, best) = (member.sums.cost(), other.sums.cost());
    let failed = other.status.is_some_and(|status| status.code() < 0);
    // it may have left already, and must not count if it has not
    let gone = other.gave_way.is_some() && other.age() < member.age();
    !failed && !gone && (best < cost || (best == cost && other.slot < member.slot))
}

/// Returns why `member` should stop in favour of the better `other` (same minimum, or hopeless); `None` if not.
fn gives_way(member: &Member, other: &Member) -> Option<GaveWay> {
    let best = other.sums.cost();
    let rise = member.sums.cost() - best;
    // next to what has gone on while it sat out, its step tells more than its cost
    let is_behind = member.rounds == FIRST_ROUND && other.rounds > FIRST_ROUND;
    if leads(member, other) || (!is_behind && same_basin(other.point(), member.point())) {
        return Some(GaveWay::SameBasin);
    }
    let allowed = LEAST_RISE.max(HOPELESS * member.promise.reduction()) + EQUAL * best;
    let hopeless = member.rounds >= HOPELESS_ROUND && rise > allowed;
    hopeless.then_some(GaveWay::Hopeless)
}

/// Returns whether `member`'s next step leads to the point of the better `other`, which will not fall much further. Of
/// a step that was shortened or follows a rejection nothing is believed.
fn leads(member: &Member, other: &Member) -> bool {
    let rise = member.sums.cost() - other.sums.cost();
    let promise = |one: &Member| one.promise.of_whole_step().filter(|_| one.rejections == 0);
    let settled = other.status.is_some()
        || (other.rounds > FIRST_ROUND
            && promise(other).is_some_and(|promise| promise <= SETTLED * rise));
    let step = promise(member).filter(|_| settled);
    step.is_some_and(|promise| leads_to(other.point(), member.point(), &member.trial, promise))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solver::Status;
    use crate::solver::basin::PAUSE;
    use crate::solver::member::Promise;

    /// At x in a bowl around `centre`, its next step going `share` of the way there.
    fn member(slot: usize, x: f64, centre: f64, share: f64) -> Member {
        let mut member = Member::new(slot, 0, &[x], 0.1);
        let left = centre - x;
        let (sums, trial) = (&mut member.sums, x + share * left);
        (
            sums.chi2,
            sums.penalty,
            sums.gradient[0],
            sums.normal_matrix[0],
        ) = (100.0 + left * left, 0.0, left, 1.0);
        (member.trial[0], member.rounds) = (trial, 1);
        member.promise = Promise::Whole(left * left - (centre - trial).powi(2));
        member
    }

    /// Returns the decision about the second member, which is always the higher one.
    fn second(first: &Member, second: &Member) -> (Option<GaveWay>, u32) {
        let mut members = [first.clone(), second.clone()];
        halve(&mut members, 2, &[1, 0]);
        assert!(members[0].gave_way.is_none() && members[0].pause == 0);
        (members[1].gave_way, members[1].pause)
    }

    #[test]
    fn who_is_not_the_best_sits_out_and_gives_way_where_its_step_leads_to_it() {
        let [mut best, mut other] = [member(0, 1.0, 0.0, 1.0), member(1, 4.0, 0.0, 0.8)];
        assert_eq!(
            second(&best, &other).0,
            Some(GaveWay::SameBasin),
            "a parabola tells at once"
        );
        // a bowl that is none: the cost is not what the better one's model tells
        other.sums.chi2 += 2.0;
        assert_eq!(second(&best, &other), (None, 1));
        (best.rounds, other.pause) = (2, 1 + PAUSE);
        assert_eq!(
            second(&best, &other),
            (None, other.pause),
            "the better one has far to go itself"
        );
        best.promise = Promise::Whole(0.3);
        assert_eq!(second(&best, &other).0, Some(GaveWay::SameBasin));
        let goes_on =
            |best: &Member, other: &Member| assert_eq!(second(best, other), (None, other.pause));
        // neither's step is believed where it was shortened, or follows a rejection
        for spoil in [
            |m: &mut Member| m.promise = Promise::Rescaled(m.promise.reduction()),
            |m: &mut Member| m.rejections = 1,
        ] {
            let [mut short, mut cut] = [best.clone(), other.clone()];
            spoil(&mut short);
            goes_on(&short, &other);
            spoil(&mut cut);
            goes_on(&best, &cut);
            short.status = Some(Status::Ftol);
            assert_eq!(
                second(&short, &other).0,
                Some(GaveWay::SameBasin),
                "whoever has ended has settled"
            );
        }
        // not far enough; into another bowl; to an end that is lower, or higher
        for (trial, promise) in [(2.5, 15.0), (8.0, 15.0), (0.8, 18.0), (0.8, 10.0)] {
            (other.trial, other.promise) = (vec![trial], Promise::Whole(promise));
            goes_on(&best, &other);
        }
        // no better one goes on
        best.status = Some(Status::NotFinite);
        other.pause = 0;
        goes_on(&best, &other);
    }

    #[test]
    fn hopeless_is_who_promises_next_to_nothing_of_what_it_lacks() {
        let [mut best, mut other] = [member(0, 0.1, 0.0, 1.0), member(1, 5.0, 4.0, 1.0)];
        other.sums.chi2 += 40.0;
        assert_eq!(second(&best, &other), (None, 1), "who knows where it leads");
        (best.rounds, other.rounds) = (HOPELESS_ROUND, HOPELESS_ROUND);
        assert_eq!(second(&best, &other).0, Some(GaveWay::Hopeless));
        other.promise = Promise::Whole(2.0);
        assert_eq!(second(&best, &other), (None, 0));
    }
}
