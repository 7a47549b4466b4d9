//! A journal beside the output: what a run has fitted is kept batch by batch, so that a run that was killed goes on where it was.
//!
//! The file: a line that says what it is, SHA-256 of what the rows depend on, then a record a batch: the payload's length (u64,
//! little-endian), its SHA-256, the payload (postcard). A record that is torn or damaged ends the journal.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::row::FitRow;
use crate::error::{Error, Result};
use crate::solver::Status;
use crate::spectra::{ColumnValues, Ids, Spectra, Wavelength};

const MAGIC: &[u8] = b"popfit journal 2\n";

type Hash = [u8; 32];

/// One batch.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// Its place in the input.
    number: usize,
    /// Of its spectra.
    spectra: Hash,
    rows: Vec<FitRow>,
    /// That made them.
    device: String,
}

/// What a run has fitted so far. While it is open, no other run can write the same output.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    known: BTreeMap<usize, Record>,
    /// It holds rows that are nowhere else.
    is_needed: bool,
}

impl Drop for Journal {
    fn drop(&mut self) {
        if !self.is_needed {
            // an empty journal that cannot be removed harms nobody
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Journal {
    /// Opens the journal of the output `target`, `.NAME.journal` beside it. `key` is all that the rows depend on but the spectra
    /// themselves. With `resume`, what it holds is taken up.
    ///
    /// # Errors
    /// [`Error::OutputLocked`] while another run has it open; [`Error::Journal`] when it is of another run, or when it holds rows and
    /// `resume` is false; [`Error::Io`].
    pub fn open(target: &Path, key: &str, resume: bool) -> Result<Journal> {
        let path = beside(target);
        // what is wrong with the folder is said of the output
        let io = |source| Error::Io { path: target.to_path_buf(), source };
        let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::OutputLocked { path: target.to_path_buf() }),
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        let head = [MAGIC, &Sha256::digest(key)].concat();
        // without `resume` there is nothing to read: rows are refused below
        let (known, whole) = read(bytes.strip_prefix(head.as_slice()).unwrap_or_default());
        let is_ours = bytes.starts_with(&head);
        let refuse = |message: &str| Err(Error::Journal { path: path.clone(), message: message.into() });
        if resume && !is_ours && !bytes.is_empty() {
            return refuse("it is of another run: the model, an emulator, a setting, the files or the version differ");
        }
        if !resume && holds_rows(&bytes) {
            return refuse("it holds what an interrupted run has fitted: give --resume to go on, or remove it");
        }
        let is_needed = !known.is_empty();
        let end = if is_needed { head.len() + whole } else { 0 };
        file.set_len(end as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(io)?;
        if end == 0 {
            file.write_all(&head).and_then(|()| file.sync_data()).map_err(io)?;
        }
        sweep(target);
        Ok(Journal { path, file, known, is_needed })
    }

    /// Whether a run that resumes would find something.
    pub fn has_rows(&self) -> bool {
        self.is_needed
    }

    /// Batches that need not be fitted again.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether it knows no batch.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The rows of a batch, and the device that made them, when it has been fitted. [`Error::Journal`] when its spectra have changed since.
    pub(super) fn recall(&mut self, number: usize, spectra: &Spectra) -> Result<Option<(Vec<FitRow>, String)>> {
        let Some(Record { spectra: hash, mut rows, device, .. }) = self.known.remove(&number) else { return Ok(None) };
        if hash != fingerprint(spectra) || rows.len() != spectra.len() {
            let message = format!("the spectra of {} have changed since they were fitted", spectra.file);
            return Err(Error::Journal { path: self.path.clone(), message });
        }
        rows.iter_mut().for_each(|row| row.file = spectra.file.clone());
        Ok(Some((rows, device)))
    }

    /// Keeps the rows of a batch, unless they are unfinished.
    pub(super) fn keep(&mut self, number: usize, spectra: &Spectra, (rows, device): (&[FitRow], &str)) -> Result<()> {
        if rows.iter().any(|row| row.status == Status::Interrupted) {
            return Ok(());
        }
        let record = Record { number, spectra: fingerprint(spectra), rows: rows.to_vec(), device: device.into() };
        let failed = |message: String| Error::Journal { path: self.path.clone(), message };
        let payload = postcard::to_stdvec(&record).map_err(|error| failed(error.to_string()))?;
        let record = [&(payload.len() as u64).to_le_bytes()[..], &Sha256::digest(&payload), &payload].concat();
        let written = self.file.write_all(&record).and_then(|()| self.file.sync_data());
        self.is_needed = true;
        written.map_err(|source| Error::Io { path: self.path.clone(), source })
    }

    /// The output is whole: the journal goes.
    pub fn remove(mut self) {
        self.is_needed = false;
    }
}

fn beside(target: &Path) -> PathBuf {
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    target.with_file_name(format!(".{name}.journal"))
}

/// Whole records, and where they end.
fn read(bytes: &[u8]) -> (BTreeMap<usize, Record>, usize) {
    let (mut known, mut at) = (BTreeMap::new(), 0);
    while let Some((record, length)) = record(&bytes[at..]) {
        known.insert(record.number, record);
        at += length;
    }
    (known, at)
}

fn record(bytes: &[u8]) -> Option<(Record, usize)> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (hash, rest) = rest.split_first_chunk::<32>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let payload = rest.get(..length)?;
    if Sha256::digest(payload).as_slice() != hash {
        return None;
    }
    Some((postcard::from_bytes(payload).ok()?, 40 + length))
}

/// Whether a journal, of whichever run, has a whole record.
fn holds_rows(bytes: &[u8]) -> bool {
    bytes.strip_prefix(MAGIC).and_then(|rest| rest.get(32..)).is_some_and(|records| record(records).is_some())
}

/// Removes what a killed run has left of the output: nobody else can be writing it.
fn sweep(target: &Path) {
    let (Some(name), Some(folder)) = (target.file_name(), target.parent()) else { return };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let start = format!(".{}.tmp-", name.to_string_lossy());
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&start)) {
        // what cannot be removed harms nobody
        let _ = fs::remove_file(entry.path());
    }
}

