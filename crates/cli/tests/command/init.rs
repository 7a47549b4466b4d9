//! `popfit init` writes model files that `popfit check` accepts; completions and manual pages are there.

use std::path::Path;

use super::popfit_in as popfit;

fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let output = popfit(folder, arguments);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Its examples in comments are accepted, too.
fn is_accepted(folder: &Path, file: &str) {
    succeed(folder, &["check", file]);
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    // All but those that need what a network or a file of spectra has. `[shared]` excludes `[exposures]`.
    let words = [
        "[",
        "bounds",
        "mask",
        "widen",
        "jitter",
        "error_floor",
        "prior",
        "starts",
        "velocity",
        "line_spread = ",
        "range",
    ];
    let is_example = |line: &str| {
        line.strip_prefix("# ")
            .is_some_and(|line| words.iter().any(|w| line.starts_with(w)))
            && !line.contains("[shared]")
    };
    let examples = text.lines().filter(|line| is_example(line)).count();
    assert!(examples >= 6, "{examples} examples in {text}");
    // `line_spread` and `range` belong to an arm, which they follow
    let lines = text
        .lines()
        .map(|line| if is_example(line) { &line[2..] } else { line });
    std::fs::write(
        folder.join("examples.toml"),
        lines.collect::<Vec<_>>().join("\n"),
    )
    .unwrap();
    succeed(folder, &["check", "examples.toml"]);
}

#[test]
fn model_files_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let emulator = popfit_testing::root().join("data/emulator.safetensors");
    for name in [
        "desi_b", "desi_r", "desi_z", "sdss", "apogee", "mine", "boss", "lamost", "lamost_b",
        "lamost_r",
    ] {
        std::fs::copy(&emulator, folder.path().join(format!("{name}.safetensors"))).unwrap();
    }
    for what in [
        "desi",
        "sdss",
        "mwm",
        "apogee",
        "lamost",
        "lamost-mrs",
        "mine.safetensors",
    ] {
        let said = succeed(
            folder.path(),
            &["init", what, "-o", &format!("{what}.toml")],
        );
        assert!(
            said.contains(&format!("wrote {what}.toml")) && said.contains("popfit check"),
            "{said}"
        );
        is_accepted(folder.path(), &format!("{what}.toml"));
    }
    let text = std::fs::read_to_string(folder.path().join("mine.safetensors.toml")).unwrap();
    assert!(
        text.contains("# teff: 4000 to 9000 K\n")
            && text.contains("# [labels.teff]\n# bounds = [4000, 9000]\n"),
        "{text}"
    );
    // from another folder the emulator is found, too
    std::fs::create_dir(folder.path().join("models")).unwrap();
    succeed(
        folder.path(),
        &["init", "mine.safetensors", "-o", "models/model.toml"],
    );
    is_accepted(&folder.path().join("models"), "model.toml");
}

/// Relative paths stay relative, to the model file's folder, and absolute ones stay absolute.
#[test]
fn paths_of_networks_stay_relative() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["nets/blue", "models"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    let emulator = popfit_testing::root().join("data/emulator.safetensors");
    for name in [
        "b.safetensors",
        "nets/b.safetensors",
        "nets/blue/b.safetensors",
    ] {
        std::fs::copy(&emulator, at(name)).unwrap();
    }
    let absolute = at("nets/b.safetensors").display().to_string();
    let models = at("models/model.toml").display().to_string();
    for (network, output, expected) in [
        ("./b.safetensors", "model.toml", "b.safetensors"),
        ("nets/b.safetensors", "./model.toml", "nets/b.safetensors"),
        ("nets/b.safetensors", "nets/model.toml", "b.safetensors"),
        (
            "./nets/b.safetensors",
            "models/model.toml",
            "../nets/b.safetensors",
        ),
        (
            "nets/blue/../b.safetensors",
            "nets/blue/model.toml",
            "../b.safetensors",
        ),
        ("b.safetensors", models.as_str(), "../b.safetensors"),
        (absolute.as_str(), "models/model.toml", absolute.as_str()),
    ] {
        succeed(
            folder.path(),
            &["init", network, "-o", output, "--overwrite"],
        );
        let text = std::fs::read_to_string(folder.path().join(output)).unwrap();
        let line = format!(
            "emulator = {}\n",
            toml::Value::String(expected.replace('/', std::path::MAIN_SEPARATOR_STR))
        );
        assert!(text.contains(&line), "{network} {output}: {text}");
        succeed(folder.path(), &["check", output]);
    }
}

