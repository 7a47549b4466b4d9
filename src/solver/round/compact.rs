//! Moves active members to the front, in order, and behind them those that pause in the next round. Twin of
//! `shaders/compact.wgsl`.

use crate::solver::member::{Active, Member};

/// Sorts the first `active` members: those that take part in the next round, those that pause, those that have ended.
/// Returns how many are active and how many take part.
pub fn compact_members(members: &mut [Member], active: usize) -> Active {
    let members = &mut members[..active];
    members.sort_by_key(|member| (!member.is_active(), member.pauses()));
    let still_active = members.partition_point(Member::is_active);
    let taking_part = members[..still_active].partition_point(|member| !member.pauses());
    for member in &mut members[taking_part..still_active] {
        member.pause += 1;
    }
    Active {
        all: still_active,
        taking_part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solver::Status;
    use crate::solver::basin::PAUSE_ROUNDS;

    #[test]
    fn compaction_keeps_pausing_members_behind_the_others_for_their_pause() {
        let mut members: Vec<Member> = (0..5)
            .map(|slot| Member::new(slot, 0, &[0.0], 0.1))
            .collect();
        members[0].pause = 1;
        members[1].status = Some(Status::Ftol);
        members[3].pause = 1;
        for _ in 0..PAUSE_ROUNDS {
            assert_eq!(
                compact_members(&mut members, 5),
                Active {
                    all: 4,
                    taking_part: 2
                }
            );
            assert_eq!(slots_of(&members), [2, 4, 0, 3, 1]);
        }
        assert_eq!(
            compact_members(&mut members, 4),
            Active {
                all: 4,
                taking_part: 4
            }
        );
        assert_eq!(slots_of(&members), [2, 4, 0, 3, 1]);
        assert_eq!(members[2].age(), PAUSE_ROUNDS);
    }

    fn slots_of(members: &[Member]) -> Vec<usize> {
        members.iter().map(|member| member.slot).collect()
    }
}
