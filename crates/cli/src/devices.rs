//! `popfit devices`: where fits can run.

use popfit::Device;

use super::Failure;
use super::rows::{cells, print};
use super::stdout::line;

/// Runs `popfit devices`: prints a table of the CPU and GPUs, and which one `--device auto` takes and why.
pub fn run() -> Result<(), Failure> {
    let devices = Device::available();
    let mut rows = vec![cells(["--device", "name", "kind", "limits", "kernels"])];
    rows.extend(
        devices
            .iter()
            .map(|d| vec![d.selector.clone(), d.name.clone(), d.kind.clone(), d.limits.clone(), d.kernels.clone()]),
    );
    print(&rows);
    let taken = Device::auto()?.name();
    let why = if devices.iter().all(|d| d.selector == "cpu") {
        "there is no GPU adapter"
    } else if taken == Device::cpu().name() {
        "no adapter is a discrete or integrated GPU; only --device gpu takes others"
    } else {
        "a discrete GPU comes first, then an integrated one, never a software adapter"
    };
    line(format_args!("\nauto takes {taken}: {why}"));
    Ok(())
}
