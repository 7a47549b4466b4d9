//! Axes of figures: positions of values, and ticks.

use super::number::{format_decimals, format_number};

/// An axis from its left or lower end to its right or upper one. With `from` above `to` it runs backwards.
#[derive(Clone, Debug)]
pub struct PlotAxis {
    pub label: String,
    pub from: f64,
    pub to: f64,
    pub log: bool,
}

/// A tick of an axis.
#[derive(Clone, Debug)]
pub struct Tick {
    /// Position on the axis, 0 at its beginning and 1 at its end.
    pub fraction: f64,
    pub text: String,
}

/// Direction and scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisKind {
    Linear,
    /// Larger values to the left or below, as in a Kiel diagram.
    Reversed,
    /// Logarithmic if the values span a large ratio.
    Ratio,
}

/// One number per fit, with its label.
#[derive(Clone, Copy)]
pub struct PlotColumn<'a> {
    pub label: &'a str,
    pub values: &'a [f64],
    pub kind: AxisKind,
}

/// Largest distance of values on the axis from the central 90 % of the values, in widths of that range.
const MAX_OUTLIER_DISTANCE: f64 = 2.0;
/// Ratio of the largest to the smallest of positive values above which the axis is logarithmic.
const MIN_LOG_AXIS_RATIO: f64 = 12.0;

impl PlotAxis {
    /// Returns a linear axis with this label, from the value at its beginning to the value at its end.
    pub fn linear(label: &str, from: f64, to: f64) -> PlotAxis {
        PlotAxis {
            label: label.to_string(),
            from,
            to,
            log: false,
        }
    }

    /// Returns an axis for a column's values, of the scale and direction that its kind asks for, widened by `margin` ×
    /// their range.
    pub fn for_column(column: &PlotColumn, margin: f64) -> PlotAxis {
        let label = column.label;
        let (low, high) = find_range(column.values, 0.0);
        if column.kind == AxisKind::Ratio && low > 0.0 && high / low > MIN_LOG_AXIS_RATIO {
            let factor = (high / low).powf(margin);
            return PlotAxis {
                label: label.to_string(),
                from: low / factor,
                to: high * factor,
                log: true,
            };
        }
        let (low, high) = find_range(column.values, margin);
        match column.kind {
            AxisKind::Reversed => PlotAxis::linear(label, high, low),
            _ => PlotAxis::linear(label, low, high),
        }
    }

    /// Returns the position of a value on the axis: 0 at its beginning, 1 at its end, and beyond for values outside.
    pub fn fraction_of(&self, value: f64) -> f64 {
        let (from, to, value) = if self.log {
            (self.from.ln(), self.to.ln(), value.ln())
        } else {
            (self.from, self.to, value)
        };
        (value - from) / (to - from)
    }

    /// Returns the value at a position on the axis (0 at its beginning, 1 at its end): the inverse of `fraction_of`.
    pub fn value_at(&self, fraction: f64) -> f64 {
        if self.log {
            return (self.from.ln() + fraction * (self.to.ln() - self.from.ln())).exp();
        }
        self.from + fraction * (self.to - self.from)
    }

    /// Returns about `count` ticks at round values, each with its position on the axis (0 to 1) and its text.
    pub fn choose_ticks(&self, count: usize) -> Vec<Tick> {
        let low = self.from.min(self.to);
        let high = self.from.max(self.to);
        // 1. A logarithmic axis has ticks of its own, unless it is so short that fewer than two lie on it.
        let powers = if self.log {
            choose_log_ticks(low, high, count)
        } else {
            Vec::new()
        };
        if powers.len() > 1 {
            return powers
                .into_iter()
                .map(|value| Tick {
                    fraction: self.fraction_of(value),
                    text: format_power(value),
                })
                .collect();
        }
        // 2. Otherwise the ticks are the multiples of a round step.
        let step = round_up_step((high - low) / count.max(1) as f64);
        if !(step > 0.0 && step.is_finite()) {
            return Vec::new();
        }
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let first_multiple = (low / step - 1e-9).ceil();
        let in_thousands = step >= 1e3 && (2e4..1e7).contains(&high);
        (0..=2 * count)
            .map(|k| (first_multiple + k as f64) * step)
            .take_while(|value| *value <= high + 1e-9 * step)
            .map(|value| Tick {
                fraction: self.fraction_of(value),
                text: format_tick(value, decimals, in_thousands),
            })
            .collect()
    }
}

/// Formats the value of a tick on a linear axis, as thousands (`20k`) if `in_thousands`, else with some decimals.
fn format_tick(value: f64, decimals: usize, in_thousands: bool) -> String {
    match value {
        0.0 => format_decimals(value, decimals),
        value if in_thousands => format!("{}k", format_decimals(value / 1e3, 0)),
        value if decimals > 6 || value.abs() >= 1e7 => format_number(value, 3),
        value => format_decimals(value, decimals),
    }
}

/// Rounds a distance between ticks up to 1, 2 or 5 times a power of ten.
fn round_up_step(distance: f64) -> f64 {
    let power = 10f64.powf(distance.log10().floor());
    let multiple = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|multiple| multiple * power >= distance * (1.0 - 1e-9));
    multiple.unwrap_or(10.0) * power
}

