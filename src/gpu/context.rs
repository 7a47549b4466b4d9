//! Adapters and devices: what there is, which one to take, and what went wrong on it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::cache::{self, Cache};
use super::product::{self, Variant};

use crate::error::{Error, Result};

/// A GPU adapter, as `popfit devices` lists it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AdapterDescription {
    /// The N of `gpu:N`.
    pub index: usize,
    /// As the driver calls it.
    pub name: String,
    /// Vulkan, Metal, Dx12, …
    pub backend: String,
    /// `DiscreteGpu`, `IntegratedGpu`, `VirtualGpu`, `Cpu` or `Other`.
    pub device_type: String,
    /// Driver and its version.
    pub driver: String,
    /// Computes on the processor (llvmpipe, SwiftShader): `auto` never takes it.
    pub software: bool,
    /// Bytes of the largest buffer.
    pub max_buffer_size: u64,
    /// Bytes that a shader sees of one buffer.
    pub max_binding_size: u64,
}

/// Default bytes for a population: wgpu does not tell how much memory an adapter has.
const fn default_memory(kind: wgpu::DeviceType) -> u64 {
    match kind {
        wgpu::DeviceType::DiscreteGpu => 4 << 30,
        wgpu::DeviceType::IntegratedGpu | wgpu::DeviceType::VirtualGpu => 2 << 30,
        _ => 1 << 30,
    }
}

