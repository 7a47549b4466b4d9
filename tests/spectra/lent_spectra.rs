//! Spectra with borrowed arrays, and spectra read from memory or from several files: their rows are those of spectra
//! that own their arrays.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use popfit::low_level::InputFiles;
use popfit::low_level::Journal;
use popfit::low_level::TableReader;
use popfit::low_level::TableWriter;
use popfit::spectra::{ArmSpectra, FilesReader, Selection, SpectraReader, Wavelength};
use popfit::{
    Control, Device, Emulator, Error, FitRow, LabelSettings, Metadata, Result, Sink, Spectra,
    SpectralFitter, SpectralModel, Status, Summary, WriteOptions,
};
use popfit_testing::fits::{devices, fitter, same_bits, synb_spectra};
use popfit_testing::{data_folder, demo_emulator, synb_model};

const SPECTRA: usize = 12;

/// Returns the first spectra of `synb`, rounded to f32.
fn rounded_spectra() -> Spectra<'static> {
    let mut spectra = synb_spectra().slice(0..SPECTRA);
    let arm = &mut spectra.arms[0];
    for values in [&mut arm.flux, &mut arm.ivar] {
        values
            .to_mut()
            .iter_mut()
            .for_each(|x| *x = f64::from(*x as f32));
    }
    spectra
}

#[test]
fn borrowed_f32_gives_the_rows_of_owned_f64() {
    let owned = rounded_spectra();
    let arm = &owned.arms[0];
    let to_f32 = |values: &popfit::Values| {
        values
            .to_double()
            .iter()
            .map(|x| *x as f32)
            .collect::<Vec<_>>()
    };
    let flux = to_f32(&arm.flux);
    let ivar = to_f32(&arm.ivar);
    let grids = arm.grid(0).repeat(SPECTRA);
    for device in devices() {
        let fitter = fitter(synb_model(), &device);
        let expected = fitter.fit(&owned).unwrap();
        for own_grids in [false, true] {
            let wavelength: Wavelength = if own_grids {
                Wavelength::Own((&grids).into())
            } else {
                (&*arm.grid(0)).into()
            };
            let borrowed = ArmSpectra::new("", arm.pixels, wavelength, &flux, &ivar, None).unwrap();
            let borrowed =
                Spectra::from_arms(vec![borrowed.with_mask(&arm.mask[..]).unwrap()], None).unwrap();
            let table = fitter.fit(&borrowed).unwrap();
            for (row, expected) in table.to_rows().into_iter().zip(expected.to_rows()) {
                same_bits(
                    row,
                    expected,
                    &format!("{}, own grids {own_grids}", device.name()),
                );
            }
            let copied = borrowed.clone().into_owned();
            assert_eq!(copied, borrowed);
        }
    }
}

#[test]
fn a_mask_of_another_length_is_refused() {
    let arm = ArmSpectra::new(
        "b",
        2,
        &[4000.0, 4001.0][..],
        [1.0f32; 4],
        [1.0f32; 4],
        None,
    )
    .unwrap();
    let error = arm.with_mask(vec![true; 3]).unwrap_err().to_string();
    assert_eq!(error, "arm b: mask has 3 values, not 4");
}

#[test]
fn fits_of_spectra_in_memory_can_be_cancelled() {
    let spectra = rounded_spectra();
    for device in devices() {
        let fitter = fitter(synb_model(), &device).batch_size(5);
        let expected = fitter.fit(&spectra).unwrap();
        let table = fitter.fit(&spectra).unwrap();
        assert_eq!(table.len(), SPECTRA);
        for (row, expected) in table.to_rows().into_iter().zip(expected.to_rows()) {
            assert_eq!((row.row, &row.id), (expected.row, &expected.id));
            same_bits(row, expected, &device.name());
        }
        let stopped = Control {
            cancel: Arc::new(AtomicBool::new(true)),
            ..Control::default()
        };
        let table = fitter
            .clone()
            .control(stopped.clone())
            .fit(&spectra)
            .unwrap();
        assert!(
            table.len() == SPECTRA
                && table
                    .to_rows()
                    .into_iter()
                    .all(|row| row.status == Status::Interrupted)
        );
    }
}

#[test]
fn a_reader_over_memory_yields_every_spectrum_once() {
    let spectra = rounded_spectra();
    for max in [1, 5, SPECTRA, 1000] {
        let mut reader = spectra.reader();
        assert_eq!(
            (reader.len(), reader.empty()),
            (SPECTRA as u64, spectra.slice(0..0))
        );
        let mut position = 0;
        while let Some(batch) = reader.next_batch(max).unwrap() {
            assert!(batch.len() <= max);
            assert_eq!(batch, spectra.slice(position..position + batch.len()));
            position += batch.len();
        }
        assert_eq!(position, SPECTRA);
    }
}

