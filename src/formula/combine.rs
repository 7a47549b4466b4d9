//! Renaming of parameters, and sums, differences, products and quotients of formulas.

use super::Formula;
use super::token::{Token, tokenise};
use crate::error::{Error, Result};

impl Formula {
    /// Returns the same formula with `prefix` in front of the name of every parameter, so that it can be combined with
    /// another one that has the same names.
    ///
    /// ```
    /// # use popfit::Formula;
    /// let [first, second] = ["g1_", "g2_"].map(|prefix| Formula::builtin("lorentz")?.with_prefix(prefix));
    /// let sum = first?.plus(&second?)?;
    /// assert_eq!(sum.parameters()[..5], ["g1_a", "g1_m", "g1_g", "g1_c", "g2_a"]);
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] if a name with the prefix cannot be a parameter's.
    pub fn with_prefix(&self, prefix: &str) -> Result<Formula> {
        let is_own_name = |name: &str| {
            self.parameters
                .iter()
                .chain(&self.terms)
                .any(|own_name| own_name == name)
        };
        let text = rename_in_text(&self.text, |name| {
            is_own_name(name).then(|| format!("{prefix}{name}"))
        });
        let parameters: Vec<String> = self
            .parameters
            .iter()
            .map(|name| format!("{prefix}{name}"))
            .collect();
        let formula =
            Formula::parse_exactly(&text, &as_strs(&self.predictors), &as_strs(&parameters))?;
        Ok(Formula {
            written_model: self.written_model,
            ..formula
        })
    }

    /// Returns the sum of two formulas. Predictors of the same name are one. The parameters are those of this formula,
    /// then those of the other one. If both parts have an offset, the data determine only the sum of the two: fix one.
    ///
    /// ```
    /// # use popfit::Formula;
    /// let peak = Formula::parse("a*exp(-(x - m)^2/(2*s^2))")?;
    /// let sum = peak.plus(&Formula::builtin("linear1d")?)?;
    /// assert_eq!(sum.parameters(), ["a", "m", "s", "offset", "slope"]);
    /// assert_eq!(sum.value(&[1.0], &[2.0, 1.0, 0.5, 0.1, 0.3])?, 2.4);
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] if both have a parameter of the same name, or a parameter of one has the name
    /// of a predictor of the other: [`with_prefix`](Self::with_prefix) gives other names. Returns [`Error::Formula`] if
    /// the sum is too long for a formula.
    pub fn plus(&self, other: &Formula) -> Result<Formula> {
        self.combine('+', other)
    }

    /// Returns this formula minus another one, as [`plus`](Self::plus) returns the sum.
    ///
    /// # Errors
    /// The errors of [`plus`](Self::plus).
    pub fn minus(&self, other: &Formula) -> Result<Formula> {
        self.combine('-', other)
    }

    /// Returns the product of two formulas, as [`plus`](Self::plus) returns the sum.
    ///
    /// # Errors
    /// The errors of [`plus`](Self::plus).
    pub fn times(&self, other: &Formula) -> Result<Formula> {
        self.combine('*', other)
    }

    /// Returns this formula divided by another one, as [`plus`](Self::plus) returns the sum.
    ///
    /// # Errors
    /// The errors of [`plus`](Self::plus).
    pub fn over(&self, other: &Formula) -> Result<Formula> {
        self.combine('/', other)
    }

    /// Joins two formulas by one of the operators `+ - * /`.
    fn combine(&self, operator: char, other: &Formula) -> Result<Formula> {
        // 1. Refuse names that mean different things in the two formulas.
        let exclusive_names = [
            (&self.parameters, &other.parameters),
            (&self.parameters, &other.predictors),
            (&self.predictors, &other.parameters),
        ];
        let shared_names: Vec<String> = exclusive_names
            .iter()
            .flat_map(|(names, other_names)| names.iter().filter(|name| other_names.contains(name)))
            .map(|name| format!("`{name}`"))
            .collect();
        if !shared_names.is_empty() {
            let message = format!(
                "both formulas have {}; give the parameters of one of them other names, as with_prefix(\"g1_\") does",
                shared_names.join(", ")
            );
            return Err(Error::invalid("other", message));
        }
        // 2. Rename terms whose names are taken.
        let names = [
            &self.predictors,
            &self.parameters,
            &other.predictors,
            &other.parameters,
        ];
        let mut taken_names: Vec<String> = names.into_iter().flatten().cloned().collect();
        let texts = [self, other].map(|formula| formula.rename_taken_terms(&mut taken_names));
        // 3. Join the texts, with the terms of both formulas in front.
        let [(first_terms, first_value), (second_terms, second_value)] = texts
            .each_ref()
            .map(|text| text.rsplit_once(';').unwrap_or(("", text)));
        let terms: String = [first_terms, second_terms]
            .iter()
            .filter(|t| !t.is_empty())
            .map(|t| format!("{}; ", t.trim()))
            .collect();
        let text = format!(
            "{terms}({}) {operator} ({})",
            first_value.trim(),
            second_value.trim()
        );
        // 4. Parse the result with the names of both.
        let new_predictors = other
            .predictors
            .iter()
            .filter(|name| !self.predictors.contains(name));
        let predictors: Vec<&str> = self
            .predictors
            .iter()
            .chain(new_predictors)
            .map(String::as_str)
            .collect();
        let parameters: Vec<&str> = self
            .parameters
            .iter()
            .chain(&other.parameters)
            .map(String::as_str)
            .collect();
        Formula::parse_exactly(&text, &predictors, &parameters)
    }

    /// Returns the text with new names for the terms whose names are taken, and adds all terms to the taken names.
    fn rename_taken_terms(&self, taken_names: &mut Vec<String>) -> String {
        let mut new_names = Vec::new();
        for term in &self.terms {
            let is_free = |name: &String| {
                !taken_names.contains(name) && (name == term || !self.terms.contains(name))
            };
            let numbered_names = (1..).map(|k| format!("{term}_{k}"));
            let name = std::iter::once(term.clone())
                .chain(numbered_names)
                .find(is_free)
                .unwrap_or_default();
            taken_names.push(name.clone());
            new_names.push(name);
        }
        rename_in_text(&self.text, |name| {
            self.terms
                .iter()
                .position(|term| term == name)
                .map(|k| new_names[k].clone())
        })
    }
}

