//! Files that popfit writes, read back by another library.

use std::path::Path;
use std::sync::Arc;

use fitsio_pure::bintable::{BinaryColumnData, parse_binary_table_columns, read_binary_column};
use fitsio_pure::hdu::{FitsData, HduInfo, parse_fits};
use fitsio_pure::image::{ImageData, read_image_data};
use popfit::RvTabWriter;
use popfit::low_level::{ModelWriter, Schema, TableWriter};
use popfit::spectra::{Column, ColumnValues, Ids, Wavelength};
use popfit::{Device, FitRow, FitTable, Id, Metadata, Sink, SpectralFitter, WriteOptions};

use super::*;
use popfit_testing::tiny;

/// A written file, read by another library.
struct FitsFile {
    bytes: Vec<u8>,
    fits: FitsData,
}

impl FitsFile {
    fn read(path: &Path) -> FitsFile {
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(bytes.len() % 2880, 0);
        let fits = parse_fits(&bytes).unwrap();
        FitsFile { bytes, fits }
    }

    fn names(&self, table: &str) -> Vec<String> {
        let hdu = self.fits.find_by_name(table).unwrap();
        let HduInfo::BinaryTable { tfields, .. } = hdu.info else {
            panic!("{table} is no table")
        };
        parse_binary_table_columns(&hdu.cards, tfields)
            .unwrap()
            .into_iter()
            .map(|c| c.name.unwrap())
            .collect()
    }

    fn column(&self, table: &str, name: &str) -> BinaryColumnData {
        let index = self
            .names(table)
            .iter()
            .position(|column| column == name)
            .unwrap();
        read_binary_column(&self.bytes, self.fits.find_by_name(table).unwrap(), index).unwrap()
    }

