//! Workloads of the benchmark: spectra or curves, where the fits start, and the objective in f64 that every answer is
//! judged by.

use std::collections::HashSet;

use argmin::core::CostFunction;
use popfit::low_level::recording::Precision;
use popfit::{
    Arm, Continuum, CurveFitter, Device, Emulator, Error, Interpolation, LevenbergMarquardt,
    NelderMead, Result, Solver, Spectra, SpectralFitter, SpectralModel,
};
use popfit_argmin::Problems;

use super::gauss::Gauss;
use super::peers::TOLERANCE;
use popfit_testing::noisy::noisy_templates;

/// Spectra of the repository.
const REFERENCE: &str = "tests/data/synb/fixed_vsini/spectra.npz";

/// Points at which fits end, in the parameters' units, and their cost.
#[derive(Default)]
pub struct Answers {
    /// (fits, parameters of a fit)
    pub parameters: Vec<f64>,
    pub evaluations: f64,
}

impl Answers {
    /// Splits the fitted parameters of `count` fits into a vector for each.
    pub fn by_fit(&self, count: usize) -> Vec<Vec<f64>> {
        let width = self.parameters.len() / count.max(1);
        self.parameters
            .chunks_exact(width.max(1))
            .map(<[f64]>::to_vec)
            .collect()
    }
}

/// Many fits of one kind.
pub enum Workload {
    Spectra(Box<Stars>),
    Gauss(Gauss),
}

/// Spectra, all from given starts.
pub struct Stars {
    name: &'static str,
    /// Origin of the spectra.
    data: String,
    model: SpectralModel,
    spectra: Spectra<'static>,
    /// (spectra, parameters)
    starts: Vec<f64>,
    problems: Problems,
    judges: Problems,
}

impl Workload {
    /// Returns the benchmark's three workloads; small ones if `quick`.
    pub fn all(quick: bool) -> Result<Vec<Workload>> {
        let counts = if quick {
            (64, 64, 2000)
        } else {
            (128, 512, 1_000_000)
        };
        Ok(vec![
            Workload::Spectra(Box::new(synb(counts.0)?)),
            Workload::Spectra(Box::new(bare_emulator(counts.1)?)),
            Workload::Gauss(Gauss::new(counts.2)?),
        ])
    }

    /// Returns the workload's name for tables.
    pub fn name(&self) -> &'static str {
        match self {
            Workload::Spectra(stars) => stars.name,
            Workload::Gauss(_) => "gauss2d",
        }
    }

    /// Returns the number of fits.
    pub fn fits(&self) -> usize {
        match self {
            Workload::Spectra(stars) => stars.spectra.len(),
            Workload::Gauss(gauss) => gauss.len(),
        }
    }

    /// Returns a description of the data, with the number of fits.
    pub fn data(&self) -> String {
        let of = match self {
            Workload::Spectra(stars) => stars.data.clone(),
            Workload::Gauss(gauss) => gauss.data(),
        };
        format!("{} fits: {of}", self.fits())
    }

    /// Returns the number of data points of a fit.
    pub fn points(&self) -> usize {
        match self {
            Workload::Spectra(stars) => stars.spectra.arms.first().map_or(1, |arm| arm.pixels),
            Workload::Gauss(_) => Gauss::POINTS,
        }
    }

    /// Returns the fits that other crates' solvers take part in (all, or the first ones), as problems on the CPU.
    pub fn problems(&self) -> &Problems {
        match self {
            Workload::Spectra(stars) => &stars.problems,
            Workload::Gauss(gauss) => &gauss.problems,
        }
    }

    /// Returns how many of the first `count` fits start at the same point as an earlier one.
    pub fn repeats(&self, count: usize) -> usize {
        let Workload::Spectra(stars) = self else {
            return 0;
        };
        let Stars {
            starts, spectra, ..
        } = &**stars;
        let width = starts.len() / spectra.len().max(1);
        let bits = |start: &[f64]| start.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let different: HashSet<Vec<u64>> = starts
            .chunks_exact(width.max(1))
            .take(count)
            .map(bits)
            .collect();
        count - different.len()
    }

    /// Returns popfit's solvers to time, with names: Levenberg–Marquardt (default: 1e-9 of the objective, tighter than
    /// the peers), and Nelder–Mead with and without a linearisation.
    pub fn solvers(&self) -> [(&'static str, Solver); 3] {
        let simplex = NelderMead::default().fatol(TOLERANCE);
        [
            ("popfit lm", LevenbergMarquardt::default().into()),
            ("popfit nelder-mead", simplex.into()),
            ("popfit nelder-mead alone", simplex.linearise(false).into()),
        ]
    }

    /// Fits the first `count` curves or spectra by popfit with this solver on this device.
    pub fn popfit(&self, device: &Device, solver: Solver, count: usize) -> Result<Answers> {
        match self {
            Workload::Spectra(stars) => stars.fit(device, solver, Precision::F32, count),
            Workload::Gauss(gauss) => gauss.fit(device, solver, false, count),
        }
    }

    /// Fits the first `count` curves or spectra as exactly as popfit can: in f64, and curves to the last digit.
    pub fn reference(&self, count: usize) -> Result<Answers> {
        let cpu = Device::cpu();
        match self {
            Workload::Spectra(stars) => stars.fit(
                &cpu,
                LevenbergMarquardt::default().into(),
                Precision::F64,
                count,
            ),
            Workload::Gauss(gauss) => {
                gauss.fit(&cpu, CurveFitter::LEVENBERG_MARQUARDT.into(), true, count)
            }
        }
    }

    /// Returns the objective of each answer (fitted parameters), computed in f64; ∞ for an empty answer.
    pub fn judge(&self, answers: &[Vec<f64>]) -> Result<Vec<f64>> {
        match self {
            Workload::Spectra(stars) => stars.judge(answers),
            Workload::Gauss(gauss) => Ok(gauss.judge(answers)),
        }
    }
}

