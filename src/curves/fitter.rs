//! The settings of fits of curves, as users make them.

use crate::control::Control;
use crate::curve_model::{CurveModel, DerivativeCheck};
use crate::curves::input::data::{Curves, ParameterBounds, ParameterPrior};
use crate::curves::results::columns::CurveColumns;
use crate::curves::watch::Watch;
use crate::curves::{CurveFit, Interval};
use crate::device::Device;
use crate::error::Result;
use crate::solver::{Estimator, LevenbergMarquardt, NelderMead, Solver};

/// A value that a user sets for one parameter.
#[derive(Clone, Debug)]
pub(crate) struct Named<T> {
    pub parameter: String,
    pub value: T,
}

/// Fits a model to many curves at once, by least squares or another [`Estimator`].
///
/// Setters do not fail. A fit begins with a check of all settings together, and
/// [`Error::InvalidSettings`](crate::Error::InvalidSettings) lists every fault with its remedy.
///
/// ```
/// use popfit::{CurveFitter, Curves, Device, Formula};
///
/// let x: Vec<f64> = (0..20).map(|j| 0.2 * f64::from(j)).collect();
/// let y: Vec<f64> = [0.5, 1.0_f64].iter().flat_map(|k| x.iter().map(move |x| 3.0 * (-k * x).exp())).collect();
/// let curves = Curves::on_common_grid(x.clone(), y, [1.0, 0.7].repeat(2));
/// let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)")?, Device::cpu()).bounds("k", 0.0, 10.0);
/// let fits = fitter.fit(&curves)?;
/// assert!(fits.iter().all(|fit| fit.status.is_success()));
/// assert!((fits[1].parameters[1] - 1.0).abs() < 1e-9);
/// # Ok::<(), popfit::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CurveFitter {
    pub(crate) model: CurveModel,
    pub(crate) device: Device,
    pub(crate) solver: Solver,
    pub(crate) bounds: Vec<Named<ParameterBounds>>,
    pub(crate) fixed: Vec<String>,
    pub(crate) priors: Vec<Named<ParameterPrior>>,
    /// Expressions.
    pub(crate) ties: Vec<Named<String>>,
    pub(crate) starts: usize,
    pub(crate) estimator: Estimator,
    pub(crate) absolute_sigma: bool,
    pub(crate) sandwich_errors: bool,
    pub(crate) polish: bool,
    pub(crate) exact: bool,
    pub(crate) covariance: bool,
    pub(crate) max_memory: Option<u64>,
    pub(crate) cpu_fallback: Option<bool>,
    pub(crate) control: Control,
}

/// Sets a parameter's value in a list of named values, in place of any earlier one.
fn set_value<T>(values: &mut Vec<Named<T>>, parameter: &str, value: T) {
    values.retain(|named| named.parameter != parameter);
    values.push(Named {
        parameter: parameter.to_owned(),
        value,
    });
}

impl CurveFitter {
    /// The defaults of curves: tolerances of rows in f64, and limits on steps (all of the 54 NIST StRD fits instead of
    /// 50). `LevenbergMarquardt::default()` means the same to a fitter of curves.
    pub const LEVENBERG_MARQUARDT: LevenbergMarquardt = LevenbergMarquardt::OF_CURVES;

    /// The defaults of curves: a simplex that goes on until rounding stops it, spread again up to 20 times (51 of the
    /// 54 NIST StRD fits, 44 to 51 with other sizes). `NelderMead::default()` means the same to a fitter of curves.
    pub const NELDER_MEAD: NelderMead = NelderMead::OF_CURVES;

