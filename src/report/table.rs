//! The rows that the page's script sorts and filters, as JSON. All cells are texts, because an id above 2^53 is not a
//! JavaScript number.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::About;
use super::collect::{Collector, KeptRow, reduced_chi_square};
use super::number::{format_number, format_with_error, shorten};
use super::panel::anchor;
use super::words::{describe_status, html_with_subscript, status_class, symbol_with_unit};
use crate::flag::FLAG_DESCRIPTIONS;

/// Returns the page's table as JSON (column heads, rows, names of flags), escaped for a `script` element. Rows whose
/// spectra are drawn have a link to them.
pub fn table_as_json(
    about: &About,
    collector: &Collector,
    drawn_ids: &BTreeMap<u64, String>,
) -> String {
    // 1. The heads of the columns.
    let has_signal_to_noise = collector.point_values(1).iter().any(|x| x.is_finite());
    let mut head = vec![
        column_head("id", "text"),
        column_head("status", "text"),
        column_head("χ²/dof", "number"),
    ];
    if has_signal_to_noise {
        head.push(column_head("S/N", "number"));
    }
    head.extend(
        collector
            .parameters
            .iter()
            .map(|name| column_head(&symbol_with_unit(about, name), "number")),
    );
    head.push(column_head("rounds", "number"));
    if collector.several_files {
        head.push(column_head("file", "text"));
    }
    head.push(column_head("row", "number"));
    // 2. The rows, with the link to the picture of the spectrum.
    let rows: Vec<Value> = collector
        .table_rows()
        .map(|(input_index, kept)| {
            let anchor = if drawn_ids.contains_key(&input_index) {
                anchor(input_index)
            } else {
                String::new()
            };
            json!({
                "c": format_cells(kept, has_signal_to_noise, collector.several_files),
                "f": kept.row.flags.bits(),
                "g": status_class(kept.row.status.code()),
                "a": anchor,
            })
        })
        .collect();
    // 3. As JSON, in which nothing ends the script element.
    let flag_names: Vec<&str> = FLAG_DESCRIPTIONS.iter().map(|flag| flag.label).collect();
    let table = json!({ "head": head, "rows": rows, "flags": flag_names, "count": collector.count.to_string() });
    table
        .to_string()
        .replace('<', "\\u003c")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Returns a column head as JSON: its name as text and as HTML, and whether it sorts as `text` or `number`.
fn column_head(name: &str, kind: &str) -> Value {
    json!({ "name": name, "html": html_with_subscript(name), "kind": kind })
}

/// Returns the texts of a row's cells, with a signal-to-noise ratio if `has_signal_to_noise` and the file if
/// `has_file`.
fn format_cells(kept: &KeptRow, has_signal_to_noise: bool, has_file: bool) -> Vec<String> {
    let row = &kept.row;
    let id = shorten(&row.id.to_string()).into_owned();
    let mut cells = vec![
        id,
        describe_status(row.status.code(), &row.status_text),
        format_number(reduced_chi_square(row), 4),
    ];
    if has_signal_to_noise {
        cells.push(format_number(kept.sn, 3));
    }
    cells.extend(
        row.parameters
            .iter()
            .zip(&row.errors)
            .map(|(value, error)| format_with_error(*value, *error)),
    );
    cells.push(row.rounds.to_string());
    if has_file {
        cells.push(shorten(&row.file).into_owned());
    }
    cells.push(row.row.to_string());
    cells
}
