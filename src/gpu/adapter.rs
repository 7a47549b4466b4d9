//! Adapters: finding them, and choosing one.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::choice::Kernels;
use super::visible::Identity;
use super::{missing, visible};
use crate::error::{Error, Result};
use crate::kernels::product::Variant;

/// A GPU adapter, as `popfit devices` lists it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AdapterDescription {
    /// The N of `gpu:N`.
    pub index: usize,
    /// The name that the driver reports.
    pub name: String,
    /// Vulkan, Metal, Dx12, …
    pub backend: String,
    /// `DiscreteGpu`, `IntegratedGpu`, `VirtualGpu`, `Cpu` or `Other`.
    pub device_type: String,
    /// Driver and its version.
    pub driver: String,
    /// Place on the PCI bus, such as `0000:01:00.0`, if the driver tells it.
    pub pci: Option<String>,
    /// Bytes of the card's memory, if the system tells them (AMD's driver on Linux does).
    pub memory: Option<u64>,
    /// Computes on the processor (llvmpipe, SwiftShader): `auto` never takes it.
    pub software: bool,
    /// Bytes of the largest buffer.
    pub max_buffer_size: u64,
    /// Bytes that a shader sees of one buffer.
    pub max_binding_size: u64,
    /// The kernel of its matrix products, and the stages that share a kernel; why there are none where the environment
    /// has an invalid value.
    pub kernels: String,
}

/// Returns how many bytes the populations of all workers may take on this type of device, because wgpu does not tell
/// its memory.
pub(super) const fn default_memory(kind: wgpu::DeviceType) -> u64 {
    match kind {
        wgpu::DeviceType::DiscreteGpu => 8 << 30,
        wgpu::DeviceType::IntegratedGpu | wgpu::DeviceType::VirtualGpu => 4 << 30,
        _ => 2 << 30,
    }
}

/// Features that a product of cooperative matrices needs.
pub(super) const MATRIX_FEATURES: wgpu::Features =
    wgpu::Features::SHADER_F16.union(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX);

/// Returns the kernel for the largest matrices of 16-bit floats that an adapter multiplies with sums in f32; `None`
/// without any.
pub(super) fn matrix_kernel(adapter: &wgpu::Adapter) -> Option<Variant> {
    let info = adapter.get_info();
    if !adapter.features().contains(MATRIX_FEATURES)
        || info.subgroup_min_size != info.subgroup_max_size
    {
        return None;
    }
    // Square matrices of f16 with sums in f32.
    let is_suitable = |matrix: &&wgpu::CooperativeMatrixProperties| {
        matrix.m_size == matrix.n_size
            && matrix.m_size == matrix.k_size
            && matrix.ab_type == wgpu::CooperativeScalarType::F16
            && matrix.cr_type == wgpu::CooperativeScalarType::F32
    };
    let size = adapter
        .cooperative_matrix_properties()
        .iter()
        .filter(is_suitable)
        .map(|matrix| matrix.m_size)
        .filter(|size| [8, 16].contains(size))
        .max()?;
    Some(Variant::Cooperative {
        size,
        lanes: info.subgroup_min_size,
    })
}

/// Returns the rank of a type of adapter, from 0 for a discrete GPU to 4 for a CPU; lower is better.
const fn adapter_rank(kind: wgpu::DeviceType) -> u8 {
    match kind {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

/// Returns whether an adapter of this type is a discrete or an integrated GPU.
const fn is_hardware(kind: wgpu::DeviceType) -> bool {
    matches!(
        kind,
        wgpu::DeviceType::DiscreteGpu | wgpu::DeviceType::IntegratedGpu
    )
}

/// The process' instance of wgpu. It is never dropped: Mesa's drivers crash when a process that has dropped its
/// instance ends.
static INSTANCE: OnceLock<wgpu::Instance> = OnceLock::new();

/// Lock that is held while wgpu enumerates adapters or opens a device, because not every driver bears that from two
/// threads at once.
static DRIVER_LOCK: Mutex<()> = Mutex::new(());

/// Waits until no other thread asks wgpu for adapters or a device, and keeps others from it until the guard is dropped.
pub(super) fn lock_drivers() -> MutexGuard<'static, ()> {
    DRIVER_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the adapters of all backends that this process may see, with the validation of indirect calls switched off.
///
/// # Errors
/// Returns [`Error::Usage`] if `POPFIT_VISIBLE_DEVICES` names an adapter that is not there.
pub(super) fn enumerate_adapters() -> Result<Vec<wgpu::Adapter>> {
    let instance = INSTANCE.get_or_init(|| {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        // `compact` clamps the indirect arguments itself.
        descriptor
            .flags
            .remove(wgpu::InstanceFlags::VALIDATION_INDIRECT_CALL);
        wgpu::Instance::new(descriptor)
    });
    let adapters = {
        let _lock = lock_drivers();
        pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()))
    };
    let identities: Vec<Identity> = adapters
        .iter()
        .map(|adapter| identity_of(&adapter.get_info()))
        .collect();
    Ok(visible::visible_indices(&identities)?
        .into_iter()
        .map(|index| adapters[index].clone())
        .collect())
}

