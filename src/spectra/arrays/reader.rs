//! Spectra of named arrays, in batches.

use std::sync::Arc;

use super::arm::Arm;
use super::columns::Columns;
use super::names;
use super::source::{Kind, Place, Rows, Source, shown};
use super::values::ArrayValues;
use crate::error::{Error, Result};
use crate::spectra::widening::{ANY, MaskRule, Widening};
use crate::spectra::{Ids, Spectra, SpectraReader, air};

/// Yields the spectra that arrays make.
pub struct ArraysReader<R> {
    file: Arc<str>,
    place: Place,
    length: usize,
    /// Bytes that a batch may take.
    most: u64,
    next: usize,
    arms: Vec<Arm<R>>,
    ids: Option<(R, IdKind)>,
    columns: Columns<R>,
    notes: Vec<String>,
}

#[derive(Clone, Copy)]
enum IdKind {
    Integer,
    /// Integers of which some are above those of i64: texts of their digits.
    Digits,
    Text,
}

impl<R> ArraysReader<R> {
    /// Checks that the arms which the arrays make have the same number of spectra, and finds ids and columns.
    pub fn open<'a, S>(mut source: S, widening: Option<&Widening>) -> Result<ArraysReader<R>>
    where
        S: Source<'a, Rows = R>,
        R: Rows<'a>,
    {
        let place = source.place();
        let mut arms = Vec::new();
        let names = names::arm_names(&source)?;
        names::refuse_misspelt(&mut source, &names)?;
        let known = names::known(&names);
        let rule = MaskRule::new(ANY, widening);
        for name in names {
            arms.push(Arm::open(&mut source, name, rule.clone())?);
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
            let flux = names::array(&arm.name, "flux");
            let what = match &place {
                Place::File(_) => place.file(),
                Place::Memory => flux.clone(),
            };
            return Err(Error::mismatch(what, message).naming(flux));
        }
        let ids = ids(&mut source, length)?;
        let columns = Columns::open(&mut source, length, &known)?;
        let converted = arms
            .iter()
            .any(|arm| arm.in_air)
            .then(|| place.with_file(air::CONVERTED));
        let notes = converted
            .into_iter()
            .chain(names::unused(&mut source, &arms))
            .collect();
        let (file, most) = (Arc::from(place.file()), source.most_bytes());
        Ok(ArraysReader {
            file,
            place,
            length,
            most,
            next: 0,
            arms,
            ids,
            columns,
            notes,
        })
    }

    /// Returns sentences for the user on what was converted and what was passed over.
    pub fn into_notes(self) -> Vec<String> {
        self.notes
    }

    /// Returns no spectra, but their arms, grids and columns.
    fn head<'a>(&self) -> Spectra<'a>
    where
        R: Rows<'a>,
    {
        let ids = match self.ids {
            Some((_, IdKind::Text | IdKind::Digits)) => Ids::Text(Vec::new()),
            _ => Ids::Integer(Vec::new()),
        };
        let arms = self.arms.iter().map(Arm::empty).collect();
        Spectra {
            file: self.file.clone(),
            rows: Vec::new(),
            ids,
            arms,
            columns: self.columns.empty(),
        }
    }

    /// Makes all spectra.
    pub fn all<'a>(&mut self) -> Result<Spectra<'a>>
    where
        R: Rows<'a>,
    {
        if self.length == 0 {
            Ok(self.head())
        } else {
            self.batch(self.length)
        }
    }

    /// Takes the ids of the next `rows` spectra; without an array `id` they are the rows' numbers, from 0.
    fn ids<'a>(&mut self, rows: usize) -> Result<Ids>
    where
        R: Rows<'a>,
    {
        let Some((array, kind)) = &mut self.ids else {
            return Ok(Ids::Integer(
                (self.next as i64..(self.next + rows) as i64).collect(),
            ));
        };
        let fault = |message: &str| self.place.fault(format!("id: {message}"));
        match (array.take(rows)?, kind) {
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
                    .map_err(|_| fault("a number does not fit a signed 64-bit integer"))
            }
            _ => Err(fault("neither integers nor strings")),
        }
    }

    /// Makes the next `rows` spectra with their ids and columns; fails if they take far more bytes than the file can
    /// hold.
    fn batch<'a>(&mut self, rows: usize) -> Result<Spectra<'a>>
    where
        R: Rows<'a>,
    {
        let each = self
            .arms
            .iter()
            .map(Arm::bytes)
            .fold(self.columns.bytes(), u64::saturating_add);
        let bytes = each.saturating_mul(rows as u64);
        if bytes > self.most {
            let message = format!(
                "{rows} spectra take {bytes} bytes, far more than the file has (is it a zip bomb?)"
            );
            return Err(self.place.too_large(message));
        }
        let mut arms = Vec::with_capacity(self.arms.len());
        for arm in &mut self.arms {
            arms.push(arm.batch(rows, &self.place)?);
        }
        let ids = self.ids(rows)?;
        let columns = self.columns.batch(rows)?;
        let first = self.next as u64;
        self.next += rows;
        let rows = (first..self.next as u64).collect();
        Ok(Spectra {
            file: self.file.clone(),
            rows,
            ids,
            arms,
            columns,
        })
    }
}

impl<R: Rows<'static>> SpectraReader for ArraysReader<R> {
    fn len(&self) -> u64 {
        self.length as u64
    }

    fn next_batch(&mut self, max: usize) -> Result<Option<Spectra<'static>>> {
        match max.max(1).min(self.length - self.next) {
            0 => Ok(None),
            rows => self.batch(rows).map(Some),
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
        self.head()
    }
}

/// Checks the array `id` and all its values, and returns its rows; `None` if there is none.
fn ids<'a, S: Source<'a>>(source: &mut S, length: usize) -> Result<Option<(S::Rows, IdKind)>> {
    let Some(head) = source.head("id")? else {
        return Ok(None);
    };
    if head.shape.len() > 1 || head.elements() != length {
        let said = format!("has the shape {}, not ({length},)", shown(&head.shape));
        return Err(source.place().shape_fault("id", said));
    }
    let kind = match head.kind {
        Kind::Natural if !source.fits_signed("id")? => IdKind::Digits,
        Kind::Natural | Kind::Integer => IdKind::Integer,
        Kind::Text => IdKind::Text,
        _ => return Err(source.place().fault("`id` is neither integers nor strings")),
    };
    source.check("id")?;
    Ok(Some((source.rows("id")?, kind)))
}
