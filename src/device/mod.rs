//! The device that a user names, and what is done when it fails or has too little memory.

pub(crate) mod retry;
pub(crate) mod verify;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::cpu::CpuDevice;
use crate::error::{Error, Result};
use crate::solver;

/// Device on which fits run: the CPU, one GPU adapter, or several.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<dyn solver::Device>,
    /// Other devices, which share the batches of [`SpectralFitter::fit_with`](super::SpectralFitter::fit_with).
    others: Vec<Arc<dyn solver::Device>>,
    pub(crate) choice: Choice,
}

/// Who chose a device. What popfit chose it may replace by another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The user named it.
    Named,
    /// popfit, for the selector `auto`.
    Auto,
    /// popfit, for the selector `all`, which finds GPUs alone.
    #[cfg(any(feature = "gpu", test))]
    All,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Device").field(&self.name()).finish()
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl FromStr for Device {
    type Err = Error;

    /// Opens `auto`, `cpu`, `gpu` (the best adapter, software included), `gpu:N`, `gpu:NAME` (part of a name), or
    /// `all`: every discrete and integrated GPU, or, where there is none, every software adapter.
    fn from_str(text: &str) -> Result<Device> {
        match text {
            "auto" => Device::auto(),
            "cpu" => Ok(Device::cpu()),
            "all" => Device::every_gpu(),
            _ if text == "gpu" || text.starts_with("gpu:") => Device::gpu(text),
            _ => {
                let message = format!("no device \"{text}\": give auto, all, cpu, gpu, gpu:N or gpu:NAME");
                Err(Error::invalid("device", message))
            }
        }
    }
}

#[cfg(feature = "gpu")]
impl From<crate::gpu::GpuDevice> for Device {
    fn from(device: crate::gpu::GpuDevice) -> Device {
        Device::one(device)
    }
}

/// A device of this machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceDescription {
    /// Text that selects it where a [`Device`] is parsed, such as `gpu:0`.
    pub selector: String,
    /// The name that the driver reports.
    pub name: String,
    /// Kind of the device (discrete, integrated, …), backend and driver.
    pub kind: String,
    /// The device is a software adapter, which `auto` never chooses.
    pub software: bool,
    /// Maximum sizes of buffers and bindings.
    pub limits: String,
    /// Kernels of a GPU: the variants of its matrix product, the stages that share a kernel, and how many simplices
    /// count as few.
    pub kernels: String,
}

#[cfg(feature = "gpu")]
impl DeviceDescription {
    /// Turns what is known of a GPU adapter into the description that users see.
    fn of_adapter(a: crate::gpu::AdapterDescription) -> DeviceDescription {
        let [buffers, bindings] = [a.max_buffer_size, a.max_binding_size].map(|bytes| bytes >> 20);
        DeviceDescription {
            selector: format!("gpu:{}", a.index),
            kind: format!("{} ({}; {})", a.device_type, a.backend, a.driver),
            software: a.software,
            limits: format!("buffers {buffers} MiB, bindings {bindings} MiB"),
            kernels: a.kernels,
            name: a.name,
        }
    }
}

impl Device {
    /// Returns the CPU as a device to fit on.
    pub fn cpu() -> Device {
        Device::one(CpuDevice)
    }

    /// Wraps a single one of the solver's devices, which shares its batches with no other.
    pub(crate) fn one(device: impl solver::Device + 'static) -> Device {
        Device { inner: Arc::new(device), others: Vec::new(), choice: Choice::Named }
    }

    /// Returns whether popfit chose the device, and may choose another one.
    pub(crate) fn is_chosen(&self) -> bool {
        self.choice != Choice::Named
    }

    /// Returns the device and all others that share its batches.
    pub(crate) fn all(&self) -> Vec<Arc<dyn solver::Device>> {
        std::iter::once(&self.inner).chain(&self.others).cloned().collect()
    }

    /// Opens a discrete GPU, else an integrated one, else the CPU; never a software adapter. A GPU that cannot be
    /// opened is passed over. A [`CurveFitter`](crate::CurveFitter) then fits on the CPU whatever can run there.
    ///
    /// # Errors
    /// Returns [`Error::Usage`] if the environment variable `POPFIT_GPU_TILES`, `POPFIT_GPU_FUSION` or
    /// `POPFIT_GPU_FEW_SIMPLICES` has an invalid value.
    pub fn auto() -> Result<Device> {
        #[cfg(feature = "gpu")]
        match crate::gpu::GpuDevice::hardware() {
            Ok(device) => return Ok(Device { choice: Choice::Auto, ..Device::one(device) }),
            // An environment variable names no kernel. The CPU would hide this error.
            Err(error @ Error::Usage(_)) => return Err(error),
            Err(_) => {}
        }
        Ok(Device::cpu())
    }

    /// Sets the time that a submission to a GPU may take before the GPU counts as lost: unless set 120 s, and 600 s on
    /// software adapters.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Device {
        self.all().iter().for_each(|device| device.set_limit(timeout));
        self
    }

    /// Returns the device's name (of several, all names) as it is written into the result table.
    pub fn name(&self) -> String {
        self.all().iter().map(|device| device.name()).collect::<Vec<_>>().join(" + ")
    }

    /// Returns a description of the CPU and of every GPU adapter.
    pub fn available() -> Vec<DeviceDescription> {
        let cpu = DeviceDescription {
            selector: "cpu".into(),
            name: Device::cpu().name(),
            kind: "cpu".into(),
            software: false,
            limits: String::new(),
            kernels: String::new(),
        };
        std::iter::once(cpu).chain(Device::adapters()).collect()
    }

    /// Opens the best GPU, or the one whose number or name is in `text`.
    #[cfg(feature = "gpu")]
    fn gpu(text: &str) -> Result<Device> {
        Ok(Device::one(crate::gpu::GpuDevice::parse(text)?))
    }

    /// Opens every GPU that the selector `all` stands for, as one device whose GPUs share the batches.
    #[cfg(feature = "gpu")]
    fn every_gpu() -> Result<Device> {
        let mut all = crate::gpu::GpuDevice::every()?.into_iter().map(|gpu| Arc::new(gpu) as Arc<dyn solver::Device>);
        let inner = all.next().ok_or_else(|| {
            Error::NoAdapter("there is no adapter at all; is a driver installed? The device `cpu` needs none".into())
        })?;
        Ok(Device { inner, others: all.collect(), choice: Choice::All })
    }

    /// Returns a description of every adapter.
    #[cfg(feature = "gpu")]
    fn adapters() -> Vec<DeviceDescription> {
        crate::gpu::adapters().into_iter().map(DeviceDescription::of_adapter).collect()
    }

    /// Returns an error, because this build has no GPU support.
    #[cfg(not(feature = "gpu"))]
    fn gpu(_: &str) -> Result<Device> {
        Err(Error::NoAdapter("this build has no GPU support (feature `gpu`)".into()))
    }

    /// Returns an error, because this build has no GPU support.
    #[cfg(not(feature = "gpu"))]
    fn every_gpu() -> Result<Device> {
        Device::gpu("gpu")
    }

    /// Returns no adapter, because this build has no GPU support.
    #[cfg(not(feature = "gpu"))]
    fn adapters() -> Vec<DeviceDescription> {
        Vec::new()
    }
}
