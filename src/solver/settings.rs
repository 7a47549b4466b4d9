//! Settings of the solvers.

use std::fmt;

use crate::error::InvalidSetting;

/// Maximum number of starts of a spectrum.
pub const MOST_STARTS: usize = 64;

/// Writes the struct of a solver's settings, their setters, and `or`, which replaces settings that no setter has set.
macro_rules! solver_settings {
    ($(#[$about:meta])* $type:ident, $given:ident { $($(#[$doc:meta])* $name:ident: $kind:ty = $default:expr;)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $type {
            $(pub(crate) $name: $kind,)+
            pub(crate) given: $given,
        }

        /// The settings that setters have set.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct $given {
            $($name: bool,)+
        }

        impl $type {
            /// The defaults of spectra.
            pub(crate) const OF_SPECTRA: $type = $type { $($name: $default,)+ given: $given { $($name: false,)+ } };

            $(
                $(#[$doc])*
                #[must_use]
                pub fn $name(mut self, $name: $kind) -> $type {
                    self.$name = $name;
                    self.given.$name = true;
                    self
                }
            )+

            /// Returns these settings with those of `defaults` in place of all that no setter has set.
            pub(crate) fn or(mut self, defaults: $type) -> $type {
                $(
                    if !self.given.$name {
                        self.$name = defaults.$name;
                    }
                )+
                self
            }
        }

        impl Default for $type {
            fn default() -> $type {
                $type::OF_SPECTRA
            }
        }
    };
}

solver_settings! {
    /// Population Levenberg–Marquardt (Marquardt 1963 scaling, damping of Nielsen 1999; near the end the curvature that
    /// residuals add, a structured secant after Dennis, Gay & Welsch 1981, but for small fits of written-out models).
    ///
    /// What is not set is the fitter's: [`SpectralFitter`](crate::SpectralFitter) and
    /// [`CurveFitter`](crate::CurveFitter) have defaults of their own, which the setters name in this order.
    LevenbergMarquardt, GivenOfLevenbergMarquardt {
        /// Sets the maximum number of linearisations of a member (default 60), or of all attempts at a curve's fit
        /// together (default 10,000, of which an attempt has 500 unless this is set).
        max_rounds: u32 = 60;
        /// Sets the share of its cost that the predicted reduction of a converged fit may be (defaults 1e-9 and 1e-14).
        /// For spectra a cost above 10⁴ counts as 10⁴. [`fit_columns`](crate::CurveFitter::fit_columns) has another
        /// criterion unless this is set.
        ftol: f64 = 1e-9;
        /// Sets the ratio of the scaled step to the scaled parameters that it moves at which a fit has converged
        /// (defaults 1e-9 and 1e-12).
        xtol: f64 = 1e-9;
        /// Sets the largest cosine between the residual and a column of the Jacobian of a converged fit (defaults 1e-9
        /// and 1e-12).
        gtol: f64 = 1e-9;
        /// Sets μ₀, relative to the diagonal of the normal matrix (default 1e-3).
        initial_damping: f64 = 1e-3;
        /// Sets the number of rejected steps in a row after which a member has stalled (defaults 16 and 30).
        max_rejections: u32 = 16;
        /// Sets the smallest element of the damping's diagonal, as a share of its largest (defaults 0 and 0.3). Without
        /// such a floor, a parameter on which the model hardly depends at the current point moves undamped, however
        /// far. Unlike all else, the floor depends on the scaling of the parameters: it is released before a fit ends.
        diagonal_floor: f64 = 0.0;
        /// Sets the largest ratio of a parameter's step to its magnitude, which counts as at least a tenth of its unit
        /// (defaults 1e30 and 0.7): longer steps are shortened. Convergence is that of the step before.
        largest_step: f64 = 1e30;
    }
}

impl LevenbergMarquardt {
    /// The defaults of curves.
    pub(crate) const OF_CURVES: LevenbergMarquardt = LevenbergMarquardt {
        max_rounds: 10_000,
        ftol: 1e-14,
        xtol: 1e-12,
        gtol: 1e-12,
        max_rejections: 30,
        diagonal_floor: 0.3,
        largest_step: 0.7,
        ..LevenbergMarquardt::OF_SPECTRA
    };

    /// Returns whether a setter has set the maximum number of linearisations.
    pub(crate) fn has_max_rounds(&self) -> bool {
        self.given.max_rounds
    }

    /// Returns whether a setter has set the largest step.
    pub(crate) fn has_largest_step(&self) -> bool {
        self.given.largest_step
    }

    /// Returns `ftol` if a setter has set it.
    pub(crate) fn given_ftol(&self) -> Option<f64> {
        self.given.ftol.then_some(self.ftol)
    }

    /// Returns the faults of invalid settings; empty if all are valid.
    pub(crate) fn faults(&self) -> Vec<InvalidSetting> {
        let tolerances = [
            ("ftol", self.ftol),
            ("xtol", self.xtol),
            ("gtol", self.gtol),
            ("diagonal_floor", self.diagonal_floor),
        ];
        let mut faults: Vec<_> = tolerances
            .into_iter()
            .filter_map(|(name, value)| check_not_negative(name, value))
            .collect();
        faults.extend(check_positive("initial_damping", self.initial_damping));
        if !(self.largest_step > 0.0 && self.largest_step <= 1e30) {
            let message = format!("must lie between 0 and 1e30, not {}", self.largest_step);
            faults.push(InvalidSetting::new("largest_step", message));
        }
        faults.extend(check_rounds(self.max_rounds));
        faults
    }
}

