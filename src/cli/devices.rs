//! `popfit devices`: where fits can run.

use popfit::Device;

use super::Failure;
use super::rows::{cells, line, print};

/// Prints the devices, and which one `auto` takes and why.
pub fn run() -> Result<(), Failure> {
    let devices = Device::list();
    let mut rows = vec![cells(["--device", "name", "kind", "limits"])];
    rows.extend(devices.iter().map(|d| vec![d.selector.clone(), d.name.clone(), d.kind.clone(), d.limits.clone()]));
    print(&rows);
    let adapters: Vec<_> = devices.iter().filter(|d| d.selector != "cpu").collect();
    let why = if adapters.is_empty() {
        "there is no GPU adapter"
    } else if adapters.iter().all(|d| d.software) {
        "every adapter is a software one, which only --device gpu takes"
    } else {
        "a discrete GPU comes first, then an integrated one, never a software adapter"
    };
    line(format_args!("\nauto takes {}: {why}", Device::auto()?.name()));
    Ok(())
}
