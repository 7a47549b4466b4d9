//! The running mean of the residuals.

/// Number of pixels of the running mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(usize);

/// Number of windows per picture. A mean over more pixels would hide features, and one over fewer would hardly be
/// smoother than the data.
const PER_PICTURE: usize = 100;
/// Smallest window.
const LEAST: usize = 5;
/// Largest window.
const MOST: usize = 101;

impl Window {
    /// Returns the averaging window for a spectrum of `pixels` pixels: its width is odd, so that it has a middle pixel.
    pub fn of(pixels: usize) -> Window {
        Window(((pixels / PER_PICTURE) | 1).clamp(LEAST, MOST))
    }

    /// Returns the window's width in pixels.
    pub fn pixels(self) -> usize {
        self.0
    }
}

/// Residuals of one arm, in the units of the data, with their inverse variances; pixels with `ivar` 0 do not count.
pub struct Residuals {
    pub difference: Vec<f64>,
    pub ivar: Vec<f64>,
}

impl Residuals {
    /// Returns each pixel's weighted mean residual over a window, divided by the typical error σ̄ of a pixel in it.
    ///
    /// With δ = data − model and w = ivar, summed over the n pixels of the window that count, the weighted mean is Σwδ
    /// / Σw and 1/σ̄² = Σw / n, so that the quotient is Σwδ / √(n Σw). Where fewer than half of the window's pixels
    /// count, or the middle one does not, it is NaN.
    pub fn running_mean(&self, window: Window) -> Vec<f64> {
        (0..self.ivar.len())
            .map(|j| self.mean_at(j, window))
            .collect()
    }

    /// Returns the weighted mean residual of the window around pixel `j` over its typical error; NaN where too few
    /// count.
    fn mean_at(&self, j: usize, window: Window) -> f64 {
        if self.ivar[j] == 0.0 {
            return f64::NAN;
        }
        let half = window.0 / 2;
        let (from, to) = (j.saturating_sub(half), (j + half).min(self.ivar.len() - 1));
        let counted = (from..=to).filter(|k| self.ivar[*k] > 0.0);
        let (mut n, mut weight, mut sum) = (0.0, 0.0, 0.0);
        for k in counted {
            n += 1.0;
            weight += self.ivar[k];
            sum += self.ivar[k] * self.difference[k];
        }
        if 2.0 * n < (to - from + 1) as f64 {
            f64::NAN
        } else {
            sum / (n * weight).sqrt()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_odd_and_bounded() {
        let pixels = |n: usize| Window::of(n).pixels();
        assert_eq!(
            [10, 600, 2751, 3741, 20_000].map(pixels),
            [5, 7, 27, 37, 101]
        );
    }

    #[test]
    fn the_mean_is_weighted_and_leaves_masked_pixels_out() {
        let (difference, ivar) = (
            vec![1.0, 2.0, 1e9, 4.0, 2.0, 1.0],
            vec![1.0, 4.0, 0.0, 1.0, 1.0, 1.0],
        );
        let mean = Residuals { difference, ivar }.running_mean(Window(5));
        // pixels 0, 1, 3 and 4 in the window around pixel 1, whose left end is cut off: pixels 0, 1 and 3
        assert!(
            (mean[1] - (1.0 + 8.0 + 4.0) / (3.0f64 * 6.0).sqrt()).abs() < 1e-12,
            "{mean:?}"
        );
        assert!(mean[2].is_nan());
        assert!((mean[5] - 7.0 / 3.0).abs() < 1e-12, "{mean:?}");
    }

    #[test]
    fn mostly_masked_windows_have_no_mean() {
        let mut ivar = vec![0.0; 9];
        ivar[4] = 1.0;
        let mean = Residuals {
            difference: vec![1.0; 9],
            ivar,
        }
        .running_mean(Window(5));
        assert!(mean.iter().all(|x| x.is_nan()), "{mean:?}");
    }
}
