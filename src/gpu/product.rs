//! The matrix product's kernels: registers alone for software adapters, tiles in workgroup memory for cards, the fastest of which an
//! adapter is asked for once.

use std::sync::Arc;
use std::time::Instant;

use super::buffers::{self, Buffers, Plan};
use super::context::Context;
use super::kernel::{Dispatch, Kernel};
use super::layout::Layout;
use super::pipelines::Pipeline;
use super::readback;
use crate::error::{Error, Result};
use crate::solver::recording::{self as rec, Kind, Recording, Scope, Values};

/// How a product is computed. All sum in ascending k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// An invocation makes 4 × 16 elements in registers.
    Registers,
    /// A workgroup of `x` × `y` invocations makes 8 `y` rows × 8 `x` columns.
    Tiles { x: u32, y: u32 },
}

/// What a card is asked to choose from.
pub(super) const TILES: [Variant; 3] =
    [Variant::Tiles { x: 8, y: 8 }, Variant::Tiles { x: 16, y: 8 }, Variant::Tiles { x: 16, y: 16 }];
/// The product that is timed: members of five rows, by an output layer.
const MEMBERS: usize = 512;
const ROWS: usize = 5;
const INNER: usize = 200;
const COLUMNS: usize = 4096;
/// Dispatches in a timing, and timings of which the shortest counts.
const DISPATCHES: usize = 4;
const TIMINGS: usize = 3;

/// The kernel of a product.
pub(super) fn kernel(recording: &Recording, layout: Layout, stage: &rec::Product, variant: Variant) -> Result<Kernel> {
    if !stage.inner.is_multiple_of(4) || !stage.columns.is_multiple_of(16) {
        return Err(Error::Model(format!("a product of {} x {} is not padded", stage.inner, stage.columns)));
    }
    let (rows, columns) = (stage.rows as u32, stage.columns as u32);
    let sized =
        |height: u32, width: u32| Dispatch { numerator: rows, denominator: height, y: columns.div_ceil(width), z: 1 };
    let mut kernel = match variant {
        Variant::Registers => {
            // 8 x 8 invocations of 4 rows x 16 columns
            Kernel::new("product", include_str!("../../shaders/product.wgsl"), layout, sized(32, 128))
        }
        Variant::Tiles { x, y } => {
            let text = include_str!("../../shaders/variants/product.wgsl");
            let mut kernel = Kernel::new("product_tiled", text, layout, sized(8 * y, 8 * x));
            kernel.constants.unsigned("TX", x as usize);
            kernel.constants.unsigned("TY", y as usize);
            kernel
        }
    };
    kernel.block(recording, "x", "vec4<f32>", stage.input, false);
    kernel.block(recording, "w", "vec4<f32>", stage.weight, false);
    kernel.block(recording, "y", "vec4<f32>", stage.output, true);
    kernel.constants.unsigned("ROWS", stage.rows);
    kernel.constants.unsigned("INNER", stage.inner);
    kernel.constants.unsigned("COLUMNS", stage.columns);
    Ok(kernel)
}

/// The variant that an adapter computes fastest; software is not asked.
pub(super) fn fastest(context: &Context) -> Variant {
    if context.software {
        return Variant::Registers;
    }
    let mut best = (f64::INFINITY, TILES[1]);
    for variant in TILES {
        // one that the adapter refuses is not chosen
        if let Ok(seconds) = time(context, variant, MEMBERS)
            && seconds < best.0
        {
            best = (seconds, variant);
        }
    }
    best.1
}

/// Seconds of a product of so many members.
fn time(context: &Context, variant: Variant, members: usize) -> Result<f64> {
    let mut recording = Recording::default();
    let input = recording.buffer("x", Scope::Member, Kind::Float, ROWS * INNER);
    let output = recording.buffer("y", Scope::Member, Kind::Float, ROWS * COLUMNS);
    let weight = recording.constant("w", Values::F32(Arc::new(vec![1e-3; INNER * COLUMNS])));
    let stage = rec::Product { input, weight, output, rows: ROWS, inner: INNER, columns: COLUMNS };
    let layout = Layout { parameters: 1, capacity: members };
    let buffers = Buffers::new(context, &recording, &Plan::new(&recording, layout, 1))?;
    let pipeline = Pipeline::new(context, &kernel(&recording, layout, &stage, variant)?, &buffers)?;
    let ones = vec![1f32; members * ROWS * INNER];
    context.queue.write_buffer(&buffers.blocks[input.0], 0, bytemuck::cast_slice(&ones));
    let arguments = [pipeline.dispatch.x(members), pipeline.dispatch.y, pipeline.dispatch.z];
    context.queue.write_buffer(&buffers.members, 0, bytemuck::cast_slice(&[members as u32]));
    let target = context.guarded(|| Ok(buffers::readback(context, 4)))?;
    let once = || -> Result<f64> {
        let mut encoder = context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline.pipeline);
        pass.set_bind_group(0, &pipeline.bind_group, &[]);
        (0..DISPATCHES).for_each(|_| pass.dispatch_workgroups(arguments[0], arguments[1], arguments[2]));
        drop(pass);
        let begin = Instant::now();
        let source = &buffers.blocks[output.0];
        let _: Vec<f32> = pollster::block_on(readback::fetch(context, encoder, (source, &target), 4))?;
        Ok(begin.elapsed().as_secs_f64() / DISPATCHES as f64)
    };
    once()?; // the first pays for what is made on first use
    let mut best = f64::INFINITY;
    for _ in 0..TIMINGS {
        best = best.min(once()?);
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::super::adapter::{self, Choice};
    use super::super::context::{Context, Options};
    use super::*;

    #[test]
    fn every_variant_can_be_timed() {
        let Ok(adapter) = adapter::choose(Choice::Best) else { return };
        let context = Context::open(adapter, Options::default()).unwrap();
        for variant in TILES.into_iter().chain([Variant::Registers]) {
            assert!(time(&context, variant, 3).unwrap() > 0.0, "{variant:?}");
        }
        assert!(!context.software || fastest(&context) == Variant::Registers);
    }
}
