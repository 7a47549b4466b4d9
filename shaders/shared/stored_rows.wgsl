// A member's rows at a pixel, from the buffer `model` that an earlier kernel has filled. The host emits row_R(place).
alias Rows = u32;
alias Place = u32;

fn rows_of(position: u32, spectrum: u32, slot: u32) -> Rows {
    return model_base(position, spectrum);
}

fn look_at(rows: Rows, pixel: u32) -> Place {
    return rows + pixel;
}
