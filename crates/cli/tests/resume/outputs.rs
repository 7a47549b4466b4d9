//! A run's outputs in adversity: other runs, full disks, links, folders that go or cannot be written.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use super::{
    HEAD, REPORT, command, data, journal, message, names, run, succeed, until_it_has_rows,
};

/// Stops a process, and waits until it stands still: a signal that is sent has not yet arrived.
#[cfg(unix)]
fn stop(process: &Child) {
    let id = process.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-STOP", &id])
            .status()
            .unwrap()
            .success()
    );
    let state = || {
        Command::new("ps")
            .args(["-o", "state=", "-p", &id])
            .output()
            .unwrap()
            .stdout
    };
    while !matches!(state().trim_ascii_start().first(), None | Some(b'T' | b'Z')) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Neither its table, nor the models beside that, nor its page.
#[cfg(unix)]
#[test]
fn no_second_run_writes_what_one_is_writing() {
    /// An output and the options of its run.
    type Run = (&'static str, &'static [&'static str]);
    const MODELS: Run = ("rvtab_1.fits", &["--format", "rvtab"]);
    const TABLE: Run = ("rvmod_1.fits", &[]);
    let page = |out| -> Run { (out, &["--report", REPORT]) };
    let cases = [
        (MODELS, TABLE, "rvmod_1.fits"),
        (TABLE, MODELS, "rvmod_1.fits"),
        (page("a.csv"), page("b.csv"), "index.html"),
    ];
    for ((one, of_one), (other, of_other), locked) in cases {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page").display().to_string();
        let start = |out: &str, more: &[&str]| {
            let more: Vec<&str> = more
                .iter()
                .map(|word| if *word == REPORT { &page } else { *word })
                .collect();
            // what an earlier try has brought to its end is replaced
            command(
                &data(""),
                &folder.path().join(out),
                &[&more[..], &["--overwrite"]].concat(),
            )
        };
        let writes = |name: &str| name.starts_with(&format!(".{locked}.tmp-"));
        let place = if locked == "index.html" {
            Path::new(&page)
        } else {
            folder.path()
        };
        // the run holds the lock of the file that it writes
        let is_locked = || {
            let written = place
                .is_dir()
                .then(|| names(place))
                .into_iter()
                .flatten()
                .find(|name| writes(name));
            let file = written.and_then(|name| File::open(place.join(name)).ok());
            file.is_some_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
        };
        // one that is stopped while it writes: it may have come to its end before
        let stopped = || {
            let mut run = start(one, of_one).spawn().unwrap();
            while !is_locked() && run.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop(&run);
            if is_locked() {
                return Some(run);
            }
            run.kill().unwrap();
            run.wait().unwrap();
            None
        };
        let mut first = (0..20).find_map(|_| stopped()).expect("a run that writes");
        let before = (names(folder.path()), names(place));
        let second = start(other, of_other).output().unwrap();
        let after = (names(folder.path()), names(place));
        first.kill().unwrap();
        first.wait().unwrap();
        assert_eq!(second.status.code(), Some(2), "{}", message(&second));
        assert!(
            message(&second).contains(&format!("{locked}: another run is writing this file")),
            "{}",
            message(&second)
        );
        assert_eq!(before, after, "it leaves nothing");
        // who was killed is in nobody's way
        let third = start(other, of_other).output().unwrap();
        assert_eq!(third.status.code(), Some(0), "{}", message(&third));
        let left = names(place).iter().filter(|name| writes(name)).count();
        assert_eq!(left, 0, "{:?}", names(place));
    }
}

/// Runs what follows with files of at most so many blocks; a write beyond that is an error, not a signal.
#[cfg(unix)]
fn limited(blocks: u32) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\""])
        .arg(blocks.to_string());
    shell
}

