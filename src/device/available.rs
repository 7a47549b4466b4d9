//! The devices of this machine as users see them, and the one that `auto` takes.

use std::fmt;

use super::{Choice, Device};
use crate::error::{Error, Result};

/// Kind of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeviceKind {
    /// The processor, through popfit's own code.
    Cpu,
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the processor's memory.
    Integrated,
    /// A GPU of a virtual machine.
    Virtual,
    /// A graphics driver that computes on the processor (llvmpipe, SwiftShader), which `auto` never chooses.
    Software,
    /// A GPU whose driver does not tell.
    Other,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Discrete => "discrete",
            DeviceKind::Integrated => "integrated",
            DeviceKind::Virtual => "virtual",
            DeviceKind::Software => "software",
            DeviceKind::Other => "other",
        })
    }
}

/// A device of this machine.
#[derive(Clone, Debug)]
pub struct DeviceDescription {
    /// Text that selects it where a [`Device`] is parsed, such as `gpu:0`.
    pub selector: String,
    /// The name that the driver reports.
    pub name: String,
    /// Kind of the device.
    pub kind: DeviceKind,
    /// Vulkan, Metal or Dx12; empty for the CPU.
    pub backend: String,
    /// Driver and its version; empty for the CPU.
    pub driver: String,
    /// Place on the PCI bus, such as `0000:01:00.0`, if the driver tells it.
    pub pci: Option<String>,
    /// Bytes of the card's memory, if the system tells them.
    pub memory: Option<u64>,
    /// The device is a software adapter, which `auto` never chooses.
    pub software: bool,
    /// Maximum sizes of buffers and bindings.
    pub limits: String,
    /// Kernels of a GPU: the variants of its matrix product, and the stages that share a kernel.
    pub kernels: String,
}

/// The devices of this machine.
#[derive(Clone, Debug)]
pub struct AvailableDevices {
    /// The CPU, then the adapters of GPUs.
    pub devices: Vec<DeviceDescription>,
    /// Selector of the device that `auto` takes; `None` if it takes none, because the environment is invalid.
    pub auto: Option<String>,
    /// Reason why `auto` takes it, and what it passes over.
    pub auto_reason: String,
    /// Reasons why a GPU is missing or is not used, each a sentence that says what to do.
    pub notes: Vec<String>,
}

/// Returns a description of the CPU and of every GPU adapter.
pub(super) fn describe_devices() -> Vec<DeviceDescription> {
    let mut devices = vec![DeviceDescription::describe_cpu()];
    devices.extend(describe_adapters());
    devices
}

impl AvailableDevices {
    /// Looks at all devices, and opens the GPU that `auto` takes.
    pub fn find_all() -> AvailableDevices {
        // 1. Describe all devices, and open the one that `auto` takes.
        let devices = describe_devices();
        let AutoDevice {
            device,
            selector,
            passed_over,
        } = open_auto();
        // 2. Say why `auto` takes it.
        let has_hardware = devices
            .iter()
            .any(|device| matches!(device.kind, DeviceKind::Discrete | DeviceKind::Integrated));
        let (auto, auto_reason) = match (device, &passed_over) {
            (Err(error), _) => (None, error.to_string()),
            (Ok(_), Some(failure)) => (
                Some(selector),
                format!("the GPU that comes first cannot be used: {failure}"),
            ),
            (Ok(_), None) => {
                let reason = match devices.len() {
                    1 => "there is no GPU adapter",
                    _ if has_hardware => {
                        "a discrete GPU comes first, then an integrated one, never a software adapter"
                    }
                    _ => {
                        "no adapter is a discrete or integrated GPU; others are taken only if they are named (gpu)"
                    }
                };
                (Some(selector), reason.into())
            }
        };
        // 3. Say why a GPU is missing or is not used.
        let mut notes = Vec::new();
        notes.extend(passed_over.map(|failure| failure.to_string()));
        notes.extend(missing_hardware());
        AvailableDevices {
            devices,
            auto,
            auto_reason,
            notes,
        }
    }
}

