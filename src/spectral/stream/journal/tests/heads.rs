//! The head of a journal, and its end.

use super::*;

/// The head is there twice: a journal with one of them is continued, and has both again.
#[test]
fn either_copy_of_the_head_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out.csv");
    let path = beside(&target);
    let mut journal = Journal::open(&target, KEY, false).unwrap();
    let both = journal.file.length().unwrap() as usize;
    journal
        .keep(0, fingerprint(&spectra(1.0)), &rows(WHOLE), "cpu")
        .unwrap();
    drop(journal);
    let whole = fs::read(&path).unwrap();
    let resumed = |bytes: &[u8], what: &str| {
        fs::write(&path, bytes).unwrap();
        let journal = Journal::open(&target, KEY, true).unwrap();
        assert_eq!(journal.len(), 1, "{what}");
        let damage = journal.damage().unwrap_or_default().to_string();
        assert!(
            damage.contains("one copy of its head is damaged, and is written again"),
            "{what}: {damage:?}"
        );
        drop(journal);
        assert!(fs::read(&path).unwrap() == whole, "{what}");
    };
    for at in 0..both {
        // a version that is another by one bit is no older one
        let bits = if at < MAGIC.len() {
            0..8
        } else {
            at % 8..at % 8 + 1
        };
        for bit in bits {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            resumed(&bytes, &format!("bit {bit} of byte {at}"));
        }
    }
    for lost in [0..both / 2, both / 2..both] {
        let mut bytes = whole.clone();
        bytes[lost].fill(0);
        resumed(&bytes, "a copy of zeros");
    }
    let mut bytes = whole.clone();
    bytes[..both].fill(0);
    fs::write(&path, &bytes).unwrap();
    assert!(refused(Journal::open(&target, KEY, true)).contains("no journal"));
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

/// Rows of two instruction sets differ in their last bits: a table has those of one.
#[test]
fn rows_of_another_instruction_set_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out.csv");
    let open = |set: &str, key: &str, resume: bool| Journal::open_on(set, &target, key, resume);
    let mut journal = open("x86_64-v3", KEY, false).unwrap();
    journal
        .keep(0, fingerprint(&spectra(1.0)), &rows(WHOLE), "cpu")
        .unwrap();
    drop(journal);
    let said = refused(open("x86_64-v4", KEY, true));
    for part in [
        "instruction set x86_64-v3",
        "this processor has x86_64-v4",
        "remove this file to begin anew",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(
        refused(open("x86_64-v4", "version = 2", true))
            .contains("of another run: it has `version = 1`")
    );
    assert_eq!(open("x86_64-v3", KEY, true).unwrap().len(), 1);
}

/// Whoever ends a run is told that its journal could not be removed.
#[test]
fn a_journal_that_cannot_be_removed_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out.csv");
    let journal = Journal::open(&target, KEY, false).unwrap();
    // other tests remove files at the same time
    let here = std::thread::current().id();
    let hook = faults::install(Box::new(move |operation| {
        let is_mine = operation == faults::Operation::Remove && std::thread::current().id() == here;
        is_mine.then(|| std::io::Error::other("no file is removed here"))
    }));
    let removed = journal.remove();
    drop(hook);
    match removed {
        Err(Error::Io { path, source }) => {
            assert_eq!(
                (path, source.to_string()),
                (beside(&target), "no file is removed here".into())
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(Journal::is_beside(&target));
}