impl fmt::Display for LevenbergMarquardt {
    /// `key = value`, line by line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LevenbergMarquardt {
            max_rounds,
            ftol,
            xtol,
            gtol,
            initial_damping,
            max_rejections,
            ..
        } = self;
        writeln!(
            f,
            "max_rounds = {max_rounds}\nftol = {ftol:e}\nxtol = {xtol:e}\ngtol = {gtol:e}"
        )?;
        writeln!(
            f,
            "diagonal_floor = {:e}\nlargest_step = {:e}",
            self.diagonal_floor, self.largest_step
        )?;
        write!(
            f,
            "initial_damping = {initial_damping:e}\nmax_rejections = {max_rejections}"
        )
    }
}

solver_settings! {
    /// Population Nelder–Mead (Nelder & Mead 1965; adaptive coefficients, Gao & Han 2012) on the objective itself.
    /// Unless [`linearise`](Self::linearise) is false, one linearisation at the start shapes the first simplex, and a
    /// quadratic surface refines its end; the linearisation counts as one evaluation and one per free parameter.
    ///
    /// What is not set is the fitter's: [`SpectralFitter`](crate::SpectralFitter) and
    /// [`CurveFitter`](crate::CurveFitter) have defaults of their own, which the setters name in this order.
    NelderMead, GivenOfNelderMead {
        /// Sets the maximum number of iterations of each search of a simplex (defaults 1500 and 20,000).
        max_rounds: u32 = 1500;
        /// Sets by how much lower the surface around the best vertex may have its minimum at convergence, or by what
        /// rounding hides (defaults 1e-3 and 0). In units of the lowest χ²/dof where a
        /// [`CurveFitter`](crate::CurveFitter) does not know the noise.
        fatol: f64 = 1e-3;
        /// Sets the edge of a simplex that no linearisation shapes, and half of the longest that one may have, in the
        /// solver's units (default 0.5): standard deviations of a label in the training set, 10 km/s.
        size: f64 = 0.5;
        /// Sets how often, at most, a simplex that no linearisation shaped is spread again around its best vertex, ever
        /// smaller, until two in a row gain no more than `fatol` (defaults 6 and 20).
        max_restarts: u32 = 6;
        /// Sets whether the search may linearise the model at the start (by default it may). Without, it compares
        /// objectives alone, as it does for models that have no derivatives (scalar costs), and takes several times as
        /// many evaluations.
        linearise: bool = true;
    }
}

impl NelderMead {
    /// The defaults of curves.
    pub(crate) const OF_CURVES: NelderMead = NelderMead {
        max_rounds: 20_000,
        fatol: 0.0,
        max_restarts: 20,
        ..NelderMead::OF_SPECTRA
    };

    /// Returns the faults of invalid settings; empty if all are valid.
    pub(crate) fn faults(&self) -> Vec<InvalidSetting> {
        let faults = [
            check_not_negative("fatol", self.fatol),
            check_positive("size", self.size),
            check_rounds(self.max_rounds),
        ];
        faults.into_iter().flatten().collect()
    }
}

/// Returns the fault of a setting that must be finite and ≥ 0; `None` if it is valid.
fn check_not_negative(name: &str, value: f64) -> Option<InvalidSetting> {
    let is_valid = value.is_finite() && value >= 0.0;
    (!is_valid).then(|| {
        let message = format!("must be finite and not negative, not {value}");
        InvalidSetting::new(name, message)
    })
}

/// Returns the fault of a setting that must be finite and > 0; `None` if it is valid.
fn check_positive(name: &str, value: f64) -> Option<InvalidSetting> {
    let is_valid = value.is_finite() && value > 0.0;
    (!is_valid).then(|| InvalidSetting::new(name, format!("must be positive, not {value}")))
}

/// Returns the fault of a maximum of 0 rounds; `None` for any other.
fn check_rounds(max_rounds: u32) -> Option<InvalidSetting> {
    (max_rounds == 0).then(|| InvalidSetting::new("max_rounds", "must be at least 1"))
}

impl NelderMead {
    /// Returns the maximum difference of the vertices' objectives at convergence: absolute, and relative to the lowest.
    /// `noise` is that of the rows, and `dof` is `None` where it is not known.
    pub(crate) fn tolerances(&self, dof: Option<f64>, noise: f64) -> (f64, f64) {
        dof.map_or((self.fatol, noise), |dof| {
            (0.0, noise.max(self.fatol / dof))
        })
    }
}

impl NelderMead {
    /// Returns the change of a minimum by noise, the unit of `fatol`: absolute, or as a share of the lowest objective
    /// if `dof` is given. The other one is 0.
    pub(crate) fn unit(dof: Option<f64>) -> (f64, f64) {
        dof.map_or((1.0, 0.0), |dof| (0.0, 1.0 / dof))
    }
}

impl fmt::Display for NelderMead {
    /// `key = value`, line by line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NelderMead {
            max_rounds,
            fatol,
            size,
            max_restarts,
            linearise,
            ..
        } = self;
        writeln!(
            f,
            "simplex_max_rounds = {max_rounds}\nfatol = {fatol:e}\nsize = {size}"
        )?;
        write!(f, "max_restarts = {max_restarts}\nlinearise = {linearise}")
    }
}
