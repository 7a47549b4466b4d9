//! A spectrum with its fit: flux and model above, residuals in errors below, masked pixels marked.
//!
//! The curves are stretched to whatever width there is; the tick labels are HTML at places in percent, so that they are as
//! legible on a phone as on a wide screen.

use std::fmt::Write;

use super::axis::{Axis, range, range_within};
use super::collect::{KeptSpectrum, reduced};
use super::number::{count, escape, number, pair};
use super::trace::{Grid, HEIGHT};
use super::words::grade;
use crate::fit::quantity::unit;
use crate::fit::{ArmFit, FitRow, Flags};

/// Columns of the curves of a spectrum of one arm, and of each of several arms.
const COLUMNS: (usize, usize) = (750, 400);
/// The residuals' axis reaches at least this many errors, and at most four times as many.
const RESIDUALS: f64 = 5.0;

/// Fluxes this far outside the bulk are spikes, and leave the picture; line cores are not.
const SPIKE: f64 = 6.0;

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
        "<header><h3><small>id</small> {}</h3><span class='chip {grade}'>{}</span>",
        escape(&row.id.to_string()),
        escape(&row.status_text)
    );
    for (k, flag) in Flags::DESCRIPTIONS.iter().enumerate().filter(|(_, flag)| row.flags.bits() & flag.bit != 0) {
        let (label, meaning) = (escape(flag.label), escape(flag.meaning));
        let _ = write!(out, "<span class=chip title='{meaning}' data-flag={k}>{label}</span>");
    }
    let file = row.file.rsplit(['/', '\\']).next().filter(|name| !name.is_empty());
    let place = file.map_or_else(String::new, |name| format!("{}, ", escape(name)));
    let (full, at) = (escape(&row.file), row.row);
    let _ = write!(out, "<span class=place title='{full}'>{place}row {at}</span></header>");
    if !row.parameters.iter().any(|x| x.is_finite()) {
        return out;
    }
    out += "<dl>";
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
    let (from, to) = ends(&arm.wavelength);
    let grid = Grid { wavelength: &arm.wavelength, from, to, columns };
    let name = if arm.name.is_empty() { String::new() } else { format!("<b>arm {}</b>", escape(&arm.name)) };
    let axis = Axis::linear("", flux_range(arm));
    let bands = grid.bands(&arm.mask);
    let [flux, model] = [&arm.flux, &arm.model].map(|values| grid.curve(values, (axis.from, axis.to)));
    let alone = if fitted(arm) { "" } else { " alone" };
    let below = if fitted(arm) { residuals(arm, &grid, &bands) } else { String::new() };
    format!(
        "<div class='arm{alone}' data-x='{from:.3},{to:.3}' data-y='{:e},{:e}'>\
         <p class=read>{name}<span>{}</span></p><span class=ylabel>flux</span><div class=y>{}</div>\
         <svg class=flux viewBox='0 0 {columns} {HEIGHT}' preserveAspectRatio=none><path class=band d='{bands}'/>\
         <path class=data d='{flux}'/><path class=model d='{model}'/></svg>{below}\
         <div class=x>{}</div><p class=xlabel>wavelength (Å)</p></div>",
        axis.from,
        axis.to,
        legend(arm),
        vertical(&axis, 5, 0.05),
        horizontal(&Axis::linear("", (from, to))),
    )
}

/// The lower picture.
fn residuals(arm: &ArmFit, grid: &Grid, bands: &str) -> String {
    let values: Vec<f64> = (0..arm.flux.len()).map(|j| residual(arm, j)).collect();
    let (low, high) = range(&values, 0.05);
    let most = low.abs().max(high.abs()).clamp(RESIDUALS, 4.0 * RESIDUALS);
    let curve = grid.curve(&values, (-most, most));
    let (columns, zero) = (grid.columns, HEIGHT / 2.0);
    format!(
        "<span class='ylabel low'>residual / σ</span><div class='y low'>{}</div>\
         <svg class=residual viewBox='0 0 {columns} {HEIGHT}' preserveAspectRatio=none data-most='{most:.3}'>\
         <path class=band d='{bands}'/><path class=data d='{curve}'/><path class=zero d='M0 {zero}h{columns}'/></svg>",
        vertical(&Axis::linear("", (-most, most)), 4, -0.01),
    )
}

fn fitted(arm: &ArmFit) -> bool {
    arm.model.iter().any(|x| x.is_finite())
}

/// The first and the last of the finite wavelengths.
fn ends(wavelength: &[f64]) -> (f64, f64) {
    let finite = || wavelength.iter().copied().filter(|w| w.is_finite());
    let (from, to) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    if from < to { (from, to) } else { (0.0, 1.0) }
}

fn legend(arm: &ArmFit) -> String {
    let masked = arm.mask.iter().filter(|masked| **masked).count();
    let model = if fitted(arm) { "<i class=model></i>model " } else { "" };
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
    let all = range_within(if counted.is_empty() { &arm.flux } else { &counted }, 0.06, SPIKE);
    if !fitted(arm) {
        return all;
    }
    let model = range_within(&arm.model, 0.06, SPIKE);
    (all.0.min(model.0), all.1.max(model.1))
}

/// Ticks of the upper picture leave room at its foot for the lower picture's highest.
fn vertical(axis: &Axis, most: usize, from: f64) -> String {
    let ticks = axis.ticks(most).into_iter().filter(|(place, _)| *place >= from);
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
