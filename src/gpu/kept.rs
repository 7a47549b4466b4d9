//! Devices that are open: each adapter is opened once in the process, whatever selectors name it and however often.
//!
//! A device costs a second of a driver's work and a gigabyte or more of what it reserves, and a program that names a
//! device in each call would pay for it each time. Handles are kept until [`close`].

use std::sync::{Mutex, PoisonError};

use super::adapter::{self, Choice};
use super::context::{Context, Options};
use super::{GpuDevice, probe};
use crate::error::Result;

/// Identity of an adapter: its place in wgpu's list, and its name, backend and bus.
type Key = (usize, String, wgpu::Backend, String);

/// The open devices.
static OPEN: Mutex<Vec<(Key, GpuDevice)>> = Mutex::new(Vec::new());

/// Returns the open device of the chosen adapter, or opens and probes it. One that has failed is opened anew.
pub(super) fn open(choice: Choice) -> Result<GpuDevice> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let (index, adapter) = adapter::choose(choice)?;
    let info = adapter.get_info();
    let key = (index, info.name, info.backend, info.device_pci_bus_id);
    if let Some((_, device)) = open.iter().find(|(known, _)| *known == key) {
        device.reopen_if_failed()?;
        return Ok(device.clone());
    }
    let context = Context::open(adapter, Options::default())?;
    probe::probe(&context, false)?;
    let device = GpuDevice::of(context);
    open.push((key, device.clone()));
    Ok(device)
}

/// Forgets all open devices. Each closes when its last clone is dropped.
pub fn close() {
    let forgotten = std::mem::take(&mut *OPEN.lock().unwrap_or_else(PoisonError::into_inner));
    drop(forgotten);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use popfit_testing::required::{Need, found};

    /// A device is opened once, whatever names it; one that was lost is opened anew.
    #[test]
    fn an_adapter_is_opened_once() {
        let Some(first) = found(Need::Gpu, GpuDevice::best()) else {
            return;
        };
        let context = first.context();
        let name = context.info.name.clone();
        for again in [GpuDevice::best(), GpuDevice::by_name(&name)] {
            assert!(Arc::ptr_eq(&context, &again.unwrap().context()));
        }
        // What a test changes is its own.
        assert!(!Arc::ptr_eq(
            &context,
            &first.clone().with_tiles(1).context()
        ));
        assert!(Arc::ptr_eq(&context, &first.context()));
        context.device.destroy();
        context.wait(None, None).unwrap_err();
        let fresh = GpuDevice::best().unwrap().context();
        assert!(!Arc::ptr_eq(&context, &fresh));
        fresh.check().unwrap();
        // Clones of the handle have the fresh device, too.
        assert!(Arc::ptr_eq(&first.context(), &fresh));
    }
}
