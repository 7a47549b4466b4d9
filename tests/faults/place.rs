//! A folder with spectra and an old output, and a run in it: what `popfit fit` does, in this process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use popfit::RvTabWriter;
use popfit::low_level::Journal;
use popfit::low_level::{Schema, TableWriter};
use popfit::spectra::{SpectraReader, open_reader};
use popfit::{
    Control, Device, FitRow, Metadata, Result, Sink, Spectra, SpectralFitter, SpectralModel,
    Status, WriteOptions,
};
use tempfile::TempDir;

use popfit_testing::files::Files;
use popfit_testing::tiny::{self, PIXELS, linear, wave, wavelength};
use popfit_testing::{f64s, file, fits, npz};

/// Each file is a batch.
const FILES: usize = 3;
const SPECTRA: usize = 4;
pub const KEY: &str = "version = 1\nstarts = 1";
pub const OLD: &[u8] = b"what was here before";

/// The layouts of the result, by the names of its files.
pub const FORMATS: [&[&str]; 4] = [
    &["out.parquet"],
    &["out.csv"],
    &["out.fits"],
    &["rvtab_1.fits", "rvmod_1.fits"],
];

pub struct Place {
    pub folder: TempDir,
    model: SpectralModel,
    /// The spectra of each batch, and their files, where these are read.
    batches: Vec<Spectra<'static>>,
    inputs: Vec<PathBuf>,
    /// The table, then what belongs to it.
    pub outputs: Vec<PathBuf>,
}

/// End of a run that did not fail.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    Whole,
    Interrupted,
}

impl Place {
    /// `reads`: the spectra are read from files, a reader's faults among the others.
    pub fn new(outputs: &[&str], reads: bool) -> Place {
        let emulator = linear(&["a", "b"], wave);
        // thousands of runs flush their files: where there is a disk in memory, there
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        }
        .unwrap();
        let batch = |n: usize| {
            let labels: Vec<f64> = (0..2 * SPECTRA)
                .map(|k| 4.0 * ((k + 9 * n) as f64 * 0.7).sin())
                .collect();
            tiny::spectra(&emulator, &labels, 0.01)
        };
        let batches: Vec<Spectra> = (0..FILES).map(batch).collect();
        let write = |(n, spectra): (usize, &Spectra)| {
            let arrays = [
                ("wavelength", f64s(&[PIXELS], &wavelength())),
                (
                    "flux",
                    f64s(&[SPECTRA, PIXELS], &spectra.arms[0].flux.to_double()),
                ),
                (
                    "ivar",
                    f64s(&[SPECTRA, PIXELS], &spectra.arms[0].ivar.to_double()),
                ),
            ];
            file(
                folder.path(),
                &format!("spectra_{n}.npz"),
                &npz(&arrays, false),
            )
        };
        let inputs = batches
            .iter()
            .enumerate()
            .filter(|_| reads)
            .map(write)
            .collect();
        let outputs = outputs
            .iter()
            .map(|name| folder.path().join(name))
            .collect();
        Place {
            folder,
            model: tiny::model(emulator, 0.5),
            batches,
            inputs,
            outputs,
        }
    }

    /// A fitter of one run: one that has made a run keeps its populations, and asks for no memory.
    fn fitter(&self) -> SpectralFitter {
        fits::fitter(self.model.clone(), &Device::cpu()).starts(1)
    }

    /// Only the inputs, and the old outputs.
    pub fn reset(&self) {
        for entry in std::fs::read_dir(self.folder.path()).unwrap() {
            let path = entry.unwrap().path();
            if !self.inputs.contains(&path) {
                std::fs::remove_file(path).unwrap();
            }
        }
        self.outputs
            .iter()
            .for_each(|output| std::fs::write(output, OLD).unwrap());
    }

    pub fn read(&self) -> Vec<Vec<u8>> {
        self.outputs
            .iter()
            .map(|output| std::fs::read(output).unwrap_or_default())
            .collect()
    }

    /// Returns the names of files other than inputs and outputs.
    pub fn others(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let others =
            entries.filter(|path| !self.inputs.contains(path) && !self.outputs.contains(path));
        others
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect()
    }

    /// Fits all spectra. `cancel` interrupts it, `told` counts what its progress function is told.
    pub fn run(
        &self,
        resume: bool,
        cancel: &Arc<AtomicBool>,
        told: &Arc<AtomicU64>,
    ) -> Result<Ended> {
        let mut readers = self
            .inputs
            .iter()
            .map(open_reader)
            .collect::<Result<Vec<_>>>()?;
        if readers.is_empty() {
            readers.extend(
                self.batches
                    .iter()
                    .map(|batch| Box::new(Files::new(std::slice::from_ref(batch))) as _),
            );
        }
        let heads: Vec<Spectra> = readers.iter().map(|reader| reader.empty()).collect();
        let mut source = Chain {
            readers,
            current: 0,
        };
        let told = told.clone();
        let progress = move |done, _| told.store(done, Ordering::Relaxed);
        let control = Control {
            cancel: cancel.clone(),
            progress: Some(Arc::new(progress)),
            ..Control::default()
        };
        let mut journal = Journal::open(&self.outputs[0], KEY, resume)?;
        let metadata = Metadata {
            model: "[[arm]]\n".into(),
            ..Metadata::default()
        };
        let options = WriteOptions {
            metadata,
            overwrite: true,
        };
        let fitter = self.fitter();
        let interrupted = if self.outputs.len() == 2 {
            let mut table = RvTabWriter::create(&self.outputs[0], &fitter, &heads, options)?;
            let interrupted = fit(&fitter, &mut source, &mut table, &control, &mut journal)?;
            table.finish()?;
            interrupted
        } else {
            let schema = Schema::of(&fitter, false);
            let mut table = TableWriter::create(&self.outputs[0], &schema, options)?;
            let interrupted = fit(&fitter, &mut source, &mut table, &control, &mut journal)?;
            table.finish()?;
            interrupted
        };
        if interrupted {
            return Ok(Ended::Interrupted);
        }
        // the outputs are whole, whether or not it can be removed
        let _ = journal.remove();
        Ok(Ended::Whole)
    }
}

