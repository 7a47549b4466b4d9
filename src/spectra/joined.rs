//! Objects whose exposures are the spectra of a file that have the same id.

use std::borrow::Cow;
use std::ops::Range;

use super::arm::{ArmSpectra, Resolution, Wavelength};
use super::batch::Spectra;
use super::covariance::NoiseCovariance;
use super::exposures::{Exposures, number_objects};
use super::reader::SpectraReader;
use crate::error::{Error, Result};
use crate::io::column::Column;
use crate::io::memory;
use crate::values::{RowPlace, Values, gather_rows};

/// Number of spectra that are read at once, unless more objects are asked for.
const SPECTRA_AT_ONCE: usize = 256;

/// Yields objects with exposures: the spectra of another reader that have the same id are joined, whatever their order.
///
/// Objects come in the order of their first exposures. The reader reads no further than to the last exposure of the
/// objects that it yields, and holds what it has read of later objects. That is little where the exposures of an object
/// are near each other, and most of a file that has them one pass of the sky after another. If the other reader does
/// not know the [ids](SpectraReader::ids) beforehand, all spectra are read first.
///
/// Spectra in different files are joined in memory alone: put them into one [`Spectra`], and call
/// [`join_exposures`](Spectra::join_exposures).
pub struct JoinedReader {
    reader: Box<dyn SpectraReader>,
    /// Index of each spectrum's object.
    object_of_spectrum: Vec<usize>,
    /// For each object the number of spectra among which are all exposures of it and of the objects before it.
    spectra_until: Vec<usize>,
    /// Index of the next object.
    next: usize,
    /// Number of spectra that have been read.
    spectra_read: usize,
    /// Spectra that have been read, some of which belong to objects that are not yet yielded.
    held: Vec<HeldBatch>,
}

/// A batch of spectra with the indices of their objects.
struct HeldBatch {
    spectra: Spectra<'static>,
    objects: Vec<usize>,
}

impl JoinedReader {
    /// Joins the spectra of a reader that has not yielded any.
    ///
    /// # Errors
    /// Returns the errors of the reader, which is asked for its ids or, if it does not know them, for all spectra.
    pub fn new(mut reader: Box<dyn SpectraReader>) -> Result<JoinedReader> {
        // 1. Find the ids; if they are not known, by reading all spectra.
        let mut batches = Vec::new();
        let ids = match reader.ids()? {
            Some(ids) => ids,
            None => {
                let mut ids = reader.empty().ids;
                while let Some(batch) = reader.next_batch(SPECTRA_AT_ONCE)? {
                    ids.append(batch.ids.clone());
                    batches.push(batch);
                }
                ids
            }
        };
        // 2. Find the last exposure of each object.
        let object_of_spectrum = number_objects(&ids);
        let mut spectra_until: Vec<usize> = Vec::new();
        for (spectrum, &object) in object_of_spectrum.iter().enumerate() {
            if object == spectra_until.len() {
                spectra_until.push(0);
            }
            spectra_until[object] = spectrum + 1;
        }
        let mut longest_until = 0;
        for until in &mut spectra_until {
            longest_until = longest_until.max(*until);
            *until = longest_until;
        }
        // 3. Keep the spectra that were read.
        let mut joined = JoinedReader {
            reader,
            object_of_spectrum,
            spectra_until,
            next: 0,
            spectra_read: 0,
            held: Vec::new(),
        };
        for batch in batches {
            joined.hold(batch)?;
        }
        Ok(joined)
    }

    /// Adds a batch of spectra to those that are held.
    fn hold(&mut self, spectra: Spectra<'static>) -> Result<()> {
        let range = self.spectra_read..self.spectra_read + spectra.len();
        self.spectra_read = range.end;
        let objects = self.object_of_spectrum.get(range);
        let objects = objects.ok_or_else(|| self.other_length_error())?.to_vec();
        self.held.push(HeldBatch { spectra, objects });
        Ok(())
    }

    /// Reads until this number of spectra has been read, about `at_once` at a time.
    fn read_until(&mut self, spectra: usize, at_once: usize) -> Result<()> {
        while self.spectra_read < spectra {
            let count = (spectra - self.spectra_read).min(at_once.max(SPECTRA_AT_ONCE));
            if let Some(HeldBatch { spectra, .. }) = self.held.last() {
                let bytes = spectra.bytes() / spectra.len().max(1) * count;
                memory::check(bytes as u64, || {
                    format!("{}: the exposures of objects to be joined", spectra.name())
                })?;
            }
            match self.reader.next_batch(count)? {
                Some(batch) => self.hold(batch)?,
                None => return Err(self.other_length_error()),
            }
        }
        Ok(())
    }

