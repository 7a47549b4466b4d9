//! Choice of the figures that the page has.

use super::About;
use super::axis::{Column, Kind};
use super::collect::{Collector, TABLE_ROWS};
use super::histogram::histogram;
use super::scatter::scatter;
use super::words::{symbol, with_unit};

/// Name of the signal-to-noise ratio on axes.
const SN: &str = "median S/N per pixel";

/// Maximum number of figures of errors, the velocity's first.
const MOST_ERROR_FIGURES: usize = 4;

/// Maximum number of figures of labels beside the Kiel diagram; emulators may have dozens of labels.
const MOST_LABEL_FIGURES: usize = 4;

/// Returns the HTML of the report's histograms and scatter plots: χ²/dof, S/N, velocity, rotation, labels, errors.
pub fn figures(about: &About, kept: &Collector) -> String {
    let columns = Columns { about, kept };
    let mut all = vec![histogram(
        "Goodness of fit",
        &column("χ²/dof", &kept.column(0), Kind::Ratio),
    )];
    let sn = kept.column(1);
    let known = sn.iter().any(|x| x.is_finite());
    if known {
        all.push(histogram(
            "Signal-to-noise ratio",
            &column(SN, &sn, Kind::Ratio),
        ));
    }
    if columns.place("velocity").is_some() {
        all.push(columns.histogram("velocity", "Velocity"));
    }
    if columns.place("vsini").is_some() {
        all.push(columns.histogram("vsini", "Rotation"));
    }
    all.extend(columns.labels_figures());
    let mut parameters: Vec<usize> = (0..kept.parameters.len()).collect();
    parameters.sort_by_key(|p| kept.parameters[*p] != "velocity");
    all.extend(
        parameters
            .into_iter()
            .take(MOST_ERROR_FIGURES)
            .map(|p| columns.precision(p, known.then_some(&sn))),
    );
    all.concat()
}

/// Columns of numbers of the points that figures show.
struct Columns<'a> {
    about: &'a About,
    kept: &'a Collector,
}

impl Columns<'_> {
    /// Returns the index of the parameter with this name; `None` if the table has none.
    fn place(&self, parameter: &str) -> Option<usize> {
        self.kept
            .parameters
            .iter()
            .position(|name| name == parameter)
    }

    /// Returns the name of parameter `p` with its unit, for an axis.
    fn label(&self, p: usize) -> String {
        with_unit(self.about, &self.kept.parameters[p])
    }

    /// Returns the fitted values of parameter `p`, one per plotted fit.
    fn values(&self, p: usize) -> Vec<f64> {
        self.kept.column(2 + 2 * p)
    }

    /// Returns the standard errors of parameter `p`, one per plotted fit.
    fn errors(&self, p: usize) -> Vec<f64> {
        self.kept.column(3 + 2 * p)
    }

    /// Returns, for each plotted fit, its row in the page's table; `None` if the table does not show all rows.
    fn rows(&self) -> Option<Vec<usize>> {
        let all = self.kept.count <= TABLE_ROWS as u64;
        all.then(|| {
            let mut places: Vec<(u64, usize)> = Vec::new();
            for (place, (order, kept)) in self.kept.table().enumerate() {
                if Collector::is_point(&kept.row) {
                    places.push((order, place));
                }
            }
            places.sort_unstable(); // points are in the order of the input
            places.into_iter().map(|(_, place)| place).collect()
        })
    }

    /// Returns the HTML histogram of a parameter's values; empty if there is no such parameter.
    fn histogram(&self, parameter: &str, title: &str) -> String {
        let Some(p) = self.place(parameter) else {
            return String::new();
        };
        histogram(
            title,
            &column(&self.label(p), &self.values(p), Kind::Linear),
        )
    }

    /// Returns figures of the labels: the Kiel diagram (logg over teff) if there, then the other labels two by two.
    fn labels_figures(&self) -> Vec<String> {
        let mut rest: Vec<usize> = (0..self.kept.parameters.len())
            .filter(|p| !["velocity", "vsini"].contains(&self.kept.parameters[*p].as_str()))
            .collect();
        let mut all = Vec::new();
        if let (Some(teff), Some(logg)) = (self.place("teff"), self.place("logg")) {
            rest.retain(|p| ![teff, logg].contains(p));
            let colour = self.place("feh").or(rest.first().copied());
            all.push(self.scatter("Kiel diagram", teff, logg, colour, Kind::Reversed));
        }
        for labels in rest.chunks(2).take(MOST_LABEL_FIGURES) {
            let name = |p: usize| symbol(&self.kept.parameters[p]);
            all.push(match *labels {
                [a, b] => self.scatter(
                    &format!("{} and {}", name(a), name(b)),
                    a,
                    b,
                    None,
                    Kind::Linear,
                ),
                _ => self.histogram(name(labels[0]), name(labels[0])),
            });
        }
        all
    }

    /// Returns HTML that plots the errors of parameter `p` over the signal-to-noise ratio, or their histogram without
    /// `sn`.
    fn precision(&self, p: usize, sn: Option<&Vec<f64>>) -> String {
        let errors = self.errors(p);
        let label = format!("error of {}", self.label(p));
        let title = format!("Errors of {}", symbol(&self.kept.parameters[p]));
        let y = column(&label, &errors, Kind::Ratio);
        let Some(sn) = sn else {
            return histogram(&title, &y);
        };
        scatter(
            &title,
            &column(SN, sn, Kind::Ratio),
            &y,
            None,
            self.rows().as_deref(),
        )
    }

    /// Returns the HTML scatter plot of parameter `b` over `a` (indices), coloured by the parameter `colour` if given.
    fn scatter(
        &self,
        title: &str,
        a: usize,
        b: usize,
        colour: Option<usize>,
        kind: Kind,
    ) -> String {
        let (x, y) = (self.values(a), self.values(b));
        let (x_label, y_label) = (self.label(a), self.label(b));
        let colour = colour.map(|c| (self.label(c), self.values(c)));
        let colour = colour
            .as_ref()
            .map(|(label, values)| column(label, values, Kind::Linear));
        let (x, y) = (column(&x_label, &x, kind), column(&y_label, &y, kind));
        scatter(title, &x, &y, colour.as_ref(), self.rows().as_deref())
    }
}

/// Puts a label, values and the kind of axis they need together, for a figure.
fn column<'a>(label: &'a str, values: &'a [f64], kind: Kind) -> Column<'a> {
    Column {
        label,
        values,
        kind,
    }
}
