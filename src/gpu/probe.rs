//! Test of whether an adapter computes: a tiny kernel (`probe.wgsl`) against the host, before a device is used. It
//! takes a few milliseconds.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::context::Context;
use super::pipelines::Unbound;
use super::readback;
use super::{buffers, pipelines};
use crate::error::Result;
use crate::kernels::source::{Constants, WgslSource};

/// Points of each of the four questions.
const EACH: usize = 64;
/// Largest relative error of functions, twice what `gpu/tests.rs` allows; and of the sum, relative to that of the
/// absolute terms.
const TOLERANCE: f64 = 5e-7;

/// Adapters of this process that have passed.
static PASSED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Tests once in a process, or `again`, whether an adapter gets exp, log, NaN and sums right; fails if not.
/// [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) names what it got wrong.
pub(super) fn probe(context: &Context, again: bool) -> Result<()> {
    let adapter = format!("{:?}", context.info);
    let passed = || PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    if !again && passed().contains(&adapter) {
        return Ok(());
    }
    match judge(&points(), &evaluate(context, &points())?) {
        Some(message) => Err(context.untrusted(message)),
        None => {
            passed().insert(adapter);
            Ok(())
        }
    }
}

/// Returns the probe's inputs: awkward arguments of exp and log, bits of NaN and of numbers, and terms that cancel.
fn points() -> Vec<f32> {
    let at = |i: usize| i as f32 / (EACH - 1) as f32;
    let exponents = (0..EACH).map(|i| match i % 4 {
        0 => -87.0 + 175.0 * at(i),
        1 => 0.35 * (at(i) - 0.5),
        2 => 1e-5 * (at(i) - 0.5),
        _ => (i as f32 - 32.0) * std::f32::consts::LN_2,
    });
    let logarithms = (0..EACH).map(|i| match i % 4 {
        0 => 10f32.powf(-37.0 + 75.0 * at(i)),
        1 => 1.0 + 0.02 * (at(i) - 0.5),
        2 => 1.0 + 1e-5 * (at(i) - 0.51),
        _ => std::f32::consts::FRAC_1_SQRT_2 * (1.0 + 1e-6 * (i as f32 - 32.0)),
    });
    let patterns = [
        0x7fc0_0000,
        0xffc0_0000,
        0x7f80_0001,
        0x7fff_ffff,
        0x7f80_0000,
        0xff80_0000,
        0,
        0x7f7f_ffff,
    ];
    let nans = (0..EACH).map(|i| f32::from_bits(patterns[i % patterns.len()]));
    let terms = (0..EACH).map(|i| if i % 3 == 0 { -1.0 } else { 1.0 } / (1.0 + i as f32).powi(2));
    exponents
        .chain(logarithms)
        .chain(nans)
        .chain(terms)
        .collect()
}

/// Runs the probe's kernel on the device at these points, and returns one value for each.
fn evaluate(context: &Context, points: &[f32]) -> Result<Vec<f32>> {
    let mut constants = Constants::default();
    constants.line("@group(0) @binding(0) var<storage, read> points: array<f32>;");
    constants.line("@group(0) @binding(1) var<storage, read_write> values: array<f32>;");
    let source = WgslSource::join(
        &constants,
        "probe",
        include_str!("probe.wgsl"),
        &["math"],
        None,
    );
    let module = pipelines::shader_module(context, "probe", &source)?;
    let (pipeline, group, buffers, target) = context.guarded(|| {
        let Unbound { pipeline, layout } =
            pipelines::compute_pipeline(context, "probe", &module, &[false, true]);
        let usage = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::COPY_SRC;
        let buffers =
            ["points", "values"].map(|name| buffers::create(context, name, points.len(), usage));
        let group = pipelines::bind(context, &layout, buffers.iter());
        Ok((
            pipeline,
            group,
            buffers,
            buffers::readback(context, points.len()),
        ))
    })?;
    context
        .queue
        .write_buffer(&buffers[0], 0, bytemuck::cast_slice(points));
    let mut encoder = context
        .device
        .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups(1, 1, 1);
    drop(pass);
    pollster::block_on(readback::fetch(
        context,
        encoder,
        &buffers[1],
        &target,
        points.len(),
    ))
}

/// Returns a message about the first of the device's values that is wrong; `None` if all are right.
fn judge(points: &[f32], values: &[f32]) -> Option<String> {
    for (k, name) in ["exp", "log"].into_iter().enumerate() {
        for i in k * EACH..(k + 1) * EACH {
            let (x, y) = (points[i], f64::from(values[i]));
            let exact = if k == 0 {
                f64::from(x).exp()
            } else {
                f64::from(x).ln()
            };
            let near = (y - exact).abs() <= TOLERANCE * exact.abs();
            if !near {
                return Some(format!("{name}({x:e}) is {y:e}, not {exact:e}"));
            }
        }
    }
    for i in 2 * EACH..3 * EACH {
        if values[i] != f32::from(u8::from(points[i].is_nan())) {
            return Some(format!(
                "NaN is not told by its bits: {:#x}",
                points[i].to_bits()
            ));
        }
    }
    let terms = &points[3 * EACH..];
    let sum: f64 = terms.iter().map(|x| f64::from(*x)).sum();
    let size: f64 = terms.iter().map(|x| f64::from(x.abs())).sum();
    let wrong = values[3 * EACH..].iter().find(|y| {
        let near = (f64::from(**y) - sum).abs() <= TOLERANCE * size;
        !near
    });
    wrong.map(|y| format!("a sum of {EACH} terms is {y:e}, not {sum:e}"))
}

#[cfg(test)]
mod tests {
    use super::super::adapter::{self, Choice};
    use super::super::context::Options;
    use super::*;

    #[test]
    fn what_is_wrong_is_seen() {
        let Ok((_, adapter)) = adapter::choose(Choice::Best) else {
            return;
        };
        let context = Context::open(adapter, Options::default()).unwrap();
        let points = points();
        let begin = std::time::Instant::now();
        let values = evaluate(&context, &points).unwrap();
        println!("probed in {:?}", begin.elapsed());
        assert_eq!(judge(&points, &values), None);
        for k in 0..values.len() {
            for wrong in [values[k] * 1.000_01 + 1e-37, f32::NAN] {
                let mut values = values.clone();
                values[k] = wrong;
                // an infinity or a zero times anything is itself
                assert!(
                    judge(&points, &values).is_some(),
                    "{wrong} as number {k}: {}",
                    points[k]
                );
            }
        }
        assert!(judge(&points, &vec![0.0; points.len()]).is_some());
    }
}
