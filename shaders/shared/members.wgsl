// The list of members: `members[0]` how many are active, then the slots of the active ones by position (CAPACITY), then the
// spectrum of every slot (CAPACITY), then the slot of the next start of its group (CAPACITY).

fn active_count() -> u32 {
    return members[0];
}

fn slot_at(position: u32) -> u32 {
    return members[1u + position];
}

fn spectrum_of(slot: u32) -> u32 {
    return members[1u + CAPACITY + slot];
}

fn next_of(slot: u32) -> u32 {
    return members[1u + 2u * CAPACITY + slot];
}
