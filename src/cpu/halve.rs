//! Stops members that another start of their spectrum makes superfluous (successive halving): those that sit in the basin of a
//! better one, and those that are hopelessly above it. A decision uses a group's members after the same round, nothing else, so
//! that it never depends on timing. f64. Twin of `shaders/halve.wgsl`.

use crate::solver::basin::{EQUAL, FIRST_ROUND, HOPELESS, HOPELESS_ROUND, LEAST_RISE, same_basin};
use crate::solver::member::{GaveWay, Member};

/// Marks those of the first `active` members that give way; `ring` leads from a slot to the next of its group. By one thread: it takes
/// 0.2 ms for a thousand members, and rayon's pool may be busy with another worker's tiles for longer.
pub fn halve(members: &mut [Member], active: usize, ring: &[u32]) {
    let mut place = vec![usize::MAX; ring.len()];
    members.iter().enumerate().for_each(|(at, member)| place[member.slot] = at);
    let verdict = |member: &Member| {
        let next = |slot: usize| ring.get(slot).map(|next| *next as usize).filter(|next| *next != member.slot);
        let others = std::iter::successors(next(member.slot), |slot| next(*slot));
        others.filter_map(|slot| members.get(place[slot])).find_map(|other| gives_way(member, other))
    };
    let verdicts: Vec<_> = members[..active].iter().map(verdict).collect();
    for (member, verdict) in members.iter_mut().zip(verdicts) {
        member.gave_way = verdict;
    }
}

/// Whether `member` gives way to `other`. Lower cost, then lower slot, is better.
fn gives_way(member: &Member, other: &Member) -> Option<GaveWay> {
    let (cost, best) = (member.sums.cost(), other.sums.cost());
    let is_better = best < cost || (best == cost && other.slot < member.slot);
    let failed = other.status.is_some_and(|status| status.code() < 0);
    // it may have left already, and must not count if it has not
    let gone = other.gave_way.is_some() && other.rounds < member.rounds;
    if member.status.is_some() || member.rounds < FIRST_ROUND || failed || gone || !is_better {
        return None;
    }
    if same_basin(other.point(), member.point()) {
        return Some(GaveWay::SameBasin);
    }
    let (rise, noise) = (cost - best, EQUAL * best);
    let allowed = LEAST_RISE.max(HOPELESS * member.predicted_reduction.abs()) + noise;
    let hopeless = member.rounds >= HOPELESS_ROUND && rise > allowed;
    hopeless.then_some(GaveWay::Hopeless)
}
