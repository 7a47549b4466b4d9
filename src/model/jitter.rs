//! Fitted jitter: how much larger the errors of an arm are than stated (see `docs/src/equations.md`, section 16).
//!
//! Errors are larger by a fraction s of the model's flux m, added in quadrature, or by a factor k:
//!
//! ```text
//! V = σ² + s² m²   or   V = k² σ²,   k ≥ 1.
//! ```
//!
//! With the residuals r of a fit, s and k maximise
//!
//! ```text
//! ln L = −½ Σ (κ r² / V + ln V),
//! ```
//!
//! and the likelier of the two is used. The factor κ = N / dof corrects the residuals for the parameters that were
//! fitted to them, so that with a factor k χ² = dof. The Fisher information of s² or k² and of the parameters of m is
//! block diagonal, because the normal distribution is symmetric. The errors of the parameters are therefore those at a
//! known jitter.

/// Maximum number of steps of Fisher scoring.
const MAX_STEPS: usize = 60;
/// Relative change of the excess variance at which Fisher scoring ends.
const RELATIVE_TOLERANCE: f64 = 1e-6;

/// Jitter of one arm of a spectrum.
#[derive(Clone, Debug)]
pub struct ArmJitter {
    /// Fraction s of the model's flux; 0 if a factor is likelier, and NaN for an arm without pixels that count.
    pub fraction: f64,
    /// Standard error of s; NaN where s is 0.
    pub error: f64,
    /// Factor k of the errors; 1 if a fraction is likelier, and NaN for an arm without pixels that count.
    pub factor: f64,
    /// (pixels) Flux m of the model at which s was found, in the units of the data.
    pub flux: Vec<f64>,
    /// Mean change of the variances V that this jitter makes, relative to V.
    pub change: f64,
}

/// One pixel, as the jitter depends on it. All are in units of the flux squared.
pub struct JitterPixel {
    /// Variance σ² without jitter.
    pub variance: f64,
    /// Variance V of the fit that has ended.
    pub earlier_variance: f64,
    /// Square of the model's flux m.
    pub flux_squared: f64,
    /// Square of the residual r, times κ.
    pub residual_squared: f64,
}

/// Excess variance v of the greatest likelihood, where V = σ² + v g with a shape g.
struct Excess {
    /// Value v, which is not negative.
    value: f64,
    /// Σ (g / V)², twice the Fisher information of v.
    information: f64,
    /// −2 ln L.
    deviance: f64,
}

impl ArmJitter {
    /// Finds the jitter of the greatest likelihood, given the pixels that count and the model's flux (pixels).
    pub fn fit(pixels: &[JitterPixel], flux: Vec<f64>) -> ArmJitter {
        let mut jitter = ArmJitter {
            fraction: f64::NAN,
            error: f64::NAN,
            factor: f64::NAN,
            flux,
            change: 0.0,
        };
        if pixels.is_empty() {
            return jitter;
        }
        let of_flux = Excess::maximise_likelihood(pixels, |pixel| pixel.flux_squared);
        let of_errors = Excess::maximise_likelihood(pixels, |pixel| pixel.variance);
        (jitter.fraction, jitter.factor) = (0.0, 1.0);
        if of_errors.deviance < of_flux.deviance {
            jitter.factor = (1.0 + of_errors.value).sqrt();
        } else if of_flux.value > 0.0 {
            // The information of s² is Σ (m² / V)² / 2, and ds² = 2 s ds.
            jitter.fraction = of_flux.value.sqrt();
            jitter.error = (0.5 * of_flux.information).sqrt().recip() / (2.0 * jitter.fraction);
        }
        let relative_changes = pixels.iter().map(|pixel| {
            let variance = jitter.enlarge(pixel.variance, pixel.flux_squared);
            (variance / pixel.earlier_variance - 1.0).abs()
        });
        jitter.change = relative_changes.sum::<f64>() / pixels.len() as f64;
        jitter
    }

    /// Returns the variance V of a pixel from its variance σ² and the square of the model's flux.
    fn enlarge(&self, variance: f64, flux_squared: f64) -> f64 {
        self.factor.powi(2) * variance + self.fraction.powi(2) * flux_squared
    }

    /// Returns the variance σ² of pixel `j` from its variance V.
    pub fn reduce(&self, variance: f64, j: usize) -> f64 {
        (variance - (self.fraction * self.flux[j]).powi(2)) / self.factor.powi(2)
    }

