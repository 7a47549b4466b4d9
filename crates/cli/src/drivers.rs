//! The Vulkan driver of an NVIDIA card that has no manifest, as in containers that are made for CUDA.

/// Begins the process again, with the manifest named that the driver lacks. Returns where none is missing, or if the
/// process cannot be begun again.
///
/// A process must not change its own environment once it has threads, and the Vulkan loader reads no other.
#[cfg(all(unix, feature = "gpu"))]
pub fn name_missing() {
    use std::env;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// Variable of the Vulkan loader with manifests beside those that it finds.
    const ADDED: &str = "VK_ADD_DRIVER_FILES";
    let (Some(manifest), Ok(program)) =
        (popfit::low_level::gpu::driver_to_add(), env::current_exe())
    else {
        return;
    };
    let mut all = env::var_os(ADDED).unwrap_or_default();
    if !all.is_empty() {
        all.push(":");
    }
    all.push(manifest);
    let mut arguments = env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    // this returns only if it fails, and then the run goes on without the card
    let _ = command.args(arguments).env(ADDED, all).exec();
}

/// Does nothing: there is no such driver here.
#[cfg(not(all(unix, feature = "gpu")))]
pub fn name_missing() {}
