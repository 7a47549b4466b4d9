//! The command as a library: a run over files without a terminal, and exit codes as numbers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use popfit::{Control, Error, ModelFile, Spectra};
use popfit_cli::{
    BuiltModel, Event, FitFiles, FitFilesSummary, FitModel, Format, fit_files, run_code,
};
use popfit_testing::{demo_file, message};

use crate::popfit;

/// Settings of a run over the demo's spectra, on the CPU with one start.
fn demo(model: impl Into<FitModel>, output: &Path) -> FitFiles {
    let mut files = FitFiles::new(model, vec![demo_file("spectra.npz")], output);
    files.settings.device = "cpu".into();
    files.settings.starts = Some(1);
    files
}

/// Runs, and returns the events beside what came of the run.
fn run(mut files: FitFiles, control: &Control) -> (Result<FitFilesSummary, Error>, Vec<Event>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let hears = events.clone();
    files.on_event = Some(Box::new(move |event| hears.lock().unwrap().push(event)));
    let done = fit_files(files, control);
    let events = events.lock().unwrap().clone();
    (done, events)
}

/// Writes the same table by the command and returns its bytes.
fn by_command(output: &Path, more: &[&str]) -> Vec<u8> {
    let [model, spectra, out] = [
        demo_file("model.toml"),
        demo_file("spectra.npz"),
        output.to_path_buf(),
    ]
    .map(|path| path.display().to_string());
    let run = popfit(
        &[
            &[
                "fit", &model, &spectra, "-o", &out, "--device", "cpu", "--starts", "1",
            ],
            more,
        ]
        .concat(),
    );
    assert!(run.status.success(), "{}", message(&run));
    std::fs::read(output).unwrap()
}

#[test]
fn a_run_over_files_writes_the_bytes_of_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (done, events) = run(
        demo(demo_file("model.toml"), &at("a.fits")),
        &Control::default(),
    );
    let done = done.unwrap();
    let fits = done.summary.fits;
    assert!(
        events.contains(&Event::Begin { spectra: fits }),
        "{events:?}"
    );
    assert!(fits > 1 && done.converged() == fits && done.summary.interrupted == 0);
    assert_eq!(
        done.statuses.iter().map(|status| status.count).sum::<u64>(),
        fits
    );
    assert!(
        done.to_string()
            .starts_with(&format!("{fits} spectra: {}; ", done.counts())),
        "{done}"
    );
    assert!(std::fs::read(at("a.fits")).unwrap() == by_command(&at("b.fits"), &[]));
    // The best-fit spectra, which change nothing in the table.
    let mut files = demo(demo_file("model.toml"), &at("c.fits"));
    files.models = Some(at("models_c.fits"));
    run(files, &Control::default()).0.unwrap();
    let models = at("models_d.fits");
    let same = by_command(&at("d.fits"), &["--models", models.to_str().unwrap()]);
    assert!(
        same == std::fs::read(at("c.fits")).unwrap()
            && same == std::fs::read(at("a.fits")).unwrap()
    );
    let models = std::fs::read(models).unwrap();
    assert!(models == std::fs::read(at("models_c.fits")).unwrap());
    let pixels = Spectra::open(demo_file("spectra.npz")).unwrap().arms[0].pixels;
    assert!(
        models.len() > 4 * pixels * fits as usize,
        "a model for each spectrum"
    );
    // The other layout, its second file and the page, from a model in memory.
    let path = demo_file("model.toml");
    let file = ModelFile::open(&path).unwrap();
    let mut built = BuiltModel::new(file.build().unwrap(), file.text.clone());
    built.file = Some(file);
    let mut files = demo(built, &at("rvtab_a.fits"));
    (files.format, files.report) = (Format::Rvtab, Some(at("page")));
    run(files, &Control::default()).0.unwrap();
    let same = by_command(&at("rvtab_b.fits"), &["--format", "rvtab"]);
    assert!(std::fs::read(at("rvtab_a.fits")).unwrap() == same);
    let models = ["rvmod_a.fits", "rvmod_b.fits"].map(|name| std::fs::read(at(name)).unwrap());
    assert!(models[0] == models[1]);
    assert!(
        std::fs::read_to_string(at("page/index.html"))
            .unwrap()
            .contains("rvtab_a.fits")
    );
}