impl DeviceDescription {
    /// Describes the CPU.
    fn describe_cpu() -> DeviceDescription {
        DeviceDescription {
            selector: "cpu".into(),
            name: Device::cpu().name(),
            kind: DeviceKind::Cpu,
            backend: String::new(),
            driver: String::new(),
            pci: None,
            memory: None,
            software: false,
            limits: String::new(),
            kernels: String::new(),
        }
    }

    /// Makes the description that users see from that of a GPU adapter.
    #[cfg(feature = "gpu")]
    fn from_adapter(adapter: crate::gpu::AdapterDescription) -> DeviceDescription {
        let [buffers, bindings] =
            [adapter.max_buffer_size, adapter.max_binding_size].map(|bytes| bytes >> 20);
        DeviceDescription {
            selector: format!("gpu:{}", adapter.index),
            kind: match adapter.device_type.as_str() {
                "DiscreteGpu" => DeviceKind::Discrete,
                "IntegratedGpu" => DeviceKind::Integrated,
                "VirtualGpu" => DeviceKind::Virtual,
                "Cpu" => DeviceKind::Software,
                _ => DeviceKind::Other,
            },
            backend: adapter.backend,
            driver: adapter.driver,
            pci: adapter.pci,
            memory: adapter.memory,
            software: adapter.software,
            limits: format!("buffers {buffers} MiB, bindings {bindings} MiB"),
            kernels: adapter.kernels,
            name: adapter.name,
        }
    }
}

/// Result of the selector `auto`.
pub(super) struct AutoDevice {
    pub device: Result<Device>,
    selector: String,
    /// The error with which the GPU that comes first refuses to work.
    passed_over: Option<Error>,
}

/// Opens the device that `auto` takes: a discrete GPU, else an integrated one, else the CPU.
#[cfg(feature = "gpu")]
pub(super) fn open_auto() -> AutoDevice {
    let take_cpu = |passed_over| AutoDevice {
        device: Ok(Device::cpu()),
        selector: "cpu".into(),
        passed_over,
    };
    let index = match crate::gpu::hardware() {
        Ok(Some(index)) => index,
        Ok(None) => return take_cpu(None),
        // The environment names an adapter that is not there.
        Err(error) => {
            return AutoDevice {
                device: Err(error),
                selector: String::new(),
                passed_over: None,
            };
        }
    };
    match crate::gpu::GpuDevice::open(index) {
        Ok(device) => {
            let device = Ok(Device {
                choice: Choice::Auto,
                ..Device::from_single(device)
            });
            AutoDevice {
                device,
                selector: format!("gpu:{index}"),
                passed_over: None,
            }
        }
        // An environment variable names no kernel. The CPU would hide this error.
        Err(error @ Error::Usage(_)) => AutoDevice {
            device: Err(error),
            selector: String::new(),
            passed_over: None,
        },
        Err(error) => take_cpu(Some(error)),
    }
}

/// Returns the CPU, because this build has no GPU support.
#[cfg(not(feature = "gpu"))]
pub(super) fn open_auto() -> AutoDevice {
    AutoDevice {
        device: Ok(Device {
            choice: Choice::Named,
            ..Device::cpu()
        }),
        selector: "cpu".into(),
        passed_over: None,
    }
}

/// Returns a description of every adapter.
#[cfg(feature = "gpu")]
fn describe_adapters() -> Vec<DeviceDescription> {
    // An error here is one of the environment, which `open_auto` reports.
    crate::gpu::adapters()
        .unwrap_or_default()
        .into_iter()
        .map(DeviceDescription::from_adapter)
        .collect()
}

/// Returns the reasons why there is no hardware GPU; none if there is one.
#[cfg(feature = "gpu")]
fn missing_hardware() -> Vec<String> {
    crate::gpu::missing_hardware()
}

/// Returns no adapter, because this build has no GPU support.
#[cfg(not(feature = "gpu"))]
fn describe_adapters() -> Vec<DeviceDescription> {
    Vec::new()
}

/// Returns the reason that this build has no GPU support.
#[cfg(not(feature = "gpu"))]
fn missing_hardware() -> Vec<String> {
    vec!["this build has no GPU support (feature `gpu`)".into()]
}
