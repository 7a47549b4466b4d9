//! A run that is killed goes on where it was, and ends with the bytes of one that was not; a run that is not its own is
//! refused.

mod damage;
mod outputs;

use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use popfit_testing::{demo_file as data, message};
use sha2::{Digest, Sha256};

/// With batches of a file's spectra: so many savepoints.
const FILES: usize = 10;
const BATCH: &str = "64";
/// On a GPU, which may be the processor's emulation of one.
const FILES_OF_GPU: usize = 4;

/// Fits the files of the folder `inputs`.
fn command(inputs: &Path, out: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_popfit"));
    let spectra = inputs.join("spectra.npz");
    let (device, files): (&[&str], _) = if more.contains(&"--device") {
        (&[], FILES_OF_GPU)
    } else {
        (&["--device", "cpu"], FILES)
    };
    command
        .arg("fit")
        .arg(inputs.join("model.toml"))
        .args(std::iter::repeat_n(spectra, files));
    command
        .args(device)
        .args(["--batch", BATCH, "--quiet", "-o"])
        .arg(out)
        .args(more);
    command.stderr(Stdio::piped());
    command
}

fn run(out: &Path, more: &[&str]) -> Output {
    command(&data(""), out, more).output().unwrap()
}

fn succeed(out: &Path, more: &[&str]) {
    let output = run(out, more);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn names(folder: &Path) -> Vec<String> {
    let mut all: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    all.sort();
    all
}

/// The journal of an output, and how long it is.
fn journal(out: &Path) -> (PathBuf, u64) {
    let path = out.with_file_name(format!(
        ".{}.journal",
        out.file_name().unwrap().to_string_lossy()
    ));
    let length = std::fs::metadata(&path).map_or(0, |file| file.len());
    (path, length)
}

/// Longer than its head: it holds rows.
const HEAD: u64 = 5000;

/// A run whose journal holds rows, if it has not come to its end before.
fn until_it_has_rows(inputs: &Path, out: &Path, more: &[&str]) -> Child {
    let mut child = command(inputs, out, more).spawn().unwrap();
    let mut before = 0;
    while child.try_wait().unwrap().is_none() {
        // a record that is still being written may be lost when the run is killed
        let length = journal(out).1;
        if length >= HEAD && length == before {
            break;
        }
        before = length;
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

/// A file's bytes; of the report's page without its time, which nobody can repeat.
fn contents(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    if path.extension().is_none_or(|extension| extension != "html") {
        return bytes;
    }
    let text = String::from_utf8(bytes).unwrap();
    let end = text.find("spectra per second").unwrap();
    let begin = text[..end].rfind("<div").unwrap();
    let rest = &text[end..];
    format!(
        "{}{}",
        &text[..begin],
        &rest[rest.find(" s in all").unwrap()..]
    )
    .into_bytes()
}

/// Stands for a folder of its own.
const REPORT: &str = "REPORT";
/// Stands for the file `models.fits` beside the output.
const MODELS: &str = "MODELS";

/// Runs with an output under the name `out`, killed at `kills` moments and taken up again.
fn kill_and_resume(out: &str, others: &[&str], more: &[&'static str], kills: u32) {
    let folder = tempfile::tempdir().unwrap();
    let [whole, killed] = ["whole", "killed"].map(|name| folder.path().join(name));
    for place in [&whole, &killed] {
        std::fs::create_dir(place).unwrap();
    }
    let start = |place: &Path, resume: &[&str]| {
        let report = place.join("report").display().to_string();
        let models = place.join("models.fits").display().to_string();
        let named = |word: &&'static str| match *word {
            REPORT => report.clone(),
            MODELS => models.clone(),
            other => other.to_string(),
        };
        let more: Vec<String> = more.iter().map(named).collect();
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        command(&data(""), &place.join(out), &[&more, resume].concat())
    };
    let finish = |place: &Path, resume: &[&str]| {
        let output = start(place, resume).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", message(&output));
    };
    let begin = Instant::now();
    finish(&whole, &[]);
    let length = begin.elapsed();
    let mut resumed = 0;
    for k in 0..kills {
        // spread over the run, in no order
        let mut moment = length.mul_f64(0.02 + 0.96 * (0.5 + f64::from(k) * 0.618_034).fract());
        loop {
            let mut child = start(&killed, &[]).spawn().unwrap();
            std::thread::sleep(moment);
            let is_running = child.try_wait().unwrap().is_none();
            child.kill().unwrap();
            child.wait().unwrap();
            if is_running {
                break;
            }
            std::iter::once(&out)
                .chain(others)
                .for_each(|name| std::fs::remove_file(killed.join(name)).unwrap());
            moment = moment.mul_f64(0.7);
        }
        resumed += u32::from(journal(&killed.join(out)).1 > HEAD);
        // killed again, on its way back
        if k % 2 == 1 {
            let mut child = start(&killed, &["--resume"]).spawn().unwrap();
            std::thread::sleep(moment / 2);
            child.kill().unwrap();
            child.wait().unwrap();
        }
        finish(&killed, &["--resume"]);
        for name in std::iter::once(&out).chain(others) {
            let same = contents(&killed.join(name)) == contents(&whole.join(name));
            assert!(same, "{name}, killed after {moment:?}: other bytes");
            std::fs::remove_file(killed.join(name)).unwrap();
        }
        let mut left = names(&killed);
        if left == ["report"] {
            left = names(&killed.join("report"));
        }
        assert!(left.is_empty(), "{left:?}");
    }
    println!(
        "{out} {more:?}: {length:.2?} long, killed on its way {kills} times, {resumed} times with rows"
    );
    assert!(
        kills < 3 || resumed > 0,
        "no kill came between two savepoints"
    );
}

/// `POPFIT_KILLS` says how often (50 take some minutes).
#[test]
fn a_killed_run_ends_with_the_bytes_of_one_that_was_not() {
    let kills: u32 = std::env::var("POPFIT_KILLS").map_or(10, |n| n.parse().unwrap());
    let each = kills.div_ceil(6);
    kill_and_resume("out.parquet", &[], &[], each);
    kill_and_resume("out.fits", &[], &[], each);
    kill_and_resume("out.csv", &[], &[], each);
    kill_and_resume(
        "rvtab_1.fits",
        &["rvmod_1.fits"],
        &["--format", "rvtab"],
        each,
    );
    kill_and_resume(
        "out.csv",
        &["report/index.html"],
        &["--report", REPORT],
        each,
    );
    kill_and_resume("out.parquet", &["models.fits"], &["--models", MODELS], each);
}

/// Its rows are the GPU's own, those that the journal has kept and those that are made when it goes on.
#[cfg(feature = "gpu")]
#[test]
fn a_killed_run_on_a_gpu_ends_with_the_bytes_of_one_that_was_not() {
    if popfit_testing::fits::gpu().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [whole, out] = ["whole.parquet", "out.parquet"].map(|name| folder.path().join(name));
    let on_gpu = ["--device", "gpu"];
    succeed(&whole, &on_gpu);
    let mut child = until_it_has_rows(&data(""), &out, &on_gpu);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        journal(&out).1 > HEAD && !out.exists(),
        "it came to its end before"
    );
    succeed(&out, &[&on_gpu[..], &["--resume"]].concat());
    assert!(
        std::fs::read(&out).unwrap() == std::fs::read(&whole).unwrap(),
        "other bytes"
    );
}

/// The first line of a journal's head that begins with `name` gets another value.
fn rewrite_head(path: &Path, name: &str, value: &str) {
    let bytes = std::fs::read(path).unwrap();
    let magic = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let length = u64::from_le_bytes(bytes[magic..magic + 8].try_into().unwrap()) as usize;
    let (begin, end) = (magic + 48, magic + 48 + length);
    let text = String::from_utf8(bytes[begin..end].to_vec()).unwrap();
    let line = |line: &str| {
        if line.starts_with(name) {
            format!("{name} = {value}")
        } else {
            line.to_string()
        }
    };
    let text: Vec<String> = text.lines().map(line).collect();
    let text = text.join("\n");
    let length = text.len() as u64;
    let frame = [
        &length.to_le_bytes()[..],
        &(!length).to_le_bytes(),
        &Sha256::digest(&text),
        text.as_bytes(),
    ]
    .concat();
    std::fs::write(path, [&bytes[..magic], &frame, &bytes[end..]].concat()).unwrap();
}

#[test]
fn what_is_not_its_own_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = tempfile::tempdir().unwrap();
    for name in ["model.toml", "emulator.safetensors", "spectra.npz"] {
        std::fs::copy(data(name), inputs.path().join(name)).unwrap();
    }
    let out = folder.path().join("out.csv");
    let start = |more: &[&str]| command(inputs.path(), &out, more).output().unwrap();
    let mut child = until_it_has_rows(inputs.path(), &out, &[]);
    let second = start(&["--resume"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(second.status.code(), Some(2), "{}", message(&second));
    assert!(
        message(&second).contains("out.csv: another run is writing this file"),
        "{}",
        message(&second)
    );
    let (path, _) = journal(&out);
    let before = std::fs::read(&path).unwrap();
    let refused = |more: &[&str], said: &[&str], journal: &[u8]| {
        let output = start(more);
        let text = message(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(
            text.contains(".out.csv.journal") || said.contains(&"spectra.npz"),
            "{text}"
        );
        assert!(
            !text.contains("Some(") && !text.contains(" { "),
            "not in words: {text}"
        );
        said.iter()
            .for_each(|word| assert!(text.contains(word), "{more:?}: no {word:?} in {text}"));
        assert!(
            !out.exists() && std::fs::read(&path).unwrap() == journal,
            "{more:?}: nothing is touched"
        );
    };
    refused(&[], &["resume that run, or remove this file"], &before);
    refused(
        &["--resume", "--starts", "1"],
        &["another run", "starts = auto", "starts = 1"],
        &before,
    );
    refused(
        &["--resume", "--seed", "9"],
        &["another run", "seed = 3", "seed = 9"],
        &before,
    );
    refused(
        &["--resume", "--velocity-scan", "fixed"],
        &["`velocity scan = off`", "`velocity scan = fixed`"],
        &before,
    );
    // an input changes, and is put back
    let change = |name: &str, change: &dyn Fn(&mut Vec<u8>), said: &[&str]| {
        let file = inputs.path().join(name);
        let whole = std::fs::read(&file).unwrap();
        let mut bytes = whole.clone();
        change(&mut bytes);
        std::fs::write(&file, bytes).unwrap();
        refused(&["--resume"], said, &before);
        std::fs::write(&file, whole).unwrap();
    };
    let fewer_terms = |bytes: &mut Vec<u8>| {
        *bytes = String::from_utf8(bytes.clone())
            .unwrap()
            .replace("terms = 10", "terms = 9")
            .into_bytes();
    };
    change(
        "model.toml",
        &fewer_terms,
        &["another run", "`terms = 10`", "`terms = 9`"],
    );
    let last_weight = |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1;
    change(
        "emulator.safetensors",
        &last_weight,
        &["another run", "emulator", "emulator.safetensors = "],
    );
    // whether they have been fitted or not
    for spectrum in [0, 63] {
        let other = brighter(&inputs.path().join("spectra.npz"), spectrum);
        change(
            "spectra.npz",
            &|bytes| bytes.clone_from(&other),
            &["another run", "spectra.npz = "],
        );
    }
    rewrite_head(&path, "version", "0.0.9");
    let older = std::fs::read(&path).unwrap();
    refused(
        &["--resume"],
        &[
            "another run",
            "version = 0.0.9",
            concat!("version = ", env!("CARGO_PKG_VERSION")),
        ],
        &older,
    );
    std::fs::write(&path, &before).unwrap();
    let output = start(&["--resume"]);
    assert_eq!(output.status.code(), Some(0), "{}", message(&output));
    assert_eq!(names(folder.path()), ["out.csv"]);
}

/// The folder that an input is in may be spelled in another way; the table tells the spelling of the run that ends it.
#[test]
fn the_same_files_by_another_path_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, out] = ["whole.csv", "out.csv"].map(|name| folder.path().join(name));
    assert!(command(&data("."), &whole, &[]).status().unwrap().success());
    let mut child = until_it_has_rows(&data(""), &out, &[]);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut again = command(&data("."), &out, &["--resume"]);
    let loud: Vec<_> = again
        .get_args()
        .filter(|word| *word != "--quiet")
        .map(ToOwned::to_owned)
        .collect();
    again = Command::new(env!("CARGO_BIN_EXE_popfit"));
    let output = again.args(loud).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", message(&output));
    assert!(
        std::fs::read(&out).unwrap() == std::fs::read(&whole).unwrap(),
        "other bytes"
    );
    // and what it says of itself is what it has done itself
    let text = message(&output);
    let last = text.lines().last().unwrap();
    let number = |after: &str, before: &str| -> f64 {
        let from = last
            .find(after)
            .unwrap_or_else(|| panic!("no {after:?} in {text}"))
            + after.len();
        last[from..from + last[from..].find(before).unwrap()]
            .parse()
            .unwrap()
    };
    let recalled = number("640 spectra, of which ", " from the journal: ");
    assert!((64.0..640.0).contains(&recalled), "{text}");
    let (seconds, rate) = (number("; ", " s, "), number(" s, ", " spectra/s"));
    assert!(
        (rate * seconds - (640.0 - recalled)).abs() <= 0.006 * rate + 0.06 * seconds,
        "{text}"
    );
}

/// The file's spectra, one of them brighter by a percent.
fn brighter(path: &Path, spectrum: usize) -> Vec<u8> {
    let spectra = popfit::Spectra::open(path).unwrap();
    let arm = &spectra.arms[0];
    let mut flux = arm.flux.to_double().into_owned();
    flux[spectrum * arm.pixels..][..arm.pixels]
        .iter_mut()
        .for_each(|f| *f *= 1.01);
    let popfit::spectra::Wavelength::Shared(grid) = &arm.wavelength else {
        panic!("one grid")
    };
    let shape = [spectra.len(), arm.pixels];
    popfit_testing::npz(
        &[
            ("wavelength", popfit_testing::f64s(&[arm.pixels], grid)),
            ("flux", popfit_testing::f64s(&shape, &flux)),
            ("ivar", popfit_testing::f64s(&shape, &arm.ivar.to_double())),
        ],
        false,
    )
}

/// Rows that an interrupted run has finished are not fitted again, and the table ends with the bytes of a run that was
/// not interrupted.
#[cfg(unix)]
#[test]
fn an_interrupted_run_goes_on() {
    for (signal, name) in [("-INT", "out.parquet"), ("-TERM", "out.csv")] {
        let folder = tempfile::tempdir().unwrap();
        let [whole, out] =
            ["whole", "out"].map(|stem| folder.path().join(name.replace("out", stem)));
        succeed(&whole, &[]);
        let child = until_it_has_rows(&data(""), &out, &[]);
        assert!(
            Command::new("kill")
                .args([signal, &child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", message(&output));
        assert!(
            message(&output).contains("--resume goes on"),
            "{}",
            message(&output)
        );
        let interrupted = std::fs::read(&out).unwrap();
        assert!(
            interrupted != std::fs::read(&whole).unwrap() && journal(&out).1 > HEAD,
            "{signal}"
        );
        succeed(&out, &["--resume"]);
        assert!(
            std::fs::read(&out).unwrap() == std::fs::read(&whole).unwrap(),
            "{signal}: other bytes"
        );
        let mut left =
            [&whole, &out].map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
        left.sort();
        assert_eq!(names(folder.path()), left);
    }
}

/// An older table is worth more than one of fits that were not made; and no table is made of two versions of a file.
#[cfg(unix)]
#[test]
fn an_older_table_stays() {
    let inputs = tempfile::tempdir().unwrap();
    for name in ["model.toml", "emulator.safetensors", "spectra.npz"] {
        std::fs::copy(data(name), inputs.path().join(name)).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let [whole, out] = ["whole.csv", "out.csv"].map(|name| folder.path().join(name));
    assert!(
        command(inputs.path(), &whole, &[])
            .status()
            .unwrap()
            .success()
    );
    std::fs::write(&out, "old").unwrap();
    let refused = command(inputs.path(), &out, &[]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", message(&refused));
    assert!(
        message(&refused).contains("out.csv: this file exists already"),
        "{}",
        message(&refused)
    );
    assert_eq!(names(folder.path()), ["out.csv", "whole.csv"]);
    let end = |child: Child, said: &[&str]| {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", message(&output));
        said.iter().for_each(|word| {
            assert!(
                message(&output).contains(word),
                "no {word:?} in {}",
                message(&output)
            )
        });
        assert_eq!(std::fs::read(&out).unwrap(), b"old");
        assert_eq!(
            names(folder.path()),
            [".out.csv.journal", "out.csv", "whole.csv"]
        );
    };
    let child = until_it_has_rows(inputs.path(), &out, &["--overwrite"]);
    assert!(
        Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    end(child, &["interrupted", "is as it was", "--resume goes on"]);
    // a file of the same length and time, and what is done to it while it is fitted
    let file = inputs.path().join("spectra.npz");
    let (mut bytes, last) = (
        std::fs::read(&file).unwrap(),
        std::fs::metadata(&file).unwrap().len() - 1,
    );
    let meanwhile = |change: &dyn Fn(&std::fs::File)| {
        let child = command(inputs.path(), &out, &["--resume"]).spawn().unwrap();
        while !names(folder.path())
            .iter()
            .any(|name| name.contains(".tmp"))
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        let spectra = std::fs::File::options().write(true).open(&file).unwrap();
        change(&spectra);
        spectra
            .set_modified(std::time::SystemTime::now() + Duration::from_secs(5))
            .unwrap();
        child
    };
    // the last byte of an archive is of its comment's length
    bytes[last as usize] ^= 1;
    let child = meanwhile(&|mut spectra| {
        spectra
            .seek(SeekFrom::Start(last))
            .and_then(|_| spectra.write_all(&bytes[last as usize..]))
            .unwrap();
    });
    end(
        child,
        &[
            "spectra.npz",
            "was written to or replaced while it was fitted",
        ],
    );
    bytes[last as usize] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    // one that was only touched is the same
    let output = meanwhile(&|_| {}).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", message(&output));
    assert!(std::fs::read(&out).unwrap() == std::fs::read(&whole).unwrap());
}
