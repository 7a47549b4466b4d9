//! Built-in models are recognised by their text, whatever their parameters are called: prefixes, pickles and typed
//! formulas keep their guesses.

use std::sync::LazyLock;

use super::Guess;
use crate::formula::Formula;
use crate::formula::builtin::{BUILTINS, polynomial};
use crate::formula::function::CONSTANTS;
use crate::formula::parse::is_operator;
use crate::formula::token::{Token, tokens};

/// A text in which names that a user chooses are numbers, in the order in which they appear, and these names.
struct Skeleton {
    text: String,
    names: Vec<String>,
}

/// Skeletons of the built-in models.
static KNOWN: LazyLock<Vec<Skeleton>> = LazyLock::new(|| {
    BUILTINS
        .iter()
        .map(|known| Skeleton::of(known.text, known.predictors))
        .collect()
});

impl Skeleton {
    fn of(text: &str, predictors: &[impl AsRef<str>]) -> Skeleton {
        let mut found = Skeleton {
            text: String::new(),
            names: Vec::new(),
        };
        let tokens = tokens(text).unwrap_or_default();
        for (k, (_, token)) in tokens.iter().enumerate() {
            let is_call = tokens
                .get(k + 1)
                .is_some_and(|(_, next)| *next == Token::Symbol('('));
            let word = match token {
                Token::Number(value) => format!("{value:e}"),
                Token::Symbol(symbol) => symbol.to_string(),
                Token::End => break,
                Token::Name(name) => {
                    let is_fixed = is_call
                        || is_operator(name)
                        || CONSTANTS.iter().any(|(known, _)| known == name);
                    match predictors.iter().position(|known| known.as_ref() == name) {
                        Some(d) => format!("x{d}"),
                        None if is_fixed => name.clone(),
                        None => format!("p{}", found.number(name)),
                    }
                }
            };
            found.text.push_str(&word);
            found.text.push(' ');
        }
        found
    }

    /// Returns the number of a name, which is new unless it has appeared before.
    fn number(&mut self, name: &str) -> usize {
        self.names
            .iter()
            .position(|known| known == name)
            .unwrap_or_else(|| {
                self.names.push(name.to_owned());
                self.names.len() - 1
            })
    }
}

/// Returns how to guess the parameters of a formula, and for each parameter of the built-in model its index among those
/// of the formula; `None` if it is no built-in model.
pub fn recognise(formula: &Formula) -> Option<(Guess, Vec<usize>)> {
    let own = Skeleton::of(formula.text(), formula.predictors());
    let count = formula.parameters().len();
    let place = |name: &String| formula.parameters().iter().position(|known| known == name);
    if let Some((known, row)) = KNOWN
        .iter()
        .zip(&BUILTINS)
        .find(|(known, _)| known.text == own.text)
    {
        let at = |name: &&str| {
            known
                .names
                .iter()
                .position(|known| known == name)
                .and_then(|k| place(&own.names[k]))
        };
        let order: Vec<usize> = row.parameters.iter().map(at).collect::<Option<_>>()?;
        return (order.len() == count).then_some((row.guess, order));
    }
    let sought = Skeleton::of(&polynomial(count.checked_sub(1)?), &["x"]);
    let order: Vec<usize> = own.names.iter().map(place).collect::<Option<_>>()?;
    (sought.text == own.text && order.len() == count).then_some((Guess::Polynomial, order))
}