/// Fits all spectra. Returns whether a row says that it was interrupted.
fn fit(
    fitter: &SpectralFitter,
    source: &mut Chain,
    table: &mut dyn Sink,
    control: &Control,
    journal: &mut Journal,
) -> Result<bool> {
    let mut sink = Watching {
        table,
        interrupted: false,
        rows: 0,
    };
    fitter
        .clone()
        .control(control.clone())
        .fit_journaled(source, &mut sink, journal)?;
    assert_eq!(sink.rows, FILES * SPECTRA, "a row for every spectrum");
    Ok(sink.interrupted)
}

/// One reader after the other.
struct Chain {
    readers: Vec<Box<dyn SpectraReader>>,
    current: usize,
}

impl SpectraReader for Chain {
    fn len(&self) -> u64 {
        self.readers.iter().map(|reader| reader.len()).sum()
    }

    fn next_batch(&mut self, max: usize) -> Result<Option<Spectra<'static>>> {
        while let Some(reader) = self.readers.get_mut(self.current) {
            if let Some(batch) = reader.next_batch(max)? {
                return Ok(Some(batch));
            }
            self.current += 1;
        }
        Ok(None)
    }

    fn empty(&self) -> Spectra<'static> {
        self.readers[0].empty()
    }
}

struct Watching<'a> {
    table: &'a mut dyn Sink,
    interrupted: bool,
    rows: usize,
}

impl Sink for Watching<'_> {
    fn append(&mut self, spectra: &Spectra, rows: &[FitRow]) -> Result<()> {
        self.rows += rows.len();
        self.interrupted |= rows.iter().any(|row| row.status == Status::Interrupted);
        self.table.append(spectra, rows)
    }
}

/// Open files and threads of this process.
pub fn held() -> (usize, usize) {
    let count =
        |folder: &str| std::fs::read_dir(Path::new(folder)).map_or(0, |entries| entries.count());
    (count("/proc/self/fd"), count("/proc/self/task"))
}
