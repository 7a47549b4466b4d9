//! Starts, bounds and priors of each spectrum, from the model or from columns of the table of spectra.

use crate::error::{Error, Result};
use crate::model::{Cause, ModelParameter, ParameterLimits, SpectralModel, SpectrumFault};
use crate::spectra::{Column, Spectra};

/// The result of an operation on one spectrum.
pub type SpectrumResult<T> = std::result::Result<T, SpectrumFault>;

/// The columns of one parameter; `None` for those that the model does not ask for.
#[derive(Clone, Copy, Default)]
struct ParameterColumns<'s> {
    start: Option<&'s Column>,
    lower: Option<&'s Column>,
    upper: Option<&'s Column>,
    mean: Option<&'s Column>,
    sigma: Option<&'s Column>,
}

/// Columns in which a batch of spectra gives starts, bounds and priors of the parameters.
pub struct LimitColumns<'s> {
    model: &'s SpectralModel,
    columns: Vec<ParameterColumns<'s>>,
}

impl<'s> LimitColumns<'s> {
    /// Finds the spectra's columns of starts, bounds and priors that the model asks for; an error if one is missing.
    ///
    /// # Errors
    /// Returns [`Error::ShapeMismatch`] for a file that lacks one of them.
    pub fn new(model: &'s SpectralModel, spectra: &'s Spectra) -> Result<LimitColumns<'s>> {
        let mut columns = Vec::with_capacity(model.parameters.len());
        for parameter in &model.parameters {
            let names = &parameter.columns;
            columns.push(ParameterColumns {
                start: find_column(spectra, &names.start)?,
                lower: find_column(spectra, &names.lower)?,
                upper: find_column(spectra, &names.upper)?,
                mean: find_column(spectra, &names.mean)?,
                sigma: find_column(spectra, &names.sigma)?,
            });
        }
        Ok(LimitColumns { model, columns })
    }

    /// Returns bounds, start and prior of each parameter for the spectrum in a row, or the fault of a column's value.
    pub fn read_limits(&self, row: usize) -> SpectrumResult<Vec<ParameterLimits>> {
        let parameters = self.model.parameters.iter().zip(&self.columns);
        parameters
            .map(|(parameter, columns)| self.read_parameter_limits(parameter, columns, row))
            .collect()
    }

    /// Returns bounds, start and prior of one parameter in a row: the model's bounds, narrowed by the columns, and the
    /// columns' start and prior. NaN in a column means that the row has none.
    fn read_parameter_limits(
        &self,
        parameter: &ModelParameter,
        columns: &ParameterColumns,
        row: usize,
    ) -> SpectrumResult<ParameterLimits> {
        let mut limits = parameter.limits();
        let name = &parameter.solver.name;
        // 1. The columns may narrow the model's bounds.
        if let Some(lower) = read_bound(columns.lower, row, name)? {
            limits.lower = limits.lower.max(lower);
        }
        if let Some(upper) = read_bound(columns.upper, row, name)? {
            limits.upper = limits.upper.min(upper);
        }
        let ParameterLimits { lower, upper, .. } = limits;
        if lower > upper {
            return Err(SpectrumFault {
                cause: Cause::BadBounds,
                detail: format!("{name} lies between {lower} and {upper}"),
            });
        }
        // 2. They replace the model's prior. NaN in one of them means that the row has none.
        let has_no_prior = is_nan(columns.mean, row) || is_nan(columns.sigma, row);
        limits.prior = limits.prior.filter(|_| !has_no_prior);
        if let Some((mean, sigma)) = &mut limits.prior {
            *mean = read_finite(columns.mean, row, name, Cause::BadPrior)?.unwrap_or(*mean);
            *sigma = read_finite(columns.sigma, row, name, Cause::BadPrior)?.unwrap_or(*sigma);
            if *sigma <= 0.0 {
                return Err(SpectrumFault {
                    cause: Cause::BadPrior,
                    detail: format!("{name} has a prior of sigma {sigma}"),
                });
            }
        }
        // 3. They set a start.
        let start_column = columns.start.filter(|column| !is_nan(Some(column), row));
        if let Some(start) = read_finite(start_column, row, name, Cause::BadStart)? {
            let is_outside = start < lower || start > upper;
            if is_outside && !self.model.clip_starts {
                return Err(SpectrumFault {
                    cause: Cause::StartOutOfBounds,
                    detail: format!("{name} starts at {start}, outside {lower} to {upper}"),
                });
            }
            limits.start = Some(start);
        }
        Ok(limits)
    }
}

/// Finds a column of numbers by its name; `None` without a name, and an error if there is no such column.
fn find_column<'s>(spectra: &'s Spectra, name: &Option<String>) -> Result<Option<&'s Column>> {
    let Some(name) = name else { return Ok(None) };
    let column = spectra.column(name);
    let message = match column {
        Some(numbers) if spectra.is_empty() || numbers.values.number(0).is_some() => {
            return Ok(column);
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
fn read_finite(
    column: Option<&Column>,
    row: usize,
    parameter: &str,
    cause: Cause,
) -> SpectrumResult<Option<f64>> {
    let Some(column) = column else {
        return Ok(None);
    };
    match column.values.number(row).filter(|x| x.is_finite()) {
        Some(number) => Ok(Some(number)),
        None => Err(SpectrumFault {
            cause,
            detail: format!("{parameter}: column {} is not finite", column.name),
        }),
    }
}

/// Returns the bound that a column has in a row (`None` without a column), or a fault if it is NaN. An infinite one has
/// no effect.
fn read_bound(column: Option<&Column>, row: usize, parameter: &str) -> SpectrumResult<Option<f64>> {
    let Some(column) = column else {
        return Ok(None);
    };
    match column.values.number(row).filter(|x| !x.is_nan()) {
        Some(number) => Ok(Some(number)),
        None => {
            let detail = format!(
                "{parameter}: column {} is NaN, which is no bound",
                column.name
            );
            Err(SpectrumFault {
                cause: Cause::BadBounds,
                detail,
            })
        }
    }
}
