//! Batches of spectra in memory, which readers yield and fitters take.

use std::ops::Range;
use std::sync::Arc;

use super::arm::{ArmSpectra, Wavelength};
use super::exposures::Exposures;
use crate::error::{Error, Result};
use crate::io::column::Column;
use crate::values::Values;

/// A batch of spectra, row-major: row i of every arm is one object, or one exposure of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Spectra<'a> {
    /// File from which the spectra came; empty for arrays.
    pub file: Arc<str>,
    /// Row of each spectrum in that file.
    pub rows: Vec<u64>,
    /// (n) Id of each spectrum.
    pub ids: Ids,
    /// At least one arm; all have as many rows as there are ids, or exposures of all ids.
    pub arms: Vec<ArmSpectra<'a>>,
    /// Columns of the spectra's own table, with one value per spectrum.
    pub columns: Vec<Column>,
    /// Rows of the arms that are the exposures of each object, if several are fitted together; `None` if each row is an
    /// object of its own.
    pub exposures: Option<Exposures>,
}

/// Ids of spectra. Integers are never converted to floats.
#[derive(Clone, Debug, PartialEq)]
pub enum Ids {
    /// Numbers, such as the TARGETIDs of DESI.
    Integer(Vec<i64>),
    /// Any texts.
    Text(Vec<String>),
}

impl From<Vec<i64>> for Ids {
    fn from(ids: Vec<i64>) -> Ids {
        Ids::Integer(ids)
    }
}

impl From<Vec<String>> for Ids {
    fn from(ids: Vec<String>) -> Ids {
        Ids::Text(ids)
    }
}

impl Ids {
    /// Returns the number of ids.
    pub fn len(&self) -> usize {
        match self {
            Ids::Integer(ids) => ids.len(),
            Ids::Text(ids) => ids.len(),
        }
    }

    /// Returns whether there are no ids.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the id of spectrum `row` as text.
    ///
    /// # Panics
    /// If `row` is not below `len()`.
    pub fn text(&self, row: usize) -> String {
        match self {
            Ids::Integer(ids) => ids[row].to_string(),
            Ids::Text(ids) => ids[row].clone(),
        }
    }

    /// Appends more ids. If some of them are texts, all become texts.
    pub(super) fn append(&mut self, more: Ids) {
        match (&mut *self, more) {
            (Ids::Integer(ids), Ids::Integer(more)) => ids.extend(more),
            (Ids::Text(ids), more) => ids.extend(more.into_texts()),
            (Ids::Integer(ids), Ids::Text(more)) => {
                let texts = Ids::Integer(std::mem::take(ids)).into_texts();
                *self = Ids::Text([texts, more].concat());
            }
        }
    }

    /// Returns the ids as texts.
    fn into_texts(self) -> Vec<String> {
        match self {
            Ids::Integer(ids) => ids.iter().map(i64::to_string).collect(),
            Ids::Text(ids) => ids,
        }
    }

    /// Returns a copy of the ids of a range of rows.
    fn slice(&self, rows: Range<usize>) -> Ids {
        match self {
            Ids::Integer(ids) => Ids::Integer(ids[rows].to_vec()),
            Ids::Text(ids) => Ids::Text(ids[rows].to_vec()),
        }
    }
}

impl<'a> Spectra<'a> {
    /// Returns the name of the spectra for messages: their file, or `spectra` for arrays.
    pub(crate) fn name(&self) -> &str {
        if self.file.is_empty() {
            "spectra"
        } else {
            &self.file
        }
    }

    /// Returns the memory of all arms' arrays (bytes), without shared wavelength grids.
    pub(crate) fn bytes(&self) -> usize {
        self.arms.iter().map(ArmSpectra::bytes).sum()
    }

