//! The two ways in which a shader reads a member's rows: from a buffer, or resampled where they are needed.

use super::shader::{Shader, ShaderContext};
use super::source::Constants;
use super::{Interpolation, LIGHT, Resample, Segment, Velocity};
use crate::buffers::{BufferId, Parameter};

/// Rows of a member that a buffer holds.
#[derive(Clone, Copy)]
pub(super) struct StoredRows {
    pub buffer: BufferId,
    pub rows: usize,
    pub pixels: usize,
}

/// Binds a buffer of rows, and adds WGSL functions `row_R(place)`, the value of row R at a pixel, after a `look_at`.
pub(super) fn declare_stored_rows(
    shader: &mut Shader,
    context: &ShaderContext<'_>,
    stored: StoredRows,
) {
    shader.uses.push("stored_rows");
    shader.bind_block(context, "model", "f32", stored.buffer, false);
    for row in 0..stored.rows {
        let value = format!("model[place + {}u]", row * stored.pixels);
        shader.constants.line(&format!(
            "fn row_{row}(place: Place) -> f32 {{ return {value}; }}"
        ));
    }
}

/// Binds a resampling's buffers, and adds WGSL functions `row_R(place)`, which compute row R at a pixel. They call
/// `value_of` and `slope_of_value`, from `resampled_rows` or the shader itself.
pub(super) fn declare_resampled_rows(
    shader: &mut Shader,
    context: &ShaderContext<'_>,
    resample: &Resample,
) {
    let (interpolation, taps) = match resample.interpolation {
        Interpolation::Cubic => ("cubic", 4),
        Interpolation::Linear => ("linear", 2),
    };
    shader.uses.push(interpolation);
    shader.bind_block(context, "source", "f32", resample.input, false);
    shader.bind_block(context, "index", "i32", resample.index, false);
    shader.bind_block(context, "fraction", "f32", resample.fraction, false);
    let constants = &mut shader.constants;
    constants.unsigned("TAPS", taps);
    constants.unsigned("INPUT_COLUMNS", resample.input_columns);
    let velocity_rows = resample.output_rows() - resample.rows;
    for row in 0..resample.output_rows() {
        let value = match row {
            0 => "value_of(place, 0u)".to_owned(),
            _ if row <= velocity_rows => "slope_of_value(place)".to_owned(),
            _ => format!("value_of(place, {}u)", row - velocity_rows),
        };
        constants.line(&format!(
            "fn row_{row}(place: Place) -> f32 {{ return {value}; }}"
        ));
    }
    let (beta, scale) = match resample.velocity {
        Velocity::Fixed(v) => (constants.literal(v / LIGHT), 0.0),
        Velocity::Parameter(p) => {
            let Parameter { origin, scale, .. } = &context.parameters()[p];
            let beta_origin = constants.literal(origin / LIGHT);
            let beta_scale = constants.literal(scale / LIGHT);
            (
                format!("{beta_origin} + {beta_scale} * trial({p}u, slot)"),
                scale / LIGHT,
            )
        }
    };
    constants.float("BETA_SCALE", scale);
    constants.line(&format!(
        "fn beta_of(slot: u32) -> f32 {{ return {beta}; }}"
    ));
    let segments = &resample.segments;
    declare_by_segment(constants, segments, "segment_start", "i32", |_, segment| {
        segment.start.to_string()
    });
    declare_by_segment(constants, segments, "segment_end", "i32", |_, segment| {
        segment.end.to_string()
    });
    declare_by_segment(
        constants,
        segments,
        "inverse_step",
        "f32",
        |constants, segment| constants.literal(segment.inverse_step),
    );
}

/// Adds the WGSL function NAME(segment: u32), which returns a value of each segment, of the type `kind`.
fn declare_by_segment(
    constants: &mut Constants,
    segments: &[Segment],
    name: &str,
    kind: &str,
    value: impl Fn(&mut Constants, &Segment) -> String,
) {
    let mut body = String::new();
    for (i, segment) in segments.iter().enumerate() {
        body += &format!(
            "if segment == {i}u {{ return {}; }}\n",
            value(constants, segment)
        );
    }
    constants.line(&format!(
        "fn {name}(segment: u32) -> {kind} {{\n{body}return {kind}(0);\n}}"
    ));
}
