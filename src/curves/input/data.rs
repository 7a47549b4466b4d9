//! Data of many curves, and their checks.

use std::borrow::Cow;

use crate::curves::CurveRun;
use crate::curves::input::sizes::rounding;
use crate::curves::input::units;
use crate::curves::input::validity::CurveInput;
use crate::error::{Error, Result};
use crate::recording::Limits;
use crate::solver::Estimator;
use crate::suggest::hint;
use crate::values::Values;

/// Kind of grid on which the points lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GridKind {
    /// x is (predictors, points), of all curves.
    Shared,
    /// x is (curves, predictors, points).
    Own,
}

/// Starts of curves: numbers (curves, parameters) or (parameters), or one row for all curves whose numbers have the
/// names of their parameters. With names, curves on [their own grids](Curves::on_own_grids) need
/// [`points`](Curves::points).
///
/// ```
/// use popfit::{CurveFitter, Curves, Device, Formula};
///
/// let curves = Curves::on_common_grid([0.0, 1.0, 2.0], [3.0, 1.5, 0.75], [("k", 0.5), ("a", 1.0)]);
/// let fits = CurveFitter::new(Formula::parse("a*exp(-k*x)")?, Device::cpu()).fit(&curves)?;
/// assert_eq!(fits[0].start, [1.0, 0.5]);
/// # Ok::<(), popfit::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Starts<'a> {
    pub(crate) values: Values<'a>,
    /// Names of the numbers; `None` in the order of the parameters.
    pub(crate) names: Option<Vec<String>>,
}

impl<'a, V: Into<Values<'a>>> From<V> for Starts<'a> {
    fn from(values: V) -> Starts<'a> {
        Starts {
            values: values.into(),
            names: None,
        }
    }
}

impl From<&[(&str, f64)]> for Starts<'_> {
    fn from(named: &[(&str, f64)]) -> Self {
        Starts {
            values: named.iter().map(|(_, start)| *start).collect(),
            names: Some(named.iter().map(|(name, _)| (*name).into()).collect()),
        }
    }
}

impl<const N: usize> From<[(&str, f64); N]> for Starts<'_> {
    fn from(named: [(&str, f64); N]) -> Self {
        named[..].into()
    }
}

impl<'a> Starts<'a> {
    /// Returns the starts in the order of the run's parameters. Those of tied parameters, which are not read, need no
    /// name.
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] with the name of a parameter that is unknown, given twice or missing.
    pub(crate) fn ordered(self, run: &CurveRun) -> Result<Values<'a>> {
        let Some(names) = self.names else {
            return Ok(self.values);
        };
        let parameters = run.model.parameters();
        let fault = |message: String| Error::invalid("starts", format!("starts: {message}"));
        if let Some(name) = names.iter().find(|name| !parameters.contains(name)) {
            let hint = hint(name, parameters.iter().map(String::as_str));
            return Err(fault(format!("there is no parameter `{name}`{hint}")));
        }
        let start_of = |(p, parameter): (usize, &String)| {
            let mut places = (0..names.len()).filter(|k| names[*k] == *parameter);
            match (places.next(), places.next()) {
                (Some(k), None) => Ok(self.values.at(k)),
                (None, _) if run.ties.iter().any(|tie| tie.parameter == p) => Ok(0.0),
                (None, _) => Err(fault(format!("`{parameter}` has none"))),
                _ => Err(fault(format!("`{parameter}` has two"))),
            }
        };
        parameters.iter().enumerate().map(start_of).collect()
    }
}

/// Curves with the same number of points, each with its start: the input of a [`CurveFitter`](crate::CurveFitter).
///
/// All arrays are row by row, and may be given or lent, in f64 or in f32 ([`Values`]): `vec![…]`, `&vec` and
/// `&slice[..]` will do. An input in f32 gives the bits that the same numbers give in f64. Curves of unequal length are
/// padded, their padding masked. One row of starts, of sigmas or of a mask holds for all curves.
#[derive(Clone, Debug)]
pub struct Curves<'a> {
    pub(crate) grid: GridKind,
    pub(crate) x: Values<'a>,
    pub(crate) y: Values<'a>,
    pub(crate) starts: Starts<'a>,
    pub(crate) sigma: Option<Values<'a>>,
    pub(crate) covariance: Option<Values<'a>>,
    pub(crate) mask: Option<Cow<'a, [bool]>>,
    pub(crate) lower: Option<Values<'a>>,
    pub(crate) upper: Option<Values<'a>>,
    /// Number of points of each curve, if the user says it.
    pub(crate) points: Option<usize>,
    /// Numbers in the user's input, where they are not 0, 1, ….
    pub(crate) numbers: Option<Vec<usize>>,
}

