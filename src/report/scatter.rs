//! Scatter plots of two numbers per fit: points, or their density if there are too many.

use std::fmt::Write;

use super::axis::{Axis, Column, range};
use super::number::{count, number};
use super::svg::{Frame, nothing};

/// Number of colours of points, from the lowest to the highest fifth of the axis.
const SHADES: usize = 5;
/// Numbers of cells of the density, across and down.
const CELLS: (usize, usize) = (68, 54);
/// Number of shades of the density.
const DENSITIES: usize = 6;

/// Returns an HTML scatter plot of `y` over `x`: coloured circles if `rows` gives each point's row in the page's table,
/// else the density of points.
pub fn scatter(
    title: &str,
    x: &Column,
    y: &Column,
    colour: Option<&Column>,
    rows: Option<&[usize]>,
) -> String {
    let finite: Vec<usize> = (0..x.values.len())
        .filter(|&k| x.values[k].is_finite() && y.values[k].is_finite())
        .collect();
    if finite.is_empty() {
        return nothing(title, "No fits with finite values.");
    }
    let mut frame = Frame::new(Axis::of(x, 0.05), Axis::of(y, 0.05));
    let inside = |k: &usize| {
        let (x, y) = (frame.x.place(x.values[*k]), frame.y.place(y.values[*k]));
        (0.0..=1.0).contains(&x) && (0.0..=1.0).contains(&y)
    };
    let shown: Vec<usize> = finite.iter().copied().filter(inside).collect();
    let mut notes = Vec::new();
    match rows {
        Some(rows) => notes.extend(points(&mut frame, x, y, colour, &shown, rows)),
        None => notes.push(density(&mut frame, x, y, &shown)),
    }
    if shown.len() < finite.len() {
        notes.push(format!(
            "{} beyond the axes",
            count((finite.len() - shown.len()) as u64)
        ));
    }
    frame.finish(title, &notes.join(", "))
}

/// Draws a circle for each index in `shown`, shaded by `colour`; returns the HTML of the colour scale, if there is one.
fn points(
    frame: &mut Frame,
    x: &Column,
    y: &Column,
    colour: Option<&Column>,
    shown: &[usize],
    rows: &[usize],
) -> Option<String> {
    let (low, high) = colour.map_or((0.0, 1.0), |colour| range(colour.values, 0.0));
    let shade = |k: usize| {
        let place = colour.map_or(0.5, |colour| (colour.values[k] - low) / (high - low));
        ((place * SHADES as f64).max(0.0) as usize).min(SHADES - 1)
    };
    let radius = if shown.len() > 500 { 2.2 } else { 3.2 };
    for shown in (0..SHADES).map(|s| (s, shown.iter().filter(move |k| shade(**k) == s))) {
        frame.draw(format_args!("<g class=s{}>", shown.0));
        for &k in shown.1 {
            let (cx, cy, row) = (frame.at_x(x.values[k]), frame.at_y(y.values[k]), rows[k]);
            frame.draw(format_args!(
                "<circle cx={cx:.1} cy={cy:.1} r={radius} data-row={row} />"
            ));
        }
        frame.draw(format_args!("</g>"));
    }
    let colour = colour?;
    let swatches: String = (0..SHADES).map(|s| format!("<i class=s{s}></i>")).collect();
    let (low, high) = (number(low, 2), number(high, 2));
    Some(format!(
        "{} <span class=scale>{low} {swatches} {high}</span>",
        super::words::html(colour.label)
    ))
}

/// Draws how many of the fits `shown` (indices) lie in each cell, darker for more; returns the text of the legend.
fn density(frame: &mut Frame, x: &Column, y: &Column, shown: &[usize]) -> String {
    let cell = |place: f64, cells: usize| ((place * cells as f64) as usize).min(cells - 1);
    let mut counts = vec![0u64; CELLS.0 * CELLS.1];
    for &k in shown {
        let (column, row) = (
            cell(frame.x.place(x.values[k]), CELLS.0),
            cell(frame.y.place(y.values[k]), CELLS.1),
        );
        counts[row * CELLS.0 + column] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(1).max(2);
    let (left, top, width, height) = Frame::inner();
    let (dx, dy) = (width / CELLS.0 as f64, height / CELLS.1 as f64);
    let mut paths = vec![String::new(); DENSITIES];
    for (at, n) in counts.iter().enumerate().filter(|(_, n)| **n > 0) {
        let shade = (*n as f64).ln() / (most as f64).ln() * DENSITIES as f64;
        let (column, row) = ((at % CELLS.0) as f64, (at / CELLS.0) as f64);
        let (px, py) = (left + column * dx, top + height - (row + 1.0) * dy);
        let path = &mut paths[(shade as usize).min(DENSITIES - 1)];
        let _ = write!(path, "M{px:.1} {py:.1}h{dx:.2}v{dy:.2}h-{dx:.2}z");
    }
    for (d, path) in paths.iter().enumerate() {
        frame.draw(format_args!("<path class='density d{d}' d='{path}'/>"));
    }
    format!(
        "{} fits; darkest: {} in a cell",
        count(shown.len() as u64),
        count(most)
    )
}
