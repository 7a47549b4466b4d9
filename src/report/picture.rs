//! Pictures as SVG files: a spectrum with its fit, distributions of differences, costs.

use super::axis::{Axis, Tick};
use super::chart::{Area, COLOURS, Chart, Corner, LegendEntry, Point, file};
use super::collect::reduced;
use super::number::{number, pair};
use super::trace::{Grid, HEIGHT};
use super::words::symbol;
use crate::spectral::quantity::unit;
use crate::spectral::{ArmFit, FitRow, SpectralFitter};

const WIDTH: f64 = 1280.0;
const FLUX: Area = Area {
    left: 86.0,
    top: 40.0,
    width: 1174.0,
    height: 424.0,
};
const RESIDUAL: Area = Area {
    left: 86.0,
    top: 476.0,
    width: 1174.0,
    height: 180.0,
};
/// Columns of a curve: two per user unit, as screens and prints have.
const COLUMNS: usize = 2348;
const DATA: &str = "#1a1e24";
const RESIDUAL_DOTS: &str = "#7b8592";
const FIT: &str = "#e0301e";
const MASKED: &str = "#d98c00";
/// Height of the marks of masked pixels, which stand along the upper edge, as a share of the picture of the flux.
const MARK: f64 = 0.03;
/// Largest residual, in errors, that is not drawn at the edge.
const RESIDUALS: f64 = 5.0;

/// Returns a title for the picture of a row: its id, its parameters with errors and units, and χ²/dof.
pub fn title(fitter: &SpectralFitter, row: &FitRow) -> String {
    let units = fitter.units();
    let values = fitter
        .parameters()
        .into_iter()
        .enumerate()
        .map(|(p, name)| {
            let value = pair(row.parameters[p], row.errors[p]);
            // readers know that abundances are in dex, and the title has little room
            let unit = Some(unit(&units, &name))
                .filter(|unit| *unit != "dex")
                .unwrap_or_default();
            format!("{} {value} {unit}", symbol(&name))
                .trim_end()
                .to_string()
        });
    format!(
        "spectrum {}: {}; χ²/dof {}",
        row.id,
        values.collect::<Vec<_>>().join(", "),
        number(reduced(row), 3)
    )
}

/// Returns an SVG picture of a spectrum's data, fit and masked pixels, with (data − fit) / error below.
pub fn spectrum(title: &str, arms: &[ArmFit]) -> String {
    let wavelengths = || {
        arms.iter()
            .flat_map(|arm| arm.wavelength.iter().copied())
            .filter(|w| w.is_finite())
    };
    let (from, to) = (
        wavelengths().fold(f64::INFINITY, f64::min),
        wavelengths().fold(f64::NEG_INFINITY, f64::max),
    );
    let x = |label| Axis::linear(label, from, to);
    let (low, high) = flux_range(arms);
    let mut upper = Chart::new(
        FLUX,
        x(""),
        Axis::linear("flux (units of the input)", low, high),
    );
    let mut lower = Chart::new(
        RESIDUAL,
        x("wavelength (Å)"),
        Axis::linear("(data − fit) / error", -RESIDUALS, RESIDUALS),
    );
    let grids: Vec<Grid> = arms
        .iter()
        .map(|arm| Grid {
            wavelength: &arm.wavelength,
            from,
            to,
            columns: COLUMNS,
        })
        .collect();
    let columns = COLUMNS as f64;
    for (arm, grid) in arms.iter().zip(&grids) {
        // the stroke keeps a single pixel visible
        let style = format!("fill='{MASKED}' stroke='{MASKED}'");
        upper.stretched(&grid.bands(&arm.mask), columns, HEIGHT / MARK, &style);
    }
    // the fit is thin and on top, so that the data are seen below it however small their noise is
    let curves = [
        ((|arm| &arm.flux) as fn(&ArmFit) -> &Vec<f64>, DATA, 1.6),
        (|arm| &arm.model, FIT, 0.9),
    ];
    for (values, colour, width) in curves {
        for (arm, grid) in arms.iter().zip(&grids) {
            let style = format!(
                "fill='none' stroke='{colour}' stroke-width='{width}' stroke-linejoin='round'"
            );
            upper.stretched(&grid.curve(values(arm), low, high), columns, HEIGHT, &style);
        }
    }
    for arm in arms {
        let pixels = (0..arm.wavelength.len()).filter(|&j| !arm.mask[j]);
        let points = pixels.map(|j| {
            let residual = (arm.flux[j] - arm.model[j]) / arm.error[j];
            Point {
                x: arm.wavelength[j],
                y: residual.clamp(-RESIDUALS, RESIDUALS),
            }
        });
        lower.dots(points.filter(|point| point.y.is_finite()), RESIDUAL_DOTS);
    }
    lower.line([from, to].into_iter().map(|x| Point { x, y: 0.0 }), FIT);
    let entries = [(DATA, "data"), (FIT, "fit"), (MASKED, "masked")];
    upper.legend(
        Corner::BottomRight,
        &entries.map(|(colour, text)| LegendEntry { colour, text }),
    );
    file(WIDTH, 720.0, &(upper.finish(title) + &lower.finish("")))
}

