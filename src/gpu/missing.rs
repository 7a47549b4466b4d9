//! Reasons why Vulkan shows no GPU on Linux, as sentences that say what to do. wgpu does not report them.
//!
//! We look at what the Vulkan loader looks at: the library itself, the manifests of drivers (in folders
//! `vulkan/icd.d`, or where environment variables say), the libraries that these name, and the card's device files.

use std::fs::{File, read_dir};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::cache;

/// Library of the Vulkan loader, as wgpu opens it.
const LOADER: &str = "libvulkan.so.1";
/// Variables that name the manifests of drivers in place of all folders. The first one that is set counts.
const MANIFEST_VARIABLES: [&str; 2] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];
/// Libraries of NVIDIA's Vulkan driver. The first needs a library of X, which not every server has; the second does
/// not.
const NVIDIA_DRIVERS: [&str; 2] = ["libGLX_nvidia.so.0", "libEGL_nvidia.so.0"];
/// Library of X that the first driver needs.
const X_LIBRARY: &str = "libXext.so.6";
/// Folders of libraries that the linker's cache need not list.
const LIBRARY_FOLDERS: [&str; 5] = ["lib", "lib64", "usr/lib", "usr/lib64", "usr/local/lib"];
/// Folders of manifests on most systems.
const MANIFEST_FOLDERS: [&str; 4] = [
    "etc/vulkan/icd.d",
    "etc/xdg/vulkan/icd.d",
    "usr/local/share/vulkan/icd.d",
    "usr/share/vulkan/icd.d",
];

/// The system in which the loader looks for drivers.
pub(super) struct VulkanSystem<'a> {
    /// Root of the file system, which tests replace.
    pub root: &'a Path,
    /// Returns the value of an environment variable that is set and not empty.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

/// Returns the reasons why this process sees no hardware GPU, as far as they are known. There are `adapters` adapters,
/// all of them software.
pub(super) fn find_reasons(adapters: usize) -> Vec<String> {
    if !cfg!(target_os = "linux") {
        let text = "no graphics driver shows an adapter: install or update the driver of the GPU (for Metal, DirectX \
                    12 or Vulkan)";
        return if adapters == 0 {
            vec![text.into()]
        } else {
            Vec::new()
        };
    }
    VulkanSystem {
        root: Path::new("/"),
        variable: &read_variable,
    }
    .find_reasons(adapters)
}

/// Returns the value of an environment variable that is set and not empty.
fn read_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Writes the manifest that NVIDIA's Vulkan driver lacks to the user's cache directory, and returns its path; `None` if
/// none is missing, or it cannot be written. The Vulkan loader finds the card if the environment variable
/// `VK_ADD_DRIVER_FILES` names the path before any GPU is asked for.
pub fn driver_to_add() -> Option<PathBuf> {
    let system = VulkanSystem {
        root: Path::new("/"),
        variable: &read_variable,
    };
    let text = system
        .manifest_to_add()
        .filter(|_| cfg!(target_os = "linux"))?;
    let path = cache::cache_folder()?.join("nvidia_icd.json");
    cache::replace_file(&path, text.as_bytes())
        .ok()
        .map(|()| path)
}

