//! A batch of which some rows are known.

use super::row::FitRow;
use crate::error::Result;
use crate::spectra::Spectra;

/// The rows of all spectra: those that are `known` (one place a spectrum, or empty), and what `fit` makes of the others. Neighbours
/// are fitted together, which changes no bit of theirs.
pub fn complete(
    spectra: &Spectra,
    mut known: Vec<Option<FitRow>>,
    mut fit: impl FnMut(&Spectra) -> Result<Vec<FitRow>>,
) -> Result<Vec<FitRow>> {
    if known.is_empty() {
        return fit(spectra);
    }
    let mut rows = Vec::with_capacity(known.len());
    while rows.len() < known.len() {
        let begin = rows.len();
        match known[begin].take() {
            Some(row) => rows.push(row),
            None => {
                let end = (begin..known.len()).find(|k| known[*k].is_some()).unwrap_or(known.len());
                rows.extend(fit(&spectra.slice(begin..end))?);
            }
        }
    }
    Ok(rows)
}
