//! `popfit devices`: where fits can run.

use popfit::low_level::{AvailableDevices, DeviceDescription};

use super::Failure;
use super::rows::{cells, print};
use super::stdout::line;

/// Runs `popfit devices`: prints a table of the CPU and GPUs, which one `--device auto` takes and why, and why a GPU is
/// missing.
pub fn run() -> Result<(), Failure> {
    let AvailableDevices {
        devices,
        auto,
        auto_reason,
        notes,
    } = AvailableDevices::find_all();
    let mut rows = vec![cells([
        "--device", "name", "kind", "driver", "PCI", "memory", "limits", "kernels",
    ])];
    rows.extend(devices.iter().map(row));
    print(&rows);
    let taken = auto.and_then(|selector| devices.iter().find(|device| device.selector == selector));
    line(format_args!(
        "\nauto takes {}: {auto_reason}",
        taken.map_or("nothing", |device| &device.name)
    ));
    notes
        .iter()
        .for_each(|note| line(format_args!("note: {note}")));
    Ok(())
}

/// Returns the cells of a device.
fn row(device: &DeviceDescription) -> Vec<String> {
    let DeviceDescription {
        selector,
        name,
        kind,
        backend,
        driver,
        pci,
        memory,
        limits,
        kernels,
        ..
    } = device;
    let driver = if backend.is_empty() {
        String::new()
    } else {
        format!("{backend}; {driver}")
    };
    let memory = memory.map_or(String::new(), |bytes| format!("{} MiB", bytes >> 20));
    let pci = pci.clone().unwrap_or_default();
    [
        selector,
        name,
        &kind.to_string(),
        &driver,
        &pci,
        &memory,
        limits,
        kernels,
    ]
    .map(String::clone)
    .to_vec()
}
