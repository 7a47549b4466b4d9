//! `--device all`: two software adapters in one process share the batches of one run.
#![cfg(feature = "gpu")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use popfit::FitTable;

/// Mesa's and Chromium's software drivers, where they are installed.
fn drivers() -> Option<String> {
    let folder = Path::new("/usr/share/vulkan/icd.d");
    let files = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()));
    let is_mesa = |path: &PathBuf| path.to_string_lossy().contains("/lvp_icd");
    let mesa = files.into_iter().find(is_mesa)?;
    let swiftshader = Path::new("/usr/lib/chromium/vk_swiftshader_icd.json");
    swiftshader
        .exists()
        .then(|| format!("{}:{}", mesa.display(), swiftshader.display()))
}

fn fit(drivers: &str, device: &str, files: usize, out: &Path) -> Output {
    let data = popfit_testing::root().join("data");
    let mut command = Command::new(env!("CARGO_BIN_EXE_popfit"));
    command
        .arg("fit")
        .arg(data.join("model.toml"))
        .args(std::iter::repeat_n(data.join("spectra.npz"), files));
    command
        .args(["--starts", "1", "--device", device, "-o"])
        .arg(out);
    command
        .env("VK_ICD_FILENAMES", drivers)
        .env("VK_DRIVER_FILES", drivers)
        .output()
        .unwrap()
}

#[test]
fn two_adapters_share_a_run() {
    let Some(drivers) = drivers() else {
        return popfit_testing::required::skip(
            popfit_testing::required::Need::Chromium,
            "no two software drivers, lavapipe and Chromium's SwiftShader",
        );
    };
    let folder = tempfile::tempdir().unwrap();
    let (several, alone) = (
        folder.path().join("all.parquet"),
        folder.path().join("cpu.parquet"),
    );
    let output = fit(&drivers, "all", 4, &several);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert_eq!(fit(&drivers, "cpu", 4, &alone).status.code(), Some(0));
    // "gpu:SwiftShader Device (Subzero): 64, gpu:llvmpipe (LLVM 15.0.6, 256 bits): 192"
    for name in ["llvmpipe", "SwiftShader"] {
        let after = message
            .split_once(name)
            .unwrap_or_else(|| panic!("no {name}: {message}"))
            .1;
        let digits = |text: &str| {
            text.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
        };
        let count = after.split_once("): ").map(|(_, rest)| digits(rest));
        assert!(
            count
                .and_then(|n| n.parse::<u64>().ok())
                .is_some_and(|n| n >= 64),
            "{message}"
        );
    }
    let (several, alone) = (
        FitTable::read(&several).unwrap().0,
        FitTable::read(&alone).unwrap().0,
    );
    assert_eq!((several.len(), alone.len()), (4 * 64, 4 * 64));
    for (a, b) in several.to_rows().into_iter().zip(alone.to_rows()) {
        assert_eq!(
            (&a.id, &a.status.is_success()),
            (&b.id, &b.status.is_success())
        );
        for ((x, y), error) in a.parameters.iter().zip(&b.parameters).zip(&b.errors) {
            assert!(
                (x - y).abs() <= 0.02 * error,
                "{:?}: {x} on a GPU, {y} on the CPU, error {error}",
                a.id
            );
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_said_without_an_adapter() {
    let folder = tempfile::tempdir().unwrap();
    let output = fit("/dev/null", "gpu", 1, &folder.path().join("out.parquet"));
    assert_eq!(output.status.code(), Some(2));
    let expected = "popfit: no GPU to use: no adapter; there is no adapter at all. The device `cpu` needs none\n  \
                    VK_DRIVER_FILES names /dev/null, which is no manifest of a driver, whose name ends in .json: correct \
                    the variable or unset it\n";
    assert_eq!(popfit_testing::message(&output), expected);
}
