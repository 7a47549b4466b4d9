//! Tests of columns that are moved out of a table and joined to a table again.

use super::*;
use crate::flag::Flags;
use crate::spectral::results::exposures::ExposureVelocities;
use crate::spectral::results::moments::VelocityPosterior;

/// Returns a row with every field, and one without the fields that a row may lack.
fn rows() -> Vec<FitRow> {
    let posterior = VelocityPosterior {
        velocity: 1.5,
        error: 2.5,
        skewness: -0.5,
        kurtosis: 3.0,
    };
    let full = FitRow {
        file: "a.npz".into(),
        row: 5,
        status: Status::Ftol,
        status_text: "ftol".into(),
        rounds: 7,
        evaluations: 8,
        chi2: 9.5,
        dof: -2,
        objective: 10.5,
        parameters: vec![11.0, 12.0],
        errors: vec![0.5, 0.25],
        at_bound: 2,
        flags: Flags::AT_BOUND,
        start: Some(3),
        n_starts_agree: 4,
        continuum_terms: vec![13, 14],
        unreached: vec![0, 15],
        downweighted: Some(0.125),
        posterior: Some(posterior),
        exposures: Some(2),
        exposure_velocities: Some(ExposureVelocities {
            velocities: vec![1.5, f64::NAN],
            errors: vec![0.5, f64::NAN],
        }),
        p_constant_velocity: Some(0.25),
        shared_members: Some(3),
        shared_p: Some(0.75),
        released_errors: vec![0.75, f64::INFINITY],
        correlations: vec![-0.5],
        ..FitRow::new(1, 2)
    };
    vec![
        full,
        FitRow {
            message: "no flux".into(),
            ..FitRow::new(-2, 2)
        },
    ]
}

fn table() -> FitTable {
    let table = FitTable::from_rows(vec!["velocity".into(), "teff".into()], &rows()).unwrap();
    table
        .with_arms(vec!["b".into(), "r".into()])
        .with_units(vec![("teff".into(), "kK".into())])
}

#[test]
fn columns_are_those_of_a_written_table_and_floats_are_moved() {
    let table = table();
    let teff = table.floats("teff").unwrap().as_ptr();
    let skewness = table.floats("velocity_skewness").unwrap().as_ptr();
    let names = table.schema().column_names();
    let columns = table.into_columns();
    let find = |name: &str| columns.iter().find(|column| column.name == name).unwrap();
    assert_eq!(
        columns
            .iter()
            .map(|column| column.name.clone())
            .collect::<Vec<_>>(),
        names.unwrap()
    );
    let FitValues::Float64(moved) = &find("teff").values else {
        panic!()
    };
    assert!(moved.as_ptr() == teff && moved[0] == 12.0 && moved[1].is_nan());
    let FitValues::Float64(moved) = &find("velocity_skewness").values else {
        panic!()
    };
    assert!(moved.as_ptr() == skewness && moved[0] == -0.5 && moved[1].is_nan());
    assert_eq!(find("id").values, FitValues::Int64(vec![1, -2]));
    assert_eq!(find("status").values, FitValues::Int32(vec![2, -2]));
    assert_eq!(find("start").values, FitValues::Int32(vec![3, -1]));
    assert_eq!(find("unreached_r").values, FitValues::Int64(vec![15, 0]));
    assert_eq!(find("exposures").values, FitValues::Int64(vec![2, 0]));
    assert_eq!(find("shared_members").values, FitValues::Int64(vec![3, 0]));
    let FitValues::FloatLists(lists) = &find("velocity_exposures_err").values else {
        panic!()
    };
    assert!(lists[0][0] == 0.5 && lists[0][1].is_nan() && lists[1].is_empty());
    assert_eq!(
        find("file").values,
        FitValues::Text(vec!["a.npz".into(), String::new()])
    );
    assert_eq!(
        (&*find("teff_err").unit, &*find("teff_err").meaning),
        ("kK", "Standard error of teff")
    );
    assert_eq!(
        (&*find("velocity").unit, &*find("velocity_kurtosis").unit),
        ("km/s", "")
    );
}

#[test]
fn a_table_without_rows_keeps_the_type_of_its_ids() {
    for id in [Id::Integer(7), Id::Text("star".into())] {
        let row = FitRow {
            id,
            exposure_velocities: rows()[0].exposure_velocities.clone(),
            ..FitRow::new(1, 1)
        };
        let mut columns = FitTable::from_rows(vec!["velocity".into()], &[row])
            .unwrap()
            .into_columns();
        let kind = columns[0].values.kind();
        for column in &mut columns {
            column.values = match &column.values {
                FitValues::Int32(_) => FitValues::Int32(Vec::new()),
                FitValues::Int64(_) => FitValues::Int64(Vec::new()),
                FitValues::Float64(_) => FitValues::Float64(Vec::new()),
                FitValues::Text(_) | FitValues::FloatLists(_) => FitValues::Text(Vec::new()),
            };
        }
        let table = FitTable::from_columns(columns).unwrap();
        assert_eq!(
            (table.len(), table.into_columns()[0].values.kind()),
            (0, kind)
        );
    }
}