    /// Makes a fitter of a [`Formula`](crate::Formula) or another [`CurveModel`], with Levenberg–Marquardt. The model
    /// may have up to 32 parameters, and must run on the device. With [`Device::auto`] every model that can run on the
    /// CPU does so: for curves it is faster than a GPU.
    pub fn new(model: impl Into<CurveModel>, device: Device) -> CurveFitter {
        CurveFitter {
            model: model.into(),
            device,
            solver: Self::LEVENBERG_MARQUARDT.into(),
            bounds: Vec::new(),
            fixed: Vec::new(),
            priors: Vec::new(),
            ties: Vec::new(),
            starts: 1,
            estimator: Estimator::LeastSquares,
            absolute_sigma: false,
            sandwich_errors: true,
            polish: true,
            exact: false,
            covariance: false,
            max_memory: None,
            cpu_fallback: None,
            control: Control::default(),
        }
    }

    /// Sets the solver and its settings, in place of the default Levenberg–Marquardt. A simplex starts with an edge of
    /// `size` × |start|, to a factor of √2, or `size` where the start is 0.
    /// [`Solver::LevenbergMarquardtThenNelderMead`] is for spectra only.
    #[must_use]
    pub fn solver(self, solver: impl Into<Solver>) -> CurveFitter {
        CurveFitter {
            solver: solver.into(),
            ..self
        }
    }

    /// Sets the bounds of a parameter in all curves that bring none. Infinite bounds are none.
    #[must_use]
    pub fn bounds(mut self, parameter: &str, lower: f64, upper: f64) -> CurveFitter {
        set_value(
            &mut self.bounds,
            parameter,
            ParameterBounds { lower, upper },
        );
        self
    }

    /// Fixes a parameter at the start of each curve.
    #[must_use]
    pub fn fix(mut self, parameter: &str) -> CurveFitter {
        self.fixed.push(parameter.to_owned());
        self
    }

    /// Sets a Gaussian prior of a parameter: the row (mean − parameter) / sigma, which counts as one additional data
    /// point, so that two points and two priors determine three parameters. Without
    /// [`absolute_sigma`](Self::absolute_sigma) the errors are multiplied by the root of (χ² + Σ rows²)/dof.
    #[must_use]
    pub fn prior(mut self, parameter: &str, mean: f64, sigma: f64) -> CurveFitter {
        set_value(&mut self.priors, parameter, ParameterPrior { mean, sigma });
        self
    }

    /// Ties a parameter to an expression of other parameters, `tie("b", "2*a + 1")`: any formula without predictors.
    /// The parameter keeps its place in starts (which are not read) and results; its error is propagated. The model
    /// must be a formula, and the parameter may have no bounds and no prior, and may not be fixed. Columns of tied fits
    /// take memory for the others' covariances while they are made.
    #[must_use]
    pub fn tie(mut self, parameter: &str, expression: &str) -> CurveFitter {
        self.ties.push(Named {
            parameter: parameter.to_owned(),
            value: expression.to_owned(),
        });
        self
    }

    /// Sets the number of starts of each curve, 1 (the default) to 64, of which the one that ends with the lowest cost
    /// is kept: the curve's own, and others that are drawn between the bounds of each parameter, or where it has not
    /// two of them, from a tenth of its own start to ten times this. A fit takes as many times longer. Evaluations are
    /// those of all starts; the solver's limit of rounds holds for each.
    ///
    /// ```
    /// use popfit::{CurveFitter, Curves, Device, Formula};
    ///
    /// let x: Vec<f64> = (0..50).map(|j| 0.2 * f64::from(j)).collect();
    /// let y: Vec<f64> = x.iter().map(|x| 2.0 * (1.7 * x).sin()).collect();
    /// let curves = Curves::on_common_grid(x, y, vec![1.0, 0.3]);
    /// let fitter = CurveFitter::new(Formula::parse("a*sin(w*x)")?, Device::cpu()).bounds("w", 0.0, 5.0);
    /// assert!(fitter.fit(&curves)?[0].chi2 > 10.0);
    /// assert!(fitter.starts(8).fit(&curves)?[0].chi2 < 1e-9);
    /// # Ok::<(), popfit::Error>(())
    /// ```
    #[must_use]
    pub fn starts(self, starts: usize) -> CurveFitter {
        CurveFitter { starts, ..self }
    }

    /// Sets the estimator, which says how residuals count; least squares unless set.
    #[must_use]
    pub fn estimator(self, estimator: Estimator) -> CurveFitter {
        CurveFitter { estimator, ..self }
    }

