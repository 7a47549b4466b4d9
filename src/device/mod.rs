//! The device that a user names, and retries of its work when it fails or has too little memory.

mod available;
mod null;
pub(crate) mod retry;
pub(crate) mod verify;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::cpu::CpuDevice;
use crate::error::{Error, Result};
use crate::solver;
use crate::solver::profile::DeviceCalls;
use available::open_auto;
pub use available::{AvailableDevices, DeviceDescription, DeviceKind};
pub use null::NullDevice;

/// Device on which fits run: the CPU, one GPU adapter, or several.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<dyn solver::Backend>,
    /// Other devices, which share the batches of [`SpectralFitter::fit`](super::SpectralFitter::fit).
    others: Vec<Arc<dyn solver::Backend>>,
    pub(crate) choice: Choice,
}

/// Origin of the choice of a device. popfit may replace a device that it chose by another one.
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

    /// Opens `auto`, `cpu`, `gpu` (the best adapter, software included), `gpu:N`, `gpu:pci=PLACE` (a place on the PCI
    /// bus, such as `0000:81:00.0`), `gpu:NAME` (part of a name), or `all`: every discrete and integrated GPU, or,
    /// where there is none, every software adapter. `POPFIT_VISIBLE_DEVICES` hides other adapters.
    fn from_str(text: &str) -> Result<Device> {
        match text {
            "auto" => Device::auto(),
            "cpu" => Ok(Device::cpu()),
            "all" => Device::open_every_gpu(),
            _ if text == "gpu" || text.starts_with("gpu:") => Device::open_gpu(text),
            _ => {
                let message = format!(
                    "no device \"{text}\": give auto, all, cpu, gpu, gpu:N, gpu:pci=PLACE or gpu:NAME"
                );
                Err(Error::invalid("device", message))
            }
        }
    }
}

#[cfg(feature = "gpu")]
impl From<crate::gpu::GpuDevice> for Device {
    fn from(device: crate::gpu::GpuDevice) -> Device {
        Device::from_single(device)
    }
}

impl Device {
    /// Returns the CPU as a device to fit on.
    pub fn cpu() -> Device {
        Device::from_single(CpuDevice)
    }

    /// Wraps a single one of the solver's devices, which shares its batches with no other.
    pub(crate) fn from_single(device: impl solver::Backend + 'static) -> Device {
        Device {
            inner: Arc::new(device),
            others: Vec::new(),
            choice: Choice::Named,
        }
    }

    /// Returns whether popfit chose the device, and may choose another one.
    pub(crate) fn is_chosen(&self) -> bool {
        self.choice != Choice::Named
    }

    /// Returns the device and all others that share its batches.
    pub(crate) fn all_devices(&self) -> Vec<Arc<dyn solver::Backend>> {
        std::iter::once(&self.inner)
            .chain(&self.others)
            .cloned()
            .collect()
    }

    /// Opens a discrete GPU, else an integrated one, else the CPU; never a software adapter. A GPU that cannot be
    /// opened is passed over. A [`CurveFitter`](crate::CurveFitter) then fits on the CPU whatever can run there.
    ///
    /// # Errors
    /// Returns [`Error::Usage`] if the environment variable `POPFIT_GPU_TILES` or `POPFIT_GPU_FUSION` has an invalid
    /// value.
    pub fn auto() -> Result<Device> {
        open_auto().device
    }

    /// Sets the time that a submission to a GPU may take before the GPU counts as lost: unless set 120 s, and 600 s on
    /// software adapters. It holds for every [`Device`] of the same GPU in this process.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Device {
        self.all_devices()
            .iter()
            .for_each(|device| device.set_limit(timeout));
        self
    }

    /// Returns the device's name; of several, all names.
    pub fn name(&self) -> String {
        self.join_names(|device| device.name())
    }

    /// Returns the name that the result table gives to the maker of its rows: as [`name`](Device::name), but the CPU
    /// has its instruction set instead of its threads. Rows of two makers may differ in their last bits.
    #[doc(hidden)]
    pub fn maker(&self) -> String {
        self.join_names(|device| device.maker())
    }

    /// Joins a name of each device.
    fn join_names(&self, name: impl Fn(&dyn solver::Backend) -> String) -> String {
        let devices = self.all_devices();
        let names: Vec<String> = devices.iter().map(|device| name(device.as_ref())).collect();
        names.join(" + ")
    }

    /// Returns what the process has asked of the device since it was opened, with all its clones; of several devices,
    /// of the first. The CPU does not count.
    #[doc(hidden)]
    pub fn calls(&self) -> DeviceCalls {
        self.inner.calls()
    }

    /// Returns the texts that select the devices of this machine where a [`Device`] is parsed: `cpu`, then `gpu:0` and
    /// so on, software adapters included.
    pub fn available() -> Vec<String> {
        let devices = available::describe_devices();
        devices.into_iter().map(|device| device.selector).collect()
    }

    /// Forgets the GPUs that this process has opened. As long as they are known, the same selector gives the same
    /// device at once; forgotten ones close when the last [`Device`] of them is dropped. A program calls it before it
    /// ends if its GPU driver wants to be closed by the main thread.
    #[doc(hidden)]
    pub fn forget_open() {
        #[cfg(feature = "gpu")]
        crate::gpu::close();
    }

    /// Opens the best GPU, or the one whose number or name is in `text`.
    #[cfg(feature = "gpu")]
    fn open_gpu(text: &str) -> Result<Device> {
        Ok(Device::from_single(crate::gpu::GpuDevice::parse(text)?))
    }

    /// Opens every GPU that the selector `all` stands for, as one device whose GPUs share the batches.
    #[cfg(feature = "gpu")]
    fn open_every_gpu() -> Result<Device> {
        let mut gpus = crate::gpu::GpuDevice::every()?
            .into_iter()
            .map(|gpu| Arc::new(gpu) as Arc<dyn solver::Backend>);
        let inner = gpus.next().ok_or_else(|| {
            let reasons: String = crate::gpu::missing_hardware()
                .into_iter()
                .map(|reason| format!("\n  {reason}"))
                .collect();
            Error::NoAdapter(format!(
                "there is no adapter at all. The device `cpu` needs none{reasons}"
            ))
        })?;
        Ok(Device {
            inner,
            others: gpus.collect(),
            choice: Choice::All,
        })
    }

    /// Returns an error, because this build has no GPU support.
    #[cfg(not(feature = "gpu"))]
    fn open_gpu(_: &str) -> Result<Device> {
        Err(Error::NoAdapter(
            "this build has no GPU support (feature `gpu`)".into(),
        ))
    }

    /// Returns an error, because this build has no GPU support.
    #[cfg(not(feature = "gpu"))]
    fn open_every_gpu() -> Result<Device> {
        Device::open_gpu("gpu")
    }
}
