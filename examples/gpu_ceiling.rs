//! The largest rate of an adapter's f32 multiply-adds: `cargo run --release --example gpu_ceiling [NAME]
//! [RUN.profile.json …]`. Kernels are measured against it, not against a datasheet. Prints GF/s of every adapter, or of
//! those whose names contain NAME; below each the share of it that the output layers of profiled runs reached on it,
//! their activation included, and the share of the time that it was busy.

use std::time::{Duration, Instant};

use serde_json::Value;
use wgpu::PollType;

/// Chains a thread keeps going, four numbers each: enough to hide an operation's latency.
const CHAINS: u64 = 8;
const THREADS: u64 = 256;
const GROUPS: u64 = 4096;
/// Below lavapipe's limit on the rounds of a loop.
const MOST_ROUNDS: u64 = 32_768;
/// A measurement is at least this long.
const LEAST: Duration = Duration::from_millis(300);

/// `rounds` of all chains a thread; writes what keeps a compiler from dropping them.
fn shader() -> String {
    let each = |make: &dyn Fn(u64) -> String| (0..CHAINS).map(make).collect::<String>();
    let begin = each(&|k| format!("    var c{k} = vec4f(f32(thread.x) * 1e-7 + {k}.0);\n"));
    let step = each(&|k| format!("        c{k} = fma(c{k}, scale, shift);\n"));
    let end: Vec<String> = (0..CHAINS).map(|k| format!("c{k}")).collect();
    format!(
        "@group(0) @binding(0) var<storage, read> rounds: array<u32>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;

@compute @workgroup_size({THREADS})
fn main(@builtin(global_invocation_id) thread: vec3u) {{
{begin}    let scale = vec4f(f32(rounds[1]) * 0.5);
    let shift = vec4f(f32(rounds[1]));
    for (var k = 0u; k < rounds[0]; k++) {{
{step}    }}
    sums[thread.x] = dot({}, vec4f(1.0));
}}
",
        end.join(" + ")
    )
}

struct Bench {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    rounds: wgpu::Buffer,
    group: wgpu::BindGroup,
}

impl Bench {
    fn new(adapter: &wgpu::Adapter) -> Result<Bench, wgpu::RequestDeviceError> {
        let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default()))?;
        let source = wgpu::ShaderSource::Wgsl(shader().into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let buffer = |size| {
            let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
            device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
        };
        let (rounds, sums) = (buffer(8), buffer(4 * THREADS * GROUPS));
        let entries = [&rounds, &sums]
            .into_iter()
            .enumerate()
            .map(|(k, buffer)| wgpu::BindGroupEntry { binding: k as u32, resource: buffer.as_entire_binding() });
        let (layout, entries) = (&pipeline.get_bind_group_layout(0), &entries.collect::<Vec<_>>());
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout, entries });
        Ok(Bench { device, queue, pipeline, rounds, group })
    }

    fn time(&self, groups: u64, rounds: u64) -> Duration {
        let bytes: Vec<u8> = [rounds as u32, 1].into_iter().flat_map(u32::to_le_bytes).collect();
        self.queue.write_buffer(&self.rounds, 0, &bytes);
        self.queue.submit([]);
        let wait = || self.device.poll(PollType::Wait { submission_index: None, timeout: None });
        wait().expect("a device that answers");
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.group, &[]);
        pass.dispatch_workgroups(groups as u32, 1, 1);
        drop(pass);
        let begin = Instant::now();
        self.queue.submit([encoder.finish()]);
        wait().expect("a device that answers");
        begin.elapsed()
    }

    /// GF/s of the best of three.
    fn ceiling(&self) -> f64 {
        let (mut groups, mut rounds) = (8, 256);
        while self.time(groups, rounds) < LEAST && (groups, rounds) != (GROUPS, MOST_ROUNDS) {
            (groups, rounds) = if groups < GROUPS { (2 * groups, rounds) } else { (groups, 2 * rounds) };
        }
        let operations = (2 * 4 * CHAINS * rounds * THREADS * groups) as f64;
        let best = (0..3).map(|_| self.time(groups, rounds)).min().unwrap_or_default();
        operations / best.as_secs_f64() / 1e9
    }
}

/// Returns the rate that a run reached on an adapter that multiplies and adds at most at `ceiling` GF/s; `None` if the
/// run did not use the adapter.
fn share(file: &str, adapter: &str, ceiling: f64) -> Result<Option<String>, Box<dyn std::error::Error>> {
    let profile: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let devices = profile["devices"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    let is_it =
        |device: &&Value| device["name"].as_str().is_some_and(|name| name.strip_prefix("gpu:") == Some(adapter));
    let Some(device) = devices.iter().find(is_it) else { return Ok(None) };
    let stages = device["stages"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    let template = stages.iter().find(|stage| stage["name"] == "template");
    let reached = template.and_then(|stage| stage["gflops"].as_f64()).unwrap_or(0.0);
    let busy = 100.0 * device["busy"].as_f64().unwrap_or(0.0);
    let percent = 100.0 * reached / ceiling;
    Ok(Some(format!("  {file}: output layers {reached:.1} GF/s, {percent:.1} % of that; busy {busy:.1} %")))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (runs, names): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|word| word.ends_with(".json"));
    let name = names.first().map_or(String::new(), |name| name.to_lowercase());
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
    for adapter in adapters.iter().filter(|adapter| adapter.get_info().name.to_lowercase().contains(&name)) {
        let (info, ceiling) = (adapter.get_info(), Bench::new(adapter)?.ceiling());
        println!("{} ({}, {}): {ceiling:.0} GF/s", info.name, info.backend, info.driver_info);
        for run in &runs {
            share(run, &info.name, ceiling)?.iter().for_each(|line| println!("{line}"));
        }
    }
    Ok(())
}
