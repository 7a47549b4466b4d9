//! The machine and the versions that a benchmark ran with.

use std::collections::BTreeMap;

use popfit::Device;

/// Crates whose versions are told.
const CRATES: [&str; 5] = [
    "popfit",
    "argmin",
    "argmin-math",
    "levenberg-marquardt",
    "wgpu",
];

/// Returns a line that names the processor, its number of threads, and these devices.
pub fn machine(devices: &[Device]) -> String {
    let file = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = file.lines().find_map(|line| {
        line.strip_prefix("model name")?
            .split_once(": ")
            .map(|(_, name)| name)
    });
    let processor = model.unwrap_or(std::env::consts::ARCH);
    let gpus: String = devices
        .iter()
        .map(|device| format!(", {}", device.name()))
        .collect();
    format!(
        "{processor}, {} threads{gpus}",
        rayon::current_num_threads()
    )
}

/// Returns the versions of popfit and the crates it is compared with, by name, as `Cargo.lock` had them at the build.
pub fn versions() -> BTreeMap<String, String> {
    let lock: toml::Table = include_str!("../../../Cargo.lock")
        .parse()
        .unwrap_or_default();
    let packages = lock
        .get("package")
        .and_then(|p| p.as_array())
        .into_iter()
        .flatten();
    let text = |package: &toml::Value, key: &str| Some(package.get(key)?.as_str()?.to_owned());
    let named =
        packages.filter_map(|package| Some((text(package, "name")?, text(package, "version")?)));
    named
        .filter(|(name, _)| CRATES.contains(&name.as_str()))
        .collect()
}
