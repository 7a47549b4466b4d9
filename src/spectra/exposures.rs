//! Exposures: several spectra of one object, which are fitted together.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use super::arm::{ArmSpectra, Resolution, Wavelength};
use super::batch::{Ids, Spectra};
use crate::error::{Error, Result};
use crate::io::column::Column;
use crate::values::copy_rows;

/// Which rows of the arms' arrays are the exposures of each object of a batch. They are adjacent, in the order of the
/// objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Exposures {
    /// (objects + 1) First row of each object, then the number of rows.
    begins: Arc<[usize]>,
}

impl Exposures {
    /// Returns the exposures of objects that have these numbers of them.
    pub fn from_counts(counts: impl IntoIterator<Item = usize>) -> Exposures {
        let mut begins = vec![0];
        for count in counts {
            begins.push(begins.last().copied().unwrap_or(0) + count);
        }
        Exposures {
            begins: begins.into(),
        }
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.begins.len() - 1
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of exposures of an object.
    ///
    /// # Panics
    /// If `object` is not below `len()`.
    pub fn count(&self, object: usize) -> usize {
        self.rows(object..object + 1).len()
    }

    /// Returns the number of exposures of all objects, which is the number of rows of the arrays.
    pub(crate) fn total(&self) -> usize {
        self.rows(0..self.len()).len()
    }

    /// Returns the rows of a range of objects.
    ///
    /// # Panics
    /// If `objects` reach beyond `len()`.
    pub(crate) fn rows(&self, objects: Range<usize>) -> Range<usize> {
        self.begins[objects.start]..self.begins[objects.end]
    }

    /// Returns the exposures of a range of objects alone.
    pub(super) fn slice(&self, objects: Range<usize>) -> Exposures {
        Exposures::from_counts(objects.map(|object| self.count(object)))
    }
}

impl<'a> Spectra<'a> {
    /// Joins the spectra of each id to one object, whose exposures they are: a model with
    /// [`exposures`](crate::SpectralModelBuilder::exposures) fits them together. Objects and their exposures keep the
    /// order in which they first come. Row and columns of an object are those of its first exposure. Spectra that are
    /// joined already stay as they are. Arrays are copied only if the exposures of an object are not adjacent.
    pub fn join_exposures(self) -> Spectra<'a> {
        if self.exposures.is_some() {
            return self;
        }
        // 1. Sort the rows by their objects.
        let objects = number_objects(&self.ids);
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by_key(|row| objects[*row]);
        // 2. Move the rows of each object beside each other.
        let mut counts = vec![0; objects.iter().max().map_or(0, |last| last + 1)];
        objects.iter().for_each(|object| counts[*object] += 1);
        let is_in_order = order.is_sorted();
        let sorted = if is_in_order {
            self
        } else {
            self.copy_rows(&order)
        };
        sorted.group_rows(Exposures::from_counts(counts))
    }

    /// Makes objects of spectra that are the exposures of one object after another, whatever their ids. Id, row and
    /// columns of an object are those of its first exposure.
    ///
    /// # Errors
    /// `ShapeMismatch` if the number of exposures is not that of the spectra, or an object has none; `InvalidArgument`
    /// if exposures are joined already.
    pub fn with_exposures(self, exposures: Exposures) -> Result<Spectra<'a>> {
        if self.exposures.is_some() {
            return Err(Error::invalid("exposures", "they are joined already"));
        }
        let has_empty = (0..exposures.len()).any(|object| exposures.count(object) == 0);
        if has_empty || exposures.total() != self.len() {
            let message = format!(
                "{} objects with {} exposures in all, for {} spectra; each object has one at least",
                exposures.len(),
                exposures.total(),
                self.len()
            );
            return Err(Error::mismatch("spectra", message).naming("exposures"));
        }
        Ok(self.group_rows(exposures))
    }

    /// Makes objects of spectra that are the exposures of one object after another.
    pub(super) fn group_rows(self, exposures: Exposures) -> Spectra<'a> {
        let first_rows: Vec<usize> = (0..exposures.len())
            .map(|object| exposures.rows(object..object).start)
            .collect();
        let columns = self.columns.into_iter().map(|column| Column {
            values: column.values.copy_rows(&first_rows),
            ..column
        });
        Spectra {
            rows: first_rows.iter().map(|&row| self.rows[row]).collect(),
            ids: self.ids.copy_rows(&first_rows),
            columns: columns.collect(),
            exposures: Some(exposures),
            file: self.file,
            arms: self.arms,
        }
    }

    /// Returns a copy of these spectra, which have no joined exposures, in their order.
    pub(super) fn copy_rows(&self, rows: &[usize]) -> Spectra<'static> {
        let columns = self.columns.iter().map(|column| Column {
            values: column.values.copy_rows(rows),
            ..column.clone()
        });
        Spectra {
            file: self.file.clone(),
            rows: rows.iter().map(|&row| self.rows[row]).collect(),
            ids: self.ids.copy_rows(rows),
            arms: self.arms.iter().map(|arm| arm.copy_rows(rows)).collect(),
            columns: columns.collect(),
            exposures: None,
        }
    }
}

