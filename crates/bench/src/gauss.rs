//! Gpufit's performance test: a Gauss function on 5 × 5 pixels, five parameters, a million fits.

use popfit::{CurveFitter, Curves, Device, Formula, Result, Solver};
use popfit_argmin::Problems;

use super::workload::Answers;
use popfit_testing::sequence::Sequence;

/// Pixels along a side.
const SIDE: usize = 5;
const PARAMETERS: usize = 5;
/// Amplitude, centre, width and offset.
const TRUTH: [f64; PARAMETERS] = [500.0, 2.0, 2.0, 1.0, 10.0];
/// Scatter of truths around these, and of starts around truths: relative, but for the centre, which moves by this many
/// pixels.
const SCATTER: f64 = 0.2;
/// Curves that are fitted by one call.
const CHUNK: usize = 100_000;
/// Most fits that peers take part in.
const PEERS: usize = 4096;

pub struct Gauss {
    /// The place in [`TRUTH`] of each of the formula's parameters.
    order: Vec<usize>,
    /// (curves, points)
    pub y: Vec<f64>,
    sigma: Vec<f64>,
    /// (curves, parameters)
    pub starts: Vec<f64>,
    /// All of it, ready to be fitted.
    parts: Vec<Curves<'static>>,
    pub problems: Problems,
}

impl Gauss {
    pub const POINTS: usize = SIDE * SIDE;

    /// Makes `count` noisy Gauss functions on 5 × 5 pixels, and a start for each, from fixed random numbers.
    pub fn new(count: usize) -> Result<Gauss> {
        let order: Vec<usize> = formula()?
            .parameters()
            .iter()
            .map(|name| place(name))
            .collect();
        let mut random = Sequence(11);
        let (mut y, mut sigma, mut starts) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let truth = scattered(&TRUTH, &mut random);
            for j in 0..Self::POINTS {
                let clean = value(&truth, j);
                y.push(clean + clean.sqrt() * random.normal());
                sigma.push(clean.sqrt());
            }
            let start = scattered(&truth, &mut random);
            starts.extend(order.iter().map(|&p| start[p]));
        }
        let few = count.min(PEERS);
        let problems = Problems::of_curves(
            &fitter(Device::cpu())?,
            &curves(&y, &sigma, &starts, 0..few),
        )?;
        let parts = Vec::new();
        let mut gauss = Gauss {
            order,
            y,
            sigma,
            starts,
            parts,
            problems,
        };
        gauss.parts = gauss.cut(count);
        Ok(gauss)
    }

    /// Returns the first `count` curves, in parts that one call can fit.
    fn cut(&self, count: usize) -> Vec<Curves<'static>> {
        let part = |start| {
            curves(
                &self.y,
                &self.sigma,
                &self.starts,
                start..(start + CHUNK).min(count),
            )
        };
        (0..count).step_by(CHUNK).map(part).collect()
    }

    /// Returns the number of curves.
    pub fn len(&self) -> usize {
        self.starts.len() / PARAMETERS
    }

    /// Returns a description of the data.
    pub fn data(&self) -> String {
        let peers = self.problems.len();
        format!(
            "Gauss functions of 5 parameters on 5 × 5 pixels; peers take part in the first {peers}"
        )
    }

    /// Fits the first `count` curves, to the last digit if `polish`; returns parameters and count of evaluations.
    pub fn fit(
        &self,
        device: &Device,
        solver: Solver,
        polish: bool,
        count: usize,
    ) -> Result<Answers> {
        let fitter = fitter(device.clone())?.solver(solver).polish(polish);
        let mut answers = Answers::default();
        let cut = if count == self.len() {
            Vec::new()
        } else {
            self.cut(count)
        };
        for part in if cut.is_empty() { &self.parts } else { &cut } {
            if matches!(solver, Solver::LevenbergMarquardt(_)) && !polish {
                let columns = fitter.fit_columns(part)?;
                answers.evaluations += columns
                    .rounds
                    .iter()
                    .map(|rounds| f64::from(*rounds))
                    .sum::<f64>();
                answers.parameters.extend_from_slice(&columns.parameters);
                continue;
            }
            for fit in fitter.fit(part)? {
                answers.evaluations += f64::from(fit.evaluations);
                answers.parameters.extend(fit.parameters);
            }
        }
        Ok(answers)
    }

    /// Returns χ² of each answer (fitted parameters), ∞ for one without all parameters.
    pub fn judge(&self, answers: &[Vec<f64>]) -> Vec<f64> {
        let chi2 = |(k, answer): (usize, &Vec<f64>)| {
            if answer.len() != PARAMETERS {
                return f64::INFINITY;
            }
            let mut parameters = TRUTH;
            self.order
                .iter()
                .zip(answer)
                .for_each(|(&p, x)| parameters[p] = *x);
            let point = |j: usize| {
                (self.y[k * Self::POINTS + j] - value(&parameters, j))
                    / self.sigma[k * Self::POINTS + j]
            };
            (0..Self::POINTS).map(|j| point(j).powi(2)).sum()
        };
        answers.iter().enumerate().map(chi2).collect()
    }
}

/// Returns the built-in two-dimensional Gauss function.
pub fn formula() -> Result<Formula> {
    Formula::builtin("gauss2d")
}

/// Returns a fitter of the Gauss function on this device, with bounds, which the particle swarm needs.
fn fitter(device: Device) -> Result<CurveFitter> {
    let fitter = CurveFitter::new(formula()?, device)
        .bounds("a", 1.0, 5000.0)
        .bounds("x0", -1.0, 5.0)
        .bounds("y0", -1.0, 5.0)
        .bounds("s", 0.2, 5.0)
        .bounds("c", -100.0, 500.0);
    Ok(fitter)
}

/// Returns the curves with indices in `range`, with their errors and starts.
fn curves(
    y: &[f64],
    sigma: &[f64],
    starts: &[f64],
    range: std::ops::Range<usize>,
) -> Curves<'static> {
    let part =
        |values: &[f64], width: usize| values[range.start * width..range.end * width].to_vec();
    Curves::on_common_grid(grid(), part(y, Gauss::POINTS), part(starts, PARAMETERS))
        .sigma(part(sigma, Gauss::POINTS))
}

/// Returns the coordinates of the pixels: (2, points).
pub fn grid() -> Vec<f64> {
    let coordinate = |pick: fn(usize) -> usize| (0..Gauss::POINTS).map(move |j| pick(j) as f64);
    coordinate(|j| j % SIDE)
        .chain(coordinate(|j| j / SIDE))
        .collect()
}

/// Returns the index in [`TRUTH`] of the parameter with this name.
fn place(name: &str) -> usize {
    ["a", "x0", "y0", "s", "c"]
        .iter()
        .position(|other| *other == name)
        .unwrap_or(0)
}

/// Returns the parameters moved at random: the centre by fractions of a pixel, the others in proportion to their
/// values.
fn scattered(centre: &[f64; PARAMETERS], random: &mut Sequence) -> [f64; PARAMETERS] {
    let mut out = *centre;
    for (p, x) in out.iter_mut().enumerate() {
        let by = SCATTER * (2.0 * random.uniform() - 1.0);
        *x += if p == 1 || p == 2 { by } else { by * *x };
    }
    out
}

/// Returns the Gauss function with parameters (amplitude, centre, width, offset) at pixel `j`, counted row by row.
fn value(&[a, x0, y0, s, b]: &[f64; PARAMETERS], j: usize) -> f64 {
    let (x, y) = ((j % SIDE) as f64 - x0, (j / SIDE) as f64 - y0);
    a * (-(x * x + y * y) / (2.0 * s * s)).exp() + b
}
