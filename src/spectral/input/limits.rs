//! Starts, bounds and priors of each spectrum, from the model or from columns of the table of spectra.

use crate::error::{Error, Result};
use crate::model::{Cause, Fault, LabelColumns, Limits, ModelParameter, SpectralModel};
use crate::spectra::{Column, Spectra};

/// The result of an operation on one spectrum.
type Outcome<T> = std::result::Result<T, Fault>;

/// The columns of one parameter, as far as the model asks for them.
#[derive(Clone, Copy, Default)]
struct Columns<'s> {
    start: Option<&'s Column>,
    lower: Option<&'s Column>,
    upper: Option<&'s Column>,
    mean: Option<&'s Column>,
    sigma: Option<&'s Column>,
}

/// Columns in which a batch of spectra gives starts, bounds and priors of the parameters.
pub struct Tables<'s> {
    model: &'s SpectralModel,
    columns: Vec<Columns<'s>>,
}

impl<'s> Tables<'s> {
    /// Finds the spectra's columns of starts, bounds and priors that the model asks for; an error if one is missing.
    ///
    /// # Errors
    /// Returns [`Error::ShapeMismatch`] for a file that lacks one of them.
    pub fn new(model: &'s SpectralModel, spectra: &'s Spectra) -> Result<Tables<'s>> {
        let mut columns = Vec::with_capacity(model.parameters.len());
        for parameter in &model.parameters {
            let LabelColumns {
                start,
                lower,
                upper,
                mean,
                sigma,
            } = &parameter.columns;
            let [start, lower, upper] = [
                find(spectra, start)?,
                find(spectra, lower)?,
                find(spectra, upper)?,
            ];
            let [mean, sigma] = [find(spectra, mean)?, find(spectra, sigma)?];
            columns.push(Columns {
                start,
                lower,
                upper,
                mean,
                sigma,
            });
        }
        Ok(Tables { model, columns })
    }

    /// Returns bounds, start and prior of each parameter for the spectrum in a row, or the fault of a column's value.
    pub fn of(&self, row: usize) -> Outcome<Vec<Limits>> {
        let pairs = self.model.parameters.iter().zip(&self.columns);
        pairs
            .map(|(parameter, columns)| self.parameter(parameter, columns, row))
            .collect()
    }

    /// Returns bounds, start and prior of one parameter in a row: the model's bounds, narrowed by the columns, and the
    /// columns' start and prior. NaN in a column means that the row has none.
    fn parameter(
        &self,
        parameter: &ModelParameter,
        columns: &Columns,
        row: usize,
    ) -> Outcome<Limits> {
        let mut limits = parameter.limits();
        let name = &parameter.solver.name;
        if let Some(x) = bound(columns.lower, row, name)? {
            limits.lower = limits.lower.max(x);
        }
        if let Some(x) = bound(columns.upper, row, name)? {
            limits.upper = limits.upper.min(x);
        }
        let Limits { lower, upper, .. } = limits;
        if lower > upper {
            let detail = format!("{name} lies between {lower} and {upper}");
            return Err(Fault {
                cause: Cause::BadBounds,
                detail,
            });
        }
        limits.prior = limits.prior.filter(|_| {
            ![columns.mean, columns.sigma]
                .iter()
                .any(|column| is_nan(*column, row))
        });
        if let Some((mean, sigma)) = &mut limits.prior {
            *mean = finite(columns.mean, row, name, Cause::BadPrior)?.unwrap_or(*mean);
            *sigma = finite(columns.sigma, row, name, Cause::BadPrior)?.unwrap_or(*sigma);
            if *sigma <= 0.0 {
                let detail = format!("{name} has a prior of sigma {sigma}");
                return Err(Fault {
                    cause: Cause::BadPrior,
                    detail,
                });
            }
        }
        let start = columns.start.filter(|column| !is_nan(Some(column), row));
        if let Some(x) = finite(start, row, name, Cause::BadStart)? {
            if (x < lower || x > upper) && !self.model.clip_starts {
                let detail = format!("{name} starts at {x}, outside {lower} to {upper}");
                return Err(Fault {
                    cause: Cause::StartOutOfBounds,
                    detail,
                });
            }
            limits.start = Some(x);
        }
        Ok(limits)
    }
}

/// Finds a column of numbers by its name; `None` without a name, and an error if there is no such column.
fn find<'s>(spectra: &'s Spectra, name: &Option<String>) -> Result<Option<&'s Column>> {
    let Some(name) = name else { return Ok(None) };
    let found = spectra.column(name);
    let message = match found {
        Some(column) if spectra.is_empty() || column.values.number(0).is_some() => {
            return Ok(found);
        }
        Some(_) => format!("the column `{name}`, which the model asks for, is not of numbers"),
        None => format!("no column `{name}`, which the model asks for, of one number per spectrum"),
    };
    Err(Error::mismatch(spectra.name(), message).naming(name))
}

/// Returns whether a column's value in a row is NaN; false without a column.
fn is_nan(column: Option<&Column>, row: usize) -> bool {
    column.is_some_and(|column| column.values.number(row).is_some_and(f64::is_nan))
}

/// Returns a column's value in a row (`None` without a column), or a fault of this `cause` if it is not finite.
fn finite(
    column: Option<&Column>,
    row: usize,
    parameter: &str,
    cause: Cause,
) -> Outcome<Option<f64>> {
    let Some(column) = column else {
        return Ok(None);
    };
    match column.values.number(row).filter(|x| x.is_finite()) {
        Some(x) => Ok(Some(x)),
        None => Err(Fault {
            cause,
            detail: format!("{parameter}: column {} is not finite", column.name),
        }),
    }
}

/// Returns the bound that a column has in a row (`None` without a column), or a fault if it is NaN. An infinite one has
/// no effect.
fn bound(column: Option<&Column>, row: usize, parameter: &str) -> Outcome<Option<f64>> {
    let Some(column) = column else {
        return Ok(None);
    };
    match column.values.number(row).filter(|x| !x.is_nan()) {
        Some(x) => Ok(Some(x)),
        None => {
            let detail = format!(
                "{parameter}: column {} is NaN, which is no bound",
                column.name
            );
            Err(Fault {
                cause: Cause::BadBounds,
                detail,
            })
        }
    }
}