/// Returns tick values for a logarithmic axis, 1-2-5, 1-3 or powers of ten per decade: the densest with about `count`
/// ticks.
fn choose_log_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let choices: [(&[f64], i32); 6] = [
        (&[1., 2., 5.], 1),
        (&[1., 3.], 1),
        (&[1.], 1),
        (&[1.], 2),
        (&[1.], 5),
        (&[1.], 20),
    ];
    choices
        .iter()
        .map(|(multiples, decade_step)| log_ticks_within(low, high, multiples, *decade_step))
        .find(|ticks| ticks.len() <= count + 1)
        .unwrap_or_default()
}

/// Returns the multiples of every `decade_step`-th power of ten that lie between `low` and `high`.
fn log_ticks_within(low: f64, high: f64, multiples: &[f64], decade_step: i32) -> Vec<f64> {
    let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    decades
        .filter(|decade| decade.rem_euclid(decade_step) == 0)
        .flat_map(|decade| multiples.iter().map(move |m| m * 10f64.powi(decade)))
        .filter(|value| (low * 0.999..=high * 1.001).contains(value))
        .collect()
}

/// Formats the value of a tick on a logarithmic axis, as 0.3, 20 or 3·10⁷.
fn format_power(value: f64) -> String {
    let text = format!("{value:.0e}");
    let (multiple, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    if (-3..=5).contains(&exponent.parse().unwrap_or(0)) {
        return format_number(value, 1);
    }
    let exponent: String = exponent.chars().map(to_superscript).collect();
    if multiple == "1" {
        format!("10{exponent}")
    } else {
        format!("{multiple}·10{exponent}")
    }
}

/// Converts a digit or a minus to its to_superscript character.
fn to_superscript(c: char) -> char {
    match c {
        '-' => '⁻',
        c => {
            ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][c.to_digit(10).unwrap_or(0) as usize]
        }
    }
}

/// Returns the (lowest, highest) value without far outliers, widened by `margin` × their distance; (0, 1) without
/// values.
pub fn find_range(values: &[f64], margin: f64) -> (f64, f64) {
    find_range_within(values, margin, MAX_OUTLIER_DISTANCE)
}

/// Returns (lowest, highest) without values farther from the central 90 % than `max_distance` × its width, widened by
/// `margin`.
pub fn find_range_within(values: &[f64], margin: f64, max_distance: f64) -> (f64, f64) {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
    if sorted.is_empty() {
        return (0.0, 1.0);
    }
    sorted.sort_by(f64::total_cmp);
    let (low, high) = find_bulk(&sorted, max_distance);
    let width = high - low;
    if width <= 1e-12 * high.abs().max(low.abs()) {
        let half_width = if high == 0.0 { 1.0 } else { 0.1 * high.abs() };
        return (low - half_width, high + half_width);
    }
    (low - margin * width, high + margin * width)
}

/// Returns (lowest, highest) of sorted values that lie within `max_distance` × the width of the central 90 % around it.
fn find_bulk(sorted: &[f64], max_distance: f64) -> (f64, f64) {
    let last = sorted.len() - 1;
    let percentile_5 = sorted[last / 20];
    let percentile_95 = sorted[last - last / 20];
    let reach = max_distance * (percentile_95 - percentile_5);
    let low = sorted
        .iter()
        .find(|value| **value >= percentile_5 - reach)
        .copied()
        .unwrap_or(percentile_5);
    let high = sorted
        .iter()
        .rfind(|value| **value <= percentile_95 + reach)
        .copied()
        .unwrap_or(percentile_95);
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick_texts(axis: PlotAxis) -> String {
        let texts: Vec<String> = axis
            .choose_ticks(5)
            .into_iter()
            .map(|tick| tick.text)
            .collect();
        texts.join(" ")
    }

    fn ratio_axis(low: f64, high: f64) -> PlotAxis {
        let column = PlotColumn {
            label: "",
            values: &[low, high],
            kind: AxisKind::Ratio,
        };
        PlotAxis::for_column(&column, 0.0)
    }

    #[test]
    fn ticks_are_round_and_inside() {
        let linear_axis = |low, high| PlotAxis::linear("", low, high);
        assert_eq!(
            tick_texts(linear_axis(3987.0, 5518.0)),
            "4000 4500 5000 5500"
        );
        assert_eq!(tick_texts(linear_axis(-0.21, 0.32)), "−0.2 0.0 0.2");
        assert_eq!(tick_texts(ratio_axis(9.0, 220.0)), "10 20 50 100 200");
        assert_eq!(tick_texts(ratio_axis(1.0, 1e12)), "1 100000 10¹⁰");
        assert_eq!(tick_texts(linear_axis(0.0, 120_000.0)), "0 50k 100k");
        assert_eq!(tick_texts(linear_axis(5.0, 5.0)), "");
        for tick in linear_axis(7000.0, 3500.0).choose_ticks(5) {
            assert!((-1e-9..=1.0 + 1e-9).contains(&tick.fraction));
        }
    }

    #[test]
    fn ranges_are_never_empty() {
        assert_eq!(find_range(&[], 0.1), (0.0, 1.0));
        assert_eq!(find_range(&[f64::NAN, 0.0], 0.1), (-1.0, 1.0));
        let (low, high) = find_range(&[4.0], 0.1);
        assert!(low < 4.0 && high > 4.0);
        assert_eq!(find_range(&[0.0, f64::INFINITY, 10.0], 0.1), (-1.0, 11.0));
        let mut many: Vec<f64> = (0..40).map(f64::from).collect();
        many[7] = 1e6;
        assert_eq!(find_range(&many, 0.0), (0.0, 39.0));
    }
}
