use std::fs;

use crate::io::faults;

mod heads;

use super::head::{JOURNAL_MAGIC, two_copies};
use super::*;
use crate::io::output::OutputRecord as _;
use crate::solver::Status;
use crate::spectral::ExposureVelocities;

fn spectra(flux: f64) -> Spectra<'static> {
    let grid: Vec<f64> = (0..4).map(|j| 4000.0 + f64::from(j)).collect();
    Spectra::from_arrays(grid, vec![flux; 8], vec![1.0; 8], None, None).unwrap()
}

fn rows(status: [Status; 2]) -> Vec<FitRow> {
    let row = |k: i64| FitRow {
        row: k as u64,
        status: status[k as usize],
        status_text: "ftol".into(),
        rounds: 3,
        evaluations: 4,
        chi2: f64::NAN,
        dof: 1,
        objective: -0.0,
        parameters: vec![1.0 / 3.0],
        errors: vec![f64::INFINITY],
        flags: crate::Flags::UNDETERMINED,
        n_starts_agree: 1,
        exposures: Some(k as u64 + 1),
        exposure_velocities: (k == 1).then(|| ExposureVelocities {
            velocities: vec![0.1, f64::NAN],
            errors: vec![f64::INFINITY, f64::NAN],
        }),
        p_constant_velocity: (k == 1).then_some(0.5),
        ..FitRow::new(k, 1)
    };
    (0..2).map(row).collect()
}

const WHOLE: [Status; 2] = [Status::Ftol; 2];
const KEY: &str = "version = 1\nstarts = 2";

fn refusal_of(journal: Result<Journal>) -> String {
    match journal {
        Err(Error::Journal { message, .. }) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn whole_batches_are_recalled_and_a_torn_one_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out.parquet");
    let mut journal = Journal::open(&target, KEY, false).unwrap();
    assert!(matches!(
        Journal::open(&target, KEY, true),
        Err(Error::OutputLocked { .. })
    ));
    let path = journal_path(&target);
    let mut ends = vec![fs::metadata(&path).unwrap().len()];
    for (number, status) in [(0, WHOLE), (1, [Status::Interrupted; 2]), (2, WHOLE)] {
        journal
            .keep_rows(
                number,
                fingerprint(&spectra(number as f64)),
                &rows(status),
                "cpu",
            )
            .unwrap();
        ends.push(fs::metadata(&path).unwrap().len());
    }
    assert_eq!(ends[1], ends[2], "nothing is kept of what was interrupted");
    drop(journal);
    let whole = fs::read(&path).unwrap();
    for cut in 0..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let journal = Journal::open(&target, KEY, true).unwrap();
        let records = ends[1..]
            .iter()
            .filter(|end| cut as u64 >= **end)
            .count()
            .saturating_sub(1);
        assert_eq!(
            (journal.len(), journal.damage()),
            (records.min(2), None),
            "cut at {cut}"
        );
    }
    fs::write(&path, &whole).unwrap();
    let mut journal = Journal::open(&target, KEY, true).unwrap();
    let (recalled, device) = journal.recall_rows(0, &spectra(0.0)).unwrap().unwrap();
    assert_eq!(device, "cpu");
    assert_eq!(
        format!("{recalled:?}"),
        format!(
            "{:?}",
            rows(WHOLE).into_iter().map(Some).collect::<Vec<_>>()
        )
    );
    assert!(journal.recall_rows(1, &spectra(1.0)).unwrap().is_none());
    // Rows of other spectra are not recalled.
    assert!(journal.recall_rows(2, &spectra(0.0)).unwrap().is_none());
    journal.remove().unwrap();
    assert!(!path.exists());
}

