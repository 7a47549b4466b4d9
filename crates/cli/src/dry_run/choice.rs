//! Spectra that are fitted, and why others are not.

use std::path::PathBuf;

use popfit::spectra::{FilesReader, Selection, SpectraReader};

use crate::Failure;

/// Returns a sentence on the selected spectra: how many of all, and how many of the others each option leaves out. A
/// spectrum that several options leave out counts for the first of them. `selected` is the number of spectra, or of
/// objects if the exposures are joined.
pub fn describe(
    paths: &[PathBuf],
    selection: &Selection,
    selected: u64,
) -> Result<String, Failure> {
    if !selection.join_exposures {
        return describe_spectra(paths, selection, selected);
    }
    let mut separate = selection.clone();
    separate.join_exposures = false;
    let exposures = FilesReader::open(paths, &separate)?.len();
    let sentence = describe_spectra(paths, &separate, exposures)?;
    Ok(format!(
        "{sentence}\nobjects: {selected}, because spectra of a file with the same id are exposures of one object"
    ))
}

/// Returns a sentence on the selected spectra, whose exposures are not joined.
fn describe_spectra(
    paths: &[PathBuf],
    selection: &Selection,
    selected: u64,
) -> Result<String, Failure> {
    let mut everything = selection.clone();
    everything.good_fibres = false;
    let has_bad_fibres = || -> Result<bool, Failure> {
        Ok(selection.good_fibres && FilesReader::open(paths, &everything)?.len() > selected)
    };
    if !selection.selects_rows() && !has_bad_fibres()? {
        return Ok(format!(
            "spectra: {selected}, and all of them would be fitted"
        ));
    }
    // options are applied one after another, in the reader's order
    let mut none = everything;
    (none.target_ids, none.objtype, none.min_signal_to_noise) = (None, None, None);
    let mut with_good_fibres = none.clone();
    with_good_fibres.good_fibres = selection.good_fibres;
    let mut with_ids = with_good_fibres.clone();
    with_ids.target_ids.clone_from(&selection.target_ids);
    let mut with_type = with_ids.clone();
    with_type.objtype.clone_from(&selection.objtype);
    let all = FilesReader::open(paths, &none)?.len();
    let mut left = all;
    let mut causes = Vec::new();
    let steps = [
        ("a bad FIBERSTATUS", selection.good_fibres, with_good_fibres),
        ("--target-id", selection.target_ids.is_some(), with_ids),
        ("--objtype", selection.objtype.is_some(), with_type),
        (
            "--min-sn",
            selection.min_signal_to_noise.is_some(),
            selection.clone(),
        ),
    ];
    for (option, _, so_far) in steps.iter().filter(|(_, is_given, _)| *is_given) {
        let now = if so_far == selection {
            selected
        } else {
            FilesReader::open(paths, so_far)?.len()
        };
        if now < left {
            causes.push(format!("{option} leaves out {}", left - now));
        }
        left = now;
    }
    let causes = if causes.is_empty() {
        "no option leaves out any".into()
    } else {
        causes.join(", ")
    };
    Ok(format!(
        "spectra: {selected} of {all} would be fitted; {causes}"
    ))
}
