//! Reasons why Vulkan shows no GPU on Linux, as sentences that say what to do. wgpu does not tell them.
//!
//! What is looked at is what the Vulkan loader looks at: the library itself, the manifests of drivers (in folders
//! `vulkan/icd.d`, or where environment variables say), the libraries that these name, and the card's device files.

use std::fs::{File, read_dir};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::cache;

/// The loader, as wgpu opens it.
const LOADER: &str = "libvulkan.so.1";
/// Variables that name the manifests of drivers in place of all folders. The first one that is set counts.
const INSTEAD: [&str; 2] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];
/// NVIDIA's Vulkan driver. The first needs a library of X, which not every server has; the second does without X.
const NVIDIA: [&str; 2] = ["libGLX_nvidia.so.0", "libEGL_nvidia.so.0"];
/// The library that the first needs.
const OF_X: &str = "libXext.so.6";
/// Folders of libraries that need no cache.
const LIBRARIES: [&str; 5] = ["lib", "lib64", "usr/lib", "usr/lib64", "usr/local/lib"];
/// Folders in which manifests lie, on most systems.
const MANIFESTS: [&str; 4] = [
    "etc/vulkan/icd.d",
    "etc/xdg/vulkan/icd.d",
    "usr/local/share/vulkan/icd.d",
    "usr/share/vulkan/icd.d",
];

/// The system in which the loader looks for drivers.
pub(super) struct System<'a> {
    /// Root of the file system; tests have one of their own.
    pub root: &'a Path,
    /// Returns the value of an environment variable that is set and not empty.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

/// Returns the reasons why this process sees no hardware GPU; none where they are not known. `adapters`: number of
/// adapters that there are, all of them software.
pub(super) fn reasons(adapters: usize) -> Vec<String> {
    if !cfg!(target_os = "linux") {
        let text = "no graphics driver shows an adapter: install or update the driver of the GPU (for Metal, DirectX \
                    12 or Vulkan)";
        return if adapters == 0 {
            vec![text.into()]
        } else {
            Vec::new()
        };
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    System {
        root: Path::new("/"),
        variable: &variable,
    }
    .reasons(adapters)
}

/// Writes the manifest that NVIDIA's Vulkan driver lacks to the user's cache directory, and returns its path; `None` if
/// none is missing, or it cannot be written. Who names the path in the environment variable `VK_ADD_DRIVER_FILES`,
/// before any GPU is asked for, lets the Vulkan loader find the card.
pub fn driver_to_add() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let system = System {
        root: Path::new("/"),
        variable: &variable,
    };
    let text = system
        .manifest_to_add()
        .filter(|_| cfg!(target_os = "linux"))?;
    let path = cache::folder()?.join("nvidia_icd.json");
    cache::replace(&path, text.as_bytes()).ok().map(|()| path)
}