    fn floats(&self, table: &str, name: &str) -> Vec<f64> {
        match self.column(table, name) {
            BinaryColumnData::Double(values) => values,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn longs(&self, table: &str, name: &str) -> Vec<i64> {
        match self.column(table, name) {
            BinaryColumnData::Long(values) => values,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn texts(&self, table: &str, name: &str) -> Vec<String> {
        match self.column(table, name) {
            BinaryColumnData::Ascii(values) => values
                .into_iter()
                .map(|text| text.trim_end_matches(['\0', ' ']).to_string())
                .collect(),
            other => panic!("{name}: {other:?}"),
        }
    }
}

fn fitter() -> SpectralFitter {
    let model = tiny::model(tiny::linear(&["teff", "feh"], tiny::wave), 0.1);
    SpectralFitter::new(model, Device::cpu()).starts(1)
}

/// Returns three good spectra, and one without data.
fn spectra() -> Spectra<'static> {
    let emulator = tiny::linear(&["teff", "feh"], tiny::wave);
    let mut spectra = tiny::spectra(&emulator, &[0.3, 0.2, -0.5, 0.4, 0.1, 0.0, 0.2, 0.2], 0.01);
    spectra.arms[0].ivar.to_mut()[3 * tiny::PIXELS..].fill(0.0);
    let column = |table: &str, name: &str, unit: &str, values| Column {
        table: table.into(),
        name: name.into(),
        unit: unit.into(),
        values,
    };
    let ids: Vec<i64> = (0..4)
        .map(|k| popfit_testing::fits_bytes::LARGE_ID + k)
        .collect();
    let texts = [
        "a",
        "bb",
        "ccc",
        "a word that is longer than those of the first batch",
    ];
    spectra.columns = vec![
        column("FIBERMAP", "TARGETID", "", ColumnValues::I64(ids.clone())),
        column("FIBERMAP", "FIBER", "", ColumnValues::I32(vec![4, 3, 2, 1])),
        column(
            "FIBERMAP",
            "NAME",
            "",
            ColumnValues::Text(texts.map(String::from).to_vec()),
        ),
        column(
            "FIBERMAP",
            "MAG",
            "mag",
            ColumnValues::F32(vec![1.5, f32::NAN, 2.5, 3.5]),
        ),
        column(
            "SCORES",
            "BITS",
            "",
            ColumnValues::U64(vec![0, 1, u64::MAX, 1 << 63]),
        ),
    ];
    spectra.ids = Ids::Integer(ids);
    spectra
}

#[test]
fn a_table_is_read_back_with_texts_that_grow() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.fits");
    let mut rows: Vec<FitRow> = fitter().fit(&spectra()).unwrap().to_rows();
    let ids = [
        "a ",
        "the second star",
        "Sirius B, as seen on a clear night in winter",
        "π'\\",
    ];
    rows.iter_mut()
        .zip(ids)
        .for_each(|(row, id)| row.id = Id::Text(id.into()));
    let schema = Schema::of(&fitter(), true);
    let model = format!("# {}é\r\n[[arm]]\r\n\tname = 'b' ", "x".repeat(300));
    let metadata = Metadata {
        device: "cpu".into(),
        model: model.clone(),
        ..Metadata::default()
    };
    let mut writer = TableWriter::create(&path, &schema, &metadata).unwrap();
    for row in &rows {
        writer.append(std::slice::from_ref(row)).unwrap();
    }
    assert!(
        !path.exists(),
        "the name appears only when the table is whole"
    );
    writer.finish().unwrap();
    let csv = folder.path().join("out.csv");
    let mut writer = TableWriter::create(&csv, &schema, &metadata).unwrap();
    writer.append(&rows).unwrap();
    writer.finish().unwrap();

    let table = FitsFile::read(&path);
    let mut reader = csv::Reader::from_path(&csv).unwrap();
    assert_eq!(
        table.names("RESULTS"),
        reader.headers().unwrap().iter().collect::<Vec<_>>()
    );
    let expected = [
        "a\\u{20}",
        "the second star",
        "Sirius B, as seen on a clear night in winter",
        "\\u{3c0}'\\\\",
    ];
    assert_eq!(table.texts("RESULTS", "id"), expected);
    let bits_of_rows = |get: fn(&FitRow) -> f64| {
        rows.iter()
            .map(|row| get(row).to_bits())
            .collect::<Vec<_>>()
    };
    let bits = |values: Vec<f64>| values.into_iter().map(f64::to_bits).collect::<Vec<_>>();
    assert_eq!(
        bits(table.floats("RESULTS", "chi2")),
        bits_of_rows(|row| row.chi2)
    );
    assert_eq!(
        bits(table.floats("RESULTS", "teff_err")),
        bits_of_rows(|row| row.errors[0])
    );
    assert_eq!(table.longs("RESULTS", "row"), [0, 1, 2, 3]);
    assert_eq!(table.texts("RESULTS", "status_text")[3], "no_data");
    let keys = table.texts("METADATA", "key");
    let lines: Vec<String> = table.texts("METADATA", "value");
    let model_lines: Vec<&str> = keys
        .iter()
        .zip(&lines)
        .filter(|(key, _)| *key == "popfit.model")
        .map(|(_, line)| line.as_str())
        .collect();
    let written = model
        .replace('é', "\\u{e9}")
        .replace('\r', "\\r")
        .replace('\t', "\\t");
    assert_eq!(
        model_lines.join("\n"),
        written.trim_end().to_string() + "\\u{20}"
    );

    let (read_table, read_metadata) = FitTable::read(&path).unwrap();
    rows[3].message.clear(); // no column
    assert_eq!(format!("{:?}", read_table.to_rows()), format!("{rows:?}"));
    assert_eq!(
        (read_metadata.model, read_metadata.device),
        (model, "cpu".to_string())
    );
}

#[test]
fn an_empty_table_has_every_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.fits");
    let schema = Schema::new(vec!["teff".into()]);
    TableWriter::create(&path, &schema, &Metadata::default())
        .unwrap()
        .finish()
        .unwrap();
    let table = FitsFile::read(&path);
    assert_eq!(table.names("RESULTS").len(), 16);
    assert!(table.longs("RESULTS", "id").is_empty());
}

/// Writes rvspecfit's files in batches of `size`.
fn write_rvtab(path: &Path, size: usize) -> Vec<FitRow> {
    let fitter = fitter();
    let spectra = spectra();
    let rows = fitter.fit(&spectra).unwrap().to_rows();
    let files = [spectra.slice(0..0)];
    let mut writer = RvTabWriter::create(path, &fitter, &files, &Metadata::default()).unwrap();
    for start in (0..rows.len()).step_by(size) {
        let range = start..(start + size).min(rows.len());
        writer
            .append(&spectra.slice(range.clone()), &rows[range])
            .unwrap();
    }
    writer.finish().unwrap();
    rows
}

#[test]
fn an_rvtab_has_the_columns_of_rvspecfit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rvtab_1.fits");
    let rows = write_rvtab(&path, 2);
    let table = FitsFile::read(&path);
    let expected = "VRAD VRAD_ERR VRAD_SKEW VRAD_KURT VSINI LOGG LOGG_ERR TEFF TEFF_ERR FEH FEH_ERR ALPHAFE \
        ALPHAFE_ERR CHISQ_TOT CHISQ_C_TOT NPIX_TOT CHISQ_ARM CHISQ_C_ARM VRAD_CCF RVS_WARN FIBER TARGETID SN_ARM \
        SUCCESS RR_Z RR_SPECTYPE RR_SUBTYPE";
    assert_eq!(
        table.names("RVTAB"),
        expected.split_whitespace().collect::<Vec<_>>()
    );
    assert_eq!(
        table.longs("RVTAB", "TARGETID"),
        [0, 1, 2, 3].map(|k| popfit_testing::fits_bytes::LARGE_ID + k)
    );
    let chi2 = table.floats("RVTAB", "CHISQ_TOT");
    let teff = table.floats("RVTAB", "TEFF");
    for (k, row) in rows[..3].iter().enumerate() {
        assert!(
            (chi2[k] - row.chi2).abs() < 1e-3 * row.chi2,
            "{} {}",
            chi2[k],
            row.chi2
        );
        assert_eq!(teff[k].to_bits(), row.parameters[0].to_bits());
    }
    assert!(chi2[3].is_nan() && teff[3].is_nan(), "no fit");
    assert_eq!(table.longs("RVTAB", "RVS_WARN")[3], 32);
    assert_eq!(table.longs("RVTAB", "NPIX_TOT"), [64, 64, 64, 0]);
    assert!(
        matches!(table.column("RVTAB", "FIBER"), BinaryColumnData::Int(fibers) if fibers == [4, 3, 2, 1])
    );
    assert_eq!(
        table.texts("FIBERMAP", "NAME")[3],
        "a word that is longer than those of the first batch"
    );
    assert_eq!(
        table.longs("SCORES", "BITS"),
        [i64::MIN, i64::MIN + 1, i64::MAX, 0],
        "stored with TZERO = 2^63"
    );

