//! Spectra in NPZ files.
//!
//! Opening validates everything and reads every array through to its CRC, keeping none; batches then come from one
//! stream an array, so that memory holds a batch, never the file.

#![deny(clippy::indexing_slicing)] // whatever a file holds is no index

use std::path::Path;
use std::sync::Arc;

use super::npz_arm::{Arm, reserve};
use super::npz_column::Columns;
use super::npz_names::{self, arm_names};
use super::widening::{ANY, MaskRule};
use super::{Ids, Selection, Spectra, SpectraReader, air};
use crate::error::{Error, Result};
use crate::io::memory::most_inflated_bytes;
use crate::io::npz::{Archive, Stream, too_large};

/// Most arrays: each that is used has a thread, and what that needs to inflate.
const MOST_ARRAYS: usize = 256;

/// Yields the spectra of an NPZ file.
pub(super) struct NpzReader {
    file: Arc<str>,
    path: std::path::PathBuf,
    length: usize,
    /// Bytes that a batch may take.
    most: u64,
    next: usize,
    arms: Vec<Arm>,
    ids: Option<(Stream, IdKind)>,
    columns: Columns,
    notes: Vec<String>,
}

#[derive(Clone, Copy)]
enum IdKind {
    Integer,
    /// Integers of which some are above those of i64: texts of their digits.
    Digits,
    Text,
}

impl NpzReader {
    /// Opens a .npz file: checks that its arms have the same number of spectra, and finds ids and columns.
    pub(super) fn open(path: &Path, selection: &Selection) -> Result<NpzReader> {
        let mut archive = Archive::open(path)?;
        let count = archive.keys().len();
        if count > MOST_ARRAYS {
            return Err(too_large(
                path,
                format!("it has {count} arrays, more than the {MOST_ARRAYS} that popfit reads"),
            ));
        }
        // shared grids are taken from it, what is left is each batch's
        let (mut arms, mut most) = (Vec::new(), most_inflated_bytes(archive.file_length()));
        let names = arm_names(&archive)?;
        npz_names::refuse_misspelt(&mut archive, &names)?;
        let known = npz_names::known(&names);
        let rule = MaskRule::new(ANY, selection.widen.as_ref());
        for name in names {
            arms.push(Arm::open(&mut archive, name, &mut most, rule.clone())?);
        }
        let (length, name) = arms.first().map(|arm| (arm.length, arm.name.clone())).unwrap_or_default();
        if let Some(arm) = arms.iter().find(|arm| arm.length != length) {
            let message = format!("{} spectra in arm `{}`, {length} in `{name}`", arm.length, arm.name);
            return Err(Error::mismatch(path.display().to_string(), message));
        }
        let ids = ids(&mut archive, length)?;
        let columns = Columns::open(&mut archive, length, &known)?;
        let file = Arc::from(path.display().to_string());
        let converted = arms.iter().any(|arm| arm.in_air).then(|| air::note(path));
        let notes = converted.into_iter().chain(npz_names::unused(&mut archive, &arms)).collect();
        Ok(NpzReader { file, path: path.to_path_buf(), length, most, next: 0, arms, ids, columns, notes })
    }

    /// Reads the ids of the next `rows` spectra; without an array `id` they are the rows' numbers, from 0.
    fn ids(&mut self, rows: usize) -> Result<Ids> {
        match &mut self.ids {
            None => Ok(Ids::Integer((self.next as i64..(self.next + rows) as i64).collect())),
            Some((stream, IdKind::Integer)) => {
                let mut ids = reserve(rows, &self.path)?;
                stream.take(rows, |dtype, bytes| dtype.integers(bytes, &mut ids))?;
                Ok(Ids::Integer(ids))
            }
            Some((stream, IdKind::Digits)) => {
                let mut ids: Vec<u64> = reserve(rows, &self.path)?;
                stream.take(rows, |dtype, bytes| dtype.naturals(bytes, &mut ids))?;
                Ok(Ids::Text(ids.iter().map(u64::to_string).collect()))
            }
            Some((stream, IdKind::Text)) => {
                let mut ids = reserve(rows, &self.path)?;
                stream.take(rows, |dtype, bytes| dtype.texts(bytes, &mut ids))?;
                Ok(Ids::Text(ids))
            }
        }
    }

    /// Reads the next `rows` spectra with their ids and columns; fails if they take far more bytes than the file can
    /// hold.
    fn batch(&mut self, rows: usize) -> Result<Spectra<'static>> {
        let each = self.arms.iter().map(Arm::bytes).fold(self.columns.bytes(), u64::saturating_add);
        let bytes = each.saturating_mul(rows as u64);
        if bytes > self.most {
            let message = format!("{rows} spectra take {bytes} bytes, far more than the file has (is it a zip bomb?)");
            return Err(too_large(&self.path, message));
        }
        let mut arms = Vec::with_capacity(self.arms.len());
        for arm in &mut self.arms {
            arms.push(arm.batch(rows, &self.path)?);
        }
        let ids = self.ids(rows)?;
        let columns = self.columns.batch(rows, &self.path)?;
        let first = self.next as u64;
        self.next += rows;
        let rows = (first..self.next as u64).collect();
        Ok(Spectra { file: self.file.clone(), rows, ids, arms, columns })
    }
}

impl SpectraReader for NpzReader {
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
        self.arms.iter_mut().zip(used.arms).for_each(|(arm, used)| arm.recycle(used));
    }

    fn empty(&self) -> Spectra<'static> {
        let ids = match self.ids {
            Some((_, IdKind::Text | IdKind::Digits)) => Ids::Text(Vec::new()),
            _ => Ids::Integer(Vec::new()),
        };
        let arms = self.arms.iter().map(Arm::empty).collect();
        Spectra { file: self.file.clone(), rows: Vec::new(), ids, arms, columns: self.columns.empty() }
    }
}

/// Checks the array `id` and all its values, and opens it for reading; `None` if the file has none.
fn ids(archive: &mut Archive, length: usize) -> Result<Option<(Stream, IdKind)>> {
    let Some(header) = archive.header("id")? else { return Ok(None) };
    if header.shape.len() > 1 || header.elements() != length {
        let message = format!("id has the shape {:?}, not ({length},)", header.shape);
        return Err(Error::mismatch(archive.path().display().to_string(), message).naming("id"));
    }
    let mut kind = match &header.dtype {
        dtype if dtype.is_integer() => IdKind::Integer,
        dtype if dtype.is_text() => IdKind::Text,
        _ => return Err(Error::format(archive.path(), "`id` is neither integers nor strings")),
    };
    archive.scan("id", |dtype, bytes| match kind {
        IdKind::Text => dtype.texts(bytes, &mut Vec::new()),
        _ if dtype.is_natural() => {
            let mut ids = Vec::new();
            dtype.naturals(bytes, &mut ids)?;
            if ids.iter().any(|id| i64::try_from(*id).is_err()) {
                kind = IdKind::Digits;
            }
            Ok(())
        }
        _ => dtype.integers(bytes, &mut Vec::new()),
    })?;
    Ok(Some((archive.stream("id")?, kind)))
}
