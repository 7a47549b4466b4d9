// What follows a layer's product: (value, slope) of a column, for activate.wgsl and the product that activates (see
// docs/src/equations.md).
//
// bias, scale, offset (COLUMNS; the affine only where there is one: the host emits affine_scale and affine_offset).
// f32, activations to 1e-7.
//@use math, activation

fn layer(x: f32, column: u32) -> vec2<f32> {
    let outcome = activation(x + bias[column]);
    let scale = affine_scale(column);
    return vec2<f32>(outcome.x * scale + affine_offset(column), outcome.y * scale);
}
