//! Recognition of built-in models by their text, whatever their parameters are called: formulas with prefixes, from
//! pickles and typed ones keep their guesses.

use std::sync::LazyLock;

use super::GuessMethod;
use crate::formula::Formula;
use crate::formula::builtin::{BUILTINS, polynomial_text};
use crate::formula::function::CONSTANTS;
use crate::formula::parse::is_operator;
use crate::formula::token::{Token, tokenise};

/// Text of a formula in which the names that a user chooses are replaced by numbers, in the order in which they appear,
/// and these names.
struct Skeleton {
    text: String,
    names: Vec<String>,
}

/// Skeletons of the built-in models.
static BUILTIN_SKELETONS: LazyLock<Vec<Skeleton>> = LazyLock::new(|| {
    BUILTINS
        .iter()
        .map(|builtin| Skeleton::from_text(builtin.text, builtin.predictors))
        .collect()
});

impl Skeleton {
    fn from_text(text: &str, predictors: &[impl AsRef<str>]) -> Skeleton {
        let mut skeleton = Skeleton {
            text: String::new(),
            names: Vec::new(),
        };
        let tokens = tokenise(text).unwrap_or_default();
        for (k, (_, token)) in tokens.iter().enumerate() {
            let is_call = tokens
                .get(k + 1)
                .is_some_and(|(_, next_token)| *next_token == Token::Symbol('('));
            let word = match token {
                Token::Number(value) => format!("{value:e}"),
                Token::Symbol(symbol) => symbol.to_string(),
                Token::End => break,
                Token::Name(name) => {
                    let is_fixed = is_call
                        || is_operator(name)
                        || CONSTANTS.iter().any(|(constant, _)| constant == name);
                    let predictor_index = predictors
                        .iter()
                        .position(|predictor| predictor.as_ref() == name);
                    match predictor_index {
                        Some(d) => format!("x{d}"),
                        None if is_fixed => name.clone(),
                        None => format!("p{}", skeleton.number_name(name)),
                    }
                }
            };
            skeleton.text.push_str(&word);
            skeleton.text.push(' ');
        }
        skeleton
    }

    /// Returns the number of a name, which is new unless it has appeared before.
    fn number_name(&mut self, name: &str) -> usize {
        self.names
            .iter()
            .position(|earlier_name| earlier_name == name)
            .unwrap_or_else(|| {
                self.names.push(name.to_owned());
                self.names.len() - 1
            })
    }
}

/// Returns how to guess the parameters of a formula, and for each parameter of the built-in model its index among those
/// of the formula; `None` if it is no built-in model.
pub fn recognise(formula: &Formula) -> Option<(GuessMethod, Vec<usize>)> {
    let skeleton = Skeleton::from_text(formula.text(), formula.predictors());
    let parameter_count = formula.parameters().len();
    let parameter_index = |name: &String| {
        formula
            .parameters()
            .iter()
            .position(|parameter| parameter == name)
    };
    // 1. Models of the table.
    if let Some((builtin_skeleton, builtin)) = BUILTIN_SKELETONS
        .iter()
        .zip(&BUILTINS)
        .find(|(builtin_skeleton, _)| builtin_skeleton.text == skeleton.text)
    {
        let formula_index = |builtin_name: &&str| {
            builtin_skeleton
                .names
                .iter()
                .position(|name| name == builtin_name)
                .and_then(|k| parameter_index(&skeleton.names[k]))
        };
        let indices: Vec<usize> = builtin
            .parameters
            .iter()
            .map(formula_index)
            .collect::<Option<_>>()?;
        return (indices.len() == parameter_count).then_some((builtin.guess, indices));
    }
    // 2. Polynomials of any degree.
    let degree = parameter_count.checked_sub(1)?;
    let polynomial_skeleton = Skeleton::from_text(&polynomial_text(degree), &["x"]);
    let indices: Vec<usize> = skeleton
        .names
        .iter()
        .map(parameter_index)
        .collect::<Option<_>>()?;
    let is_polynomial =
        polynomial_skeleton.text == skeleton.text && indices.len() == parameter_count;
    is_polynomial.then_some((GuessMethod::Polynomial, indices))
}