impl<'a> Curves<'a> {
    /// Makes curves at the same points: `x` (predictors, points), `y` (curves, points), `starts` (curves, parameters)
    /// or (parameters), row by row, or by name ([`Starts`]).
    pub fn on_common_grid(
        x: impl Into<Values<'a>>,
        y: impl Into<Values<'a>>,
        starts: impl Into<Starts<'a>>,
    ) -> Curves<'a> {
        Curves::new(GridKind::Shared, x.into(), y.into(), starts.into())
    }

    /// Makes curves with points of their own: `x` (curves, predictors, points), `y` (curves, points), `starts` (curves,
    /// parameters) or, if [`points`](Self::points) says how many points a curve has, (parameters).
    pub fn on_own_grids(
        x: impl Into<Values<'a>>,
        y: impl Into<Values<'a>>,
        starts: impl Into<Starts<'a>>,
    ) -> Curves<'a> {
        Curves::new(GridKind::Own, x.into(), y.into(), starts.into())
    }

    /// Makes curves without masks, sigmas and bounds.
    fn new(grid: GridKind, x: Values<'a>, y: Values<'a>, starts: Starts<'a>) -> Curves<'a> {
        Curves {
            grid,
            x,
            y,
            starts,
            sigma: None,
            covariance: None,
            mask: None,
            lower: None,
            upper: None,
            points: None,
            numbers: None,
        }
    }

    /// Makes problems of `rows` residuals r(θ), of which Σ r² is to be least: curves at x = 0, 1, … with y = 0.
    /// `starts` (problems, parameters).
    pub fn residuals(rows: usize, parameters: usize, starts: impl Into<Starts<'a>>) -> Curves<'a> {
        let starts = starts.into();
        let problems = starts.values.len() / parameters.max(1);
        let x: Vec<f64> = (0..rows).map(|row| row as f64).collect();
        Curves::new(
            GridKind::Shared,
            x.into(),
            vec![0.0; problems * rows].into(),
            starts,
        )
    }

    /// Sets the number of points of each curve. Curves on [their own grids](Self::on_own_grids) need it if one row of
    /// starts holds for all of them.
    #[must_use]
    pub fn points(self, points: usize) -> Curves<'a> {
        Curves {
            points: Some(points),
            ..self
        }
    }

    /// Sets standard deviations (curves, points), (points) or (1); without, all are 1. An infinite one masks its point,
    /// as in scipy and lmfit. A point may outweigh all others, to force a curve through it; with a sigma below the
    /// rounding of its y (10⁻¹⁴ of it) the curve is a bad input.
    #[must_use]
    pub fn sigma(self, sigma: impl Into<Values<'a>>) -> Curves<'a> {
        Curves {
            sigma: Some(sigma.into()),
            ..self
        }
    }

    /// Sets covariance matrices of y instead of standard deviations, (curves, points, points), or (points, points) of
    /// all curves: χ² is rᵀ C⁻¹ r with the residuals r. Such curves are fitted on the CPU, by way of the Cholesky
    /// factors of the matrices, which take as much memory as these. A curve whose matrix is not symmetric and positive
    /// definite at the points that are not masked is a bad input.
    #[must_use]
    pub fn covariance(self, covariance: impl Into<Values<'a>>) -> Curves<'a> {
        Curves {
            covariance: Some(covariance.into()),
            ..self
        }
    }

    /// Sets a mask (curves, points) or (points): true points do not count, whatever else is said of them.
    #[must_use]
    pub fn mask(self, mask: impl Into<Cow<'a, [bool]>>) -> Curves<'a> {
        Curves {
            mask: Some(mask.into()),
            ..self
        }
    }

    /// Sets bounds of every curve, (curves, parameters); infinite ones are none. They replace the fitter's.
    #[must_use]
    pub fn bounds(self, lower: impl Into<Values<'a>>, upper: impl Into<Values<'a>>) -> Curves<'a> {
        Curves {
            lower: Some(lower.into()),
            upper: Some(upper.into()),
            ..self
        }
    }

    /// Returns the curves with their starts in the order of the run's parameters.
    ///
    /// # Errors
    /// Returns the errors of [`Starts::ordered`], and [`Error::InvalidArgument`] if neither the starts nor
    /// [`points`](Curves::points) say how many curves there are.
    pub(crate) fn order_starts(self, run: &CurveRun) -> Result<Curves<'a>> {
        let is_named = self.starts.names.is_some();
        if is_named && self.grid == GridKind::Own && self.points.is_none() {
            let message = "starts by name are those of all curves: say how many points a curve has \
                           (`Curves::points`)";
            return Err(Error::invalid("starts", message));
        }
        let starts = self.starts.ordered(run)?.into();
        Ok(Curves { starts, ..self })
    }

    /// Returns the same curves with all arrays borrowed instead of copied.
    pub(crate) fn view(&self) -> Curves<'_> {
        Curves {
            grid: self.grid,
            x: self.x.view(),
            y: self.y.view(),
            starts: Starts {
                values: self.starts.values.view(),
                names: self.starts.names.clone(),
            },
            sigma: self.sigma.as_ref().map(Values::view),
            covariance: self.covariance.as_ref().map(Values::view),
            mask: self.mask.as_deref().map(Cow::Borrowed),
            lower: self.lower.as_ref().map(Values::view),
            upper: self.upper.as_ref().map(Values::view),
            points: self.points,
            numbers: self.numbers.clone(),
        }
    }
}

