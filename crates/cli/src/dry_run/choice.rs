//! Spectra that are fitted, and why others are not.

use std::path::PathBuf;

use popfit::spectra::{Selection, SpectraReader};

use crate::Failure;
use crate::chain::Chain;

/// Returns a sentence on the selected spectra: how many, and which option leaves out how many of the others. A spectrum that several
/// options leave out counts for the first of them.
pub fn describe(paths: &[PathBuf], selection: &Selection, selected: u64) -> Result<String, Failure> {
    if !selection.selects_rows() {
        return Ok(format!("spectra: {selected}, and all of them would be fitted"));
    }
    // options are applied one after another, in the reader's order
    let none = Selection { arms: selection.arms.clone(), ..Selection::default() };
    let with_ids = Selection { target_ids: selection.target_ids.clone(), ..none.clone() };
    let with_type = Selection { objtype: selection.objtype.clone(), ..with_ids.clone() };
    let all = Chain::open(paths, &none)?.len();
    let mut left = all;
    let mut causes = Vec::new();
    let steps = [
        ("--target-id", selection.target_ids.is_some(), with_ids),
        ("--objtype", selection.objtype.is_some(), with_type),
        ("--min-sn", selection.min_signal_to_noise.is_some(), selection.clone()),
    ];
    for (option, _, so_far) in steps.iter().filter(|(_, is_given, _)| *is_given) {
        let now = if so_far == selection { selected } else { Chain::open(paths, so_far)?.len() };
        if now < left {
            causes.push(format!("{option} leaves out {}", left - now));
        }
        left = now;
    }
    let causes = if causes.is_empty() { "no option leaves out any".into() } else { causes.join(", ") };
    Ok(format!("spectra: {selected} of {all} would be fitted; {causes}"))
}
