//! Names of predictors and parameters that a caller gives.

use super::function::{CONSTANTS, is_function};
use super::parse::{MOST_PARAMETERS, is_operator, is_refused};
use super::token::is_of_name;
use crate::error::{Error, Result};

/// Returns the predictors' names, or fails if there are none, or one cannot be a predictor's.
pub fn check_predictors(names: &[&str]) -> Result<Vec<String>> {
    if names.is_empty() {
        return Err(Error::invalid("predictors", "a formula needs a predictor"));
    }
    check("predictor", names, &[])
}

/// Returns the parameters' names, or fails if there are none or too many, or one cannot be a parameter's.
pub fn check_parameters(names: &[&str], predictors: &[String]) -> Result<Vec<String>> {
    if names.is_empty() {
        return Err(Error::invalid("parameters", "there is no parameter to fit"));
    }
    if names.len() > MOST_PARAMETERS {
        let message = format!("{} parameters are more than {MOST_PARAMETERS}", names.len());
        return Err(Error::invalid("parameters", message));
    }
    check("parameter", names, predictors)
}

/// Returns the names; fails if one is no name, means something else in formulas, is repeated or is one of `others`.
/// `kind` is a word for one of them.
fn check(kind: &str, names: &[&str], others: &[String]) -> Result<Vec<String>> {
    for (k, name) in names.iter().enumerate() {
        let is_name = name.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && name.chars().all(is_of_name);
        let is_constant = CONSTANTS.iter().any(|(known, _)| known == name);
        let has_meaning = is_function(name) || is_constant || is_operator(name) || is_refused(name);
        let is_other = others.iter().any(|other| other == name);
        let why = match (is_name, has_meaning, names[..k].contains(name), is_other) {
            (false, ..) => "is no name",
            (_, true, ..) => "is a function, a constant, an operator or a value of formulas",
            (_, _, true, _) => "is named twice",
            (.., true) => "is a predictor, too",
            _ => continue,
        };
        return Err(Error::invalid(
            format!("{kind}s"),
            format!("{kind} `{name}` {why}"),
        ));
    }
    Ok(names.iter().map(|name| (*name).to_owned()).collect())
}
