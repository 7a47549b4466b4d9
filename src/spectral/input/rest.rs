//! Batches of which the journal has a part of the rows. An interrupted run keeps the rows that were finished, and only
//! the other spectra are fitted again.

use std::borrow::Cow;

use crate::error::Result;
use crate::spectra::Spectra;
use crate::spectral::results::row::FitRow;

/// Rows of a batch that are known from an earlier run, one place per spectrum; empty if no row is known.
pub type KnownRows = Vec<Option<FitRow>>;

/// A batch of which some rows may be known.
pub struct PartialBatch<'a> {
    pub spectra: &'a Spectra<'a>,
    pub known: KnownRows,
}

/// Returns the rows of each batch: those known from an earlier run, and those from one call of `fit` with all other
/// spectra.
pub fn fit_unknown_rows(
    batches: Vec<PartialBatch>,
    fit: impl FnOnce(&[&Spectra]) -> Result<Vec<FitRow>>,
) -> Result<Vec<Vec<FitRow>>> {
    // 1. Fit all spectra without a known row together.
    let unknown_spectra: Vec<Cow<Spectra>> = batches
        .iter()
        .flat_map(|batch| slice_unknown(batch.spectra, &batch.known))
        .collect();
    let unknown_spectra: Vec<&Spectra> = unknown_spectra.iter().map(AsRef::as_ref).collect();
    let fitted_rows = if unknown_spectra.is_empty() {
        Vec::new()
    } else {
        fit(&unknown_spectra)?
    };
    // 2. Fill the gaps between the known rows.
    let mut fitted_rows = fitted_rows.into_iter();
    let mut rows_of_batches = Vec::with_capacity(batches.len());
    for PartialBatch { spectra, known } in batches {
        let known_rows = known
            .into_iter()
            .chain(std::iter::repeat(None))
            .take(spectra.len());
        let rows = known_rows.filter_map(|row| row.or_else(|| fitted_rows.next()));
        rows_of_batches.push(rows.collect());
    }
    Ok(rows_of_batches)
}

/// Returns the spectra whose rows are not known from an earlier run, in slices of neighbours.
fn slice_unknown<'s>(spectra: &'s Spectra<'s>, known: &KnownRows) -> Vec<Cow<'s, Spectra<'s>>> {
    if known.is_empty() {
        return vec![Cow::Borrowed(spectra)];
    }
    let mut slices = Vec::new();
    let mut begin = 0;
    for neighbours in known.chunk_by(|a, b| a.is_some() == b.is_some()) {
        let end = begin + neighbours.len();
        if neighbours[0].is_none() {
            slices.push(Cow::Owned(spectra.borrow_rows(begin..end)));
        }
        begin = end;
    }
    slices
}