/// One call fits files into a table. A run that is stopped is resumed by the same call, to the bytes of another run.
#[test]
fn one_call_fits_files_and_resumes_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path_of = |name: &str| folder.path().join(name);
    let files = [path_of("a.npz")];
    std::fs::copy(
        data_folder().join("synb/fixed_vsini/spectra.npz"),
        &files[0],
    )
    .unwrap();
    let fitter = SpectralFitter::new(synb_model(), Device::cpu()).batch_size(16);
    let metadata = Metadata {
        model: "of the test".into(),
        ..Metadata::of(&fitter)
    };
    let [whole, resumed] = ["whole.fits", "resumed.fits"].map(path_of);
    let selection = Selection::default();
    let fit = |fitter: &SpectralFitter, output: &Path| {
        fitter.fit_files(&files, &selection, output, &metadata)
    };
    assert_eq!(fit(&fitter, &whole).unwrap().fits, 128);
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = cancel.clone();
    let control = Control {
        cancel,
        progress: Some(Arc::new(move |_, _| flag.store(true, Ordering::Relaxed))),
        ..Control::default()
    };
    let stopped = fit(&fitter.clone().control(control), &resumed).unwrap();
    assert!((1..128).contains(&stopped.interrupted), "{stopped:?}");
    let summary = fit(&fitter, &resumed).unwrap();
    let fitted: u64 = summary.by_device.iter().map(|device| device.rows).sum();
    assert!(summary.interrupted == 0 && fitted < 128, "{summary:?}");
    let [whole, resumed] = [whole, resumed].map(|path| std::fs::read(path).unwrap());
    assert!(whole == resumed);
    // Only files that a run has written itself are replaced.
    let error = fit(&fitter, &path_of("whole.fits")).unwrap_err();
    assert!(matches!(error, Error::OutputExists { .. }), "{error}");
    // A run that is stopped leaves an earlier run's table as it was.
    let stopped = fitter.control(Control {
        timeout: Some(Duration::ZERO),
        ..Control::default()
    });
    let options = WriteOptions {
        overwrite: true,
        ..WriteOptions::from(&metadata)
    };
    let output = path_of("whole.fits");
    let error = stopped
        .fit_files(&files, &selection, &output, options)
        .unwrap_err();
    assert!(matches!(error, Error::Interrupted { .. }), "{error}");
    assert!(std::fs::read(output).unwrap() == whole);
}

/// Passes rows on to a table, and fails after a number of rows.
struct FailingSink<'a>(&'a mut TableWriter, usize);

impl Sink for FailingSink<'_> {
    fn append(&mut self, spectra: &Spectra, rows: &[FitRow]) -> Result<()> {
        self.1 = self
            .1
            .checked_sub(rows.len())
            .ok_or_else(|| Error::Usage("the sink is full".into()))?;
        Sink::append(self.0, spectra, rows)
    }
}

/// A program runs over two files. The run fails in the middle, and is resumed.
#[test]
fn an_interrupted_run_over_several_files_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let path_of = |name: &str| folder.path().join(name);
    let source = data_folder().join("synb/fixed_vsini/spectra.npz");
    let files = ["a.npz", "b.npz"].map(path_of);
    for file in &files {
        std::fs::copy(&source, file).unwrap();
    }
    let fitter = SpectralFitter::new(synb_model(), Device::cpu()).batch_size(64);
    let metadata = Metadata {
        model: "of the test".into(),
        ..Metadata::of(&fitter)
    };
    let selection = Selection::default();
    let run_program =
        |target: &Path, resume: bool, max_rows: usize, end: fn(Journal) -> Result<(), Error>| {
            let mut inputs = InputFiles::new(&files);
            let mut reader = FilesReader::open(&files, &selection)?;
            assert!(inputs.read(&AtomicBool::new(false))?);
            let resume_key = fitter.resume_key(&metadata.model, &selection, &inputs);
            let mut journal = Journal::open(target, &resume_key, resume)?;
            journal.claim_outputs(&[target.to_path_buf()], false)?;
            let schema = popfit::low_level::Schema::of(&fitter, reader.text_ids());
            let options = WriteOptions {
                overwrite: target.exists(),
                ..WriteOptions::from(&metadata)
            };
            let mut writer = TableWriter::create(target, &schema, options)?;
            let mut sink = FailingSink(&mut writer, max_rows);
            let summary = fitter.fit_journaled(&mut reader, &mut sink, &mut journal)?;
            inputs.check()?;
            writer.finish_run(&[], Some(&mut journal))?;
            end(journal)?;
            Ok::<_, Error>(summary)
        };
    let whole = path_of("whole.fits");
    let resumed = path_of("resumed.fits");
    run_program(&whole, false, usize::MAX, Journal::remove).unwrap();
    assert_eq!(
        run_program(&resumed, false, 100, Journal::remove)
            .unwrap_err()
            .to_string(),
        "the sink is full"
    );
    // The second run is killed after the table has its final name. The third run finds this table.
    let leave_journal = |journal: Journal| {
        journal.leave();
        Ok(())
    };
    let summary = run_program(&resumed, true, usize::MAX, leave_journal).unwrap();
    let count_fitted = |summary: &Summary| {
        summary
            .by_device
            .iter()
            .map(|device| device.rows)
            .sum::<u64>()
    };
    assert!(
        summary.fits == 256 && count_fitted(&summary) < 256,
        "{summary:?}"
    );
    let summary = run_program(&resumed, true, usize::MAX, Journal::remove).unwrap();
    assert!(
        summary.fits == 256 && count_fitted(&summary) == 0,
        "{summary:?}"
    );
    let tables = [whole, resumed].map(|path| TableReader::open(path).unwrap().read_all().unwrap());
    for (row, expected) in tables[1].to_rows().into_iter().zip(tables[0].to_rows()) {
        same_bits(row, expected, "resumed");
    }
    assert_eq!(tables[0].len(), 256);

    // Other files make another run, and so does another prior of a model that was built without a file.
    let resume_key = |fitter: &SpectralFitter, files: &[PathBuf]| {
        let mut inputs = InputFiles::new(files);
        assert!(inputs.read(&AtomicBool::new(false)).unwrap());
        fitter.resume_key("", &selection, &inputs)
    };
    let with_prior = |mean: f64| {
        let model = SpectralModel::builder().arm("", Emulator::open(demo_emulator()).unwrap());
        let model = model
            .label("alpha", LabelSettings::default().prior(mean, 0.1))
            .build()
            .unwrap();
        SpectralFitter::new(model, Device::cpu())
    };
    assert_ne!(
        resume_key(&fitter, &files),
        resume_key(&fitter, &files[..1])
    );
    assert_eq!(
        resume_key(&with_prior(0.2), &files),
        resume_key(&with_prior(0.2), &files)
    );
    assert_ne!(
        resume_key(&with_prior(0.2), &files),
        resume_key(&with_prior(0.3), &files)
    );
    let stopped = AtomicBool::new(true);
    assert!(
        !InputFiles::new(&files).read(&stopped).unwrap(),
        "files that were not read give no key"
    );
}

