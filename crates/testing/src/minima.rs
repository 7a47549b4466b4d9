//! Minima of everyday regressions: fits beside those from other starts.

use popfit::{CurveColumns, CurveFitter, CurveModel, Curves, Device, Flags, Formula, Result};

use crate::random::Random;
use crate::regressions::{Regression, Sample};

/// Number of other starts, the first of which is the truth.
const OTHER_STARTS: usize = 12;
/// Spread of the other starts about the truth, as a share of it.
const START_SPREAD: f64 = 0.5;
/// Maximum excess of χ² over the lowest minimum, as a share of it, of a fit that has found that minimum.
const MAX_CHI2_EXCESS: f64 = 1e-4;
/// Largest squared sine between parallel columns of the Jacobian.
const MAX_SQUARED_SINE: f64 = 1e-8;

/// Fits of a sample beside the lowest of fits from other starts.
#[derive(Debug, Default)]
pub struct Minima {
    /// Fits without success.
    pub failures: usize,
    /// Successes above the lowest χ² that another start has found.
    pub above: usize,
    /// Those of them whose data do not determine a parameter.
    pub undetermined: usize,
    /// Those of them that ended where two columns of the Jacobian are parallel.
    pub parallel: usize,
}

impl Regression {
    /// Fits a sample of curves to columns on the CPU, and again from the truth and from starts around it.
    ///
    /// # Errors
    ///
    /// Those of the fitter.
    pub fn minima(&'static self, sample: Sample) -> Result<Minima> {
        // 1. Fit from the starts of the sample.
        let formula = Formula::parse(self.formula)?;
        let names = formula.parameters().to_vec();
        let noisy = self.draw(&names, sample);
        let model = CurveModel::from(formula);
        let fitter = CurveFitter::new(model.clone(), Device::cpu());
        let fit_from = |starts: &[f64]| {
            fitter.fit_columns(&Curves::on_common_grid(&noisy.x[..], &noisy.y[..], starts))
        };
        let fits = fit_from(&noisy.starts)?;
        // 2. Find the lowest χ² of each curve from other starts.
        let mut lowest_chi2 = vec![f64::INFINITY; sample.curves];
        let mut random = Random(sample.seed);
        for k in 0..OTHER_STARTS {
            let spread = if k == 0 { 0.0 } else { START_SPREAD };
            let starts: Vec<f64> = noisy
                .truths
                .iter()
                .map(|truth| truth * (1.0 + spread * random.normal()))
                .collect();
            let other_fits = fit_from(&starts)?;
            for (curve, lowest) in lowest_chi2.iter_mut().enumerate() {
                if other_fits.status[curve].is_success() {
                    *lowest = lowest.min(other_fits.chi2[curve]);
                }
            }
        }
        // 3. Compare.
        let mut minima = Minima::default();
        for (k, lowest) in lowest_chi2.into_iter().enumerate() {
            if !fits.status[k].is_success() {
                minima.failures += 1;
            } else if fits.chi2[k] > lowest * (1.0 + MAX_CHI2_EXCESS) {
                minima.above += 1;
                minima.undetermined += usize::from(fits.flags[k].contains(Flags::UNDETERMINED));
                minima.parallel += usize::from(is_degenerate(&model, &noisy.x, &fits, k)?);
            }
        }
        Ok(minima)
    }
}

/// Returns whether two columns of the Jacobian are parallel at the end of fit `k`.
fn is_degenerate(model: &CurveModel, x: &[f64], fits: &CurveColumns, k: usize) -> Result<bool> {
    let count = fits.names().len();
    let rows = model.linearise(x, &fits.parameters[k * count..(k + 1) * count])?;
    let columns: Vec<&[f64]> = rows.chunks(x.len()).skip(1).collect();
    let dot = |p: usize, q: usize| {
        columns[p]
            .iter()
            .zip(columns[q])
            .map(|(a, b)| a * b)
            .sum::<f64>()
    };
    let sine_square = |p: usize, q: usize| 1.0 - (dot(p, q) / dot(p, p)) * (dot(p, q) / dot(q, q));
    Ok((0..count).any(|q| (0..q).any(|p| sine_square(p, q).abs() <= MAX_SQUARED_SINE)))
}