    let models = FitsFile::read(&folder.path().join("rvmod_1.fits"));
    let hdu = models.fits.find_by_name("ARM_MODEL").unwrap();
    assert!(
        matches!(&hdu.info, HduInfo::Image { bitpix: -32, naxes } if naxes[..] == [tiny::PIXELS, 4])
    );
    let ImageData::F32(model) = read_image_data(&models.bytes, hdu).unwrap() else {
        panic!("not f32")
    };
    let ImageData::F64(grid) = read_image_data(
        &models.bytes,
        models.fits.find_by_name("ARM_WAVELENGTH").unwrap(),
    )
    .unwrap() else {
        panic!("not f64")
    };
    assert_eq!(grid, tiny::wavelength());
    let flux = &spectra().arms[0].flux;
    assert!(
        model[..64]
            .iter()
            .zip(&*flux.to_double())
            .all(|(m, y)| (f64::from(*m) - y).abs() < 0.05),
        "near the data"
    );
    assert!(model[192..].iter().all(|m| m.is_nan()), "no fit, no model");
}

/// Writes the best-fit spectra of four spectra in two batches.
fn write_models(path: &Path, spectra: &Spectra) -> Vec<FitRow> {
    let fitter = fitter();
    let rows = fitter.fit(spectra).unwrap().to_rows();
    let files = [spectra.slice(0..0)];
    let schema = Schema::of(&fitter, false);
    let mut writer =
        ModelWriter::create(path, &fitter, &files, &schema, &Metadata::default()).unwrap();
    for range in [0..1, 1..4] {
        writer
            .append(&spectra.slice(range.clone()), &rows[range])
            .unwrap();
    }
    assert!(
        !path.exists(),
        "the name appears only when the file is whole"
    );
    writer.finish().unwrap();
    rows
}

