//! `popfit-bench gpu-ceiling`: what an adapter can do at most, against which kernels and runs are measured, and not
//! against a datasheet: multiply-adds, uploads, and the times that nothing takes.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use popfit_cli::{Failure, line};
use rayon::prelude::*;
use serde_json::Value;
use wgpu::{BufferUsages as Usages, PollType};

/// Chains a thread keeps going, four numbers each: enough to hide an operation's latency.
const CHAINS: u64 = 8;
const THREADS: u64 = 256;
const GROUPS: u64 = 4096;
/// Below lavapipe's limit on the rounds of a loop.
const MOST_ROUNDS: u64 = 32_768;
/// A measurement is at least this long.
const LEAST: Duration = Duration::from_millis(300);
/// Measurements of a time, of which the shortest counts.
const REPEATS: usize = 5;
/// Bytes of an upload, and of what a thread fills of it at a time.
const UPLOAD_BYTES: usize = 64 << 20;
const PIECE_BYTES: usize = 1 << 16;
/// Bytes of a small readback.
const READBACK_BYTES: u64 = 4096;
/// Empty dispatches of a pass.
const DISPATCHES: u32 = 1000;
/// Reads a number, and writes one or none.
const WRITING: &str = "@group(0) @binding(0) var<storage, read> numbers: array<u32>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;

@compute @workgroup_size(1)
fn main() {
    if numbers[0] == 4000000000u { sums[0] = 1.0; }
}
";

#[derive(clap::Args)]
pub struct Arguments {
    /// Part of an adapter's name: those of other names are left out
    #[arg(long, value_name = "NAME", default_value = "")]
    adapter: String,
    /// Profiles of runs (NAME.profile.json), of which the share of the largest rate is printed
    profiles: Vec<String>,
}

/// Returns a kernel that does `rounds` of all chains a thread, and writes what keeps a compiler from dropping them.
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

/// An open device.
struct Bench {
    device: wgpu::Device,
    queue: wgpu::Queue,
}

/// A kernel and its buffers.
struct Kernel {
    pipeline: wgpu::ComputePipeline,
    read: wgpu::Buffer,
    group: wgpu::BindGroup,
}

