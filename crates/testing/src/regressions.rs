//! Twenty models of everyday regressions: their formulas, the same in plain Rust, and noisy curves with starts that are
//! far off.

use std::io::Write;

use popfit::{Closure, CurveFitter, CurveModel, Curves, Device, Formula, Result};

use crate::random::Random;

/// Points per curve.
const POINTS_PER_CURVE: usize = 50;

/// Values of a parameter vector at one x.
type ModelFunction = fn(&[f64], f64) -> f64;

/// A model and the truths that its curves are drawn from.
pub struct Regression {
    pub name: &'static str,
    /// The model as popfit reads it.
    pub formula: &'static str,
    /// Ranges of the true parameters, in the order of `value`'s argument.
    pub truths: &'static [TrueParameter],
    /// The model at one x.
    pub value: ModelFunction,
    /// First and last x of the grid.
    pub x: [f64; 2],
}

/// Name and range of a true parameter.
pub struct TrueParameter {
    pub parameter: &'static str,
    pub range: [f64; 2],
}

/// Noisy curves of one regression on a common grid.
pub(crate) struct NoisyCurves {
    /// (points)
    pub x: Vec<f64>,
    /// (curves, points)
    pub y: Vec<f64>,
    /// (curves, P), in the order of the formula's own parameters.
    pub starts: Vec<f64>,
    /// (curves, P): the same of the truths.
    pub truths: Vec<f64>,
}

/// Number of curves, their noise (as in [`NOISES`]) and the seed of the random numbers.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub curves: usize,
    pub noise: f64,
    pub seed: u64,
}

/// Call of a fitter, and the model that it is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Route {
    /// `fit_columns` of a formula, which begins in f32.
    Columns,
    /// `fit` of a formula.
    Fits,
    /// `fit` of a closure with numerical derivatives, on the CPU.
    Closures,
}

/// Results of some fits.
struct FitEnds {
    /// (curves)
    success: Vec<bool>,
    /// (curves): as reported.
    chi2: Vec<f64>,
    /// (curves, P)
    parameters: Vec<f64>,
}

/// Successes, and those whose χ² is not that of their parameters.
#[derive(Debug, Default)]
pub struct Chi2Comparison {
    pub successes: usize,
    /// Descriptions of successes whose χ² is wrong, one line each.
    pub wrong: Vec<String>,
    /// Largest relative difference of χ².
    pub worst: f64,
}

/// Noise levels of the curves, in root mean squares of the true curve about its mean.
pub const NOISES: [f64; 3] = [0.01, 0.1, 0.3];

const fn truth(parameter: &'static str, low: f64, high: f64) -> TrueParameter {
    TrueParameter {
        parameter,
        range: [low, high],
    }
}

fn erf(x: f64) -> f64 {
    statrs::function::erf::erf(x)
}

fn gauss(x: f64, m: f64, s: f64) -> f64 {
    (-(x - m) * (x - m) / (2.0 * s * s)).exp()
}

