//! Pictures as SVG files: a spectrum with its fit, distributions of differences, costs.

use super::axis::{PlotAxis, Tick};
use super::chart::{Area, Chart, ChartPoint, Corner, LegendEntry, SERIES_COLOURS, svg_file};
use super::collect::reduced_chi_square;
use super::number::{format_number, format_with_error};
use super::trace::{PATH_HEIGHT, PictureGrid};
use super::words::parameter_symbol;
use crate::spectral::quantity::unit;
use crate::spectral::{ArmFit, FitRow, SpectralFitter};

const SPECTRUM_PICTURE_WIDTH: f64 = 1280.0;
const FLUX_AREA: Area = Area {
    left: 86.0,
    top: 40.0,
    width: 1174.0,
    height: 424.0,
};
const RESIDUAL_AREA: Area = Area {
    left: 86.0,
    top: 476.0,
    width: 1174.0,
    height: 180.0,
};
/// Columns of a curve: two per user unit, as screens and prints have.
const CURVE_COLUMNS: usize = 2348;
const DATA_COLOUR: &str = "#1a1e24";
const RESIDUAL_COLOUR: &str = "#7b8592";
const FIT_COLOUR: &str = "#e0301e";
const MASKED_COLOUR: &str = "#d98c00";
/// Height of the marks of masked pixels, which stand along the upper edge, as a share of the picture of the flux.
const MASK_MARK_HEIGHT: f64 = 0.03;
/// Largest residual, in errors, that is not drawn at the edge.
const MAX_DRAWN_RESIDUAL: f64 = 5.0;

/// Returns a title for the picture of a row: its id, its parameters with errors and units, and χ²/dof.
pub fn title(fitter: &SpectralFitter, row: &FitRow) -> String {
    let units = fitter.units();
    let mut parameters = Vec::new();
    for (p, name) in fitter.parameters().into_iter().enumerate() {
        let value = format_with_error(row.parameters[p], row.errors[p]);
        // readers know that abundances are in dex, and the title has little room
        let unit = match unit(&units, &name) {
            "dex" => "",
            unit => unit,
        };
        let parameter = format!("{} {value} {unit}", parameter_symbol(&name));
        parameters.push(parameter.trim_end().to_string());
    }
    format!(
        "spectrum {}: {}; χ²/dof {}",
        row.id,
        parameters.join(", "),
        format_number(reduced_chi_square(row), 3)
    )
}

