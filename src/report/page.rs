//! The page, made from a template.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::collect::Collector;
use super::number::{escape_html, format_count};
use super::spectra::Gallery;
use super::{About, figures, gallery, outcome, table};

const PAGE_TEMPLATE: &str = include_str!("page.html");
const PAGE_STYLE: &str = include_str!("page.css");
const PAGE_SCRIPT: &str = include_str!("page.js");

/// Maximum size of the page in bytes. Spectra that would need more are left out.
const MAX_PAGE_BYTES: usize = 10_000_000;
/// Maximum number of characters of the model file that are shown.
const MAX_MODEL_CHARACTERS: usize = 100_000;
/// Bytes left free for the links from the table to the spectra.
const RESERVED_LINK_BYTES: usize = 20_000;

/// Returns the whole HTML page; drops spectra of the galleries that would make it larger than its limit.
pub fn fill_page(about: &About, collector: &Collector, galleries: &[Gallery]) -> String {
    // 1. The size of the page without spectra decides how much room these have.
    let page_without_spectra = fill_template(about, collector, "", &BTreeMap::new());
    let max_gallery_bytes =
        MAX_PAGE_BYTES.saturating_sub(page_without_spectra.len() + RESERVED_LINK_BYTES);
    // 2. The table links to the spectra that are drawn.
    let drawn = gallery::draw_galleries(about, collector, galleries, max_gallery_bytes);
    if drawn.html.is_empty() {
        page_without_spectra
    } else {
        fill_template(about, collector, &drawn.html, &drawn.ids)
    }
}

/// Fills the page's HTML template; `spectra` is the galleries' HTML, `drawn_ids` the ids of the spectra in it by their
/// index in the input, to which the table links.
fn fill_template(
    about: &About,
    collector: &Collector,
    spectra: &str,
    drawn_ids: &BTreeMap<u64, String>,
) -> String {
    let mut pieces = PAGE_TEMPLATE.split("{{");
    let mut page = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        let (name, text) = piece.split_once("}}").unwrap_or((piece, ""));
        page += &match name {
            "title" => escape_html(&about.title),
            "style" => PAGE_STYLE.to_string(),
            "script" => PAGE_SCRIPT.to_string(),
            "subtitle" => compose_subtitle(about),
            "tiles" => outcome::draw_tiles(about, collector),
            "statuses" => outcome::draw_statuses(collector),
            "flags" => outcome::draw_flags(collector),
            "figures" => figures::draw_figures(about, collector),
            "spectra" => spectra.to_string(),
            "table_note" => describe_table_rows(collector),
            "rows" => table::table_as_json(about, collector, drawn_ids),
            "provenance" => list_provenance(about),
            _ => String::new(),
        };
        page += text;
    }
    page
}

/// Returns the line below the title, HTML: popfit's version and the device, as far as they are known.
fn compose_subtitle(about: &About) -> String {
    let mut parts = Vec::new();
    if let Some(version) = &about.version {
        parts.push(format!("popfit {}", escape_html(version)));
    }
    if !about.metadata.device.is_empty() {
        parts.push(escape_html(&about.metadata.device));
    }
    parts.join(" · ")
}

/// Returns the text that says which of the rows the page's table shows.
fn describe_table_rows(collector: &Collector) -> String {
    let shown = collector.table_rows().count() as u64;
    if shown == collector.count {
        return format!("all {} rows, worst first", format_count(shown));
    }
    format!(
        "the worst {} of {} rows: failed fits, then the largest χ²/dof; figures and counts are of all",
        format_count(shown),
        format_count(collector.count)
    )
}

/// Returns HTML that lists how the table was made: version, device, settings, emulators and model file.
fn list_provenance(about: &About) -> String {
    let metadata = &about.metadata;
    // 1. List what the metadata name.
    let mut items = String::new();
    items += &provenance_item("popfit", about.version.as_deref().unwrap_or_default());
    items += &provenance_item("device", &metadata.device);
    items += &provenance_item("settings", &metadata.settings);
    for (file, hash) in &metadata.emulators {
        items += &provenance_item("emulator", &format!("{file}, SHA-256 {hash}"));
    }
    if items.is_empty() {
        return "<p class=nothing>The table does not say how it was made: another program wrote it without popfit's \
            metadata.</p>"
            .into();
    }
    let mut html = format!("<dl>{items}</dl>");
    // 2. Show the model file, or its beginning.
    if !metadata.model.is_empty() {
        let shown: String = metadata.model.chars().take(MAX_MODEL_CHARACTERS).collect();
        let is_cut = metadata.model.len() > shown.len();
        let note = if is_cut {
            " (its beginning; the table's metadata have all of it)"
        } else {
            ""
        };
        let _ = write!(
            html,
            "<details><summary>Model file{note}</summary><pre>{}</pre></details>",
            escape_html(&shown)
        );
    }
    html
}

/// Returns the HTML of a name and its value; empty for an empty value.
fn provenance_item(name: &str, value: &str) -> String {
    if value.is_empty() {
        return String::new();
    }
    format!("<dt>{name}</dt><dd>{}</dd>", escape_html(value))
}
