//! Test of an adapter's arithmetic: a tiny kernel (`probe.wgsl`) is compared with the host before a device is used. It
//! takes a few milliseconds.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::context::GpuContext;
use super::pipelines::Unbound;
use super::readback;
use super::{buffers, pipelines};
use crate::error::Result;
use crate::kernels::source::{Constants, WgslSource};

/// Number of points per check: exp, log, NaN and a sum.
const POINTS_PER_CHECK: usize = 64;
/// Largest relative error of functions, twice what `gpu/tests.rs` allows; and of the sum, relative to that of the
/// absolute terms.
const PROBE_TOLERANCE: f64 = 5e-7;

/// Adapters that have passed in this process.
static PASSED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Tests once in a process, or `again`, whether an adapter gets exp, log, NaN and sums right; fails if not.
/// [`Error::DeviceUntrusted`](crate::Error::DeviceUntrusted) names what it got wrong.
pub(super) fn probe_arithmetic(context: &GpuContext, again: bool) -> Result<()> {
    let adapter = format!("{:?}", context.info);
    let passed = || PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    if !again && passed().contains(&adapter) {
        return Ok(());
    }
    match find_wrong_value(
        &probe_points(),
        &evaluate_on_device(context, &probe_points())?,
    ) {
        Some(message) => Err(context.untrusted(message)),
        None => {
            passed().insert(adapter);
            Ok(())
        }
    }
}

/// Returns the probe's inputs: awkward arguments of exp and log, bits of NaN and of numbers, and terms that cancel.
fn probe_points() -> Vec<f32> {
    let fraction = |i: usize| i as f32 / (POINTS_PER_CHECK - 1) as f32;
    let exponents = (0..POINTS_PER_CHECK).map(|i| match i % 4 {
        0 => -87.0 + 175.0 * fraction(i),
        1 => 0.35 * (fraction(i) - 0.5),
        2 => 1e-5 * (fraction(i) - 0.5),
        _ => (i as f32 - 32.0) * std::f32::consts::LN_2,
    });
    let logarithms = (0..POINTS_PER_CHECK).map(|i| match i % 4 {
        0 => 10f32.powf(-37.0 + 75.0 * fraction(i)),
        1 => 1.0 + 0.02 * (fraction(i) - 0.5),
        2 => 1.0 + 1e-5 * (fraction(i) - 0.51),
        _ => std::f32::consts::FRAC_1_SQRT_2 * (1.0 + 1e-6 * (i as f32 - 32.0)),
    });
    // Four NaN, then numbers and infinities.
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
    let nans = (0..POINTS_PER_CHECK).map(|i| f32::from_bits(patterns[i % patterns.len()]));
    // The terms of the sum partly cancel.
    let terms = (0..POINTS_PER_CHECK)
        .map(|i| if i % 3 == 0 { -1.0 } else { 1.0 } / (1.0 + i as f32).powi(2));
    exponents
        .chain(logarithms)
        .chain(nans)
        .chain(terms)
        .collect()
}

/// Runs the probe's kernel on the device at these points, and returns one value for each.
fn evaluate_on_device(context: &GpuContext, points: &[f32]) -> Result<Vec<f32>> {
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
    let module = pipelines::compile_module(context, "probe", &source)?;
    let (pipeline, group, buffers, target) = context.catch_errors(|| {
        let Unbound { pipeline, layout } =
            pipelines::make_pipeline(context, "probe", &module, &[false, true]);
        let usage = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::COPY_SRC;
        let buffers = ["points", "values"]
            .map(|name| buffers::create_buffer(context, name, points.len(), usage));
        let group = pipelines::bind_buffers(context, &layout, buffers.iter());
        Ok((
            pipeline,
            group,
            buffers,
            buffers::create_readback(context, points.len()),
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
    pollster::block_on(readback::copy_and_read(
        context,
        encoder,
        &buffers[1],
        &target,
        points.len(),
    ))
}

/// Returns a message about the first of the device's values that is wrong; `None` if all are right.
fn find_wrong_value(points: &[f32], values: &[f32]) -> Option<String> {
    // 1. exp and log, relative to their values. (A NaN is not right.)
    for (k, name) in ["exp", "log"].into_iter().enumerate() {
        for i in k * POINTS_PER_CHECK..(k + 1) * POINTS_PER_CHECK {
            let x = points[i];
            let y = f64::from(values[i]);
            let exact = if k == 0 {
                f64::from(x).exp()
            } else {
                f64::from(x).ln()
            };
            let is_right = (y - exact).abs() <= PROBE_TOLERANCE * exact.abs();
            if !is_right {
                return Some(format!("{name}({x:e}) is {y:e}, not {exact:e}"));
            }
        }
    }
    // 2. The test for NaN.
    for i in 2 * POINTS_PER_CHECK..3 * POINTS_PER_CHECK {
        if values[i] != f32::from(u8::from(points[i].is_nan())) {
            return Some(format!(
                "NaN is not told by its bits: {:#x}",
                points[i].to_bits()
            ));
        }
    }
    // 3. The sum, relative to that of the absolute terms.
    let terms = &points[3 * POINTS_PER_CHECK..];
    let sum: f64 = terms.iter().map(|x| f64::from(*x)).sum();
    let size: f64 = terms.iter().map(|x| f64::from(x.abs())).sum();
    let wrong_sum = values[3 * POINTS_PER_CHECK..].iter().find(|y| {
        let is_right = (f64::from(**y) - sum).abs() <= PROBE_TOLERANCE * size;
        !is_right
    });
    wrong_sum.map(|y| format!("a sum of {POINTS_PER_CHECK} terms is {y:e}, not {sum:e}"))
}

#[cfg(test)]
mod tests {
    use super::super::adapter::{self, AdapterChoice};
    use super::super::context::Options;
    use super::*;

    #[test]
    fn every_wrong_value_is_found() {
        let Ok((_, adapter)) = adapter::choose_adapter(AdapterChoice::Best) else {
            return;
        };
        let context = GpuContext::open(adapter, Options::default()).unwrap();
        let points = probe_points();
        let begin = std::time::Instant::now();
        let values = evaluate_on_device(&context, &points).unwrap();
        println!("probed in {:?}", begin.elapsed());
        assert_eq!(find_wrong_value(&points, &values), None);
        for k in 0..values.len() {
            for wrong in [values[k] * 1.000_01 + 1e-37, f32::NAN] {
                let mut values = values.clone();
                values[k] = wrong;
                // A factor alone would not change a zero.
                assert!(
                    find_wrong_value(&points, &values).is_some(),
                    "{wrong} as number {k}: {}",
                    points[k]
                );
            }
        }
        assert!(find_wrong_value(&points, &vec![0.0; points.len()]).is_some());
    }
}
