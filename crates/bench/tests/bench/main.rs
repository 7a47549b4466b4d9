//! `popfit-bench`: the file that `--json` writes, and the table of the NIST problems.

mod nist;

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

#[test]
fn a_quick_run_writes_the_schema() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bench.json");
    let output = Command::new(env!("CARGO_BIN_EXE_popfit-bench"))
        .args(["--quick", "--device", "cpu", "--json"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        printed.contains("to 99 %") && printed.contains("spectra.npz"),
        "{printed}"
    );
    assert!(printed.contains("--quick: "), "{printed}");
    let last = printed.lines().last().unwrap();
    assert!(
        last.contains("argmin 0.") && last.contains("popfit "),
        "{last}"
    );
    let report: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert!(
        report["machine"]
            .as_str()
            .is_some_and(|machine| !machine.is_empty())
    );
    for name in ["popfit", "argmin", "levenberg-marquardt"] {
        assert!(report["versions"][name].is_string(), "{name}");
    }
    let rows = report["rows"].as_array().unwrap();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let of = |key: &str| {
        rows.iter()
            .map(|row| text(row, key))
            .collect::<BTreeSet<String>>()
    };
    assert_eq!(
        of("workload"),
        ["emulator", "gauss2d", "synb"].map(String::from).into()
    );
    for solver in [
        "popfit lm",
        "popfit nelder-mead",
        "popfit nelder-mead alone",
        "argmin nelder-mead",
        "levenberg-marquardt",
    ] {
        assert!(of("solver").contains(solver), "{solver}");
    }
    for row in rows {
        let keys: BTreeSet<&str> = row
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let numbers = [
            "fits",
            "fits_per_s",
            "evaluations_per_fit",
            "within_1e-3",
            "gap_median",
            "gflops",
        ];
        let others = ["workload", "solver", "device", "seconds_to_99_percent"];
        assert_eq!(keys, numbers.into_iter().chain(others).collect());
        for key in ["fits", "fits_per_s", "evaluations_per_fit", "gflops"] {
            assert!(row[key].as_f64().unwrap() > 0.0, "{row}");
        }
        assert!(
            (0.0..=1.0).contains(&row["within_1e-3"].as_f64().unwrap()),
            "{row}"
        );
        // nothing is better than the best
        assert!(
            row["gap_median"].is_null() || row["gap_median"].as_f64().unwrap() >= 0.0,
            "{row}"
        );
        if text(row, "solver") == "popfit lm" {
            assert!(row["within_1e-3"].as_f64().unwrap() > 0.9, "{row}");
        }
        let nearly_all = row["within_1e-3"].as_f64().unwrap() >= 0.99;
        assert_eq!(
            row["seconds_to_99_percent"]
                .as_f64()
                .is_some_and(|s| s > 0.0),
            nearly_all,
            "{row}"
        );
        assert!(
            report["data"][text(row, "workload")]
                .as_str()
                .unwrap()
                .contains(" fits: "),
            "{row}"
        );
    }
}

