//! Axes: places of values, and ticks.

use super::number::{fixed, number};

/// An axis from its left or lower end to its right or upper one. With `from` above `to` it runs backwards.
#[derive(Clone, Debug)]
pub struct Axis {
    pub label: String,
    pub from: f64,
    pub to: f64,
    pub log: bool,
}

/// A tick of an axis.
#[derive(Clone, Debug)]
pub struct Tick {
    /// Place on the axis, 0 at its beginning and 1 at its end.
    pub place: f64,
    pub text: String,
}

/// Direction and scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Linear,
    /// Larger values to the left or below, as in a Kiel diagram.
    Reversed,
    /// Logarithmic if the values span a large ratio.
    Ratio,
}

/// One number per fit, with its label.
#[derive(Clone, Copy)]
pub struct Column<'a> {
    pub label: &'a str,
    pub values: &'a [f64],
    pub kind: Kind,
}

/// Largest distance to which an axis reaches beyond the central 90 % of the values, in widths of those.
const FAR: f64 = 2.0;
/// Ratio of the largest to the smallest of positive values above which the axis is logarithmic.
const LOG_FROM: f64 = 12.0;

impl Axis {
    /// Returns a linear axis with this label, from the value at its beginning to the value at its end.
    pub fn linear(label: &str, from: f64, to: f64) -> Axis {
        Axis {
            label: label.to_string(),
            from,
            to,
            log: false,
        }
    }

    /// Returns an axis for a column's values, of the scale and direction that its kind asks for, widened by `margin` ×
    /// their range.
    pub fn of(column: &Column, margin: f64) -> Axis {
        let (label, (low, high)) = (column.label, range(column.values, 0.0));
        let factor = if low > 0.0 {
            (high / low).powf(margin)
        } else {
            1.0
        };
        let (wide_low, wide_high) = range(column.values, margin);
        match column.kind {
            Kind::Ratio if low > 0.0 && high / low > LOG_FROM => Axis {
                label: label.to_string(),
                from: low / factor,
                to: high * factor,
                log: true,
            },
            Kind::Reversed => Axis::linear(label, wide_high, wide_low),
            _ => Axis::linear(label, wide_low, wide_high),
        }
    }

    /// Returns where on the axis a value lies: 0 at its beginning, 1 at its end, and beyond for values outside.
    pub fn place(&self, x: f64) -> f64 {
        let (from, to, x) = if self.log {
            (self.from.ln(), self.to.ln(), x.ln())
        } else {
            (self.from, self.to, x)
        };
        (x - from) / (to - from)
    }

    /// Returns the value at a place on the axis (0 at its beginning, 1 at its end): the inverse of `place`.
    pub fn value(&self, place: f64) -> f64 {
        if self.log {
            return (self.from.ln() + place * (self.to.ln() - self.from.ln())).exp();
        }
        self.from + place * (self.to - self.from)
    }

    /// Returns about `most` ticks at round values, each with its place on the axis (0 to 1) and its text.
    pub fn ticks(&self, most: usize) -> Vec<Tick> {
        let (low, high) = (self.from.min(self.to), self.from.max(self.to));
        let values = if self.log {
            log_ticks(low, high, most)
        } else {
            Vec::new()
        };
        if values.len() > 1 {
            return values
                .into_iter()
                .map(|x| Tick {
                    place: self.place(x),
                    text: power(x),
                })
                .collect();
        }
        let step = step((high - low) / most.max(1) as f64);
        if !(step > 0.0 && step.is_finite()) {
            return Vec::new();
        }
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let first = (low / step - 1e-9).ceil();
        let in_thousands = step >= 1e3 && (2e4..1e7).contains(&high);
        let all = (0..=2 * most)
            .map(|k| (first + k as f64) * step)
            .take_while(|x| *x <= high + 1e-9 * step);
        all.map(|x| Tick {
            place: self.place(x),
            text: tick_text(x, decimals, in_thousands),
        })
        .collect()
    }
}

/// Formats the value of a tick on a linear axis, as thousands (`20k`) if `in_thousands`, else with some decimals.
fn tick_text(x: f64, decimals: usize, in_thousands: bool) -> String {
    match x {
        0.0 => fixed(x, decimals),
        x if in_thousands => format!("{}k", fixed(x / 1e3, 0)),
        x if decimals > 6 || x.abs() >= 1e7 => number(x, 3),
        x => fixed(x, decimals),
    }
}

/// Rounds a distance between ticks up to 1, 2 or 5 times a power of ten.
fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let multiple = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|m| m * power >= least * (1.0 - 1e-9));
    multiple.unwrap_or(10.0) * power
}