/// Returns the flux range to draw, with a margin of 5 %: that of unmasked data and of the fit.
fn flux_range(arms: &[ArmFit]) -> (f64, f64) {
    let counted = arms.iter().flat_map(|arm| {
        let data = arm
            .flux
            .iter()
            .zip(&arm.mask)
            .filter(|(_, masked)| !**masked)
            .map(|(y, _)| *y);
        data.chain(arm.model.iter().copied())
    });
    let range = counted
        .filter(|y| y.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), y| {
            (a.min(y), b.max(y))
        });
    let margin = 0.05 * (range.1 - range.0);
    if margin > 0.0 {
        (range.0 - margin, range.1 + margin)
    } else {
        (-1.0, 1.0)
    }
}

/// A series of [`distributions`].
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    pub name: &'a str,
    /// The values in ascending order.
    pub sorted: &'a [f64],
}

/// Returns an SVG picture of each series' cumulative distribution; `label` names the logarithmic x axis. Zeros count,
/// and lie to the left of it.
pub fn distributions(label: &str, series: &[Series]) -> String {
    let positive = || {
        series
            .iter()
            .flat_map(|one| one.sorted.iter().copied())
            .filter(|x| *x > 0.0 && x.is_finite())
    };
    let (low, high) = (
        positive().fold(f64::INFINITY, f64::min),
        positive().fold(0.0, f64::max),
    );
    let (from, to) = if low < high { (low, high) } else { (1e-6, 1.0) };
    let area = Area {
        left: 82.0,
        top: 20.0,
        width: 798.0,
        height: 474.0,
    };
    let x = Axis {
        label: label.into(),
        from,
        to,
        log: true,
    };
    let mut chart = Chart::new(area, x, Axis::linear("share of the fits", 0.0, 1.0));
    for (Series { sorted, .. }, colour) in series.iter().zip(COLOURS.iter().cycle()) {
        let count = sorted.len().max(1) as f64;
        let points = sorted
            .iter()
            .enumerate()
            .filter(|(_, x)| **x > 0.0 && x.is_finite());
        chart.line(
            points.map(|(k, x)| Point {
                x: *x,
                y: (k + 1) as f64 / count,
            }),
            colour,
        );
    }
    if positive().next().is_none() {
        chart.note("no differences: all are 0");
    }
    chart.legend(Corner::TopLeft, &legend(series.iter().map(|one| one.name)));
    file(900.0, 560.0, &chart.finish(""))
}

/// Returns a legend entry for each name, with the colours of [`COLOURS`] in turn.
fn legend<'a>(names: impl Iterator<Item = &'a str>) -> Vec<LegendEntry<'a>> {
    names
        .zip(COLOURS.iter().cycle())
        .map(|(text, colour)| LegendEntry { colour, text })
        .collect()
}

/// One panel of [`costs`].
#[derive(Clone, Debug)]
pub struct Costs {
    /// Name of the quantity on the x axis.
    pub axis: &'static str,
    /// True if the ticks of the x axis are powers of two; else the axis begins at zero.
    pub by_powers: bool,
    /// Devices, each with its points: the quantity on the x axis, and milliseconds per fit.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// Returns an SVG picture of up to four panels of milliseconds per fit, with a line for each device.
pub fn costs(panels: &[Costs]) -> String {
    let one = |(k, panel): (usize, &Costs)| {
        let (column, row) = ((k % 2) as f64, (k / 2) as f64);
        panel.chart(Area {
            left: 92.0 + 640.0 * column,
            top: 44.0 + 400.0 * row,
            width: 532.0,
            height: 290.0,
        })
    };
    let charts: String = panels.iter().enumerate().map(one).collect();
    file(WIDTH, 800.0, &charts)
}

impl Costs {
    /// Returns SVG elements that draw this panel's time per fit (ms) by number of spectra, starts … in an area.
    fn chart(&self, area: Area) -> String {
        let points = || {
            self.lines
                .iter()
                .flat_map(|(_, points)| points.iter().copied())
        };
        let high = points().fold(0.0, |most: f64, (x, _)| most.max(x));
        let top = points().fold(0.0, |most: f64, (_, y)| most.max(y));
        let low = points().fold(high, |least: f64, (x, _)| least.min(x));
        let (from, to) = if self.by_powers {
            (low / 1.07, high * 1.07)
        } else {
            (0.0, 1.02 * high)
        };
        let x = Axis {
            label: self.axis.into(),
            from,
            to,
            log: self.by_powers,
        };
        let ticks = if self.by_powers {
            let powers = (0..)
                .map(|k| f64::from(k).exp2())
                .take_while(|power| *power <= to);
            let inside = powers.filter(|power| *power >= from);
            inside
                .map(|power| Tick {
                    place: x.place(power),
                    text: format!("{power:.0}"),
                })
                .collect()
        } else {
            let values = x
                .ticks(5)
                .into_iter()
                .map(|Tick { place, .. }| (place, x.value(place)));
            let whole = values.filter(|(_, value)| (value - value.round()).abs() < 1e-6);
            whole
                .map(|(place, value)| Tick {
                    place,
                    text: format!("{value:.0}"),
                })
                .collect()
        };
        let y = Axis::linear("ms per fit", 0.0, 1.15 * top);
        let mut chart = Chart::new(area, x, y).x_ticks(ticks);
        for ((_, points), colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let points = || points.iter().map(|&(x, y)| Point { x, y });
            chart.line(points(), colour);
            chart.discs(points(), colour);
        }
        chart.legend(
            Corner::BottomRight,
            &legend(self.lines.iter().map(|(device, _)| device.as_str())),
        );
        chart.finish(&format!("by number of {}", self.axis))
    }
}
