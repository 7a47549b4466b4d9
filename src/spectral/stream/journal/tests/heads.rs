//! Tests of the head of a journal, and of its removal.

use super::*;

/// A journal with one whole copy of the head is continued, and has both again.
#[test]
fn either_copy_of_the_head_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out.csv");
    let path = journal_path(&target);
    let mut journal = Journal::open(&target, KEY, false).unwrap();
    let both = journal.file.length().unwrap() as usize;
    journal
        .keep_rows(0, fingerprint(&spectra(1.0)), &rows(WHOLE), "cpu")
        .unwrap();
    drop(journal);
    let whole = fs::read(&path).unwrap();
    let resume_from = |bytes: &[u8], case: &str| {
        fs::write(&path, bytes).unwrap();
        let journal = Journal::open(&target, KEY, true).unwrap();
        assert_eq!(journal.len(), 1, "{case}");
        let damage = journal.damage().unwrap_or_default().to_string();
        assert!(
            damage.contains("one copy of its head is damaged, and is written again"),
            "{case}: {damage:?}"
        );
        drop(journal);
        assert!(fs::read(&path).unwrap() == whole, "{case}");
    };
    for byte in 0..both {
        // Every bit of the version is changed, because an older version differs from it in few.
        let bits = if byte < JOURNAL_MAGIC.len() {
            0..8
        } else {
            byte % 8..byte % 8 + 1
        };
        for bit in bits {
            let mut bytes = whole.clone();
            bytes[byte] ^= 1 << bit;
            resume_from(&bytes, &format!("bit {bit} of byte {byte}"));
        }
    }
    for lost in [0..both / 2, both / 2..both] {
        let mut bytes = whole.clone();
        bytes[lost].fill(0);
        resume_from(&bytes, "a copy of zeros");
    }
    let mut bytes = whole.clone();
    bytes[..both].fill(0);
    fs::write(&path, &bytes).unwrap();
    assert!(refusal_of(Journal::open(&target, KEY, true)).contains("no journal"));
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

/// Rows of two instruction sets differ in their last bits, so a table has only those of one.
#[test]
fn rows_of_another_instruction_set_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out.csv");
    let open = |set: &str, key: &str, resume: bool| Journal::open_on(set, &target, key, resume);
    let mut journal = open("x86_64-v3", KEY, false).unwrap();
    journal
        .keep_rows(0, fingerprint(&spectra(1.0)), &rows(WHOLE), "cpu")
        .unwrap();
    drop(journal);
    let message = refusal_of(open("x86_64-v4", KEY, true));
    for part in [
        "instruction set x86_64-v3",
        "this processor has x86_64-v4",
        "remove this file to begin anew",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(
        refusal_of(open("x86_64-v4", "version = 2", true))
            .contains("of another run: it has `version = 1`")
    );
    assert_eq!(open("x86_64-v3", KEY, true).unwrap().len(), 1);
}

/// The end of a run fails if its journal cannot be removed.
#[test]
fn a_journal_that_cannot_be_removed_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out.csv");
    let journal = Journal::open(&target, KEY, false).unwrap();
    // Other tests remove files at the same time.
    let this_thread = std::thread::current().id();
    let hook = faults::install(Box::new(move |operation| {
        let is_mine =
            operation == faults::Operation::Remove && std::thread::current().id() == this_thread;
        is_mine.then(|| std::io::Error::other("no file is removed here"))
    }));
    let removed = journal.remove();
    drop(hook);
    match removed {
        Err(Error::Io { path, source }) => {
            assert_eq!(
                (path, source.to_string()),
                (journal_path(&target), "no file is removed here".into())
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(Journal::is_beside(&target));
}
