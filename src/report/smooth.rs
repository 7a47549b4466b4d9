//! The running mean of the residuals.

/// Number of pixels of the running mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeanWindow(usize);

/// Number of windows per picture. A mean over more pixels would hide features, and one over fewer would hardly be
/// smoother than the data.
const WINDOWS_PER_PICTURE: usize = 100;
/// Smallest window.
const MIN_WINDOW_PIXELS: usize = 5;
/// Largest window.
const MAX_WINDOW_PIXELS: usize = 101;

impl MeanWindow {
    /// Returns the averaging window for a spectrum of `pixels` pixels: its width is odd, so that it has a middle pixel.
    pub fn for_pixels(pixels: usize) -> MeanWindow {
        MeanWindow(((pixels / WINDOWS_PER_PICTURE) | 1).clamp(MIN_WINDOW_PIXELS, MAX_WINDOW_PIXELS))
    }

    /// Returns the window's width in pixels.
    pub fn pixels(self) -> usize {
        self.0
    }
}

/// Residuals of one arm, in the units of the data, with their inverse variances; pixels with `ivar` 0 do not count.
pub struct ArmResiduals {
    pub difference: Vec<f64>,
    pub ivar: Vec<f64>,
}

impl ArmResiduals {
    /// Returns each pixel's weighted mean residual over a window, divided by the typical error σ̄ of a pixel in it.
    ///
    /// With δ = data − model and w = ivar, summed over the n pixels of the window that count, the weighted mean is Σwδ
    /// / Σw and 1/σ̄² = Σw / n, so that the quotient is Σwδ / √(n Σw). Where fewer than half of the window's pixels
    /// count, or the middle one does not, it is NaN.
    pub fn running_mean(&self, window: MeanWindow) -> Vec<f64> {
        (0..self.ivar.len())
            .map(|j| self.mean_at(j, window))
            .collect()
    }

    /// Returns the weighted mean residual of the window around pixel `center` over its typical error; NaN where too few
    /// count.
    fn mean_at(&self, center: usize, window: MeanWindow) -> f64 {
        if self.ivar[center] == 0.0 {
            return f64::NAN;
        }
        let half_width = window.0 / 2;
        let first = center.saturating_sub(half_width);
        let last = (center + half_width).min(self.ivar.len() - 1);
        let mut count = 0.0;
        let mut weight_sum = 0.0;
        let mut weighted_sum = 0.0;
        for pixel in (first..=last).filter(|pixel| self.ivar[*pixel] > 0.0) {
            count += 1.0;
            weight_sum += self.ivar[pixel];
            weighted_sum += self.ivar[pixel] * self.difference[pixel];
        }
        if 2.0 * count < (last - first + 1) as f64 {
            f64::NAN
        } else {
            weighted_sum / (count * weight_sum).sqrt()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_widths_are_odd_and_bounded() {
        let window_width = |pixels: usize| MeanWindow::for_pixels(pixels).pixels();
        assert_eq!(
            [10, 600, 2751, 3741, 20_000].map(window_width),
            [5, 7, 27, 37, 101]
        );
    }

    #[test]
    fn running_mean_is_weighted_and_leaves_masked_pixels_out() {
        let difference = vec![1.0, 2.0, 1e9, 4.0, 2.0, 1.0];
        let ivar = vec![1.0, 4.0, 0.0, 1.0, 1.0, 1.0];
        let mean = ArmResiduals { difference, ivar }.running_mean(MeanWindow(5));
        // pixels 0, 1, 3 and 4 in the window around pixel 1, whose left end is cut off: pixels 0, 1 and 3
        assert!(
            (mean[1] - (1.0 + 8.0 + 4.0) / (3.0f64 * 6.0).sqrt()).abs() < 1e-12,
            "{mean:?}"
        );
        assert!(mean[2].is_nan());
        assert!((mean[5] - 7.0 / 3.0).abs() < 1e-12, "{mean:?}");
    }

    #[test]
    fn windows_of_mostly_masked_pixels_have_no_mean() {
        let mut ivar = vec![0.0; 9];
        ivar[4] = 1.0;
        let mean = ArmResiduals {
            difference: vec![1.0; 9],
            ivar,
        }
        .running_mean(MeanWindow(5));
        assert!(mean.iter().all(|x| x.is_nan()), "{mean:?}");
    }
}
