//! Moves active members to the front, in order, and behind them those that sit out the next round. Twin of
//! `shaders/compact.wgsl`.

use crate::solver::member::{Active, Member};

/// Sorts the first `active` members (in the next round, sitting it out, ended); returns how many run and take part.
pub fn compact(members: &mut [Member], active: usize) -> Active {
    let members = &mut members[..active];
    members.sort_by_key(|member| (!member.is_active(), member.sits_out()));
    let all = members.partition_point(Member::is_active);
    let taking_part = members[..all].partition_point(|member| !member.sits_out());
    members[taking_part..all]
        .iter_mut()
        .for_each(|member| member.pause += 1);
    Active { all, taking_part }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solver::Status;
    use crate::solver::basin::PAUSE;

    #[test]
    fn who_sits_out_stays_behind_for_a_while() {
        let mut members: Vec<Member> = (0..5)
            .map(|slot| Member::new(slot, 0, &[0.0], 0.1))
            .collect();
        members[0].pause = 1;
        members[1].status = Some(Status::Ftol);
        members[3].pause = 1;
        let slots =
            |members: &[Member]| members.iter().map(|member| member.slot).collect::<Vec<_>>();
        for _ in 0..PAUSE {
            assert_eq!(
                compact(&mut members, 5),
                Active {
                    all: 4,
                    taking_part: 2
                }
            );
            assert_eq!(slots(&members), [2, 4, 0, 3, 1]);
        }
        assert_eq!(
            compact(&mut members, 4),
            Active {
                all: 4,
                taking_part: 4
            }
        );
        assert_eq!(
            (slots(&members), members[2].age()),
            (vec![2, 4, 0, 3, 1], PAUSE)
        );
    }
}
