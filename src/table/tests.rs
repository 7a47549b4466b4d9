//! Tests that tables are read back as they were written.

use std::path::Path;
use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use ::parquet::file::metadata::ParquetMetaData;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{ArrayRef, Float64Array, RecordBatch};

use super::*;
use crate::solver::Status;
use crate::spectral::{ExposureVelocities, Id};

/// Beyond 2⁵³: f64 would round it.
const LARGE_ID: i64 = 39_627_652_591_523_841;

fn row(id: Id, value: f64) -> FitRow {
    FitRow {
        file: "a.npz".into(),
        row: 7,
        status: Status::Ftol,
        status_text: "ftol".into(),
        rounds: 5,
        evaluations: 11,
        chi2: 0.1 + 0.2,
        dof: -3,
        objective: value,
        parameters: vec![value, 2.5],
        errors: vec![f64::NAN, 1e-30],
        at_bound: 2,
        flags: crate::Flags::AT_BOUND,
        n_starts_agree: 2,
        correlations: vec![-0.25],
        ..FitRow::new(id, 2)
    }
}

fn schema(text_ids: bool) -> Schema {
    Schema {
        parameters: vec!["velocity".into(), "teff".into()],
        text_ids,
        ..Schema::default()
    }
}

fn read_parquet(path: &Path) -> (Vec<RecordBatch>, ParquetMetaData) {
    let builder =
        ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path).unwrap()).unwrap();
    let metadata = builder.metadata().as_ref().clone();
    (
        builder
            .build()
            .unwrap()
            .map(|batch| batch.unwrap())
            .collect(),
        metadata,
    )
}

const HEADER: &str = "id,file,row,status,status_text,rounds,evaluations,chi2,dof,objective,\
velocity,velocity_err,teff,teff_err,at_bound,flags,start,n_starts_agree,correlation_velocity_teff";

/// Row groups have 8192 rows, and a file has the same bytes whatever the size of appends.
#[test]
fn row_groups_do_not_depend_on_the_size_of_appends() {
    let folder = tempfile::tempdir().unwrap();
    let rows: Vec<_> = (0..20_000)
        .map(|k| row(Id::Integer(k), (k % 977) as f64))
        .collect();
    let write_in_appends = |name: &str, sizes: &[usize]| {
        let path = folder.path().join(name);
        let mut writer = TableWriter::create(&path, &schema(false), &Metadata::default()).unwrap();
        let mut remaining = &rows[..];
        let mut sizes = sizes.iter().cycle();
        while let Some(size) = sizes.next().filter(|_| !remaining.is_empty()) {
            let (appended, later) = remaining.split_at(remaining.len().min(*size));
            writer.append(appended).unwrap();
            remaining = later;
        }
        writer.finish().unwrap();
        let groups: Vec<i64> = read_parquet(&path)
            .1
            .row_groups()
            .iter()
            .map(|group| group.num_rows())
            .collect();
        assert_eq!(groups, [8192, 8192, 3616]);
        std::fs::read(path).unwrap()
    };
    let at_once = write_in_appends("all.parquet", &[20_000]);
    assert!(at_once == write_in_appends("some.parquet", &[256, 1, 511, 2048, 8192, 3]));
}

