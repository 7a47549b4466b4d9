//! The kernels from template rows to rows at a spectrum's pixels.

use super::kernel::{Dispatch, Kernel};
use super::layout::Layout;
use super::source::Constants;
use crate::error::{Error, Result};
use crate::rows::rotation;
use crate::solver::recording::{
    Broaden, BufferId, Interpolation, LIGHT, Parameter, Prefilter, Recording, Resample, Resolve, Rotation, Segment,
    Velocity,
};

/// Weights and slopes of all segments that fit a workgroup's 16 KiB.
const MAX_WEIGHTS: usize = 1536;

pub(super) fn broaden(recording: &Recording, layout: Layout, stage: &Broaden) -> Result<Kernel> {
    let text = include_str!("../../shaders/broaden.wgsl");
    let mut kernel = Kernel::new("broaden", text, layout, Dispatch::pixels(stage.columns));
    kernel.state(false);
    kernel.block(recording, "input", "f32", stage.input, false);
    kernel.block(recording, "output", "f32", stage.output, true);
    let constants = &mut kernel.constants;
    let (most, vsini, scale) = match stage.rotation {
        Rotation::Fixed(v) => (v, constants.literal(v), 0.0),
        Rotation::Parameter { parameter: p, most } => {
            let Parameter { origin, scale, .. } = &recording.parameters[p];
            let (first, slope) = (constants.literal(*origin), constants.literal(*scale));
            (most, format!("{first} + {slope} * trial({p}u, slot)"), *scale)
        }
    };
    constants.line(&format!("fn vsini(slot: u32) -> f32 {{ return {vsini}; }}"));
    // f32 may round a bound up, and with it the radius beyond a whole number
    let radius = |segment: &Segment| most * segment.inverse_step / LIGHT * (1.0 + 1e-6);
    let half = stage.segments.iter().map(|s| rotation::reach(radius(s))).max().unwrap_or(1);
    if stage.segments.len() * (half + 1) > MAX_WEIGHTS {
        let message = format!("vsini of {most} km/s reaches {half} pixels, more than a GPU's workgroup has room for");
        return Err(Error::Model(message));
    }
    constants.unsigned("HALF", half);
    constants.unsigned("SEGMENTS", stage.segments.len());
    constants.unsigned("ROWS", stage.rows);
    constants.unsigned("OUTPUT_ROWS", stage.output_rows());
    constants.unsigned("COLUMNS", stage.columns);
    constants.float("VSINI_SCALE", scale);
    let (c1, c2) = rotation::profile();
    constants.float("ROTATION_1", c1);
    constants.float("ROTATION_2", c2);
    let (mut places, mut steps) = (String::new(), String::new());
    for (i, Segment { start, end, inverse_step }) in stage.segments.iter().enumerate() {
        places += &format!("if pixel >= {start}u && pixel < {end}u {{ return vec3<u32>({start}u, {end}u, {i}u); }}\n");
        steps += &format!("if segment == {i}u {{ return {}; }}\n", constants.literal(inverse_step / LIGHT));
    }
    constants.line(&format!("fn segment_of(pixel: u32) -> vec3<u32> {{\n{places}return vec3<u32>();\n}}"));
    constants.line(&format!("fn by_vsini(segment: u32) -> f32 {{\n{steps}return 0.0;\n}}"));
    Ok(kernel)
}

pub(super) fn resolve(recording: &Recording, layout: Layout, stage: &Resolve) -> Kernel {
    let text = include_str!("../../shaders/resolve.wgsl");
    let dispatch = Dispatch { z: stage.rows as u32, ..Dispatch::pixels(stage.pixels) };
    let mut kernel = Kernel::new("resolve", text, layout, dispatch);
    kernel.block(recording, "input", "f32", stage.input, false);
    kernel.block(recording, "output", "f32", stage.output, true);
    kernel.block(recording, "matrix", "f32", stage.matrix, false);
    kernel.constants.unsigned("ROWS", stage.rows);
    kernel.constants.unsigned("PIXELS", stage.pixels);
    kernel.constants.unsigned("DIAGONALS", stage.diagonals);
    kernel
}

