//! A run that is killed goes on where it was, and ends with the bytes of one that was not; a run that is not its own is refused.
#![cfg(feature = "cli")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Batches never span files: so many savepoints.
const FILES: usize = 10;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}

fn command(out: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_popfit"));
    command.arg("fit").arg(data("model.toml")).args(std::iter::repeat_n(data("spectra.npz"), FILES));
    command.args(["--device", "cpu", "--quiet", "-o"]).arg(out).args(more);
    command.stderr(Stdio::piped());
    command
}

fn run(out: &Path, more: &[&str]) -> Output {
    command(out, more).output().unwrap()
}

fn succeed(out: &Path, more: &[&str]) {
    let output = run(out, more);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

fn names(folder: &Path) -> Vec<String> {
    let mut all: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    all.sort();
    all
}

/// `POPFIT_KILLS` says how often (50 take a minute or two).
#[test]
fn a_killed_run_ends_with_the_bytes_of_one_that_was_not() {
    let folder = tempfile::tempdir().unwrap();
    let kills: u32 = std::env::var("POPFIT_KILLS").map_or(10, |n| n.parse().unwrap());
    for extension in ["parquet", "fits", "csv"] {
        let reference = folder.path().join(format!("whole.{extension}"));
        let begin = Instant::now();
        succeed(&reference, &[]);
        let whole = begin.elapsed();
        let expected = std::fs::read(&reference).unwrap();
        let (mut resumed, out) = (0, folder.path().join(format!("out.{extension}")));
        let journal = folder.path().join(format!(".out.{extension}.journal"));
        for k in 0..kills.div_ceil(3) {
            // spread over the run, the end included
            let moment = whole.mul_f64(f64::from(k * 7 % kills.max(1)) / f64::from(kills) + 0.05);
            let mut child = command(&out, &[]).spawn().unwrap();
            std::thread::sleep(moment.max(Duration::from_millis(5)));
            child.kill().unwrap();
            child.wait().unwrap();
            resumed += u32::from(std::fs::metadata(&journal).is_ok_and(|file| file.len() > 1000));
            // killed again, on its way back
            if k % 2 == 1 {
                let mut child = command(&out, &["--resume"]).spawn().unwrap();
                std::thread::sleep(moment / 2);
                child.kill().unwrap();
                child.wait().unwrap();
            }
            succeed(&out, &["--resume"]);
            assert!(std::fs::read(&out).unwrap() == expected, "{extension}, killed after {moment:?}: other bytes");
            std::fs::remove_file(&out).unwrap();
            assert_eq!(names(folder.path()), [reference.file_name().unwrap().to_str().unwrap()]);
        }
        println!("{extension}: {resumed} of {} resumed with rows", kills.div_ceil(3));
        assert!(resumed > 0, "no kill came between two savepoints");
        std::fs::remove_file(&reference).unwrap();
    }
}

#[test]
fn what_is_not_its_own_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.csv");
    let journal = folder.path().join(".out.csv.journal");
    // killed when the journal holds rows
    let mut child = command(&out, &[]).spawn().unwrap();
    while std::fs::metadata(&journal).map_or(0, |file| file.len()) < 1000 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let second = run(&out, &["--resume"]);
    let second_said = String::from_utf8_lossy(&second.stderr).into_owned();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(second.status.code(), Some(2), "{second_said}");
    assert!(second_said.contains("out.csv: OutputLocked"), "{second_said}");
    let before = std::fs::read(&journal).unwrap();
    for (more, said) in [
        (&[][..], "give --resume to go on, or remove it"),
        (&["--resume", "--starts", "1"], "it is of another run"),
        (&["--resume", "--seed", "9"], "it is of another run"),
    ] {
        let output = run(&out, more);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(".out.csv.journal") && message.contains(said), "{more:?}: {message}");
        assert!(!out.exists() && std::fs::read(&journal).unwrap() == before, "{more:?}: nothing is touched");
    }
    succeed(&out, &["--resume"]);
    assert_eq!(names(folder.path()), ["out.csv"]);
}
