//! What an adapter is asked before products are left to it: which tiles are the fastest, and whether it multiplies small matrices of
//! halves, and right. And which stages it computes faster together.

mod fusion;

use std::sync::Arc;
use std::time::Instant;

use half::f16;

use super::buffers::{self, Buffers, Plan};
use super::context::Context;
use super::layout::Layout;
use super::pipelines::Pipeline;
use super::product::{TILES, Variant, kernel};
use super::readback;
use crate::error::Result;
use crate::solver::recording::{self as rec, BufferId, Kind, Recording, Scope, Values};

/// The product that is timed: members of five rows, by an output layer.
const TIMED: Shape = Shape { members: 512, inner: 208, columns: 4096 };
/// The one that is compared: neither rows nor columns fill whole matrices' groups.
const COMPARED: Shape = Shape { members: 7, inner: 48, columns: 208 };
const ROWS: usize = 5;
/// Dispatches in a timing, and timings of which the shortest counts.
const DISPATCHES: usize = 4;
const TIMINGS: usize = 3;
/// Largest error of a sum in f32, relative to that of the absolute terms: sums in f16 are ten times as far off.
const TOLERANCE: f64 = 1e-4;

#[derive(Clone, Copy)]
struct Shape {
    members: usize,
    inner: usize,
    columns: usize,
}

pub(super) use fusion::fused;

/// The variant of [`TILES`] that an adapter computes fastest, of those that it does not refuse. All sum in one order: one whose bits are
/// not those of the first is not taken, as results would depend on the clock.
pub(super) fn fastest(context: &Context) -> Option<Variant> {
    fastest_at(context, TIMED)
}

fn fastest_at(context: &Context, shape: Shape) -> Option<Variant> {
    let bits = |variant| -> Option<Vec<u32>> {
        let (found, ..) = compared(context, variant, Kind::Float).ok()?;
        Some(found.into_iter().map(f32::to_bits).collect())
    };
    let seen: Vec<(Variant, Vec<u32>)> = TILES.into_iter().filter_map(|v| Some((v, bits(v)?))).collect();
    let alike = seen.iter().filter(|(_, bits)| *bits == seen[0].1);
    let timed = alike.filter_map(|(variant, _)| Some((time(context, *variant, shape).ok()?, *variant)));
    timed.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, variant)| variant)
}

/// How an adapter computes products of halves: small matrices at once where it has them, is no software, and gets them right; else as
/// others. It is not asked for the time: the sums of matrices have another order, and the choice must be the same in every run.
pub(super) fn of_halves(context: &Context) -> Variant {
    let fit = |variant: &Variant| !context.software && is_right(context, *variant);
    context.matrices().filter(fit).unwrap_or_else(|| context.product())
}

/// A product that is ready to run.
struct Trial {
    buffers: Buffers,
    pipeline: Pipeline,
    output: BufferId,
    members: usize,
}

impl Trial {
    fn new(
        context: &Context,
        variant: Variant,
        shape: Shape,
        (kind, x, w): (Kind, Vec<f32>, Vec<f32>),
    ) -> Result<Trial> {
        let Shape { members, inner, columns } = shape;
        let mut recording = Recording::default();
        let input = recording.buffer("x", Scope::Member, kind, ROWS * inner);
        let output = recording.buffer("y", Scope::Member, Kind::Float, ROWS * columns);
        let w = Values::F32(Arc::new(w));
        let weight = if kind == Kind::Half { recording.half_constant("w", w) } else { recording.constant("w", w) };
        let stage = rec::Product { input, weight, output, rows: ROWS, inner, columns };
        recording.stages.push(rec::Stage::Product(stage.clone()));
        let layout = Layout { parameters: 1, capacity: members };
        let buffers = Buffers::new(context, &recording, &Plan::new(&recording, layout, 1, &[]))?;
        let pipeline = Pipeline::new(context, &kernel(&recording, layout, &stage, (variant, false))?, &buffers)?;
        let places: Vec<usize> = (0..members).collect();
        let x = Values::F32(Arc::new(x));
        buffers::upload_to(context, &recording, input, &buffers.blocks[input.0], (&x, &places));
        context.queue.write_buffer(&buffers.members, 0, bytemuck::cast_slice(&[members as u32]));
        Ok(Trial { buffers, pipeline, output, members })
    }