impl VulkanSystem<'_> {
    /// Returns the reasons why there is no hardware GPU.
    pub(super) fn find_reasons(&self, adapters: usize) -> Vec<String> {
        let mut reasons = Vec::new();
        // 1. The loader. On Linux every adapter comes through it.
        if adapters == 0 && !self.has_library(LOADER) {
            reasons.push(format!(
                "there is no Vulkan loader ({LOADER}): install it (Debian and Ubuntu: libvulkan1, Fedora: \
                 vulkan-loader), or add its folder to LD_LIBRARY_PATH"
            ));
        }
        // 2. The variables or folders that name the drivers' manifests.
        let manifest_variable = MANIFEST_VARIABLES
            .into_iter()
            .find_map(|name| Some((name, (self.variable)(name)?)));
        match manifest_variable {
            Some((name, value)) => reasons.extend(find_variable_faults(name, &value)),
            None => reasons.extend(self.report_no_drivers()),
        }
        // 3. The manifests and the libraries that they name.
        let manifests = self.list_manifests();
        let broken_manifests: Vec<String> = manifests
            .iter()
            .filter_map(|manifest| self.report_missing_library(manifest))
            .collect();
        if adapters == 0 && reasons.is_empty() && broken_manifests.is_empty() {
            let names: Vec<String> = manifests
                .iter()
                .map(|manifest| manifest.display().to_string())
                .collect();
            reasons.push(format!(
                "the Vulkan drivers of {} show no device: VK_LOADER_DEBUG=error, set for any command that uses a GPU, \
                 prints what they say",
                names.join(", ")
            ));
        }
        reasons.extend(broken_manifests);
        // 4. The card itself.
        reasons.extend(self.report_nvidia(&manifests));
        reasons.extend(self.report_closed_card());
        reasons
    }

    /// Returns a path below the system's root.
    fn path_below_root(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Returns whether the dynamic linker finds this library.
    fn has_library(&self, name: &str) -> bool {
        let search_path = (self.variable)("LD_LIBRARY_PATH").unwrap_or_default();
        let is_on_search_path = search_path
            .split(':')
            .any(|folder| !folder.is_empty() && Path::new(folder).join(name).exists());
        let is_in_cache = || {
            let cache = std::fs::read(self.path_below_root("etc/ld.so.cache")).unwrap_or_default();
            cache
                .windows(name.len())
                .any(|part| part == name.as_bytes())
        };
        is_on_search_path
            || LIBRARY_FOLDERS
                .iter()
                .any(|folder| self.path_below_root(folder).join(name).exists())
            || is_in_cache()
    }

    /// Returns the folders in which the loader looks for manifests.
    fn manifest_folders(&self) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = MANIFEST_FOLDERS
            .iter()
            .map(|folder| self.path_below_root(folder))
            .collect();
        if let Some(data) = (self.variable)("XDG_DATA_HOME") {
            folders.push(Path::new(&data).join("vulkan/icd.d"));
        } else if let Some(home) = (self.variable)("HOME") {
            folders.push(Path::new(&home).join(".local/share/vulkan/icd.d"));
        }
        for name in ["XDG_CONFIG_DIRS", "XDG_DATA_DIRS"] {
            if let Some(list) = (self.variable)(name) {
                folders.extend(
                    list.split(':')
                        .map(|base| Path::new(base).join("vulkan/icd.d")),
                );
            }
        }
        folders
    }

    /// Returns the paths in a variable that lists paths; `None` if it is not set.
    fn listed_paths(&self, variable: &str) -> Option<Vec<PathBuf>> {
        let list = (self.variable)(variable)?;
        Some(
            list.split(':')
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
                .collect(),
        )
    }

    /// Returns the manifests of all drivers that the loader looks at.
    fn list_manifests(&self) -> Vec<PathBuf> {
        // 1. Files and folders: those that variables name, or the standard folders, and those to add.
        let mut paths = MANIFEST_VARIABLES
            .into_iter()
            .find_map(|name| self.listed_paths(name))
            .unwrap_or_else(|| self.manifest_folders());
        paths.extend(self.listed_paths("VK_ADD_DRIVER_FILES").unwrap_or_default());
        // 2. The manifests among them and in them, each once.
        let mut manifests: Vec<PathBuf> = paths
            .into_iter()
            .flat_map(|path| match read_dir(&path) {
                Ok(entries) => entries
                    .filter_map(Result::ok)
                    .map(|entry| entry.path())
                    .collect(),
                Err(_) => vec![path],
            })
            .filter(|path| {
                path.is_file()
                    && path
                        .extension()
                        .is_some_and(|extension| extension == "json")
            })
            .collect();
        manifests.sort();
        manifests.dedup();
        manifests
    }

    /// Reports that no driver has a manifest; `None` if one has.
    fn report_no_drivers(&self) -> Option<String> {
        self.list_manifests().is_empty().then(|| {
            let folders: Vec<String> = self
                .manifest_folders()
                .iter()
                .map(|folder| folder.display().to_string())
                .collect();
            format!(
                "there is no Vulkan driver: no manifest is in {}. Install the driver of the card (for AMD and Intel on \
                 Debian and Ubuntu mesa-vulkan-drivers), or name its manifest in VK_DRIVER_FILES",
                folders.join(", ")
            )
        })
    }

    /// Reports that the library which a manifest names is missing; `None` if it is there.
    fn report_missing_library(&self, manifest: &Path) -> Option<String> {
        let text = std::fs::read_to_string(manifest).ok()?;
        let (_, behind_key) = text.split_once("\"library_path\"")?;
        let library = behind_key.split('"').nth(1)?;
        let path = manifest.parent().unwrap_or(Path::new("")).join(library);
        let exists = if library.contains('/') {
            path.exists()
        } else {
            self.has_library(library)
        };
        (!exists).then(|| {
            let manifest = manifest.display();
            format!("the Vulkan driver of {manifest} is not whole: its library {library} is missing; install it again")
        })
    }

    /// Returns whether there is an NVIDIA card, which the kernel knows, and no manifest of its driver.
    fn lacks_nvidia(&self, manifests: &[PathBuf]) -> bool {
        let has_card = self.path_below_root("proc/driver/nvidia/version").exists()
            || self.path_below_root("dev/nvidia0").exists();
        let is_of_nvidia =
            |manifest: &PathBuf| manifest.to_string_lossy().to_lowercase().contains("nvidia");
        has_card && !manifests.iter().any(is_of_nvidia)
    }

    /// Returns the library of NVIDIA's driver that can be loaded; `None` if neither can.
    fn nvidia_driver(&self) -> Option<&'static str> {
        let [with_x, without_x] = NVIDIA_DRIVERS;
        if self.has_library(with_x) && self.has_library(X_LIBRARY) {
            Some(with_x)
        } else {
            Some(without_x).filter(|name| self.has_library(name))
        }
    }

    /// Returns the text of the manifest that NVIDIA's driver lacks. Where variables name the manifests of all drivers,
    /// the user has chosen.
    pub(super) fn manifest_to_add(&self) -> Option<String> {
        let user_has_chosen = MANIFEST_VARIABLES
            .into_iter()
            .any(|name| (self.variable)(name).is_some());
        let may_add = !user_has_chosen
            && self.has_library(LOADER)
            && self.lacks_nvidia(&self.list_manifests());
        self.nvidia_driver().filter(|_| may_add).map(manifest_text)
    }

    /// Reports why an NVIDIA card that the kernel knows has no Vulkan driver; `None` if it has one.
    fn report_nvidia(&self, manifests: &[PathBuf]) -> Option<String> {
        if !self.lacks_nvidia(manifests) {
            return None;
        }
        if let Some(driver) = self.nvidia_driver() {
            return Some(format!(
                "there is an NVIDIA card with its driver {driver}, but no manifest of it for the Vulkan loader: mkdir \
                 -p ~/.local/share/vulkan/icd.d && echo '{}' > ~/.local/share/vulkan/icd.d/nvidia_icd.json",
                manifest_text(driver)
            ));
        }
        if self.has_library(NVIDIA_DRIVERS[0]) {
            return Some(format!(
                "there is an NVIDIA card, but its driver {} needs {X_LIBRARY}, which is missing: install it \
                 (Debian and Ubuntu: libxext6, Fedora: libXext)",
                NVIDIA_DRIVERS[0]
            ));
        }
        let is_container = (self.variable)("NVIDIA_VISIBLE_DEVICES").is_some()
            || self.path_below_root(".dockerenv").exists()
            || self.path_below_root("run/.containerenv").exists();
        let capabilities = (self.variable)("NVIDIA_DRIVER_CAPABILITIES");
        let list = capabilities.clone().unwrap_or_default();
        let has_graphics = list
            .split(',')
            .any(|capability| ["graphics", "all"].contains(&capability.trim()));
        Some(match is_container && !has_graphics {
            true => format!(
                "there is an NVIDIA card, but this container has no Vulkan driver of it, because \
                 NVIDIA_DRIVER_CAPABILITIES is {}: start the container with \
                 NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics",
                capabilities.map_or("not set".into(), |list| format!("\"{list}\""))
            ),
            false => {
                "there is an NVIDIA card, but no Vulkan driver of it (nvidia_icd.json): install the whole driver, \
                      not the part for computing alone (Debian: nvidia-vulkan-icd, Ubuntu: libnvidia-gl)"
                    .into()
            }
        })
    }

    /// Reports a card that this user may not open; `None` if there is none.
    fn report_closed_card(&self) -> Option<String> {
        let entries = read_dir(self.path_below_root("dev/dri"))
            .ok()?
            .filter_map(Result::ok)
            .map(|entry| entry.path());
        let mut cards = entries.filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("renderD"))
        });
        let is_closed = |path: &PathBuf| {
            let opened = File::options().read(true).write(true).open(path);
            opened.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
        };
        cards.find(is_closed).map(|card| {
            format!(
                "{} may not be opened by this user: join the group that owns it (render or video)",
                card.display()
            )
        })
    }
}

