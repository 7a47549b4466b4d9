//! Words of the command at which newcomers stumbled.

use std::process::{Command, Output};

use popfit_testing::{demo_emulator, demo_file, message};

use super::{popfit, popfit_in};

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn one_thread_is_not_several() {
    let output = Command::new(env!("CARGO_BIN_EXE_popfit"))
        .arg("devices")
        .env("RAYON_NUM_THREADS", "1")
        .output()
        .unwrap();
    assert!(
        text(&output).contains("cpu (1 thread)"),
        "{}",
        text(&output)
    );
}

#[test]
fn a_file_that_is_given_twice_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (model, spectra) = (demo_file("model.toml"), demo_file("spectra.npz"));
    let (model, spectra) = (model.to_str().unwrap(), spectra.to_str().unwrap());
    let fit = |files: &[&str], out: &str| {
        let more = ["--device", "cpu", "--starts", "1", "-o", out];
        let output = popfit_in(folder.path(), &[&["fit", model][..], files, &more].concat());
        assert!(output.status.success(), "{}", message(&output));
        message(&output)
    };
    let twice = fit(&[spectra, spectra], "twice.parquet");
    assert!(
        twice.contains("spectra.npz is given 2 times: its spectra are read as often"),
        "{twice}"
    );
    let once = fit(&[spectra], "once.parquet");
    assert!(!once.contains("times"), "{once}");

    // a picture of no differences says so
    let same = popfit_in(
        folder.path(),
        &[
            "compare",
            "once.parquet",
            "once.parquet",
            "--plot",
            "same.svg",
        ],
    );
    assert!(same.status.success(), "{}", message(&same));
    let svg = std::fs::read_to_string(folder.path().join("same.svg")).unwrap();
    assert!(svg.contains("no differences: all are 0"), "{svg}");
}

#[test]
fn what_is_no_table_or_network_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let spectra = demo_file("spectra.npz");
    let spectra = spectra.to_str().unwrap();
    std::fs::copy(spectra, folder.path().join("spectra.npz")).unwrap();
    std::fs::write(
        folder.path().join("model.toml"),
        "[[arm]]\nname = \"b\"\nemulator = \"spectra.npz\"\n",
    )
    .unwrap();
    std::fs::write(
        folder.path().join("star.txt"),
        "# wavelength flux\n4000.0 1.0\n",
    )
    .unwrap();
    std::fs::write(
        folder.path().join("broken.safetensors"),
        &std::fs::read(demo_emulator()).unwrap()[..5000],
    )
    .unwrap();
    let model = demo_file("model.toml");
    let model = model.to_str().unwrap();
    let cases: [(&[&str], &str); 5] = [
        (
            &["compare", spectra, spectra],
            "spectra.npz: give a result table, which ends in .parquet, .fits or .csv",
        ),
        (
            &["report", "page.html"],
            "page.html: give a result table, which ends in .parquet, .fits or .csv",
        ),
        (
            &["check", "model.toml"],
            "this is a file of spectra, not of a network: it has fluxes and no weights",
        ),
        (
            &["check", model, "star.txt"],
            "np.loadtxt reads a table of text",
        ),
        (
            &["init", "broken.safetensors", "-o", "new.toml"],
            "broken.safetensors: ",
        ),
    ];
    for (arguments, expected) in cases {
        let output = popfit_in(folder.path(), arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            message(&output)
        );
        assert!(
            message(&output).contains(expected),
            "{expected}: {}",
            message(&output)
        );
        assert!(
            !message(&output).contains("popfit init wants"),
            "a stray ending: {}",
            message(&output)
        );
    }
}

#[test]
fn a_model_of_a_network_does_not_rotate_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let output = popfit_in(folder.path(), &["init", demo_emulator().to_str().unwrap()]);
    assert!(output.status.success(), "{}", message(&output));
    let check = popfit_in(folder.path(), &["check", "model.toml"]);
    assert!(
        check.status.success() && !text(&check).contains("vsini"),
        "{}",
        text(&check)
    );
    let model = std::fs::read_to_string(folder.path().join("model.toml")).unwrap();
    assert!(model.contains("# [vsini]"), "{model}");
}

#[test]
fn help_has_defaults_examples_and_the_manuals_sections() {
    let help = text(&popfit(&["fit", "--help"]));
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for default in [
        "first guess [default: 3]",
        "[default: 60 for lm, 1500 for",
        "[default: 1G on the CPU, half",
    ] {
        assert!(help.contains(default), "{default}: {help}");
    }
    let help = text(&popfit(&["--help"]));
    assert!(
        help.contains("Examples:\n  popfit demo") && help.contains("Manual: http"),
        "{help}"
    );
    let folder = tempfile::tempdir().unwrap();
    assert!(popfit_in(folder.path(), &["man", "pages"]).status.success());
    for name in ["popfit.1", "popfit-fit.1", "popfit-predict.1"] {
        let page = std::fs::read_to_string(folder.path().join("pages").join(name)).unwrap();
        for section in [".SH \"EXIT STATUS\"", ".SH ENVIRONMENT", ".SH FILES"] {
            assert!(page.contains(section), "{name}: {section}");
        }
    }
}

/// What comes from a file is no command to the terminal, and no width that cannot be printed.
#[test]
fn texts_of_files_do_not_reach_the_terminal_raw() {
    let folder = tempfile::tempdir().unwrap();
    let (emulator, spectra) = (demo_emulator(), demo_file("spectra.npz"));
    let spectra = spectra.to_str().unwrap();
    let model = |name: &str| format!("[[arm]]\nname = \"{name}\"\nemulator = {emulator:?}\n");
    for (file, name, said) in [
        (
            "long.toml",
            "a".repeat(70_000),
            "has 70000 characters, more than the 64 of a name",
        ),
        (
            "escape.toml",
            "\\u001b]0;owned\\u0007".into(),
            "has the character '\\u{1b}'",
        ),
    ] {
        std::fs::write(folder.path().join(file), model(&name)).unwrap();
        let output = popfit_in(folder.path(), &["check", file]);
        assert_eq!(output.status.code(), Some(2), "{}", message(&output));
        assert!(
            message(&output).contains(said) && !message(&output).contains('\u{1b}'),
            "{}",
            message(&output)
        );
    }
    // a key, which a message quotes
    std::fs::write(folder.path().join("key.toml"), "\"\\u001b[2K\" = 1\n").unwrap();
    let output = popfit_in(folder.path(), &["check", "key.toml"]);
    assert!(
        !output.status.success() && !message(&output).contains('\u{1b}'),
        "{}",
        message(&output)
    );
    #[cfg(unix)]
    for arguments in [
        &["check", "/dev/zero"][..],
        &["check", "model.toml", spectra, "--target-id", "@/dev/zero"],
    ] {
        std::fs::write(folder.path().join("model.toml"), model("b")).unwrap();
        let output = popfit_in(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{}", message(&output));
        assert!(
            message(&output).contains("/dev/zero: is a device or a pipe"),
            "{}",
            message(&output)
        );
    }
}
