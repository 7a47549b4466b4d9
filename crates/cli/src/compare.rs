//! `popfit compare`: two result tables of the same spectra, in units of the errors.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use popfit::low_level::report::picture;
use popfit::{FitTable, FitValues, OutputFile};

use super::Failure;
use super::report::{open_table, warn};
use super::rows::{cells, print as columns};
use super::stdout::line;

#[derive(clap::Args)]
pub struct Arguments {
    /// The result table that gives the errors: .parquet, .fits or .csv
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Another table of the same spectra: .parquet, .fits or .csv
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Differences above this many errors of A count; not negative
    #[arg(long, default_value_t = 0.02, value_name = "SIGMA", value_parser = threshold)]
    threshold: f64,
    /// Share of the common fits that must stay below the threshold, in every parameter: 0 to 1
    #[arg(long, default_value_t = 0.98, value_name = "SHARE", value_parser = share)]
    share: f64,
    /// Also draw the differences' distributions: a name that ends in .svg
    #[arg(long, value_name = "FILE", value_parser = svg)]
    plot: Option<PathBuf>,
    /// Replace the file of --plot if it exists
    #[arg(long)]
    overwrite: bool,
}

/// Parses the option `--threshold`: the largest difference that is allowed, in standard errors, at least 0.
fn threshold(text: &str) -> Result<f64, String> {
    number(
        text,
        0.0..=f64::MAX,
        "errors, a number that is not negative",
    )
}

/// Parses the option `--share`: which share of the fits must agree, from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    number(text, 0.0..=1.0, "a share, between 0 and 1")
}

/// Parses a number within a range; the error says that it is to be `what`.
fn number(text: &str, range: RangeInclusive<f64>, what: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|x| range.contains(x))
        .ok_or_else(|| format!("it is {what}"))
}

/// Parses the option `--plot`: a path that ends in `.svg`.
fn svg(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let is_svg = path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
    if is_svg {
        Ok(path)
    } else {
        Err("the picture is an SVG: give a name that ends in .svg".into())
    }
}

/// Differences of one parameter, in errors of A, or of B where A has none; infinite where the error is 0 or one of them
/// has no number, left out where neither has one (at a bound, or undetermined).
struct Differences {
    name: String,
    sorted: Vec<f64>,
    /// True if the data determine it in no pair of fits.
    all_undetermined: bool,
}

impl Differences {
    /// Returns the differences of these values in A and B.
    fn new(name: String, values: Vec<(Measured, Measured)>) -> Differences {
        let mut sorted: Vec<f64> = values
            .iter()
            .map(|(a, b)| a.difference(*b))
            .filter(|x| !x.is_nan())
            .collect();
        sorted.sort_by(f64::total_cmp);
        let is_open =
            |(a, b): &(Measured, Measured)| a.error.is_infinite() || b.error.is_infinite();
        let all_undetermined = !values.is_empty() && values.iter().all(is_open);
        Differences {
            name,
            sorted,
            all_undetermined,
        }
    }

    /// Returns the share (0 to 1) of the fits that differ by at most `threshold` standard errors.
    fn within(&self, threshold: f64) -> f64 {
        let close = self.sorted.partition_point(|x| *x <= threshold);
        close as f64 / self.sorted.len().max(1) as f64
    }

    /// Returns the difference (in standard errors) that this share of the fits does not exceed; NaN without fits.
    fn quantile(&self, share: f64) -> f64 {
        let last = self.sorted.len().saturating_sub(1);
        self.sorted
            .get((last as f64 * share).round() as usize)
            .copied()
            .unwrap_or(f64::NAN)
    }
}

/// Rows of one spectrum in the two tables, by their indices.
struct Pair {
    a: usize,
    b: usize,
}

/// Returns pairs of rows with the same id; rows with equal ids are paired in their order, others left out.
fn join_rows(a: &FitTable, b: &FitTable) -> Vec<Pair> {
    let mut rows_by_id: HashMap<String, VecDeque<usize>> = HashMap::new();
    for (row, id) in b.ids().iter().enumerate() {
        rows_by_id.entry(id.to_string()).or_default().push_back(row);
    }
    let mut pairs = Vec::new();
    for (row, id) in a.ids().iter().enumerate() {
        let rows_of_b = rows_by_id.get_mut(&id.to_string());
        if let Some(row_of_b) = rows_of_b.and_then(VecDeque::pop_front) {
            pairs.push(Pair {
                a: row,
                b: row_of_b,
            });
        }
    }
    pairs
}