    /// Sets whether sigma is known in absolute terms, as `absolute_sigma=True` of scipy's `curve_fit`, so that errors
    /// are not scaled by χ²/dof. If it is not (the default), sigma has relative meaning only, and the covariance is
    /// multiplied by χ²/dof, as it is by scipy's `curve_fit` and, with `scale_covar`, by lmfit. Counts
    /// ([`Estimator::Poisson`]) are always absolute. See [`CurveFit::errors`].
    #[must_use]
    pub fn absolute_sigma(self, absolute_sigma: bool) -> CurveFitter {
        CurveFitter {
            absolute_sigma,
            ..self
        }
    }

    /// Sets whether errors under a robust loss are those of the sandwich formula (by default they are): they follow
    /// from the scatter of the residuals, whether sigma is absolute or not, and hold where some points are outliers
    /// (Huber 1981; section 13 of the book's equations). Otherwise they are scipy's, of (JᵀJ)⁻¹ with the loss's own
    /// curvature, which are too large by a factor of two or more beside a few outliers. Models in WGSL alone have
    /// scipy's.
    #[must_use]
    pub fn sandwich_errors(self, sandwich_errors: bool) -> CurveFitter {
        CurveFitter {
            sandwich_errors,
            ..self
        }
    }

    /// Sets whether results of Levenberg–Marquardt are refined by Gauss–Newton steps in f64 on the host (by default
    /// they are), through a QR decomposition of the Jacobian, which keeps the digits that normal equations lose. Fits
    /// that f32 on a GPU brings to no good end are made again by the host, and simplices that end above a minimum go on
    /// by such steps. Small fits of [`fit_columns`](Self::fit_columns) that fail are made again in any case.
    #[must_use]
    pub fn polish(self, polish: bool) -> CurveFitter {
        CurveFitter { polish, ..self }
    }

    /// Sets whether [`fit_columns`](Self::fit_columns) fits curves as [`fit`](Self::fit) does, to the solver's
    /// tolerances and with [`polish`](Self::polish), to the same bits; else to 0.001 of their errors (the default).
    #[must_use]
    pub fn exact(self, exact: bool) -> CurveFitter {
        CurveFitter { exact, ..self }
    }

    /// Sets whether columns have covariances ([`CurveColumns::covariance`]), (curves, P, P). They come from the normal
    /// matrix of which the errors are, so that they take memory and little time, and are as precise as the errors. Off
    /// unless set; [`fit`](Self::fit) always has them.
    #[must_use]
    pub fn covariance(self, covariance: bool) -> CurveFitter {
        CurveFitter { covariance, ..self }
    }

    /// Limits the memory of the curves that are fitted together to this many bytes.
    #[must_use]
    pub fn max_memory(self, bytes: u64) -> CurveFitter {
        CurveFitter {
            max_memory: Some(bytes),
            ..self
        }
    }

    /// Sets whether the CPU fits curves that a GPU has failed to fit twice, if the model runs there. Unless set they go
    /// there where popfit chose the GPU (`auto`, `all`), and the failure is an error where the user did.
    #[must_use]
    pub fn cpu_fallback(self, cpu_fallback: bool) -> CurveFitter {
        CurveFitter {
            cpu_fallback: Some(cpu_fallback),
            ..self
        }
    }

