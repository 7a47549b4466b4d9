//! SQLite's way: the k-th operation on a file, or reservation of memory, fails once, or from then on, for k = 1, 2, 3,
//! … until a run passes untouched. After each: no panic, nothing left, the old output as it was, and `--resume` gives
//! the reference's bytes.

mod kinds;
mod place;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kinds::{KINDS, Kind, Seen, calm};
use place::{Ended, FORMATS, OLD, Place, held};
use popfit::low_level::faults::{Operation, install};
use popfit::{Error, Result};

fn run(place: &Place, resume: bool, cancel: &Arc<AtomicBool>) -> Result<Ended> {
    place.run(resume, cancel, &Arc::default())
}

/// Returns the outputs of a run without faults.
fn reference(place: &Place) -> Vec<Vec<u8>> {
    place.reset();
    let _calm = calm();
    assert_eq!(run(place, false, &Arc::default()).unwrap(), Ended::Whole);
    assert!(place.others().is_empty(), "{:?}", place.others());
    place.read()
}

/// Checks what a run that met a fault has left.
fn check(
    place: &Place,
    kind: &Kind,
    result: &Result<Ended>,
    seen: &Seen,
    expected: &[Vec<u8>],
    what: &str,
) {
    let found = place.read();
    let hit = seen.hit.unwrap();
    match result {
        Ok(Ended::Whole) => assert!(found == expected, "{what}: other bytes"),
        Ok(Ended::Interrupted) => assert!(kind.code.is_none() && found[0] != OLD, "{what}"),
        Err(error) => {
            let message = error.to_string();
            match kind.code {
                Some(_) if hit == Operation::Allocate => {
                    assert!(
                        matches!(error, Error::OutOfMemory { .. }) && kind.lasts,
                        "{what}: {message}"
                    );
                }
                Some(code) => assert!(
                    message.contains(&format!("(os error {code})")),
                    "{what}: {message}"
                ),
                None => panic!("{what}: {message}"),
            }
            // behind the last rename there is no way back, which is told; the table is renamed last
            let settled = !matches!(error, Error::Unsettled { .. });
            assert_eq!(
                !settled,
                found[0] == expected[0] && hit == Operation::SyncFolder,
                "{what}: {message}"
            );
            let published = found[0] == expected[0] && hit == Operation::SyncFolder;
            assert!(
                published || found[0] == OLD,
                "{what}: the old table has changed"
            );
            // two files are not renamed at once: on a disk that fails for good the first one stays
            let others_old = found[1..].iter().all(|bytes| bytes == OLD);
            assert!(
                published || others_old || (kind.lasts && found[1..] == expected[1..]),
                "{what}"
            );
        }
    }
    let left = place.others();
    let temporary = left.iter().filter(|name| name.contains(".tmp-")).count();
    assert!(
        temporary <= seen.kept,
        "{what}: {left:?}, {} could not be removed",
        seen.kept
    );
    assert!(left.len() <= temporary + 1, "{what}: {left:?}");
}

/// Runs that resume find everything that they need, and leave nothing.
fn resume(place: &Place, expected: &[Vec<u8>], what: &str) {
    let _calm = calm();
    // what this process could not remove, the next one does: `a_killed_process_is_swept_behind`
    for name in place.others().iter().filter(|name| name.contains(".tmp-")) {
        std::fs::remove_file(place.folder.path().join(name)).unwrap();
    }
    assert_eq!(
        run(place, true, &Arc::default()).unwrap(),
        Ended::Whole,
        "{what}"
    );
    assert!(
        place.read() == expected,
        "{what}: other bytes after --resume"
    );
    assert!(place.others().is_empty(), "{what}: {:?}", place.others());
}

