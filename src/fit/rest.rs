//! Pieces of a batch, of which some rows are known: an interrupted run keeps the rows that were finished, and only the
//! others are fitted again.

use std::borrow::Cow;

use super::row::FitRow;
use crate::error::Result;
use crate::spectra::Spectra;

/// Rows of a piece that are known: one place a spectrum, or none at all.
pub type KnownRows = Vec<Option<FitRow>>;

/// The rows of each piece: those that are known, and what `fit` makes of all others in one go, which changes no bit of
/// theirs.
pub fn complete(
    pieces: Vec<(&Spectra, KnownRows)>,
    fit: impl FnOnce(&[&Spectra]) -> Result<Vec<FitRow>>,
) -> Result<Vec<Vec<FitRow>>> {
    let wanted: Vec<Cow<Spectra>> = pieces.iter().flat_map(|(spectra, known)| unknown(spectra, known)).collect();
    let wanted: Vec<&Spectra> = wanted.iter().map(AsRef::as_ref).collect();
    let mut fitted = if wanted.is_empty() { Vec::new() } else { fit(&wanted)? }.into_iter();
    let rows = |(spectra, known): (&Spectra, KnownRows)| {
        let known = known.into_iter().chain(std::iter::repeat(None)).take(spectra.len());
        known.filter_map(|row| row.or_else(|| fitted.next())).collect()
    };
    Ok(pieces.into_iter().map(rows).collect())
}

/// The spectra whose rows are not known, neighbours together.
fn unknown<'s>(spectra: &'s Spectra<'s>, known: &KnownRows) -> Vec<Cow<'s, Spectra<'s>>> {
    if known.is_empty() {
        return vec![Cow::Borrowed(spectra)];
    }
    let mut runs = Vec::new();
    let mut begin = 0;
    for run in known.chunk_by(|a, b| a.is_some() == b.is_some()) {
        if run[0].is_none() {
            runs.push(Cow::Owned(spectra.slice(begin..begin + run.len())));
        }
        begin += run.len();
    }
    runs
}