    /// Sets progress, cancel, timeout and threads of every fit and of [`confidence
    /// intervals`](Self::confidence_intervals).
    ///
    /// Progress counts curves that have ended, by themselves or as bad inputs, once for each of their
    /// [`starts`](Self::starts). A cancel or timeout is noticed between two submissions of a population (up to four
    /// rounds of all its curves) or after some thousand small fits. From then on progress stands still, and fits that
    /// have not ended are [`Status::Interrupted`](crate::Status::Interrupted): at the best point that they had found,
    /// without errors, or at their start if they had not begun. Their messages say which.
    ///
    /// ```
    /// use popfit::{Control, CurveFitter, Curves, Device, Formula, Status};
    /// use std::time::Duration;
    ///
    /// let fitter = CurveFitter::new(Formula::parse("a*exp(-k*x)")?, Device::cpu());
    /// let curves = Curves::on_common_grid(vec![0.0, 1.0, 2.0], vec![3.0, 1.5, 0.7], vec![1.0, 1.0]);
    /// let fit = &fitter.control(Control { timeout: Some(Duration::ZERO), ..Control::default() }).fit(&curves)?[0];
    /// assert_eq!((fit.status, &fit.parameters[..]), (Status::Interrupted, &[1.0, 1.0][..]));
    /// # Ok::<(), popfit::Error>(())
    /// ```
    #[must_use]
    pub fn control(self, control: Control) -> CurveFitter {
        CurveFitter { control, ..self }
    }

    /// Returns an error if the settings are invalid, as every fit does at its beginning.
    ///
    /// # Errors
    /// [`Error::InvalidSettings`](crate::Error::InvalidSettings) lists every fault.
    pub fn validate(&self) -> Result<()> {
        self.make_run().map(drop)
    }

    /// Fits all curves and returns one result per curve, in their order. Where the data and a formula at its start
    /// differ ten thousandfold, the parameters in which it is linear begin at their least squares with the others at
    /// their starts.
    ///
    /// On the CPU the curves that [`fit_columns`](Self::fit_columns) fits whole go the same way, in f64 and to the
    /// solver's tolerances; curves that do not arrive so are taken up from their starts by a population.
    ///
    /// A curve that cannot be fitted has a status, and no error: that means that the run failed.
    ///
    /// # Errors
    /// Returns [`Error::InvalidSettings`](crate::Error::InvalidSettings) with every fault of the settings;
    /// [`Error::ShapeMismatch`](crate::Error::ShapeMismatch) if the lengths of the arrays do not fit together;
    /// [`Error::Usage`](crate::Error::Usage) if the estimator cannot use the data's sigma; the errors of the device,
    /// such as [`Error::DeviceLost`](crate::Error::DeviceLost).
    pub fn fit(&self, curves: &Curves) -> Result<Vec<CurveFit>> {
        self.control.scope(|| {
            let run = self.make_run()?;
            run.fit_from_all_starts(&curves.view().order_starts(&run)?, &self.watch(curves))
        })?
    }