#[test]
fn best_fit_spectra_are_those_of_the_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("models.fits");
    let on_shared_grid = spectra();
    let mut on_own_grids = on_shared_grid.clone();
    // Each spectrum begins at another wavelength.
    let grid = tiny::wavelength();
    let step = grid[1] - grid[0];
    let grids: Vec<f64> = (0..4)
        .flat_map(|k| grid.iter().map(move |x| x + f64::from(k) * 0.1 * step))
        .collect();
    on_own_grids.arms[0].wavelength = Wavelength::Own(grids.clone().into());
    for (spectra, wavelengths) in [
        (&on_shared_grid, grid.to_vec()),
        (
            &on_own_grids,
            [&grids[..3 * grid.len()], &vec![f64::NAN; grid.len()]].concat(),
        ),
    ] {
        let rows = write_models(&path, spectra);
        let expected: Vec<f32> = fitter()
            .model_spectra(spectra, &rows)
            .unwrap()
            .into_iter()
            .flat_map(|fit| {
                fit.map_or(vec![f64::NAN; grid.len()], |mut arms| {
                    arms.swap_remove(0).model
                })
            })
            .map(|x| x as f32)
            .collect();
        let written = FitsFile::read(&path);
        let image = |name: &str| {
            read_image_data(&written.bytes, written.fits.find_by_name(name).unwrap()).unwrap()
        };
        let ImageData::F32(image_values) = image("ARM_MODEL") else {
            panic!("not f32")
        };
        let bits = |values: &[f32]| {
            values
                .iter()
                .map(|x| if x.is_nan() { 0 } else { x.to_bits() })
                .collect::<Vec<_>>()
        };
        assert_eq!(bits(&image_values), bits(&expected));
        assert!(
            image_values[..3 * grid.len()]
                .iter()
                .filter(|x| x.is_finite())
                .count()
                > 2 * grid.len(),
            "three models"
        );
        let ImageData::F64(image_values) = image("ARM_WAVELENGTH") else {
            panic!("not f64")
        };
        assert_eq!(format!("{image_values:?}"), format!("{wavelengths:?}"));
        assert_eq!(written.names("SPECTRA"), ["id", "file", "row"]);
        assert_eq!(written.longs("SPECTRA", "row"), [0, 1, 2, 3]);
        assert_eq!(
            written.longs("SPECTRA", "id")[3],
            popfit_testing::fits_bytes::LARGE_ID + 3
        );
        assert!(
            written
                .texts("METADATA", "key")
                .iter()
                .any(|key| key == "popfit.version")
        );
        std::fs::remove_file(&path).unwrap();
    }
    // Two files, each with a shared grid of its own.
    let mut on_other_grid = on_shared_grid.clone();
    on_other_grid.arms[0].wavelength =
        Wavelength::Shared(Arc::from(&grids[grid.len()..2 * grid.len()]));
    let fitter = fitter();
    let files = [on_shared_grid.slice(0..0), on_other_grid.slice(0..0)];
    let schema = Schema::of(&fitter, false);
    let mut writer =
        ModelWriter::create(&path, &fitter, &files, &schema, &Metadata::default()).unwrap();
    for spectra in [&on_shared_grid, &on_other_grid] {
        writer
            .append(spectra, &fitter.fit(spectra).unwrap().to_rows()[..1])
            .unwrap();
    }
    writer.finish().unwrap();
    let written = FitsFile::read(&path);
    let hdu = written.fits.find_by_name("ARM_WAVELENGTH").unwrap();
    let ImageData::F64(image_values) = read_image_data(&written.bytes, hdu).unwrap() else {
        panic!("not f64")
    };
    assert_eq!(image_values, grids[..2 * grid.len()]);
    std::fs::remove_file(&path).unwrap();
    let csv = folder.path().join("models.csv");
    let csv_writer = ModelWriter::create(csv, &fitter, &files, &schema, &Metadata::default());
    assert!(
        csv_writer
            .unwrap_err()
            .to_string()
            .contains("must end in .fits")
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "nothing is left"
    );
}

