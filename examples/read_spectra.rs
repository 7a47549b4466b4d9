//! The spectra that popfit reads from a file, as JSON: `cargo run --release --example read_spectra -- coadd.fits.gz`.

use popfit::Values;
use popfit::spectra::{ArmSpectra, Column, ColumnValues, Ids, open_reader};
use serde_json::{Value, json};

fn main() -> popfit::Result<()> {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: read_spectra FILE");
        std::process::exit(2);
    };
    let mut reader = open_reader(path)?;
    let mut batches = Vec::new();
    while let Some(spectra) = reader.next_batch(1000)? {
        let ids = match &spectra.ids {
            Ids::Integer(ids) => json!(ids),
            Ids::Text(ids) => json!(ids),
        };
        let arms: Vec<Value> = spectra.arms.iter().map(arm).collect();
        let columns: Vec<Value> = spectra.columns.iter().map(column).collect();
        batches.push(json!({ "ids": ids, "rows": spectra.rows, "arms": arms, "columns": columns }));
    }
    println!(
        "{}",
        json!({ "length": reader.len(), "notes": reader.notes(), "batches": batches })
    );
    Ok(())
}

/// Sums and ends, one a spectrum.
fn arm(arm: &ArmSpectra) -> Value {
    let rows = || 0..arm.len();
    let sums = |values: &Values| {
        values
            .to_double()
            .chunks(arm.pixels)
            .map(|row| row.iter().sum())
            .collect::<Vec<f64>>()
    };
    let masked = |row: usize| {
        arm.mask
            .iter()
            .skip(row * arm.pixels)
            .take(arm.pixels)
            .filter(|bad| **bad)
            .count()
    };
    json!({
        "name": arm.name,
        "pixels": arm.pixels,
        "first": rows().map(|row| arm.grid(row)[0]).collect::<Vec<_>>(),
        "last": rows().map(|row| arm.grid(row)[arm.pixels - 1]).collect::<Vec<_>>(),
        "wavelength": rows().map(|row| arm.grid(row).iter().sum()).collect::<Vec<f64>>(),
        "flux": sums(&arm.flux),
        "ivar": sums(&arm.ivar),
        "masked": rows().map(masked).collect::<Vec<_>>(),
        "resolution": arm.resolution.as_ref().map(|r| r.values.iter().map(|x| f64::from(*x)).sum::<f64>()),
    })
}

fn column(column: &Column) -> Value {
    let (kind, values) = match &column.values {
        ColumnValues::Bool(v) => ("bool", json!(v)),
        ColumnValues::U8(v) => ("uint8", json!(v)),
        ColumnValues::I16(v) => ("int16", json!(v)),
        ColumnValues::U16(v) => ("uint16", json!(v)),
        ColumnValues::I32(v) => ("int32", json!(v)),
        ColumnValues::U32(v) => ("uint32", json!(v)),
        ColumnValues::I64(v) => ("int64", json!(v)),
        ColumnValues::U64(v) => ("uint64", json!(v)),
        ColumnValues::F32(v) => ("float32", json!(v)),
        ColumnValues::F64(v) => ("float64", json!(v)),
        ColumnValues::Text(v) => ("text", json!(v)),
    };
    json!({ "table": &*column.table, "name": &*column.name, "unit": &*column.unit, "type": kind, "values": values })
}
