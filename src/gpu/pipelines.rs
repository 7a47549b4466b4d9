//! From kernels to pipelines and bind groups. A device keeps its compiled kernels for its workers and its next
//! populations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::buffers::{self, Buffers};
use super::context::Context;
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
    pub fn new(context: &Context, shader: &Shader, buffers: &Buffers) -> Result<Pipeline> {
        let writes: Vec<bool> = shader.bindings.iter().map(|b| b.write).collect();
        let Unbound { pipeline, layout } =
            compiled(context, shader.stem, &shader.source(), &writes)?;
        context.guarded(|| {
            let table = table(context, shader);
            let bound = shader.bindings.iter().map(|binding| match binding.target {
                BindingTarget::Members => &buffers.members,
                BindingTarget::State => &buffers.state,
                BindingTarget::Control => &buffers.control,
                BindingTarget::Limits => &buffers.limits,
                BindingTarget::Simplices => &buffers.simplices,
                BindingTarget::Arguments => &buffers.arguments,
                BindingTarget::Transfer => &buffers.transfer,
                BindingTarget::Table => &table,
                BindingTarget::Block(id) => &buffers.blocks[id.0],
            });
            let bind_group = bind(context, &layout, bound);
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

/// Kernels that an open device has compiled, by their text and which buffers they write: a device's workers, and
/// populations one after the other, have the same.
#[derive(Debug, Default)]
pub(super) struct Compiled(Mutex<HashMap<Key, Arc<Place>>>);

/// A kernel's text, and by binding whether it writes the buffer.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    text: String,
    writes: Vec<bool>,
}

/// Empty until a kernel is compiled.
type Place = Mutex<Option<Unbound>>;

/// A pipeline, and the layout of the buffers that are to be bound to it.
#[derive(Clone, Debug)]
pub(super) struct Unbound {
    pub pipeline: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
}

/// More are forgotten, all of them.
const MOST: usize = 512;

/// Returns the compiled kernel of a source, from this device's earlier ones if it is there, else compiled now.
pub(super) fn compiled(
    context: &Context,
    stem: &str,
    source: &WgslSource,
    writes: &[bool],
) -> Result<Unbound> {
    let mut known = context
        .compiled
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let key = Key {
        text: source.text.clone(),
        writes: writes.to_vec(),
    };
    if known.len() >= MOST && !known.contains_key(&key) {
        known.clear();
    }
    let own = known.entry(key).or_default().clone();
    drop(known);
    // who wants the same kernel waits for it, others do not
    let mut made = own.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(made) = &*made {
        return Ok(made.clone());
    }
    let module = shader_module(context, stem, source)?;
    let new = context.guarded(|| Ok(compute_pipeline(context, stem, &module, writes)))?;
    Ok(made.insert(new).clone())
}

/// Creates a storage buffer that holds the shader's table, padded to a multiple of four elements.
fn table(context: &Context, shader: &Shader) -> wgpu::Buffer {
    let elements = shader.table.len().next_multiple_of(4).max(4);
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
    let buffer = buffers::create(context, "table", elements, usage);
    context.write(&buffer, 0, bytemuck::cast_slice(&shader.table));
    buffer
}

/// Compiles WGSL source to a module; an error names the file and line that it comes from.
pub(super) fn shader_module(
    context: &Context,
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
    let place = report
        .messages
        .iter()
        .find_map(|m| m.location)
        .map(|l| source.locate(l.line_number as usize));
    Err(context.failure(format!(
        "{}: {error}",
        place.unwrap_or_else(|| stem.to_owned())
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
pub(super) fn compute_pipeline(
    context: &Context,
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
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: context.cache.as_ref().map(|cache| &cache.pipelines),
    });
    Unbound { pipeline, layout }
}

/// Makes a bind group of whole buffers, at the bindings 0, 1, 2, … in order.
pub(super) fn bind<'a>(
    context: &Context,
    layout: &wgpu::BindGroupLayout,
    buffers: impl Iterator<Item = &'a wgpu::Buffer>,
) -> wgpu::BindGroup {
    let resources = buffers.map(wgpu::Buffer::as_entire_binding).zip(0..);
    let entries: Vec<_> = resources
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