    /// Makes spectra of one unnamed arm from arrays (spectra, pixels); without ids, which wavelength grids per spectrum
    /// need, rows are numbered from 0. `wavelength` (Å, vacuum) is either `Wavelength::Shared` (pixels), also made from
    /// a `Vec<f64>`, or `Wavelength::Own` (n × pixels); `flux`, `ivar` and `mask` (true = bad) are (n × pixels),
    /// row-major.
    ///
    /// # Errors
    /// `ShapeMismatch`; `BadWavelength` for a shared grid that is not finite, positive and strictly increasing;
    /// `InvalidArgument` for own grids without ids, from which the number of spectra cannot be known
    /// ([`ArmSpectra::new`] takes the number of pixels).
    pub fn from_arrays(
        wavelength: impl Into<Wavelength<'a>>,
        flux: impl Into<Values<'a>>,
        ivar: impl Into<Values<'a>>,
        mask: Option<Vec<bool>>,
        ids: Option<Ids>,
    ) -> Result<Spectra<'a>> {
        let wavelength = wavelength.into();
        let pixels = match (&wavelength, &ids) {
            (Wavelength::Shared(grid), _) => grid.len(),
            (Wavelength::Own(grids), Some(ids)) if !ids.is_empty() => grids.len() / ids.len(),
            (Wavelength::Own(_), _) => {
                return Err(Error::invalid(
                    "ids",
                    "spectra with their own wavelength grids need ids",
                ));
            }
        };
        Spectra::from_arms(
            vec![ArmSpectra::new("", pixels, wavelength, flux, ivar, mask)?],
            ids,
        )
    }

    /// Combines arms with distinct names and the same number of spectra; ids are 0, 1, … unless given.
    ///
    /// # Errors
    /// `ShapeMismatch` if arms or ids differ in their number of spectra; `InvalidArgument` without an arm or with two
    /// arms of the same name.
    pub fn from_arms(arms: Vec<ArmSpectra<'a>>, ids: Option<Ids>) -> Result<Spectra<'a>> {
        let Some(first_arm) = arms.first() else {
            return Err(Error::invalid("arms", "spectra without an arm"));
        };
        let count = first_arm.len();
        for (k, arm) in arms.iter().enumerate() {
            if arms[..k]
                .iter()
                .any(|earlier_arm| earlier_arm.name == arm.name)
            {
                return Err(Error::invalid(
                    "arms",
                    format!("two arms named `{}`", arm.name),
                ));
            }
            if arm.len() != count {
                let message = format!(
                    "{count} spectra in one arm, {} in `{}`",
                    arm.len(),
                    arm.name
                );
                return Err(Error::mismatch("spectra", message).naming("arms"));
            }
        }
        let ids = ids.unwrap_or_else(|| Ids::Integer((0..count as i64).collect()));
        if ids.len() != count {
            return Err(Error::mismatch(
                "spectra",
                format!("{} ids for {count} spectra", ids.len()),
            )
            .naming("ids"));
        }
        let rows = (0..count as u64).collect();
        Ok(Spectra {
            file: Arc::from(""),
            rows,
            ids,
            arms,
            columns: Vec::new(),
            exposures: None,
        })
    }

    /// Copies arrays that are borrowed, so that the spectra outlive their owner.
    pub fn into_owned(self) -> Spectra<'static> {
        let Spectra {
            file,
            rows,
            ids,
            arms,
            columns,
            exposures,
        } = self;
        Spectra {
            file,
            rows,
            ids,
            arms: arms.into_iter().map(ArmSpectra::into_owned).collect(),
            columns,
            exposures,
        }
    }

    /// Returns the first column of this name in the spectra's own table; `None` if there is none.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| &*column.name == name)
    }

    /// Returns the number of spectra; of objects, if their exposures are joined.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns whether there are no spectra.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a copy of a range of spectra, with ids and columns; a wavelength grid that all share stays shared.
    ///
    /// # Panics
    /// If `rows` reach beyond `len()`.
    pub fn slice(&self, rows: Range<usize>) -> Spectra<'static> {
        self.borrow_rows(rows).into_owned()
    }

    /// Returns a range of spectra that borrows their arrays.
    ///
    /// # Panics
    /// If `rows` reach beyond `len()`.
    pub(crate) fn borrow_rows(&self, rows: Range<usize>) -> Spectra<'_> {
        let arm_rows = self.arm_rows(rows.clone());
        Spectra {
            file: self.file.clone(),
            rows: self.rows[rows.clone()].to_vec(),
            ids: self.ids.slice(rows.clone()),
            arms: self
                .arms
                .iter()
                .map(|arm| arm.borrow_rows(arm_rows.clone()))
                .collect(),
            columns: self
                .columns
                .iter()
                .map(|column| Column {
                    values: column.values.slice(rows.clone()),
                    ..column.clone()
                })
                .collect(),
            exposures: self
                .exposures
                .as_ref()
                .map(|exposures| exposures.slice(rows)),
        }
    }

    /// Returns the rows of the arms' arrays in which a range of objects has its exposures.
    pub(crate) fn arm_rows(&self, objects: Range<usize>) -> Range<usize> {
        match &self.exposures {
            Some(exposures) => exposures.rows(objects),
            None => objects,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spectra::Resolution;

    /// A range of spectra borrows their arrays, the largest of which is the resolution.
    #[test]
    fn ranges_of_spectra_borrow_resolution_matrices() {
        let grid = vec![5000.0, 5001.0];
        let arm = ArmSpectra::new("b", 2, grid, [1f32; 6], [1f32; 6], None).unwrap();
        let values: Vec<f32> = (0..18).map(|k| k as f32).collect();
        let arm = arm
            .with_resolution(Resolution {
                diagonals: 3,
                values: values.into(),
            })
            .unwrap();
        let spectra = Spectra::from_arms(vec![arm], None).unwrap();
        let matrices = |spectra: &Spectra| {
            spectra.arms[0]
                .resolution
                .as_ref()
                .unwrap()
                .values
                .as_ptr_range()
        };
        let all = matrices(&spectra);
        let part = matrices(&spectra.borrow_rows(1..2));
        assert!(part.start == all.start.wrapping_add(6) && part.end == all.start.wrapping_add(12));
        let owned = spectra.slice(1..2);
        assert_eq!(
            owned.arms[0].resolution.as_ref().unwrap().values[..],
            [6.0, 7.0, 8.0, 9.0, 10.0, 11.0]
        );
    }
}
