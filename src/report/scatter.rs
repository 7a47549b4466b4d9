//! Scatter plots of two numbers per fit: points, or their density if there are too many.

use std::fmt::Write;

use super::axis::{PlotAxis, PlotColumn, find_range};
use super::number::{format_count, format_number};
use super::svg::{FigureFrame, draw_empty_figure};

/// Number of colours of points, from the lowest to the highest fifth of the axis.
const POINT_SHADES: usize = 5;
/// Numbers of cells of the density, across and down.
const DENSITY_CELLS: (usize, usize) = (68, 54);
/// Number of shades of the density.
const DENSITY_SHADES: usize = 6;

/// Returns an HTML scatter plot of `y` over `x`: coloured circles if `rows` gives each point's row in the page's table,
/// else the density of points.
pub fn draw_scatter(
    title: &str,
    x: &PlotColumn,
    y: &PlotColumn,
    colour: Option<&PlotColumn>,
    rows: Option<&[usize]>,
) -> String {
    // 1. Choose the fits that lie inside the axes.
    let finite: Vec<usize> = (0..x.values.len())
        .filter(|&k| x.values[k].is_finite() && y.values[k].is_finite())
        .collect();
    if finite.is_empty() {
        return draw_empty_figure(title, "No fits with finite values.");
    }
    let mut frame = FigureFrame::new(PlotAxis::for_column(x, 0.05), PlotAxis::for_column(y, 0.05));
    let mut shown = Vec::new();
    for &k in &finite {
        let across = frame.x.fraction_of(x.values[k]);
        let up = frame.y.fraction_of(y.values[k]);
        if (0.0..=1.0).contains(&across) && (0.0..=1.0).contains(&up) {
            shown.push(k);
        }
    }
    // 2. Draw them one by one if the table has them, else their density.
    let mut notes = Vec::new();
    match rows {
        Some(rows) => notes.extend(draw_points(&mut frame, x, y, colour, &shown, rows)),
        None => notes.push(draw_density(&mut frame, x, y, &shown)),
    }
    if shown.len() < finite.len() {
        notes.push(format!(
            "{} beyond the axes",
            format_count((finite.len() - shown.len()) as u64)
        ));
    }
    frame.into_html(title, &notes.join(", "))
}

/// Draws a circle for each index in `shown`, shaded by `colour`; returns the HTML of the colour scale, if there is one.
fn draw_points(
    frame: &mut FigureFrame,
    x: &PlotColumn,
    y: &PlotColumn,
    colour: Option<&PlotColumn>,
    shown: &[usize],
    rows: &[usize],
) -> Option<String> {
    let (low, high) = colour.map_or((0.0, 1.0), |colour| find_range(colour.values, 0.0));
    let shade_of = |k: usize| {
        let fraction = colour.map_or(0.5, |colour| (colour.values[k] - low) / (high - low));
        ((fraction * POINT_SHADES as f64).max(0.0) as usize).min(POINT_SHADES - 1)
    };
    let radius = if shown.len() > 500 { 2.2 } else { 3.2 };
    // 1. Draw the points of one shade after the other, so that the colour is given once for each.
    for shade in 0..POINT_SHADES {
        frame.draw(format_args!("<g class=s{shade}>"));
        for &k in shown.iter().filter(|k| shade_of(**k) == shade) {
            let cx = frame.svg_x(x.values[k]);
            let cy = frame.svg_y(y.values[k]);
            let row = rows[k];
            frame.draw(format_args!(
                "<circle cx={cx:.1} cy={cy:.1} r={radius} data-row={row} />"
            ));
        }
        frame.draw(format_args!("</g>"));
    }
    // 2. Explain the shades.
    let colour = colour?;
    let swatches: String = (0..POINT_SHADES)
        .map(|s| format!("<i class=s{s}></i>"))
        .collect();
    let low = format_number(low, 2);
    let high = format_number(high, 2);
    Some(format!(
        "{} <span class=scale>{low} {swatches} {high}</span>",
        super::words::html_with_subscript(colour.label)
    ))
}

/// Draws how many of the fits `shown` (indices) lie in each cell, darker for more; returns the text of the legend.
fn draw_density(
    frame: &mut FigureFrame,
    x: &PlotColumn,
    y: &PlotColumn,
    shown: &[usize],
) -> String {
    // 1. Count the fits in each cell.
    let (columns, rows) = DENSITY_CELLS;
    let mut counts = vec![0u64; columns * rows];
    for &k in shown {
        let across = frame.x.fraction_of(x.values[k]);
        let up = frame.y.fraction_of(y.values[k]);
        let column = ((across * columns as f64) as usize).min(columns - 1);
        let row = ((up * rows as f64) as usize).min(rows - 1);
        counts[row * columns + column] += 1;
    }
    // 2. Draw all cells of one shade, which grows with the logarithm of the count, as one path.
    let largest = counts.iter().copied().max().unwrap_or(1).max(2);
    let (left, top, width, height) = FigureFrame::inner_area();
    let dx = width / columns as f64;
    let dy = height / rows as f64;
    let mut paths = vec![String::new(); DENSITY_SHADES];
    for (cell, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let shade = (count as f64).ln() / (largest as f64).ln() * DENSITY_SHADES as f64;
        let path = &mut paths[(shade as usize).min(DENSITY_SHADES - 1)];
        let px = left + (cell % columns) as f64 * dx;
        let py = top + height - ((cell / columns) as f64 + 1.0) * dy;
        let _ = write!(path, "M{px:.1} {py:.1}h{dx:.2}v{dy:.2}h-{dx:.2}z");
    }
    for (shade, path) in paths.iter().enumerate() {
        frame.draw(format_args!("<path class='density d{shade}' d='{path}'/>"));
    }
    format!(
        "{} fits; darkest: {} in a cell",
        format_count(shown.len() as u64),
        format_count(largest)
    )
}
