//! A spectrum with its fit: a header with the row's numbers, and a picture per arm.

use std::fmt::Write;

use super::About;
use super::arm::{PictureWidth, draw_arm};
use super::collect::reduced_chi_square;
use super::number::{escape_html, format_count, format_number, format_with_error, shorten};
use super::words::{
    describe_status, html_with_subscript, parameter_symbol, status_class, status_meaning,
};
use crate::flag::FLAG_DESCRIPTIONS;
use crate::spectral::quantity::unit;
use crate::spectral::{ArmFit, FitRow};

/// A spectrum that is drawn.
pub struct SpectrumPanel {
    /// The row's place in the input.
    pub input_index: u64,
    pub row: FitRow,
    pub arms: Vec<ArmFit>,
    /// The model's velocity, km/s; NaN without a fit.
    pub velocity: f64,
}

impl SpectrumPanel {
    /// Returns the HTML id of the panel's element, to which links in the table lead.
    pub fn anchor(&self) -> String {
        anchor(self.input_index)
    }
}

/// Returns the HTML id of the element that draws the row with this index in the input.
pub fn anchor(input_index: u64) -> String {
    format!("s{input_index}")
}

/// Returns the HTML of a panel: a spectrum's id, status and parameters above the pictures of its arms.
pub fn draw_panel(panel: &SpectrumPanel, parameters: &[String], about: &About) -> String {
    let picture_width = if panel.arms.len() == 1 {
        PictureWidth::Whole
    } else {
        PictureWidth::Shared
    };
    let arms: String = panel
        .arms
        .iter()
        .map(|arm| draw_arm(arm, panel.velocity, picture_width))
        .collect();
    let header = draw_header(&panel.row, parameters, about);
    let anchor = panel.anchor();
    format!(
        "<article class='card panel' id='{anchor}'>{header}<div class=arms>{arms}</div></article>"
    )
}

/// Returns the HTML header of a panel: the row's id, status, flags, file and, if it has a fit, χ²/dof and parameters.
fn draw_header(row: &FitRow, parameters: &[String], about: &About) -> String {
    // 1. The id and the status.
    let code = row.status.code();
    let class = status_class(code);
    let mut header = format!(
        "<header><h3><small>id</small> {}</h3><span class='chip {class}' title='{}'>{}</span>",
        escape_html(&shorten(&row.id.to_string())),
        escape_html(status_meaning(code)),
        escape_html(&describe_status(code, &row.status_text))
    );
    // 2. The flags.
    for (k, flag) in FLAG_DESCRIPTIONS.iter().enumerate() {
        if row.flags.bits() & flag.bit != 0 {
            let label = escape_html(flag.label);
            let meaning = escape_html(flag.meaning);
            let _ = write!(
                header,
                "<span class=chip title='{meaning}' data-flag={k}>{label}</span>"
            );
        }
    }
    // 3. The file's name, without its folder, and the row in it.
    let file_name = match row.file.rsplit(['/', '\\']).next() {
        None | Some("") => String::new(),
        Some(name) => format!("{}, ", escape_html(&shorten(name))),
    };
    let path = escape_html(&shorten(&row.file));
    let file_row = row.row;
    let _ = write!(
        header,
        "<span class=place title='{path}'>{file_name}row {file_row}</span></header>"
    );
    // 4. The numbers of the fit, if there is one.
    if !row.parameters.iter().any(|value| value.is_finite()) {
        return header;
    }
    header += "<dl>";
    let dof = if row.dof > 0 {
        format_count(row.dof.unsigned_abs())
    } else {
        row.dof.to_string()
    };
    let chi_square = format_number(reduced_chi_square(row), 4);
    header += &header_item("χ²/dof", &chi_square, &format!("{dof} dof"));
    for (p, name) in parameters.iter().enumerate() {
        let is_at_bound = row.at_bound >> p & 1 == 1;
        let bound_note = if is_at_bound { " at bound" } else { "" };
        let value = format_with_error(row.parameters[p], row.errors[p]);
        let unit = format!("{}{bound_note}", unit(&about.units, name));
        header += &header_item(parameter_symbol(name), &value, &unit);
    }
    header + "</dl>"
}

/// Returns the HTML of a number in a panel's header: its name, its value and its unit.
fn header_item(name: &str, value: &str, unit: &str) -> String {
    let name = html_with_subscript(name);
    let unit = escape_html(unit);
    format!("<div><dt>{name}</dt><dd>{value} <small>{unit}</small></dd></div>")
}