#[test]
fn scaling_has_four_axes() {
    let folder = tempfile::tempdir().unwrap();
    let (file, plot) = (
        folder.path().join("scaling.json"),
        folder.path().join("scaling.svg"),
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_popfit-bench"));
    command
        .args(["--scaling", "--quick", "--device", "cpu", "--json"])
        .arg(&file)
        .arg("--plot")
        .arg(&plot);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let points = report["points"].as_array().unwrap();
    let svg = std::fs::read_to_string(plot).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    for axis in ["spectra", "starts", "pixels", "labels"] {
        let own: Vec<u64> = points
            .iter()
            .filter(|p| p["axis"] == axis)
            .map(|p| p["value"].as_u64().unwrap())
            .collect();
        assert!(own.len() >= 2 && own.is_sorted(), "{axis}: {own:?}");
        assert!(
            svg.contains(&format!("by number of {axis}")) && printed.contains(axis),
            "{axis}"
        );
    }
    assert_eq!(svg.matches("<circle").count(), points.len());
    for point in points {
        let number = |key: &str| point[key].as_f64().unwrap();
        assert!(
            (number("milliseconds_per_fit") * number("fits_per_s") / 1e3 - 1.0).abs() < 1e-9,
            "{point}"
        );
        assert!(
            number("linearisations") >= 1.0 && number("converged") > 0.7,
            "{point}"
        );
    }
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    for file in [
        folder.path().join("none/bench.json"),
        folder.path().to_path_buf(),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_popfit-bench"))
            .args(["--json"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(
            output.status.code() == Some(2) && output.stdout.is_empty(),
            "{output:?}"
        );
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_file_that_exists_is_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.json");
    std::fs::write(&file, "old").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_popfit-bench"))
        .arg("--json")
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(2),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(String::from_utf8_lossy(&output.stderr).contains("--overwrite"));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "old");
}

/// Returns what `popfit-bench` prints with these arguments, which must succeed.
fn printed(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_popfit-bench"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_host_alone_is_measured() {
    let printed = printed(&[
        "host",
        "data/model.toml",
        "data/spectra.npz",
        "--threads",
        "1",
    ]);
    for part in [
        "64 spectra in ",
        "prepare ",
        "first guess ",
        "popfit reader ",
        "popfit worker 1 ",
        "popfit 0/1 ",
    ] {
        assert!(printed.contains(part), "no {part:?} in {printed}");
    }
}

#[test]
fn kernels_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let spectra = [
        "kernels",
        path,
        "demo",
        "data/model.toml",
        "data/spectra.npz",
    ];
    assert!(
        printed(&spectra).contains("kernels of demo")
            && printed(&["kernels", path, "gauss2d"]).contains("gauss2d")
    );
    let kernels: Vec<(String, String)> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                std::fs::read_to_string(entry.path()).unwrap(),
            )
        })
        .collect();
    assert!(kernels.iter().all(|(_, text)| text.contains("@compute")));
    // a card's products have tiles, and its small fits are in registers
    let has = |stem: &str, part: &str| {
        kernels
            .iter()
            .any(|(name, text)| name.ends_with(&format!("-{stem}.wgsl")) && text.contains(part))
    };
    assert!(has("product_tiled", "var<workgroup>") && has("small", "var<private>"));
}

#[test]
fn the_kernels_of_a_round_are_timed() {
    use popfit_testing::required::{Need, found};
    if found(Need::Gpu, popfit::low_level::gpu::GpuDevice::best()).is_none() {
        return;
    }
    let printed = printed(&[
        "gpu-kernels",
        "data/model.toml",
        "data/spectra.npz",
        "--members",
        "2,1",
        "--rounds",
        "1",
    ]);
    let lines: Vec<Vec<&str>> = printed
        .lines()
        .map(|line| line.split("; ").collect())
        .collect();
    let [_, head, two, one] = lines.as_slice() else {
        panic!("{printed}")
    };
    let kernels = head[3].split(", ").count();
    for (line, members) in [(two, "2"), (one, "1")] {
        assert!(
            line[0] == members && line[1].parse::<f64>().unwrap() > 0.0,
            "{printed}"
        );
        assert_eq!(
            line[3]
                .split(", ")
                .filter(|saved| saved.parse::<f64>().is_ok())
                .count(),
            kernels,
            "{printed}"
        );
    }
    assert!(
        head[3].contains("step") && !head[3].contains("compact"),
        "{printed}"
    );
}

#[test]
fn tiled_spectra_are_the_first_ones_again() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str, more: &[&str]| {
        let path = folder.path().join(name);
        printed(
            &[
                &["tiled", "data/spectra.npz", "2", path.to_str().unwrap()],
                more,
            ]
            .concat(),
        );
        popfit::Spectra::open(path).unwrap()
    };
    let (plain, noisy) = (open("plain.npz", &[]), open("noisy.npz", &["--noise"]));
    let half = plain.len() / 2;
    let flux = |spectra: &popfit::Spectra<'_>, row: usize| {
        spectra.slice(row..row + 1).arms[0]
            .flux
            .clone()
            .into_owned()
    };
    assert_eq!(flux(&plain, 3), flux(&plain, half + 3));
    assert!(flux(&noisy, 3) != flux(&noisy, half + 3) && flux(&noisy, 3) != flux(&plain, 3));
    let ivar = |spectra: &popfit::Spectra<'_>| spectra.arms[0].ivar.at(7);
    assert_eq!(2.0 * ivar(&noisy), ivar(&plain));
}
