//! The solvers that users choose from.

use std::fmt;
use std::str::FromStr;

use super::{LevenbergMarquardt, NelderMead};
use crate::error::{Error, InvalidSetting};
use crate::suggest::hint;

/// A solver with its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Solver {
    /// Levenberg–Marquardt.
    LevenbergMarquardt(LevenbergMarquardt),
    /// Nelder–Mead on the objective itself, ln det included where the model marginalises.
    NelderMead(NelderMead),
    /// Levenberg–Marquardt, then a small simplex around each spectrum's winner. For spectra only.
    LevenbergMarquardtThenNelderMead(LevenbergMarquardt, NelderMead),
}

impl Solver {
    /// Names of the solvers, as model files and the command line have them.
    #[doc(hidden)]
    pub const NAMES: &[&str] = &["lm", "nelder-mead", "lm+nelder-mead"];

    /// Returns the solver's name, one of [`NAMES`](Solver::NAMES).
    #[doc(hidden)]
    pub fn name(&self) -> &'static str {
        match self {
            Solver::LevenbergMarquardt(_) => "lm",
            Solver::NelderMead(_) => "nelder-mead",
            Solver::LevenbergMarquardtThenNelderMead(..) => "lm+nelder-mead",
        }
    }

    /// Sets the largest number of rounds of a fit, the same for each part of a combined solver.
    #[must_use]
    #[doc(hidden)]
    pub fn with_max_rounds(self, max_rounds: u32) -> Solver {
        match self {
            Solver::LevenbergMarquardt(lm) => lm.max_rounds(max_rounds).into(),
            Solver::NelderMead(simplex) => simplex.max_rounds(max_rounds).into(),
            Solver::LevenbergMarquardtThenNelderMead(lm, simplex) => {
                Solver::LevenbergMarquardtThenNelderMead(
                    lm.max_rounds(max_rounds),
                    simplex.max_rounds(max_rounds),
                )
            }
        }
    }

    /// Returns the solver with the defaults of spectra in place of settings that are not set.
    pub(crate) fn for_spectra(self) -> Solver {
        let lm_defaults = LevenbergMarquardt::OF_SPECTRA;
        let simplex_defaults = NelderMead::OF_SPECTRA;
        match self {
            Solver::LevenbergMarquardt(lm) => lm.or(lm_defaults).into(),
            Solver::NelderMead(simplex) => simplex.or(simplex_defaults).into(),
            Solver::LevenbergMarquardtThenNelderMead(lm, simplex) => {
                Solver::LevenbergMarquardtThenNelderMead(
                    lm.or(lm_defaults),
                    simplex.or(simplex_defaults),
                )
            }
        }
    }

    /// Returns the faults of invalid settings; empty if all are valid.
    pub(crate) fn faults(&self) -> Vec<InvalidSetting> {
        match self {
            Solver::LevenbergMarquardt(lm) => lm.faults(),
            Solver::NelderMead(simplex) => simplex.faults(),
            Solver::LevenbergMarquardtThenNelderMead(lm, simplex) => {
                [lm.faults(), simplex.faults()].concat()
            }
        }
    }
}

impl Default for Solver {
    fn default() -> Solver {
        LevenbergMarquardt::default().into()
    }
}

impl FromStr for Solver {
    type Err = Error;

    /// Returns the solver of this name with its default settings. [`Error::Usage`] for any other name.
    fn from_str(name: &str) -> Result<Solver, Error> {
        let lm = LevenbergMarquardt::default();
        let simplex = NelderMead::default();
        match name {
            "lm" => Ok(lm.into()),
            "nelder-mead" => Ok(simplex.into()),
            "lm+nelder-mead" => Ok(Solver::LevenbergMarquardtThenNelderMead(lm, simplex)),
            _ => {
                let hint = hint(name, Solver::NAMES.iter().copied());
                Err(Error::Usage(format!(
                    "no solver \"{name}\"{hint}: choose {}",
                    Solver::NAMES.join(", ")
                )))
            }
        }
    }
}

impl fmt::Display for Solver {
    /// Writes the name and the settings as `key = value`, line by line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "solver = {}", self.name())?;
        match self {
            Solver::LevenbergMarquardt(lm) => write!(f, "\n{lm}"),
            Solver::NelderMead(simplex) => write!(f, "\n{simplex}"),
            Solver::LevenbergMarquardtThenNelderMead(lm, simplex) => write!(f, "\n{lm}\n{simplex}"),
        }
    }
}

impl From<LevenbergMarquardt> for Solver {
    fn from(settings: LevenbergMarquardt) -> Solver {
        Solver::LevenbergMarquardt(settings)
    }
}

impl From<NelderMead> for Solver {
    fn from(settings: NelderMead) -> Solver {
        Solver::NelderMead(settings)
    }
}