#[test]
fn the_size_of_batches_does_not_change_the_output() {
    let folder = tempfile::tempdir().unwrap();
    let of_one = folder.path().join("rvtab_one.fits");
    let of_four = folder.path().join("rvtab_all.fits");
    write_rvtab(&of_one, 1);
    write_rvtab(&of_four, 4);
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(read("rvmod_one.fits").len(), read("rvmod_all.fits").len());
    let of_one = FitsFile::read(&of_one);
    let of_four = FitsFile::read(&of_four);
    for name in of_one.names("RVTAB") {
        let text = |table: &FitsFile| format!("{:?}", table.column("RVTAB", &name));
        assert_eq!(text(&of_one), text(&of_four), "{name}");
    }
    assert_eq!(
        of_one.texts("FIBERMAP", "NAME"),
        of_four.texts("FIBERMAP", "NAME")
    );
}

/// Rows 34 and 35 of the list of bad inputs.
#[test]
fn outputs_are_checked_first_and_two_runs_are_not_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let fitter = fitter();
    let mut spectra = spectra();
    let create = |path: &Path, files: &[Spectra]| {
        RvTabWriter::create(path, &fitter, files, &Metadata::default())
            .map(drop)
            .map_err(|e| e.to_string())
    };
    let files = [spectra.slice(0..0)];
    assert!(create(&folder.path().join("no/rvtab_1.fits"), &files).is_err());
    assert!(
        create(&folder.path().join("rvtab_1.csv"), &files)
            .unwrap_err()
            .contains(".fits")
    );
    spectra.arms[0].wavelength = Wavelength::Own(tiny::wavelength().repeat(4).into());
    assert!(
        create(&folder.path().join("rvtab_1.fits"), &[spectra.slice(0..0)])
            .unwrap_err()
            .contains("grid")
    );
    let mut other_grid = files[0].clone();
    other_grid.arms[0].wavelength = Wavelength::Shared(Arc::from(vec![1.0; tiny::PIXELS]));
    assert!(
        create(
            &folder.path().join("rvtab_1.fits"),
            &[files[0].clone(), other_grid]
        )
        .unwrap_err()
        .contains("differ")
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "nothing is left"
    );

    // Two runs write the same output. Each table is complete, and the one that finishes last stays.
    let path = folder.path().join("out.fits");
    let schema = Schema::of(&fitter, false);
    let rows = fitter.fit(&super::write::spectra()).unwrap().to_rows();
    let options = || WriteOptions {
        overwrite: true,
        ..WriteOptions::default()
    };
    let mut first = TableWriter::create(&path, &schema, options()).unwrap();
    let mut second = TableWriter::create(&path, &schema, options()).unwrap();
    for row in &rows {
        first.append(std::slice::from_ref(row)).unwrap();
        second.append(&[row.clone(), row.clone()]).unwrap();
    }
    second.finish().unwrap();
    assert_eq!(
        FitsFile::read(&path).longs("RESULTS", "row"),
        [0, 0, 1, 1, 2, 2, 3, 3]
    );
    first.finish().unwrap();
    assert_eq!(FitsFile::read(&path).longs("RESULTS", "row"), [0, 1, 2, 3]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