#[test]
fn a_file_that_changes_during_the_run_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.npz");
    std::fs::write(&file, b"before").unwrap();
    let mut inputs = InputFiles::new(&[&file]);
    assert!(inputs.read(&AtomicBool::new(false)).unwrap());
    inputs.check().unwrap();
    std::fs::write(&file, b"afterwards").unwrap();
    let error = inputs.check().unwrap_err();
    assert!(
        matches!(&error, Error::InputChanged { path } if *path == file),
        "{error}"
    );
}

#[test]
fn a_reader_without_files_is_refused() {
    let error = FilesReader::open(&[] as &[&str], &Selection::default()).unwrap_err();
    assert_eq!(error.to_string(), "no file of spectra is given");
}

/// A file may be replaced while its spectra wait to be fitted. When the run is resumed, the journal has rows of other
/// spectra than those of the file. These are fitted again, and rows of other files are kept.
#[test]
fn rows_of_replaced_spectra_are_fitted_again() {
    let folder = tempfile::tempdir().unwrap();
    let path_of = |name: &str| folder.path().join(name);
    let files = ["a.npz", "b.npz"].map(path_of);
    let source = data_folder().join("synb/fixed_vsini/spectra.npz");
    let spectra = Spectra::open(&source).unwrap();
    let fitter = SpectralFitter::new(synb_model(), Device::cpu()).batch_size(32);
    let run_program = |resume: bool, later: &Spectra<'static>, journal_of: &Path| {
        let mut journal = Journal::open(journal_of, "the same run", resume).unwrap();
        let mut table = fitter.table();
        let mut reader = BatchReader([spectra.slice(0..32), later.clone()].into());
        let summary = fitter
            .fit_journaled(&mut reader, &mut table, &mut journal)
            .unwrap();
        journal.leave();
        (table, summary)
    };
    let old = spectra.slice(32..64);
    let new = spectra.slice(64..96);
    run_program(false, &old, &files[0]);
    let (resumed, summary) = run_program(true, &new, &files[0]);
    let (expected, _) = run_program(false, &new, &files[1]);
    let fitted: u64 = summary.by_device.iter().map(|device| device.rows).sum();
    assert_eq!((summary.fits, fitted), (64, 32));
    let [message] = summary.failures.as_slice() else {
        panic!("{:?}", summary.failures)
    };
    assert!(
        message.contains("its spectra have changed since they were fitted; they are fitted again"),
        "{message}"
    );
    for (row, expected) in resumed.to_rows().into_iter().zip(expected.to_rows()) {
        same_bits(row, expected, "resumed");
    }
    // The journal has the new rows now.
    let (_, summary) = run_program(true, &new, &files[0]);
    assert!(
        summary.failures.is_empty() && summary.by_device.iter().all(|device| device.rows == 0),
        "{summary:?}"
    );
}

/// Yields batches of spectra one after the other.
struct BatchReader(std::collections::VecDeque<Spectra<'static>>);

impl SpectraReader for BatchReader {
    fn len(&self) -> u64 {
        self.0.iter().map(|spectra| spectra.len() as u64).sum()
    }

    fn next_batch(&mut self, _: usize) -> Result<Option<Spectra<'static>>> {
        Ok(self.0.pop_front())
    }

    fn empty(&self) -> Spectra<'static> {
        self.0[0].slice(0..0)
    }
}
