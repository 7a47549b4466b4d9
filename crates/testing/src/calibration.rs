//! Tests that errors are calibrated: pulls against the standard normal distribution, χ² against its own.

use statrs::distribution::{ChiSquared, ContinuousCDF, Normal};

use crate::nist::problems;
use crate::refits::{Refits, refit_nist, refit_synb};

/// The NIST problems that are refitted.
const REFITTED_PROBLEMS: [&str; 9] = [
    "Gauss1", "Chwirut1", "Misra1a", "DanWood", "Rat42", "Eckerle4", "ENSO", "Roszman1", "BoxBOD",
];
/// Shares of a normal distribution within one and two standard deviations.
const NORMAL_SHARES: [f64; 2] = [0.6827, 0.9545];
/// Number of refits for which the limits below hold. They are four standard deviations of the scatter.
const REFITS_OF_LIMITS: f64 = 20_000.0;
const MAX_MEAN_PULL: f64 = 0.028;
const MAX_DEVIATION_ERROR: f64 = 0.020;
const MAX_SHARE_ERRORS: [f64; 2] = [0.013, 0.006];
const MIN_P: f64 = 1e-4;

/// Refits every problem `count` times.
pub fn refit_all_problems(count: usize) -> Vec<Refits> {
    let problems = problems().unwrap();
    let find_problem = |name: &&str| {
        problems
            .iter()
            .find(|problem| problem.name == **name)
            .unwrap()
    };
    let curves = REFITTED_PROBLEMS
        .iter()
        .zip(1..)
        .map(|(name, seed)| refit_nist(find_problem(name), count, seed));
    curves.chain([refit_synb(count, 0)]).collect()
}

/// The pulls of one parameter.
pub struct Pulls {
    pub name: String,
    pub refits: usize,
    pub mean: f64,
    pub deviation: f64,
    /// Shares within one and two errors.
    pub within: [f64; 2],
    /// Kolmogorov–Smirnov against the standard normal.
    pub p: f64,
}

impl Pulls {
    fn new(name: String, pulls: &[f64]) -> Pulls {
        let count = pulls.len() as f64;
        let mean = pulls.iter().sum::<f64>() / count;
        let deviation =
            (pulls.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt();
        let within =
            [1.0, 2.0].map(|n| pulls.iter().filter(|x| x.abs() < n).count() as f64 / count);
        Pulls {
            name,
            refits: pulls.len(),
            mean,
            deviation,
            within,
            p: kolmogorov_smirnov_p(pulls, &Normal::standard()),
        }
    }

    pub fn print(&self) {
        let Pulls {
            name,
            mean,
            deviation,
            within: [one, two],
            p,
            ..
        } = self;
        println!(
            "{name:<16} {mean:8.4} {deviation:8.4} {:8.2} {:8.2} {p:9.4}",
            100.0 * one,
            100.0 * two
        );
    }

    /// Describes the statistics that are beyond their limits. NaN always is.
    fn faults(&self) -> Vec<String> {
        let wider = (REFITS_OF_LIMITS / self.refits as f64).sqrt();
        let shares =
            [0, 1].map(|k| (self.within[k] - NORMAL_SHARES[k]).abs() < MAX_SHARE_ERRORS[k] * wider);
        let checks = [
            (
                self.mean.abs() < MAX_MEAN_PULL * wider,
                format!("mean pull {:.4}", self.mean),
            ),
            (
                (self.deviation - 1.0).abs() < MAX_DEVIATION_ERROR * wider,
                format!("standard deviation {:.4}", self.deviation),
            ),
            (shares[0], format!("{:.4} within 1 error", self.within[0])),
            (shares[1], format!("{:.4} within 2 errors", self.within[1])),
            (
                self.p > MIN_P,
                format!("Kolmogorov-Smirnov p {:.1e}", self.p),
            ),
        ];
        checks
            .into_iter()
            .filter(|(good, _)| !good)
            .map(|(_, statistic)| format!("{}: {statistic}", self.name))
            .collect()
    }
}

/// Statistics of all refits.
pub struct Calibration {
    pub pulls: Vec<Pulls>,
    /// Problem, mean χ²/dof, Kolmogorov–Smirnov p of χ², failed fits.
    pub problems: Vec<(String, f64, f64, usize)>,
    /// Standard deviation of all pulls about 0, and the number of their fits. It reveals errors that are a little wrong
    /// everywhere.
    pub pooled: (f64, usize),
}

impl Calibration {
    /// Computes the statistics as if errors were multiplied by `scale` and parameters moved by `offset` true errors. 1
    /// and 0 give those of the refits themselves.
    pub fn new(all: &[Refits], scale: f64, offset: f64) -> Calibration {
        let mut rows = Vec::new();
        let mut squares = 0.0;
        let mut count = 0.0;
        for refits in all {
            for (name, pulls) in refits.parameters.iter().zip(&refits.pulls) {
                let pulls: Vec<f64> = pulls.iter().map(|pull| (pull + offset) / scale).collect();
                squares += pulls.iter().map(|x| x * x).sum::<f64>();
                count += pulls.len() as f64;
                rows.push(Pulls::new(format!("{} {name}", refits.problem), &pulls));
            }
        }
        let chi2 = |refits: &Refits| {
            let dof = refits.dof as f64;
            let mean = refits.chi2.iter().sum::<f64>() / refits.chi2.len() as f64 / dof;
            (
                refits.problem.clone(),
                mean,
                kolmogorov_smirnov_p(&refits.chi2, &ChiSquared::new(dof).unwrap()),
                refits.failed,
            )
        };
        let fits = all.iter().map(|refits| refits.chi2.len()).sum();
        let pooled = ((squares / count).sqrt(), fits);
        Calibration {
            pulls: rows,
            problems: all.iter().map(chi2).collect(),
            pooled,
        }
    }

