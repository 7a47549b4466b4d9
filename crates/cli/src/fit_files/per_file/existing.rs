//! Outputs of earlier runs, which a run skips.

use std::path::Path;

use popfit::Metadata;

use super::outputs::FileOutputs;
use crate::fit_files::OptionNames;
use crate::output::Format;

/// Files whose metadata differ from those that this run would write.
#[derive(Default)]
struct Group<'a> {
    count: usize,
    /// The first one, and what is wrong with it.
    first: Option<(&'a Path, String)>,
}

impl<'a> Group<'a> {
    /// Counts a file.
    fn add(&mut self, file: &'a Path, what: String) {
        self.count += 1;
        self.first.get_or_insert((file, what));
    }

    /// Returns the file that stands for all, as text.
    fn example(&self) -> String {
        match &self.first {
            Some((file, what)) => format!("{} ({what})", file.display()),
            None => String::new(),
        }
    }
}

/// Compares the metadata of tables that are skipped with those of this run, and returns a warning for those that were
/// made with another model, network or settings, and one for those that do not say so.
pub(super) fn compare_metadata(
    skipped: &[FileOutputs],
    expected: &Metadata,
    format: Format,
    names: OptionNames,
) -> Vec<String> {
    if skipped.is_empty() {
        return Vec::new();
    }
    let all = skipped.len();
    let (skip, overwrite) = (names.of("skip_existing"), names.of("overwrite"));
    if format == Format::Csv {
        return vec![format!(
            "{skip}: CSV keeps no model and settings, so that the {all} tables that are there are skipped by their \
             names alone"
        )];
    }
    // 1. Compare.
    let mut others = Group::default();
    let mut unknown = Group::default();
    for FileOutputs { table, .. } in skipped {
        match Metadata::read(table) {
            Ok(found) if found == Metadata::default() => {
                unknown.add(table, "popfit did not write it".into());
            }
            Ok(found) => {
                let differences = differences(&found, expected);
                if !differences.is_empty() {
                    others.add(table, format!("another {}", differences.join(", ")));
                }
            }
            Err(error) => unknown.add(table, error.to_string()),
        }
    }
    // 2. Report.
    let mut warnings = Vec::new();
    if others.count > 0 {
        warnings.push(format!(
            "{skip}: {} of the {all} tables that are there were not made with this model and these settings, the first \
             {}; they stay as they are. Remove them to have their spectra fitted again, or give {overwrite} instead",
            others.count,
            others.example()
        ));
    }
    if unknown.count > 0 {
        warnings.push(format!(
            "{skip}: {} of the {all} tables that are there do not say how they were made, the first {}; they stay as \
             they are",
            unknown.count,
            unknown.example()
        ));
    }
    warnings
}

/// Names the parts of the metadata in which two runs differ. Device and version do not count.
fn differences(found: &Metadata, expected: &Metadata) -> Vec<&'static str> {
    let parts = [
        ("model", found.model != expected.model),
        ("network", found.emulators != expected.emulators),
        ("settings", found.settings != expected.settings),
    ];
    let different = parts.iter().filter(|(_, differ)| *differ);
    different.map(|(part, _)| *part).collect()
}
