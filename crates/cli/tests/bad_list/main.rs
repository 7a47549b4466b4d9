//! `tests/data/bad_inputs.md` as a table, row by row, through the library and the command, on every device; and what
//! the command says of bad input: exit codes, messages, what is in the table, and that nothing is written where nothing
//! should be.

mod check;
mod damage;
mod files;
mod kinds;
mod list;
mod rows;
mod setup;

use std::collections::BTreeSet;

use kinds::Shown;
use list::LIST;

/// Rows of the list.
const ROWS: u8 = 37;

#[test]
fn every_row_of_the_list_is_shown() {
    let numbers: BTreeSet<u8> = LIST.iter().map(|row| row.0).collect();
    let missing: Vec<u8> = (1..=ROWS).filter(|n| !numbers.contains(n)).collect();
    assert!(
        missing.is_empty() && LIST.len() == usize::from(ROWS),
        "rows {missing:?} are missing"
    );
    for (number, case, shown) in LIST {
        assert!(!shown.is_empty(), "row {number}, {case}: nothing shows it");
        for shown in shown {
            if let Shown::Test(place, name) = shown {
                let found = texts(place)
                    .iter()
                    .any(|text| text.contains(&format!("fn {name}(")));
                assert!(found, "row {number}, {case}: {place} has no test {name}");
            }
        }
    }
}

/// A file, or all of a folder.
fn texts(place: &str) -> Vec<String> {
    let place = popfit_testing::root().join(place);
    let files = std::fs::read_dir(&place)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    files
        .chain([place.with_extension("rs")])
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .collect()
}

/// The list itself.
#[test]
fn the_list_has_as_many_rows() {
    let text =
        std::fs::read_to_string(popfit_testing::data_folder().join("bad_inputs.md")).unwrap();
    let number = |line: &str| {
        line.strip_prefix("| ")?
            .split(' ')
            .next()?
            .parse::<u8>()
            .ok()
    };
    let numbers: Vec<u8> = text.lines().filter_map(number).collect();
    assert_eq!(numbers, (1..=ROWS).collect::<Vec<u8>>());
}
