//! `popfit fit --profile`: the files and the table that it writes.

use std::process::Command;

use popfit_testing::message;
use popfit_testing::profile::{DEVICE, HOST};
use serde_json::Value;

#[test]
fn the_command_writes_two_files_and_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let data = |name: &str| popfit_testing::demo_file(name).display().to_string();
    let fit = |out: &str, more: &[&str]| {
        let (model, spectra) = (data("model.toml"), data("spectra.npz"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_popfit"));
        command
            .args([
                "fit", &model, &spectra, "--device", "cpu", "--starts", "1", "-o",
            ])
            .arg(folder.path().join(out));
        let output = command.args(more).output().unwrap();
        let text = message(&output);
        assert!(output.status.success(), "{text}");
        text
    };
    let table = fit("a.csv", &["--profile"]);
    for words in HOST
        .into_iter()
        .chain(DEVICE)
        .chain(["64 spectra", "GF/s", "busy", "rounds"])
    {
        assert!(table.contains(words), "{words}: {table}");
    }
    let read = |name: &str| {
        serde_json::from_slice::<Value>(&std::fs::read(folder.path().join(name)).unwrap()).unwrap()
    };
    let profile = read("a.profile.json");
    assert_eq!(profile["fits"], 64);
    assert!(profile["opening"].as_f64().unwrap() > 0.0);
    assert_eq!(profile["devices"][0]["clock"], "threads");
    assert!(
        profile["devices"][0]["stages"]
            .as_array()
            .unwrap()
            .iter()
            .any(|s| s["gflops"].as_f64().unwrap() > 0.0)
    );
    assert!(read("a.trace.json").as_array().unwrap().len() > 10);

    assert_eq!(fit("b.csv", &["--profile", "--quiet"]), "");
    assert!(folder.path().join("b.trace.json").is_file());
    fit("c.csv", &[]);
    let plain = std::fs::read(folder.path().join("c.csv")).unwrap();
    assert_eq!(plain, std::fs::read(folder.path().join("a.csv")).unwrap());
    let files = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 7, "c has no profile");
}
