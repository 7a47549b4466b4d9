// Puts members that enter into their slots (ENTERS), or collects those that leave, so that the host copies their
// numbers alone.
//
// One invocation for each number. transfer (read-write): the number m of members, their slots (m), then, one array a
// field, the state (STATE_LENGTH x m) and the control (CONTROL_LENGTH x m). state, control (read-write), as bits,
// because the state of a new member is poison. Twin of src/gpu/transfer.rs.

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let member_count = transfer[0];
    var k = id.x + 64u * groups.x * id.y;
    let at = 1u + member_count + k;
    if k < STATE_LENGTH * member_count {
        let place = k / member_count * CAPACITY + transfer[1u + k % member_count];
        if ENTERS { state[place] = transfer[at]; } else { transfer[at] = state[place]; }
        return;
    }
    k -= STATE_LENGTH * member_count;
    if k < CONTROL_LENGTH * member_count {
        let place = k / member_count * CAPACITY + transfer[1u + k % member_count];
        if ENTERS { control[place] = transfer[at]; } else { transfer[at] = control[place]; }
    }
}
