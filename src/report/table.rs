//! The rows that the page's script sorts and filters, as JSON. All cells are texts, because an id above 2^53 is not a
//! JavaScript number.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::About;
use super::collect::{Collector, KeptRow, reduced};
use super::number::{number, pair, shortened};
use super::panel::anchor;
use super::words::{ending, grade, html, with_unit};
use crate::flag::Flags;

/// Returns the page's table as JSON (column heads, rows, names of flags), escaped for a `script` element. Rows whose
/// spectra are drawn have a link to them.
pub fn json(about: &About, kept: &Collector, drawn: &BTreeMap<u64, String>) -> String {
    let has_sn = kept.column(1).iter().any(|x| x.is_finite());
    let mut head = vec![
        column("id", "text"),
        column("status", "text"),
        column("χ²/dof", "number"),
    ];
    if has_sn {
        head.push(column("S/N", "number"));
    }
    head.extend(
        kept.parameters
            .iter()
            .map(|name| column(&with_unit(about, name), "number")),
    );
    head.push(column("rounds", "number"));
    if kept.several_files {
        head.push(column("file", "text"));
    }
    head.push(column("row", "number"));
    let rows: Vec<Value> = kept
        .table()
        .map(|(order, row)| {
            let anchor = if drawn.contains_key(&order) {
                anchor(order)
            } else {
                String::new()
            };
            json!({
                "c": cells(row, has_sn, kept.several_files),
                "f": row.row.flags.bits(),
                "g": grade(row.row.status.code()),
                "a": anchor,
            })
        })
        .collect();
    let names: Vec<&str> = Flags::DESCRIPTIONS.iter().map(|flag| flag.label).collect();
    let all =
        json!({ "head": head, "rows": rows, "flags": names, "count": kept.count.to_string() });
    all.to_string()
        .replace('<', "\\u003c")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Returns a column head as JSON: its name as text and as HTML, and whether it sorts as `text` or `number`.
fn column(name: &str, kind: &str) -> Value {
    json!({ "name": name, "html": html(name), "kind": kind })
}

/// Returns the texts of a row's cells, with a signal-to-noise ratio if `has_sn` and the file if `has_file`.
fn cells(kept: &KeptRow, has_sn: bool, has_file: bool) -> Vec<String> {
    let row = &kept.row;
    let id = shortened(&row.id.to_string()).into_owned();
    let mut cells = vec![
        id,
        ending(row.status.code(), &row.status_text),
        number(reduced(row), 4),
    ];
    if has_sn {
        cells.push(number(kept.sn, 3));
    }
    cells.extend(
        row.parameters
            .iter()
            .zip(&row.errors)
            .map(|(value, error)| pair(*value, *error)),
    );
    cells.push(row.rounds.to_string());
    if has_file {
        cells.push(shortened(&row.file).into_owned());
    }
    cells.push(row.row.to_string());
    cells
}