impl Bench {
    /// Opens an adapter.
    fn new(adapter: &wgpu::Adapter) -> Result<Bench, wgpu::RequestDeviceError> {
        let (device, queue) =
            pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default()))?;
        Ok(Bench { device, queue })
    }

    /// Compiles a kernel, and makes a buffer of two numbers that it reads, and one of `length` that it writes.
    fn kernel(&self, wgsl: String, length: u64) -> Kernel {
        let source = wgpu::ShaderSource::Wgsl(wgsl.into());
        let module = self
            .device
            .create_shader_module(wgpu::ShaderModuleDescriptor {
                label: None,
                source,
            });
        let pipeline = self
            .device
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: None,
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: None,
            });
        let usage = Usages::STORAGE | Usages::COPY_DST;
        let (read, written) = (self.buffer(8, usage), self.buffer(4 * length, usage));
        let entries = [&read, &written].into_iter().enumerate();
        let entries = entries
            .map(|(k, buffer)| wgpu::BindGroupEntry {
                binding: k as u32,
                resource: buffer.as_entire_binding(),
            })
            .collect::<Vec<_>>();
        let layout = &pipeline.get_bind_group_layout(0);
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout,
            entries: &entries,
        });
        Kernel {
            pipeline,
            read,
            group,
        }
    }

    /// Creates a buffer of so many bytes.
    fn buffer(&self, size: u64, usage: Usages) -> wgpu::Buffer {
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage,
            mapped_at_creation: false,
        })
    }

    /// Waits until all that was submitted is done.
    fn wait(&self) {
        let wait = PollType::Wait {
            submission_index: None,
            timeout: None,
        };
        self.device.poll(wait).expect("a device that answers");
    }

    /// Returns the shortest seconds from a submission to its end, of commands that `record` records anew each time.
    fn shortest(&self, mut record: impl FnMut(&mut wgpu::CommandEncoder)) -> f64 {
        let mut once = || {
            let mut encoder = self
                .device
                .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            record(&mut encoder);
            let begin = Instant::now();
            self.queue.submit([encoder.finish()]);
            self.wait();
            begin.elapsed().as_secs_f64()
        };
        (0..REPEATS).map(|_| once()).fold(f64::INFINITY, f64::min)
    }

    /// Records dispatches of a kernel, one after the other in one pass.
    fn dispatch(encoder: &mut wgpu::CommandEncoder, kernel: &Kernel, dispatches: u32, groups: u64) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&kernel.pipeline);
        pass.set_bind_group(0, &kernel.group, &[]);
        (0..dispatches).for_each(|_| pass.dispatch_workgroups(groups as u32, 1, 1));
    }

    /// Returns the largest rate of f32 multiply-adds, in GF/s.
    fn multiply_adds(&self) -> f64 {
        let kernel = self.kernel(shader(), THREADS * GROUPS);
        let time = |groups: u64, rounds: u64| {
            let bytes: Vec<u8> = [rounds as u32, 1]
                .into_iter()
                .flat_map(u32::to_le_bytes)
                .collect();
            self.queue.write_buffer(&kernel.read, 0, &bytes);
            self.queue.submit([]);
            self.wait();
            self.shortest(|encoder| Bench::dispatch(encoder, &kernel, 1, groups))
        };
        let (mut groups, mut rounds) = (8, 256);
        let mut seconds = time(groups, rounds);
        while seconds < LEAST.as_secs_f64() && (groups, rounds) != (GROUPS, MOST_ROUNDS) {
            (groups, rounds) = if groups < GROUPS {
                (2 * groups, rounds)
            } else {
                (groups, 2 * rounds)
            };
            seconds = time(groups, rounds);
        }
        (2 * 4 * CHAINS * rounds * THREADS * groups) as f64 / seconds / 1e9
    }

    /// Returns GB/s of uploads that so many threads fill: through memory that is new each time, and through memory that
    /// stays mapped between them.
    fn uploads(&self, threads: usize) -> [f64; 2] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("threads");
        let target = self.buffer(UPLOAD_BYTES as u64, Usages::COPY_DST);
        let from = vec![[1u8; PIECE_BYTES]; UPLOAD_BYTES / PIECE_BYTES];
        let fill = |memory: wgpu::WriteOnly<'_, [u8]>| {
            let (pieces, _) = memory.into_chunks::<PIECE_BYTES>();
            let pieces: Vec<_> = pieces.into_iter().collect();
            pool.install(|| {
                pieces
                    .into_par_iter()
                    .zip(&from)
                    .for_each(|(piece, bytes)| piece.write(*bytes))
            });
        };
        let size = wgpu::BufferSize::new(UPLOAD_BYTES as u64).expect("not 0");
        let fresh = || {
            let mut view = self
                .queue
                .write_buffer_with(&target, 0, size)
                .expect("memory");
            fill(view.slice(..));
            drop(view);
            self.queue.submit([]);
        };
        let staging = self.buffer(UPLOAD_BYTES as u64, Usages::MAP_WRITE | Usages::COPY_SRC);
        let kept = || {
            staging
                .slice(..)
                .map_async(wgpu::MapMode::Write, |mapped| mapped.expect("memory"));
            self.wait();
            let mut view = staging
                .slice(..)
                .get_mapped_range_mut()
                .expect("mapped memory");
            fill(view.slice(..));
            drop(view);
            staging.unmap();
            let mut encoder = self
                .device
                .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            encoder.copy_buffer_to_buffer(&staging, 0, &target, 0, UPLOAD_BYTES as u64);
            self.queue.submit([encoder.finish()]);
        };
        let rate = |upload: &dyn Fn()| {
            let mut shortest = f64::INFINITY;
            for _ in 0..REPEATS {
                let begin = Instant::now();
                upload();
                self.wait();
                shortest = shortest.min(begin.elapsed().as_secs_f64());
            }
            UPLOAD_BYTES as f64 / shortest / 1e9
        };
        [rate(&fresh), rate(&kept)]
    }

    /// Returns the microseconds of a submission of nothing, of a dispatch that does nothing before one that does not
    /// wait for it and before one that does, and of a small readback.
    fn waits(&self) -> [f64; 4] {
        let writing = self.kernel(WRITING.into(), 1);
        let reading = self.kernel(
            WRITING
                .replace("read_write", "read")
                .replace("sums[0] = 1.0;", "_ = sums[0];"),
            1,
        );
        let nothing = self.shortest(|_| ());
        let each = |kernel: &Kernel| {
            let all = self.shortest(|encoder| Bench::dispatch(encoder, kernel, DISPATCHES, 1));
            (all - nothing) / f64::from(DISPATCHES)
        };
        let (free, waiting) = (each(&reading), each(&writing));
        let source = self.buffer(READBACK_BYTES, Usages::COPY_SRC);
        let target = self.buffer(READBACK_BYTES, Usages::COPY_DST | Usages::MAP_READ);
        let mut readback = f64::INFINITY;
        for _ in 0..REPEATS {
            let mut encoder = self
                .device
                .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            encoder.copy_buffer_to_buffer(&source, 0, &target, 0, READBACK_BYTES);
            let begin = Instant::now();
            self.queue.submit([encoder.finish()]);
            target
                .slice(..)
                .map_async(wgpu::MapMode::Read, |mapped| mapped.expect("memory"));
            self.wait();
            readback = readback.min(begin.elapsed().as_secs_f64());
            target.unmap();
        }
        [nothing, free, waiting, readback].map(|seconds| 1e6 * seconds)
    }
}