/// SHA-256 of all that a fit reads of its spectra.
fn fingerprint(spectra: &Spectra) -> Hash {
    let mut hash = Sha256::new();
    numbers(&mut hash, &spectra.rows, |row| row.to_le_bytes());
    match &spectra.ids {
        Ids::Integer(ids) => numbers(&mut hash, ids, |id| id.to_le_bytes()),
        Ids::Text(ids) => texts(&mut hash, ids),
    }
    for arm in &spectra.arms {
        texts(&mut hash, std::slice::from_ref(&arm.name));
        let grid = match &arm.wavelength {
            Wavelength::Shared(grid) => &grid[..],
            Wavelength::Own(grids) => grids,
        };
        for values in [grid, &arm.flux, &arm.ivar] {
            numbers(&mut hash, values, |x| x.to_le_bytes());
        }
        numbers(&mut hash, &arm.mask, |bad| [u8::from(*bad)]);
        let resolution = arm.resolution.as_ref().map_or(&[][..], |r| &r.values);
        numbers(&mut hash, resolution, |x| x.to_le_bytes());
    }
    for column in &spectra.columns {
        texts(&mut hash, &[column.name.to_string()]);
        match &column.values {
            ColumnValues::Text(all) => texts(&mut hash, all),
            other => hash.update(format!("{other:?}")),
        }
    }
    hash.finalize().into()
}

/// The count, then the numbers' bytes.
fn numbers<T, const N: usize>(hash: &mut Sha256, values: &[T], bytes: impl Fn(&T) -> [u8; N]) {
    hash.update((values.len() as u64).to_le_bytes());
    for some in values.chunks(1024) {
        hash.update(some.iter().flat_map(&bytes).collect::<Vec<u8>>());
    }
}

fn texts(hash: &mut Sha256, all: &[String]) {
    hash.update((all.len() as u64).to_le_bytes());
    for text in all {
        numbers(hash, text.as_bytes(), |byte| [*byte]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::Id;

    fn spectra(flux: f64) -> Spectra {
        let grid: Vec<f64> = (0..4).map(|j| 4000.0 + f64::from(j)).collect();
        Spectra::from_arrays(grid, vec![flux; 8], vec![1.0; 8], None, None).unwrap()
    }

    fn rows(status: Status) -> Vec<FitRow> {
        let row = |k: i64| FitRow {
            id: Id::Integer(k),
            file: "".into(),
            row: k as u64,
            status,
            status_text: "ftol".into(),
            detail: String::new(),
            rounds: 3,
            evaluations: 4,
            chi2: f64::NAN,
            dof: 1,
            objective: -0.0,
            parameters: vec![1.0 / 3.0],
            errors: vec![f64::INFINITY],
            at_bound: 0,
            flags: 2,
            start: -1,
            n_starts_agree: 1,
            posterior: None,
            correlations: Vec::new(),
        };
        (0..2).map(row).collect()
    }

    #[test]
    fn a_journal_gives_back_whole_batches_and_drops_a_torn_one() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out.parquet");
        let mut journal = Journal::open(&target, "key", false).unwrap();
        assert!(matches!(Journal::open(&target, "key", true), Err(Error::OutputLocked { .. })));
        journal.keep(0, &spectra(1.0), (&rows(Status::Ftol), "cpu")).unwrap();
        journal.keep(1, &spectra(2.0), (&rows(Status::Interrupted), "cpu")).unwrap();
        journal.keep(2, &spectra(3.0), (&rows(Status::Ftol), "cpu")).unwrap();
        drop(journal);
        let path = beside(&target);
        let whole = fs::read(&path).unwrap();
        let first = 40 + u64::from_le_bytes(whole[MAGIC.len() + 32..][..8].try_into().unwrap()) as usize;
        for cut in MAGIC.len() + 32..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let journal = Journal::open(&target, "key", true).unwrap();
            let records = usize::from(cut >= MAGIC.len() + 32 + first) + usize::from(cut == whole.len());
            assert_eq!(journal.len(), records, "cut at {cut}");
        }
        fs::write(&path, &whole).unwrap();
        assert!(matches!(Journal::open(&target, "other", true), Err(Error::Journal { .. })));
        assert!(matches!(Journal::open(&target, "key", false), Err(Error::Journal { .. })));
        let mut journal = Journal::open(&target, "key", true).unwrap();
        let back = journal.recall(0, &spectra(1.0)).unwrap().unwrap();
        assert_eq!(format!("{back:?}"), format!("{:?}", (rows(Status::Ftol), "cpu")));
        assert!(journal.recall(1, &spectra(2.0)).unwrap().is_none());
        assert!(matches!(journal.recall(2, &spectra(2.0)), Err(Error::Journal { .. })));
        journal.remove();
        assert!(!path.exists());
    }
}
