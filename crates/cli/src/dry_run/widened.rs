//! Pixels whose errors are widened by bits of masks.

use std::collections::VecDeque;
use std::path::PathBuf;

use popfit::Spectra;
use popfit::spectra::{ArmSpectra, FilesReader, Selection, SpectraReader};

use crate::Failure;

/// Returns a sentence on how many pixels of the first spectra have widened errors, found by reading them again as they
/// are; `None` if the model widens none.
pub fn describe(
    paths: &[PathBuf],
    selection: &Selection,
    first: &VecDeque<Spectra<'static>>,
) -> Result<Option<String>, Failure> {
    if selection.widen.is_none() {
        return Ok(None);
    }
    let mut plain = selection.clone();
    plain.widen = None;
    let mut source = FilesReader::open(paths, &plain)?;
    let (mut widened, mut counted, mut spectra) = (0, 0, 0);
    for batch in first {
        let Some(plain) = source.next_batch(batch.len())? else {
            break;
        };
        spectra += batch.len();
        for (arm, plain) in batch.arms.iter().zip(&plain.arms) {
            let is_masked =
                |arm: &ArmSpectra, k: usize| arm.mask.get(k).is_some_and(|masked| *masked);
            for k in (0..arm.ivar.len()).filter(|k| arm.ivar.at(*k) > 0.0 && !is_masked(arm, *k)) {
                counted += 1;
                widened += usize::from(is_masked(plain, k) || plain.ivar.at(k) != arm.ivar.at(k));
            }
        }
    }
    Ok(Some(format!(
        "errors widened by bits of masks: those of {widened} of the {counted} pixels with a weight in the first \
         {spectra} spectra"
    )))
}
