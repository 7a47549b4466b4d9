//! Curves of many pixels as short SVG paths, with the lowest and the highest value in each column of the picture.

use std::fmt::Write;

/// Height of a path's own units; its width is the number of columns.
pub const HEIGHT: f64 = 400.0;

/// Grid of the picture: wavelengths of the pixels, and the range and number of the columns.
pub struct Grid<'a> {
    pub wavelength: &'a [f64],
    pub from: f64,
    pub to: f64,
    pub columns: usize,
}

impl Grid<'_> {
    /// Converts a wavelength to an x coordinate: 0 at the grid's beginning, its number of columns at the end.
    pub fn place(&self, wavelength: f64) -> f64 {
        (wavelength - self.from) / (self.to - self.from) * self.columns as f64
    }

    /// Returns an SVG path through `values`, one per pixel, that spans `low` to `high` and breaks where they are not
    /// finite. `low` is at the bottom, `high` at the top. Values far outside are cut just beyond the edges.
    pub fn curve(&self, values: &[f64], low: f64, high: f64) -> String {
        let y = |value: f64| {
            let place = (high - value) / (high - low) * HEIGHT;
            place.clamp(-0.1 * HEIGHT, 1.1 * HEIGHT).round() as i64
        };
        let mut path = Path::default();
        for (from, to) in self.cells() {
            let Some([first, second]) = extremes(&values[from..to]) else {
                path.pen_up();
                continue;
            };
            let x = self.place(self.wavelength[from]).floor() as i64;
            path.to(x, y(first));
            path.to(x, y(second));
        }
        path.text
    }

    /// Returns an SVG path with a full-height rectangle over each run of masked pixels. Each band reaches half way to
    /// its neighbours.
    pub fn bands(&self, mask: &[bool]) -> String {
        let last = mask.len().saturating_sub(1);
        let middle =
            |a: usize, b: usize| self.place(0.5 * (self.wavelength[a] + self.wavelength[b]));
        let mut text = String::new();
        let mut j = 0;
        while j < mask.len() {
            let end = j + mask[j..].iter().take_while(|masked| **masked).count();
            if end > j {
                let (left, right) = (
                    middle(j.saturating_sub(1), j),
                    middle(end - 1, end.min(last)),
                );
                let width = (right - left).max(0.5);
                let _ = write!(text, "M{left:.1} 0h{width:.1}v{HEIGHT}h-{width:.1}z");
            }
            j = end.max(j + 1);
        }
        text
    }

    /// Returns (first, last + 1) of the pixels that fall into each column of the picture. Pixels without a finite
    /// wavelength are skipped.
    fn cells(&self) -> Vec<(usize, usize)> {
        let column = |j: usize| self.place(self.wavelength[j]).floor() as i64;
        let mut cells = Vec::new();
        let mut from = 0;
        for j in 1..=self.wavelength.len() {
            if j == self.wavelength.len() || column(j) != column(from) {
                if self.wavelength[from].is_finite() {
                    cells.push((from, j));
                }
                from = j;
            }
        }
        cells
    }
}

/// Returns the lowest and the highest finite value, in the order in which they come; `None` without any.
fn extremes(values: &[f64]) -> Option<[f64; 2]> {
    let mut finite = values
        .iter()
        .copied()
        .enumerate()
        .filter(|(_, value)| value.is_finite());
    let first = finite.next()?;
    let (least, most) = finite.fold((first, first), |(least, most), value| {
        (
            if value.1 < least.1 { value } else { least },
            if value.1 > most.1 { value } else { most },
        )
    });
    Some(if least.0 <= most.0 {
        [least.1, most.1]
    } else {
        [most.1, least.1]
    })
}

/// A path of relative steps in whole units, which are few characters.
#[derive(Default)]
struct Path {
    text: String,
    at: Option<(i64, i64)>,
}

impl Path {
    /// Appends a line from the last point to (x, y), or moves there without drawing after `pen_up`.
    fn to(&mut self, x: i64, y: i64) {
        let _ = match self.at {
            None => write!(self.text, "M{x} {y}"),
            Some((x0, y0)) if x == x0 && y == y0 => Ok(()),
            Some((x0, y0)) if x == x0 => write!(self.text, "v{}", y - y0),
            Some((x0, y0)) if y == y0 => write!(self.text, "h{}", x - x0),
            Some((x0, y0)) => write!(self.text, "l{} {}", x - x0, y - y0),
        };
        self.at = Some((x, y));
    }

    /// Makes the next point begin a new line, not joined to the last point.
    fn pen_up(&mut self) {
        self.at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_of_each_column_in_their_order() {
        let wavelength: Vec<f64> = (0..8).map(f64::from).collect();
        let grid = Grid {
            wavelength: &wavelength,
            from: 0.0,
            to: 8.0,
            columns: 2,
        };
        let values = [0.0, 1.0, 0.5, 0.25, 1.0, 0.0, f64::NAN, 0.5];
        assert_eq!(grid.curve(&values, 0.0, 1.0), "M0 400v-400h1v400");
        assert_eq!(grid.curve(&[f64::NAN; 8], 0.0, 1.0), "");
        assert_eq!(
            grid.curve(
                &[f64::INFINITY, 1e300, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
                0.0,
                1.0
            ),
            "M0 -40v440h1"
        );
    }

    #[test]
    fn bands_reach_half_way() {
        let wavelength: Vec<f64> = (0..8).map(f64::from).collect();
        let grid = Grid {
            wavelength: &wavelength,
            from: 0.0,
            to: 8.0,
            columns: 8,
        };
        let mask = [true, false, false, true, true, false, false, true];
        assert_eq!(
            grid.bands(&mask),
            "M0.0 0h0.5v400h-0.5zM2.5 0h2.0v400h-2.0zM6.5 0h0.5v400h-0.5z"
        );
    }
}
