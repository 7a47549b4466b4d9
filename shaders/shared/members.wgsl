// The list of members: `members[0]` how many are active, then the slots of the active ones by position (CAPACITY), then the
// spectrum of every slot (CAPACITY).

fn active_count() -> u32 {
    return members[0];
}

fn slot_at(position: u32) -> u32 {
    return members[1u + position];
}

fn spectrum_of(slot: u32) -> u32 {
    return members[1u + CAPACITY + slot];
}
