//! A journal that the disk has spoilt, or that a kill has torn.

use std::process::Command;
use std::time::Duration;

use super::{command, data, journal, message, succeed};

/// Batches that a disk has damaged are reported and fitted again; those that a kill has torn are fitted again.
#[test]
fn a_damaged_journal_costs_what_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, out] = ["whole.csv", "out.csv"].map(|name| folder.path().join(name));
    succeed(&whole, &[]);
    let mut child = command(&data(""), &out, &[]).spawn().unwrap();
    let (path, _) = journal(&out);
    // the first ends where the second copy of the head begins, whose first line stands before its record
    let records = |bytes: &[u8]| -> Vec<usize> {
        let line = bytes
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let head = bytes.get(line..).and_then(|rest| rest.first_chunk::<8>());
        let mut ends =
            vec![line + head.map_or(0, |length| line + 48 + u64::from_le_bytes(*length) as usize)];
        while let Some(length) = bytes
            .get(ends[ends.len() - 1]..)
            .and_then(|rest| rest.first_chunk::<8>())
        {
            ends.push(ends[ends.len() - 1] + 48 + u64::from_le_bytes(*length) as usize);
        }
        ends.into_iter().filter(|end| *end <= bytes.len()).collect()
    };
    while std::fs::read(&path).map_or(0, |bytes| records(&bytes).len()) < 6 {
        assert!(
            child.try_wait().unwrap().is_none(),
            "it came to its end before"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let kept = std::fs::read(&path).unwrap();
    // where the head's second record begins and ends, then the state of the outputs, and each batch
    let ends = records(&kept);
    let batches = ends.len() - 3;
    let resume = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let mut again = Command::new(env!("CARGO_BIN_EXE_popfit"));
        let as_before = command(&data(""), &out, &["--resume"]);
        let output = again
            .args(as_before.get_args().filter(|word| *word != "--quiet"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", message(&output));
        assert!(
            std::fs::read(&out).unwrap() == std::fs::read(&whole).unwrap(),
            "other bytes"
        );
        std::fs::remove_file(&out).unwrap();
        message(&output)
    };
    let flipped = |at: usize| [&kept[..at], &[kept[at] ^ 1], &kept[at + 1..]].concat();
    // in the second batch, then its length; of both the first is kept, and of the second the rest, too
    let said = resume(&flipped(ends[3] + 100));
    let text = format!(
        "warning: {}: {} bytes are damaged",
        path.display(),
        ends[4] - ends[3]
    );
    assert!(
        said.contains(&text) && said.contains(&format!("{} rows of", 64 * (batches - 1))),
        "{said}, not {text}"
    );
    let said = resume(&flipped(ends[3]));
    let text = format!(
        "{} bytes are damaged: 64 rows of 1 batch are kept",
        kept.len() - ends[3]
    );
    assert!(
        said.contains(&text) && said.contains("all other spectra are fitted again"),
        "{said}, not {text}"
    );
    // in the key of either copy of the head
    for at in [100, ends[0] + 100] {
        let said = resume(&flipped(at));
        let text = format!("of which {} from the journal", 64 * batches);
        assert!(
            said.contains("one copy of its head is damaged") && said.contains(&text),
            "{said}, not {text}"
        );
    }
    let said = resume(&kept[..ends[ends.len() - 1] - 10]);
    let text = format!("of which {} from the journal", 64 * (batches - 1));
    assert!(
        !said.contains("damaged") && said.contains(&text),
        "{said}, not {text}"
    );
}
