//! The kernels of rotation and line spread.

use super::kernel::{Dispatch, Kernel};
use super::layout::Layout;
use crate::error::{Error, Result};
use crate::rows::rotation;
use crate::solver::recording::{Broaden, LIGHT, Parameter, Recording, Resolve, Rotation, Segment};

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
