//! Histograms.

use super::axis::{PlotAxis, PlotColumn};
use super::number::{format_count, format_number};
use super::svg::{FigureFrame, draw_empty_figure};

/// Returns the HTML of a histogram of the column's finite values, with a mark at their median. The note counts values
/// far outside.
pub fn draw_histogram(title: &str, column: &PlotColumn) -> String {
    let mut sorted: Vec<f64> = column
        .values
        .iter()
        .copied()
        .filter(|value| value.is_finite())
        .collect();
    if sorted.is_empty() {
        return draw_empty_figure(title, "No values.");
    }
    sorted.sort_by(f64::total_cmp);
    // 1. Count the values in each bin.
    let x_axis = PlotAxis::for_column(column, 0.02);
    let bins = ((sorted.len() as f64).sqrt().ceil() as usize).clamp(8, 40);
    let mut counts = vec![0u64; bins];
    let mut outside = 0;
    for value in &sorted {
        let fraction = x_axis.fraction_of(*value);
        if (-1e-9..=1.0 + 1e-9).contains(&fraction) {
            let bin = (fraction * bins as f64).max(0.0) as usize;
            counts[bin.min(bins - 1)] += 1;
        } else {
            outside += 1;
        }
    }
    // 2. Draw a bar for each bin with any value.
    let highest = counts.iter().copied().max().unwrap_or(0);
    let y_axis = PlotAxis::linear("fits", 0.0, highest as f64 * 1.06);
    let mut frame = FigureFrame::new(x_axis, y_axis);
    let base = frame.svg_y(0.0);
    for (bin, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let low = frame.x.value_at(bin as f64 / bins as f64);
        let high = frame.x.value_at((bin + 1) as f64 / bins as f64);
        let left = frame.svg_x(low);
        let width = (frame.svg_x(high) - left - 1.0).max(0.5);
        let top = frame.svg_y(count as f64);
        let height = base - top;
        let tip = format!(
            "{} to {}: {} fits",
            format_number(low, 3),
            format_number(high, 3),
            format_count(count)
        );
        frame.draw(format_args!(
            "<rect class=bar x={left:.1} y={top:.1} width={width:.1} height={height:.1} data-tip='{tip}'/>"
        ));
    }
    // 3. Mark the median.
    let median = sorted[sorted.len() / 2];
    let x = frame.svg_x(median);
    let (_, top, ..) = FigureFrame::inner_area();
    frame.draw(format_args!(
        "<path class=median d='M{x:.1} {top}V{base:.1}'/>"
    ));
    let mut note = format!("median {}", format_number(median, 3));
    if outside > 0 {
        note += &format!(", {} beyond the axis", format_count(outside));
    }
    frame.into_html(title, &note)
}