#[test]
fn parquet_table_has_rows_columns_and_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.parquet");
    let metadata = Metadata {
        device: "cpu".into(),
        model: "[[arm]]".into(),
        emulators: vec![("e.safetensors".into(), "ab12".into())],
        settings: "starts = 2".into(),
        part: None,
    };
    let mut writer = TableWriter::create(&path, &schema(false), &metadata).unwrap();
    writer
        .append(&[
            row(Id::Integer(LARGE_ID), 1.0),
            row(Id::Integer(-1), f64::INFINITY),
        ])
        .unwrap();
    writer.append(&[row(Id::Integer(3), f64::NAN)]).unwrap();
    assert!(
        !path.exists(),
        "the name appears only when the table is whole"
    );
    writer.finish().unwrap();

    let (batches, file) = read_parquet(&path);
    assert_eq!(file.num_row_groups(), 1);
    let names: Vec<_> = batches[0]
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    assert_eq!(names.join(","), HEADER);
    let ids: Vec<i64> = batches
        .iter()
        .flat_map(|batch| {
            batch
                .column(0)
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        })
        .collect();
    assert_eq!(ids, [LARGE_ID, -1, 3]);
    let chi2 = batches[0]
        .column_by_name("chi2")
        .unwrap()
        .as_primitive::<Float64Type>()
        .value(0);
    assert_eq!(chi2.to_bits(), (0.1f64 + 0.2).to_bits());
    assert!(
        batches[0]
            .column_by_name("velocity_err")
            .unwrap()
            .as_primitive::<Float64Type>()
            .value(0)
            .is_nan()
    );
    let pairs = file.file_metadata().key_value_metadata().unwrap();
    let metadata_value = |key: &str| {
        pairs
            .iter()
            .find(|pair| pair.key == key)
            .and_then(|pair| pair.value.clone())
    };
    assert_eq!(
        metadata_value("popfit.version").as_deref(),
        Some(env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(metadata_value("popfit.device").as_deref(), Some("cpu"));
    assert_eq!(metadata_value("popfit.model").as_deref(), Some("[[arm]]"));
    assert_eq!(
        metadata_value("popfit.emulator.e.safetensors").as_deref(),
        Some("ab12")
    );
    assert_eq!(
        metadata_value("popfit.settings").as_deref(),
        Some("starts = 2")
    );
}

#[test]
fn empty_table_has_every_column() {
    let folder = tempfile::tempdir().unwrap();
    for (text_ids, id_type) in [(false, "Int64"), (true, "Utf8")] {
        let path = folder.path().join(format!("{text_ids}.parquet"));
        TableWriter::create(&path, &schema(text_ids), &Metadata::default())
            .unwrap()
            .finish()
            .unwrap();
        let builder =
            ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&path).unwrap()).unwrap();
        let types: Vec<_> = builder
            .schema()
            .fields()
            .iter()
            .map(|field| field.data_type().to_string())
            .collect();
        let expected = format!(
            "{id_type} Utf8 Int64 Int32 Utf8 Int64 Int64 Float64 Int64 Float64 \
             Float64 Float64 Float64 Float64 Int64 Int64 Int32 Int64 Float64"
        );
        assert_eq!(types.join(" "), expected);
        assert_eq!(builder.metadata().file_metadata().num_rows(), 0);
    }
    let path = folder.path().join("empty.csv");
    FitTable::new(schema(false).parameters)
        .write(&path)
        .unwrap();
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        format!("{HEADER}\n")
    );
}

#[test]
fn mixed_ids_become_text_only_with_a_schema_of_text_ids() {
    let folder = tempfile::tempdir().unwrap();
    let rows = vec![
        row(Id::Integer(LARGE_ID), 1.0),
        row(Id::Text("star, \"two\"\n".into()), 1.0),
    ];
    let path = folder.path().join("out.parquet");
    FitTable::from_rows(schema(true).parameters, &rows)
        .unwrap()
        .write(&path)
        .unwrap();
    let (batches, _) = read_parquet(&path);
    let ids = batches[0].column(0).as_string::<i32>();
    assert_eq!(
        [ids.value(0), ids.value(1)],
        ["39627652591523841", "star, \"two\"\n"]
    );

    let path = folder.path().join("integers.parquet");
    let mut writer = TableWriter::create(&path, &schema(false), &Metadata::default()).unwrap();
    assert!(matches!(writer.append(&rows), Err(Error::Write { .. })));
}

#[test]
fn csv_floats_keep_every_digit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    let rows = vec![
        row(Id::Text("star, \"two\"\n".into()), f64::NEG_INFINITY),
        row(Id::Integer(LARGE_ID), 1e300),
    ];
    FitTable::from_rows(schema(true).parameters, &rows)
        .unwrap()
        .write(&path)
        .unwrap();
    let mut reader = ::csv::Reader::from_path(&path).unwrap();
    assert_eq!(
        reader
            .headers()
            .unwrap()
            .iter()
            .collect::<Vec<_>>()
            .join(","),
        HEADER
    );
    let records: Vec<_> = reader.records().map(|record| record.unwrap()).collect();
    assert_eq!(&records[0][0], "star, \"two\"\n");
    assert_eq!(&records[0][9], "-inf");
    assert_eq!(&records[0][11], "nan");
    assert_eq!(&records[1][0], "39627652591523841");
    assert_eq!(
        records[1][7].parse::<f64>().unwrap().to_bits(),
        (0.1f64 + 0.2).to_bits()
    );
    assert_eq!(records[1][9].parse::<f64>().unwrap(), 1e300);
}

