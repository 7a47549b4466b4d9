//! Cost by axis: four panels, a line a device, as SVG.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use popfit::{Error, OutputFile, Result};

use super::scaling::{Axis, Point};

const SIZE: (u32, u32) = (1280, 800);
const LABEL: (&str, i32) = ("sans-serif", 20);
const TITLE: (&str, i32) = ("sans-serif", 22);
/// One a device, then again from the first.
const COLOURS: [RGBColor; 4] =
    [RGBColor(200, 30, 40), RGBColor(40, 90, 170), RGBColor(60, 140, 60), RGBColor(120, 120, 120)];

type Failed = Box<dyn std::error::Error>;
type Panel<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Milliseconds a fit, both axes from zero, but for the number of spectra, which goes by powers of two.
pub fn draw(file: OutputFile, points: &[Point]) -> Result<()> {
    let failed = |e: Failed| Error::Write { path: file.path().to_path_buf(), message: e.to_string() };
    let mut svg = String::new();
    panels(&mut svg, points).map_err(failed)?;
    file.write(svg)
}

fn panels(svg: &mut String, points: &[Point]) -> std::result::Result<(), Failed> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, axis) in root.split_evenly((2, 2)).iter().zip(Axis::ALL) {
        let own: Vec<&Point> = points.iter().filter(|point| point.axis == axis).collect();
        panel(area, axis, &own)?;
    }
    root.present()?;
    Ok(())
}

fn panel(area: &Panel, axis: Axis, points: &[&Point]) -> std::result::Result<(), Failed> {
    let by_powers = axis == Axis::Spectra;
    let x = |point: &Point| if by_powers { (point.value as f64).log2() } else { point.value as f64 };
    let low = if by_powers { points.iter().map(|p| x(p)).fold(f64::INFINITY, f64::min) - 0.1 } else { 0.0 };
    let high = points.iter().map(|p| x(p)).fold(0.0, f64::max);
    let whole = |x: &f64| {
        let value = if by_powers { x.exp2() } else { *x };
        if (x - x.round()).abs() < 1e-6 { format!("{value:.0}") } else { String::new() }
    };
    let top = points.iter().map(|point| point.milliseconds_per_fit).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .caption(format!("by number of {}", axis.name()), TITLE)
        .x_label_area_size(50)
        .y_label_area_size(80)
        .build_cartesian_2d(low..1.02 * high, 0.0..1.15 * top)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_label_formatter(&whole)
        .x_labels(8)
        .x_desc(axis.name())
        .y_desc("ms a fit")
        .label_style(LABEL)
        .axis_desc_style(LABEL)
        .draw()?;
    lines(&mut chart, points, &x)?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.9))
        .label_font(LABEL)
        .draw()?;
    Ok(())
}

/// A line and its points, device by device.
fn lines(chart: &mut Chart, points: &[&Point], x: &dyn Fn(&Point) -> f64) -> std::result::Result<(), Failed> {
    for (k, device) in devices(points).into_iter().enumerate() {
        let colour = COLOURS[k % COLOURS.len()];
        let line: Vec<(f64, f64)> =
            points.iter().filter(|p| p.device == device).map(|p| (x(p), p.milliseconds_per_fit)).collect();
        chart
            .draw_series(LineSeries::new(line.clone(), colour.stroke_width(2)))?
            .label(device)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
        chart.draw_series(line.into_iter().map(|point| Circle::new(point, 4, colour.filled())))?;
    }
    Ok(())
}

/// In the order of the points.
fn devices<'a>(points: &[&'a Point]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for point in points {
        if !names.contains(&point.device.as_str()) {
            names.push(&point.device);
        }
    }
    names
}
