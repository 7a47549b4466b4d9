// Doppler shift and resampling, see resampled_rows.wgsl (see docs/src/equations.md).
//
// One pixel of a member an invocation. members, state, source (ROWS x INPUT_COLUMNS a member), index, fraction, output
// (OUTPUT_ROWS x PIXELS per member). f32.
//@use resampled_rows

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let pixel = group.y * 64u + lane.x;
    if pixel >= PIXELS || group.x >= member_count() {
        return;
    }
    let slot = slot_at(group.x);
    let spectrum = spectrum_of(slot);
    let place = output_base(group.x, spectrum) + pixel;
    // padding is 0, whatever the template is, so that it does not affect its neighbours
    if index[index_base(group.x, spectrum) + pixel] < 0 {
        //@for r 0 OUTPUT_ROWS
        output[place + $ru * PIXELS] = 0.0;
        //@end
        return;
    }
    let source_place = look_at(rows_of(group.x, spectrum, slot), pixel);
    //@for r 0 OUTPUT_ROWS
    output[place + $ru * PIXELS] = row_$r(source_place);
    //@end
}
