//! Moves active members to the front, in order. Twin of `shaders/compact.wgsl`.

use crate::solver::member::Member;

/// Sorts the first `active` members, those without a status first, and returns how many these are.
pub fn compact(members: &mut [Member], active: usize) -> usize {
    members[..active].sort_by_key(|member| member.status.is_some());
    members[..active].partition_point(|member| member.status.is_none())
}