/// A CSV table of several batches, whose ids are integers unless one of them is not.
#[test]
fn csv_is_read_with_the_declared_types() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    let numbers: Vec<_> = (0..5000)
        .map(|k| row(Id::Integer(LARGE_ID - k), 1.0 / k as f64))
        .collect();
    let texts = vec![
        row(Id::Text("7".into()), 1.0),
        row(Id::Text("star, \"two\"\n".into()), 2.0),
    ];
    for rows in [numbers, texts] {
        let table = FitTable::from_rows(schema(true).parameters, &rows).unwrap();
        table
            .write_with(
                &path,
                WriteOptions {
                    overwrite: true,
                    ..WriteOptions::default()
                },
            )
            .unwrap();
        let reader = TableReader::open(&path).unwrap();
        assert!(
            reader.notes[0].contains("no metadata, units or checksums"),
            "{:?}",
            reader.notes
        );
        assert_eq!(reader.schema.text_ids, matches!(rows[0].id, Id::Text(_)));
        let (read_table, metadata) = FitTable::read(&path).unwrap();
        assert_eq!(format!("{:?}", read_table.to_rows()), format!("{rows:?}"));
        assert_eq!(metadata, Metadata::default());
    }
}

#[test]
fn errors_name_the_bad_field_of_a_csv_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    let rows = vec![
        row(Id::Text("a\nb".into()), 1.0),
        row(Id::Text("c".into()), 2.0),
    ];
    FitTable::from_rows(schema(true).parameters, &rows)
        .unwrap()
        .write(&path)
        .unwrap();
    let whole = std::fs::read_to_string(&path).unwrap();
    let read_error = |text: &str| {
        std::fs::write(&path, text).unwrap();
        FitTable::read(&path).unwrap_err().to_string()
    };
    let cases = [
        (
            whole.replace(",2.0,nan,", ",two,nan,"),
            "line 4, column `velocity`: \"two\" is no number",
        ),
        (
            whole.replace("c,a.npz,7,", "c,a.npz,seven,"),
            "line 4, column `row`: \"seven\" is no integer",
        ),
        (
            whole.replace("c,a.npz,7,2,", "c,a.npz,7,99,"),
            "column `status`, row 1: `99` is no status",
        ),
        (
            whole.replace("c,a.npz,7,", "c,a.npz,-7,"),
            "column `row`, row 1: `-7` is no count",
        ),
        (
            whole.replace("objective,", "goal,"),
            "no column `objective`",
        ),
        (
            whole.trim_end().trim_end_matches(",-0.25").into(),
            "line: 4",
        ),
    ];
    for (text, expected) in cases {
        let message = read_error(&text);
        assert!(
            message.contains(expected) && message.contains("out.csv"),
            "{message}, not {expected}"
        );
    }
    // Other programs leave a field empty where there is no number.
    std::fs::write(
        &path,
        whole
            .replace(",nan,", ",,")
            .replace("c,a.npz,7,", "c,a.npz,,"),
    )
    .unwrap();
    let table = FitTable::read(&path).unwrap().0;
    assert!(table.errors("velocity").unwrap()[0].is_nan());
    assert_eq!(table.row(1).row, 0);
}