impl System<'_> {
    /// Returns the reasons why there is no hardware GPU.
    pub(super) fn reasons(&self, adapters: usize) -> Vec<String> {
        let mut reasons = Vec::new();
        // on Linux every adapter comes through it
        if adapters == 0 && !self.has_library(LOADER) {
            reasons.push(format!(
                "there is no Vulkan loader ({LOADER}): install it (Debian and Ubuntu: libvulkan1, Fedora: \
                 vulkan-loader), or add its folder to LD_LIBRARY_PATH"
            ));
        }
        match INSTEAD
            .into_iter()
            .find_map(|name| Some((name, (self.variable)(name)?)))
        {
            Some((name, value)) => reasons.extend(of_variable(name, &value)),
            None => reasons.extend(self.without_drivers()),
        }
        let manifests = self.manifests();
        let broken: Vec<String> = manifests
            .iter()
            .filter_map(|manifest| self.without_library(manifest))
            .collect();
        if adapters == 0 && reasons.is_empty() && broken.is_empty() {
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
        reasons.extend(broken);
        reasons.extend(self.nvidia(&manifests));
        reasons.extend(self.closed_card());
        reasons
    }

    /// Returns the place of a path of the system.
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Returns whether the dynamic linker finds this library.
    fn has_library(&self, name: &str) -> bool {
        let named = (self.variable)("LD_LIBRARY_PATH").unwrap_or_default();
        let is_cached = || {
            let cache = std::fs::read(self.at("etc/ld.so.cache")).unwrap_or_default();
            cache
                .windows(name.len())
                .any(|part| part == name.as_bytes())
        };
        named
            .split(':')
            .any(|folder| !folder.is_empty() && Path::new(folder).join(name).exists())
            || LIBRARIES
                .iter()
                .any(|folder| self.at(folder).join(name).exists())
            || is_cached()
    }

    /// Returns the folders in which the loader looks for manifests.
    fn folders(&self) -> Vec<PathBuf> {
        let of = |base: String| Path::new(&base).join("vulkan/icd.d");
        let home =
            (self.variable)("HOME").map(|home| Path::new(&home).join(".local/share/vulkan/icd.d"));
        let data = (self.variable)("XDG_DATA_HOME").map(of);
        let more = ["XDG_CONFIG_DIRS", "XDG_DATA_DIRS"]
            .into_iter()
            .filter_map(|name| (self.variable)(name));
        let more: Vec<PathBuf> = more
            .flat_map(|list| {
                list.split(':')
                    .map(|base| of(base.into()))
                    .collect::<Vec<_>>()
            })
            .collect();
        MANIFESTS
            .iter()
            .map(|folder| self.at(folder))
            .chain(data.or(home))
            .chain(more)
            .collect()
    }

    /// Returns the manifests of all drivers that the loader looks at.
    fn manifests(&self) -> Vec<PathBuf> {
        let listed = |name: &str| {
            let list = (self.variable)(name)?;
            Some(
                list.split(':')
                    .filter(|path| !path.is_empty())
                    .map(PathBuf::from)
                    .collect::<Vec<_>>(),
            )
        };
        let named = INSTEAD
            .into_iter()
            .find_map(listed)
            .unwrap_or_else(|| self.folders());
        let mut all: Vec<PathBuf> = named
            .into_iter()
            .chain(listed("VK_ADD_DRIVER_FILES").unwrap_or_default())
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
        all.sort();
        all.dedup();
        all
    }

    /// Returns that no driver has a manifest, if so.
    fn without_drivers(&self) -> Option<String> {
        self.manifests().is_empty().then(|| {
            let folders: Vec<String> = self.folders().iter().map(|folder| folder.display().to_string()).collect();
            format!(
                "there is no Vulkan driver: no manifest is in {}. Install the driver of the card (for AMD and Intel on \
                 Debian and Ubuntu mesa-vulkan-drivers), or name its manifest in VK_DRIVER_FILES",
                folders.join(", ")
            )
        })
    }

    /// Returns that the library which a manifest names is missing, if so.
    fn without_library(&self, manifest: &Path) -> Option<String> {
        let text = std::fs::read_to_string(manifest).ok()?;
        let (_, rest) = text.split_once("\"library_path\"")?;
        let library = rest.split('"').nth(1)?;
        let beside = manifest.parent().unwrap_or(Path::new("")).join(library);
        let is_there = if library.contains('/') {
            beside.exists()
        } else {
            self.has_library(library)
        };
        (!is_there).then(|| {
            let manifest = manifest.display();
            format!("the Vulkan driver of {manifest} is not whole: its library {library} is missing; install it again")
        })
    }

    /// Returns whether there is an NVIDIA card, which the kernel knows, and no manifest of its driver.
    fn lacks_nvidia(&self, manifests: &[PathBuf]) -> bool {
        let is_there =
            self.at("proc/driver/nvidia/version").exists() || self.at("dev/nvidia0").exists();
        let is_named =
            |manifest: &PathBuf| manifest.to_string_lossy().to_lowercase().contains("nvidia");
        is_there && !manifests.iter().any(is_named)
    }

    /// Returns NVIDIA's driver that can be loaded here.
    fn nvidia_driver(&self) -> Option<&'static str> {
        let [with_x, without] = NVIDIA;
        let is_whole = self.has_library(with_x) && self.has_library(OF_X);
        if is_whole {
            Some(with_x)
        } else {
            Some(without).filter(|name| self.has_library(name))
        }
    }

    /// Returns the text of the manifest that NVIDIA's driver lacks. Where variables name the manifests of all drivers,
    /// the user has chosen.
    pub(super) fn manifest_to_add(&self) -> Option<String> {
        let is_chosen = INSTEAD
            .into_iter()
            .any(|name| (self.variable)(name).is_some());
        let may_add =
            !is_chosen && self.has_library(LOADER) && self.lacks_nvidia(&self.manifests());
        self.nvidia_driver().filter(|_| may_add).map(manifest)
    }

    /// Returns why an NVIDIA card that the kernel knows has no Vulkan driver here, if so.
    fn nvidia(&self, manifests: &[PathBuf]) -> Option<String> {
        if !self.lacks_nvidia(manifests) {
            return None;
        }
        if let Some(driver) = self.nvidia_driver() {
            return Some(format!(
                "there is an NVIDIA card with its driver {driver}, but no manifest of it for the Vulkan loader: mkdir \
                 -p ~/.local/share/vulkan/icd.d && echo '{}' > ~/.local/share/vulkan/icd.d/nvidia_icd.json",
                manifest(driver)
            ));
        }
        if self.has_library(NVIDIA[0]) {
            return Some(format!(
                "there is an NVIDIA card, but its driver {} needs {OF_X}, which is missing: install it (Debian and \
                 Ubuntu: libxext6, Fedora: libXext)",
                NVIDIA[0]
            ));
        }
        let is_container = (self.variable)("NVIDIA_VISIBLE_DEVICES").is_some()
            || self.at(".dockerenv").exists()
            || self.at("run/.containerenv").exists();
        let capabilities = (self.variable)("NVIDIA_DRIVER_CAPABILITIES");
        let list = capabilities.clone().unwrap_or_default();
        let has_graphics = list
            .split(',')
            .any(|one| ["graphics", "all"].contains(&one.trim()));
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

    /// Returns that this user may not open a card, if so.
    fn closed_card(&self) -> Option<String> {
        let entries = read_dir(self.at("dev/dri"))
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
fn manifest(library: &str) -> String {
    format!(
        r#"{{"file_format_version": "1.0.0", "ICD": {{"library_path": "{library}", "api_version": "1.3.0"}}}}"#
    )
}

/// Returns what is wrong with a variable that names manifests.
fn of_variable(name: &str, value: &str) -> Vec<String> {
    let fault = |path: &&str| {
        let place = Path::new(path);
        if !place.exists() {
            Some("does not exist")
        } else if !place.is_dir()
            && place
                .extension()
                .is_none_or(|extension| extension != "json")
        {
            Some("is no manifest of a driver, whose name ends in .json")
        } else {
            None
        }
    };
    let named = value.split(':').filter(|path| !path.is_empty());
    let faults = named.filter_map(|path| Some((path, fault(&path)?)));
    faults
        .map(|(path, fault)| {
            format!("{name} names {path}, which {fault}: correct the variable or unset it")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of the manifest that is to be added to such a system.
    fn to_add(files: &[(&str, &str)], variables: &[(&str, &str)]) -> Option<String> {
        in_system(files, variables, |system, _| system.manifest_to_add())
    }

    /// What a system says.
    fn said(files: &[(&str, &str)], variables: &[(&str, &str)], adapters: usize) -> String {
        in_system(files, variables, |system, root| {
            system.reasons(adapters).join("\n").replace(root, "ROOT")
        })
    }

    /// Asks a system of these files (path and contents) and variables; `ROOT` stands for its root.
    fn in_system<R>(
        files: &[(&str, &str)],
        variables: &[(&str, &str)],
        ask: impl FnOnce(System<'_>, &str) -> R,
    ) -> R {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = folder.path().display().to_string();
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.replace("ROOT", &root))
        };
        ask(
            System {
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
    fn each_part_that_is_missing_is_named() {
        let nothing = said(&[], &[], 0);
        assert!(
            nothing.contains("no Vulkan loader (libvulkan.so.1)"),
            "{nothing}"
        );
        assert!(
            nothing.contains("LD_LIBRARY_PATH") && nothing.contains("no Vulkan driver"),
            "{nothing}"
        );
        let named = said(
            &[("own/libvulkan.so.1", ""), DRIVER],
            &[("LD_LIBRARY_PATH", "ROOT/none:ROOT/own")],
            0,
        );
        assert!(!named.contains("no Vulkan loader"), "{named}");
        assert!(!said(&[DRIVER], &[], 1).contains("no Vulkan loader"));
        let no_driver = said(&[LIBRARY], &[], 0);
        assert!(
            no_driver.starts_with("there is no Vulkan driver: no manifest is in ROOT/etc/vulkan"),
            "{no_driver}"
        );
        assert!(
            no_driver.contains("VK_DRIVER_FILES") && !no_driver.contains("loader ("),
            "{no_driver}"
        );
        let torn = said(&[LIBRARY, DRIVER], &[], 0);
        assert!(
            torn.contains("lvp.json is not whole: its library libvulkan_lvp.so is missing"),
            "{torn}"
        );
        let fails = said(&[DRIVER_LIBRARY, DRIVER], &[], 0);
        assert!(
            fails.contains("lvp.json show no device") && fails.contains("VK_LOADER_DEBUG=error"),
            "{fails}"
        );
        // A software adapter is no failure of its driver.
        assert_eq!(said(&[DRIVER_LIBRARY, DRIVER], &[], 1), "");
    }

    #[test]
    fn variables_that_name_nothing_are_named() {
        for name in INSTEAD {
            let wrong = said(&[DRIVER_LIBRARY, DRIVER], &[(name, "ROOT/none.json")], 0);
            assert_eq!(
                wrong,
                format!(
                    "{name} names ROOT/none.json, which does not exist: correct the variable or unset it"
                )
            );
            let right = said(
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
        assert_eq!(said(&[DRIVER_LIBRARY, DRIVER], &both, 1), "");
    }

    #[test]
    fn a_container_without_graphics_is_told() {
        let card = [DRIVER_LIBRARY, DRIVER, ("proc/driver/nvidia/version", "")];
        let container = |value: &str| {
            said(
                &card,
                &[
                    ("NVIDIA_VISIBLE_DEVICES", "all"),
                    ("NVIDIA_DRIVER_CAPABILITIES", value),
                ],
                1,
            )
        };
        let told = container("compute,utility");
        assert!(
            told.contains("NVIDIA_DRIVER_CAPABILITIES is \"compute,utility\""),
            "{told}"
        );
        assert!(
            told.contains("NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics"),
            "{told}"
        );
        let unset = said(&card, &[("NVIDIA_VISIBLE_DEVICES", "all")], 1);
        assert!(
            unset.contains("NVIDIA_DRIVER_CAPABILITIES is not set"),
            "{unset}"
        );
        // The driver alone is there, or not whole: what is missing is named, and added where it can be.
        for library in NVIDIA {
            let libraries =
                format!("…\0libvulkan.so.1\0libvulkan_lvp.so\0libXext.so.6\0{library}\0");
            let files = [
                ("etc/ld.so.cache", libraries.as_str()),
                DRIVER,
                ("dev/nvidia0", ""),
            ];
            let told = said(&files, &[], 1);
            assert!(
                told.contains(library)
                    && told.contains("> ~/.local/share/vulkan/icd.d/nvidia_icd.json"),
                "{told}"
            );
            let added = to_add(&files, &[]).unwrap();
            assert!(
                added.contains(&format!(r#""library_path": "{library}""#)) && told.contains(&added),
                "{added}"
            );
            let chosen = [("VK_DRIVER_FILES", "ROOT/usr/share/vulkan/icd.d/lvp.json")];
            assert_eq!(to_add(&files, &chosen), None);
            // what was added is seen
            let named = [("VK_ADD_DRIVER_FILES", "ROOT/own/nvidia_icd.json")];
            let again = [&files[..], &[("own/nvidia_icd.json", added.as_str())]].concat();
            assert_eq!(
                (said(&again, &named, 1), to_add(&again, &named)),
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
        assert!(said(&no_x, &[], 1).contains("libGLX_nvidia.so.0 needs libXext.so.6"));
        assert_eq!((to_add(&no_x, &[]), to_add(&card, &[])), (None, None));
        // With graphics, or outside of a container, the driver itself is missing.
        for told in [
            container("all"),
            container("compute,graphics"),
            said(&card, &[], 1),
        ] {
            assert!(told.contains("install the whole driver"), "{told}");
        }
        let whole = [
            &card[..],
            &[(
                "usr/share/vulkan/icd.d/nvidia_icd.json",
                r#"{"library_path": "libvulkan.so.1"}"#,
            )],
        ];
        assert_eq!(said(&whole.concat(), &[], 1), "");
    }
}