/// Returns the rate that a run reached on an adapter that multiplies and adds at most at `ceiling` GF/s; `None` if the
/// run did not use the adapter.
fn share(file: &str, adapter: &str, ceiling: f64) -> Result<Option<String>, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::of_the_run(format!("{file}: {error}"));
    let bytes = std::fs::read(file).map_err(|error| failed(&error))?;
    let profile: Value = serde_json::from_slice(&bytes).map_err(|error| failed(&error))?;
    let devices = profile["devices"]
        .as_array()
        .map_or(&[] as &[Value], Vec::as_slice);
    let is_it = |device: &&Value| {
        device["name"]
            .as_str()
            .is_some_and(|name| name.strip_prefix("gpu:") == Some(adapter))
    };
    let Some(device) = devices.iter().find(is_it) else {
        return Ok(None);
    };
    let stages = device["stages"]
        .as_array()
        .map_or(&[] as &[Value], Vec::as_slice);
    let template = stages.iter().find(|stage| stage["name"] == "template");
    let reached = template
        .and_then(|stage| stage["gflops"].as_f64())
        .unwrap_or(0.0);
    let busy = 100.0 * device["busy"].as_f64().unwrap_or(0.0);
    let percent = 100.0 * reached / ceiling;
    Ok(Some(format!(
        "  {file}: output layers {reached:.1} GF/s, {percent:.1} % of that; busy {busy:.1} %"
    )))
}

/// Returns what an adapter says of itself: its subgroups, and the matrices that it multiplies at once.
fn properties(adapter: &wgpu::Adapter) -> String {
    let info = adapter.get_info();
    let mut text = format!(
        "  subgroups of {} to {}; matrices:",
        info.subgroup_min_size, info.subgroup_max_size
    );
    let matrices = adapter.cooperative_matrix_properties();
    for matrix in &matrices {
        let wgpu::CooperativeMatrixProperties {
            m_size,
            n_size,
            k_size,
            ab_type,
            cr_type,
            ..
        } = matrix;
        let _ = write!(
            text,
            " {m_size}x{n_size}x{k_size} {ab_type:?} to {cr_type:?},"
        );
    }
    text.trim_end_matches([',', ':']).to_owned() + if matrices.is_empty() { ": none" } else { "" }
}

/// Prints what each adapter can do.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let name = arguments.adapter.to_lowercase();
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
    for adapter in adapters
        .iter()
        .filter(|adapter| adapter.get_info().name.to_lowercase().contains(&name))
    {
        let info = adapter.get_info();
        let bench = match Bench::new(adapter) {
            Ok(bench) => bench,
            Err(error) => {
                line(format_args!("{}: {error}", info.name));
                continue;
            }
        };
        let ceiling = bench.multiply_adds();
        line(format_args!(
            "{} ({}, {}): {ceiling:.0} GF/s",
            info.name, info.backend, info.driver_info
        ));
        for profile in &arguments.profiles {
            share(profile, &info.name, ceiling)?.iter().for_each(line);
        }
        line(properties(adapter));
        for threads in [1, 8, 16] {
            let [fresh, kept] = bench.uploads(threads);
            line(format_args!(
                "  uploads by {threads} threads: {fresh:.1} GB/s, {kept:.1} through memory that is kept"
            ));
        }
        let [nothing, free, waiting, readback] = bench.waits();
        line(format_args!(
            "  a submission of nothing {nothing:.1} µs, a dispatch {free:.2} µs, {waiting:.2} µs where the next one waits \
             for it, a readback of {READBACK_BYTES} bytes {readback:.1} µs"
        ));
    }
    Ok(())
}
