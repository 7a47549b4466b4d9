//! The page: a template whose places are filled.

use std::fmt::Write;

use super::collect::Collector;
use super::number::{count, escape};
use super::panel::Panel;
use super::{About, figures, outcome, panel, spectra, table};

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The whole page.
pub fn page(about: &About, kept: &Collector, panels: &[Panel]) -> String {
    let anchors = anchors(kept, panels);
    let fill = |name: &str| match name {
        "title" => escape(&about.title),
        "style" => STYLE.to_string(),
        "script" => SCRIPT.to_string(),
        "subtitle" => subtitle(about),
        "tiles" => outcome::tiles(about, kept),
        "statuses" => outcome::statuses(kept),
        "flags" => outcome::flags(kept),
        "figures" => figures::figures(about, kept),
        "spectra" => sections(about, kept, panels),
        "table_note" => table_note(kept),
        "rows" => table::json(about, kept, &anchors),
        "provenance" => provenance(about),
        _ => String::new(),
    };
    let mut pieces = TEMPLATE.split("{{");
    let mut out = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        let (name, rest) = piece.split_once("}}").unwrap_or((piece, ""));
        out += &fill(name);
        out += rest;
    }
    out
}

fn subtitle(about: &About) -> String {
    let mut parts = Vec::new();
    parts.extend(about.version.as_ref().map(|version| format!("popfit {}", escape(version))));
    if !about.metadata.device.is_empty() {
        parts.push(escape(&about.metadata.device));
    }
    parts.join(" · ")
}

/// Places in the stream of the spectra that are drawn, with their panels' anchors.
fn anchors(kept: &Collector, panels: &[Panel]) -> Vec<(u64, String)> {
    let same = |panel: &Panel, row: &crate::fit::FitRow| {
        let other = &panel.kept.row;
        other.row == row.row && other.file == row.file && other.id == row.id
    };
    let mut all = Vec::new();
    for (order, kept) in kept.table() {
        all.extend(panels.iter().position(|panel| same(panel, &kept.row)).map(|k| (order, format!("s{k}"))));
    }
    all
}

fn sections(about: &About, kept: &Collector, panels: &[Panel]) -> String {
    let mut out = String::new();
    let groups = [
        (spectra::FAILED, "one for each cause"),
        (spectra::WORST, "largest χ²/dof"),
        (spectra::MEDIAN, "nearest the median χ²/dof, from a sample"),
    ];
    for (group, what) in groups {
        let members = panels.iter().enumerate().filter(|(_, panel)| panel.group == group);
        let cards: String =
            members.map(|(k, panel)| panel::html(panel, &format!("s{k}"), &kept.parameters, &about.units)).collect();
        if !cards.is_empty() {
            let _ = write!(out, "<section class=spectra><h2>{group} <small>{what}</small></h2>{cards}</section>");
        }
    }
    out
}

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
        return "<p class=nothing>The table does not say how it was made: another program wrote it without popfit's metadata.</p>"
            .into();
    }
    out += "</dl>";
    if !metadata.model.is_empty() {
        let _ = write!(out, "<details><summary>Model file</summary><pre>{}</pre></details>", escape(&metadata.model));
    }
    out
}