/// Threads that read ahead end soon, not at once.
fn no_leak(before: (usize, usize), what: &str) {
    let begin = Instant::now();
    while held() > before {
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "{what}: {:?} open files and threads, {before:?}",
            held()
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Lets each operation fail in turn. Returns the number of faults that were met.
fn survive(outputs: &[&str], kind: &Kind) -> u64 {
    let place = Place::new(outputs, outputs == FORMATS[0]);
    let expected = reference(&place);
    let before = held();
    for k in 1.. {
        let what = format!("{}, {} at {k}", outputs[0], kind.name);
        place.reset();
        let cancel = Arc::default();
        let (hook, seen) = kind.arm(k, &cancel);
        let result = run(&place, false, &cancel);
        drop(hook);
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        if seen.hit.is_none() {
            assert!(
                result.is_ok_and(|ended| ended == Ended::Whole) && place.read() == expected,
                "{what}"
            );
            return k - 1;
        }
        check(
            &place,
            kind,
            &result,
            &seen,
            &expected,
            &format!("{what} ({:?})", seen.hit),
        );
        if kind.name == "try again" || kind.name == "no memory" {
            assert!(result.is_ok(), "{what}: {result:?}");
        }
        no_leak(before, &what);
        resume(&place, &expected, &what);
    }
    unreachable!()
}

#[test]
fn whatever_fails_nothing_is_lost() {
    let mut all = 0;
    for outputs in FORMATS {
        for kind in &KINDS {
            let begin = Instant::now();
            let met = survive(outputs, kind);
            println!(
                "{:<12} {:<22} {met:>4} faults {:>6.2} s",
                outputs[0],
                kind.name,
                begin.elapsed().as_secs_f64()
            );
            assert!(met > 0, "{}: {} was never met", outputs[0], kind.name);
            all += met;
        }
    }
    println!("{all} faults");
}

/// Rows 33 and 34: a place that cannot be written is told before the first fit.
#[test]
fn a_folder_that_cannot_be_written_costs_no_fit() {
    for outputs in FORMATS {
        let place = Place::new(outputs, false);
        place.reset();
        let told: Arc<AtomicU64> = Arc::default();
        let _hook = install(Box::new(|operation| {
            (operation == Operation::Create).then(|| std::io::Error::from_raw_os_error(30))
        }));
        let error = place.run(false, &Arc::default(), &told).unwrap_err();
        assert!(
            matches!(&error, Error::Io { path, .. } if *path == place.outputs[0]),
            "{error}"
        );
        assert_eq!(told.load(Ordering::Relaxed), 0);
        assert!(place.others().is_empty() && place.read().iter().all(|bytes| bytes == OLD));
    }
}

/// A temporary file that nobody holds is removed by the next run; one that is held, beside any of the outputs, is
/// another run's.
#[test]
fn a_killed_process_is_swept_behind() {
    let _calm = calm();
    for outputs in FORMATS {
        let place = Place::new(outputs, false);
        place.reset();
        let name = |output: &std::path::PathBuf, process: &str| {
            output.with_file_name(format!(
                ".{}.tmp-{process}",
                output.file_name().unwrap().to_string_lossy()
            ))
        };
        for output in &place.outputs {
            std::fs::write(name(output, "1-1c0ffee-0"), b"left").unwrap();
        }
        let last = place.outputs.last().unwrap();
        let held = name(last, "2-1c0ffee-0");
        let other = std::fs::File::create(&held).unwrap();
        other.lock().unwrap();
        let refused = run(&place, false, &Arc::default());
        assert!(
            matches!(&refused, Err(Error::OutputLocked { path }) if path == last),
            "{refused:?}"
        );
        assert!(place.read().iter().all(|bytes| bytes == OLD));
        assert_eq!(
            place.others(),
            [held.file_name().unwrap().to_string_lossy()]
        );
        drop(other);
        assert_eq!(run(&place, false, &Arc::default()).unwrap(), Ended::Whole);
        assert!(place.others().is_empty(), "{:?}", place.others());
    }
}

/// A file that takes an output's name while the output is flushed is nobody's to replace, and a temporary file that is
/// none is left alone.
#[test]
fn what_another_process_puts_there_meanwhile_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    let (target, mut is_first) = (path.clone(), true);
    let hook = install(Box::new(move |operation| {
        if operation == Operation::Sync && std::mem::take(&mut is_first) {
            std::fs::write(&target, "precious").unwrap();
        }
        None
    }));
    let written = popfit::OutputFile::create(&path, false).and_then(|file| file.write("new"));
    drop(hook);
    assert!(
        matches!(written, Err(Error::OutputExists { .. })),
        "{written:?}"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    // no other test's faults meet what follows
    let _calm = calm();
    #[cfg(unix)]
    {
        let (elsewhere, link) = (
            folder.path().join("elsewhere"),
            folder.path().join(".page.html.tmp-1-1-1"),
        );
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        popfit::OutputFile::create(&path, true)
            .and_then(|file| file.write("new"))
            .unwrap();
        assert!(!elsewhere.exists() && link.is_symlink());
        std::fs::write(&elsewhere, "kept").unwrap();
        popfit::OutputFile::create(&path, true)
            .and_then(|file| file.write("newer"))
            .unwrap();
        assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "kept");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "newer");
    }
}