/// Returns the index of each spectrum's object, which are numbered in the order of their first exposures.
pub(super) fn number_objects(ids: &Ids) -> Vec<usize> {
    fn number<T: Hash + Eq>(ids: &[T]) -> Vec<usize> {
        let mut objects: HashMap<&T, usize> = HashMap::with_capacity(ids.len());
        let number_one = |id| {
            let next = objects.len();
            *objects.entry(id).or_insert(next)
        };
        ids.iter().map(number_one).collect()
    }
    match ids {
        Ids::Integer(ids) => number(ids),
        Ids::Text(ids) => number(ids),
    }
}

impl Ids {
    /// Returns a copy of the ids of these rows, in their order.
    pub(crate) fn copy_rows(&self, rows: &[usize]) -> Ids {
        match self {
            Ids::Integer(ids) => Ids::Integer(rows.iter().map(|&row| ids[row]).collect()),
            Ids::Text(ids) => Ids::Text(rows.iter().map(|&row| ids[row].clone()).collect()),
        }
    }
}

impl ArmSpectra<'_> {
    /// Returns a copy of these rows, in their order; a wavelength grid that all share stays shared.
    pub(crate) fn copy_rows(&self, rows: &[usize]) -> ArmSpectra<'static> {
        let count = self.len();
        ArmSpectra {
            name: self.name.clone(),
            wavelength: match &self.wavelength {
                Wavelength::Shared(grid) => Wavelength::Shared(grid.clone()),
                Wavelength::Own(grids) => Wavelength::Own(grids.copy_rows(count, rows)),
            },
            pixels: self.pixels,
            flux: self.flux.copy_rows(count, rows),
            ivar: self.ivar.copy_rows(count, rows),
            mask: copy_rows(&self.mask, count, rows).into(),
            resolution: self.resolution.as_ref().map(|resolution| Resolution {
                diagonals: resolution.diagonals,
                values: copy_rows(&resolution.values, count, rows).into(),
            }),
            covariance: self
                .covariance
                .as_ref()
                .map(|covariance| covariance.copy_rows(count, rows)),
            widening: self.widening.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spectra(ids: Vec<i64>) -> Spectra<'static> {
        let flux: Vec<f64> = (0..2 * ids.len()).map(|k| k as f64).collect();
        let ivar = vec![1.0; flux.len()];
        Spectra::from_arrays(vec![5000.0, 5001.0], flux, ivar, None, Some(ids.into())).unwrap()
    }

    #[test]
    fn spectra_of_one_id_become_exposures_of_one_object() {
        let joined = spectra(vec![7, 8, 7, 9, 8, 7]).join_exposures();
        assert_eq!(joined.ids, Ids::Integer(vec![7, 8, 9]));
        assert_eq!(joined.rows, [0, 1, 3]);
        let exposures = joined.exposures.as_ref().unwrap();
        assert_eq!([0, 1, 2].map(|object| exposures.count(object)), [3, 2, 1]);
        let flux = joined.arms[0].flux.to_double();
        assert_eq!(
            *flux,
            [0.0, 1.0, 4.0, 5.0, 10.0, 11.0, 2.0, 3.0, 8.0, 9.0, 6.0, 7.0]
        );
        // Slices of objects have the rows of their exposures.
        let last_two = joined.borrow_rows(1..3);
        assert_eq!((last_two.len(), last_two.arms[0].len()), (2, 3));
        assert_eq!(last_two.exposures, Some(Exposures::from_counts([2, 1])));
        assert_eq!(joined.clone().join_exposures(), joined);
    }
}
