// Puts members that enter into their slots (ENTERS), or collects those that leave, so that the host copies their
// numbers alone.
//
// One invocation for each number. transfer (read-write): the numbers m of members and s of simplices, the slots of the
// members (m), the numbers of the simplices (s), then, one array a field, the state (STATE_LENGTH x m), the control
// (CONTROL_LENGTH x m) and the simplices (SIMPLEX_LENGTH x s). state, control, simplices (read-write), as bits, because
// the state of a new member is poison. Twin of src/gpu/transfer.rs.

fn copy_number(array: u32, place: u32, at: u32) {
    switch array {
        case 0u {
            if ENTERS { state[place] = transfer[at]; } else { transfer[at] = state[place]; }
        }
        case 1u {
            if ENTERS { control[place] = transfer[at]; } else { transfer[at] = control[place]; }
        }
        default {
            if ENTERS { simplices[place] = transfer[at]; } else { transfer[at] = simplices[place]; }
        }
    }
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let member_count = transfer[0];
    let simplex_count = transfer[1];
    let numbers = 2u + member_count + simplex_count;
    var k = id.x + 64u * groups.x * id.y;
    let at = numbers + k;
    if k < STATE_LENGTH * member_count {
        copy_number(0u, k / member_count * CAPACITY + transfer[2u + k % member_count], at);
        return;
    }
    k -= STATE_LENGTH * member_count;
    if k < CONTROL_LENGTH * member_count {
        copy_number(1u, k / member_count * CAPACITY + transfer[2u + k % member_count], at);
        return;
    }
    k -= CONTROL_LENGTH * member_count;
    if k < SIMPLEX_LENGTH * simplex_count {
        copy_number(2u, k / simplex_count * SIMPLICES + transfer[2u + member_count + k % simplex_count], at);
    }
}
