//! Spectra that are lent, read from memory or from several files: the rows are those of arrays that the spectra own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use popfit::spectra::{ArmSpectra, FilesReader, InputFiles, Selection, SpectraReader, Wavelength};
use popfit::{
    Control, Device, Emulator, Error, FitRow, Journal, LabelSettings, Metadata, Result, Sink,
    Spectra, SpectralFitter, SpectralModel, Status, Summary, TableReader, TableWriter,
    WriteOptions,
};
use popfit_testing::fits::{devices, fitter, same_bits, synb_spectra};
use popfit_testing::{data_folder, demo_emulator, synb_model};

const SPECTRA: usize = 12;

/// The first spectra of `synb`, with numbers that f32 can hold.
fn rounded() -> Spectra<'static> {
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
fn lent_f32_gives_the_rows_of_owned_f64() {
    let owned = rounded();
    let arm = &owned.arms[0];
    let single = |values: &popfit::Values| {
        values
            .to_double()
            .iter()
            .map(|x| *x as f32)
            .collect::<Vec<_>>()
    };
    let (flux, ivar) = (single(&arm.flux), single(&arm.ivar));
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
            let lent = ArmSpectra::new("", arm.pixels, wavelength, &flux, &ivar, None).unwrap();
            let lent =
                Spectra::from_arms(vec![lent.with_mask(&arm.mask[..]).unwrap()], None).unwrap();
            let table = fitter.fit(&lent).unwrap();
            for (row, expected) in table.to_rows().into_iter().zip(expected.to_rows()) {
                same_bits(
                    row,
                    expected,
                    &format!("{}, own grids {own_grids}", device.name()),
                );
            }
            let copied = lent.clone().into_owned();
            assert_eq!(copied, lent);
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
fn spectra_in_memory_are_watched_and_stopped() {
    let spectra = rounded();
    for device in devices() {
        let fitter = fitter(synb_model(), &device).batch_size(5);
        let expected = fitter.fit(&spectra).unwrap();
        let table = fitter.fit_with(&spectra, &Control::default()).unwrap();
        assert_eq!(table.len(), SPECTRA);
        for (row, expected) in table.to_rows().into_iter().zip(expected.to_rows()) {
            assert_eq!((row.row, &row.id), (expected.row, &expected.id));
            same_bits(row, expected, &device.name());
        }
        let stopped = Control::default().cancel(Arc::new(AtomicBool::new(true)));
        let table = fitter.fit_with(&spectra, &stopped).unwrap();
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
    let spectra = rounded();
    for max in [1, 5, SPECTRA, 1000] {
        let mut reader = spectra.reader();
        assert_eq!(
            (reader.len(), reader.empty()),
            (SPECTRA as u64, spectra.slice(0..0))
        );
        let mut next = 0;
        while let Some(batch) = reader.next_batch(max).unwrap() {
            assert!(batch.len() <= max);
            assert_eq!(batch, spectra.slice(next..next + batch.len()));
            next += batch.len();
        }
        assert_eq!(next, SPECTRA);
    }
}

/// Passes rows on, and fails after so many.
struct Failing<'a>(&'a mut TableWriter, usize);

impl Sink for Failing<'_> {
    fn append(&mut self, spectra: &Spectra, rows: &[FitRow]) -> Result<()> {
        self.1 = self
            .1
            .checked_sub(rows.len())
            .ok_or_else(|| Error::Usage("the sink is full".into()))?;
        Sink::append(self.0, spectra, rows)
    }
}