/// Returns the note that some ids occur in several rows of a table; `None` if all are unique.
fn repeated_ids(table: &FitTable) -> Option<String> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for id in table.ids() {
        *counts.entry(id.to_string()).or_default() += 1;
    }
    let repeated = counts.iter().filter(|(_, count)| **count > 1);
    // the order of a hash map is random: the smallest id makes the note the same in every run
    let (id, count) = repeated.clone().min()?;
    Some(format!(
        "{} ids occur in several rows, such as {id} in {count}: rows of the same id are paired in order",
        repeated.count()
    ))
}

/// Runs `popfit compare`: prints how far the fits in two tables differ; fails if they differ more than the options
/// allow.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let plot = arguments
        .plot
        .as_ref()
        .map(|path| OutputFile::create(path, arguments.overwrite))
        .transpose()?;
    let a = open_table(&arguments.a)?.read_all()?;
    let b = open_table(&arguments.b)?.read_all()?;
    for (table, path) in [(&a, &arguments.a), (&b, &arguments.b)] {
        if let Some(note) = repeated_ids(table) {
            warn(format_args!("{}: {note}", path.display()));
        }
    }
    let pairs = join_rows(&a, &b);
    let missing = (a.len() - pairs.len(), b.len() - pairs.len());
    let both: Vec<&Pair> = pairs
        .iter()
        .filter(|pair| a.status()[pair.a].is_success() && b.status()[pair.b].is_success())
        .collect();
    let turned = pairs
        .iter()
        .filter(|pair| a.status()[pair.a].is_success() != b.status()[pair.b].is_success())
        .count();
    line(format_args!(
        "{} spectra in both tables, {} only in A, {} only in B; {} converged in both, {turned} in one of them",
        pairs.len(),
        missing.0,
        missing.1,
        both.len()
    ));
    if pairs.is_empty() && !(a.is_empty() && b.is_empty()) {
        return Err(Failure::of_the_run(
            "fail: the tables have no spectrum in common",
        ));
    }
    let all = differences(&a, &b, &both)?;
    print(&all, arguments.threshold);
    if let Some(file) = plot {
        let path = file.path().to_path_buf();
        let series: Vec<picture::Series> = all
            .iter()
            .map(|one| picture::Series {
                name: &one.name,
                sorted: &one.sorted,
            })
            .collect();
        file.write(picture::distributions("|A − B| / error of A", &series))
            .map_err(Failure::running)?;
        line(format_args!("wrote {}", path.display()));
    }
    let of_one = |names: &FitTable, others: &FitTable| {
        names
            .names()
            .iter()
            .find(|name| !others.names().contains(name))
            .cloned()
    };
    if let Some(name) = of_one(&a, &b).or_else(|| of_one(&b, &a)) {
        return Err(Failure::of_the_run(format!(
            "fail: {name} is in one of the tables only"
        )));
    }
    if let Some(none) = all
        .iter()
        .find(|one| one.sorted.is_empty() && !one.all_undetermined && !pairs.is_empty())
    {
        return Err(Failure::of_the_run(format!(
            "fail: no two fits of {} can be compared",
            none.name
        )));
    }
    verdict(arguments, &all, missing == (0, 0) && turned == 0)
}

/// Returns |A − B| / error of each common parameter, and of the velocities of exposures, sorted, over the pairs of rows
/// `both`, which converged in A and B.
fn differences(a: &FitTable, b: &FitTable, both: &[&Pair]) -> Result<Vec<Differences>, Failure> {
    let common: Vec<&String> = a
        .names()
        .iter()
        .filter(|name| b.names().contains(name))
        .collect();
    if common.is_empty() {
        return Err(Failure::usage("the tables have no parameter in common"));
    }
    let mut all = Vec::new();
    for name in common {
        let of_a = Column::of_parameter(a, name);
        let of_b = Column::of_parameter(b, name);
        let values = both
            .iter()
            .map(|pair| (of_a.measured(pair.a), of_b.measured(pair.b)));
        all.push(Differences::new(name.clone(), values.collect()));
    }
    // Velocities of exposures are no parameters, but as good as one.
    if let Some((of_a, of_b)) = ExposureColumns::new(a).zip(ExposureColumns::new(b)) {
        let exposures: Vec<_> = both
            .iter()
            .flat_map(|pair| match_exposures(&of_a, &of_b, pair))
            .collect();
        if !exposures.is_empty() {
            all.push(Differences::new("velocity_exposures".into(), exposures));
        }
    }
    Ok(all)
}

