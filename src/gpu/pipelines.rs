//! Pipelines and bind groups of kernels. A device caches its compiled kernels for all its workers and later
//! populations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::buffers::{self, Buffers};
use super::context::GpuContext;
use crate::error::Result;
use crate::kernels::shader::{BindingTarget, Dispatch, Shader};
use crate::kernels::source::WgslSource;

/// A kernel that is ready to run.
#[derive(Debug)]
pub(super) struct Pipeline {
    /// Name of its file in `shaders/`.
    pub stem: &'static str,
    pub pipeline: wgpu::ComputePipeline,
    pub bind_group: wgpu::BindGroup,
    pub dispatch: Dispatch,
    /// Buffers that are bound, and whether the kernel writes them.
    pub uses: Vec<(BindingTarget, bool)>,
}

impl Pipeline {
    /// Compiles a shader, unless the device has done so before, and binds a population's buffers to it.
    pub fn new(context: &GpuContext, shader: &Shader, buffers: &Buffers) -> Result<Pipeline> {
        let writes: Vec<bool> = shader.bindings.iter().map(|b| b.write).collect();
        let Unbound { pipeline, layout } =
            compile_or_reuse(context, shader.stem, &shader.source(), &writes)?;
        context.catch_errors(|| {
            let table = create_table(context, shader);
            let bound_buffers = shader.bindings.iter().map(|binding| match binding.target {
                BindingTarget::Members => &buffers.members,
                BindingTarget::State => &buffers.state,
                BindingTarget::Control => &buffers.control,
                BindingTarget::Limits => &buffers.limits,
                BindingTarget::Arguments => &buffers.arguments,
                BindingTarget::Transfer => &buffers.transfer,
                BindingTarget::Table => &table,
                BindingTarget::Block(id) => &buffers.blocks[id.0],
            });
            let bind_group = bind_buffers(context, &layout, bound_buffers);
            let uses = shader
                .bindings
                .iter()
                .map(|binding| (binding.target, binding.write))
                .collect();
            Ok(Pipeline {
                stem: shader.stem,
                pipeline,
                bind_group,
                dispatch: shader.dispatch,
                uses,
            })
        })
    }
}

/// Kernels that an open device has compiled, by their text and the buffers that they write. A device's workers, and its
/// successive populations, use the same ones.
#[derive(Debug, Default)]
pub(super) struct CompiledKernels(Mutex<HashMap<KernelKey, Arc<KernelSlot>>>);

/// A kernel's text, and by binding whether it writes the buffer.
#[derive(Debug, PartialEq, Eq, Hash)]
struct KernelKey {
    text: String,
    writes: Vec<bool>,
}

/// Place of a kernel in the cache, empty until the kernel is compiled.
type KernelSlot = Mutex<Option<Unbound>>;

/// A pipeline, and the layout of the buffers that are to be bound to it.
#[derive(Clone, Debug)]
pub(super) struct Unbound {
    pub pipeline: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
}

/// Maximum number of kernels in the cache, which is emptied when it is full.
const MAX_COMPILED_KERNELS: usize = 512;

/// Returns the compiled kernel of a source, from this device's earlier ones if it is there, else compiled now.
pub(super) fn compile_or_reuse(
    context: &GpuContext,
    stem: &str,
    source: &WgslSource,
    writes: &[bool],
) -> Result<Unbound> {
    // 1. Find the kernel's slot in the cache, and release the cache at once.
    let mut cached_kernels = context
        .compiled
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let key = KernelKey {
        text: source.text.clone(),
        writes: writes.to_vec(),
    };
    if cached_kernels.len() >= MAX_COMPILED_KERNELS && !cached_kernels.contains_key(&key) {
        cached_kernels.clear();
    }
    let slot = cached_kernels.entry(key).or_default().clone();
    drop(cached_kernels);
    // 2. Compile the kernel while its slot alone is locked: only threads that need the same kernel wait for it.
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(compiled) = &*slot {
        return Ok(compiled.clone());
    }
    let module = compile_module(context, stem, source)?;
    let compiled = context.catch_errors(|| Ok(make_pipeline(context, stem, &module, writes)))?;
    Ok(slot.insert(compiled).clone())
}

/// Creates a storage buffer that holds the shader's table, padded to a multiple of four elements.
fn create_table(context: &GpuContext, shader: &Shader) -> wgpu::Buffer {
    let elements = shader.table.len().next_multiple_of(4).max(4);
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
    let buffer = buffers::create_buffer(context, "table", elements, usage);
    context.write_buffer(&buffer, 0, bytemuck::cast_slice(&shader.table));
    buffer
}

/// Compiles WGSL source to a module; an error names the file and line that it comes from.
pub(super) fn compile_module(
    context: &GpuContext,
    stem: &str,
    source: &WgslSource,
) -> Result<wgpu::ShaderModule> {
    let scope = context
        .device
        .push_error_scope(wgpu::ErrorFilter::Validation);
    let module = context
        .device
        .create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(stem),
            source: wgpu::ShaderSource::Wgsl(source.text.as_str().into()),
        });
    let Some(error) = pollster::block_on(scope.pop()) else {
        return Ok(module);
    };
    let report = pollster::block_on(module.get_compilation_info());
    let location = report
        .messages
        .iter()
        .find_map(|message| message.location)
        .map(|location| source.locate(location.line_number as usize));
    Err(context.failure(format!(
        "{}: {error}",
        location.unwrap_or_else(|| stem.to_owned())
    )))
}

/// Describes a storage buffer of a compute shader at this binding, read-only unless `write`.
fn storage_entry(binding: u32, write: bool) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only: !write },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    }
}

/// Makes the pipeline of `main` with one storage buffer per element of `writes`, true where the shader writes it.
pub(super) fn make_pipeline(
    context: &GpuContext,
    stem: &str,
    module: &wgpu::ShaderModule,
    writes: &[bool],
) -> Unbound {
    let device = &context.device;
    let entries: Vec<_> = (0..)
        .zip(writes)
        .map(|(binding, write)| storage_entry(binding, *write))
        .collect();
    let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: Some(stem),
        entries: &entries,
    });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(stem),
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(stem),
        layout: Some(&pipeline_layout),
        module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions {
            // Every kernel writes what it reads there.
            zero_initialize_workgroup_memory: false,
            ..wgpu::PipelineCompilationOptions::default()
        },
        cache: context.cache.as_ref().map(|cache| &cache.pipelines),
    });
    Unbound { pipeline, layout }
}

/// Makes a bind group of whole buffers, at the bindings 0, 1, 2, … in order.
pub(super) fn bind_buffers<'a>(
    context: &GpuContext,
    layout: &wgpu::BindGroupLayout,
    buffers: impl Iterator<Item = &'a wgpu::Buffer>,
) -> wgpu::BindGroup {
    let entries: Vec<_> = buffers
        .map(wgpu::Buffer::as_entire_binding)
        .zip(0..)
        .map(|(resource, binding)| wgpu::BindGroupEntry { binding, resource })
        .collect();
    context
        .device
        .create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout,
            entries: &entries,
        })
}
