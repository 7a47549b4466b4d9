//! Refits of data that are drawn from a model whose parameters are known.

use popfit::{ArmFit, CurveFitter, Curves, Device, FitRow, FitTable, Spectra, SpectralFitter};

use crate::demo_builder;
use crate::fits::demo_spectra;
use crate::nist::NistProblem;
use crate::random::Random;

/// Largest distance of starts from the truth, in errors.
const MAX_START_OFFSET_IN_ERRORS: f64 = 2.0;
/// Ratio of the noise of the NIST refits to the scatter of the problem's residuals. At the full scatter some problems
/// are curved within their errors.
const NIST_NOISE_RATIO: f64 = 0.1;
/// Index of the demo spectrum whose fit, far from all bounds, is the truth.
const REFITTED_SPECTRUM: usize = 51;
/// Number of refits that are in memory together.
const REFITS_IN_MEMORY: usize = 1000;

/// Results of the refits of one problem. P is the number of parameters.
pub struct Refits {
    pub problem: String,
    pub parameters: Vec<String>,
    /// (P, refits): (found − true) / error.
    pub pulls: Vec<Vec<f64>>,
    /// (refits)
    pub chi2: Vec<f64>,
    /// Degrees of freedom of every refit.
    pub dof: i64,
    /// Refits whose status is no success.
    pub failed: usize,
}

impl Refits {
    fn new(problem: &str, parameters: &[String]) -> Refits {
        let pulls = vec![Vec::new(); parameters.len()];
        Refits {
            problem: problem.into(),
            parameters: parameters.into(),
            pulls,
            chi2: Vec::new(),
            dof: 0,
            failed: 0,
        }
    }

    fn push(&mut self, truth: &[f64], found: &[f64], errors: &[f64]) {
        for (p, pulls) in self.pulls.iter_mut().enumerate() {
            pulls.push((found[p] - truth[p]) / errors[p]);
        }
    }
}

/// Draws a start near the truth.
fn draw_start(random: &mut Random, truth: &[f64], errors: &[f64]) -> Vec<f64> {
    truth
        .iter()
        .zip(errors)
        .map(|(t, e)| t + MAX_START_OFFSET_IN_ERRORS * e * (2.0 * random.uniform() - 1.0))
        .collect()
}

/// Refits a NIST problem `count` times. The data are drawn from the certified values with a tenth of its noise, which
/// the fits are given.
pub fn refit_nist(problem: &NistProblem, count: usize, seed: u64) -> Refits {
    let mut random = Random(seed);
    let errors: Vec<f64> = problem
        .certified_errors
        .iter()
        .map(|e| NIST_NOISE_RATIO * e)
        .collect();
    let clean = problem
        .formula
        .values(&problem.x, &problem.certified)
        .unwrap();
    let sigma = NIST_NOISE_RATIO * scatter(problem, &clean);
    let mut y = Vec::new();
    let mut starts = Vec::new();
    for _ in 0..count {
        y.extend(clean.iter().map(|m| m + sigma * random.normal()));
        starts.extend(draw_start(&mut random, &problem.certified, &errors));
    }
    let sigmas = vec![sigma; y.len()];
    let fitter = CurveFitter::new(problem.formula.clone(), Device::cpu()).absolute_sigma(true);
    let mut refits = Refits::new(&problem.name, problem.formula.parameters());
    for fit in fitter
        .fit(&Curves::on_common_grid(problem.x.clone(), y, starts).sigma(sigmas))
        .unwrap()
    {
        refits.push(&problem.certified, &fit.parameters, &fit.errors);
        refits.chi2.push(fit.chi2);
        refits.dof = fit.dof;
        refits.failed += usize::from(!fit.status.is_success());
    }
    refits
}

/// Returns the standard deviation of the problem's residuals from its certified model.
fn scatter(problem: &NistProblem, model: &[f64]) -> f64 {
    let chi2: f64 = problem
        .y
        .iter()
        .zip(model)
        .map(|(y, m)| (y - m).powi(2))
        .sum();
    (chi2 / (model.len() - problem.certified.len()) as f64).sqrt()
}

/// Refits one of the demo's spectra with velocity and continuum `count` times. The truth is its fit, and the noise
/// follows its ivar.
pub fn refit_synb(count: usize, seed: u64) -> Refits {
    let fitter = SpectralFitter::new(demo_builder("").build().unwrap(), Device::cpu());
    let (truth, arm) = demo_spectrum(&fitter);
    let mut random = Random(seed);
    let mut refits = Refits::new("synb", &fitter.parameters());
    for first in (0..count).step_by(REFITS_IN_MEMORY) {
        let fits = REFITS_IN_MEMORY.min(count - first);
        let spectra = draw_spectra(&arm, fits, &mut random);
        let starts: Vec<f64> = (0..fits)
            .flat_map(|_| draw_start(&mut random, &truth.parameters, &truth.errors))
            .collect();
        add_rows(
            &mut refits,
            &truth.parameters,
            &fitter.fit_from(&spectra, &starts).unwrap(),
        );
    }
    refits
}

/// Returns the fit, which is the truth, and the model of the demo spectrum that is refitted.
pub fn demo_spectrum(fitter: &SpectralFitter) -> (FitRow, ArmFit) {
    let spectrum = demo_spectra().slice(REFITTED_SPECTRUM..REFITTED_SPECTRUM + 1);
    let truth = fitter.fit(&spectrum).unwrap().row(0);
    let arm = fitter
        .model_spectrum(&spectrum, &truth)
        .unwrap()
        .swap_remove(0);
    (truth, arm)
}

/// Draws spectra with the model of `arm` and noise by its errors.
pub fn draw_spectra(arm: &ArmFit, count: usize, random: &mut Random) -> Spectra<'static> {
    let mut flux = Vec::new();
    let mut ivar = Vec::new();
    for _ in 0..count {
        for ((model, error), mask) in arm.model.iter().zip(&arm.error).zip(&arm.mask) {
            flux.push(if *mask {
                0.0
            } else {
                model + error * random.normal()
            });
            ivar.push(if *mask { 0.0 } else { error.powi(-2) });
        }
    }
    Spectra::from_arrays(
        arm.wavelength.clone(),
        flux,
        ivar,
        Some(arm.mask.repeat(count)),
        None,
    )
    .unwrap()
}

fn add_rows(refits: &mut Refits, truth: &[f64], table: &FitTable) {
    for row in table.to_rows() {
        refits.push(truth, &row.parameters, &row.errors);
        refits.chi2.push(row.chi2);
        refits.dof = row.dof;
        refits.failed += usize::from(!row.status.is_success());
    }
}