#[test]
fn no_file_is_replaced_unasked() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model.toml"), "mine").unwrap();
    let refused = popfit(folder.path(), &["init", "desi"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = "popfit: model.toml: this file exists already; use --overwrite to replace it, or choose another name\n";
    assert_eq!(String::from_utf8_lossy(&refused.stderr), said);
    assert_eq!(
        std::fs::read(folder.path().join("model.toml")).unwrap(),
        b"mine"
    );
    succeed(folder.path(), &["init", "desi", "--overwrite"]);
    let unknown = popfit(folder.path(), &["init", "dessi", "-o", "new.toml"]);
    let said = String::from_utf8_lossy(&unknown.stderr);
    assert!(
        unknown.status.code() == Some(2)
            && said.contains("neither a survey (desi, sdss, mwm, ")
            && said.contains(") nor a file"),
        "{said}"
    );
    assert!(!folder.path().join("new.toml").exists());
}

#[test]
fn completions_and_manual_pages_are_written() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "fish", "zsh"] {
        assert!(succeed(folder.path(), &["completions", shell]).contains("popfit"));
    }
    succeed(folder.path(), &["man", "pages"]);
    let page = std::fs::read_to_string(folder.path().join("pages/popfit-fit.1")).unwrap();
    assert!(
        page.contains("TARGETID") && page.contains("Examples:"),
        "{page}"
    );
    for page in ["popfit.1", "popfit-import-rvspecfit.1"] {
        let text = std::fs::read_to_string(folder.path().join("pages").join(page)).unwrap();
        // the package's name is not the command's
        assert!(!text.contains("cli"), "{page}: {text}");
    }
    let version = succeed(folder.path(), &["--version"]);
    assert_eq!(
        version.trim(),
        format!("popfit {}", env!("CARGO_PKG_VERSION"))
    );
}

/// The message names the kind of a file that is given instead of an emulator.
#[test]
fn a_file_of_another_kind_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let spectra = popfit_testing::root()
        .join("data/spectra.npz")
        .display()
        .to_string();
    std::fs::write(folder.path().join("notes.txt"), "notes").unwrap();
    std::fs::create_dir(folder.path().join("networks")).unwrap();
    succeed(folder.path(), &["init", "desi", "-o", "desi.toml"]);
    let wanted = "; popfit init wants a survey (desi, sdss, mwm, apogee, lamost, lamost-mrs), or the file of an emulator\n";
    for (given, words) in [
        (
            spectra.as_str(),
            "spectra.npz: this is a file of 64 spectra",
        ),
        ("desi.toml", "desi.toml: this is a model file already"),
        ("networks", "networks: this is a folder, not a file"),
        ("notes.txt", "notes.txt: "),
    ] {
        let refused = popfit(folder.path(), &["init", given, "-o", "new.toml"]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(
            said.contains(words) && said.ends_with(wanted),
            "{given}: {said}"
        );
        assert!(!folder.path().join("new.toml").exists(), "{given}");
    }
}

/// A network that is not there is named with its arm and the model file.
#[test]
fn a_missing_network_is_named_with_its_arm() {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &["init", "desi"]);
    let refused = popfit(folder.path(), &["check", "model.toml"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_ne!(refused.status.code(), Some(0));
    for words in [
        "desi_b.safetensors: ",
        "arm \"b\" of model.toml names this file as its `emulator`",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}