#[test]
fn record_batch_equals_the_parquet_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.parquet");
    let rows = vec![
        FitRow {
            continuum_terms: vec![3, 4],
            downweighted: Some(0.5),
            ..row(Id::Integer(LARGE_ID), 1.0)
        },
        FitRow {
            errors: vec![0.5, 0.25],
            ..row(Id::Text("b".into()), 2.0)
        },
    ];
    let units = vec![("velocity".to_string(), "m/s".to_string())];
    let table = FitTable::from_rows(schema(false).parameters, &rows).unwrap();
    let table = table
        .with_arms(vec!["b".into(), "r".into()])
        .with_units(units);
    let metadata = Metadata {
        device: "cpu".into(),
        settings: "starts = 2".into(),
        ..Metadata::default()
    };
    table.write_with(&path, &metadata).unwrap();
    let batches = read_parquet(&path).0;
    let batch = table.record_batch(&metadata).unwrap();
    let written_schema = batches[0].schema();
    assert_eq!(batch.schema().fields(), written_schema.fields());
    assert_eq!(
        batch
            .schema()
            .field_with_name("velocity")
            .unwrap()
            .metadata()["unit"],
        "m/s"
    );
    let file =
        ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&path).unwrap()).unwrap();
    let mut entries = file.schema().metadata().clone();
    assert!(
        entries.remove(checksum::CHECKSUM_KEY).is_some() && entries.contains_key("table_meta_yaml")
    );
    assert_eq!(batch.schema().metadata(), &entries);
    for (in_memory, in_file) in batch.columns().iter().zip(batches[0].columns()) {
        // NaN does not equal itself, so we compare texts
        assert_eq!(format!("{in_memory:?}"), format!("{in_file:?}"));
    }
}

#[test]
fn unfinished_table_leaves_no_file_and_keeps_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    std::fs::write(&path, "old").unwrap();
    let overwrite_options = || WriteOptions {
        overwrite: true,
        ..WriteOptions::default()
    };
    let first = TableWriter::create(&path, &schema(false), overwrite_options()).unwrap();
    let second = TableWriter::create(&path, &schema(false), overwrite_options()).unwrap();
    drop(first);
    drop(second);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn files_are_replaced_only_with_overwrite() {
    let folder = tempfile::tempdir().unwrap();
    let table = FitTable::from_rows(schema(false).parameters, &[row(Id::Integer(1), 1.0)]).unwrap();
    for name in ["out.csv", "out.parquet", "out.fits"] {
        let path = folder.path().join(name);
        std::fs::write(&path, "old").unwrap();
        let refused = table.write(&path).unwrap_err();
        assert!(
            matches!(&refused, Error::OutputExists { path: said } if *said == path),
            "{refused}"
        );
        assert!(
            refused.to_string().contains("out.")
                && refused.to_string().contains("this file exists already"),
            "{refused}"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        table
            .write_with(
                &path,
                WriteOptions {
                    overwrite: true,
                    ..WriteOptions::default()
                },
            )
            .unwrap();
        assert_eq!(FitTable::read(&path).unwrap().0.len(), 1, "{name}");
        // a file that takes the name while the table is written
        let late = folder.path().join(format!("late_{name}"));
        let mut writer =
            TableWriter::create(&late, &schema(false), WriteOptions::default()).unwrap();
        writer.append(&table.to_rows()).unwrap();
        std::fs::write(&late, "new").unwrap();
        assert!(matches!(writer.finish(), Err(Error::OutputExists { .. })));
        assert_eq!(std::fs::read_to_string(&late).unwrap(), "new");
    }
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        6,
        "no temporary file is left"
    );
}

#[test]
fn bad_paths_and_names_are_refused_before_any_fit() {
    let folder = tempfile::tempdir().unwrap();
    let create = |name: &str| {
        TableWriter::create(
            folder.path().join(name),
            &schema(false),
            &Metadata::default(),
        )
        .err()
    };
    for name in ["out", "out.txt", "out.fit"] {
        let Some(Error::Usage(message)) = create(name) else {
            panic!("{name}")
        };
        assert!(
            message.contains(".parquet") && message.contains(".csv"),
            "{message}"
        );
    }
    assert!(matches!(create("missing/out.csv"), Some(Error::Io { .. })));
    std::fs::create_dir(folder.path().join("folder.csv")).unwrap();
    assert!(matches!(create("folder.csv"), Some(Error::Write { .. })));
    let twice = Schema {
        parameters: vec!["chi2".into()],
        ..Schema::default()
    };
    let result = TableWriter::create(folder.path().join("out.csv"), &twice, &Metadata::default());
    assert!(matches!(result, Err(Error::Model { .. })));
}

