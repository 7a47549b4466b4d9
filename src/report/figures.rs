//! Choice of the figures that the page has.

use super::About;
use super::axis::{AxisKind, PlotColumn};
use super::collect::{Collector, MAX_TABLE_ROWS};
use super::histogram::draw_histogram;
use super::scatter::draw_scatter;
use super::words::{parameter_symbol, symbol_with_unit};

/// Name of the signal-to-noise ratio on axes.
const SIGNAL_TO_NOISE_LABEL: &str = "median S/N per pixel";

/// Maximum number of figures of errors, the velocity's first.
const MAX_ERROR_FIGURES: usize = 4;

/// Maximum number of figures of labels beside the Kiel diagram; emulators may have dozens of labels.
const MAX_LABEL_FIGURES: usize = 4;

/// Returns the HTML of the report's histograms and scatter plots: χ²/dof, S/N, velocity, rotation, labels, errors.
pub fn draw_figures(about: &About, collector: &Collector) -> String {
    let fits = PlottedFits { about, collector };
    let mut figures = vec![draw_histogram(
        "Goodness of fit",
        &plot_column("χ²/dof", &collector.point_values(0), AxisKind::Ratio),
    )];
    let signal_to_noise = collector.point_values(1);
    let has_signal_to_noise = signal_to_noise.iter().any(|ratio| ratio.is_finite());
    if has_signal_to_noise {
        figures.push(draw_histogram(
            "Signal-to-noise ratio",
            &plot_column(SIGNAL_TO_NOISE_LABEL, &signal_to_noise, AxisKind::Ratio),
        ));
    }
    if fits.parameter_index("velocity").is_some() {
        figures.push(fits.parameter_histogram("velocity", "Velocity"));
    }
    if fits.parameter_index("vsini").is_some() {
        figures.push(fits.parameter_histogram("vsini", "Rotation"));
    }
    figures.extend(fits.draw_labels());
    let mut parameters: Vec<usize> = (0..collector.parameters.len()).collect();
    parameters.sort_by_key(|p| collector.parameters[*p] != "velocity");
    for p in parameters.into_iter().take(MAX_ERROR_FIGURES) {
        figures.push(fits.draw_errors(p, has_signal_to_noise.then_some(&signal_to_noise)));
    }
    figures.concat()
}

/// Numbers of the fits that the figures show.
struct PlottedFits<'a> {
    about: &'a About,
    collector: &'a Collector,
}

