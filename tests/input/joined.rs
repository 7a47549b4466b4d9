//! Readers that join the spectra of one id to objects with exposures. What joining in memory makes of the whole file is
//! what the batches are compared with.

use popfit::low_level::checks::check_spectra;
use popfit::low_level::{InputFiles, JoinedReader};
use popfit::spectra::{
    Exposures, FilesReader, Ids, Selection, SpectraReader, open_reader, open_reader_with,
};
use popfit::{Device, Error, ExposureVelocity, Result, Spectra, SpectralFitter};
use popfit_testing::fits_bytes::{ARMS, COUNT, FitsBytes, LARGE_ID, arm};
use popfit_testing::{bools, demo_builder, demo_file, f32s, f64s, file, i64s, npy, npz};

/// Ids of nine spectra: the exposures of most objects are apart.
const IDS: [i64; 9] = [30, 10, 30, 20, 20, 10, 40, 30, 10];
/// Objects of these ids, in the order of their first exposures, with the numbers of their exposures.
const OBJECTS: [(i64, usize); 4] = [(30, 3), (10, 3), (20, 2), (40, 1)];

/// Returns an NPZ file of nine spectra of three pixels, with a grid, a mask and columns of each.
fn npz_file(ids: Vec<u8>) -> Vec<u8> {
    let count = IDS.len();
    let numbers: Vec<f64> = (0..3 * count).map(|k| k as f64).collect();
    let flux: Vec<f32> = numbers.iter().map(|x| *x as f32).collect();
    let grids: Vec<f64> = numbers.iter().map(|x| 5000.0 + x).collect();
    let mask: Vec<bool> = (0..3 * count).map(|k| k % 5 == 0).collect();
    let arrays = [
        ("wavelength", f64s(&[count, 3], &grids)),
        ("flux", f32s(&[count, 3], &flux)),
        ("ivar", f64s(&[count, 3], &numbers)),
        ("mask", bools(&[count, 3], &mask)),
        ("resolution", f32s(&[count, 1, 3], &flux)),
        ("id", ids),
        ("TEFF0", f64s(&[count], &numbers[..count])),
    ];
    npz(&arrays, true)
}

/// Returns an array of texts of two ASCII characters.
fn texts(ids: &[i64]) -> Vec<u8> {
    let bytes: Vec<u8> = ids
        .iter()
        .flat_map(|id| id.to_string().into_bytes())
        .collect();
    npy("|S2", &[ids.len()], &bytes)
}

/// Returns a DESI file in which the first and the third row are of one target.
fn desi_file() -> Vec<u8> {
    let ids = [LARGE_ID, 8, LARGE_ID, 9];
    let cells = |number: i64| number.to_be_bytes().to_vec();
    let columns = [
        ("TARGETID", "K", ids.map(cells).to_vec()),
        ("EXPID", "K", [1, 2, 3, 4].map(cells).to_vec()),
    ];
    let file = FitsBytes::new(&[]).table("FIBERMAP", &columns, &[]);
    let file = ARMS
        .iter()
        .fold(file, |file, (name, pixels)| arm(file, name, *pixels));
    file.0
}

fn joining() -> Selection {
    Selection {
        join_exposures: true,
        ..Selection::default()
    }
}

/// Reads a file to its end in batches of at most `max` objects, and compares them with `expected`.
fn assert_batches(reader: &mut dyn SpectraReader, expected: &Spectra, max: usize) {
    assert_eq!(reader.len(), expected.len() as u64);
    assert_eq!(reader.empty(), expected.slice(0..0));
    let mut begin = 0;
    while let Some(batch) = reader.next_batch(max).unwrap() {
        let end = expected.len().min(begin + max);
        assert_eq!(batch, expected.slice(begin..end), "{begin}..{end} by {max}");
        begin = end;
    }
    assert_eq!(begin, expected.len());
    assert!(reader.next_batch(max).unwrap().is_none());
}

#[test]
fn scattered_exposures_are_joined_whatever_the_size_of_batches() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        file(folder.path(), "integers.npz", &npz_file(i64s(&IDS))),
        file(folder.path(), "texts.npz", &npz_file(texts(&IDS))),
        file(folder.path(), "desi.fits", &desi_file()),
        demo_file("spectra.npz"),
    ];
    for path in &files {
        let expected = Spectra::open(path).unwrap().join_exposures();
        for max in [1, 2, 3, 100] {
            let mut reader = open_reader_with(path, &joining()).unwrap();
            assert_batches(&mut *reader, &expected, max);
        }
    }
    let joined = Spectra::open(&files[0]).unwrap().join_exposures();
    assert_eq!(joined.ids, Ids::Integer(OBJECTS.map(|(id, _)| id).to_vec()));
    let counts = OBJECTS.map(|(_, count)| count);
    assert_eq!(joined.exposures, Some(Exposures::from_counts(counts)));
    assert_eq!(
        (&joined.rows[..], joined.arms[0].len()),
        (&[0, 1, 3, 6][..], IDS.len())
    );
    let texts = Spectra::open(&files[1]).unwrap().join_exposures();
    assert!(matches!(&texts.ids, Ids::Text(ids) if ids[2] == "20"));
    let desi = Spectra::open(&files[2]).unwrap().join_exposures();
    assert_eq!(desi.ids, Ids::Integer(vec![LARGE_ID, 8, 9]));
    assert_eq!((desi.rows, desi.arms[0].len()), (vec![0, 1, 3], COUNT));
}

