// Moves the active members to the front, in place and in their order, and behind them those that pause in the next
// round. Then sizes the dispatches of the next round: x = ceil(members NUMERATOR / DENOMINATOR) per stage.
//
// One workgroup of 256 lanes, 256 members at a time. members (read-write), control (STATUS and GAVE_WAY by slot;
// read-write: PAUSE), arguments (read-write: three numbers a stage, of which y and z are the host's). Twin of
// src/solver/round/compact.rs.
//@use members

var<workgroup> scan: array<u32, 256>;
var<workgroup> shared_count: u32;

// scan[lane] <- the sum of scan[0..=lane]
fn prefix_sum(lane: u32) {
    for (var distance = 1u; distance < 256u; distance *= 2u) {
        workgroupBarrier();
        var sum = scan[lane];
        if lane >= distance {
            sum += scan[lane - distance];
        }
        workgroupBarrier();
        scan[lane] = sum;
    }
    workgroupBarrier();
}

// Unit of the number of pausing members, which takes the upper half of a number; those that take part the lower half.
const PAUSING: u32 = 65536u;
// Where the slots of pausing members are kept in `members` until all are known.
const SPARE_START: u32 = 2u + 3u * CAPACITY;

// 1 for a member that takes part, PAUSING for one that pauses, or 0 for one that has ended. Counts its pause.
fn count_member(slot: u32) -> u32 {
    if control[STATUS * CAPACITY + slot] != RUNNING || control[GAVE_WAY * CAPACITY + slot] != GOES_ON {
        return 0u;
    }
    let pause = control[PAUSE * CAPACITY + slot];
    if pause < 1 || pause > PAUSE_ROUNDS {
        return 1u;
    }
    control[PAUSE * CAPACITY + slot] = pause + 1;
    return PAUSING;
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    if lane == 0u {
        shared_count = min(active_count(), CAPACITY);
    }
    let count = workgroupUniformLoad(&shared_count);
    var taking_part = 0u;
    var pausing = 0u;
    for (var first = 0u; first < count; first += 256u) {
        let position = first + lane;
        var slot = 0u;
        var kind = 0u;
        if position < count {
            slot = slot_at(position);
            kind = count_member(slot);
        }
        scan[lane] = kind;
        prefix_sum(lane);
        // prefix sums are inclusive, and `members` begins with two counts
        if kind == 1u {
            members[1u + taking_part + scan[lane] % PAUSING] = slot;
        }
        if kind == PAUSING {
            members[SPARE_START + pausing + scan[lane] / PAUSING - 1u] = slot;
        }
        taking_part += scan[255] % PAUSING;
        pausing += scan[255] / PAUSING;
        workgroupBarrier();
    }
    storageBarrier();
    for (var k = lane; k < pausing; k += 256u) {
        members[2u + taking_part + k] = members[SPARE_START + k];
    }
    if lane == 0u {
        let active_members = taking_part + pausing;
        members[0] = taking_part;
        members[1] = active_members;
        //@for i 0 STAGES
        let count_$i = select(taking_part, active_members, OF_ALL_$i);
        arguments[3 * $i] = min((count_$i * NUMERATOR_$i + DENOMINATOR_$i - 1u) / DENOMINATOR_$i, 65535u);
        //@end
    }
}