#[test]
fn tables_are_read_back_as_written() {
    let folder = tempfile::tempdir().unwrap();
    let metadata = Metadata {
        device: "cpu".into(),
        model: "[[arm]]\n".into(),
        emulators: vec![("e.safetensors".into(), "ab12".into())],
        settings: "starts 2".into(),
        part: None,
    };
    let numbers = vec![
        row(Id::Integer(LARGE_ID), 0.1 + 0.2),
        row(Id::Integer(-1), f64::NEG_INFINITY),
    ];
    let texts = vec![
        row(Id::Text("star, \"two\"\n".into()), 1e300),
        row(Id::Text("7".into()), 1.0),
    ];
    for (name, rows) in [
        ("a.parquet", &numbers),
        ("a.fits", &numbers),
        ("b.parquet", &texts),
        ("b.fits", &texts),
    ] {
        let units = ["velocity", "teff"]
            .map(String::from)
            .into_iter()
            .zip(["km/s", "K"].map(String::from))
            .collect();
        let table = FitTable::from_rows(schema(false).parameters, rows)
            .unwrap()
            .with_units(units);
        let path = folder.path().join(name);
        table.write_with(&path, &metadata).unwrap();
        let (read_table, read_metadata) = FitTable::read(&path).unwrap();
        assert!(
            read_table
                .to_rows()
                .into_iter()
                .all(|row| row.errors[0].is_nan())
        ); // NaN does not equal itself
        let without_nan = |table: &FitTable| -> FitTable {
            let replace_nan = |row: FitRow| FitRow {
                errors: [&[0.0], &row.errors[1..]].concat(),
                ..row
            };
            let rows: Vec<FitRow> = table.to_rows().into_iter().map(replace_nan).collect();
            FitTable::from_rows(table.names().to_vec(), &rows)
                .unwrap()
                .with_units(table.units().to_vec())
        };
        assert_eq!(without_nan(&read_table), without_nan(&table), "{name}");
        assert_eq!(read_table.arms(), table.arms());
        assert_eq!(read_metadata, metadata);
    }
    let reader = TableReader::open(folder.path().join("a.parquet")).unwrap();
    assert_eq!(reader.version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
}

#[test]
fn released_errors_are_columns_where_a_row_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let with_released_errors = FitRow {
        released_errors: vec![0.25, f64::INFINITY],
        ..row(Id::Integer(1), 1.0)
    };
    for name in ["out.parquet", "out.fits", "out.csv"] {
        let path = folder.path().join(name);
        let rows = vec![with_released_errors.clone(), row(Id::Integer(2), 1.0)];
        FitTable::from_rows(schema(false).parameters, &rows)
            .unwrap()
            .write(&path)
            .unwrap();
        let mut reader = TableReader::open(&path).unwrap();
        let units = [("velocity", "km/s"), ("teff", "K")]
            .map(|(name, unit)| (name.into(), unit.into()))
            .to_vec();
        let units = if name.ends_with("csv") {
            Vec::new()
        } else {
            units
        };
        assert_eq!(
            reader.schema,
            Schema {
                released_errors: true,
                units,
                ..schema(false)
            },
            "{name}"
        );
        let rows = reader.next_batch().unwrap().unwrap();
        assert_eq!(rows[0].released_errors, [0.25, f64::INFINITY], "{name}");
        assert!(
            rows[1].released_errors.len() == 2
                && rows[1].released_errors.iter().all(|x| x.is_nan()),
            "{name}"
        );
    }
    let header = std::fs::read_to_string(folder.path().join("out.csv")).unwrap();
    assert!(
        header.contains(",n_starts_agree,velocity_err_released,teff_err_released,correlation_"),
        "{header}"
    );
}