/// A program's own run over two files, stopped in its midst and resumed.
#[test]
fn a_run_over_several_files_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name);
    let source = data_folder().join("synb/fixed_vsini/spectra.npz");
    let files = ["a.npz", "b.npz"].map(name);
    for file in &files {
        std::fs::copy(&source, file).unwrap();
    }
    let fitter = SpectralFitter::new(synb_model(), Device::cpu()).batch_size(64);
    let metadata = Metadata::of(&fitter).model("of the test");
    let selection = Selection::default();
    let run = |target: &Path, resume: bool, most: usize, end: fn(Journal) -> Result<(), Error>| {
        let mut inputs = InputFiles::new(&files);
        let mut reader = FilesReader::open(&files, &selection)?;
        assert!(inputs.read(&AtomicBool::new(false))?);
        let key = fitter.resume_key(&metadata.model, &selection, &inputs);
        let mut journal = Journal::open(target, &key, resume)?;
        journal.claim_outputs(&[target.to_path_buf()], false)?;
        let schema = popfit::Schema::of(&fitter, reader.text_ids());
        let options = WriteOptions::from(&metadata).overwrite(target.exists());
        let mut writer = TableWriter::create(target, &schema, options)?;
        let mut sink = Failing(&mut writer, most);
        let summary =
            fitter.fit_journaled(&mut reader, &mut sink, &Control::default(), &mut journal)?;
        inputs.check()?;
        writer.finish_journaled(&mut journal)?;
        end(journal)?;
        Ok::<_, Error>(summary)
    };
    let (whole, resumed) = (name("whole.fits"), name("resumed.fits"));
    run(&whole, false, usize::MAX, Journal::remove).unwrap();
    assert_eq!(
        run(&resumed, false, 100, Journal::remove)
            .unwrap_err()
            .to_string(),
        "the sink is full"
    );
    // the second run is killed after the table has its name: the third one finds its own table
    let leave = |journal: Journal| {
        journal.leave();
        Ok(())
    };
    let summary = run(&resumed, true, usize::MAX, leave).unwrap();
    let fitted = |summary: &Summary| summary.by_device.iter().map(|one| one.rows).sum::<u64>();
    assert!(summary.fits == 256 && fitted(&summary) < 256, "{summary:?}");
    let summary = run(&resumed, true, usize::MAX, Journal::remove).unwrap();
    assert!(summary.fits == 256 && fitted(&summary) == 0, "{summary:?}");
    let tables = [whole, resumed].map(|path| TableReader::open(path).unwrap().read_all().unwrap());
    for (row, expected) in tables[1].to_rows().into_iter().zip(tables[0].to_rows()) {
        same_bits(row, expected, "resumed");
    }
    assert_eq!(tables[0].len(), 256);

    // other files are another run, and so is another prior of a model that was built without a file
    let key = |fitter: &SpectralFitter, files: &[PathBuf]| {
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
    assert_ne!(key(&fitter, &files), key(&fitter, &files[..1]));
    assert_eq!(key(&with_prior(0.2), &files), key(&with_prior(0.2), &files));
    assert_ne!(key(&with_prior(0.2), &files), key(&with_prior(0.3), &files));
    let stopped = AtomicBool::new(true);
    assert!(
        !InputFiles::new(&files).read(&stopped).unwrap(),
        "what was not read is no key"
    );
}

#[test]
fn a_file_that_is_written_to_is_noticed() {
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
fn a_reader_wants_a_file() {
    let error = FilesReader::open(&[] as &[&str], &Selection::default()).unwrap_err();
    assert_eq!(error.to_string(), "no file of spectra is given");
}

/// A file may be replaced while its spectra wait for their turn: on resumption its rows in the journal are of other
/// spectra, which are fitted again, and rows of other files are kept.
#[test]
fn rows_of_replaced_spectra_are_fitted_again() {
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name);
    let files = ["a.npz", "b.npz"].map(name);
    let source = data_folder().join("synb/fixed_vsini/spectra.npz");
    let spectra = Spectra::open(&source).unwrap();
    let fitter = SpectralFitter::new(synb_model(), Device::cpu()).batch_size(32);
    let run = |resume: bool, later: &Spectra<'static>, journal_of: &Path| {
        let mut journal = Journal::open(journal_of, "the same run", resume).unwrap();
        let mut table = fitter.table();
        let mut reader = Both([spectra.slice(0..32), later.clone()].into());
        let summary = fitter
            .fit_journaled(&mut reader, &mut table, &Control::default(), &mut journal)
            .unwrap();
        journal.leave();
        (table, summary)
    };
    let (old, new) = (spectra.slice(32..64), spectra.slice(64..96));
    run(false, &old, &files[0]);
    let (resumed, summary) = run(true, &new, &files[0]);
    let (expected, _) = run(false, &new, &files[1]);
    let fitted: u64 = summary.by_device.iter().map(|device| device.rows).sum();
    assert_eq!((summary.fits, fitted), (64, 32));
    let [said] = summary.failures.as_slice() else {
        panic!("{:?}", summary.failures)
    };
    assert!(
        said.contains("its spectra have changed since they were fitted; they are fitted again"),
        "{said}"
    );
    for (row, expected) in resumed.to_rows().into_iter().zip(expected.to_rows()) {
        same_bits(row, expected, "resumed");
    }
    // the journal has the new rows now
    let (_, summary) = run(true, &new, &files[0]);
    assert!(
        summary.failures.is_empty() && summary.by_device.iter().all(|device| device.rows == 0),
        "{summary:?}"
    );
}

/// Yields batches of spectra in turn.
struct Both(std::collections::VecDeque<Spectra<'static>>);

impl SpectraReader for Both {
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
