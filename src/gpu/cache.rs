//! The pipelines that an adapter has compiled, kept between runs in the user's cache folder.
//!
//! There is one file per adapter and driver: the pipelines as the driver wrote them, behind a checksum. A file that
//! cannot be read or written is ignored.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::trusted;

/// Bytes of a checksum.
const CHECKSUM_BYTES: usize = 32;

/// The compiled pipelines of one adapter, kept in a file.
#[derive(Debug)]
pub(super) struct Cache {
    pub pipelines: wgpu::PipelineCache,
    file: PathBuf,
    /// The checksum in the file.
    saved_checksum: Mutex<Vec<u8>>,
}

/// Returns popfit's folder in the user's cache directory; `None` on systems without one.
pub(super) fn cache_folder() -> Option<PathBuf> {
    dirs::cache_dir().map(|folder| folder.join("popfit"))
}

/// Returns the path of an adapter's cache file with the given extension, named after adapter, driver and popfit's
/// version.
fn cache_path(folder: &Path, info: &wgpu::AdapterInfo, extension: &str) -> PathBuf {
    let text = format!(
        "{:?} {:x} {:x} {} {}",
        info.backend, info.vendor, info.device, info.name, info.driver_info
    );
    let adapter: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    // `with_extension` would take the patch version for an extension.
    folder.join(format!(
        "{adapter}-{}.{extension}",
        env!("CARGO_PKG_VERSION")
    ))
}

/// Replaces a file by `bytes` at once: writes another file beside it, and renames that.
pub(super) fn replace_file(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    fs::write(&name, bytes)?;
    fs::rename(&name, file)
}

impl Cache {
    /// Opens the cache of compiled pipelines that was saved in `folder`; `None` where the device supports none.
    pub fn open(device: &wgpu::Device, info: &wgpu::AdapterInfo, folder: &Path) -> Option<Cache> {
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let file = cache_path(folder, info, "pipelines");
        let bytes = fs::read(&file).unwrap_or_default();
        let (checksum, data) = bytes.split_at(CHECKSUM_BYTES.min(bytes.len()));
        let is_intact = !data.is_empty() && Sha256::digest(data)[..] == *checksum;
        let pipelines = trusted::pipeline_cache(device, is_intact.then_some(data));
        Some(Cache {
            pipelines,
            file,
            saved_checksum: Mutex::new(if is_intact {
                checksum.to_vec()
            } else {
                Vec::new()
            }),
        })
    }

    /// Writes the compiled pipelines to the cache's file if there are new ones; a failure to write is ignored.
    pub fn save(&self) {
        let Some(data) = self.pipelines.get_data() else {
            return;
        };
        let checksum = Sha256::digest(&data).to_vec();
        let mut saved = self
            .saved_checksum
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *saved != checksum && replace_file(&self.file, &[&checksum[..], &data].concat()).is_ok()
        {
            *saved = checksum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::adapter::{self, AdapterChoice};
    use super::super::context::{GpuContext, Options};
    use super::*;

    #[test]
    fn pipelines_are_saved_and_damaged_files_are_ignored() {
        // Without an adapter, or on one without a cache, there is nothing to test.
        let Ok((_, adapter)) = adapter::choose_adapter(AdapterChoice::Best) else {
            return;
        };
        let context = GpuContext::open(adapter, Options::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let open = || Cache::open(&context.device, &context.info, folder.path());
        let Some(cache) = open() else { return };
        cache.save();
        let file = cache_path(folder.path(), &context.info, "pipelines");
        let bytes = fs::read(&file).unwrap();
        assert_eq!(
            Sha256::digest(&bytes[CHECKSUM_BYTES..])[..],
            bytes[..CHECKSUM_BYTES]
        );
        for length in [0, 5, CHECKSUM_BYTES, bytes.len() - 1] {
            fs::write(&file, &bytes[..length]).unwrap();
            open().unwrap().save();
            assert_eq!(
                fs::read(&file).unwrap(),
                bytes,
                "{length} bytes of the file"
            );
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_name_has_the_whole_version() {
        let mut info = wgpu::AdapterInfo::new(wgpu::DeviceType::Other, wgpu::Backend::Vulkan);
        (info.name, info.driver_info) = ("A card (v1.5)".into(), "24.2".into());
        let path = cache_path(Path::new("folder"), &info, "pipelines");
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(path.parent(), Some(Path::new("folder")));
        assert!(name.starts_with("Vulkan-0-0-A-card--v1-5--24-2-"), "{name}");
        assert!(
            name.ends_with(concat!("-", env!("CARGO_PKG_VERSION"), ".pipelines")),
            "{name}"
        );
    }
}