#[test]
fn columns_of_other_programs_are_parameters_or_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let own_table = folder.path().join("own.parquet");
    FitTable::from_rows(schema(false).parameters, &[row(Id::Integer(1), 6.0)])
        .unwrap()
        .write(&own_table)
        .unwrap();
    let (batches, _) = read_parquet(&own_table);
    let mut columns: Vec<(String, ArrayRef)> = Vec::new();
    for (field, column) in batches[0]
        .schema()
        .fields()
        .iter()
        .zip(batches[0].columns())
    {
        let foreign: &[&str] = match field.name().as_str() {
            "teff" => &["skewness"],
            "at_bound" => &["RA", "RA_err"],
            _ => &[],
        };
        columns.extend(foreign.iter().map(|name| {
            (
                name.to_string(),
                Arc::new(Float64Array::from(vec![11.0])) as _,
            )
        }));
        columns.push((field.name().clone(), column.clone()));
    }
    columns.push(("RA".into(), Arc::new(Float64Array::from(vec![17.0]))));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let path = folder.path().join("more.parquet");
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let (table, _) = FitTable::read(&path).unwrap();
    let read_row = &table.row(0);
    let expected = row(Id::Integer(1), 6.0);
    assert_eq!(table.names(), ["velocity", "teff", "RA"]);
    assert_eq!(read_row.parameters, [6.0, 2.5, 11.0]);
    assert_eq!(
        (read_row.at_bound, read_row.flags),
        (expected.at_bound, expected.flags)
    );
    assert_eq!(read_row.correlations[0], expected.correlations[0]);
    assert_eq!(read_row.status, expected.status);
}

#[test]
fn continuum_terms_are_columns_by_arm() {
    let folder = tempfile::tempdir().unwrap();
    for arms in [vec![String::new()], vec!["b".to_string(), "r".into()]] {
        let terms: Vec<u32> = (7..).take(arms.len()).collect();
        let rows = vec![FitRow {
            continuum_terms: terms,
            ..row(Id::Integer(1), 1.0)
        }];
        for name in ["t.parquet", "t.fits", "t.csv"] {
            let path = folder.path().join(format!("{}_{name}", arms.len()));
            let table = FitTable::from_rows(schema(false).parameters, &rows)
                .unwrap()
                .with_arms(arms.clone());
            table.write(&path).unwrap();
            let read = FitTable::read(&path).unwrap().0;
            assert_eq!(
                (read.arms(), read.row(0).continuum_terms),
                (&arms[..], rows[0].continuum_terms.clone()),
                "{name}"
            );
        }
    }
}

/// Returns a row of `count` exposures, each with its own velocity; the last of them has no data.
fn row_of_exposures(id: i64, count: usize) -> FitRow {
    let velocity = |k: usize| 0.1 * (id as f64 + 1.0) + k as f64 / 3.0;
    let or_nan = |x: f64, k: usize| if k + 1 == count { f64::NAN } else { x };
    FitRow {
        exposures: Some(count as u64),
        exposure_velocities: Some(ExposureVelocities {
            velocities: (0..count).map(|k| or_nan(velocity(k), k)).collect(),
            errors: (0..count).map(|k| or_nan(1.0 / velocity(k), k)).collect(),
        }),
        p_constant_velocity: Some(0.5),
        ..row(Id::Integer(id), 1.0)
    }
}

/// Rows with lists of several lengths, without lists, and with empty ones, which are no velocities.
#[test]
fn lists_are_read_back_as_written() {
    let folder = tempfile::tempdir().unwrap();
    let empty = ExposureVelocities {
        velocities: Vec::new(),
        errors: Vec::new(),
    };
    let written = [
        row(Id::Integer(0), 1.0),
        row_of_exposures(1, 3),
        row_of_exposures(2, 1),
        FitRow {
            exposure_velocities: Some(empty),
            ..row(Id::Integer(3), 1.0)
        },
        row_of_exposures(4, 12),
    ];
    let expected: Vec<FitRow> = written
        .iter()
        .map(|row| FitRow {
            exposure_velocities: row
                .exposure_velocities
                .clone()
                .filter(|exposures| !exposures.velocities.is_empty()),
            ..row.clone()
        })
        .collect();
    for name in ["lists.parquet", "lists.fits", "lists.csv"] {
        let path = folder.path().join(name);
        FitTable::from_rows(schema(false).parameters, &written)
            .unwrap()
            .write(&path)
            .unwrap();
        let mut reader = TableReader::open(&path).unwrap();
        assert!(reader.schema.exposures && reader.schema.exposure_velocities);
        let table = reader.read_all().unwrap();
        assert_eq!(
            format!("{:?}", table.to_rows()),
            format!("{expected:?}"),
            "{name}"
        );
    }
    let csv = std::fs::read_to_string(folder.path().join("lists.csv")).unwrap();
    assert!(csv.lines().nth(1).unwrap().contains(",0,,,nan,"), "{csv}");
    let third = csv.lines().nth(3).unwrap();
    assert!(third.contains(",1,nan,nan,0.5,"), "{third}");
    let damaged = csv.replace(",1,nan,nan,", ",1,nan nun,nan,");
    std::fs::write(folder.path().join("lists.csv"), damaged).unwrap();
    let message = FitTable::read(folder.path().join("lists.csv"))
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("column `velocity_exposures`: \"nan nun\" is no list of numbers"),
        "{message}"
    );
    // A table whose schema has the columns has them without rows, too.
    let with_lists = Schema {
        exposures: true,
        exposure_velocities: true,
        ..schema(false)
    };
    for name in ["none.parquet", "none.fits", "none.csv"] {
        let path = folder.path().join(name);
        TableWriter::create(&path, &with_lists, &Metadata::default())
            .unwrap()
            .finish()
            .unwrap();
        let mut reader = TableReader::open(&path).unwrap();
        assert!(reader.schema.exposure_velocities, "{name}");
        assert!(reader.read_all().unwrap().is_empty());
    }
}

