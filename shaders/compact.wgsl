// Moves the running members to the front, in place and in their order, then sizes the next round's dispatches:
// x = ceil(active NUMERATOR / DENOMINATOR) a stage.
//
// One workgroup of 256 lanes, 256 members at a time. members (read-write), control (STATUS and GAVE_WAY by slot), arguments (read-write: three
// numbers a stage, of which y and z are the host's).
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

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    if lane == 0u {
        shared_count = min(active_count(), CAPACITY);
    }
    let count = workgroupUniformLoad(&shared_count);
    var written = 0u;
    for (var first = 0u; first < count; first += 256u) {
        let position = first + lane;
        var slot = 0u;
        var keep = 0u;
        if position < count {
            slot = slot_at(position);
            let goes_on = control[STATUS * CAPACITY + slot] == RUNNING && control[GAVE_WAY * CAPACITY + slot] == GOES_ON;
            keep = select(0u, 1u, goes_on);
        }
        scan[lane] = keep;
        prefix_sum(lane);
        if keep == 1u {
            members[written + scan[lane]] = slot; // the list starts at 1, and so does the sum
        }
        written += scan[255];
        workgroupBarrier();
    }
    if lane == 0u {
        members[0] = written;
        //@for i 0 STAGES
        arguments[3 * $i] = min((written * NUMERATOR_$i + DENOMINATOR_$i - 1u) / DENOMINATOR_$i, 65535u);
        //@end
    }
}
