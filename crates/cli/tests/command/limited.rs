//! Runs under limits that a system or a user sets: open files, memory and time of a processor.

#![cfg(unix)]

use std::path::PathBuf;
use std::process::{Command, Output};

use popfit::FitTable;
use popfit_testing::fits_bytes::{FitsBytes, f32s, f64s};
use popfit_testing::tiny::{PIXELS, linear_layer, network_file, wave, wavelength};
use popfit_testing::{file, message};

/// Runs the command with limits, as options of the shell's `ulimit`.
fn limited(limits: &[&str], arguments: &[PathBuf]) -> Output {
    let limits: String = limits
        .iter()
        .map(|limit| format!("ulimit {limit} && "))
        .collect();
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        &format!("{limits}exec \"$0\" \"$@\""),
        env!("CARGO_BIN_EXE_popfit"),
    ]);
    // each thread takes memory, and a handle while it hashes a file
    shell
        .args(arguments)
        .env("RAYON_NUM_THREADS", "2")
        .env("MALLOC_ARENA_MAX", "2")
        .output()
        .unwrap()
}

/// An apStar of two spectra on the wavelengths of the small network.
fn apstar() -> FitsBytes {
    let (start, step) = (5000f64.log10(), 1e-4 * std::f64::consts::LOG10_E);
    let grid = [
        format!("CRVAL1  = {start:.15}"),
        format!("CDELT1  = {step:.15e}").replace('e', "E"),
    ];
    let pixels = 2 * PIXELS;
    FitsBytes::new(&[])
        .image(
            "",
            -32,
            &[2, PIXELS],
            &f32s(&vec![1.0; pixels]),
            &[&grid[0], &grid[1]],
        )
        .image("", -32, &[2, PIXELS], &f32s(&vec![0.1; pixels]), &[])
        .image("", 16, &[2, PIXELS], &vec![0; 2 * pixels], &[])
}

/// A DESI file of one spectrum and one arm.
fn desi() -> FitsBytes {
    FitsBytes::new(&[])
        .table(
            "FIBERMAP",
            &[("TARGETID", "K", vec![7i64.to_be_bytes().to_vec()])],
            &[],
        )
        .image("B_WAVELENGTH", -64, &[PIXELS], &f64s(&wavelength()), &[])
        .image("B_FLUX", -32, &[1, PIXELS], &f32s(&[1.0; PIXELS]), &[])
        .image("B_IVAR", -32, &[1, PIXELS], &f32s(&[100.0; PIXELS]), &[])
}

/// A file that waits for its turn holds no handle, whatever its format: a run may have more files than a process may
/// open.
#[test]
fn more_files_than_handles_are_read() {
    /// More than the limit of handles.
    const FILES: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    file(
        folder.path(),
        "net.safetensors",
        &network_file(&["a"], "relu", &[linear_layer(1, wave)]),
    );
    for (name, arm, bytes, spectra) in [("apstar", "", apstar(), 2), ("desi", "b", desi(), 1)] {
        let text = format!(
            "[[arm]]\nname = \"{arm}\"\nemulator = \"net.safetensors\"\n[velocity]\nfixed = 0.0\n"
        );
        let model = file(folder.path(), "model.toml", text.as_bytes());
        let out = place(&format!("{name}.csv"));
        let mut arguments: Vec<PathBuf> = ["fit", "--device", "cpu", "--quiet", "-o"]
            .map(PathBuf::from)
            .to_vec();
        arguments.extend([out.clone(), model]);
        arguments
            .extend((0..FILES).map(|k| file(folder.path(), &format!("{name}{k}.fits"), &bytes.0)));
        let output = limited(&["-n 64"], &arguments);
        assert!(output.status.success(), "{name}: {}", message(&output));
        assert_eq!(FitTable::read(&out).unwrap().0.len(), spectra * FILES);
        // nor do the outputs of files that are read ahead
        let tables = place(&format!("tables of {name}"));
        arguments[5] = tables.clone();
        arguments.push("--per-file".into());
        let output = limited(&["-n 64"], &arguments);
        assert!(output.status.success(), "{name}: {}", message(&output));
        assert_eq!(std::fs::read_dir(tables).unwrap().count(), FILES);
    }
}

/// Arms of one network are checked once, and the network is in memory once. Other systems limit no memory.
#[cfg(target_os = "linux")]
#[test]
fn many_arms_of_one_network_are_checked_within_limits() {
    let folder = tempfile::tempdir().unwrap();
    let path = popfit_testing::demo_emulator();
    let arm = |k: usize| {
        format!(
            "[[arm]]\nname = \"arm{k}\"\nemulator = {:?}\n",
            path.display().to_string()
        )
    };
    let model = |arms: usize| {
        let text: String = (0..arms)
            .map(arm)
            .chain(["[velocity]\nrange = [-900.0, 900.0]\n".into()])
            .collect();
        file(folder.path(), &format!("{arms}.toml"), text.as_bytes())
    };
    let check = |model: PathBuf| {
        // kilobytes of memory, and seconds of a processor
        let output = limited(&["-v 1200000", "-t 40"], &["check".into(), model]);
        assert!(output.status.success(), "{}", message(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    // the derivatives of the labels are those of one arm
    let last = |text: String| {
        text.lines()
            .filter(|line| line.ends_with("pass"))
            .map(String::from)
            .collect::<Vec<_>>()
    };
    let (one, many) = (last(check(model(1))), check(model(200)));
    assert!(many.contains("arm199") && !one.is_empty());
    assert_eq!(last(many), one);
}
