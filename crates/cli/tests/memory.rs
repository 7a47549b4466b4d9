//! Models that ask for more memory than there is end in an error, not in the process's end.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Output};

use popfit_testing::{f64s, file, npz};
use safetensors::tensor::{Dtype, TensorView, serialize};

/// Pixels of the template: a sound emulator of 32 MB.
const PIXELS: usize = 2_000_000;
/// KiB of addresses that the program may have.
const LIMIT: usize = 6 << 20;
/// Pixels of the spectrum.
const SEEN: usize = 200;

/// One label, whose coefficient is a wave; uniform in ln λ.
fn emulator() -> Vec<u8> {
    let wavelength: Vec<u8> = (0..PIXELS)
        .flat_map(|j| (5000.0 * (j as f64 * 1e-6).exp()).to_le_bytes())
        .collect();
    let weight: Vec<u8> = (0..PIXELS)
        .flat_map(|j| ((j as f32 * 0.01).sin() * 0.1).to_le_bytes())
        .collect();
    let bias = 1f32.to_le_bytes().repeat(PIXELS);
    let tensors = [
        ("wavelength", Dtype::F64, vec![PIXELS], &wavelength),
        ("layer.0.weight", Dtype::F32, vec![PIXELS, 1], &weight),
        ("layer.0.bias", Dtype::F32, vec![PIXELS], &bias),
    ];
    let views = tensors
        .map(|(name, kind, shape, bytes)| (name, TensorView::new(kind, shape, bytes).unwrap()));
    let description = r#"{"version":1,"activation":"relu","output":"identity","medium":"vacuum","grid":"log",
        "labels":[{"name":"a","transform":"identity","mean":0.0,"std":1.0,"min":-10.0,"max":10.0}]}"#;
    serialize(
        views,
        Some(
            [("popfit".to_string(), description.to_string())]
                .into_iter()
                .collect(),
        ),
    )
    .unwrap()
}

fn limited(folder: &Path, model: &str, limit: usize) -> Output {
    file(
        folder,
        "model.toml",
        format!("[[arm]]\nname = \"b\"\nemulator = \"net.safetensors\"\n{model}").as_bytes(),
    );
    let mut command = Command::new("sh");
    command
        .current_dir(folder)
        .args(["-c", "ulimit -v \"$0\"; exec \"$@\""])
        .arg(limit.to_string());
    command
        .arg(env!("CARGO_BIN_EXE_popfit"))
        .args("fit model.toml spectra.npz --device cpu -o out.csv".split(' '));
    command.output().unwrap()
}

#[test]
fn a_model_too_large_for_the_machine_is_out_of_memory() {
    let folder = tempfile::tempdir().unwrap();
    file(folder.path(), "net.safetensors", &emulator());
    let grid: Vec<f64> = (0..SEEN).map(|j| 5010.0 + 0.05 * j as f64).collect();
    let flux: Vec<f64> = (0..SEEN).map(|j| 1.0 + 0.01 * (j as f64).sin()).collect();
    let arrays = [
        ("b_wavelength", f64s(&[SEEN], &grid)),
        ("b_flux", f64s(&[1, SEEN], &flux)),
        ("b_ivar", f64s(&[1, SEEN], &vec![1e4; SEEN])),
    ];
    file(folder.path(), "spectra.npz", &npz(&arrays, false));
    // the first guess's library
    let output = limited(folder.path(), "", LIMIT);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains(
            "device cpu has too little memory: a first guess from 512 templates of 2000000 pixels takes 13.4 GiB"
        ),
        "{message}"
    );
    // a start of one's own needs one template, and the fit has room
    let start = "[labels.a]\nstart = 0.0\n";
    let output = limited(folder.path(), start, LIMIT);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
