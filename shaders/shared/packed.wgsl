// Index of (row, column), column <= row, in a lower triangle stored by rows.
fn packed(row: u32, column: u32) -> u32 {
    return row * (row + 1u) / 2u + column;
}

// The same for any order of the two.
fn packed_symmetric(a: u32, b: u32) -> u32 {
    return packed(max(a, b), min(a, b));
}
