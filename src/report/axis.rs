//! Axes: where a value lies, and which ticks say so.

use super::number::{fixed, number};

/// From the left or lower end to the right or upper one; `from` above `to` runs backwards.
#[derive(Clone, Debug)]
pub struct Axis {
    pub label: String,
    pub from: f64,
    pub to: f64,
    pub log: bool,
}

/// Direction and scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Linear,
    /// The larger to the left or below, as in a Kiel diagram.
    Reversed,
    /// Logarithmic when the values span much.
    Ratio,
}

/// A number of every fit.
#[derive(Clone, Copy)]
pub struct Column<'a> {
    pub label: &'a str,
    pub values: &'a [f64],
    pub kind: Kind,
}

/// Largest distance to which an axis reaches beyond the central 90 % of the values, in widths of those.
const FAR: f64 = 2.0;
/// Positive values whose largest is more than this many times the smallest get a logarithmic axis.
const LOG_FROM: f64 = 12.0;

impl Axis {
    pub fn linear(label: &str, (from, to): (f64, f64)) -> Axis {
        Axis { label: label.to_string(), from, to, log: false }
    }

    /// An axis for these values, with this share of it free at either end.
    pub fn of(column: &Column, margin: f64) -> Axis {
        let (label, (low, high)) = (column.label, range(column.values, 0.0));
        let factor = if low > 0.0 { (high / low).powf(margin) } else { 1.0 };
        let (wide_low, wide_high) = range(column.values, margin);
        match column.kind {
            Kind::Ratio if low > 0.0 && high / low > LOG_FROM => {
                Axis { label: label.to_string(), from: low / factor, to: high * factor, log: true }
            }
            Kind::Reversed => Axis::linear(label, (wide_high, wide_low)),
            _ => Axis::linear(label, (wide_low, wide_high)),
        }
    }

    /// 0 at the beginning, 1 at the end.
    pub fn place(&self, x: f64) -> f64 {
        let (from, to, x) = if self.log { (self.from.ln(), self.to.ln(), x.ln()) } else { (self.from, self.to, x) };
        (x - from) / (to - from)
    }

    /// The value at a place.
    pub fn value(&self, place: f64) -> f64 {
        if self.log {
            return (self.from.ln() + place * (self.to.ln() - self.from.ln())).exp();
        }
        self.from + place * (self.to - self.from)
    }

    /// About `most` places and texts.
    pub fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        let (low, high) = (self.from.min(self.to), self.from.max(self.to));
        let values = if self.log { log_ticks(low, high, most) } else { Vec::new() };
        if values.len() > 1 {
            return values.into_iter().map(|x| (self.place(x), power(x))).collect();
        }
        let step = step((high - low) / most.max(1) as f64);
        if !(step > 0.0 && step.is_finite()) {
            return Vec::new();
        }
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let first = (low / step - 1e-9).ceil();
        let thousands = step >= 1e3 && (2e4..1e7).contains(&high);
        let text = |x: f64| match x {
            0.0 => fixed(x, decimals),
            x if thousands => format!("{}k", fixed(x / 1e3, 0)),
            x if decimals > 6 || x.abs() >= 1e7 => number(x, 3),
            x => fixed(x, decimals),
        };
        let all = (0..=2 * most).map(|k| (first + k as f64) * step).take_while(|x| *x <= high + 1e-9 * step);
        all.map(|x| (self.place(x), text(x))).collect()
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let multiple = [1.0, 2.0, 5.0].into_iter().find(|m| m * power >= least * (1.0 - 1e-9));
    multiple.unwrap_or(10.0) * power
}

/// The densest of 1-2-5, 1-3 and powers of ten that is not too dense.
fn log_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let inside = |multiples: &[f64], every: i32| -> Vec<f64> {
        let powers = decades.clone().filter(|d| d.rem_euclid(every) == 0);
        let all = powers.flat_map(|d| multiples.iter().map(move |m| m * 10f64.powi(d)));
        all.filter(|x| (low * 0.999..=high * 1.001).contains(x)).collect()
    };
    let choices: [(&[f64], i32); 6] =
        [(&[1., 2., 5.], 1), (&[1., 3.], 1), (&[1.], 1), (&[1.], 2), (&[1.], 5), (&[1.], 20)];
    let mut all = choices.iter().map(|(multiples, every)| inside(multiples, *every));
    all.find(|ticks| ticks.len() <= most + 1).unwrap_or_default()
}

/// A tick of a logarithmic axis: 0.3, 20, 3·10⁷.
fn power(x: f64) -> String {
    let text = format!("{x:.0e}");
    let (multiple, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    if (-3..=5).contains(&exponent.parse().unwrap_or(0)) {
        return number(x, 1);
    }
    let raised = |c: char| match c {
        '-' => '⁻',
        c => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][c.to_digit(10).unwrap_or(0) as usize],
    };
    let exponent: String = exponent.chars().map(raised).collect();
    if multiple == "1" { format!("10{exponent}") } else { format!("{multiple}·10{exponent}") }
}

/// The range of the values without what lies far outside the bulk of them, and a margin; 0 to 1 for none.
pub fn range(values: &[f64], margin: f64) -> (f64, f64) {
    range_within(values, margin, FAR)
}

/// The range without values that are farther than `far` times the central 90 % from those.
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

/// The outermost of the sorted values within that distance.
fn bulk(sorted: &[f64], far: f64) -> (f64, f64) {
    let last = sorted.len() - 1;
    let (left, right) = (sorted[last / 20], sorted[last - last / 20]);
    let far = far * (right - left);
    let low = sorted.iter().find(|x| **x >= left - far).copied().unwrap_or(left);
    let high = sorted.iter().rfind(|x| **x <= right + far).copied().unwrap_or(right);
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let texts = |axis: Axis| axis.ticks(5).into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ");
        let ratio = |a, b| Axis::of(&Column { label: "", values: &[a, b], kind: Kind::Ratio }, 0.0);
        assert_eq!(texts(Axis::linear("", (3987.0, 5518.0))), "4000 4500 5000 5500");
        assert_eq!(texts(Axis::linear("", (-0.21, 0.32))), "−0.2 0.0 0.2");
        assert_eq!(texts(ratio(9.0, 220.0)), "10 20 50 100 200");
        assert_eq!(texts(ratio(1.0, 1e12)), "1 100000 10¹⁰");
        assert_eq!(texts(Axis::linear("", (0.0, 120_000.0))), "0 50k 100k");
        assert_eq!(texts(Axis::linear("", (5.0, 5.0))), "");
        for (place, _) in Axis::linear("", (7000.0, 3500.0)).ticks(5) {
            assert!((-1e-9..=1.0 + 1e-9).contains(&place));
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
