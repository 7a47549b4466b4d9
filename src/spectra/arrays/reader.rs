//! Reads spectra from named arrays in batches.

use std::sync::Arc;

use super::arm::ArrayArm;
use super::columns::ColumnArrays;
use super::names;
use super::source::{ArrayRows, ArraySource, ElementKind, SourcePlace, format_shape};
use super::values::ArrayValues;
use crate::error::{Error, Result};
use crate::spectra::widening::{ALL_BITS, MaskRule, Widening};
use crate::spectra::{Ids, Spectra, SpectraReader, air};

/// Yields the spectra that named arrays contain.
pub struct ArraysReader<R> {
    file: Arc<str>,
    place: SourcePlace,
    length: usize,
    /// Maximum number of bytes of a batch.
    max_bytes: u64,
    /// Row of the next spectrum.
    next: usize,
    arms: Vec<ArrayArm<R>>,
    ids: Option<(R, IdKind)>,
    /// A second reader of the array `id`, for the ids of all spectra; `None` once these have been asked for.
    all_ids: Option<R>,
    columns: ColumnArrays<R>,
    notes: Vec<String>,
}

/// Representation of the ids.
#[derive(Clone, Copy)]
enum IdKind {
    /// Integers that fit i64.
    Integer,
    /// Integers of which some exceed i64, as texts of their digits.
    Digits,
    /// Texts.
    Text,
}

impl<R> ArraysReader<R> {
    /// Finds the arms, ids and columns among the arrays, and checks that the arms have the same number of spectra.
    pub fn open<'a, S>(mut source: S, widening: Option<&Widening>) -> Result<ArraysReader<R>>
    where
        S: ArraySource<'a, Rows = R>,
        R: ArrayRows<'a>,
    {
        // 1. Find the names of the arms among those of the arrays.
        let place = source.place();
        let names = names::find_arms(&source)?;
        names::refuse_misspelt(&mut source, &names)?;
        let spectra_arrays = names::spectra_array_names(&names);
        // 2. Open the arms, and check their lengths.
        let rule = MaskRule::new(ALL_BITS, widening);
        let mut arms = Vec::new();
        for name in names {
            arms.push(ArrayArm::open(&mut source, name, rule.clone())?);
        }
        let (length, name) = arms
            .first()
            .map(|arm| (arm.length, arm.name.clone()))
            .unwrap_or_default();
        if let Some(arm) = arms.iter().find(|arm| arm.length != length) {
            let message = format!(
                "{} spectra in arm `{}`, {length} in `{name}`",
                arm.length, arm.name
            );
            let flux = names::array_name(&arm.name, "flux");
            let subject = match &place {
                SourcePlace::File(_) => place.file(),
                SourcePlace::Memory => flux.clone(),
            };
            return Err(Error::mismatch(subject, message).naming(flux));
        }
        // 3. Open ids and columns, and collect the notes.
        let ids = open_ids(&mut source, length)?;
        let all_ids = match &ids {
            Some(_) => Some(source.open_rows("id")?),
            None => None,
        };
        let columns = ColumnArrays::open(&mut source, length, &spectra_arrays)?;
        let mut notes = Vec::new();
        if arms.iter().any(|arm| arm.in_air) {
            notes.push(place.with_file(air::CONVERSION_NOTE));
        }
        notes.extend(names::note_unused_arrays(&mut source, &arms));
        Ok(ArraysReader {
            file: Arc::from(place.file()),
            place,
            length,
            max_bytes: source.max_bytes(),
            next: 0,
            arms,
            ids,
            all_ids,
            columns,
            notes,
        })
    }

    /// Returns sentences for the user on conversions and on arrays that were not used.
    pub fn into_notes(self) -> Vec<String> {
        self.notes
    }

    /// Returns the arms, grids and columns without spectra.
    fn without_spectra<'a>(&self) -> Spectra<'a>
    where
        R: ArrayRows<'a>,
    {
        let ids = match self.ids {
            Some((_, IdKind::Text | IdKind::Digits)) => Ids::Text(Vec::new()),
            _ => Ids::Integer(Vec::new()),
        };
        let arms = self.arms.iter().map(ArrayArm::without_spectra).collect();
        Spectra {
            file: self.file.clone(),
            rows: Vec::new(),
            ids,
            arms,
            columns: self.columns.without_values(),
            exposures: None,
        }
    }

    /// Reads all spectra.
    pub fn read_all<'a>(&mut self) -> Result<Spectra<'a>>
    where
        R: ArrayRows<'a>,
    {
        if self.length == 0 {
            Ok(self.without_spectra())
        } else {
            self.read_batch(self.length)
        }
    }

    /// Reads the ids of the next `rows` spectra; without an array `id` they are the numbers of the rows, from 0.
    fn read_ids<'a>(&mut self, rows: usize) -> Result<Ids>
    where
        R: ArrayRows<'a>,
    {
        match &mut self.ids {
            Some((array, kind)) => take_ids(array, *kind, rows, &self.place),
            None => Ok(number_rows(self.next, rows)),
        }
    }

