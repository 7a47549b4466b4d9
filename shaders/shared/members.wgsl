// The list of members: `members[0]` is how many take part in the round, `members[1]` how many are active. Then come the
// slots of those that take part and, behind them, of those that pause (CAPACITY), the spectrum of every slot
// (CAPACITY), the slot of the next start of its spectrum (CAPACITY), and memory for `compact` (CAPACITY).

fn member_count() -> u32 {
    return members[0];
}

fn active_count() -> u32 {
    return members[1];
}

fn slot_at(position: u32) -> u32 {
    return members[2u + position];
}

fn spectrum_of(slot: u32) -> u32 {
    return members[2u + CAPACITY + slot];
}

fn next_of(slot: u32) -> u32 {
    return members[2u + 2u * CAPACITY + slot];
}