/// A disk with little room, as a limit on the size of files makes one: an old table stays, and with more room the run
/// goes on.
#[cfg(unix)]
fn little_room(name: &str, old: Option<&[u8]>, step: u32) {
    let folder = tempfile::tempdir().unwrap();
    let [whole, out] = ["whole", "out"].map(|stem| folder.path().join(format!("{stem}.{name}")));
    let hidden = format!(".out.{name}.journal");
    succeed(&whole, &[]);
    let expected = std::fs::read(&whole).unwrap();
    std::fs::remove_file(&whole).unwrap();
    let mut had_rows = 0;
    for blocks in std::iter::once(0).chain((0..).map(|k| 1 << (step * k))) {
        old.iter()
            .for_each(|old| std::fs::write(&out, old).unwrap());
        let inner = command(
            &data(""),
            &out,
            if old.is_some() { &["--overwrite"] } else { &[] },
        );
        let output = limited(blocks)
            .arg(inner.get_program())
            .args(inner.get_args())
            .output()
            .unwrap();
        if output.status.success() {
            assert!(std::fs::read(&out).unwrap() == expected);
            break;
        }
        let (said, has_rows) = (message(&output), journal(&out).1 > HEAD);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let lines: Vec<&str> = said
            .lines()
            .filter(|line| !line.contains("XDG_RUNTIME_DIR"))
            .collect();
        let failed = [name, &format!("{name}.journal")]
            .map(|end| format!("{end}: cannot be written: File too large (os error 27)"));
        assert!(
            failed.iter().any(|failed| lines[0].ends_with(failed)),
            "{said}"
        );
        let now = if old.is_some() {
            "is as it was"
        } else {
            "was not written"
        };
        assert_eq!(
            (lines.len() - 1, said.contains(now)),
            (usize::from(has_rows), has_rows),
            "{said}"
        );
        assert_eq!(std::fs::read(&out).ok().as_deref(), old, "{blocks} blocks");
        let left: Vec<String> = names(folder.path())
            .into_iter()
            .filter(|name| *name != hidden)
            .collect();
        assert_eq!(
            left.len(),
            usize::from(old.is_some()),
            "{blocks} blocks: {left:?}"
        );
        if !has_rows {
            continue;
        }
        had_rows += 1;
        succeed(&out, &["--resume"]);
        assert!(
            std::fs::read(&out).unwrap() == expected,
            "{blocks} blocks: other bytes"
        );
        assert_eq!(names(folder.path()), [format!("out.{name}")]);
        std::fs::remove_file(&out).unwrap();
    }
    assert!(had_rows > 0, "no run was stopped between two savepoints");
}

#[cfg(unix)]
#[test]
fn a_full_disk_costs_nothing() {
    little_room("fits", Some(b"old"), 2);
    little_room("parquet", None, 2);
    little_room("csv", None, 4);
}

/// Other commands write, too: 1, in plain words, and no half of a file.
#[cfg(unix)]
#[test]
fn pages_pictures_and_scripts_that_do_not_fit_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let table = path("table.parquet");
    succeed(Path::new(&table), &["--starts", "1"]);
    let cases: [(&[&str], String); 3] = [
        (&["report", &table, "--output"], path("page.html")),
        (&["compare", &table, &table, "--plot"], path("picture.svg")),
        (&["import", "rvspecfit", "--script"], path("script.py")),
    ];
    for (arguments, file) in cases {
        let arguments = [arguments, &[file.as_str()]].concat();
        let output = limited(0)
            .arg(env!("CARGO_BIN_EXE_popfit"))
            .args(&arguments)
            .output()
            .unwrap();
        let said = message(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        let expected = format!("popfit: {file}: cannot be written: File too large (os error 27)");
        assert!(
            said.trim_end().ends_with(&expected),
            "{arguments:?}: {said}"
        );
        assert_eq!(names(folder.path()), ["table.parquet"], "{arguments:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_written_is_told() {
    let output = run(Path::new("/proc/out.csv"), &[]);
    assert!(
        output.status.code() == Some(2) && message(&output).contains("/proc/out.csv"),
        "{}",
        message(&output)
    );
    // each is blamed for what is its own
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".out.csv.journal")).unwrap();
    std::fs::write(folder.path().join("page"), "no folder").unwrap();
    let page = folder.path().join("page").display().to_string();
    let cases: [(&str, &[&str], &str); 2] = [
        (
            "out.csv",
            &[],
            ".out.csv.journal: cannot be written: this is a folder, not a file",
        ),
        ("a.csv", &["--report", &page], "page is a file"),
    ];
    for (out, more, said) in cases {
        let output = run(&folder.path().join(out), more);
        assert!(
            output.status.code() == Some(2) && message(&output).contains(said),
            "{}",
            message(&output)
        );
    }
    assert_eq!(names(folder.path()), [".out.csv.journal", "page"]);
}