#[test]
fn a_table_is_rebuilt_from_its_columns() {
    let table = table();
    let mut columns = table.clone().into_columns();
    columns.rotate_left(3);
    let rebuilt = FitTable::from_columns(columns).unwrap();
    assert_eq!(
        (rebuilt.names(), rebuilt.arms()),
        (table.names(), table.arms())
    );
    assert_eq!(
        rebuilt.schema().column_names().unwrap(),
        table.schema().column_names().unwrap()
    );
    assert!(rebuilt.messages().iter().all(String::is_empty) && rebuilt.row(1).message.is_empty());
    let mut expected = table.to_rows();
    expected.iter_mut().for_each(|row| row.message.clear());
    assert_eq!(format!("{:?}", rebuilt.to_rows()), format!("{expected:?}"));
}

#[test]
fn a_table_returns_the_rows_that_it_was_made_of() {
    let rows = rows();
    let table = table();
    assert_eq!(
        format!("{:?}", table.to_rows()[0]),
        format!("{:?}", rows[0])
    );
    assert_eq!(format!("{:?}", table.row(0)), format!("{:?}", rows[0]));
    // The second row lacks released errors, which the first one has.
    assert!(
        table
            .row(1)
            .released_errors
            .iter()
            .all(|error| error.is_nan())
    );
    let bare = FitTable::from_rows(table.names().to_vec(), &rows[1..]).unwrap();
    assert_eq!(format!("{:?}", bare.row(0)), format!("{:?}", rows[1]));
}

#[test]
#[should_panic(expected = "row 2 of a table of 2 rows")]
fn a_row_beyond_the_table_panics() {
    table().row(2);
}

#[test]
fn the_error_names_an_invalid_column() {
    type Change = fn(&mut Vec<FitColumn>);
    fn find<'a>(columns: &'a mut [FitColumn], name: &str) -> &'a mut FitColumn {
        columns
            .iter_mut()
            .find(|column| column.name == name)
            .unwrap()
    }
    let cases: [(Change, &str); 9] = [
        (
            |columns| columns.retain(|column| column.name != "dof"),
            "no column `dof`",
        ),
        (
            |columns| columns.retain(|column| column.name != "unreached_r"),
            "column `unreached_r`: it is missing",
        ),
        (
            |columns| columns.retain(|column| column.name != "teff_err"),
            "column `teff`: it is none of",
        ),
        (
            |columns| {
                columns.push(FitColumn::new(
                    "RA",
                    "",
                    "",
                    FitValues::Float64(vec![0.0; 2]),
                ))
            },
            "column `RA`: it is none",
        ),
        (
            |columns| columns.push(columns[3].clone()),
            "column `status`: it is given twice",
        ),
        (
            |columns| find(columns, "chi2").values = FitValues::Int64(vec![1, 2]),
            "`chi2`: it is int64, and has to be float64",
        ),
        (
            |columns| find(columns, "chi2").values = FitValues::Float64(vec![1.0]),
            "`chi2`: it has 1 rows, and others have 2",
        ),
        (
            |columns| find(columns, "velocity_err").unit = "m/s".into(),
            "`velocity_err`: its unit is \"m/s\", and has to be \"km/s\"",
        ),
        (
            |columns| find(columns, "status").values = FitValues::Int32(vec![1, 99]),
            "column `status`, row 1: `99` is no status",
        ),
    ];
    for (change, expected) in cases {
        let mut columns = table().into_columns();
        change(&mut columns);
        let message = FitTable::from_columns(columns).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}, not {expected}");
    }
}

#[test]
fn a_table_finds_all_columns_by_name() {
    let table = table();
    for column in table.clone().into_columns() {
        let values = table.column(&column.name).unwrap();
        // Numbers that are missing are NaN.
        assert_eq!(format!("{values:?}"), format!("{:?}", column.values));
        if let FitValues::Float64(values) = values {
            let lent = table.floats(&column.name).unwrap();
            assert_eq!(format!("{lent:?}"), format!("{values:?}"));
        }
    }
    assert!(table.column("message").is_none() && table.floats("status").is_none());
    assert!(
        FitTable::new(vec!["teff".into()])
            .column("downweighted")
            .is_none()
    );
    assert_eq!(
        FitTable::new(vec!["teff".into()]).floats("teff_err"),
        Some(&[][..])
    );
}

#[test]
fn all_columns_with_the_same_flag_are_there_or_none() {
    let names = table().schema().column_names().unwrap();
    for missing in [
        "velocity_exposures",
        "velocity_exposures_err",
        "p_constant_velocity",
    ] {
        let mut names = names.clone();
        names.retain(|name| name != missing);
        let schema = Schema::from_names(&names, false, Vec::new()).unwrap();
        assert!(schema.exposures && !schema.exposure_velocities, "{missing}");
    }
    // A row without velocities of exposures has a probability: the table has all three columns.
    let row = FitRow {
        p_constant_velocity: Some(0.5),
        ..FitRow::new(1, 1)
    };
    let table = FitTable::from_rows(vec!["teff".into()], &[row]).unwrap();
    let lists = table.column("velocity_exposures");
    assert_eq!(lists, Some(FitValues::FloatLists(vec![Vec::new()])));
    assert!(table.column("exposures").is_none());
}