/// Returns tick values for a logarithmic axis, 1-2-5, 1-3 or powers of ten per decade: the densest with about `most`
/// ticks.
fn log_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let inside = |multiples: &[f64], every: i32| -> Vec<f64> {
        let powers = decades.clone().filter(|d| d.rem_euclid(every) == 0);
        let all = powers.flat_map(|d| multiples.iter().map(move |m| m * 10f64.powi(d)));
        all.filter(|x| (low * 0.999..=high * 1.001).contains(x))
            .collect()
    };
    let choices: [(&[f64], i32); 6] = [
        (&[1., 2., 5.], 1),
        (&[1., 3.], 1),
        (&[1.], 1),
        (&[1.], 2),
        (&[1.], 5),
        (&[1.], 20),
    ];
    let mut all = choices
        .iter()
        .map(|(multiples, every)| inside(multiples, *every));
    all.find(|ticks| ticks.len() <= most + 1)
        .unwrap_or_default()
}

/// Formats the value of a tick on a logarithmic axis, as 0.3, 20 or 3·10⁷.
fn power(x: f64) -> String {
    let text = format!("{x:.0e}");
    let (multiple, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    if (-3..=5).contains(&exponent.parse().unwrap_or(0)) {
        return number(x, 1);
    }
    let exponent: String = exponent.chars().map(superscript).collect();
    if multiple == "1" {
        format!("10{exponent}")
    } else {
        format!("{multiple}·10{exponent}")
    }
}

/// Converts a digit or a minus to its superscript character.
fn superscript(c: char) -> char {
    match c {
        '-' => '⁻',
        c => {
            ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][c.to_digit(10).unwrap_or(0) as usize]
        }
    }
}

/// Returns the (lowest, highest) value without far outliers, widened by `margin` × their distance; (0, 1) without
/// values.
pub fn range(values: &[f64], margin: f64) -> (f64, f64) {
    range_within(values, margin, FAR)
}

/// Returns (lowest, highest) without values farther from the central 90 % than `far` × its width, widened by `margin`.
pub fn range_within(values: &[f64], margin: f64, far: f64) -> (f64, f64) {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
    if sorted.is_empty() {
        return (0.0, 1.0);
    }
    sorted.sort_by(f64::total_cmp);
    let (low, high) = bulk(&sorted, far);
    let width = high - low;
    if width <= 1e-12 * high.abs().max(low.abs()) {
        let half = if high == 0.0 { 1.0 } else { 0.1 * high.abs() };
        return (low - half, high + half);
    }
    (low - margin * width, high + margin * width)
}

/// Returns (lowest, highest) of sorted values that lie within `far` × the width of the central 90 % around it.
fn bulk(sorted: &[f64], far: f64) -> (f64, f64) {
    let last = sorted.len() - 1;
    let (left, right) = (sorted[last / 20], sorted[last - last / 20]);
    let far = far * (right - left);
    let low = sorted
        .iter()
        .find(|x| **x >= left - far)
        .copied()
        .unwrap_or(left);
    let high = sorted
        .iter()
        .rfind(|x| **x <= right + far)
        .copied()
        .unwrap_or(right);
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let texts = |axis: Axis| {
            axis.ticks(5)
                .into_iter()
                .map(|tick| tick.text)
                .collect::<Vec<_>>()
                .join(" ")
        };
        let ratio = |a, b| {
            Axis::of(
                &Column {
                    label: "",
                    values: &[a, b],
                    kind: Kind::Ratio,
                },
                0.0,
            )
        };
        assert_eq!(
            texts(Axis::linear("", 3987.0, 5518.0)),
            "4000 4500 5000 5500"
        );
        assert_eq!(texts(Axis::linear("", -0.21, 0.32)), "−0.2 0.0 0.2");
        assert_eq!(texts(ratio(9.0, 220.0)), "10 20 50 100 200");
        assert_eq!(texts(ratio(1.0, 1e12)), "1 100000 10¹⁰");
        assert_eq!(texts(Axis::linear("", 0.0, 120_000.0)), "0 50k 100k");
        assert_eq!(texts(Axis::linear("", 5.0, 5.0)), "");
        for tick in Axis::linear("", 7000.0, 3500.0).ticks(5) {
            assert!((-1e-9..=1.0 + 1e-9).contains(&tick.place));
        }
    }

    #[test]
    fn ranges_are_never_empty() {
        assert_eq!(range(&[], 0.1), (0.0, 1.0));
        assert_eq!(range(&[f64::NAN, 0.0], 0.1), (-1.0, 1.0));
        let (low, high) = range(&[4.0], 0.1);
        assert!(low < 4.0 && high > 4.0);
        assert_eq!(range(&[0.0, f64::INFINITY, 10.0], 0.1), (-1.0, 11.0));
        let mut many: Vec<f64> = (0..40).map(f64::from).collect();
        many[7] = 1e6;
        assert_eq!(range(&many, 0.0), (0.0, 39.0));
    }
}
