//! Devices that are open: each adapter is opened once in the process, whatever selectors name it and however often.
//!
//! A device costs a second of a driver's work and a gigabyte or more of what it reserves, and a program that names a
//! device in each call would pay for it each time. Handles are kept until [`close`].

use std::sync::{Mutex, PoisonError};

use super::adapter::{self, AdapterChoice};
use super::context::{GpuContext, Options};
use super::{GpuDevice, probe};
use crate::error::Result;

/// Identity of an adapter: its place in wgpu's list, and its name, backend and bus.
type AdapterKey = (usize, String, wgpu::Backend, String);

/// The open devices.
static OPEN_DEVICES: Mutex<Vec<(AdapterKey, GpuDevice)>> = Mutex::new(Vec::new());

/// Returns the open device of the chosen adapter, or opens and probes it. One that has failed is opened anew.
pub(super) fn open_or_reuse(choice: AdapterChoice) -> Result<GpuDevice> {
    let mut open_devices = OPEN_DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let (index, adapter) = adapter::choose_adapter(choice)?;
    let info = adapter.get_info();
    let key = (index, info.name, info.backend, info.device_pci_bus_id);
    if let Some((_, device)) = open_devices.iter().find(|(open_key, _)| *open_key == key) {
        device.reopen_if_failed()?;
        return Ok(device.clone());
    }
    let context = GpuContext::open(adapter, Options::default())?;
    probe::probe_arithmetic(&context, false)?;
    let device = GpuDevice::from_context(context);
    open_devices.push((key, device.clone()));
    Ok(device)
}

/// Forgets all open devices. Each closes when its last clone is dropped.
pub fn close() {
    let closed = std::mem::take(&mut *OPEN_DEVICES.lock().unwrap_or_else(PoisonError::into_inner));
    drop(closed);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use popfit_testing::required::{Need, found};

    #[test]
    fn an_adapter_is_opened_once_and_again_after_a_loss() {
        let Some(first) = found(Need::Gpu, GpuDevice::best()) else {
            return;
        };
        let context = first.context();
        let name = context.info.name.clone();
        for device in [GpuDevice::best(), GpuDevice::by_name(&name)] {
            assert!(Arc::ptr_eq(&context, &device.unwrap().context()));
        }
        // A device that a test changes is not the shared one.
        assert!(!Arc::ptr_eq(
            &context,
            &first.clone().with_tiles(1).context()
        ));
        assert!(Arc::ptr_eq(&context, &first.context()));
        context.device.destroy();
        context.wait_for(None, None).unwrap_err();
        let fresh = GpuDevice::best().unwrap().context();
        assert!(!Arc::ptr_eq(&context, &fresh));
        fresh.check_health().unwrap();
        // Clones of the handle have the fresh device, too.
        assert!(Arc::ptr_eq(&first.context(), &fresh));
    }
}
