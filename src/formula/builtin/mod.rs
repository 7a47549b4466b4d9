//! Built-in models by name.

mod table;

use super::Formula;
use super::direct::WrittenModel;
use crate::error::{Error, Result};
use crate::suggest::hint;
pub use table::BUILTINS;

/// Highest degree of a built-in polynomial.
const HIGHEST_DEGREE: usize = 30;

impl Formula {
    /// Returns a built-in model by its name.
    ///
    #[doc = include_str!("../builtin.md")]
    ///
    /// # Errors
    /// Returns [`Error::Usage`] for an unknown name, with the names that it may have been meant for, and for a
    /// polynomial of a degree above 30.
    pub fn builtin(name: &str) -> Result<Formula> {
        if let Some(builtin) = BUILTINS.iter().find(|builtin| builtin.name == name) {
            let formula = Formula::parse_with(builtin.text, builtin.predictors)?
                .with_parameters(builtin.parameters)?;
            return Ok(Formula {
                written_model: WrittenModel::find(name),
                ..formula
            });
        }
        if let Some(degree) = name
            .strip_prefix("polynomial(")
            .and_then(|rest| rest.strip_suffix(')'))
        {
            return match degree.trim().parse::<usize>() {
                Ok(degree) if degree <= HIGHEST_DEGREE => Formula::parse(&polynomial_text(degree)),
                _ => Err(Error::Usage(format!(
                    "a polynomial's degree is 0 to {HIGHEST_DEGREE}, not {degree}"
                ))),
            };
        }
        Err(Error::Usage(format!(
            "no model `{name}`{}",
            hint(
                name,
                BUILTINS
                    .iter()
                    .map(|builtin| builtin.name)
                    .chain(["polynomial(n)"])
            )
        )))
    }

    /// Returns the names of the built-in models, with `polynomial(2)` for polynomials of any degree.
    pub fn builtins() -> impl Iterator<Item = &'static str> {
        BUILTINS
            .iter()
            .map(|builtin| builtin.name)
            .chain(["polynomial(2)"])
    }
}

/// Returns a polynomial's formula by Horner's scheme, such as `c0 + x*(c1 + x*(c2))` for degree 2.
pub fn polynomial_text(degree: usize) -> String {
    let mut text = String::new();
    for k in 0..degree {
        text += &format!("c{k} + x*(");
    }
    text + &format!("c{degree}") + &")".repeat(degree)
}

#[cfg(test)]
mod tests;