    /// Returns the counter of a run over `curves`, which reports progress and watches for cancel and timeout.
    fn watch(&self, curves: &Curves) -> Watch<'_> {
        // Curves without a consistent shape are refused later.
        let shape = curves.shape(&self.model);
        Watch::new(
            Some(&self.control),
            shape.map_or(0, |(curves, _)| curves * self.starts),
        )
    }

    /// Fits all curves and returns the results as columns, one array per quantity, without memory of its own for each
    /// fit. Parameters lie within 0.001 of their errors from the minimum. (Where the noise is a fifth of the amplitude
    /// or more, a few of ten thousand do not, by little; with a GPU as many as six of a thousand, by up to 0.02.) There
    /// is no [`polish`](Self::polish), unless columns are to be [`exact`](Self::exact). For more curves than memory
    /// holds call it with some at a time.
    ///
    /// Formulas of at most 16 parameters (tied ones do not count) at up to 512 points under Levenberg–Marquardt are
    /// fitted whole: many side by side in f32, then to their end in f64. (GPUs do so for least squares without priors,
    /// of at most 8 parameters at up to 128 points, and the CPU fits the others. Fits end on a GPU where a bound of
    /// what f32's rounding does to them is below 0.0005 errors.) Functions of the same sizes that take many curves in a
    /// call ([`Model::takes_many`](crate::Model::takes_many)) are fitted side by side, too, on the CPU in f64: their
    /// derivatives are differences on one side of each parameter until a step is below 0.01 errors, then on both. Other
    /// models take the way of [`fit`](Self::fit).
    ///
    /// # Errors
    /// The errors of [`fit`](Self::fit).
    pub fn fit_columns(&self, curves: &Curves) -> Result<CurveColumns> {
        let mut columns = CurveColumns::default();
        self.fit_columns_into(curves, &mut columns)?;
        Ok(columns)
    }

    /// Fits all curves as [`fit_columns`](Self::fit_columns) does, in the memory of earlier columns: new memory takes
    /// up to 40 % of the time of very quick fits.
    ///
    /// # Errors
    /// The errors of [`fit`](Self::fit).
    pub fn fit_columns_into(&self, curves: &Curves, columns: &mut CurveColumns) -> Result<()> {
        self.control.scope(|| {
            let run = self.make_run()?;
            let curves = curves.view().order_starts(&run)?;
            run.fit_columns(&curves, columns, &self.watch(&curves))
        })?
    }

    /// Returns confidence intervals of `fits`, which [`fit`](Self::fit) made of `curves`: for each curve those of all
    /// `parameters` (none: all that may move) at all `sigmas` (none: 1, 2, 3; below 1 they are probabilities), as
    /// lmfit's `conf_interval` defines them. The probability of a rise is that of an F-test with χ²/dof as noise, or
    /// that of χ² itself with [`absolute_sigma`](Self::absolute_sigma) and counts. Limits are good to 1e-6 of an error.
    /// All curves are probed at once: each round of the searches is one population. Progress counts ends of intervals,
    /// and ends that were not found when the run was stopped are NaN ([`control`](Self::control)).
    ///
    /// # Errors
    /// The errors of [`fit`](Self::fit); [`Error::ShapeMismatch`](crate::Error::ShapeMismatch) if there are not as many
    /// `fits` as `curves`; [`Error::Usage`](crate::Error::Usage) if there is no such parameter, or if a sigma is not
    /// between 0 and 30.
    pub fn confidence_intervals(
        &self,
        curves: &Curves,
        fits: &[CurveFit],
        parameters: &[&str],
        sigmas: &[f64],
    ) -> Result<Vec<Vec<Interval>>> {
        // One start is enough, because the fits are at their minima.
        let from_one_start = self.clone().starts(1);
        self.control.scope(|| {
            from_one_start.make_run()?.confidence_intervals(
                curves,
                fits,
                parameters,
                sigmas,
                &self.control,
            )
        })?
    }

    /// Compares a model's own derivatives with central differences, and returns for each parameter the worst point. `x`
    /// is (predictors, n).
    ///
    /// The derivatives are those of the model's Rust in f64, or of its WGSL where the device is a GPU. The differences
    /// are those of the Rust, so that a user's WGSL meets its twin, too; of WGSL alone they are taken in f32 on the
    /// device, and good to about 1e-3.
    ///
    /// ```
    /// let model = popfit::Closure::new(&["x"], &["a", "k"], |x, p, y| {
    ///     y.iter_mut().zip(x).for_each(|(y, x)| *y = p[0] * (-p[1] * x).exp());
    /// })?
    /// .derivatives(|x, p, rows| {
    ///     for (j, x) in x.iter().enumerate() {
    ///         rows[j] = (-p[1] * x).exp();
    ///         rows[3 + j] = p[0] * x * (-p[1] * x).exp(); // its sign is wrong
    ///     }
    /// });
    /// let fitter = popfit::CurveFitter::new(model, popfit::Device::cpu());
    /// let checks = fitter.check_jacobian(&[0.0, 1.0, 2.0], &[3.0, 0.5])?;
    /// assert!(checks[0].error < 1e-9 && checks[1].error > 1.0);
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::ShapeMismatch`](crate::Error::ShapeMismatch) if `x` or `parameters` has the wrong length,
    /// [`Error::Model`](crate::Error::Model) if the model has no derivatives of its own or fails at these points, the
    /// errors of a fit for its settings, and those of the device.
    pub fn check_jacobian(&self, x: &[f64], parameters: &[f64]) -> Result<Vec<DerivativeCheck>> {
        self.make_run()?.check_jacobian(x, parameters)
    }
}