#[test]
fn finished_rows_of_an_interrupted_batch_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out.csv");
    let mut journal = Journal::open(&target, KEY, false).unwrap();
    journal
        .keep_rows(
            0,
            fingerprint(&spectra(1.0)),
            &rows([Status::Interrupted, Status::Ftol]),
            "cpu",
        )
        .unwrap();
    assert!(journal.has_rows());
    drop(journal);
    let mut journal = Journal::open(&target, KEY, true).unwrap();
    assert_eq!((journal.len(), journal.has_rows()), (0, true));
    let (recalled, _) = journal.recall_rows(0, &spectra(1.0)).unwrap().unwrap();
    assert!(
        recalled.len() == 2
            && recalled[0].is_none()
            && recalled[1].as_ref().is_some_and(|row| row.row == 1)
    );
    // A record of the whole batch replaces it.
    journal
        .keep_rows(0, fingerprint(&spectra(1.0)), &rows(WHOLE), "cpu")
        .unwrap();
    drop(journal);
    let mut journal = Journal::open(&target, KEY, true).unwrap();
    assert!(
        journal
            .recall_rows(0, &spectra(1.0))
            .unwrap()
            .unwrap()
            .0
            .iter()
            .all(Option::is_some)
    );
    journal.remove().unwrap();
}

#[test]
fn a_run_resumes_only_with_its_own_journal() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out.csv");
    let open = |key: &str, resume: bool| Journal::open(&target, key, resume).unwrap();
    drop(open(KEY, true));
    assert!(!Journal::is_beside(&target), "one without rows goes");
    open(KEY, false).leave();
    assert!(Journal::is_beside(&target));
    let journal = open(KEY, true);
    assert!(!journal.has_rows());
    drop(journal);
    assert!(
        Journal::is_beside(&target),
        "whatever stops the run, it can go on"
    );
    assert!(refusal_of(Journal::open(&target, "version = 2", true)).contains("another run"));
    drop(open("version = 2", false));
    assert!(!Journal::is_beside(&target), "one without rows goes");
}

/// A resumed run replaces outputs in the state that its journal has recorded, and no others.
#[test]
fn outputs_of_others_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = ["out.csv", "page.html"].map(|name| folder.path().join(name));
    let open = |resume: bool| Journal::open(&outputs[0], KEY, resume).unwrap();
    let refused_path = |claim: Result<()>| match claim {
        Err(Error::OutputExists { path }) => path,
        other => panic!("{other:?}"),
    };
    // 1. No output exists when the run begins, and it is stopped before it has written anything.
    let mut journal = open(false);
    journal.claim_outputs(&outputs, false).unwrap();
    journal.leave();
    // 2. An output that exists now is another's.
    fs::write(&outputs[1], "foreign").unwrap();
    assert_eq!(
        refused_path(open(true).claim_outputs(&outputs, false)),
        outputs[1]
    );
    // 3. The run writes its table itself, and is stopped again.
    fs::remove_file(&outputs[1]).unwrap();
    let mut journal = open(true);
    journal.claim_outputs(&outputs, false).unwrap();
    fs::write(&outputs[0], "its own").unwrap();
    journal.record_outputs(&outputs).unwrap();
    journal.leave();
    open(true).claim_outputs(&outputs, false).unwrap();
    // 4. Its table is replaced by another file, which only the user can give up.
    let foreign_file = fs::File::create(&outputs[0]).unwrap();
    (&foreign_file).write_all(b"foreign").unwrap();
    foreign_file
        .set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(5))
        .unwrap();
    assert_eq!(
        refused_path(open(true).claim_outputs(&outputs, false)),
        outputs[0]
    );
    open(true).claim_outputs(&outputs, true).unwrap();
    open(true).claim_outputs(&outputs, false).unwrap();
}