/// Returns an SVG picture of a spectrum's data, fit and masked pixels, with (data − fit) / error below.
pub fn spectrum(title: &str, arms: &[ArmFit]) -> String {
    // 1. Both charts have the x axis of all arms together.
    let mut from = f64::INFINITY;
    let mut to = f64::NEG_INFINITY;
    for wavelength in arms.iter().flat_map(|arm| &arm.wavelength) {
        if wavelength.is_finite() {
            from = from.min(*wavelength);
            to = to.max(*wavelength);
        }
    }
    let (low, high) = find_flux_range(arms);
    let mut upper = Chart::new(
        FLUX_AREA,
        PlotAxis::linear("", from, to),
        PlotAxis::linear("flux (units of the input)", low, high),
    );
    let mut lower = Chart::new(
        RESIDUAL_AREA,
        PlotAxis::linear("wavelength (Å)", from, to),
        PlotAxis::linear(
            "(data − fit) / error",
            -MAX_DRAWN_RESIDUAL,
            MAX_DRAWN_RESIDUAL,
        ),
    );
    let grids: Vec<PictureGrid> = arms
        .iter()
        .map(|arm| PictureGrid {
            wavelength: &arm.wavelength,
            from,
            to,
            columns: CURVE_COLUMNS,
        })
        .collect();
    let columns = CURVE_COLUMNS as f64;
    // 2. Mark the masked pixels. The stroke keeps a single pixel visible.
    for (arm, grid) in arms.iter().zip(&grids) {
        let style = format!("fill='{MASKED_COLOUR}' stroke='{MASKED_COLOUR}'");
        upper.draw_path(
            &grid.mask_path(&arm.mask),
            columns,
            PATH_HEIGHT / MASK_MARK_HEIGHT,
            &style,
        );
    }
    // 3. Draw the data, then the fit: thin and on top, so that the data are seen below it however small their noise is.
    let curves = [
        (
            (|arm| &arm.flux) as fn(&ArmFit) -> &Vec<f64>,
            DATA_COLOUR,
            1.6,
        ),
        (|arm| &arm.model, FIT_COLOUR, 0.9),
    ];
    for (values_of, colour, width) in curves {
        for (arm, grid) in arms.iter().zip(&grids) {
            let path = grid.curve_path(values_of(arm), low, high);
            let style = format!(
                "fill='none' stroke='{colour}' stroke-width='{width}' stroke-linejoin='round'"
            );
            upper.draw_path(&path, columns, PATH_HEIGHT, &style);
        }
    }
    // 4. Draw the residuals of unmasked pixels over a line at zero.
    for arm in arms {
        let unmasked = (0..arm.wavelength.len()).filter(|&pixel| !arm.mask[pixel]);
        let points = unmasked.map(|pixel| {
            let residual = (arm.flux[pixel] - arm.model[pixel]) / arm.error[pixel];
            ChartPoint {
                x: arm.wavelength[pixel],
                y: residual.clamp(-MAX_DRAWN_RESIDUAL, MAX_DRAWN_RESIDUAL),
            }
        });
        lower.draw_dots(points.filter(|point| point.y.is_finite()), RESIDUAL_COLOUR);
    }
    let zero_line = [from, to].map(|x| ChartPoint { x, y: 0.0 });
    lower.draw_line(zero_line.into_iter(), FIT_COLOUR);
    // 5. Name the colours.
    let entries = [
        (DATA_COLOUR, "data"),
        (FIT_COLOUR, "fit"),
        (MASKED_COLOUR, "masked"),
    ];
    upper.draw_legend(
        Corner::BottomRight,
        &entries.map(|(colour, text)| LegendEntry { colour, text }),
    );
    let charts = upper.into_svg(title) + &lower.into_svg("");
    svg_file(SPECTRUM_PICTURE_WIDTH, 720.0, &charts)
}

/// Returns the flux range to draw, with a margin of 5 %: that of unmasked data and of the fit.
fn find_flux_range(arms: &[ArmFit]) -> (f64, f64) {
    let mut low = f64::INFINITY;
    let mut high = f64::NEG_INFINITY;
    for arm in arms {
        let unmasked = arm
            .flux
            .iter()
            .zip(&arm.mask)
            .filter(|(_, is_masked)| !**is_masked)
            .map(|(flux, _)| flux);
        for flux in unmasked.chain(&arm.model).filter(|flux| flux.is_finite()) {
            low = low.min(*flux);
            high = high.max(*flux);
        }
    }
    let margin = 0.05 * (high - low);
    if margin > 0.0 {
        (low - margin, high + margin)
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
    // 1. The x axis spans the positive values.
    let mut low = f64::INFINITY;
    let mut high = 0.0f64;
    for value in series.iter().flat_map(|series| series.sorted) {
        if *value > 0.0 && value.is_finite() {
            low = low.min(*value);
            high = high.max(*value);
        }
    }
    let (from, to) = if low < high { (low, high) } else { (1e-6, 1.0) };
    let x_axis = PlotAxis {
        label: label.into(),
        from,
        to,
        log: true,
    };
    let area = Area {
        left: 82.0,
        top: 20.0,
        width: 798.0,
        height: 474.0,
    };
    let mut chart = Chart::new(
        area,
        x_axis,
        PlotAxis::linear("share of the fits", 0.0, 1.0),
    );
    // 2. Draw each series: the k-th of its n values lies at the height k / n.
    for (Series { sorted, .. }, colour) in series.iter().zip(SERIES_COLOURS.iter().cycle()) {
        let count = sorted.len().max(1) as f64;
        let positive = sorted
            .iter()
            .enumerate()
            .filter(|(_, value)| **value > 0.0 && value.is_finite());
        let points = positive.map(|(k, value)| ChartPoint {
            x: *value,
            y: (k + 1) as f64 / count,
        });
        chart.draw_line(points, colour);
    }
    if high == 0.0 {
        chart.write_note("no differences: all are 0");
    }
    chart.draw_legend(
        Corner::TopLeft,
        &legend_entries(series.iter().map(|series| series.name)),
    );
    svg_file(900.0, 560.0, &chart.into_svg(""))
}

/// Returns a legend entry for each name, with the colours of [`SERIES_COLOURS`] in turn.
fn legend_entries<'a>(names: impl Iterator<Item = &'a str>) -> Vec<LegendEntry<'a>> {
    names
        .zip(SERIES_COLOURS.iter().cycle())
        .map(|(text, colour)| LegendEntry { colour, text })
        .collect()
}