/// Decays, rises, steps, peaks, waves, powers and ratios.
pub const REGRESSIONS: [Regression; 20] = [
    Regression {
        name: "exponential decay",
        formula: "a*exp(-k*x) + c",
        truths: &[
            truth("a", 1.0, 5.0),
            truth("k", 0.2, 1.5),
            truth("c", -1.0, 1.0),
        ],
        value: |p, x| p[0] * (-p[1] * x).exp() + p[2],
        x: [0.0, 10.0],
    },
    Regression {
        name: "exponential rise",
        formula: "a*(1 - exp(-k*x)) + c",
        truths: &[
            truth("a", 1.0, 5.0),
            truth("k", 0.2, 1.5),
            truth("c", -1.0, 1.0),
        ],
        value: |p, x| p[0] * (1.0 - (-p[1] * x).exp()) + p[2],
        x: [0.0, 10.0],
    },
    Regression {
        name: "bi-exponential",
        formula: "a*exp(-k*x) + b*exp(-q*x)",
        truths: &[
            truth("a", 1.0, 5.0),
            truth("k", 0.1, 0.5),
            truth("b", 1.0, 5.0),
            truth("q", 1.0, 4.0),
        ],
        value: |p, x| p[0] * (-p[1] * x).exp() + p[2] * (-p[3] * x).exp(),
        x: [0.0, 10.0],
    },
    Regression {
        name: "stretched exponential",
        formula: "a*exp(-(x/t)^b)",
        truths: &[
            truth("a", 1.0, 5.0),
            truth("t", 1.0, 6.0),
            truth("b", 0.5, 1.5),
        ],
        value: |p, x| p[0] * (-(x / p[1]).powf(p[2])).exp(),
        x: [0.1, 10.0],
    },
    Regression {
        name: "logistic of 4 parameters",
        formula: "a/(1 + exp(-(x - m)/w)) + c",
        truths: &[
            truth("a", 1.0, 5.0),
            truth("m", 3.0, 7.0),
            truth("w", 0.1, 1.5),
            truth("c", -1.0, 1.0),
        ],
        value: |p, x| p[0] / (1.0 + (-(x - p[1]) / p[2]).exp()) + p[3],
        x: [0.0, 10.0],
    },
    Regression {
        name: "logistic of 5 parameters",
        formula: "a/(1 + exp(-(x - m)/w))^g + c",
        truths: &[
            truth("a", 1.0, 5.0),
            truth("m", 3.0, 7.0),
            truth("w", 0.3, 1.5),
            truth("g", 0.5, 2.0),
            truth("c", -1.0, 1.0),
        ],
        value: |p, x| p[0] / (1.0 + (-(x - p[1]) / p[2]).exp()).powf(p[3]) + p[4],
        x: [0.0, 10.0],
    },
    Regression {
        name: "Hill",
        formula: "a*x^n/(h^n + x^n)",
        truths: &[
            truth("a", 1.0, 5.0),
            truth("n", 1.0, 4.0),
            truth("h", 1.0, 6.0),
        ],
        value: |p, x| p[0] * x.powf(p[1]) / (p[2].powf(p[1]) + x.powf(p[1])),
        x: [0.1, 10.0],
    },
    Regression {
        name: "Michaelis-Menten",
        formula: "v*x/(k + x)",
        truths: &[truth("v", 1.0, 5.0), truth("k", 0.5, 5.0)],
        value: |p, x| p[0] * x / (p[1] + x),
        x: [0.0, 10.0],
    },
    Regression {
        name: "Gompertz",
        formula: "a*exp(-b*exp(-k*x))",
        truths: &[
            truth("a", 1.0, 5.0),
            truth("b", 1.0, 8.0),
            truth("k", 0.3, 1.5),
        ],
        value: |p, x| p[0] * (-p[1] * (-p[2] * x).exp()).exp(),
        x: [0.0, 10.0],
    },
    Regression {
        name: "tanh step",
        formula: "a*tanh((x - m)/w) + c",
        truths: &[
            truth("a", 1.0, 5.0),
            truth("m", 3.0, 7.0),
            truth("w", 0.1, 2.0),
            truth("c", -1.0, 1.0),
        ],
        value: |p, x| p[0] * ((x - p[1]) / p[2]).tanh() + p[3],
        x: [0.0, 10.0],
    },
    Regression {
        name: "erf step",
        formula: "a*erf((x - m)/w) + c",
        truths: &[
            truth("a", 1.0, 5.0),
            truth("m", 3.0, 7.0),
            truth("w", 0.1, 2.0),
            truth("c", -1.0, 1.0),
        ],
        value: |p, x| p[0] * erf((x - p[1]) / p[2]) + p[3],
        x: [0.0, 10.0],
    },
    Regression {
        name: "Gaussian",
        formula: "a*exp(-(x - m)^2/(2*s^2)) + c",
        truths: &[
            truth("a", 1.0, 5.0),
            truth("m", 3.0, 7.0),
            truth("s", 0.2, 1.5),
            truth("c", -1.0, 1.0),
        ],
        value: |p, x| p[0] * gauss(x, p[1], p[2]) + p[3],
        x: [0.0, 10.0],
    },
    Regression {
        name: "Lorentzian",
        formula: "a*g^2/((x - m)^2 + g^2) + c",
        truths: &[
            truth("a", 1.0, 5.0),
            truth("g", 0.2, 1.5),
            truth("m", 3.0, 7.0),
            truth("c", -1.0, 1.0),
        ],
        value: |p, x| p[0] * p[1] * p[1] / ((x - p[2]) * (x - p[2]) + p[1] * p[1]) + p[3],
        x: [0.0, 10.0],
    },
    Regression {
        name: "two Gaussians on a line",
        formula: "a*exp(-(x - m)^2/(2*s^2)) + b*exp(-(x - n)^2/(2*t^2)) + c + d*x",
        truths: &[
            truth("a", 1.0, 5.0),
            truth("m", 2.0, 4.0),
            truth("s", 0.3, 1.0),
            truth("b", 1.0, 5.0),
            truth("n", 6.0, 8.0),
            truth("t", 0.3, 1.0),
            truth("c", -1.0, 1.0),
            truth("d", -0.3, 0.3),
        ],
        value: |p, x| p[0] * gauss(x, p[1], p[2]) + p[3] * gauss(x, p[4], p[5]) + p[6] + p[7] * x,
        x: [0.0, 10.0],
    },
    Regression {
        name: "Gaussian and Lorentzian",
        formula: "a*(f/(1 + ((x - m)/w)^2) + (1 - f)*exp(-((x - m)/w)^2)) + c",
        truths: &[
            truth("a", 1.0, 5.0),
            truth("f", 0.1, 0.9),
            truth("m", 3.0, 7.0),
            truth("w", 0.3, 1.5),
            truth("c", -1.0, 1.0),
        ],
        value: |p, x| {
            let u = ((x - p[2]) / p[3]) * ((x - p[2]) / p[3]);
            p[0] * (p[1] / (1.0 + u) + (1.0 - p[1]) * (-u).exp()) + p[4]
        },
        x: [0.0, 10.0],
    },
    Regression {
        name: "sine",
        formula: "a*sin(w*x + p) + c",
        truths: &[
            truth("a", 1.0, 5.0),
            truth("w", 0.5, 2.0),
            truth("p", 0.5, 2.5),
            truth("c", -1.0, 1.0),
        ],
        value: |p, x| p[0] * (p[1] * x + p[2]).sin() + p[3],
        x: [0.0, 10.0],
    },
    Regression {
        name: "damped sine",
        formula: "a*exp(-k*x)*sin(w*x + p)",
        truths: &[
            truth("a", 1.0, 5.0),
            truth("k", 0.05, 0.5),
            truth("w", 0.5, 2.0),
            truth("p", 0.5, 2.5),
        ],
        value: |p, x| p[0] * (-p[1] * x).exp() * (p[2] * x + p[3]).sin(),
        x: [0.0, 10.0],
    },
    Regression {
        name: "power law",
        formula: "a*x^k",
        truths: &[truth("a", 1.0, 5.0), truth("k", -1.5, 1.5)],
        value: |p, x| p[0] * x.powf(p[1]),
        x: [0.1, 10.0],
    },
    Regression {
        name: "ratio of two polynomials",
        formula: "(a + b*x + c*x^2)/(1 + d*x + f*x^2)",
        truths: &[
            truth("a", 1.0, 5.0),
            truth("b", -1.0, 1.0),
            truth("c", 0.1, 1.0),
            truth("d", 0.1, 1.0),
            truth("f", 0.05, 0.5),
        ],
        value: |p, x| (p[0] + p[1] * x + p[2] * x * x) / (1.0 + p[3] * x + p[4] * x * x),
        x: [0.0, 10.0],
    },
    Regression {
        name: "Arrhenius",
        formula: "a*exp(-h/x)",
        truths: &[truth("a", 1.0, 5.0), truth("h", 1.0, 8.0)],
        value: |p, x| p[0] * (-p[1] / x).exp(),
        x: [1.0, 10.0],
    },
];