/// A selection of rows leaves out exposures, and objects without any.
#[test]
fn selected_exposures_are_joined() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "desi.fits", &desi_file());
    let selection = Selection {
        target_ids: Some(vec![LARGE_ID, 9]),
        ..joining()
    };
    let mut reader = open_reader_with(&path, &selection).unwrap();
    let batch = reader.next_batch(10).unwrap().unwrap();
    assert_eq!(batch.ids, Ids::Integer(vec![LARGE_ID, 9]));
    assert_eq!(batch.exposures, Some(Exposures::from_counts([2, 1])));
    let missing = Selection {
        target_ids: Some(vec![5]),
        ..joining()
    };
    let mut reader = open_reader_with(&path, &missing).unwrap();
    assert!(reader.is_empty() && reader.next_batch(10).unwrap().is_none());
}

/// A reader that does not know its ids, and yields no more than two spectra at once.
struct WithoutIds(Box<dyn SpectraReader>);

impl SpectraReader for WithoutIds {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn next_batch(&mut self, max: usize) -> Result<Option<Spectra<'static>>> {
        self.0.next_batch(max.min(2))
    }

    fn empty(&self) -> Spectra<'static> {
        self.0.empty()
    }
}

#[test]
fn spectra_without_known_ids_are_joined() {
    let folder = tempfile::tempdir().unwrap();
    for ids in [i64s(&IDS), texts(&IDS)] {
        let path = file(folder.path(), "x.npz", &npz_file(ids));
        let expected = Spectra::open(&path).unwrap().join_exposures();
        for max in [1, 3, 100] {
            let reader = WithoutIds(open_reader(&path).unwrap());
            let mut reader = JoinedReader::new(Box::new(reader)).unwrap();
            assert_batches(&mut reader, &expected, max);
        }
    }
}

#[test]
fn exposures_in_different_files_are_different_objects() {
    let folder = tempfile::tempdir().unwrap();
    let first = file(folder.path(), "first.npz", &npz_file(i64s(&IDS)));
    let second = file(folder.path(), "second.npz", &npz_file(i64s(&IDS)));
    let mut reader = FilesReader::open(&[&first, &second], &joining()).unwrap();
    assert_eq!((reader.len(), reader.lengths()), (8, vec![4, 4]));
    let heads = reader.files();
    let no_objects = Some(Exposures::from_counts([]));
    assert!(heads.iter().all(|head| head.exposures == no_objects));
    let mut objects = Vec::new();
    while let Some(batch) = reader.next_batch(3).unwrap() {
        let exposures = batch.exposures.as_ref().unwrap();
        for object in 0..batch.len() {
            let name = batch.file.rsplit('/').next().unwrap().to_string();
            objects.push((name, batch.ids.text(object), exposures.count(object)));
        }
    }
    let expected: Vec<_> = ["first.npz", "second.npz"]
        .iter()
        .flat_map(|name| OBJECTS.map(|(id, count)| (name.to_string(), id.to_string(), count)))
        .collect();
    assert_eq!(objects, expected);
}

/// Objects of arrays: any number of exposures each, whatever their ids.
#[test]
fn spectra_in_memory_are_grouped_by_counts() {
    let spectra = || Spectra::open(demo_file("spectra.npz")).unwrap().slice(0..5);
    let objects = spectra()
        .with_exposures(Exposures::from_counts([2, 3]))
        .unwrap();
    assert_eq!((objects.len(), &objects.rows[..]), (2, &[0, 2][..]));
    assert_eq!(objects.slice(1..2).arms[0].len(), 3);
    for counts in [&[2, 2][..], &[5, 0], &[6], &[]] {
        let exposures = Exposures::from_counts(counts.iter().copied());
        let error = spectra().with_exposures(exposures).unwrap_err();
        assert!(matches!(error, Error::ShapeMismatch { .. }), "{counts:?}");
    }
    let again = objects.with_exposures(Exposures::from_counts([1, 1]));
    assert!(matches!(again, Err(Error::InvalidArgument { .. })));
}

#[test]
fn models_say_whether_exposures_are_joined() {
    let separate = demo_builder("").build().unwrap();
    let shared = demo_builder("").exposures(ExposureVelocity::Shared);
    let shared = shared.build().unwrap();
    for (model, joins) in [
        (separate.clone(), false),
        (shared.clone(), true),
        (separate.clone().join_exposures(true), true),
        (shared.clone().join_exposures(false), false),
    ] {
        let selection = model.complete_selection(Selection::default());
        assert_eq!(selection.join_exposures, joins);
    }
    // Runs of the one do not resume those of the other.
    let key = |model: &popfit::SpectralModel| {
        let fitter = SpectralFitter::new(model.clone(), Device::cpu());
        fitter.resume_key("", &Selection::default(), &InputFiles::new(&[""; 0]))
    };
    assert_ne!(key(&separate), key(&shared));
    assert_eq!(key(&separate), key(&shared.clone().join_exposures(false)));
    // A model that fits each spectrum by itself does not take joined ones. The other takes both.
    let plain = Spectra::open(demo_file("spectra.npz")).unwrap().slice(0..2);
    let joined = plain.clone().join_exposures();
    let check = |model: &popfit::SpectralModel, spectra: &Spectra| {
        check_spectra(
            &SpectralFitter::new(model.clone(), Device::cpu()),
            [spectra],
        )
    };
    assert!(check(&shared, &plain).is_ok() && check(&shared, &joined).is_ok());
    assert!(check(&separate, &plain).is_ok());
    let error = check(&separate, &joined).unwrap_err();
    assert!(matches!(error, Error::Usage(_)));
    assert!(error.to_string().contains("build the model with exposures"));
    let head = joined.slice(0..0);
    assert!(matches!(check(&separate, &head), Err(Error::Usage(_))));
}