/// One panel of [`draw_costs`].
#[derive(Clone, Debug)]
pub struct CostPanel {
    /// Name of the quantity on the x axis.
    pub axis: &'static str,
    /// True if the ticks of the x axis are powers of two; else the axis begins at zero.
    pub by_powers: bool,
    /// Devices, each with its points: the quantity on the x axis, and milliseconds per fit.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// Returns an SVG picture of up to four panels of milliseconds per fit, with a line for each device.
pub fn draw_costs(panels: &[CostPanel]) -> String {
    let mut charts = String::new();
    for (k, panel) in panels.iter().enumerate() {
        let column = (k % 2) as f64;
        let row = (k / 2) as f64;
        charts += &panel.draw(Area {
            left: 92.0 + 640.0 * column,
            top: 44.0 + 400.0 * row,
            width: 532.0,
            height: 290.0,
        });
    }
    svg_file(SPECTRUM_PICTURE_WIDTH, 800.0, &charts)
}

impl CostPanel {
    /// Returns SVG elements that draw this panel's time per fit (ms) by number of spectra, starts … in an area.
    fn draw(&self, area: Area) -> String {
        // 1. Choose the axes.
        let mut largest = 0.0f64;
        let mut longest_time = 0.0f64;
        for (x, time) in self.lines.iter().flat_map(|(_, points)| points) {
            largest = largest.max(*x);
            longest_time = longest_time.max(*time);
        }
        let smallest = self
            .lines
            .iter()
            .flat_map(|(_, points)| points)
            .fold(largest, |least, (x, _)| least.min(*x));
        let (from, to) = if self.by_powers {
            (smallest / 1.07, largest * 1.07)
        } else {
            (0.0, 1.02 * largest)
        };
        let x_axis = PlotAxis {
            label: self.axis.into(),
            from,
            to,
            log: self.by_powers,
        };
        let x_ticks = self.choose_x_ticks(&x_axis);
        let y_axis = PlotAxis::linear("ms per fit", 0.0, 1.15 * longest_time);
        let mut chart = Chart::new(area, x_axis, y_axis).with_x_ticks(x_ticks);
        // 2. Draw a line with discs for each device.
        for ((_, points), colour) in self.lines.iter().zip(SERIES_COLOURS.iter().cycle()) {
            let points = points.iter().map(|&(x, y)| ChartPoint { x, y });
            chart.draw_line(points.clone(), colour);
            chart.draw_discs(points, colour);
        }
        chart.draw_legend(
            Corner::BottomRight,
            &legend_entries(self.lines.iter().map(|(device, _)| device.as_str())),
        );
        chart.into_svg(&format!("by number of {}", self.axis))
    }

    /// Returns ticks of the x axis at powers of two, or else at whole numbers.
    fn choose_x_ticks(&self, axis: &PlotAxis) -> Vec<Tick> {
        if self.by_powers {
            return (0..)
                .map(|k| f64::from(k).exp2())
                .take_while(|power| *power <= axis.to)
                .filter(|power| *power >= axis.from)
                .map(|power| Tick {
                    fraction: axis.fraction_of(power),
                    text: format!("{power:.0}"),
                })
                .collect();
        }
        let mut ticks = Vec::new();
        for Tick { fraction, .. } in axis.choose_ticks(5) {
            let value = axis.value_at(fraction);
            if (value - value.round()).abs() < 1e-6 {
                ticks.push(Tick {
                    fraction,
                    text: format!("{value:.0}"),
                });
            }
        }
        ticks
    }
}