impl Regression {
    /// The grid that all curves share.
    fn grid(&self) -> Vec<f64> {
        let [first, last] = self.x;
        (0..POINTS_PER_CURVE)
            .map(|j| first + (last - first) * j as f64 / (POINTS_PER_CURVE - 1) as f64)
            .collect()
    }

    /// Draws curves whose noise is `noise` times the root mean square of the true values about their mean, and starts
    /// that are 20 to 50 % off in each parameter. `names`: the formula's parameters in its own order.
    pub(crate) fn draw(
        &self,
        names: &[String],
        Sample {
            curves,
            noise,
            seed,
        }: Sample,
    ) -> NoisyCurves {
        let mut random = Random(seed);
        let x = self.grid();
        let indices = self.parameter_indices(names);
        let mut y = Vec::with_capacity(curves * POINTS_PER_CURVE);
        let mut starts = vec![f64::NAN; curves * names.len()];
        let mut truths = vec![f64::NAN; curves * names.len()];
        for k in 0..curves {
            // 1. Draw the true parameters, and noisy values of the curve.
            let truth: Vec<f64> = self
                .truths
                .iter()
                .map(|parameter| {
                    let [low, high] = parameter.range;
                    low + (high - low) * random.uniform()
                })
                .collect();
            let values: Vec<f64> = x.iter().map(|&x| (self.value)(&truth, x)).collect();
            let mean = values.iter().sum::<f64>() / POINTS_PER_CURVE as f64;
            let spread = (values
                .iter()
                .map(|value| (value - mean).powi(2))
                .sum::<f64>()
                / POINTS_PER_CURVE as f64)
                .sqrt();
            y.extend(
                values
                    .iter()
                    .map(|value| value + noise * spread * random.normal()),
            );
            // 2. Put starts away from them, in the order of the formula.
            for (index, truth) in indices.iter().zip(truth) {
                let distance = 0.2 + 0.3 * random.uniform();
                let sign = if random.uniform() < 0.5 { -1.0 } else { 1.0 };
                let place = k * names.len() + index;
                starts[place] = truth * (1.0 + distance * sign);
                truths[place] = truth;
            }
        }
        NoisyCurves {
            x,
            y,
            starts,
            truths,
        }
    }

