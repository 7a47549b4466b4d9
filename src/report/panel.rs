//! A spectrum with its fit: flux and model above, residuals in errors below, masked pixels marked.
//!
//! The curves are stretched to whatever width there is; the tick labels are HTML at places in percent, so that they are as
//! legible on a phone as on a wide screen.

use std::fmt::Write;

use super::axis::{Axis, range};
use super::collect::{KeptSpectrum, reduced};
use super::number::{count, escape, number, pair};
use super::trace::{Grid, HEIGHT};
use super::words::{FLAGS, grade, unit};
use crate::fit::{ArmFit, FitRow};

/// Columns of the curves of a spectrum of one arm, and of each of several arms.
const COLUMNS: (usize, usize) = (750, 400);
/// The residuals' axis reaches at least this many errors, and at most four times as many.
const RESIDUALS: f64 = 5.0;

/// A spectrum that is drawn.
pub struct Panel {
    /// The heading it comes under.
    pub group: &'static str,
    pub kept: KeptSpectrum,
    pub arms: Vec<ArmFit>,
}

/// The panel's HTML. Its anchor is `s` and the row's place in the table.
pub fn html(panel: &Panel, anchor: &str, parameters: &[String], units: &[(String, String)]) -> String {
    let columns = if panel.arms.len() == 1 { COLUMNS.0 } else { COLUMNS.1 };
    let arms: String = panel.arms.iter().map(|arm| arm_html(arm, columns)).collect();
    let head = head(&panel.kept.row, parameters, units);
    format!("<article class='card panel' id='{anchor}'>{head}<div class=arms>{arms}</div></article>")
}

fn head(row: &FitRow, parameters: &[String], units: &[(String, String)]) -> String {
    let grade = grade(row.status.code());
    let mut out = format!(
        "<header><h3>{}</h3><span class='chip {grade}'>{}</span>",
        escape(&row.id.to_string()),
        escape(&row.status_text)
    );
    for (k, (name, meaning)) in FLAGS.iter().enumerate().filter(|(k, _)| row.flags >> k & 1 == 1) {
        let _ = write!(out, "<span class=chip title='{meaning}' data-flag={k}>{name}</span>");
    }
    let place = if row.file.is_empty() { String::new() } else { format!("{}, ", escape(&row.file)) };
    let _ = write!(out, "<span class=place>{place}row {}</span></header><dl>", row.row);
    let mut item = |name: &str, value: &str, unit: &str| {
        let (name, unit) = (escape(name), escape(unit));
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value} <small>{unit}</small></dd></div>");
    };
    let dof = if row.dof > 0 { count(row.dof.unsigned_abs()) } else { row.dof.to_string() };
    item("χ²/dof", &number(reduced(row), 4), &format!("{dof} dof"));
    for (p, name) in parameters.iter().enumerate() {
        let bound = if row.at_bound >> p & 1 == 1 { " at bound" } else { "" };
        let unit = format!("{}{bound}", unit(units, name));
        item(name, &pair(row.parameters[p], row.errors[p]), &unit);
    }
    out + "</dl>"
}

fn arm_html(arm: &ArmFit, columns: usize) -> String {
    let (from, to) = range(&arm.wavelength, 0.0);
    let grid = Grid { wavelength: &arm.wavelength, from, to, columns };
    let name = if arm.name.is_empty() { String::new() } else { format!("<b>arm {}</b>", escape(&arm.name)) };
    let residuals: Vec<f64> = (0..arm.flux.len()).map(|j| residual(arm, j)).collect();
    let (flux_axis, residual_axis) = (Axis::linear("", flux_range(arm)), Axis::linear("", residual_range(&residuals)));
    let bands = grid.bands(&arm.mask);
    let upper = |values: &[f64]| grid.curve(values, (flux_axis.from, flux_axis.to));
    let lower = grid.curve(&residuals, (residual_axis.from, residual_axis.to));
    let zero = HEIGHT / 2.0;
    let (flux, model) = (upper(&arm.flux), upper(&arm.model));
    let view = format!("viewBox='0 0 {columns} {HEIGHT}' preserveAspectRatio=none");
    let data = format!(
        "data-x='{from:.3},{to:.3}' data-y='{:e},{:e}' data-r='{:.3}'",
        flux_axis.from, flux_axis.to, residual_axis.to
    );
    format!(
        "<div class=arm {data}><p class=read>{name}<span>{}</span></p>\
         <span class=ylabel>flux</span><div class=y>{}</div>\
         <svg class=flux {view}><path class=band d='{bands}'/><path class=data d='{flux}'/><path class=model d='{model}'/></svg>\
         <span class='ylabel low'>residual / σ</span><div class='y low'>{}</div>\
         <svg class=residual {view}><path class=band d='{bands}'/><path class=zero d='M0 {zero}h{columns}'/>\
         <path class=data d='{lower}'/></svg>\
         <div class=x>{}</div><p class=xlabel>wavelength (Å)</p></div>",
        legend(arm),
        vertical(&flux_axis, 4),
        vertical(&residual_axis, 2),
        horizontal(&Axis::linear("", (from, to))),
    )
}

fn legend(arm: &ArmFit) -> String {
    let masked = arm.mask.iter().filter(|masked| **masked).count();
    let model = if arm.model.iter().any(|x| x.is_finite()) { "<i class=model></i>model " } else { "" };
    let band = if masked > 0 { format!("<i class=band></i>{} masked", count(masked as u64)) } else { String::new() };
    format!("<i class=data></i>data {model}{band}")
}

/// (data − model) / error; NaN where the pixel does not count.
fn residual(arm: &ArmFit, j: usize) -> f64 {
    if arm.mask[j] { f64::NAN } else { (arm.flux[j] - arm.model[j]) / arm.error[j] }
}

/// From a little below the smallest to a little above the largest of data that count (but for a few spikes) and model.
fn flux_range(arm: &ArmFit) -> (f64, f64) {
    let counted: Vec<f64> = arm.flux.iter().zip(&arm.mask).filter(|(_, masked)| !**masked).map(|(y, _)| *y).collect();
    let all = if counted.is_empty() { range(&arm.flux, 0.06) } else { range(&counted, 0.06) };
    if !arm.model.iter().any(|x| x.is_finite()) {
        return all;
    }
    let model = range(&arm.model, 0.06);
    (all.0.min(model.0), all.1.max(model.1))
}

fn residual_range(residuals: &[f64]) -> (f64, f64) {
    let (low, high) = range(residuals, 0.05);
    let most = low.abs().max(high).clamp(RESIDUALS, 4.0 * RESIDUALS);
    (-most, most)
}

fn vertical(axis: &Axis, most: usize) -> String {
    let ticks = axis.ticks(most).into_iter();
    ticks.map(|(place, text)| format!("<i style='bottom:{:.1}%'>{text}</i>", 100.0 * place)).collect()
}

/// Ticks that are dropped where it is narrow have the class `more`.
fn horizontal(axis: &Axis) -> String {
    let ticks = axis.ticks(9).into_iter().enumerate();
    let tick = |(k, (place, text)): (usize, (f64, String))| {
        let class = if k % 2 == 1 { " class=more" } else { "" };
        format!("<i{class} style='left:{:.2}%'>{text}</i>", 100.0 * place)
    };
    ticks.map(tick).collect()
}
