//! A spectrum, its fit and the residuals, as SVG.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use popfit::{ArmFit, Error, OutputFile, Result};

const SIZE: (u32, u32) = (1280, 720);
/// Fonts; the SVG has 0.8 of these sizes.
const LABEL: (&str, i32) = ("sans-serif", 20);
const DESCRIPTION: (&str, i32) = ("sans-serif", 22);
const TITLE: (&str, i32) = ("sans-serif", 21);
const DATA: RGBColor = RGBColor(120, 120, 120);
const FIT: RGBColor = RGBColor(200, 30, 40);
const MASKED: RGBColor = RGBColor(255, 224, 150);
/// Residuals beyond this many errors are drawn at the edge.
const RESIDUALS: f64 = 5.0;

type Failed = Box<dyn std::error::Error>;
type Panel<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws data, fit and masked pixels above, (data − fit) / error below.
pub fn draw(file: OutputFile, title: &str, arms: &[ArmFit]) -> Result<()> {
    let failed = |e: Failed| Error::Write { path: file.path().to_path_buf(), message: e.to_string() };
    let mut svg = String::new();
    panels(&mut svg, title, arms).map_err(failed)?;
    file.write(svg)
}

fn panels(svg: &mut String, title: &str, arms: &[ArmFit]) -> std::result::Result<(), Failed> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (upper, lower) = root.split_vertically(480);
    let wavelengths = || arms.iter().flat_map(|arm| arm.wavelength.iter().copied());
    let (from, to) = (wavelengths().fold(f64::INFINITY, f64::min), wavelengths().fold(f64::NEG_INFINITY, f64::max));
    let (low, high) = flux_range(arms);
    let chart = |area, flux: bool| {
        let (y, x_labels) = if flux { (low..high, 10) } else { (-RESIDUALS..RESIDUALS, 50) };
        let mut builder = ChartBuilder::on(area);
        builder.margin_left(12).margin_right(20).y_label_area_size(75).x_label_area_size(x_labels);
        if flux {
            builder.margin_top(8).caption(title, TITLE);
        } else {
            builder.margin_bottom(8);
        }
        builder.build_cartesian_2d(from..to, y)
    };
    let mut top: Panel = chart(&upper, true)?;
    top.configure_mesh()
        .light_line_style(WHITE)
        .x_label_formatter(&|_| String::new())
        .y_desc("flux (units of the input)")
        .label_style(LABEL)
        .axis_desc_style(DESCRIPTION)
        .draw()?;
    spectrum(&mut top, arms, (low, high))?;
    top.configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.9))
        .border_style(DATA)
        .label_font(LABEL)
        .draw()?;

    let mut bottom: Panel = chart(&lower, false)?;
    bottom
        .configure_mesh()
        .light_line_style(WHITE)
        .x_label_formatter(&|w| format!("{w:.0}"))
        .x_desc("wavelength (Å)")
        .y_desc("(data − fit) / error")
        .y_labels(5)
        .label_style(LABEL)
        .axis_desc_style(DESCRIPTION)
        .draw()?;
    residuals(&mut bottom, arms)?;
    root.present()?;
    Ok(())
}

fn spectrum(chart: &mut Panel, arms: &[ArmFit], (low, high): (f64, f64)) -> std::result::Result<(), Failed> {
    chart
        .draw_series(bands(arms, low, high))?
        .label("masked")
        .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 20, y + 5)], MASKED.filled()));
    let data = arms.iter().flat_map(|arm| runs(&arm.wavelength, &arm.flux));
    for (k, run) in data.enumerate() {
        let drawn = chart.draw_series(LineSeries::new(run, DATA.stroke_width(1)))?;
        if k == 0 {
            drawn.label("data").legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], DATA.stroke_width(2)));
        }
    }
    let fits = arms.iter().flat_map(|arm| runs(&arm.wavelength, &arm.model));
    for (k, run) in fits.enumerate() {
        let drawn = chart.draw_series(LineSeries::new(run, FIT.stroke_width(1)))?;
        if k == 0 {
            drawn.label("fit").legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], FIT.stroke_width(2)));
        }
    }
    Ok(())
}

fn residuals(chart: &mut Panel, arms: &[ArmFit]) -> std::result::Result<(), Failed> {
    chart.draw_series(bands(arms, -RESIDUALS, RESIDUALS))?;
    for arm in arms {
        let points = (0..arm.wavelength.len()).filter(|&j| !arm.mask[j]).map(|j| {
            let residual = (arm.flux[j] - arm.model[j]) / arm.error[j];
            (arm.wavelength[j], residual.clamp(-RESIDUALS, RESIDUALS))
        });
        let points = points.filter(|(_, residual)| residual.is_finite());
        chart.draw_series(points.map(|point| Circle::new(point, 1, DATA.filled())))?;
    }
    let wavelengths = || arms.iter().flat_map(|arm| arm.wavelength.iter().copied());
    let ends = [wavelengths().fold(f64::INFINITY, f64::min), wavelengths().fold(f64::NEG_INFINITY, f64::max)];
    chart.draw_series(LineSeries::new(ends.map(|w| (w, 0.0)), FIT.stroke_width(1)))?;
    Ok(())
}

/// Bands over the masked pixels, each reaching half way to its neighbours.
fn bands(arms: &[ArmFit], low: f64, high: f64) -> Vec<Rectangle<(f64, f64)>> {
    let mut all = Vec::new();
    for arm in arms {
        let last = arm.wavelength.len().saturating_sub(1);
        for j in (0..=last).filter(|&j| arm.mask.get(j) == Some(&true)) {
            let (before, after) = (arm.wavelength[j.saturating_sub(1)], arm.wavelength[(j + 1).min(last)]);
            let middle = arm.wavelength[j];
            all.push(Rectangle::new([((before + middle) / 2.0, low), ((middle + after) / 2.0, high)], MASKED.filled()));
        }
    }
    all
}

/// Stretches without gaps of not-finite values.
fn runs(wavelength: &[f64], flux: &[f64]) -> Vec<Vec<(f64, f64)>> {
    let points: Vec<(f64, f64)> = wavelength.iter().copied().zip(flux.iter().copied()).collect();
    let stretches = points.split(|(_, y)| !y.is_finite());
    stretches.filter(|stretch| !stretch.is_empty()).map(<[_]>::to_vec).collect()
}

/// From a little below the smallest to a little above the largest flux of data that count and of the fit.
fn flux_range(arms: &[ArmFit]) -> (f64, f64) {
    let counted = arms.iter().flat_map(|arm| {
        let data = arm.flux.iter().zip(&arm.mask).filter(|(_, masked)| !**masked).map(|(y, _)| *y);
        data.chain(arm.model.iter().copied())
    });
    let range =
        counted.filter(|y| y.is_finite()).fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), y| (a.min(y), b.max(y)));
    let margin = 0.05 * (range.1 - range.0);
    if margin > 0.0 { (range.0 - margin, range.1 + margin) } else { (-1.0, 1.0) }
}
