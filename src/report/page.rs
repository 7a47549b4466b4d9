//! The page, made from a template.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::collect::Collector;
use super::number::{count, escape};
use super::spectra::Gallery;
use super::{About, figures, gallery, outcome, table};

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Maximum size of the page in bytes. Spectra that would need more are left out.
const LIMIT: usize = 10_000_000;
/// Maximum number of characters of the model file that are shown.
const MODEL: usize = 100_000;
/// Bytes left free for the links from the table to the spectra.
const LINKS: usize = 20_000;

/// Returns the whole HTML page; drops spectra of the galleries that would make it larger than its limit.
pub fn page(about: &About, kept: &Collector, galleries: &[Gallery]) -> String {
    // 1. Everything but the spectra decides how much room these have.
    let bare = fill(about, kept, "", &BTreeMap::new());
    let room = LIMIT.saturating_sub(bare.len() + LINKS);
    // 2. The table links to those that are drawn.
    let drawn = gallery::draw(about, kept, galleries, room);
    if drawn.html.is_empty() {
        bare
    } else {
        fill(about, kept, &drawn.html, &drawn.ids)
    }
}

/// Fills the page's HTML template; `spectra` is the galleries' HTML, `drawn` the ids of the spectra in it by their
/// index in the input, to which the table links.
fn fill(about: &About, kept: &Collector, spectra: &str, drawn: &BTreeMap<u64, String>) -> String {
    let mut pieces = TEMPLATE.split("{{");
    let mut out = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        let (name, rest) = piece.split_once("}}").unwrap_or((piece, ""));
        out += &match name {
            "title" => escape(&about.title),
            "style" => STYLE.to_string(),
            "script" => SCRIPT.to_string(),
            "subtitle" => subtitle(about),
            "tiles" => outcome::tiles(about, kept),
            "statuses" => outcome::statuses(kept),
            "flags" => outcome::flags(kept),
            "figures" => figures::figures(about, kept),
            "spectra" => spectra.to_string(),
            "table_note" => table_note(kept),
            "rows" => table::json(about, kept, drawn),
            "provenance" => provenance(about),
            _ => String::new(),
        };
        out += rest;
    }
    out
}

/// Returns the line below the title, HTML: popfit's version and the device, as far as they are known.
fn subtitle(about: &About) -> String {
    let mut parts = Vec::new();
    parts.extend(
        about
            .version
            .as_ref()
            .map(|version| format!("popfit {}", escape(version))),
    );
    if !about.metadata.device.is_empty() {
        parts.push(escape(&about.metadata.device));
    }
    parts.join(" · ")
}

/// Returns the text that says which of the rows the page's table shows.
fn table_note(kept: &Collector) -> String {
    let shown = kept.table().count() as u64;
    if shown == kept.count {
        return format!("all {} rows, worst first", count(shown));
    }
    format!(
        "the worst {} of {} rows: failed fits, then the largest χ²/dof; figures and counts are of all",
        count(shown),
        count(kept.count)
    )
}

/// Returns HTML that lists how the table was made: version, device, settings, emulators and model file.
fn provenance(about: &About) -> String {
    let metadata = &about.metadata;
    let mut out = String::from("<dl>");
    let mut item = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = write!(out, "<dt>{name}</dt><dd>{}</dd>", escape(value));
        }
    };
    item("popfit", about.version.as_deref().unwrap_or_default());
    item("device", &metadata.device);
    item("settings", &metadata.settings);
    for (file, hash) in &metadata.emulators {
        item("emulator", &format!("{file}, SHA-256 {hash}"));
    }
    if out == "<dl>" {
        return "<p class=nothing>The table does not say how it was made: another program wrote it without popfit's \
            metadata.</p>"
            .into();
    }
    out += "</dl>";
    if !metadata.model.is_empty() {
        let shown: String = metadata.model.chars().take(MODEL).collect();
        let cut = metadata.model.len() > shown.len();
        let note = if cut {
            " (its beginning; the table's metadata have all of it)"
        } else {
            ""
        };
        let _ = write!(
            out,
            "<details><summary>Model file{note}</summary><pre>{}</pre></details>",
            escape(&shown)
        );
    }
    out
}