/// A run that is killed while its table is renamed resumes: before and after the rename it recognises its own table.
#[cfg(feature = "files")]
#[test]
fn a_run_recognises_its_table_before_and_after_the_rename() {
    use crate::WriteOptions;
    use crate::spectral::Schema;
    use crate::table::TableWriter;
    let folder = tempfile::tempdir().unwrap();
    let outputs = [folder.path().join("out.csv")];
    let schema = Schema {
        parameters: vec!["teff".into()],
        ..Schema::default()
    };
    let create = |overwrite: bool| {
        TableWriter::create(
            &outputs[0],
            &schema,
            WriteOptions {
                overwrite,
                ..WriteOptions::default()
            },
        )
        .unwrap()
    };
    let open = |resume: bool| Journal::open(&outputs[0], KEY, resume).unwrap();
    let is_own = || match open(true).claim_outputs(&outputs, false) {
        Err(Error::OutputExists { .. }) => false,
        claimed => claimed.map(|()| true).unwrap(),
    };
    // 1. After a rename that the journal has not recorded, the table counts as another's.
    let mut journal = open(false);
    journal.claim_outputs(&outputs, false).unwrap();
    create(false).finish().unwrap();
    journal.leave();
    assert!(!is_own());
    // 2. The journal has recorded the file before the rename, and the run is killed after it.
    fs::remove_file(&outputs[0]).unwrap();
    let mut journal = open(true);
    journal.claim_outputs(&outputs, false).unwrap();
    create(false).finish_run(&[], Some(&mut journal)).unwrap();
    journal.leave();
    assert!(is_own());
    // 3. The run is killed before the rename: the table that it was allowed to replace is still there.
    let mut journal = open(true);
    fs::write(&outputs[0], "an older table").unwrap();
    journal.claim_outputs(&outputs, true).unwrap();
    let next = folder.path().join("next");
    fs::write(&next, "a newer table").unwrap();
    journal.expect_output(&outputs[0], &next);
    journal.record_states().unwrap();
    journal.leave();
    assert!(is_own());
    // 4. A file that is neither of them is another's.
    let mut journal = open(true);
    journal.claim_outputs(&outputs, false).unwrap();
    journal.expect_output(&outputs[0], &next);
    journal.record_states().unwrap();
    journal.leave();
    fs::write(&outputs[0], "somebody's notes").unwrap();
    assert!(!is_own());
    // 5. A link is known by its own name, not by that of the file to which it leads.
    #[cfg(unix)]
    {
        fs::remove_file(&outputs[0]).unwrap();
        std::os::unix::fs::symlink("real.csv", &outputs[0]).unwrap();
        let mut journal = open(true);
        journal.claim_outputs(&outputs, false).unwrap();
        create(false).finish_run(&[], Some(&mut journal)).unwrap();
        journal.leave();
        assert!(is_own());
    }
}