/// Returns the text of a manifest for the loader that names a driver's library.
fn manifest_text(library: &str) -> String {
    format!(
        r#"{{"file_format_version": "1.0.0", "ICD": {{"library_path": "{library}", "api_version": "1.3.0"}}}}"#
    )
}

/// Returns the faults of a variable that names manifests, as sentences.
fn find_variable_faults(name: &str, value: &str) -> Vec<String> {
    value
        .split(':')
        .filter(|path| !path.is_empty())
        .filter_map(|path| Some((path, find_path_fault(Path::new(path))?)))
        .map(|(path, fault)| {
            format!("{name} names {path}, which {fault}: correct the variable or unset it")
        })
        .collect()
}

/// Returns the reason why a path is neither a manifest nor a folder; `None` if it is one.
fn find_path_fault(path: &Path) -> Option<&'static str> {
    let is_manifest = || {
        path.extension()
            .is_some_and(|extension| extension == "json")
    };
    if !path.exists() {
        Some("does not exist")
    } else if !path.is_dir() && !is_manifest() {
        Some("is no manifest of a driver, whose name ends in .json")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text of the manifest to be added to a system of these files and variables.
    fn manifest_to_add_in(files: &[(&str, &str)], variables: &[(&str, &str)]) -> Option<String> {
        in_system(files, variables, |system, _| system.manifest_to_add())
    }

    /// Returns the reasons that are found in a system of these files and variables.
    fn reasons_in(files: &[(&str, &str)], variables: &[(&str, &str)], adapters: usize) -> String {
        in_system(files, variables, |system, root| {
            system
                .find_reasons(adapters)
                .join("\n")
                .replace(root, "ROOT")
        })
    }

    /// Asks a system of these files (path and contents) and variables; `ROOT` stands for its root.
    fn in_system<R>(
        files: &[(&str, &str)],
        variables: &[(&str, &str)],
        ask: impl FnOnce(VulkanSystem<'_>, &str) -> R,
    ) -> R {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = folder.path().display().to_string();
        let variable = |name: &str| {
            let entry = variables.iter().find(|(set_name, _)| *set_name == name);
            entry.map(|(_, value)| value.replace("ROOT", &root))
        };
        ask(
            VulkanSystem {
                root: folder.path(),
                variable: &variable,
            },
            &root,
        )
    }

    const LIBRARY: (&str, &str) = ("usr/lib/libvulkan.so.1", "");
    const DRIVER: (&str, &str) = (
        "usr/share/vulkan/icd.d/lvp.json",
        r#"{"ICD": {"library_path": "libvulkan_lvp.so"}}"#,
    );
    const DRIVER_LIBRARY: (&str, &str) =
        ("etc/ld.so.cache", "…\0libvulkan_lvp.so\0libvulkan.so.1\0");

    #[test]
    fn each_missing_part_is_named() {
        let nothing = reasons_in(&[], &[], 0);
        assert!(
            nothing.contains("no Vulkan loader (libvulkan.so.1)"),
            "{nothing}"
        );
        assert!(
            nothing.contains("LD_LIBRARY_PATH") && nothing.contains("no Vulkan driver"),
            "{nothing}"
        );
        let named = reasons_in(
            &[("own/libvulkan.so.1", ""), DRIVER],
            &[("LD_LIBRARY_PATH", "ROOT/none:ROOT/own")],
            0,
        );
        assert!(!named.contains("no Vulkan loader"), "{named}");
        assert!(!reasons_in(&[DRIVER], &[], 1).contains("no Vulkan loader"));
        let no_driver = reasons_in(&[LIBRARY], &[], 0);
        assert!(
            no_driver.starts_with("there is no Vulkan driver: no manifest is in ROOT/etc/vulkan"),
            "{no_driver}"
        );
        assert!(
            no_driver.contains("VK_DRIVER_FILES") && !no_driver.contains("loader ("),
            "{no_driver}"
        );
        let torn = reasons_in(&[LIBRARY, DRIVER], &[], 0);
        assert!(
            torn.contains("lvp.json is not whole: its library libvulkan_lvp.so is missing"),
            "{torn}"
        );
        let fails = reasons_in(&[DRIVER_LIBRARY, DRIVER], &[], 0);
        assert!(
            fails.contains("lvp.json show no device") && fails.contains("VK_LOADER_DEBUG=error"),
            "{fails}"
        );
        // A software adapter is no failure of its driver.
        assert_eq!(reasons_in(&[DRIVER_LIBRARY, DRIVER], &[], 1), "");
    }

    #[test]
    fn variables_that_name_no_manifest_are_reported() {
        for name in MANIFEST_VARIABLES {
            let wrong = reasons_in(&[DRIVER_LIBRARY, DRIVER], &[(name, "ROOT/none.json")], 0);
            assert_eq!(
                wrong,
                format!(
                    "{name} names ROOT/none.json, which does not exist: correct the variable or unset it"
                )
            );
            let right = reasons_in(
                &[DRIVER_LIBRARY, DRIVER],
                &[(name, "ROOT/usr/share/vulkan/icd.d/lvp.json")],
                1,
            );
            assert_eq!(right, "");
        }
        // The newer variable hides the older one.
        let both = [
            ("VK_ICD_FILENAMES", "ROOT/none.json"),
            ("VK_DRIVER_FILES", "ROOT/usr/share/vulkan/icd.d"),
        ];
        assert_eq!(reasons_in(&[DRIVER_LIBRARY, DRIVER], &both, 1), "");
    }

    #[test]
    fn a_container_without_graphics_is_told() {
        let card = [DRIVER_LIBRARY, DRIVER, ("proc/driver/nvidia/version", "")];
        let container = |value: &str| {
            reasons_in(
                &card,
                &[
                    ("NVIDIA_VISIBLE_DEVICES", "all"),
                    ("NVIDIA_DRIVER_CAPABILITIES", value),
                ],
                1,
            )
        };
        let reason = container("compute,utility");
        assert!(
            reason.contains("NVIDIA_DRIVER_CAPABILITIES is \"compute,utility\""),
            "{reason}"
        );
        assert!(
            reason.contains("NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics"),
            "{reason}"
        );
        let unset = reasons_in(&card, &[("NVIDIA_VISIBLE_DEVICES", "all")], 1);
        assert!(
            unset.contains("NVIDIA_DRIVER_CAPABILITIES is not set"),
            "{unset}"
        );
        // The driver has no manifest, or lacks a library: the missing part is named, and the manifest added if
        // possible.
        for library in NVIDIA_DRIVERS {
            let libraries =
                format!("…\0libvulkan.so.1\0libvulkan_lvp.so\0libXext.so.6\0{library}\0");
            let files = [
                ("etc/ld.so.cache", libraries.as_str()),
                DRIVER,
                ("dev/nvidia0", ""),
            ];
            let reason = reasons_in(&files, &[], 1);
            assert!(
                reason.contains(library)
                    && reason.contains("> ~/.local/share/vulkan/icd.d/nvidia_icd.json"),
                "{reason}"
            );
            let added = manifest_to_add_in(&files, &[]).unwrap();
            assert!(
                added.contains(&format!(r#""library_path": "{library}""#))
                    && reason.contains(&added),
                "{added}"
            );
            let chosen = [("VK_DRIVER_FILES", "ROOT/usr/share/vulkan/icd.d/lvp.json")];
            assert_eq!(manifest_to_add_in(&files, &chosen), None);
            // A manifest that was added is found.
            let named = [("VK_ADD_DRIVER_FILES", "ROOT/own/nvidia_icd.json")];
            let files_with_manifest =
                [&files[..], &[("own/nvidia_icd.json", added.as_str())]].concat();
            assert_eq!(
                (
                    reasons_in(&files_with_manifest, &named, 1),
                    manifest_to_add_in(&files_with_manifest, &named)
                ),
                (String::new(), None)
            );
        }
        let no_x = [
            (
                "etc/ld.so.cache",
                "…\0libvulkan.so.1\0libvulkan_lvp.so\0libGLX_nvidia.so.0\0",
            ),
            DRIVER,
            card[2],
        ];
        assert!(reasons_in(&no_x, &[], 1).contains("libGLX_nvidia.so.0 needs libXext.so.6"));
        assert_eq!(
            (
                manifest_to_add_in(&no_x, &[]),
                manifest_to_add_in(&card, &[])
            ),
            (None, None)
        );
        // With graphics, or outside of a container, the driver itself is missing.
        for reason in [
            container("all"),
            container("compute,graphics"),
            reasons_in(&card, &[], 1),
        ] {
            assert!(reason.contains("install the whole driver"), "{reason}");
        }
        let whole = [
            &card[..],
            &[(
                "usr/share/vulkan/icd.d/nvidia_icd.json",
                r#"{"library_path": "libvulkan.so.1"}"#,
            )],
        ];
        assert_eq!(reasons_in(&whole.concat(), &[], 1), "");
    }
}