    /// Returns the error for a reader that yields another number of spectra than it has ids.
    fn other_length_error(&self) -> Error {
        let message = format!(
            "it has {} ids and another number of spectra",
            self.object_of_spectrum.len()
        );
        Error::mismatch(self.reader.empty().name(), message)
    }

    /// Returns a range of objects, all of whose exposures are held.
    fn collect_objects(&mut self, range: Range<usize>) -> Result<Spectra<'static>> {
        // 1. Sort the exposures of these objects by object.
        let mut places = Vec::new();
        let mut counts = vec![0; range.len()];
        for (array, batch) in self.held.iter().enumerate() {
            for (row, &object) in batch.objects.iter().enumerate() {
                if range.contains(&object) {
                    counts[object - range.start] += 1;
                    places.push((object, RowPlace { array, row }));
                }
            }
        }
        places.sort_by_key(|(object, _)| *object);
        let places: Vec<RowPlace> = places.into_iter().map(|(_, place)| place).collect();
        // 2. A batch that has nothing else, in this order, is moved. Others are copied.
        let is_in_order = places
            .iter()
            .enumerate()
            .all(|(index, place)| place.row == index);
        let is_whole =
            is_in_order && self.held.len() == 1 && self.held[0].objects.len() == places.len();
        let spectra = match self.held.pop_if(|_| is_whole) {
            Some(batch) => batch.spectra,
            None => gather_spectra(&self.held, &places)?,
        };
        Ok(spectra.group_rows(Exposures::from_counts(counts)))
    }

    /// Drops what is held of objects before this one: batches without any other, and the rows of batches that have more
    /// of these than of others.
    fn drop_objects_before(&mut self, object: usize) {
        for batch in &mut self.held {
            let is_needed = |row: &usize| batch.objects[*row] >= object;
            let rows: Vec<usize> = (0..batch.objects.len()).filter(is_needed).collect();
            if 2 * rows.len() < batch.objects.len() {
                batch.spectra = batch.spectra.copy_rows(&rows);
                batch.objects = rows.iter().map(|row| batch.objects[*row]).collect();
            }
        }
        self.held.retain(|batch| !batch.objects.is_empty());
    }
}

impl std::fmt::Debug for JoinedReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinedReader")
            .field("objects", &self.spectra_until.len())
            .field("spectra", &self.object_of_spectrum.len())
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl SpectraReader for JoinedReader {
    /// Returns the number of objects.
    fn len(&self) -> u64 {
        self.spectra_until.len() as u64
    }

    fn next_batch(&mut self, max: usize) -> Result<Option<Spectra<'static>>> {
        let remaining = self.spectra_until.len() - self.next;
        let end = self.next + max.max(1).min(remaining);
        if end == self.next {
            return Ok(None);
        }
        self.read_until(self.spectra_until[end - 1], max)?;
        let batch = self.collect_objects(self.next..end)?;
        self.drop_objects_before(end);
        self.next = end;
        Ok(Some(batch))
    }

    fn empty(&self) -> Spectra<'static> {
        self.reader.empty().group_rows(Exposures::from_counts([]))
    }

    fn notes(&self) -> &[String] {
        self.reader.notes()
    }
}

/// Copies rows of several batches of one file into one batch, in this order.
fn gather_spectra(held: &[HeldBatch], rows: &[RowPlace]) -> Result<Spectra<'static>> {
    let batches: Vec<&Spectra> = held.iter().map(|batch| &batch.spectra).collect();
    let first = batches[0];
    // 1. Check that there is memory, and that the batches agree.
    let bytes_per_row = first.bytes() / first.len().max(1);
    memory::check((bytes_per_row * rows.len()) as u64, || {
        format!("{}: the exposures of a batch of objects", first.name())
    })?;
    let differ = batches.iter().any(|batch| {
        batch.arms.len() != first.arms.len() || batch.columns.len() != first.columns.len()
    });
    if differ {
        return Err(other_arrays_error(first, "arms or columns"));
    }
    // 2. Gather the arms.
    let mut arms = Vec::with_capacity(first.arms.len());
    for index in 0..first.arms.len() {
        let arm: Vec<&ArmSpectra> = batches.iter().map(|batch| &batch.arms[index]).collect();
        let arm = gather_arm(&arm, rows);
        arms.push(arm.ok_or_else(|| other_arrays_error(first, "arms"))?);
    }
    // 3. Gather rows, ids and columns.
    let mut ids = first.ids.copy_rows(&[]);
    let without_values = |column: &Column| Column {
        values: column.values.empty(),
        ..column.clone()
    };
    let mut columns: Vec<Column> = first.columns.iter().map(without_values).collect();
    for run in rows.chunk_by(|one, next| one.array == next.array) {
        let batch = batches[run[0].array];
        let run: Vec<usize> = run.iter().map(|place| place.row).collect();
        ids.append(batch.ids.copy_rows(&run));
        for (column, more) in columns.iter_mut().zip(&batch.columns) {
            if column.name != more.name || !column.values.append(more.values.copy_rows(&run)) {
                return Err(other_arrays_error(first, "columns"));
            }
        }
    }
    Ok(Spectra {
        file: first.file.clone(),
        rows: rows
            .iter()
            .map(|place| batches[place.array].rows[place.row])
            .collect(),
        ids,
        arms,
        columns,
        exposures: None,
    })
}