impl Stars {
    /// Makes a workload of spectra from `starts` (spectra, parameters) in the parameters' units, or else from first
    /// guesses.
    fn new(
        name: &'static str,
        data: String,
        model: SpectralModel,
        spectra: Spectra,
        starts: Option<Vec<f64>>,
    ) -> Result<Stars> {
        let fitter = |precision| {
            let fitter = SpectralFitter::new(model.clone(), Device::cpu());
            Ok::<_, Error>(fitter.precision(precision))
        };
        let problems = Problems::of_spectra(&fitter(Precision::F32)?, &spectra)?;
        let problems = match &starts {
            Some(starts) => problems.with_starts(starts)?,
            None => problems,
        };
        let judges = Problems::of_spectra(&fitter(Precision::F64)?, &spectra)?;
        Ok(Stars {
            name,
            data,
            model,
            spectra: spectra.into_owned(),
            starts: problems.starts(),
            problems,
            judges,
        })
    }

    /// Fits the first `count` spectra from the workload's starts, and returns parameters and count of evaluations.
    fn fit(
        &self,
        device: &Device,
        solver: Solver,
        precision: Precision,
        count: usize,
    ) -> Result<Answers> {
        let fitter = SpectralFitter::new(self.model.clone(), device.clone())
            .solver(solver)
            .precision(precision);
        let width = fitter.parameters().len();
        let table =
            fitter.fit_from(&self.spectra.slice(0..count), &self.starts[..count * width])?;
        let evaluations = table.evaluations().iter().copied().map(f64::from).sum();
        Ok(Answers {
            parameters: table
                .to_rows()
                .into_iter()
                .flat_map(|row| row.parameters)
                .collect(),
            evaluations,
        })
    }

    /// Returns the objective of each answer in f64, with parameters moved inside the bounds; ∞ for an empty answer.
    fn judge(&self, answers: &[Vec<f64>]) -> Result<Vec<f64>> {
        let mut judge = self.judges.problem(0)?;
        let (lower, upper) = judge.bounds();
        let mut objectives = Vec::with_capacity(answers.len());
        for (k, answer) in answers.iter().enumerate() {
            if answer.is_empty() {
                objectives.push(f64::INFINITY);
                continue;
            }
            judge.turn_to(&self.judges, k)?;
            // who knows no bounds is put on them
            let u = judge.scaled(answer);
            let inside = u
                .iter()
                .zip(lower.iter().zip(&upper))
                .map(|(u, (low, high))| u.clamp(*low, *high))
                .collect();
            objectives.push(judge.cost(&inside).unwrap_or(f64::INFINITY));
        }
        Ok(objectives)
    }
}

/// Returns the workload of the repository's reference spectra, at most `count`, with velocity and continuum.
fn synb(count: usize) -> Result<Stars> {
    let words = format!("the reference spectra ({REFERENCE}), with velocity and continuum");
    let spectra = popfit_testing::fits::synb_spectra();
    let spectra = spectra.slice(0..count.min(spectra.len()));
    let model = SpectralModel::builder()
        .arm("", Emulator::open(popfit_testing::demo_emulator())?)
        .velocity(-1000.0..=1000.0)
        .continuum(Continuum::rbf(10))
        .build()?;
    Stars::new("synb", words, model, spectra, None)
}

/// Returns the workload of `count` noisy templates, fitted without velocity and continuum.
fn bare_emulator(count: usize) -> Result<Stars> {
    let emulator = Emulator::open(popfit_testing::demo_emulator())?;
    let (spectra, starts) = noisy_templates(&emulator, count)?;
    let arm = Arm::new("", emulator)
        .interpolation(Interpolation::Linear)
        .continuum(Continuum::none());
    let words = "noisy templates of the demo's emulator, without velocity and continuum".to_owned();
    Stars::new(
        "emulator",
        words,
        SpectralModel::builder().add_arm(arm).build()?,
        spectra,
        Some(starts),
    )
}