    /// Fits a sample of curves and compares the χ² of every success with that of its parameters.
    ///
    /// A success is wrong where the two differ by more than 1e-4 (columns, which may be f32) or 1e-6 of χ².
    ///
    /// # Errors
    ///
    /// Those of the fitter.
    pub fn compare(
        &'static self,
        route: Route,
        device: &Device,
        sample: Sample,
    ) -> Result<Chi2Comparison> {
        let tolerance = if route == Route::Columns { 1e-4 } else { 1e-6 };
        let (names, noisy, ends) = self.fit(route, device, sample)?;
        Ok(self.compare_chi2(&names, &noisy, &ends, tolerance))
    }

    /// Fits a sample of curves one by one and writes a line of JSON for each, for `benches/peers/regressions.py`.
    ///
    /// # Errors
    ///
    /// Those of the fitter and of the file.
    pub fn write(
        &'static self,
        device: &Device,
        sample: Sample,
        out: &mut impl Write,
    ) -> std::io::Result<()> {
        let (names, noisy, ends) = self
            .fit(Route::Fits, device, sample)
            .map_err(std::io::Error::other)?;
        let rows = noisy
            .y
            .chunks(POINTS_PER_CURVE)
            .zip(noisy.starts.chunks(names.len()));
        for (k, (y, start)) in rows.enumerate() {
            let head = format!(
                r#""model": "{}", "text": "{}", "names": {names:?}"#,
                self.name, self.formula
            );
            let data = format!(r#""x": {:?}, "y": {y:?}, "start": {start:?}"#, noisy.x);
            let success = ends.success[k];
            let chi2 = ends.chi2[k];
            writeln!(
                out,
                r#"{{{head}, {data}, "noise": {}, "success": {success}, "chi2": {chi2:e}}}"#,
                sample.noise
            )?;
        }
        Ok(())
    }

    /// Draws a sample of curves and fits it. Returns the formula's parameters in its own order, the curves, and the
    /// ends of their fits.
    fn fit(
        &'static self,
        route: Route,
        device: &Device,
        sample: Sample,
    ) -> Result<(Vec<String>, NoisyCurves, FitEnds)> {
        let formula = Formula::parse(self.formula)?;
        let names = formula.parameters().to_vec();
        let noisy = self.draw(&names, sample);
        let fitter = match route {
            Route::Closures => CurveFitter::new(self.closure(&names)?, Device::cpu()),
            Route::Columns | Route::Fits => CurveFitter::new(formula, device.clone()),
        };
        let curves = Curves::on_common_grid(noisy.x.clone(), &noisy.y[..], &noisy.starts[..]);
        let ends = if route == Route::Columns {
            let columns = fitter.fit_columns(&curves)?;
            let success = columns
                .status
                .iter()
                .map(|status| status.is_success())
                .collect();
            FitEnds {
                success,
                chi2: columns.chi2,
                parameters: columns.parameters,
            }
        } else {
            let fits = fitter.fit(&curves)?;
            FitEnds {
                success: fits.iter().map(|fit| fit.status.is_success()).collect(),
                chi2: fits.iter().map(|fit| fit.chi2).collect(),
                parameters: fits.into_iter().flat_map(|fit| fit.parameters).collect(),
            }
        };
        Ok((names, noisy, ends))
    }

    /// The model as a closure, its parameters in the order of `names`.
    fn closure(&'static self, names: &[String]) -> Result<CurveModel> {
        let indices = self.parameter_indices(names);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let values = move |x: &[f64], p: &[f64], y: &mut [f64]| {
            let parameters: Vec<f64> = indices.iter().map(|&index| p[index]).collect();
            y.iter_mut()
                .zip(x)
                .for_each(|(y, &x)| *y = (self.value)(&parameters, x));
        };
        Ok(Closure::new(&["x"], &names, values)?.into())
    }

    fn compare_chi2(
        &self,
        names: &[String],
        noisy: &NoisyCurves,
        ends: &FitEnds,
        tolerance: f64,
    ) -> Chi2Comparison {
        let mut comparison = Chi2Comparison::default();
        let indices = self.parameter_indices(names);
        let rows = ends
            .parameters
            .chunks(names.len())
            .zip(noisy.y.chunks(POINTS_PER_CURVE));
        for (k, (parameters, y)) in rows.enumerate().filter(|(k, _)| ends.success[*k]) {
            comparison.successes += 1;
            let in_model_order: Vec<f64> = indices.iter().map(|&index| parameters[index]).collect();
            let chi2: f64 = noisy
                .x
                .iter()
                .zip(y)
                .map(|(&x, y)| (y - (self.value)(&in_model_order, x)).powi(2))
                .sum();
            let difference = (chi2 - ends.chi2[k]).abs() / chi2;
            comparison.worst = comparison.worst.max(difference);
            // a NaN is wrong, too
            if difference.is_nan() || difference > tolerance {
                comparison.wrong.push(format!(
                    "curve {k}: {in_model_order:?} reports {}, has {chi2}",
                    ends.chi2[k]
                ));
            }
        }
        comparison
    }

    /// Indices of the model's parameters among `names`.
    fn parameter_indices(&self, names: &[String]) -> Vec<usize> {
        let index_of = |truth: &TrueParameter| {
            let mut names = names.iter();
            names.position(|name| *name == truth.parameter)
        };
        self.truths
            .iter()
            .map(|truth| index_of(truth).expect("a parameter of the formula"))
            .collect()
    }
}
