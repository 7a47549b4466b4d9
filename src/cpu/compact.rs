//! Moves active members to the front, in order. Twin of `shaders/compact.wgsl`.

use crate::solver::member::Member;

/// Sorts the first `active` members, those that go on first, and returns how many these are.
pub fn compact(members: &mut [Member], active: usize) -> usize {
    members[..active].sort_by_key(|member| !member.is_active());
    members[..active].partition_point(Member::is_active)
}
