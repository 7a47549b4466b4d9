//! `popfit devices`: what there is, and why something is missing.

#![cfg(target_os = "linux")]

use std::process::Command;

use popfit_testing::{demo_file, message};

/// Without a driver the list says why there is no GPU, and a GPU that is named is refused with the same words.
#[test]
fn a_missing_gpu_is_explained() {
    for variable in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
        let run = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_popfit"));
            command
                .args(arguments)
                .env_remove("VK_DRIVER_FILES")
                .env(variable, "/none.json")
                .output()
                .unwrap()
        };
        let why = format!(
            "{variable} names /none.json, which does not exist: correct the variable or unset it"
        );
        let devices = run(&["devices"]);
        let text = String::from_utf8_lossy(&devices.stdout).into_owned();
        assert!(
            devices.status.success() && text.contains("there is no GPU adapter"),
            "{text}"
        );
        assert!(
            text.contains(&format!("note: {why}")) || !cfg!(feature = "gpu"),
            "{text}"
        );
        let [model, spectra] =
            ["model.toml", "spectra.npz"].map(|name| demo_file(name).display().to_string());
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out.csv").display().to_string();
        let refused = run(&["fit", &model, &spectra, "-o", &output, "--device", "gpu"]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(
            message(&refused).contains(&why) || !cfg!(feature = "gpu"),
            "{}",
            message(&refused)
        );
    }
}