/// Returns the text of a formula with other names: `new_name` returns the new one for a name, or `None` if it stays.
fn rename_in_text(text: &str, new_name: impl Fn(&str) -> Option<String>) -> String {
    // The text has been parsed before, so that it has tokens.
    let tokens = tokenise(text).unwrap_or_default();
    let mut letters = text.chars();
    let mut renamed = String::new();
    let mut position = 0;
    for (k, (start, token)) in tokens.iter().enumerate() {
        // 1. Copy what lies between the last token and this one.
        renamed.extend(letters.by_ref().take(start - position));
        position = *start;
        // 2. Replace the token if it is a name, but not that of a function in a call.
        let is_call = tokens
            .get(k + 1)
            .is_some_and(|(_, next_token)| *next_token == Token::Symbol('('));
        if let Token::Name(name) = token
            && let Some(new_name) = new_name(name).filter(|_| !is_call)
        {
            let length = name.chars().count();
            letters.by_ref().take(length).for_each(drop);
            position += length;
            renamed += &new_name;
        }
    }
    renamed.extend(letters);
    renamed
}

/// Borrows names as `&str`.
fn as_strs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use crate::Formula;

    type Combine = fn(&Formula, &Formula) -> crate::Result<Formula>;
    /// From the values of both parts, the value and its derivatives by each of them.
    type ByHand = fn(f64, f64) -> [f64; 3];

    #[test]
    fn prefixes_rename_parameters_and_terms_alone() {
        let formula = Formula::parse_exactly(
            "u = gamma*x; π₂ = e*u; gamma(u)**2 + pi*π₂ >= x",
            &["x"],
            &["unused", "gamma"],
        );
        let formula = formula.unwrap();
        let point = [0.3, 1.4];
        let renamed = formula.with_prefix("p_").unwrap();
        assert_eq!(
            renamed.text(),
            "p_u = p_gamma*x; p_π₂ = e*p_u; gamma(p_u)**2 + pi*p_π₂ >= x"
        );
        assert_eq!(renamed.parameters(), ["p_unused", "p_gamma"]);
        assert_eq!(
            renamed.linearise(&[0.7, 2.0], &point).unwrap(),
            formula.linearise(&[0.7, 2.0], &point).unwrap()
        );
        assert!(Formula::parse("a*x").unwrap().with_prefix("9").is_err());
        let message = Formula::parse("in1*x")
            .unwrap()
            .with_prefix("a-")
            .unwrap_err()
            .to_string();
        assert!(message.contains("`a-in1`"), "{message}");
        // Renamed parameters may not be called like a predictor or a function either.
        assert!(Formula::parse("_1*u").unwrap().with_prefix("log1").is_ok());
        assert!(Formula::parse("p*x").unwrap().with_prefix("ex").is_err());
        assert!(
            Formula::parse_with("y*xy", &["xy"])
                .unwrap()
                .with_prefix("x")
                .is_err()
        );
    }

    #[test]
    fn a_combination_has_the_values_and_derivatives_of_its_parts() {
        let first = Formula::parse("t = x - m; a < t and t < 3*a or t*m").unwrap();
        let second =
            Formula::parse_with("t_1 = z*k; t = t_1 + x; q = cos(t); a_ - q*t", &["z", "x"])
                .unwrap();
        let x = [0.4, 1.3, 2.2, 0.7, 0.2, 0.9];
        let swapped = [&x[3..], &x[..3]].concat();
        let [first_values, second_values] = [[0.6, 0.8], [0.7, 1.9]];
        let first_point = &first_values[..first.parameters().len()];
        let second_point = &second_values[..second.parameters().len()];
        let [first_rows, second_rows] = [
            first.linearise(&x[..3], first_point).unwrap(),
            second.linearise(&swapped, second_point).unwrap(),
        ];
        let point = [first_point, second_point].concat();
        let operators: [(Combine, ByHand); 4] = [
            (Formula::plus, |a, b| [a + b, 1.0, 1.0]),
            (Formula::minus, |a, b| [a - b, 1.0, -1.0]),
            (Formula::times, |a, b| [a * b, b, a]),
            (Formula::over, |a, b| [a / b, 1.0 / b, -a / (b * b)]),
        ];
        for (combine, by_hand) in operators {
            let combined = combine(&first, &second).unwrap();
            assert_eq!(combined.predictors(), ["x", "z"]);
            assert_eq!(
                combined.parameters(),
                [first.parameters(), second.parameters()].concat()
            );
            let rows = combined.linearise(&x, &point).unwrap();
            for j in 0..3 {
                let [value, by_first, by_second] = by_hand(first_rows[j], second_rows[j]);
                assert!(
                    (rows[j] - value).abs() <= 1e-15 * value.abs(),
                    "{}: {} {value}",
                    combined.text(),
                    rows[j]
                );
                for k in 0..point.len() {
                    let slope = match k.checked_sub(first_point.len()) {
                        None => first_rows[3 * (1 + k) + j] * by_first,
                        Some(k) => second_rows[3 * (1 + k) + j] * by_second,
                    };
                    let computed = rows[3 * (1 + k) + j];
                    assert!(
                        (computed - slope).abs() <= 1e-14 * slope.abs(),
                        "{}: {computed} {slope}",
                        combined.text()
                    );
                }
            }
            // Text and names, which pickles keep, are enough to restore it.
            let [predictors, parameters] = [combined.predictors(), combined.parameters()]
                .map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
            let reparsed =
                Formula::parse_exactly(combined.text(), &predictors, &parameters).unwrap();
            assert_eq!(reparsed.linearise(&x, &point).unwrap(), rows);
            assert_eq!(reparsed.wgsl(true), combined.wgsl(true));
        }
    }

    #[test]
    fn combinations_may_be_nested_and_share_names_of_terms() {
        let peaks = ["a_", "b_", "c_"].map(|prefix| {
            Formula::builtin("emg")
                .unwrap()
                .with_prefix(prefix)
                .unwrap()
        });
        let peaks_with_terms = ["v_", "w_", "x_"].map(|prefix| {
            Formula::parse(&format!(
                "t = x - {prefix}m; t_1 = t^2; {prefix}a*exp(-t_1)"
            ))
            .unwrap()
        });
        for (parts, point) in [
            (peaks, vec![2.0, 0.4, 0.5, 0.9, 0.1]),
            (peaks_with_terms, vec![0.4, 2.0]),
        ] {
            let [first, second, third] = &parts;
            let sum = first.plus(second).unwrap().plus(third).unwrap();
            let nested_sum = first.plus(&second.plus(third).unwrap()).unwrap();
            let value: f64 = parts
                .iter()
                .map(|part| part.value(&[0.8], &point).unwrap())
                .sum();
            for formula in [sum, nested_sum] {
                let computed = formula.value(&[0.8], &point.repeat(3)).unwrap();
                assert!((computed - value).abs() < 1e-14, "{}", formula.text());
                assert!(formula.warnings().is_empty());
            }
        }
    }

    #[test]
    fn shared_names_are_refused_and_the_message_names_a_remedy() {
        let [peak, line] = ["a*exp(-x^2) + c", "c + a*x"].map(|text| Formula::parse(text).unwrap());
        let message = peak.plus(&line).unwrap_err().to_string();
        assert!(
            message.contains("`a`, `c`") && message.contains("with_prefix(\"g1_\")"),
            "{message}"
        );
        let predictor_a = Formula::parse_with("k*a", &["a"]).unwrap();
        for (left, right) in [(&peak, &predictor_a), (&predictor_a, &peak)] {
            assert!(
                left.times(right)
                    .unwrap_err()
                    .to_string()
                    .contains("both formulas have `a`;")
            );
        }
        let forty_parameters = Formula::parse(
            &(0..40)
                .map(|k| format!("p{k}*x"))
                .collect::<Vec<_>>()
                .join(" + "),
        )
        .unwrap();
        let message = forty_parameters
            .plus(&forty_parameters.with_prefix("q").unwrap())
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("80 parameters are more than 64"),
            "{message}"
        );
    }
}
