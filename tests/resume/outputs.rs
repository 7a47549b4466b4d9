//! What happens to a run's outputs: other runs, full disks, links, folders that go or cannot be written.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{HEAD, REPORT, command, data, journal, message, names, run, succeed, until_it_has_rows};

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
            let more: Vec<&str> = more.iter().map(|word| if *word == REPORT { &page } else { *word }).collect();
            command(&data(""), &folder.path().join(out), &more)
        };
        let mut first = start(one, of_one).spawn().unwrap();
        let writes = |name: &str| name.starts_with(&format!(".{locked}.tmp-"));
        let place = if locked == "index.html" { Path::new(&page) } else { folder.path() };
        while !(place.is_dir() && names(place).iter().any(|name| writes(name))) {
            assert!(first.try_wait().unwrap().is_none(), "{one} came to its end before");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(Command::new("kill").args(["-STOP", &first.id().to_string()]).status().unwrap().success());
        let before = (names(folder.path()), names(place));
        let second = start(other, of_other).output().unwrap();
        let after = (names(folder.path()), names(place));
        first.kill().unwrap();
        first.wait().unwrap();
        assert_eq!(second.status.code(), Some(2), "{}", message(&second));
        assert!(message(&second).contains(&format!("{locked}: OutputLocked")), "{}", message(&second));
        assert_eq!(before, after, "it leaves nothing");
        // who was killed is in nobody's way
        let third = start(other, of_other).output().unwrap();
        assert_eq!(third.status.code(), Some(0), "{}", message(&third));
        let left = names(place).iter().filter(|name| writes(name)).count();
        assert_eq!(left, 0, "{:?}", names(place));
    }
}

/// A disk with little room, as a limit on the size of files makes one: the old table stays, and with more room the run goes on.
#[cfg(unix)]
#[test]
fn a_full_disk_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, out] = ["whole.fits", "out.fits"].map(|name| folder.path().join(name));
    succeed(&whole, &[]);
    let expected = std::fs::read(&whole).unwrap();
    std::fs::remove_file(&whole).unwrap();
    let mut had_rows = 0;
    for blocks in std::iter::once(0).chain((0..).map(|k| 1 << (2 * k))) {
        std::fs::write(&out, "old").unwrap();
        let inner = command(&data(""), &out, &[]);
        let mut limited = Command::new("sh");
        // a write beyond the limit is an error, not a signal
        limited.args(["-c", "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\""]).arg(blocks.to_string());
        limited.arg(inner.get_program()).args(inner.get_args());
        let output = limited.output().unwrap();
        if output.status.success() {
            assert!(std::fs::read(&out).unwrap() == expected);
            break;
        }
        assert!(matches!(output.status.code(), Some(1 | 2)), "{:?}: {}", output.status, message(&output));
        assert!(message(&output).contains("File too large"), "{}", message(&output));
        assert_eq!(std::fs::read(&out).unwrap(), b"old", "{blocks} blocks");
        let left: Vec<String> = names(folder.path()).into_iter().filter(|name| name != ".out.fits.journal").collect();
        assert_eq!(left, ["out.fits"], "{blocks} blocks");
        had_rows += u32::from(journal(&out).1 > HEAD);
        succeed(&out, &["--resume"]);
        assert!(std::fs::read(&out).unwrap() == expected, "{blocks} blocks: other bytes");
        assert_eq!(names(folder.path()), ["out.fits"]);
    }
    assert!(had_rows > 0, "no run was stopped between two savepoints");
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_written_is_told() {
    let output = run(Path::new("/proc/out.csv"), &[]);
    assert!(output.status.code() == Some(2) && message(&output).contains("/proc/out.csv"), "{}", message(&output));
    // each is blamed for what is its own
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".out.csv.journal")).unwrap();
    std::fs::write(folder.path().join("page"), "no folder").unwrap();
    let page = folder.path().join("page").display().to_string();
    let cases: [(&str, &[&str], &str); 2] =
        [("out.csv", &[], ".out.csv.journal: Is a directory"), ("a.csv", &["--report", &page], "page is a file")];
    for (out, more, said) in cases {
        let output = run(&folder.path().join(out), more);
        assert!(output.status.code() == Some(2) && message(&output).contains(said), "{}", message(&output));
    }
    assert_eq!(names(folder.path()), [".out.csv.journal", "page"]);
}

/// A link stays; the table goes where it points to, whether there is one or not. A folder that goes takes the journal along.
#[cfg(unix)]
#[test]
fn links_are_followed_and_lost_journals_not_promised() {
    let folder = tempfile::tempdir().unwrap();
    let [link, real, gone] = ["link.csv", "real.csv", "gone"].map(|name| folder.path().join(name));
    std::os::unix::fs::symlink("real.csv", &link).unwrap();
    for _ in 0..2 {
        succeed(&link, &["--starts", "1"]);
        assert!(link.is_symlink() && !real.is_symlink() && std::fs::metadata(&real).unwrap().len() > 1000);
        assert_eq!(names(folder.path()), ["link.csv", "real.csv"]);
    }
    std::fs::create_dir(&gone).unwrap();
    let child = until_it_has_rows(&data(""), &gone.join("out.csv"), &[]);
    std::fs::remove_dir_all(&gone).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success() && message(&output).contains("out.csv: No such file"), "{}", message(&output));
    assert!(!message(&output).contains("--resume"), "{}", message(&output));
}
