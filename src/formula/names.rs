//! Names of predictors and parameters that a caller gives.

use super::function::{CONSTANTS, is_function};
use super::parse::{MAX_FORMULA_PARAMETERS, is_operator, is_refused};
use super::token::may_be_in_name;
use crate::error::{Error, Result};

/// Returns the predictors' names, or fails if there are none, or one cannot be a predictor's.
pub fn check_predictors(names: &[&str]) -> Result<Vec<String>> {
    if names.is_empty() {
        return Err(Error::invalid("predictors", "a formula needs a predictor"));
    }
    check_names("predictor", names, &[])
}

/// Returns the parameters' names, or fails if there are none or too many, or one cannot be a parameter's.
pub fn check_parameters(names: &[&str], predictors: &[String]) -> Result<Vec<String>> {
    if names.is_empty() {
        return Err(Error::invalid("parameters", "there is no parameter to fit"));
    }
    if names.len() > MAX_FORMULA_PARAMETERS {
        let message = format!(
            "{} parameters are more than {MAX_FORMULA_PARAMETERS}",
            names.len()
        );
        return Err(Error::invalid("parameters", message));
    }
    check_names("parameter", names, predictors)
}

/// Returns the names; fails if one is no name, means something else in formulas, is repeated or is one of the taken
/// names. `kind` says in the message what they are names of.
fn check_names(kind: &str, names: &[&str], taken_names: &[String]) -> Result<Vec<String>> {
    for (k, name) in names.iter().enumerate() {
        let is_name = name.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && name.chars().all(may_be_in_name);
        let is_constant = CONSTANTS.iter().any(|(constant, _)| constant == name);
        let has_meaning = is_function(name) || is_constant || is_operator(name) || is_refused(name);
        let is_taken = taken_names.iter().any(|taken_name| taken_name == name);
        let is_repeated = names[..k].contains(name);
        let reason = match (is_name, has_meaning, is_repeated, is_taken) {
            (false, ..) => "is no name",
            (_, true, ..) => "is a function, a constant, an operator or a value of formulas",
            (_, _, true, _) => "is named twice",
            (.., true) => "is a predictor, too",
            _ => continue,
        };
        return Err(Error::invalid(
            format!("{kind}s"),
            format!("{kind} `{name}` {reason}"),
        ));
    }
    Ok(names.iter().map(|name| (*name).to_owned()).collect())
}
