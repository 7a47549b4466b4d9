//! Known-answer tests of the product's kernels: an adapter's results are compared with the host's.

use std::sync::Arc;

use half::f16;

use super::buffers::{self, BufferPlan, Buffers};
use super::context::GpuContext;
use super::counts::PassCount;
use super::layout::Layout;
use super::pipelines::Pipeline;
use super::readback;
use crate::error::Result;
use crate::kernels::product::{Products, Variant};
use crate::kernels::shader::ShaderContext;
use crate::recording::{self as rec, BufferId, Kind, Recording, Scope, Values};

/// Returns the numbers of members, inner and outer columns of the test product. Neither rows nor columns fill the
/// groups of any kernel, nor do the inner columns of f32 fill a tile.
const fn product_shape(kind: Kind) -> ProductShape {
    ProductShape {
        members: 7,
        inner: if matches!(kind, Kind::Half) { 48 } else { 44 },
        columns: 208,
    }
}
/// Number of rows of the test product per member.
const ROWS_PER_MEMBER: usize = 5;
/// Largest error of a sum in f32, relative to that of the absolute terms: sums in f16 are ten times as far off.
const PRODUCT_TOLERANCE: f64 = 1e-4;

#[derive(Clone, Copy)]
struct ProductShape {
    members: usize,
    inner: usize,
    columns: usize,
}

/// Tests whether an adapter computes a matrix product with this kernel and kind of number as the host does. A kernel
/// that it cannot compile does not count as right.
pub(super) fn is_kernel_right(context: &GpuContext, variant: Variant, kind: Kind) -> bool {
    let ProductShape { inner, columns, .. } = product_shape(kind);
    let Ok(DeviceProduct { sums, x, w }) = DeviceProduct::compute(context, variant, kind) else {
        return false;
    };
    // The host rounds the factors as the adapter does, and sums in f64.
    let round = |x: f32| {
        if kind == Kind::Half {
            f16::from_f32(x).to_f64()
        } else {
            f64::from(x)
        }
    };
    sums.iter().enumerate().all(|(index, device_sum)| {
        let row = index / columns;
        let column = index % columns;
        let mut sum = 0.0;
        let mut absolute_sum = 0.0;
        for k in 0..inner {
            let term = round(x[row * inner + k]) * round(w[k * columns + column]);
            sum += term;
            absolute_sum += term.abs();
        }
        (f64::from(*device_sum) - sum).abs() <= PRODUCT_TOLERANCE * absolute_sum
    })
}

/// A product as an adapter computes it, and its factors.
struct DeviceProduct {
    /// (members · rows, columns)
    sums: Vec<f32>,
    /// (members · rows, inner)
    x: Vec<f32>,
    /// (inner, columns)
    w: Vec<f32>,
}

impl DeviceProduct {
    /// Computes the test product on the adapter with this kernel and kind of number, and returns it with its factors.
    fn compute(context: &GpuContext, variant: Variant, kind: Kind) -> Result<DeviceProduct> {
        let ProductShape {
            members,
            inner,
            columns,
        } = product_shape(kind);
        let pseudorandom = |k: usize| ((k * 7919 + 13) % 1009) as f32 / 504.0 - 1.0;
        let x: Vec<f32> = (0..members * ROWS_PER_MEMBER * inner)
            .map(pseudorandom)
            .collect();
        let w: Vec<f32> = (0..inner * columns).map(|k| pseudorandom(k + 5)).collect();
        let sums =
            TestProduct::new(context, variant, kind, x.clone(), w.clone())?.multiply(context)?;
        Ok(DeviceProduct { sums, x, w })
    }
}

/// A product that is ready to run.
struct TestProduct {
    buffers: Buffers,
    pipeline: Pipeline,
    output: BufferId,
    members: usize,
    /// Elements of the output.
    elements: usize,
}

