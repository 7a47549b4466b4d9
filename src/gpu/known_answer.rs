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

/// Number of members of the test products.
const MEMBERS: usize = 7;
/// Number of rows of a member's output.
const ROWS_PER_MEMBER: usize = 5;
/// Number of columns. Neither rows nor columns fill the groups of any kernel.
const COLUMNS: usize = 208;
/// Largest error of a sum in f32, relative to that of the absolute terms: sums in f16 are ten times as far off.
const PRODUCT_TOLERANCE: f64 = 1e-4;

/// A product whose result the host knows.
#[derive(Clone, Copy)]
struct ProductCase {
    variant: Variant,
    kind: Kind,
    /// The product of one row per member is added to the first of its output's rows.
    is_added: bool,
}

impl ProductCase {
    /// Returns the numbers of a row. Those of f32 do not fill a tile.
    fn inner(&self) -> usize {
        if self.kind == Kind::Half { 48 } else { 44 }
    }

    /// Returns how many rows of a member are multiplied.
    fn rows(&self) -> usize {
        if self.is_added { 1 } else { ROWS_PER_MEMBER }
    }

    /// Returns the factor of the product, which only those of f16 numbers have.
    fn factor(&self) -> f32 {
        if self.kind == Kind::Half { 0.375 } else { 1.0 }
    }
}

/// Tests whether an adapter computes a matrix product with this kernel and kind of number as the host does. A kernel
/// that it cannot compile does not count as right. Products of f16 numbers are added to others, too.
pub(super) fn is_kernel_right(context: &GpuContext, variant: Variant, kind: Kind) -> bool {
    let cases = [false, true].map(|is_added| ProductCase {
        variant,
        kind,
        is_added,
    });
    cases
        .iter()
        .filter(|case| kind == Kind::Half || !case.is_added)
        .all(|case| DeviceProduct::compute(context, *case).is_ok_and(|product| product.is_right()))
}

/// A product as an adapter computes it, and its factors.
struct DeviceProduct {
    case: ProductCase,
    /// (members · rows of the output, columns)
    output: Vec<f32>,
    /// What the output held before: (members · rows of the output, columns).
    before: Vec<f32>,
    /// (members · rows, inner)
    x: Vec<f32>,
    /// (inner, columns)
    w: Vec<f32>,
}

impl DeviceProduct {
    /// Computes the test product on the adapter, and returns it with its factors.
    fn compute(context: &GpuContext, case: ProductCase) -> Result<DeviceProduct> {
        let pseudorandom = |k: usize| ((k * 7919 + 13) % 1009) as f32 / 504.0 - 1.0;
        let numbers = |count: usize, first: usize| -> Vec<f32> {
            (first..first + count).map(pseudorandom).collect()
        };
        let mut product = DeviceProduct {
            case,
            output: Vec::new(),
            before: numbers(MEMBERS * ROWS_PER_MEMBER * COLUMNS, 3),
            x: numbers(MEMBERS * case.rows() * case.inner(), 0),
            w: numbers(case.inner() * COLUMNS, 5),
        };
        product.output = TestProduct::new(context, &product)?.multiply(context)?;
        Ok(product)
    }

    /// Returns whether the output is as the host computes it, which rounds the factors as the adapter does, and sums in
    /// f64.
    fn is_right(&self) -> bool {
        let inner = self.case.inner();
        let round = |x: f32| {
            if self.case.kind == Kind::Half {
                f16::from_f32(x).to_f64()
            } else {
                f64::from(x)
            }
        };
        self.output.iter().enumerate().all(|(index, output)| {
            let column = index % COLUMNS;
            let output_row = index / COLUMNS;
            // 1. Find the row of x of which this is the product, and what it is added to.
            let factor = f64::from(self.case.factor());
            let (x_row, before) = if !self.case.is_added {
                (output_row, 0.0)
            } else if output_row.is_multiple_of(ROWS_PER_MEMBER) {
                let before = f64::from(self.before[index]);
                (output_row / ROWS_PER_MEMBER, before)
            } else {
                return *output == self.before[index];
            };
            // 2. Compare.
            let mut sum = before;
            let mut absolute_sum = before.abs();
            for k in 0..inner {
                let term = round(self.x[x_row * inner + k]) * round(self.w[k * COLUMNS + column]);
                sum += factor * term;
                absolute_sum += (factor * term).abs();
            }
            (f64::from(*output) - sum).abs() <= PRODUCT_TOLERANCE * absolute_sum
        })
    }
}

/// A product that is ready to run.
struct TestProduct {
    buffers: Buffers,
    pipeline: Pipeline,
    output: BufferId,
}

impl TestProduct {
    /// Creates the buffers and the kernel for a product.
    fn new(context: &GpuContext, product: &DeviceProduct) -> Result<TestProduct> {
        let DeviceProduct {
            case, before, x, w, ..
        } = product;
        let (kind, inner, rows) = (case.kind, case.inner(), case.rows());
        let mut recording = Recording::default();
        let input = recording.buffer("x", Scope::Member, kind, rows * inner);
        let output = recording.buffer("y", Scope::Member, Kind::Float, ROWS_PER_MEMBER * COLUMNS);
        let w = Values::F32(Arc::new(w.clone()));
        let weight = if kind == Kind::Half {
            recording.half_constant("w", w)
        } else {
            recording.constant("w", w)
        };
        let stage = rec::Product {
            input,
            weight,
            output,
            rows,
            inner,
            columns: COLUMNS,
            factor: case.factor(),
            added_to: case.is_added.then_some(ROWS_PER_MEMBER),
        };
        recording.stages.push(rec::Stage::Product(stage.clone()));
        let layout = Layout {
            parameters: 1,
            capacity: MEMBERS,
        };
        let buffers = Buffers::new(
            context,
            &recording,
            &BufferPlan::new(&recording, layout, 1, &[]),
        )?;
        let products = Products {
            full: case.variant,
            halves: case.variant,
        };
        let shaders = ShaderContext {
            declared: recording.declared(),
            layout: layout.shader_constants(),
            products,
        };
        let pipeline = Pipeline::new(context, &stage.product_shader(&shaders, false)?, &buffers)?;
        let places: Vec<usize> = (0..MEMBERS).collect();
        for (id, numbers) in [(input, x), (output, before)] {
            let numbers = Values::F32(Arc::new(numbers.clone()));
            let buffer = &buffers.blocks[id.0];
            buffers::upload_blocks(context, &recording, id, buffer, &numbers, &places);
        }
        context.write_buffer(&buffers.members, 0, bytemuck::cast_slice(&[MEMBERS as u32]));
        Ok(TestProduct {
            buffers,
            pipeline,
            output,
        })
    }

    /// Runs the product on the device, and returns its output: (members · rows, columns).
    fn multiply(&self, context: &GpuContext) -> Result<Vec<f32>> {
        let TestProduct {
            buffers, pipeline, ..
        } = self;
        let elements = MEMBERS * ROWS_PER_MEMBER * COLUMNS;
        let target = context.catch_errors(|| Ok(buffers::create_readback(context, elements)))?;
        let mut encoder = context
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline.pipeline);
        pass.set_bind_group(0, &pipeline.bind_group, &[]);
        pass.dispatch_workgroups(
            pipeline.dispatch.x(MEMBERS),
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
            let case = ProductCase {
                variant,
                kind: Kind::Float,
                is_added: false,
            };
            let product = DeviceProduct::compute(&context, case).unwrap();
            product.output.into_iter().map(f32::to_bits).collect()
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