    /// Reads the next `rows` spectra with their ids and columns; fails if they take far more bytes than the file can
    /// hold.
    fn read_batch<'a>(&mut self, rows: usize) -> Result<Spectra<'a>>
    where
        R: ArrayRows<'a>,
    {
        // 1. Refuse more bytes than such a file can contain.
        let spectrum_bytes = self
            .arms
            .iter()
            .map(ArrayArm::spectrum_bytes)
            .fold(self.columns.spectrum_bytes(), u64::saturating_add);
        let bytes = spectrum_bytes.saturating_mul(rows as u64);
        if bytes > self.max_bytes {
            let message = format!(
                "{rows} spectra take {bytes} bytes, far more than the file has (is it a zip bomb?)"
            );
            return Err(self.place.too_large_error(message));
        }
        // 2. Read the arms, ids and columns.
        let mut arms = Vec::with_capacity(self.arms.len());
        for arm in &mut self.arms {
            arms.push(arm.read_batch(rows, &self.place)?);
        }
        let ids = self.read_ids(rows)?;
        let columns = self.columns.read_batch(rows)?;
        let first_row = self.next as u64;
        self.next += rows;
        let rows = (first_row..self.next as u64).collect();
        Ok(Spectra {
            file: self.file.clone(),
            rows,
            ids,
            arms,
            columns,
            exposures: None,
        })
    }
}

impl<R: ArrayRows<'static>> SpectraReader for ArraysReader<R> {
    fn len(&self) -> u64 {
        self.length as u64
    }

    fn next_batch(&mut self, max: usize) -> Result<Option<Spectra<'static>>> {
        match max.max(1).min(self.length - self.next) {
            0 => Ok(None),
            rows => self.read_batch(rows).map(Some),
        }
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn recycle(&mut self, used: Spectra<'static>) {
        self.arms
            .iter_mut()
            .zip(used.arms)
            .for_each(|(arm, used)| arm.recycle(used));
    }

    fn empty(&self) -> Spectra<'static> {
        self.without_spectra()
    }

    fn ids(&mut self) -> Result<Option<Ids>> {
        match (self.all_ids.take(), &self.ids) {
            (Some(mut array), Some((_, kind))) => {
                let bytes = (array.item_bytes() as u64).saturating_mul(self.length as u64);
                if bytes > self.max_bytes {
                    let message = format!(
                        "`id` takes {bytes} bytes, far more than the file has (is it a zip bomb?)"
                    );
                    return Err(self.place.too_large_error(message));
                }
                take_ids(&mut array, *kind, self.length, &self.place).map(Some)
            }
            (_, Some(_)) => Ok(None),
            (_, None) => Ok(Some(number_rows(0, self.length))),
        }
    }
}

/// Returns the ids of spectra without an array `id`: the numbers of their rows, from 0.
fn number_rows(first: usize, rows: usize) -> Ids {
    Ids::Integer((first as i64..(first + rows) as i64).collect())
}

/// Takes the ids of the next `rows` spectra from the array `id`.
fn take_ids<'a>(
    array: &mut impl ArrayRows<'a>,
    kind: IdKind,
    rows: usize,
    place: &SourcePlace,
) -> Result<Ids> {
    let id_error = |message: &str| place.error(format!("id: {message}"));
    match (array.take_elements(rows)?, kind) {
        (ArrayValues::Text(ids), _) => Ok(Ids::Text(ids)),
        (ArrayValues::Int64(ids), _) => Ok(Ids::Integer(ids.into_owned())),
        (ArrayValues::UInt64(ids), IdKind::Digits) => {
            Ok(Ids::Text(ids.iter().map(u64::to_string).collect()))
        }
        (ArrayValues::UInt64(ids), _) => {
            let ids = ids
                .iter()
                .map(|id| i64::try_from(*id))
                .collect::<Result<_, _>>();
            ids.map(Ids::Integer)
                .map_err(|_| id_error("a number does not fit a signed 64-bit integer"))
        }
        _ => Err(id_error("neither integers nor strings")),
    }
}

/// Checks the array `id` and all its values, and returns its rows; `None` if there is none.
fn open_ids<'a, S: ArraySource<'a>>(
    source: &mut S,
    length: usize,
) -> Result<Option<(S::Rows, IdKind)>> {
    let Some(head) = source.read_head("id")? else {
        return Ok(None);
    };
    if head.shape.len() > 1 || head.elements() != length {
        let fault = format!(
            "has the shape {}, not ({length},)",
            format_shape(&head.shape)
        );
        return Err(source.place().shape_error("id", fault));
    }
    let kind = match head.kind {
        ElementKind::Natural if !source.values_fit_i64("id")? => IdKind::Digits,
        ElementKind::Natural | ElementKind::Integer => IdKind::Integer,
        ElementKind::Text => IdKind::Text,
        _ => return Err(source.place().error("`id` is neither integers nor strings")),
    };
    source.read_through_array("id")?;
    Ok(Some((source.open_rows("id")?, kind)))
}