/// A link stays; the table goes where it points to, whether there is one or not. A folder that goes takes the journal
/// along.
#[cfg(unix)]
#[test]
fn links_are_followed_and_lost_journals_not_promised() {
    let folder = tempfile::tempdir().unwrap();
    let [link, real, gone] = ["link.csv", "real.csv", "gone"].map(|name| folder.path().join(name));
    std::os::unix::fs::symlink("real.csv", &link).unwrap();
    for more in [&[][..], &["--overwrite"]] {
        succeed(&link, &[&["--starts", "1"], more].concat());
        assert!(
            link.is_symlink()
                && !real.is_symlink()
                && std::fs::metadata(&real).unwrap().len() > 1000
        );
        assert_eq!(names(folder.path()), ["link.csv", "real.csv"]);
    }
    // one that leads to itself leads nowhere
    let itself = folder.path().join("loop.csv");
    std::os::unix::fs::symlink("loop.csv", &itself).unwrap();
    let output = run(&itself, &[]);
    assert!(
        output.status.code() == Some(2) && message(&output).contains("symbolic links"),
        "{}",
        message(&output)
    );
    assert!(itself.is_symlink() && names(folder.path()) == ["link.csv", "loop.csv", "real.csv"]);
    std::fs::create_dir(&gone).unwrap();
    let child = until_it_has_rows(&data(""), &gone.join("out.csv"), &[]);
    std::fs::remove_dir_all(&gone).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        !output.status.success()
            && message(&output).contains("out.csv: cannot be written: the folder "),
        "{}",
        message(&output)
    );
    assert!(
        !message(&output).contains("--resume"),
        "{}",
        message(&output)
    );
}

/// A file that took an output's name after the run was killed is nobody's to replace.
#[test]
fn another_files_name_is_not_taken_by_a_resumed_run() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, out] = ["whole.csv", "out.csv"].map(|name| folder.path().join(name));
    succeed(&whole, &[]);
    let report = folder.path().join("report");
    let more = ["--report", report.to_str().unwrap()];
    let mut child = until_it_has_rows(&data(""), &out, &more);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        !out.exists(),
        "the run came to its end too soon to be killed"
    );
    let page = report.join("index.html");
    for foreign in [&out, &page] {
        std::fs::write(foreign, "foreign").unwrap();
        let refused = run(&out, &[&more[..], &["--resume"]].concat());
        assert_eq!(refused.status.code(), Some(2), "{}", message(&refused));
        let said = format!(
            "{}: this file is not of the interrupted run",
            foreign.display()
        );
        assert!(message(&refused).contains(&said), "{}", message(&refused));
        assert_eq!(std::fs::read(foreign).unwrap(), b"foreign");
        assert!(journal(&out).1 > HEAD, "what was fitted is still kept");
        std::fs::remove_file(foreign).unwrap();
    }
    std::fs::write(&out, "foreign").unwrap();
    succeed(&out, &[&more[..], &["--resume", "--overwrite"]].concat());
    assert!(
        std::fs::read(&out).unwrap() == std::fs::read(&whole).unwrap(),
        "other bytes"
    );
    assert!(page.exists() && !journal(&out).0.exists());
}

/// What only its owner could read stays so when it is replaced.
#[cfg(unix)]
#[test]
fn a_replaced_file_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.csv");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    std::fs::write(&out, "old").unwrap();
    for access in [0o600, 0o640, 0o666] {
        std::fs::set_permissions(&out, std::fs::Permissions::from_mode(access)).unwrap();
        succeed(&out, &["--starts", "1", "--overwrite"]);
        assert_eq!(mode(&out), access);
    }
}