/// Copies rows of several batches of one arm, in this order; `None` if the arms differ in their names or numbers.
fn gather_arm(arms: &[&ArmSpectra], rows: &[RowPlace]) -> Option<ArmSpectra<'static>> {
    let first = *arms.first()?;
    let diagonals = |arm: &ArmSpectra| arm.resolution.as_ref().map(|matrices| matrices.diagonals);
    let noise_diagonals =
        |arm: &ArmSpectra| arm.covariance.as_ref().map(|matrices| matrices.diagonals);
    let is_alike = |arm: &&ArmSpectra| {
        arm.name == first.name
            && arm.pixels == first.pixels
            && diagonals(arm) == diagonals(first)
            && noise_diagonals(arm) == noise_diagonals(first)
    };
    if !arms.iter().all(is_alike) {
        return None;
    }
    let pixels = first.pixels;
    let flux: Vec<&Values> = arms.iter().map(|arm| &arm.flux).collect();
    let ivar: Vec<&Values> = arms.iter().map(|arm| &arm.ivar).collect();
    // 1. A grid that all spectra share stays shared.
    let wavelength = match &first.wavelength {
        Wavelength::Shared(grid) if arms.iter().all(|arm| arm.wavelength == first.wavelength) => {
            Wavelength::Shared(grid.clone())
        }
        _ => {
            let grids = rows.iter().map(|place| arms[place.array].grid(place.row));
            Wavelength::Own(grids.flat_map(Cow::into_owned).collect())
        }
    };
    // 2. Batches without a mask have no bad pixel.
    let masks: Vec<Cow<[bool]>> = arms
        .iter()
        .map(|arm| match arm.mask.is_empty() {
            true => Cow::Owned(vec![false; arm.flux.len()]),
            false => Cow::Borrowed(&*arm.mask),
        })
        .collect();
    let masks: Vec<&[bool]> = masks.iter().map(|mask| &**mask).collect();
    let mask = match arms.iter().all(|arm| arm.mask.is_empty()) {
        true => Vec::new(),
        false => gather_rows(&masks, pixels, rows),
    };
    // 3. All or none have resolution matrices, and covariance matrices.
    let resolution = diagonals(first).map(|diagonals| {
        let matrices: Vec<&[f32]> = arms
            .iter()
            .flat_map(|arm| &arm.resolution)
            .map(|matrices| &*matrices.values)
            .collect();
        Resolution {
            diagonals,
            values: gather_rows(&matrices, diagonals * pixels, rows).into(),
        }
    });
    let covariance = noise_diagonals(first).map(|diagonals| {
        let matrices: Vec<&Values> = arms
            .iter()
            .flat_map(|arm| &arm.covariance)
            .map(|matrices| &matrices.values)
            .collect();
        NoiseCovariance {
            diagonals,
            values: Values::gather_rows(&matrices, diagonals * pixels, rows),
        }
    });
    Some(ArmSpectra {
        name: first.name.clone(),
        wavelength,
        pixels,
        flux: Values::gather_rows(&flux, pixels, rows),
        ivar: Values::gather_rows(&ivar, pixels, rows),
        mask: mask.into(),
        resolution,
        covariance,
        widening: first.widening.clone(),
    })
}

/// Returns the error for a reader whose batches do not have the same arrays.
fn other_arrays_error(spectra: &Spectra, what: &str) -> Error {
    let message = format!("its spectra differ in their {what}, and cannot be joined");
    Error::mismatch(spectra.name(), message)
}
