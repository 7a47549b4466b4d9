//! Known-answer tests of the product's kernels on an adapter, against the host.

use std::sync::Arc;

use half::f16;

use super::buffers::{self, Buffers, Plan};
use super::context::Context;
use super::counts::Pass;
use super::layout::Layout;
use super::pipelines::Pipeline;
use super::readback;
use crate::error::Result;
use crate::kernels::product::{Products, Variant};
use crate::kernels::shader::ShaderContext;
use crate::recording::{self as rec, BufferId, Kind, Recording, Scope, Values};

/// Members, inner and outer columns of the product: neither rows nor columns fill the groups of any kernel, nor the
/// inner columns of f32 a tile.
const fn shape(kind: Kind) -> Shape {
    Shape {
        members: 7,
        inner: if matches!(kind, Kind::Half) { 48 } else { 44 },
        columns: 208,
    }
}
const ROWS: usize = 5;
/// Largest error of a sum in f32, relative to that of the absolute terms: sums in f16 are ten times as far off.
const TOLERANCE: f64 = 1e-4;

#[derive(Clone, Copy)]
struct Shape {
    members: usize,
    inner: usize,
    columns: usize,
}

/// Tests whether an adapter computes a matrix product with this kernel and kind of number as the host does. A kernel
/// that it cannot compile does not count as right.
pub(super) fn is_right(context: &Context, variant: Variant, kind: Kind) -> bool {
    let Shape { inner, columns, .. } = shape(kind);
    let Ok(Answer { sums, x, w }) = Answer::compute(context, variant, kind) else {
        return false;
    };
    let rounded = |x: f32| {
        if kind == Kind::Half {
            f16::from_f32(x).to_f64()
        } else {
            f64::from(x)
        }
    };
    sums.iter().enumerate().all(|(place, found)| {
        let (row, column) = (place / columns, place % columns);
        let terms =
            (0..inner).map(|k| rounded(x[row * inner + k]) * rounded(w[k * columns + column]));
        let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| {
            (sum + term, size + term.abs())
        });
        (f64::from(*found) - sum).abs() <= TOLERANCE * size
    })
}

/// A product as an adapter computes it, and its factors.
struct Answer {
    /// (members · rows, columns)
    sums: Vec<f32>,
    /// (members · rows, inner)
    x: Vec<f32>,
    /// (inner, columns)
    w: Vec<f32>,
}

impl Answer {
    /// Computes the test product on the adapter with this kernel and kind of number, and returns it with its factors.
    fn compute(context: &Context, variant: Variant, kind: Kind) -> Result<Answer> {
        let Shape {
            members,
            inner,
            columns,
        } = shape(kind);
        let number = |k: usize| ((k * 7919 + 13) % 1009) as f32 / 504.0 - 1.0;
        let x: Vec<f32> = (0..members * ROWS * inner).map(number).collect();
        let w: Vec<f32> = (0..inner * columns).map(|k| number(k + 5)).collect();
        let sums = Trial::new(context, variant, kind, x.clone(), w.clone())?.run(context)?;
        Ok(Answer { sums, x, w })
    }
}

/// A product that is ready to run.
struct Trial {
    buffers: Buffers,
    pipeline: Pipeline,
    output: BufferId,
    members: usize,
    /// Elements of the output.
    elements: usize,
}

impl Trial {
    /// Creates the buffers and the kernel for the product of `x` (members · rows, inner) and `w` (inner, columns).
    fn new(
        context: &Context,
        variant: Variant,
        kind: Kind,
        x: Vec<f32>,
        w: Vec<f32>,
    ) -> Result<Trial> {
        let Shape {
            members,
            inner,
            columns,
        } = shape(kind);
        let mut recording = Recording::default();
        let input = recording.buffer("x", Scope::Member, kind, ROWS * inner);
        let output = recording.buffer("y", Scope::Member, Kind::Float, ROWS * columns);
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
            rows: ROWS,
            inner,
            columns,
        };
        recording.stages.push(rec::Stage::Product(stage.clone()));
        let layout = Layout {
            parameters: 1,
            capacity: members,
        };
        let buffers = Buffers::new(context, &recording, &Plan::new(&recording, layout, 1, &[]))?;
        let products = Products {
            full: variant,
            halves: variant,
        };
        let shaders = ShaderContext {
            declared: recording.declared(),
            layout: layout.constants(),
            products,
        };
        let pipeline = Pipeline::new(context, &stage.product_shader(&shaders, false)?, &buffers)?;
        let places: Vec<usize> = (0..members).collect();
        let x = Values::F32(Arc::new(x));
        buffers::upload_to(
            context,
            &recording,
            input,
            &buffers.blocks[input.0],
            &x,
            &places,
        );
        context.write(&buffers.members, 0, bytemuck::cast_slice(&[members as u32]));
        Ok(Trial {
            buffers,
            pipeline,
            output,
            members,
            elements: members * ROWS * columns,
        })
    }

    /// Runs the product on the device, and returns its output: (members · rows, columns).
    fn run(&self, context: &Context) -> Result<Vec<f32>> {
        let Trial {
            buffers,
            pipeline,
            elements,
            ..
        } = self;
        let elements = *elements;
        let target = context.guarded(|| Ok(buffers::readback(context, elements)))?;
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
        let mut counted = Pass::default();
        counted.dispatch(&pipeline.uses, false);
        context.counts.add_pass(&counted);
        drop(pass);
        pollster::block_on(readback::fetch(
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
    use super::super::adapter::{self, Choice};
    use super::super::context::{Context, Options};
    use super::*;
    use crate::kernels::product::TILES;

    fn context(cooperative: bool) -> Option<Context> {
        let (_, adapter) = adapter::choose(Choice::Best).ok()?;
        Some(
            Context::open(
                adapter,
                Options {
                    cooperative,
                    ..Options::default()
                },
            )
            .unwrap(),
        )
    }

    /// On software, too, which takes the plain kernel.
    #[test]
    fn all_tiles_have_the_same_bits() {
        let Some(context) = context(false) else {
            return;
        };
        let bits = |variant| -> Vec<u32> {
            let answer = Answer::compute(&context, variant, Kind::Float).unwrap();
            answer.sums.into_iter().map(f32::to_bits).collect()
        };
        let first = bits(TILES[0]);
        assert!(first.iter().any(|bits| *bits != first[0]));
        for variant in TILES {
            assert_eq!(bits(variant), first, "{variant:?}");
        }
    }

    #[test]
    fn every_product_is_right() {
        let Some(context) = context(true) else { return };
        println!("{}: {:?}", context.name, context.matrices());
        for variant in TILES.into_iter().chain([Variant::Registers]) {
            assert!(is_right(&context, variant, Kind::Float), "{variant:?}");
            assert!(
                is_right(&context, variant, Kind::Half),
                "{variant:?} of halves"
            );
        }
        if let Some(variant) = context.matrices() {
            assert!(is_right(&context, variant, Kind::Half), "{variant:?}");
        }
    }
}
