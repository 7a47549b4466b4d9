//! The device that a user names.

use std::sync::Arc;

use crate::cpu::CpuDevice;
use crate::error::{Error, Result};
use crate::solver;

/// Where fits run: the CPU, or one GPU adapter.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<dyn solver::Device>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Device").field(&self.name()).finish()
    }
}

/// A device of this machine.
#[derive(Clone, Debug)]
pub struct DeviceDescription {
    /// What `--device` takes.
    pub selector: String,
    pub name: String,
    pub kind: String,
    /// A software adapter: `auto` never takes it.
    pub software: bool,
    pub limits: String,
}

impl Device {
    /// The CPU.
    pub fn cpu() -> Device {
        Device { inner: Arc::new(CpuDevice) }
    }

    /// A discrete, then an integrated GPU, else the CPU; never a software adapter.
    pub fn auto() -> Result<Device> {
        #[cfg(any())]
        if let Some(adapter) = crate::gpu::adapters().into_iter().find(|a| !a.software) {
            return Device::gpu(adapter.index);
        }
        Ok(Device::cpu())
    }

    /// `auto`, `cpu`, `gpu` (the best adapter, software included), `gpu:N` or `gpu:NAME` (part of a name).
    pub fn parse(text: &str) -> Result<Device> {
        match text {
            "auto" => Device::auto(),
            "cpu" => Ok(Device::cpu()),
            "gpu" => Device::best_gpu(),
            _ => match text.strip_prefix("gpu:") {
                Some(name) => Device::named_gpu(name),
                None => {
                    Err(Error::Usage(format!("no device \"{text}\": give auto, cpu, gpu, gpu:N or gpu:NAME")))
                }
            },
        }
    }

    /// As it is written into the result table.
    pub fn name(&self) -> String {
        self.inner.name()
    }

    /// The CPU and every adapter, in the order in which `auto` prefers adapters.
    pub fn list() -> Vec<DeviceDescription> {
        let mut all = vec![DeviceDescription {
            selector: "cpu".into(),
            name: Device::cpu().name(),
            kind: "cpu".into(),
            software: false,
            limits: String::new(),
        }];
        #[cfg(any())]
        all.extend(crate::gpu::adapters().into_iter().map(|a| DeviceDescription {
            selector: format!("gpu:{}", a.index),
            limits: a.limits(),
            name: a.name,
            kind: a.kind,
            software: a.software,
        }));
        all
    }

    #[cfg(any())]
    fn gpu(index: usize) -> Result<Device> {
        Ok(Device { inner: Arc::new(crate::gpu::GpuDevice::open(index)?) })
    }

    #[cfg(any())]
    fn best_gpu() -> Result<Device> {
        match crate::gpu::adapters().first() {
            Some(adapter) => Device::gpu(adapter.index),
            None => Err(Error::NoAdapter("this machine has no Vulkan, Metal or DX12 adapter; use --device cpu".into())),
        }
    }

    #[cfg(any())]
    fn named_gpu(name: &str) -> Result<Device> {
        let adapters = crate::gpu::adapters();
        let lower = name.to_lowercase();
        let number = name.parse::<usize>().ok();
        let found = adapters.iter().find(|a| match number {
            Some(n) => a.index == n,
            None => a.name.to_lowercase().contains(&lower),
        });
        match found {
            Some(adapter) => Device::gpu(adapter.index),
            None => {
                let names: Vec<&str> = adapters.iter().map(|a| a.name.as_str()).collect();
                Err(Error::NoAdapter(format!("no adapter matches \"{name}\"; there are: {}", names.join(", "))))
            }
        }
    }

    #[cfg(all())]
    fn best_gpu() -> Result<Device> {
        Err(Error::NoAdapter("this build has no GPU support (feature `gpu`)".into()))
    }

    #[cfg(all())]
    fn named_gpu(_: &str) -> Result<Device> {
        Device::best_gpu()
    }
}