/// The lists of a row group take more than a page of the usual size, and more values than a dictionary.
#[test]
fn bytes_of_lists_do_not_depend_on_the_size_of_appends() {
    let folder = tempfile::tempdir().unwrap();
    let rows: Vec<FitRow> = (0..9000)
        .map(|k| row_of_exposures(k, (k * 7 % 47) as usize))
        .collect();
    let schema = Schema {
        exposures: true,
        exposure_velocities: true,
        ..schema(false)
    };
    for ending in ["parquet", "fits", "csv"] {
        let write_in_appends = |name: &str, size: usize| {
            let path = folder.path().join(format!("{name}.{ending}"));
            let mut writer = TableWriter::create(&path, &schema, &Metadata::default()).unwrap();
            for appended in rows.chunks(size) {
                writer.append(appended).unwrap();
            }
            writer.finish().unwrap();
            path
        };
        let at_once = write_in_appends("all", rows.len());
        let in_pieces = write_in_appends("some", 619);
        assert!(
            std::fs::read(&at_once).unwrap() == std::fs::read(in_pieces).unwrap(),
            "{ending}"
        );
        let table = FitTable::read(&at_once).unwrap().0;
        assert_eq!(table.len(), rows.len());
        for (read, written) in table.to_rows().iter().zip(&rows) {
            assert_eq!(
                format!("{:?}", read.exposure_velocities),
                match &written.exposure_velocities {
                    Some(exposures) if exposures.velocities.is_empty() => "None".to_string(),
                    exposures => format!("{exposures:?}"),
                }
            );
        }
    }
}

/// pyarrow and polars write lists of nullable floats, and polars those with offsets of 64 bits.
#[test]
fn lists_of_other_programs_may_have_nulls() {
    use arrow_array::builder::{Float64Builder, LargeListBuilder};

    let folder = tempfile::tempdir().unwrap();
    let own_table = folder.path().join("own.parquet");
    let rows = [row_of_exposures(1, 2), row_of_exposures(2, 2)];
    FitTable::from_rows(schema(false).parameters, &rows)
        .unwrap()
        .write(&own_table)
        .unwrap();
    let (batches, _) = read_parquet(&own_table);
    let mut lists = LargeListBuilder::new(Float64Builder::new());
    lists.values().append_null();
    lists.values().append_value(2.5);
    lists.append(true);
    lists.append(false);
    let lists: ArrayRef = Arc::new(lists.finish());
    let batch_schema = batches[0].schema();
    let columns = batch_schema
        .fields()
        .iter()
        .zip(batches[0].columns())
        .map(|(field, column)| match field.name().as_str() {
            "velocity_exposures" => (field.name().clone(), lists.clone(), true),
            name => (name.to_string(), column.clone(), false),
        });
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let path = folder.path().join("nulls.parquet");
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let table = FitTable::read(&path).unwrap().0;
    let exposures = table.row(0).exposure_velocities.unwrap();
    assert!(exposures.velocities[0].is_nan() && exposures.velocities[1] == 2.5);
    assert!(table.row(1).exposure_velocities.is_none());
}
