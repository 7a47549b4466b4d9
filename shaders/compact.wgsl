// Moves the running members to the front, in place and in their order, behind them those that sit out the next round,
// then sizes its dispatches: x = ceil(members NUMERATOR / DENOMINATOR) a stage.
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

// Of those that sit out, in the upper half of a number.
const SITTING_OUT: u32 = 65536u;
const ROOM: u32 = 2u + 3u * CAPACITY;

// 1, SITTING_OUT, or 0 for a member that has ended
fn kind_of(slot: u32) -> u32 {
    if control[STATUS * CAPACITY + slot] != RUNNING || control[GAVE_WAY * CAPACITY + slot] != GOES_ON {
        return 0u;
    }
    let pause = control[PAUSE * CAPACITY + slot];
    if pause < 1 || pause > PAUSE_ROUNDS {
        return 1u;
    }
    control[PAUSE * CAPACITY + slot] = pause + 1;
    return SITTING_OUT;
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    if lane == 0u {
        shared_count = min(active_count(), CAPACITY);
    }
    let count = workgroupUniformLoad(&shared_count);
    var taking_part = 0u;
    var sitting_out = 0u;
    for (var first = 0u; first < count; first += 256u) {
        let position = first + lane;
        var slot = 0u;
        var kind = 0u;
        if position < count {
            slot = slot_at(position);
            kind = kind_of(slot);
        }
        scan[lane] = kind;
        prefix_sum(lane);
        // the sums start at 1
        if kind == 1u {
            members[1u + taking_part + scan[lane] % SITTING_OUT] = slot;
        }
        if kind == SITTING_OUT {
            members[ROOM + sitting_out + scan[lane] / SITTING_OUT - 1u] = slot;
        }
        taking_part += scan[255] % SITTING_OUT;
        sitting_out += scan[255] / SITTING_OUT;
        workgroupBarrier();
    }
    storageBarrier();
    for (var k = lane; k < sitting_out; k += 256u) {
        members[2u + taking_part + k] = members[ROOM + k];
    }
    if lane == 0u {
        let all = taking_part + sitting_out;
        members[0] = taking_part;
        members[1] = all;
        //@for i 0 STAGES
        let count_$i = select(taking_part, all, OF_ALL_$i);
        arguments[3 * $i] = min((count_$i * NUMERATOR_$i + DENOMINATOR_$i - 1u) / DENOMINATOR_$i, 65535u);
        //@end
    }
}