impl TestProduct {
    /// Creates the buffers and the kernel for the product of `x` (members · rows, inner) and `w` (inner, columns).
    fn new(
        context: &GpuContext,
        variant: Variant,
        kind: Kind,
        x: Vec<f32>,
        w: Vec<f32>,
    ) -> Result<TestProduct> {
        let ProductShape {
            members,
            inner,
            columns,
        } = product_shape(kind);
        let mut recording = Recording::default();
        let input = recording.buffer("x", Scope::Member, kind, ROWS_PER_MEMBER * inner);
        let output = recording.buffer("y", Scope::Member, Kind::Float, ROWS_PER_MEMBER * columns);
        let w = Values::F32(Arc::new(w));
        let weight = if kind == Kind::Half {
            recording.half_constant("w", w)
        } else {
            recording.constant("w", w)
        };
        let stage = rec::Product {
            input,
            weight,
            output,
            rows: ROWS_PER_MEMBER,
            inner,
            columns,
        };
        recording.stages.push(rec::Stage::Product(stage.clone()));
        let layout = Layout {
            parameters: 1,
            capacity: members,
        };
        let buffers = Buffers::new(
            context,
            &recording,
            &BufferPlan::new(&recording, layout, 1, &[]),
        )?;
        let products = Products {
            full: variant,
            halves: variant,
        };
        let shaders = ShaderContext {
            declared: recording.declared(),
            layout: layout.shader_constants(),
            products,
        };
        let pipeline = Pipeline::new(context, &stage.product_shader(&shaders, false)?, &buffers)?;
        let places: Vec<usize> = (0..members).collect();
        let x = Values::F32(Arc::new(x));
        buffers::upload_blocks(
            context,
            &recording,
            input,
            &buffers.blocks[input.0],
            &x,
            &places,
        );
        context.write_buffer(&buffers.members, 0, bytemuck::cast_slice(&[members as u32]));
        Ok(TestProduct {
            buffers,
            pipeline,
            output,
            members,
            elements: members * ROWS_PER_MEMBER * columns,
        })
    }

    /// Runs the product on the device, and returns its output: (members · rows, columns).
    fn multiply(&self, context: &GpuContext) -> Result<Vec<f32>> {
        let TestProduct {
            buffers,
            pipeline,
            elements,
            ..
        } = self;
        let elements = *elements;
        let target = context.catch_errors(|| Ok(buffers::create_readback(context, elements)))?;
        let mut encoder = context
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline.pipeline);
        pass.set_bind_group(0, &pipeline.bind_group, &[]);
        pass.dispatch_workgroups(
            pipeline.dispatch.x(self.members),
            pipeline.dispatch.y,
            pipeline.dispatch.z,
        );
        let mut pass_count = PassCount::default();
        pass_count.count_dispatch(&pipeline.uses, false);
        context.counts.add_pass(&pass_count);
        drop(pass);
        pollster::block_on(readback::copy_and_read(
            context,
            encoder,
            &buffers.blocks[self.output.0],
            &target,
            elements,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::adapter::{self, AdapterChoice};
    use super::super::context::{GpuContext, Options};
    use super::*;
    use crate::kernels::product::TILES;

    fn open_context(cooperative: bool) -> Option<GpuContext> {
        let (_, adapter) = adapter::choose_adapter(AdapterChoice::Best).ok()?;
        Some(
            GpuContext::open(
                adapter,
                Options {
                    cooperative,
                    ..Options::default()
                },
            )
            .unwrap(),
        )
    }

    #[test]
    fn all_tiled_kernels_have_the_same_bits() {
        let Some(context) = open_context(false) else {
            return;
        };
        let bits = |variant| -> Vec<u32> {
            let answer = DeviceProduct::compute(&context, variant, Kind::Float).unwrap();
            answer.sums.into_iter().map(f32::to_bits).collect()
        };
        let first = bits(TILES[0]);
        assert!(first.iter().any(|bits| *bits != first[0]));
        for variant in TILES {
            assert_eq!(bits(variant), first, "{variant:?}");
        }
    }

    #[test]
    fn every_product_kernel_is_right() {
        let Some(context) = open_context(true) else {
            return;
        };
        println!("{}: {:?}", context.name, context.matrix_kernel());
        for variant in TILES.into_iter().chain([Variant::Registers]) {
            assert!(
                is_kernel_right(&context, variant, Kind::Float),
                "{variant:?}"
            );
            assert!(
                is_kernel_right(&context, variant, Kind::Half),
                "{variant:?} of halves"
            );
        }
        if let Some(variant) = context.matrix_kernel() {
            assert!(
                is_kernel_right(&context, variant, Kind::Half),
                "{variant:?}"
            );
        }
    }
}