    /// The first `elements` of the output, after so many dispatches.
    fn run(&self, context: &Context, dispatches: usize, elements: usize) -> Result<Vec<f32>> {
        let Trial { buffers, pipeline, .. } = self;
        let target = context.guarded(|| Ok(buffers::readback(context, elements)))?;
        let mut encoder = context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline.pipeline);
        pass.set_bind_group(0, &pipeline.bind_group, &[]);
        let [x, y, z] = [pipeline.dispatch.x(self.members), pipeline.dispatch.y, pipeline.dispatch.z];
        (0..dispatches).for_each(|_| pass.dispatch_workgroups(x, y, z));
        drop(pass);
        pollster::block_on(readback::fetch(context, encoder, (&buffers.blocks[self.output.0], &target), elements))
    }
}

/// Seconds of a product of numbers.
fn time(context: &Context, variant: Variant, shape: Shape) -> Result<f64> {
    let (x, w) = (vec![1.0; shape.members * ROWS * shape.inner], vec![1e-3; shape.inner * shape.columns]);
    let trial = Trial::new(context, variant, shape, (Kind::Float, x, w))?;
    let once = || -> Result<f64> {
        let begin = Instant::now();
        trial.run(context, DISPATCHES, 4)?;
        Ok(begin.elapsed().as_secs_f64() / DISPATCHES as f64)
    };
    once()?; // the first pays for what is made on first use
    let mut best = f64::INFINITY;
    for _ in 0..TIMINGS {
        best = best.min(once()?);
    }
    Ok(best)
}

/// A product of numbers, and these: rows and weights.
fn compared(context: &Context, variant: Variant, kind: Kind) -> Result<(Vec<f32>, Vec<f32>, Vec<f32>)> {
    let Shape { members, inner, columns } = COMPARED;
    let number = |k: usize| ((k * 7919 + 13) % 1009) as f32 / 504.0 - 1.0;
    let x: Vec<f32> = (0..members * ROWS * inner).map(number).collect();
    let w: Vec<f32> = (0..inner * columns).map(|k| number(k + 5)).collect();
    let trial = Trial::new(context, variant, COMPARED, (kind, x.clone(), w.clone()))?;
    Ok((trial.run(context, 1, members * ROWS * columns)?, x, w))
}

/// Whether a product of halves is what the host makes of it.
fn is_right(context: &Context, variant: Variant) -> bool {
    let Shape { inner, columns, .. } = COMPARED;
    let Ok((found, x, w)) = compared(context, variant, Kind::Half) else { return false };
    let narrow = |x: f32| f16::from_f32(x).to_f64();
    found.iter().enumerate().all(|(place, found)| {
        let (row, column) = (place / columns, place % columns);
        let terms = (0..inner).map(|k| narrow(x[row * inner + k]) * narrow(w[k * columns + column]));
        let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
        (f64::from(*found) - sum).abs() <= TOLERANCE * size
    })
}

#[cfg(test)]
mod tests {
    use super::super::adapter::{self, Choice};
    use super::super::context::{Context, Options};
    use super::*;

    fn context(cooperative: bool) -> Option<Context> {
        let adapter = adapter::choose(Choice::Best).ok()?;
        Some(Context::open(adapter, Options { cooperative, ..Options::default() }).unwrap())
    }

    #[test]
    fn every_variant_can_be_timed() {
        let Some(context) = context(false) else { return };
        for variant in TILES.into_iter().chain([Variant::Registers]) {
            assert!(time(&context, variant, Shape { members: 3, ..TIMED }).unwrap() > 0.0, "{variant:?}");
        }
        assert!(!context.software || context.product() == Variant::Registers);
    }

    /// On software, too, which is not asked.
    #[test]
    fn all_tiles_have_the_same_bits() {
        let Some(context) = context(false) else { return };
        let bits = |variant| -> Vec<u32> {
            compared(&context, variant, Kind::Float).unwrap().0.into_iter().map(f32::to_bits).collect()
        };
        let first = bits(TILES[0]);
        assert!(first.iter().any(|bits| *bits != first[0]));
        for variant in TILES {
            assert_eq!(bits(variant), first, "{variant:?}");
        }
        let small = Shape { members: 3, ..TIMED };
        assert!(fastest_at(&context, small).is_some_and(|variant| TILES.contains(&variant)));
    }

    #[test]
    fn every_product_of_halves_is_right() {
        let Some(context) = context(true) else { return };
        println!("{}: {:?}", context.name, context.matrices());
        for variant in TILES.into_iter().chain([Variant::Registers]).chain(context.matrices()) {
            assert!(is_right(&context, variant), "{variant:?}");
        }
    }
}