/// Lower and upper bound of a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParameterBounds {
    pub lower: f64,
    pub upper: f64,
}

/// A Gaussian prior.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ParameterPrior {
    pub mean: f64,
    pub sigma: f64,
}

/// A fitter's settings of its parameters, one entry each.
#[derive(Clone, Copy)]
pub(crate) struct ParameterSettings<'a> {
    pub names: &'a [String],
    pub lower: &'a [f64],
    pub upper: &'a [f64],
    pub held: &'a [bool],
    pub priors: &'a [Option<ParameterPrior>],
    pub predictors: &'a [String],
    pub estimator: Estimator,
    /// Linearisations of a fit.
    pub budget: u32,
    /// Function that makes a parameter's unit from its start.
    pub round: fn(f64) -> f64,
}

/// One curve, ready to be fitted.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    /// Index among the curves of a run.
    pub index: usize,
    /// Number in the user's input.
    pub number: usize,
    /// (predictors, points)
    pub x: Vec<f64>,
    pub y: Vec<f64>,
    /// 1/σ, 0 where masked.
    pub weight: Vec<f64>,
    /// Number of points that are not masked.
    pub unmasked_points: usize,
    pub start: Vec<f64>,
    /// First point of the solver: the start, or a point nearer to the data where the start lacks their scale.
    pub first_point: Vec<f64>,
    /// Units of the solver's parameters.
    pub scale: Vec<f64>,
    /// Factor of the solver's rows, a power of two, where their squares would otherwise leave its range.
    pub row_factor: f64,
    pub lower: Vec<f64>,
    pub upper: Vec<f64>,
    /// Linearisations that the fit has left.
    pub budget: u32,
}

