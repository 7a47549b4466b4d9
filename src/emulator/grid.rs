//! Template grids as log-uniform segments.

use crate::error::{Error, Result};

/// Largest deviation from the grid, in pixels, of a pixel that lies on it.
const MAX_PIXEL_DEVIATION: f64 = 1e-3;
/// Relative change of the step in ln λ that begins another segment.
const MIN_STEP_CHANGE: f64 = 0.1;
/// Smallest number of pixels of a segment.
const MIN_SEGMENT_PIXELS: usize = 8;

/// A log-uniform run of pixels: pixel `i` of `start..end` lies at ln λ = origin + (i − start) step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GridSegment {
    /// First pixel.
    pub start: usize,
    /// The pixel after the last.
    pub end: usize,
    /// ln(λ / Å) of pixel `start`.
    pub origin: f64,
    /// Δ ln λ.
    pub step: f64,
}

/// A template grid made of log-uniform segments; APOGEE's has three, one per chip.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateGrid {
    /// The segments in ascending order.
    pub segments: Vec<GridSegment>,
}

impl TemplateGrid {
    /// Splits increasing wavelengths (Å) into segments uniform in ln λ; fails if one is too short or not uniform.
    ///
    /// # Errors
    /// [`Error::BadWavelength`] when a piece is not log-uniform to 1e-3 of a pixel, or shorter than eight pixels.
    pub fn new(wavelength: &[f64]) -> Result<TemplateGrid> {
        TemplateGrid::from_wavelengths(wavelength, "template grid")
    }

    /// Splits wavelengths (Å) into segments uniform in ln λ, as [`new`](Self::new) does; errors name the grid `what`.
    pub(crate) fn from_wavelengths(wavelength: &[f64], what: &str) -> Result<TemplateGrid> {
        let fault = |(index, message)| Error::BadWavelength {
            what: what.to_string(),
            index,
            message,
        };
        let log: Vec<f64> = wavelength.iter().map(|x| x.ln()).collect();
        let mut segments = Vec::new();
        let mut start = 0;
        while start < log.len() {
            let next = log.get(start + 1);
            let first_step = next.map_or(f64::NAN, |next| next - log[start]);
            // The segment ends before the first step that differs. A NaN differs, too.
            let mut end = start + 1;
            while end < log.len()
                && (log[end] - log[end - 1] - first_step).abs() < MIN_STEP_CHANGE * first_step
            {
                end += 1;
            }
            segments.push(GridSegment::fit(&log[start..end], start).map_err(fault)?);
            start = end;
        }
        if segments.is_empty() {
            return Err(fault((0, "the grid is empty".to_string())));
        }
        Ok(TemplateGrid { segments })
    }

    /// Returns the segment that holds a wavelength (Å) and its fractional pixel index in the whole grid; `None` outside
    /// all segments. A wavelength beyond an end by no more than rounding counts as that of the end pixel.
    pub fn locate(&self, wavelength: f64) -> Option<(usize, f64)> {
        let log = wavelength.ln();
        self.segments.iter().enumerate().find_map(|(k, segment)| {
            let last = (segment.end - segment.start - 1) as f64;
            let index = (log - segment.origin) / segment.step;
            let is_inside = index >= -MAX_PIXEL_DEVIATION && index <= last + MAX_PIXEL_DEVIATION;
            is_inside.then(|| (k, segment.start as f64 + index.clamp(0.0, last)))
        })
    }
}

impl GridSegment {
    /// Fits origin and step in ln λ to one segment, whose first pixel is number `start`; fails if it is too short or
    /// not uniform. An error has the index of the first pixel that is off the grid.
    fn fit(log: &[f64], start: usize) -> Result<GridSegment, (usize, String)> {
        let pixels = log.len();
        if pixels < MIN_SEGMENT_PIXELS {
            let message = format!(
                "a piece of {pixels} pixels begins here, by its steps in ln λ; a template grid must be uniform in ln \
                 λ, in one or several pieces of at least {MIN_SEGMENT_PIXELS} pixels"
            );
            return Err((start, message));
        }
        let origin = log[0];
        let step = (log[pixels - 1] - origin) / (pixels - 1) as f64;
        let deviation = |i: usize| ((log[i] - origin) / step - i as f64).abs();
        // A NaN is off the grid.
        let first_off_grid =
            (0..pixels).find(|&i| deviation(i).is_nan() || deviation(i) > MAX_PIXEL_DEVIATION);
        match first_off_grid {
            None => Ok(GridSegment {
                start,
                end: start + pixels,
                origin,
                step,
            }),
            Some(i) => {
                let message = format!(
                    "the pixel is {:.1e} pixels off a grid that is uniform in ln λ, and at most {MAX_PIXEL_DEVIATION} are \
                     allowed; store all digits of the wavelengths in 64-bit floats, or train on a grid that is uniform \
                     in ln λ",
                    deviation(i)
                );
                Err((start + i, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_grid(first: f64, step: f64, pixels: usize) -> Vec<f64> {
        (0..pixels)
            .map(|i| first * (step * i as f64).exp())
            .collect()
    }

    #[test]
    fn gaps_split_a_grid() {
        let mut grid = log_grid(4000.0, 1e-4, 100);
        grid.extend(log_grid(4100.0, 1e-4, 50));
        let grid = TemplateGrid::new(&grid).unwrap();
        let ranges: Vec<_> = grid.segments.iter().map(|s| (s.start, s.end)).collect();
        assert_eq!(ranges, [(0, 100), (100, 150)]);
        let (segment, index) = grid.locate(4100.0 * (2.25e-4f64).exp()).unwrap();
        assert_eq!(segment, 1);
        assert!((index - 102.25).abs() < 1e-8);
    }

    #[test]
    fn ends_are_inside_the_grid_and_pixels_beyond_outside() {
        let grid = TemplateGrid::new(&log_grid(5000.0, 1e-4, 10)).unwrap();
        let locate = |pixels: f64| grid.locate(5000.0 * (pixels * 1e-4).exp());
        assert_eq!(locate(-4e-4), Some((0, 0.0)));
        assert_eq!(locate(9.0004), Some((0, 9.0)));
        assert_eq!(
            (locate(-0.4), locate(9.4), grid.locate(f64::NAN)),
            (None, None, None)
        );
    }

    #[test]
    fn grids_that_are_not_log_uniform_are_errors_with_the_pixel() {
        let fault = |grid: &[f64]| match TemplateGrid::new(grid).unwrap_err() {
            Error::BadWavelength { index, message, .. } => (index, message),
            other => panic!("{other}"),
        };
        let linear: Vec<f64> = (0..4000).map(|i| 4000.0 + i as f64).collect();
        let (index, message) = fault(&linear);
        assert!(
            index == 1 && message.contains("off a grid that is uniform in ln λ"),
            "{index} {message}"
        );
        let mut gap = log_grid(4000.0, 1e-4, 100);
        gap.extend(log_grid(4100.0, 1e-4, 7));
        let (index, message) = fault(&gap);
        assert!(
            index == 100 && message.contains("a piece of 7 pixels begins here"),
            "{index} {message}"
        );
        assert_eq!(
            (fault(&log_grid(4000.0, 1e-4, 7)).0, fault(&[5000.0]).0),
            (0, 0)
        );
        assert_eq!(fault(&[]), (0, "the grid is empty".to_string()));
    }
}
