//! A spectrum with its fit: a header with the row's numbers, and a picture per arm.

use std::fmt::Write;

use super::About;
use super::arm::{self, Room};
use super::collect::reduced;
use super::number::{count, escape, number, pair, shortened};
use super::words::{ending, grade, html as with_subscript, meaning, symbol};
use crate::flag::Flags;
use crate::spectral::quantity::unit;
use crate::spectral::{ArmFit, FitRow};

/// A spectrum that is drawn.
pub struct Panel {
    /// The row's place in the input.
    pub order: u64,
    pub row: FitRow,
    pub arms: Vec<ArmFit>,
    /// The model's velocity, km/s; NaN without a fit.
    pub velocity: f64,
}

impl Panel {
    /// Returns the HTML id of the panel's element, to which links in the table lead.
    pub fn anchor(&self) -> String {
        anchor(self.order)
    }
}

/// Returns the HTML id of the element that draws the row with this index in the input.
pub fn anchor(order: u64) -> String {
    format!("s{order}")
}

/// Returns the HTML of a panel: a spectrum's id, status and parameters above the pictures of its arms.
pub fn html(panel: &Panel, parameters: &[String], about: &About) -> String {
    let room = if panel.arms.len() == 1 {
        Room::Whole
    } else {
        Room::Shared
    };
    let arms: String = panel
        .arms
        .iter()
        .map(|arm| arm::html(arm, panel.velocity, room))
        .collect();
    let head = head(&panel.row, parameters, about);
    let anchor = panel.anchor();
    format!(
        "<article class='card panel' id='{anchor}'>{head}<div class=arms>{arms}</div></article>"
    )
}

/// Returns the HTML header of a panel: the row's id, status, flags, file and, if it has a fit, χ²/dof and parameters.
fn head(row: &FitRow, parameters: &[String], about: &About) -> String {
    let grade = grade(row.status.code());
    let mut out = format!(
        "<header><h3><small>id</small> {}</h3><span class='chip {grade}' title='{}'>{}</span>",
        escape(&shortened(&row.id.to_string())),
        escape(meaning(row.status.code())),
        escape(&ending(row.status.code(), &row.status_text))
    );
    for (k, flag) in Flags::DESCRIPTIONS
        .iter()
        .enumerate()
        .filter(|(_, flag)| row.flags.bits() & flag.bit != 0)
    {
        let (label, meaning) = (escape(flag.label), escape(flag.meaning));
        let _ = write!(
            out,
            "<span class=chip title='{meaning}' data-flag={k}>{label}</span>"
        );
    }
    let file = row
        .file
        .rsplit(['/', '\\'])
        .next()
        .filter(|name| !name.is_empty());
    let place = file.map_or_else(String::new, |name| {
        format!("{}, ", escape(&shortened(name)))
    });
    let (full, at) = (escape(&shortened(&row.file)), row.row);
    let _ = write!(
        out,
        "<span class=place title='{full}'>{place}row {at}</span></header>"
    );
    if !row.parameters.iter().any(|x| x.is_finite()) {
        return out;
    }
    out += "<dl>";
    let mut item = |name: &str, value: &str, unit: &str| {
        let (name, unit) = (with_subscript(name), escape(unit));
        let _ = write!(
            out,
            "<div><dt>{name}</dt><dd>{value} <small>{unit}</small></dd></div>"
        );
    };
    let dof = if row.dof > 0 {
        count(row.dof.unsigned_abs())
    } else {
        row.dof.to_string()
    };
    item("χ²/dof", &number(reduced(row), 4), &format!("{dof} dof"));
    for (p, name) in parameters.iter().enumerate() {
        let bound = if row.at_bound >> p & 1 == 1 {
            " at bound"
        } else {
            ""
        };
        let unit = format!("{}{bound}", unit(&about.units, name));
        item(symbol(name), &pair(row.parameters[p], row.errors[p]), &unit);
    }
    out + "</dl>"
}