#[test]
fn a_run_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let refused = |change: &dyn Fn(&mut FitFiles)| {
        let mut files = demo(demo_file("model.toml"), &at("a.fits"));
        change(&mut files);
        let (done, events) = run(files, &Control::default());
        assert!(
            !events
                .iter()
                .any(|event| matches!(event, Event::Begin { .. } | Event::Remains(_))),
            "{events:?}"
        );
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "only the file that was there before"
        );
        done.unwrap_err()
    };
    std::fs::write(at("old.csv"), "kept").unwrap();
    let error = refused(&|files| files.output = at("old.csv"));
    assert!(
        matches!(&error, Error::OutputExists { path } if *path == at("old.csv")),
        "{error}"
    );
    let error = refused(&|files| (files.output, files.resume) = (at("old.csv"), true));
    assert!(
        matches!(error, Error::Usage(_)) && error.to_string().contains("Give `overwrite`"),
        "{error}"
    );
    let error = refused(&|files| {
        files.spectra = vec![at("old.csv")];
        (files.output, files.overwrite) = (at("old.csv"), true);
    });
    assert!(error.to_string().contains("one of the inputs"), "{error}");
    let error = refused(&|files| {
        files.other_inputs = vec![at("old.csv")];
        (files.output, files.overwrite) = (at("old.csv"), true);
    });
    assert!(error.to_string().contains("one of the inputs"), "{error}");
    let error = refused(&|files| files.selection.min_signal_to_noise = Some(f64::NAN));
    assert!(
        error
            .to_string()
            .contains("`min_signal_to_noise` must be finite"),
        "{error}"
    );
    let error = refused(&|files| files.spectra = vec![at("none.npz")]);
    assert!(matches!(error, Error::Io { .. }), "{error}");
    let error = refused(&|files| files.settings.starts = Some(100));
    assert!(matches!(error, Error::InvalidSettings { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(at("old.csv")).unwrap(), "kept");
}

/// A run that is ended early says what is left, and goes on where it was.
#[test]
fn a_cancelled_run_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("a.fits");
    let cancelled = Control::default();
    cancelled.cancel.store(true, Ordering::Relaxed);
    let (done, _) = run(demo(demo_file("model.toml"), &output), &cancelled);
    assert!(
        matches!(done, Err(Error::Interrupted { kept: false, .. })),
        "{done:?}"
    );
    assert!(!output.exists());
    // The first batch ends the run.
    let control = Control::default();
    let cancel = control.cancel.clone();
    let control = Control {
        progress: Some(Arc::new(move |_, _| cancel.store(true, Ordering::Relaxed))),
        ..control
    };
    let mut files = demo(demo_file("model.toml"), &output);
    files.settings.batch_size = Some(2);
    let done = run(files, &control).0.unwrap();
    assert!(done.summary.interrupted > 0 && output.exists());
    let mut files = demo(demo_file("model.toml"), &output);
    (files.settings.batch_size, files.resume) = (Some(2), true);
    let done = run(files, &Control::default()).0.unwrap();
    assert!(
        done.summary.interrupted == 0 && done.to_string().contains("from the journal"),
        "{done}"
    );
    let whole = folder.path().join("b.fits");
    assert!(std::fs::read(&output).unwrap() == by_command(&whole, &["--batch", "2"]));
}

#[test]
fn exit_codes_are_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("a.csv");
    let code = |arguments: &[&str]| run_code(arguments.iter().map(OsString::from));
    let [model, spectra, out]: [String; 3] =
        [demo_file("model.toml"), demo_file("spectra.npz"), output]
            .map(|path: PathBuf| path.display().to_string());
    assert_eq!(code(&["popfit", "--version"]), 0);
    assert_eq!(code(&["popfit", "no-such-command"]), 2);
    let fit = [
        "popfit",
        "fit",
        &model,
        &spectra,
        "-o",
        &out,
        "--device",
        "cpu",
        "--quiet",
        "--max-rounds",
        "1",
    ];
    assert_eq!(code(&fit), 3);
    assert_eq!(code(&fit), 2);
}