    pub fn print(&self) {
        println!(
            "{:<16} {:>8} {:>8} {:>8} {:>8} {:>9}",
            "pulls of", "mean", "sd", "% in 1σ", "% in 2σ", "KS p"
        );
        self.pulls.iter().for_each(Pulls::print);
        println!(
            "{:<16} {:>8} {:>9} {:>7}",
            "chi2 of", "mean/dof", "KS p", "failed"
        );
        for (name, mean, p, failed) in &self.problems {
            println!("{name:<16} {mean:8.4} {p:9.4} {failed:7}");
        }
        println!(
            "all pulls: sd {:.4} from {} fits",
            self.pooled.0, self.pooled.1
        );
    }

    /// Describes the statistics that are beyond their limits.
    pub fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = self.pulls.iter().flat_map(Pulls::faults).collect();
        for (name, _, p, failed) in &self.problems {
            if *failed > 0 {
                faults.push(format!("{name}: {failed} fits failed"));
            }
            if p.is_nan() || *p <= MIN_P {
                faults.push(format!("{name}: chi2, Kolmogorov-Smirnov p {p:.1e}"));
            }
        }
        faults.extend(self.pooled_fault());
        faults
    }

    /// Pulls of one fit are correlated, so that there are as many independent ones as fits, at least.
    pub fn pooled_fault(&self) -> Option<String> {
        let (deviation, fits) = self.pooled;
        let good =
            (deviation - 1.0).abs() < MAX_DEVIATION_ERROR * (REFITS_OF_LIMITS / fits as f64).sqrt();
        (!good).then(|| format!("all pulls: standard deviation {deviation:.4}"))
    }
}

/// Tail probability of the Kolmogorov–Smirnov distance between a sample and a distribution (Stephens 1970).
fn kolmogorov_smirnov_p(sample: &[f64], distribution: &impl ContinuousCDF<f64, f64>) -> f64 {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let distance_at = |(k, x): (usize, &f64)| {
        let cdf = distribution.cdf(*x);
        (cdf - k as f64 / count)
            .abs()
            .max((cdf - (k + 1) as f64 / count).abs())
    };
    let distance = sorted
        .iter()
        .enumerate()
        .map(distance_at)
        .fold(0.0, f64::max);
    let scaled = (count.sqrt() + 0.12 + 0.11 / count.sqrt()) * distance;
    // The series does not converge near 0, where the probability is 1.
    if scaled < 0.2 {
        return 1.0;
    }
    let term =
        |k: i32| f64::from(1 - 2 * (k % 2)) * (-2.0 * f64::from(k * k) * scaled * scaled).exp();
    (-2.0 * (1..100).map(term).sum::<f64>()).clamp(0.0, 1.0)
}