#[test]
fn journals_of_other_runs_are_reported_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out.csv");
    let path = journal_path(&target);
    let mut journal = Journal::open(&target, KEY, false).unwrap();
    journal
        .keep_rows(0, fingerprint(&spectra(1.0)), &rows(WHOLE), "cpu")
        .unwrap();
    drop(journal);
    let whole = fs::read(&path).unwrap();
    let message = refusal_of(Journal::open(&target, "version = 1\nstarts = 3", true));
    assert!(
        message.contains("`starts = 2`") && message.contains("`starts = 3`"),
        "{message}"
    );
    assert!(refusal_of(Journal::open(&target, "version = 1", true)).contains("nothing"));
    assert!(
        refusal_of(Journal::open(&target, KEY, false))
            .contains("resume that run, or remove this file")
    );
    assert_eq!(fs::read(&path).unwrap(), whole);
    let copy = two_copies(
        &JournalKey {
            instruction_set: &instruction_set(),
            inputs: KEY,
        }
        .text(),
    )
    .len()
        / 2;
    let change_both_copies = |place: usize, bit: u8| {
        let mut bytes = whole.clone();
        [place, copy + place]
            .into_iter()
            .for_each(|index| bytes[index] ^= bit);
        bytes
    };
    let damaged = change_both_copies(JOURNAL_MAGIC.len() + 53, 1);
    // A length beyond the end of the file is that of a torn head.
    let longer = change_both_copies(JOURNAL_MAGIC.len() + 3, 4);
    let cases = [
        (&damaged[..], "damaged"),
        (&longer, "damaged"),
        (b"somebody's notes", "no journal"),
    ];
    for (bytes, word) in cases {
        fs::write(&path, bytes).unwrap();
        for resume in [false, true] {
            assert!(refusal_of(Journal::open(&target, KEY, resume)).contains(word));
        }
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

/// With one wrong bit anywhere, whole records are kept, damage is reported, and rows that are written then are
/// recalled.
#[test]
fn a_wrong_bit_costs_its_record_and_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out.csv");
    let path = journal_path(&target);
    let mut journal = Journal::open(&target, KEY, false).unwrap();
    let mut ends = vec![journal.file.length().unwrap() as usize];
    for number in 0..3 {
        journal
            .keep_rows(
                number,
                fingerprint(&spectra(number as f64)),
                &rows(WHOLE),
                "cpu",
            )
            .unwrap();
        ends.push(journal.file.length().unwrap() as usize);
    }
    drop(journal);
    let whole = fs::read(&path).unwrap();
    for byte in (ends[0]..whole.len()).filter(|byte| byte % 3 == 0) {
        let damaged_record = ends.iter().filter(|end| **end <= byte).count() - 1;
        // No record is found after a damaged length.
        let lost = if byte - ends[damaged_record] < 16 {
            damaged_record..3
        } else {
            damaged_record..damaged_record + 1
        };
        let mut bytes = whole.clone();
        bytes[byte] ^= 1 << (byte % 8);
        fs::write(&path, &bytes).unwrap();
        let mut journal = Journal::open(&target, KEY, true).unwrap();
        let kept = 3 - lost.len();
        assert_eq!(journal.len(), kept, "byte {byte}");
        let size = ends[lost.end] - ends[damaged_record];
        let text = match kept {
            0 => format!(
                "{size} bytes are damaged: nothing is kept, and all spectra are fitted again"
            ),
            _ => format!(
                "{size} bytes are damaged: {} rows of {kept} batch",
                2 * kept
            ),
        };
        assert!(
            journal
                .damage()
                .is_some_and(|message| message.contains(&text)),
            "{:?}, not {text}",
            journal.damage()
        );
        for number in lost {
            assert!(
                journal
                    .recall_rows(number, &spectra(number as f64))
                    .unwrap()
                    .is_none()
            );
            journal
                .keep_rows(
                    number,
                    fingerprint(&spectra(number as f64)),
                    &rows(WHOLE),
                    "cpu",
                )
                .unwrap();
        }
        drop(journal);
        let mut journal = Journal::open(&target, KEY, true).unwrap();
        assert_eq!(journal.len(), 3, "byte {byte}");
        for number in 0..3 {
            let (recalled, _) = journal
                .recall_rows(number, &spectra(number as f64))
                .unwrap()
                .unwrap();
            assert_eq!(
                format!("{recalled:?}"),
                format!(
                    "{:?}",
                    rows(WHOLE).into_iter().map(Some).collect::<Vec<_>>()
                )
            );
        }
    }
}

/// While this run waits for the lock, another run may remove the journal that it has locked, and a third one create its
/// own. The lock of the removed file is worth nothing.
#[test]
fn a_journal_that_is_replaced_before_it_is_locked_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out.csv");
    let other = folder.path().join("other.csv");
    let mut journal = Journal::open(&other, KEY, false).unwrap();
    journal
        .keep_rows(0, fingerprint(&spectra(0.0)), &rows(WHOLE), "cpu")
        .unwrap();
    drop(journal);
    let [path, from] = [&target, &other].map(|target| journal_path(target));
    fs::write(&path, "").unwrap();
    let mut is_first = true;
    let to = path.clone();
    // Other tests lock files at the same time.
    let this_thread = std::thread::current().id();
    let hook = faults::install(Box::new(move |operation| {
        let is_mine =
            operation == faults::Operation::Lock && std::thread::current().id() == this_thread;
        if is_mine && std::mem::take(&mut is_first) {
            fs::rename(&from, &to).unwrap();
        }
        None
    }));
    let journal = Journal::open(&target, KEY, true).unwrap();
    drop(hook);
    assert_eq!(
        journal.len(),
        1,
        "the journal has the rows of the file at {}",
        path.display()
    );
}