/// A value and its standard error.
#[derive(Clone, Copy)]
struct Measured {
    value: f64,
    error: f64,
}

impl Measured {
    /// Returns |A − B| / error of A, or of B where A has none; NaN where neither has a number, or the data do not
    /// determine it.
    fn difference(self, other: Measured) -> f64 {
        let apart = (self.value - other.value).abs();
        match () {
            // one value of many that fit equally well
            () if self.error.is_infinite() || other.error.is_infinite() => f64::NAN,
            () if apart == 0.0 => 0.0,
            // a number is in one of them
            () if apart.is_nan() && (self.value.is_finite() || other.value.is_finite()) => {
                f64::INFINITY
            }
            () if self.error.is_nan() => apart / other.error,
            () => apart / self.error,
        }
    }
}

/// The values and standard errors of a parameter.
struct Column<'a> {
    values: &'a [f64],
    errors: &'a [f64],
}

impl<'a> Column<'a> {
    /// Returns the columns of a parameter; empty ones if the table has no such parameter.
    fn of_parameter(table: &'a FitTable, name: &str) -> Column<'a> {
        Column {
            values: table.floats(name).unwrap_or_default(),
            errors: table.errors(name).unwrap_or_default(),
        }
    }

    /// Returns the value in a row and its error; NaN where there is none.
    fn measured(&self, row: usize) -> Measured {
        let number = |column: &[f64]| column.get(row).copied().unwrap_or(f64::NAN);
        Measured {
            value: number(self.values),
            error: number(self.errors),
        }
    }
}

/// The velocities of the exposures of all spectra of a table, and their standard errors.
struct ExposureColumns {
    velocities: Vec<Vec<f64>>,
    errors: Vec<Vec<f64>>,
}

impl ExposureColumns {
    /// Returns the velocities of a table's exposures; `None` if the table has none.
    fn new(table: &FitTable) -> Option<ExposureColumns> {
        let lists = |name| match table.column(name)? {
            FitValues::FloatLists(lists) => Some(lists),
            _ => None,
        };
        Some(ExposureColumns {
            velocities: lists("velocity_exposures")?,
            errors: lists("velocity_exposures_err")?,
        })
    }

    /// Returns the velocities of the exposures of one spectrum.
    fn column_of_row(&self, row: usize) -> Column<'_> {
        Column {
            values: &self.velocities[row],
            errors: &self.errors[row],
        }
    }
}

/// Returns the velocities of the exposures of a spectrum in both tables; none unless both have them. One table may have
/// more exposures than the other.
fn match_exposures(
    a: &ExposureColumns,
    b: &ExposureColumns,
    pair: &Pair,
) -> Vec<(Measured, Measured)> {
    let of_a = a.column_of_row(pair.a);
    let of_b = b.column_of_row(pair.b);
    if of_a.values.is_empty() || of_b.values.is_empty() {
        return Vec::new();
    }
    let count = of_a.values.len().max(of_b.values.len());
    (0..count)
        .map(|exposure| (of_a.measured(exposure), of_b.measured(exposure)))
        .collect()
}

/// Prints `pass`, or fails if a parameter differs too much in too many fits; `same`: A and B have the same converged
/// spectra.
fn verdict(arguments: &Arguments, all: &[Differences], same: bool) -> Result<(), Failure> {
    match all
        .iter()
        .find(|one| !one.all_undetermined && one.within(arguments.threshold) < arguments.share)
    {
        None if same => {
            line("pass");
            Ok(())
        }
        Some(one) => Err(Failure::of_the_run(format!(
            "fail: {} differs by more than {} errors in {:.2} % of the fits",
            one.name,
            arguments.threshold,
            100.0 * (1.0 - one.within(arguments.threshold))
        ))),
        None => Err(Failure::of_the_run(
            "fail: the tables do not have the same converged spectra",
        )),
    }
}

/// Prints for each parameter the median, 99 % and largest difference, and the share of fits within `threshold` errors.
fn print(all: &[Differences], threshold: f64) {
    let within = format!("within {threshold}");
    let mut rows = vec![cells([
        "|A − B| / error of A",
        "fits",
        "median",
        "99 %",
        "largest",
        &within,
    ])];
    for one in all {
        let number = |share: f64| format!("{:.5}", one.quantile(share));
        let share = format!("{:.4}", one.within(threshold));
        rows.push(cells([
            &one.name,
            &one.sorted.len().to_string(),
            &number(0.5),
            &number(0.99),
            &number(1.0),
            &share,
        ]));
    }
    columns(&rows);
}
