//! Histograms.

use super::axis::{Axis, Column};
use super::number::{count, number};
use super::svg::{Frame, nothing};

/// Returns the HTML of a histogram of the column's finite values, with a mark at their median. The note counts values
/// far outside.
pub fn histogram(title: &str, column: &Column) -> String {
    let mut finite: Vec<f64> = column
        .values
        .iter()
        .copied()
        .filter(|x| x.is_finite())
        .collect();
    if finite.is_empty() {
        return nothing(title, "No values.");
    }
    finite.sort_by(f64::total_cmp);
    // 1. Count the values in each bin.
    let x = Axis::of(column, 0.02);
    let bins = ((finite.len() as f64).sqrt().ceil() as usize).clamp(8, 40);
    let mut counts = vec![0u64; bins];
    let mut outside = 0;
    for value in &finite {
        let place = x.place(*value);
        if (-1e-9..=1.0 + 1e-9).contains(&place) {
            counts[((place * bins as f64).max(0.0) as usize).min(bins - 1)] += 1;
        } else {
            outside += 1;
        }
    }
    // 2. Draw a bar for each bin, and the median.
    let most = counts.iter().copied().max().unwrap_or(0);
    let mut frame = Frame::new(x, Axis::linear("fits", 0.0, most as f64 * 1.06));
    let base = frame.at_y(0.0);
    for (k, n) in counts.iter().enumerate().filter(|(_, n)| **n > 0) {
        let ends = [k, k + 1].map(|k| frame.x.value(k as f64 / bins as f64));
        let (left, right) = (frame.at_x(ends[0]), frame.at_x(ends[1]));
        let (y, n) = (frame.at_y(*n as f64), count(*n));
        let tip = format!("{} to {}: {n} fits", number(ends[0], 3), number(ends[1], 3));
        let (width, height) = ((right - left - 1.0).max(0.5), base - y);
        frame.draw(format_args!(
            "<rect class=bar x={left:.1} y={y:.1} width={width:.1} height={height:.1} data-tip='{tip}'/>"
        ));
    }
    let median = finite[finite.len() / 2];
    let at = frame.at_x(median);
    let (_, top, ..) = Frame::inner();
    frame.draw(format_args!(
        "<path class=median d='M{at:.1} {top}V{base:.1}'/>"
    ));
    let mut note = format!("median {}", number(median, 3));
    if outside > 0 {
        note += &format!(", {} beyond the axis", count(outside));
    }
    frame.finish(title, &note)
}