pub(super) fn prefilter(recording: &Recording, layout: Layout, stage: &Prefilter) -> Result<Kernel> {
    if !stage.columns.is_multiple_of(4) {
        return Err(Error::Model(format!("rows of {} pixels are not padded", stage.columns)));
    }
    let dispatch = Dispatch { z: stage.rows as u32, ..Dispatch::pixels(stage.columns / 4) };
    let mut kernel = Kernel::new("prefilter", include_str!("../../shaders/prefilter.wgsl"), layout, dispatch);
    kernel.block(recording, "input", "vec4<f32>", stage.input, false);
    kernel.block(recording, "output", "vec4<f32>", stage.output, true);
    kernel.constants.unsigned("COLUMNS", stage.columns);
    for i in 0..=12 {
        let root = 3f64.sqrt();
        kernel.constants.float(&format!("TAP_{i}"), root * (root - 2.0).powi(12 - i));
    }
    let mut body = String::new();
    for segment in &stage.segments {
        let (start, end) = (segment.start, segment.end);
        body += &format!("if pixel >= {start}u && pixel < {end}u {{ return vec2<u32>({start}u, {end}u); }}\n");
    }
    kernel.constants.line(&format!("fn segment_of(pixel: u32) -> vec2<u32> {{\n{body}return vec2<u32>();\n}}"));
    Ok(kernel)
}

pub(super) fn resample(recording: &Recording, layout: Layout, stage: &Resample) -> Kernel {
    let text = include_str!("../../shaders/resample.wgsl");
    let mut kernel = Kernel::new("resample", text, layout, Dispatch::pixels(stage.pixels));
    kernel.state(false);
    declare_rows(&mut kernel, recording, Rows::Resampled(stage));
    kernel.block(recording, "output", "f32", stage.output, true);
    kernel.constants.unsigned("OUTPUT_ROWS", stage.output_rows());
    kernel.constants.unsigned("PIXELS", stage.pixels);
    kernel
}

/// Where a kernel has a member's rows from.
#[derive(Clone, Copy)]
pub(super) enum Rows<'a> {
    Stored { buffer: BufferId, rows: usize, pixels: usize },
    Resampled(&'a Resample),
}

/// Binds their buffers, and declares row_R(place) of each row, after a `look_at`.
pub(super) fn declare_rows(kernel: &mut Kernel, recording: &Recording, rows: Rows<'_>) {
    match rows {
        Rows::Stored { buffer, rows, pixels } => {
            kernel.uses.push("stored_rows");
            kernel.block(recording, "model", "f32", buffer, false);
            for row in 0..rows {
                let value = format!("model[place + {}u]", row * pixels);
                kernel.constants.line(&format!("fn row_{row}(place: Place) -> f32 {{ return {value}; }}"));
            }
        }
        Rows::Resampled(stage) => declare_resampled(kernel, recording, stage),
    }
}

fn declare_resampled(kernel: &mut Kernel, recording: &Recording, stage: &Resample) {
    let (interpolation, taps) = match stage.interpolation {
        Interpolation::Cubic => ("cubic", 4),
        Interpolation::Linear => ("linear", 2),
    };
    kernel.uses.extend([interpolation, "resampled_rows"]);
    kernel.block(recording, "source", "f32", stage.input, false);
    kernel.block(recording, "index", "i32", stage.index, false);
    kernel.block(recording, "fraction", "f32", stage.fraction, false);
    let constants = &mut kernel.constants;
    constants.unsigned("TAPS", taps);
    constants.unsigned("INPUT_COLUMNS", stage.input_columns);
    let of_velocity = stage.output_rows() - stage.rows;
    for row in 0..stage.output_rows() {
        let value = match row {
            0 => "value_of(place, 0u)".to_owned(),
            _ if row <= of_velocity => "slope_of_value(place)".to_owned(),
            _ => format!("value_of(place, {}u)", row - of_velocity),
        };
        constants.line(&format!("fn row_{row}(place: Place) -> f32 {{ return {value}; }}"));
    }
    let (beta, scale) = match stage.velocity {
        Velocity::Fixed(v) => (constants.literal(v / LIGHT), 0.0),
        Velocity::Parameter(p) => {
            let Parameter { origin, scale, .. } = &recording.parameters[p];
            let (first, slope) = (constants.literal(origin / LIGHT), constants.literal(scale / LIGHT));
            (format!("{first} + {slope} * trial({p}u, slot)"), scale / LIGHT)
        }
    };
    constants.float("BETA_SCALE", scale);
    constants.line(&format!("fn beta_of(slot: u32) -> f32 {{ return {beta}; }}"));
    let mut choose = |name: &str, kind: &str, value: &dyn Fn(&mut Constants, &Segment) -> String| {
        let mut body = String::new();
        for (i, segment) in stage.segments.iter().enumerate() {
            body += &format!("if segment == {i}u {{ return {}; }}\n", value(constants, segment));
        }
        constants.line(&format!("fn {name}(segment: u32) -> {kind} {{\n{body}return {kind}(0);\n}}"));
    };
    choose("segment_start", "i32", &|_, s| s.start.to_string());
    choose("segment_end", "i32", &|_, s| s.end.to_string());
    choose("inverse_step", "f32", &|constants, s| constants.literal(s.inverse_step));
}