impl PlottedFits<'_> {
    /// Returns the index of the parameter with this name; `None` if the table has none.
    fn parameter_index(&self, parameter: &str) -> Option<usize> {
        self.collector
            .parameters
            .iter()
            .position(|name| name == parameter)
    }

    /// Returns the name of parameter `p` with its unit, for an axis.
    fn axis_label(&self, p: usize) -> String {
        symbol_with_unit(self.about, &self.collector.parameters[p])
    }

    /// Returns the fitted values of parameter `p`, one per plotted fit.
    fn parameter_values(&self, p: usize) -> Vec<f64> {
        self.collector.point_values(2 + 2 * p)
    }

    /// Returns the standard errors of parameter `p`, one per plotted fit.
    fn parameter_errors(&self, p: usize) -> Vec<f64> {
        self.collector.point_values(3 + 2 * p)
    }

    /// Returns, for each plotted fit, its row in the page's table; `None` if the table does not show all rows.
    fn table_rows_of_points(&self) -> Option<Vec<usize>> {
        if self.collector.count > MAX_TABLE_ROWS as u64 {
            return None;
        }
        let mut rows: Vec<(u64, usize)> = Vec::new();
        for (table_row, (input_index, kept)) in self.collector.table_rows().enumerate() {
            if Collector::is_plotted(&kept.row) {
                rows.push((input_index, table_row));
            }
        }
        rows.sort_unstable(); // points are in the order of the input
        Some(rows.into_iter().map(|(_, table_row)| table_row).collect())
    }

    /// Returns the HTML histogram of a parameter's values; empty if there is no such parameter.
    fn parameter_histogram(&self, parameter: &str, title: &str) -> String {
        let Some(p) = self.parameter_index(parameter) else {
            return String::new();
        };
        draw_histogram(
            title,
            &plot_column(
                &self.axis_label(p),
                &self.parameter_values(p),
                AxisKind::Linear,
            ),
        )
    }

    /// Returns figures of the labels: the Kiel diagram (logg over teff) if there, then the other labels two by two.
    fn draw_labels(&self) -> Vec<String> {
        let parameters = &self.collector.parameters;
        // 1. The Kiel diagram, coloured by the metallicity or else another label.
        let mut other_labels: Vec<usize> = (0..parameters.len())
            .filter(|p| !["velocity", "vsini"].contains(&parameters[*p].as_str()))
            .collect();
        let mut figures = Vec::new();
        let teff = self.parameter_index("teff");
        let logg = self.parameter_index("logg");
        if let (Some(teff), Some(logg)) = (teff, logg) {
            other_labels.retain(|p| ![teff, logg].contains(p));
            let colour = self
                .parameter_index("feh")
                .or(other_labels.first().copied());
            figures.push(self.parameter_scatter(
                "Kiel diagram",
                teff,
                logg,
                colour,
                AxisKind::Reversed,
            ));
        }
        // 2. The other labels, two per figure.
        for labels in other_labels.chunks(2).take(MAX_LABEL_FIGURES) {
            let x_symbol = parameter_symbol(&parameters[labels[0]]);
            figures.push(match *labels {
                [x, y] => {
                    let title = format!("{x_symbol} and {}", parameter_symbol(&parameters[y]));
                    self.parameter_scatter(&title, x, y, None, AxisKind::Linear)
                }
                _ => self.parameter_histogram(x_symbol, x_symbol),
            });
        }
        figures
    }

    /// Returns HTML that plots the errors of parameter `p` over the signal-to-noise ratio, or their histogram without
    /// `signal_to_noise`.
    fn draw_errors(&self, p: usize, signal_to_noise: Option<&Vec<f64>>) -> String {
        let errors = self.parameter_errors(p);
        let label = format!("error of {}", self.axis_label(p));
        let title = format!(
            "Errors of {}",
            parameter_symbol(&self.collector.parameters[p])
        );
        let y = plot_column(&label, &errors, AxisKind::Ratio);
        let Some(signal_to_noise) = signal_to_noise else {
            return draw_histogram(&title, &y);
        };
        draw_scatter(
            &title,
            &plot_column(SIGNAL_TO_NOISE_LABEL, signal_to_noise, AxisKind::Ratio),
            &y,
            None,
            self.table_rows_of_points().as_deref(),
        )
    }

    /// Returns the HTML scatter plot of parameter `y` over `x` (indices), coloured by the parameter `colour` if given.
    fn parameter_scatter(
        &self,
        title: &str,
        x: usize,
        y: usize,
        colour: Option<usize>,
        kind: AxisKind,
    ) -> String {
        let x_label = self.axis_label(x);
        let y_label = self.axis_label(y);
        let x_values = self.parameter_values(x);
        let y_values = self.parameter_values(y);
        let colour = colour.map(|p| (self.axis_label(p), self.parameter_values(p)));
        let colour_column = colour
            .as_ref()
            .map(|(label, values)| plot_column(label, values, AxisKind::Linear));
        draw_scatter(
            title,
            &plot_column(&x_label, &x_values, kind),
            &plot_column(&y_label, &y_values, kind),
            colour_column.as_ref(),
            self.table_rows_of_points().as_deref(),
        )
    }
}

/// Puts a label, values and the kind of axis they need together, for a figure.
fn plot_column<'a>(label: &'a str, values: &'a [f64], kind: AxisKind) -> PlotColumn<'a> {
    PlotColumn {
        label,
        values,
        kind,
    }
}