/// Lower is better.
const fn rank(kind: wgpu::DeviceType) -> u8 {
    match kind {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

const fn is_hardware(kind: wgpu::DeviceType) -> bool {
    matches!(kind, wgpu::DeviceType::DiscreteGpu | wgpu::DeviceType::IntegratedGpu)
}

fn enumerate() -> Vec<wgpu::Adapter> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    // compact clamps the indirect arguments itself
    descriptor.flags.remove(wgpu::InstanceFlags::VALIDATION_INDIRECT_CALL);
    pollster::block_on(wgpu::Instance::new(descriptor).enumerate_adapters(wgpu::Backends::all()))
}

fn describe(index: usize, adapter: &wgpu::Adapter) -> AdapterDescription {
    let (info, limits) = (adapter.get_info(), adapter.limits());
    AdapterDescription {
        index,
        backend: format!("{:?}", info.backend),
        device_type: format!("{:?}", info.device_type),
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        software: info.device_type == wgpu::DeviceType::Cpu,
        name: info.name,
        max_buffer_size: limits.max_buffer_size,
        max_binding_size: limits.max_storage_buffer_binding_size,
    }
}

/// All adapters, in the driver's order.
#[must_use]
pub fn adapters() -> Vec<AdapterDescription> {
    enumerate().iter().enumerate().map(|(index, adapter)| describe(index, adapter)).collect()
}

/// The indices of all discrete and integrated GPUs, or, without one, of all other adapters.
pub(super) fn every() -> Vec<usize> {
    let all: Vec<wgpu::AdapterInfo> = enumerate().iter().map(wgpu::Adapter::get_info).collect();
    // two cards of one kind differ in their bus; one card under two backends is the same card
    let same = |a: &wgpu::AdapterInfo, b: &wgpu::AdapterInfo| a.name == b.name && a.backend != b.backend;
    let is_first = |i: &usize| !all[..*i].iter().any(|earlier| same(earlier, &all[*i]));
    let first: Vec<usize> = (0..all.len()).filter(is_first).collect();
    let hardware: Vec<usize> = first.iter().copied().filter(|&i| is_hardware(all[i].device_type)).collect();
    if hardware.is_empty() { first } else { hardware }
}

/// Which adapter to open.
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice<'a> {
    /// The best one, software included.
    Best,
    /// A discrete, else an integrated GPU. Others may be a processor in disguise.
    Hardware,
    Index(usize),
    /// Part of its name, in any case.
    Name(&'a str),
}

fn choose(choice: Choice) -> Result<wgpu::Adapter> {
    let mut all = enumerate();
    let kind = |adapter: &wgpu::Adapter| adapter.get_info().device_type;
    let order = |i: &usize| (rank(kind(&all[*i])), *i);
    let found = match choice {
        Choice::Best => (0..all.len()).min_by_key(order),
        Choice::Hardware => (0..all.len()).filter(|&i| is_hardware(kind(&all[i]))).min_by_key(order),
        Choice::Index(index) => (index < all.len()).then_some(index),
        Choice::Name(part) => {
            let part = part.to_lowercase();
            (0..all.len()).find(|&i| all[i].get_info().name.to_lowercase().contains(&part))
        }
    };
    match found {
        Some(i) => Ok(all.swap_remove(i)),
        None => {
            let names: Vec<String> = all.iter().map(|a| a.get_info().name).collect();
            let there = if names.is_empty() { "no adapter at all".to_owned() } else { names.join(", ") };
            let wanted = match choice {
                Choice::Best => "no GPU".to_owned(),
                Choice::Hardware => "no discrete or integrated GPU".to_owned(),
                Choice::Index(index) => format!("no adapter {index}"),
                Choice::Name(part) => format!("no adapter named {part}"),
            };
            Err(Error::NoAdapter(format!("{wanted}; there is {there}")))
        }
    }
}

/// An open device.
#[derive(Debug)]
pub(super) struct Context {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub name: String,
    pub software: bool,
    pub limits: wgpu::Limits,
    /// Default bytes for a population.
    pub memory: u64,
    pub cache: Option<Cache>,
    pub info: wgpu::AdapterInfo,
    /// How it computes products, once that is known.
    pub product: OnceLock<Variant>,
    /// The first error that no scope caught: the device was lost, or a command failed.
    fault: Arc<Mutex<Option<String>>>,
}

impl Context {
    pub fn open(choice: Choice) -> Result<Context> {
        let adapter = choose(choice)?;
        let info = adapter.get_info();
        let name = format!("gpu:{}", info.name);
        let has = adapter.limits();
        let limits = wgpu::Limits {
            max_storage_buffer_binding_size: has.max_storage_buffer_binding_size,
            max_buffer_size: has.max_buffer_size,
            ..wgpu::Limits::default()
        };
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("popfit"),
            required_features: adapter.features() & (wgpu::Features::PIPELINE_CACHE | wgpu::Features::TIMESTAMP_QUERY),
            required_limits: limits.clone(),
            ..Default::default()
        };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
            .map_err(|e| Error::Device { device: name.clone(), message: e.to_string() })?;
        let fault = Arc::new(Mutex::new(None));
        let record = |fault: &Arc<Mutex<Option<String>>>| {
            let fault = Arc::clone(fault);
            move |message: String| {
                fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(message);
            }
        };
        let (lost, failed) = (record(&fault), record(&fault));
        device.set_device_lost_callback(move |reason, message| lost(format!("lost ({reason:?}): {message}")));
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| failed(error.to_string())));
        let software = info.device_type == wgpu::DeviceType::Cpu;
        let memory = default_memory(info.device_type);
        let cache = cache::folder().and_then(|folder| Cache::open(&device, &info, &folder));
        Ok(Context { device, queue, name, software, limits, memory, cache, info, product: OnceLock::new(), fault })
    }

    /// How this adapter computes products: as an earlier run has found, or as it is found now.
    pub fn product(&self) -> Variant {
        let find = || {
            let folder = cache::folder().filter(|_| !self.software);
            folder.as_ref().and_then(|folder| cache::known_product(folder, &self.info)).unwrap_or_else(|| {
                let fastest = product::fastest(self);
                folder.iter().for_each(|folder| cache::keep_product(folder, &self.info, fastest));
                fastest
            })
        };
        *self.product.get_or_init(find)
    }

    /// Whether it tells when a kernel began and ended.
    pub fn has_timestamps(&self) -> bool {
        self.device.features().contains(wgpu::Features::TIMESTAMP_QUERY)
    }

    pub fn failure(&self, message: impl Into<String>) -> Error {
        Error::Device { device: self.name.clone(), message: message.into() }
    }

    pub fn too_large(&self, message: impl Into<String>) -> Error {
        Error::OutOfMemory { device: self.name.clone(), message: message.into() }
    }

    /// Fails if the device was lost or a command has failed since it was opened.
    pub fn check(&self) -> Result<()> {
        match &*self.fault.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(message) => Err(self.failure(message.clone())),
            None => Ok(()),
        }
    }

    /// Runs `create`, turning errors of the device into `Err`.
    pub fn guarded<T>(&self, create: impl FnOnce() -> Result<T>) -> Result<T> {
        let filters = [wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::Validation];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let made = create();
        let mut found = None;
        for scope in scopes.into_iter().rev() {
            let error = pollster::block_on(scope.pop());
            found = found.or(error);
        }
        match found {
            None => made,
            Some(wgpu::Error::OutOfMemory { source }) => Err(self.too_large(source.to_string())),
            Some(error) => made.and(Err(self.failure(error.to_string()))),
        }
    }
}