    /// Lowers the inverse variances of an arm's pixels by this jitter. Returns Σ ln (V / σ²). Pixels without weight
    /// keep none, and all pixels do if the jitter is NaN.
    pub fn lower_weights(&self, ivar: &mut [f64]) -> f64 {
        let mut log_ratios = 0.0;
        for (w, flux) in ivar.iter_mut().zip(&self.flux) {
            if *w > 0.0 && self.factor.is_finite() {
                // V / σ² without a quotient that overflows
                let added = self.fraction * flux;
                let ratio = self.factor * self.factor + *w * added * added;
                *w /= ratio;
                log_ratios += ratio.ln();
            }
        }
        log_ratios
    }
}

impl Excess {
    /// Finds the excess variance of a shape by Fisher scoring.
    fn maximise_likelihood(pixels: &[JitterPixel], shape: fn(&JitterPixel) -> f64) -> Excess {
        let mut excess = Excess {
            value: 0.0,
            information: 0.0,
            deviance: 0.0,
        };
        let [mut lower, mut upper] = [0.0, f64::INFINITY];
        for step in 0..MAX_STEPS {
            // 1. Sum the derivative of 2 ln L by v, and its information.
            let mut score = 0.0;
            excess.information = 0.0;
            for pixel in pixels {
                let variance = pixel.variance + excess.value * shape(pixel);
                let share = shape(pixel) / variance;
                score += share * (pixel.residual_squared / variance - 1.0);
                excess.information += share * share;
            }
            // 2. The likelihood of errors that suffice falls from v = 0 on.
            if excess.information <= 0.0 || (step == 0 && score <= 0.0) {
                break;
            }
            // 3. Step, within the interval in which the maximum lies.
            if score > 0.0 {
                lower = excess.value;
            } else {
                upper = excess.value;
            }
            let scored = excess.value + score / excess.information;
            let next = if scored > lower && scored < upper {
                scored
            } else {
                0.5 * (lower + upper)
            };
            if (next - excess.value).abs() <= RELATIVE_TOLERANCE * next {
                break;
            }
            excess.value = next;
        }
        for pixel in pixels {
            let variance = pixel.variance + excess.value * shape(pixel);
            excess.deviance += pixel.residual_squared / variance + variance.ln();
        }
        excess
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use popfit_testing::random::Random;

    /// The fraction and its error of drawn pixels with errors of many sizes, and 0 where the errors suffice.
    #[test]
    fn drawn_jitter_is_found_within_its_error() {
        let mut pulls = Vec::new();
        for seed in 0..200 {
            let mut random = Random(seed);
            let fraction = 0.02 + 0.1 * random.uniform();
            let pixels: Vec<JitterPixel> = (0..2000)
                .map(|_| {
                    let flux = 1.0 + 4.0 * random.uniform();
                    let variance = (0.02 + 0.2 * random.uniform()).powi(2);
                    let total = variance + (fraction * flux).powi(2);
                    JitterPixel {
                        variance,
                        earlier_variance: variance,
                        flux_squared: flux * flux,
                        residual_squared: total * random.normal().powi(2),
                    }
                })
                .collect();
            let jitter = ArmJitter::fit(&pixels, Vec::new());
            pulls.push((jitter.fraction - fraction) / jitter.error);
        }
        let mean_square = pulls.iter().map(|pull| pull * pull).sum::<f64>() / pulls.len() as f64;
        assert!((0.75..1.3).contains(&mean_square), "{mean_square}");
    }

    #[test]
    fn errors_that_suffice_need_no_jitter() {
        let pixel = |variance: f64, residual_squared: f64| JitterPixel {
            variance,
            earlier_variance: variance,
            flux_squared: 4.0,
            residual_squared,
        };
        let jitter = ArmJitter::fit(&[pixel(1.0, 0.9), pixel(2.0, 1.7)], Vec::new());
        assert_eq!(
            (jitter.fraction, jitter.factor, jitter.change),
            (0.0, 1.0, 0.0)
        );
        assert!(jitter.error.is_nan());
        // Variances that are too small by one factor
        let jitter = ArmJitter::fit(&[pixel(1.0, 9.0), pixel(2.0, 18.0)], Vec::new());
        assert!(
            (jitter.factor - 3.0).abs() < 1e-5 && jitter.fraction == 0.0,
            "{jitter:?}"
        );
        assert!((jitter.change - 8.0).abs() < 1e-4, "{jitter:?}");
        // One term for all: V = r².
        let jitter = ArmJitter::fit(&[pixel(1.0, 9.0), pixel(2.0, 10.0)], Vec::new());
        assert!(
            (jitter.fraction - 2f64.sqrt()).abs() < 1e-5 && jitter.factor == 1.0,
            "{jitter:?}"
        );
        assert!(ArmJitter::fit(&[], Vec::new()).fraction.is_nan());
    }
}
