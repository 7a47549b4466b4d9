//! Curves of many pixels as short SVG paths, with the lowest and the highest value in each column of the picture.

use std::fmt::Write;

/// Height of a path's own units; its width is the number of columns.
pub const PATH_HEIGHT: f64 = 400.0;

/// Grid of the picture: wavelengths of the pixels, and the range and number of the columns.
pub struct PictureGrid<'a> {
    pub wavelength: &'a [f64],
    pub from: f64,
    pub to: f64,
    pub columns: usize,
}

impl PictureGrid<'_> {
    /// Converts a wavelength to an x coordinate: 0 at the grid's beginning, its number of columns at the end.
    pub fn column_of(&self, wavelength: f64) -> f64 {
        (wavelength - self.from) / (self.to - self.from) * self.columns as f64
    }

    /// Returns an SVG path through `values`, one per pixel, that spans `low` to `high` and breaks where they are not
    /// finite. `low` is at the bottom, `high` at the top. Values far outside are cut just beyond the edges.
    pub fn curve_path(&self, values: &[f64], low: f64, high: f64) -> String {
        let svg_y = |value: f64| {
            let y = (high - value) / (high - low) * PATH_HEIGHT;
            y.clamp(-0.1 * PATH_HEIGHT, 1.1 * PATH_HEIGHT).round() as i64
        };
        let mut path = RelativePath::default();
        for (first, end) in self.pixels_of_columns() {
            let Some([earlier, later]) = find_extremes(&values[first..end]) else {
                path.pen_up();
                continue;
            };
            let x = self.column_of(self.wavelength[first]).floor() as i64;
            path.line_to(x, svg_y(earlier));
            path.line_to(x, svg_y(later));
        }
        path.text
    }

    /// Returns an SVG path with a full-height rectangle over each run of masked pixels. Each band reaches half way to
    /// its neighbours.
    pub fn mask_path(&self, mask: &[bool]) -> String {
        let middle_between =
            |a: usize, b: usize| self.column_of(0.5 * (self.wavelength[a] + self.wavelength[b]));
        let last_pixel = mask.len().saturating_sub(1);
        let mut path = String::new();
        let mut start = 0;
        while start < mask.len() {
            let masked = mask[start..].iter().take_while(|is_masked| **is_masked);
            let end = start + masked.count();
            if end > start {
                let left = middle_between(start.saturating_sub(1), start);
                let right = middle_between(end - 1, end.min(last_pixel));
                let width = (right - left).max(0.5);
                let _ = write!(path, "M{left:.1} 0h{width:.1}v{PATH_HEIGHT}h-{width:.1}z");
            }
            start = end.max(start + 1);
        }
        path
    }

    /// Returns (first, last + 1) of the pixels that fall into each column of the picture. Pixels without a finite
    /// wavelength are skipped.
    fn pixels_of_columns(&self) -> Vec<(usize, usize)> {
        let column = |pixel: usize| self.column_of(self.wavelength[pixel]).floor() as i64;
        let mut ranges = Vec::new();
        let mut first = 0;
        for pixel in 1..=self.wavelength.len() {
            if pixel == self.wavelength.len() || column(pixel) != column(first) {
                if self.wavelength[first].is_finite() {
                    ranges.push((first, pixel));
                }
                first = pixel;
            }
        }
        ranges
    }
}

/// Returns the lowest and the highest finite value, in the order in which they come; `None` without any.
fn find_extremes(values: &[f64]) -> Option<[f64; 2]> {
    let mut finite = values
        .iter()
        .copied()
        .enumerate()
        .filter(|(_, value)| value.is_finite());
    let mut lowest = finite.next()?;
    let mut highest = lowest;
    for (pixel, value) in finite {
        if value < lowest.1 {
            lowest = (pixel, value);
        }
        if value > highest.1 {
            highest = (pixel, value);
        }
    }
    Some(if lowest.0 <= highest.0 {
        [lowest.1, highest.1]
    } else {
        [highest.1, lowest.1]
    })
}

/// A path of relative steps in whole units, which are few characters.
#[derive(Default)]
struct RelativePath {
    text: String,
    pen: Option<(i64, i64)>,
}

impl RelativePath {
    /// Appends a line from the last point to (x, y), or moves there without drawing after `pen_up`.
    fn line_to(&mut self, x: i64, y: i64) {
        let _ = match self.pen {
            None => write!(self.text, "M{x} {y}"),
            Some((x0, y0)) if x == x0 && y == y0 => Ok(()),
            Some((x0, y0)) if x == x0 => write!(self.text, "v{}", y - y0),
            Some((x0, y0)) if y == y0 => write!(self.text, "h{}", x - x0),
            Some((x0, y0)) => write!(self.text, "l{} {}", x - x0, y - y0),
        };
        self.pen = Some((x, y));
    }

    /// Makes the next point begin a new line, not joined to the last point.
    fn pen_up(&mut self) {
        self.pen = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curve_has_the_extremes_of_each_column_in_their_order() {
        let wavelength: Vec<f64> = (0..8).map(f64::from).collect();
        let grid = PictureGrid {
            wavelength: &wavelength,
            from: 0.0,
            to: 8.0,
            columns: 2,
        };
        let values = [0.0, 1.0, 0.5, 0.25, 1.0, 0.0, f64::NAN, 0.5];
        assert_eq!(grid.curve_path(&values, 0.0, 1.0), "M0 400v-400h1v400");
        assert_eq!(grid.curve_path(&[f64::NAN; 8], 0.0, 1.0), "");
        assert_eq!(
            grid.curve_path(
                &[f64::INFINITY, 1e300, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
                0.0,
                1.0
            ),
            "M0 -40v440h1"
        );
    }

    #[test]
    fn bands_reach_half_way_to_the_next_pixels() {
        let wavelength: Vec<f64> = (0..8).map(f64::from).collect();
        let grid = PictureGrid {
            wavelength: &wavelength,
            from: 0.0,
            to: 8.0,
            columns: 8,
        };
        let mask = [true, false, false, true, true, false, false, true];
        assert_eq!(
            grid.mask_path(&mask),
            "M0.0 0h0.5v400h-0.5zM2.5 0h2.0v400h-2.0zM6.5 0h0.5v400h-0.5z"
        );
    }
}