/// Returns the name and the place of an adapter.
fn identity_of(info: &wgpu::AdapterInfo) -> Identity {
    Identity {
        name: info.name.clone(),
        pci: info.device_pci_bus_id.clone(),
    }
}

/// Returns the bytes of memory of the card at this place on the PCI bus, where the system tells them.
fn read_memory_size(pci: &str) -> Option<u64> {
    let file = format!("/sys/bus/pci/devices/{pci}/mem_info_vram_total");
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Returns the adapter of `info`, found anew, since after a loss the driver's own state may be stale.
pub(super) fn find_again(info: &wgpu::AdapterInfo) -> Result<wgpu::Adapter> {
    let key = |info: &wgpu::AdapterInfo| {
        (
            info.name.clone(),
            info.backend,
            info.vendor,
            info.device,
            info.device_pci_bus_id.clone(),
        )
    };
    enumerate_adapters()?
        .into_iter()
        .find(|adapter| key(&adapter.get_info()) == key(info))
        .ok_or_else(|| Error::NoAdapter(format!("{} is no longer there", info.name)))
}

/// Describes an adapter for the user: its name, backend, driver and limits, and the kernels that popfit would choose.
fn describe(index: usize, adapter: &wgpu::Adapter) -> AdapterDescription {
    let info = adapter.get_info();
    let limits = adapter.limits();
    let pci = Some(info.device_pci_bus_id.clone()).filter(|place| !place.is_empty());
    AdapterDescription {
        index,
        backend: format!("{:?}", info.backend),
        device_type: format!("{:?}", info.device_type),
        driver: format!("{} {}", info.driver, info.driver_info)
            .trim()
            .to_owned(),
        software: info.device_type == wgpu::DeviceType::Cpu,
        kernels: Kernels::for_adapter(&info)
            .map_or_else(|error| error.to_string(), |kernels| kernels.to_string()),
        name: info.name,
        memory: pci.as_deref().and_then(read_memory_size),
        pci,
        max_buffer_size: limits.max_buffer_size,
        max_binding_size: limits.max_storage_buffer_binding_size,
    }
}

/// Returns a description of each adapter that wgpu finds on any backend and this process may see.
///
/// # Errors
/// Returns [`Error::Usage`] if `POPFIT_VISIBLE_DEVICES` names an adapter that is not there.
pub fn adapters() -> Result<Vec<AdapterDescription>> {
    Ok(enumerate_adapters()?
        .iter()
        .enumerate()
        .map(|(index, adapter)| describe(index, adapter))
        .collect())
}

/// Returns the indices of all discrete and integrated GPUs or, if there is none, of all adapters, each card once.
pub(super) fn every_gpu() -> Result<Vec<usize>> {
    let infos: Vec<wgpu::AdapterInfo> = enumerate_adapters()?
        .iter()
        .map(wgpu::Adapter::get_info)
        .collect();
    // Two adapters of one name under two backends are the same card; under one backend they are two cards.
    let is_shown_before = |index: usize| {
        infos[..index].iter().any(|earlier| {
            earlier.name == infos[index].name && earlier.backend != infos[index].backend
        })
    };
    let distinct: Vec<usize> = (0..infos.len())
        .filter(|&index| !is_shown_before(index))
        .collect();
    let hardware: Vec<usize> = distinct
        .iter()
        .copied()
        .filter(|&index| is_hardware(infos[index].device_type))
        .collect();
    Ok(if hardware.is_empty() {
        distinct
    } else {
        hardware
    })
}

/// Returns why there is no hardware among these adapters, as far as that is known; nothing if there is some.
fn missing_reasons(adapters: &[wgpu::Adapter]) -> Vec<String> {
    let has_hardware = adapters
        .iter()
        .any(|adapter| is_hardware(adapter.get_info().device_type));
    if has_hardware {
        Vec::new()
    } else {
        missing::find_reasons(adapters.len())
    }
}

/// Returns why no hardware GPU is shown, as sentences that say what to do; nothing if there is one.
#[must_use]
pub fn missing_hardware() -> Vec<String> {
    enumerate_adapters().map_or_else(
        |error| vec![error.to_string()],
        |adapters| missing_reasons(&adapters),
    )
}

/// Returns the index of the adapter that `auto` takes, if there is one. The process asks its drivers until it knows.
///
/// # Errors
/// Returns [`Error::Usage`] if `POPFIT_VISIBLE_DEVICES` names an adapter that is not there.
pub fn hardware() -> Result<Option<usize>> {
    static FOUND: OnceLock<Option<usize>> = OnceLock::new();
    if let Some(index) = FOUND.get() {
        return Ok(*index);
    }
    let index = match choose_adapter(AdapterChoice::Hardware) {
        Err(error @ Error::Usage(_)) => return Err(error),
        chosen => chosen.ok().map(|(index, _)| index),
    };
    Ok(*FOUND.get_or_init(|| index))
}

/// Choice of the adapter to open.
#[derive(Clone, Copy, Debug)]
pub(super) enum AdapterChoice<'a> {
    /// The best one, software included.
    Best,
    /// A discrete, else an integrated GPU. Others may be a processor in disguise.
    Hardware,
    Index(usize),
    /// Place on the PCI bus.
    Pci(&'a str),
    /// Part of its name, in any case.
    Name(&'a str),
}

/// Returns index and adapter that a choice names (the best, hardware, an index, or a part of its name); fails without
/// one.
pub(super) fn choose_adapter(choice: AdapterChoice) -> Result<(usize, wgpu::Adapter)> {
    let mut adapters = enumerate_adapters()?;
    let device_type = |index: usize| adapters[index].get_info().device_type;
    let rank = |index: &usize| (adapter_rank(device_type(*index)), *index);
    let mut indices = 0..adapters.len();
    let chosen = match choice {
        AdapterChoice::Best => indices.min_by_key(rank),
        AdapterChoice::Hardware => indices
            .filter(|&index| is_hardware(device_type(index)))
            .min_by_key(rank),
        AdapterChoice::Index(index) => indices.contains(&index).then_some(index),
        AdapterChoice::Pci(place) => indices
            .find(|&index| visible::is_at(&adapters[index].get_info().device_pci_bus_id, place)),
        AdapterChoice::Name(part) => indices
            .find(|&index| visible::is_named(&identity_of(&adapters[index].get_info()), part)),
    };
    match chosen {
        Some(index) => Ok((index, adapters.swap_remove(index))),
        None => Err(no_adapter_error(choice, &adapters)),
    }
}

/// Makes the error of a choice that names none of the adapters: what was wanted, what there is, and why.
fn no_adapter_error(choice: AdapterChoice, adapters: &[wgpu::Adapter]) -> Error {
    let names: Vec<String> = adapters
        .iter()
        .map(|adapter| adapter.get_info().name)
        .collect();
    let present = if names.is_empty() {
        "no adapter at all".to_owned()
    } else {
        names.join(", ")
    };
    let notes: String = missing_reasons(adapters)
        .into_iter()
        .map(|reason| format!("\n  {reason}"))
        .collect();
    let wanted = match choice {
        AdapterChoice::Best => "no adapter".to_owned(),
        AdapterChoice::Hardware => "no discrete or integrated GPU".to_owned(),
        AdapterChoice::Index(index) => format!("no adapter {index}"),
        AdapterChoice::Pci(place) => format!("no adapter at the place {place} on the PCI bus"),
        AdapterChoice::Name(part) => format!("no adapter named {part}"),
    };
    Error::NoAdapter(format!(
        "{wanted}; there is {present}. The device `cpu` needs none{notes}"
    ))
}
