//! Batches that the journal knows in part. An interrupted run keeps the rows that were finished, and only the other
//! spectra are fitted again.

use std::borrow::Cow;

use crate::error::Result;
use crate::spectra::Spectra;
use crate::spectral::results::row::FitRow;

/// Known rows of a batch, one place per spectrum; empty if no row is known.
pub type KnownRows = Vec<Option<FitRow>>;

/// A batch of which some rows may be known.
pub struct PartialBatch<'a> {
    pub spectra: &'a Spectra<'a>,
    pub known: KnownRows,
}

/// Returns the rows of each batch: those known from an earlier run, and those from one call of `fit` with all other
/// spectra.
pub fn complete(
    batches: Vec<PartialBatch>,
    fit: impl FnOnce(&[&Spectra]) -> Result<Vec<FitRow>>,
) -> Result<Vec<Vec<FitRow>>> {
    let wanted: Vec<Cow<Spectra>> = batches
        .iter()
        .flat_map(|batch| unknown(batch.spectra, &batch.known))
        .collect();
    let wanted: Vec<&Spectra> = wanted.iter().map(AsRef::as_ref).collect();
    let mut fitted = if wanted.is_empty() {
        Vec::new()
    } else {
        fit(&wanted)?
    }
    .into_iter();
    let mut all = Vec::with_capacity(batches.len());
    for PartialBatch { spectra, known } in batches {
        let known = known
            .into_iter()
            .chain(std::iter::repeat(None))
            .take(spectra.len());
        all.push(
            known
                .filter_map(|row| row.or_else(|| fitted.next()))
                .collect(),
        );
    }
    Ok(all)
}

/// Returns the spectra whose rows are not known from an earlier run, in slices of neighbours.
fn unknown<'s>(spectra: &'s Spectra<'s>, known: &KnownRows) -> Vec<Cow<'s, Spectra<'s>>> {
    if known.is_empty() {
        return vec![Cow::Borrowed(spectra)];
    }
    let mut runs = Vec::new();
    let mut begin = 0;
    for run in known.chunk_by(|a, b| a.is_some() == b.is_some()) {
        if run[0].is_none() {
            runs.push(Cow::Owned(spectra.borrow_rows(begin..begin + run.len())));
        }
        begin += run.len();
    }
    runs
}