impl Curves<'_> {
    /// Returns curve `index` with checked data, weights, start and bounds, or the cause why it cannot be fitted.
    /// Without bounds of its own it has the fitter's, and held parameters have their starts as bounds.
    pub(crate) fn curve(
        &self,
        index: usize,
        points: usize,
        settings: &ParameterSettings,
    ) -> Result<Curve, String> {
        let parameters = settings.held.len();
        // 1. Copy the curve's rows of all arrays.
        let row_of =
            |values: &Values, length: usize| values.to_vec(index * length..(index + 1) * length);
        let start = self
            .starts_of(index..index + 1, parameters, &mut Vec::new())
            .to_vec();
        let sigma = self
            .sigmas_of(index..index + 1, points, &mut Vec::new())
            .map(<[f64]>::to_vec);
        let x = match self.grid {
            GridKind::Shared => self.x.to_vec(0..self.x.len()),
            GridKind::Own => row_of(&self.x, settings.predictors.len() * points),
        };
        let bounds_or = |of_curves: &Option<Values>, of_fitter: &[f64]| match of_curves {
            Some(bounds) => row_of(bounds, parameters),
            None => of_fitter.to_vec(),
        };
        let mut y = row_of(&self.y, points);
        let mut lower = bounds_or(&self.lower, settings.lower);
        let mut upper = bounds_or(&self.upper, settings.upper);
        // 2. Check them.
        let mask = self.masked(index..index + 1, points);
        let unmasked_points = CurveInput {
            x: &x,
            y: |j: usize| y[j],
            sigma: sigma.as_deref(),
            mask: mask.as_deref(),
            start: &start,
            lower: &lower,
            upper: &upper,
        }
        .count_unmasked(points, settings)?;
        // 3. Turn σ into weights 1/σ, and masked points into zeros, and hold the fixed parameters at their starts.
        let mut weight: Vec<f64> = match sigma {
            Some(sigma) => sigma.iter().map(|sigma| 1.0 / sigma).collect(),
            None => vec![1.0; points],
        };
        for (j, _) in mask
            .iter()
            .flat_map(|mask| mask.iter())
            .enumerate()
            .filter(|(_, masked)| **masked)
        {
            weight[j] = 0.0;
            y[j] = 0.0;
        }
        for p in (0..parameters).filter(|&p| settings.held[p]) {
            lower[p] = start[p];
            upper[p] = start[p];
        }
        Ok(Curve {
            index,
            number: self
                .numbers
                .as_ref()
                .map_or(index, |numbers| numbers[index]),
            x,
            y,
            weight,
            unmasked_points,
            first_point: start.clone(),
            scale: start.iter().copied().map(settings.round).collect(),
            start,
            row_factor: 1.0,
            lower,
            upper,
            budget: settings.budget,
        })
    }
}

impl Curve {
    /// Returns a curve of zeros at `x` (predictors, points), without bounds.
    pub fn bare(x: &[f64], points: usize, start: &[f64]) -> Curve {
        Curve {
            index: 0,
            number: 0,
            x: x.to_vec(),
            y: vec![0.0; points],
            weight: vec![1.0; points],
            unmasked_points: points,
            start: start.to_vec(),
            first_point: start.to_vec(),
            scale: start.iter().copied().map(units::unit_in_f32).collect(),
            row_factor: 1.0,
            lower: vec![f64::NEG_INFINITY; start.len()],
            upper: vec![f64::INFINITY; start.len()],
            budget: u32::MAX,
        }
    }

    /// Resets the point where the fit begins to the start, the units to those of the start, by `round`, and the factor
    /// of residuals to 1.
    pub fn reset_to_start(&mut self, round: fn(f64) -> f64) {
        self.first_point.clone_from(&self.start);
        self.scale = self.start.iter().copied().map(round).collect();
        self.row_factor = 1.0;
    }

    /// Returns the [`rounding`] of the weighted data: the χ² that numbers of spacing `epsilon` may leave.
    pub fn rounding(&self, epsilon: f64) -> f64 {
        rounding(
            self.y
                .iter()
                .zip(&self.weight)
                .map(|(y, weight)| y * weight),
            epsilon,
        )
    }

    /// Returns the parameters' units and bounds, for models that ask for them when they are evaluated.
    pub fn limits(&self) -> Limits<'_> {
        Limits {
            scale: &self.scale,
            lower: &self.lower,
            upper: &self.upper,
        }
    }

    /// Returns the indices of the parameters that may move: those whose lower bound is below the upper one.
    pub fn free_parameters(&self) -> Vec<usize> {
        (0..self.start.len())
            .filter(|&p| self.lower[p] < self.upper[p])
            .collect()
    }
}
