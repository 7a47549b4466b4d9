//! Devices that fits can run on.

use popfit::Device;
use popfit::low_level::AvailableDevices;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::wait::{Watch, is_forked, run_or_raise};

/// Devices as dictionaries, the selector that `auto` takes, the reason, and notes.
type Found<'py> = (Bound<'py, PyList>, Option<String>, String, Vec<String>);

/// Returns the devices of this machine, the one that `auto` takes and why, and notes on those that are missing.
#[pyfunction]
pub fn devices(py: Python<'_>) -> PyResult<Found<'_>> {
    let AvailableDevices {
        devices,
        auto,
        auto_reason,
        notes,
    } = run_or_raise(py, Watch::default(), |_| Ok(AvailableDevices::find_all()))?;
    let list = PyList::empty(py);
    for device in devices {
        let entry = PyDict::new(py);
        entry.set_item("selector", device.selector)?;
        entry.set_item("name", device.name)?;
        entry.set_item("kind", device.kind.to_string())?;
        entry.set_item("backend", device.backend)?;
        entry.set_item("driver", device.driver)?;
        entry.set_item("software", device.software)?;
        entry.set_item("pci", device.pci)?;
        entry.set_item("memory", device.memory)?;
        entry.set_item("limits", device.limits)?;
        entry.set_item("kernels", device.kernels)?;
        list.append(entry)?;
    }
    Ok((list, auto, auto_reason, notes))
}

/// Writes the manifest that NVIDIA's Vulkan driver lacks, and returns its path; None if none is missing.
#[pyfunction]
pub fn driver_to_add() -> Option<String> {
    popfit::low_level::gpu::driver_to_add().map(|path| path.display().to_string())
}

/// Closes the devices that are kept open; those that a run uses close with it.
#[pyfunction]
pub fn close_devices(py: Python<'_>) {
    // a forked child has not opened its parent's devices
    if !is_forked() {
        py.detach(Device::forget_open);
    }
}
