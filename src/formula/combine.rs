//! Formulas made of others: with other names, and as sums, differences, products and quotients.

use super::Formula;
use super::token::{Token, tokens};
use crate::error::{Error, Result};

impl Formula {
    /// Returns the same formula with `prefix` in front of the name of every parameter, so that it can be combined with
    /// another one that has the same names.
    ///
    /// ```
    /// # use popfit::Formula;
    /// let [first, second] = ["g1_", "g2_"].map(|prefix| Formula::builtin("lorentz")?.with_prefix(prefix));
    /// let both = first?.plus(&second?)?;
    /// assert_eq!(both.parameters()[..5], ["g1_a", "g1_m", "g1_g", "g1_c", "g2_a"]);
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] if a name with the prefix cannot be a parameter's.
    pub fn with_prefix(&self, prefix: &str) -> Result<Formula> {
        let has = |name: &str| {
            self.parameters
                .iter()
                .chain(&self.terms)
                .any(|known| known == name)
        };
        let text = rename(&self.text, |name| {
            has(name).then(|| format!("{prefix}{name}"))
        });
        let parameters: Vec<String> = self
            .parameters
            .iter()
            .map(|name| format!("{prefix}{name}"))
            .collect();
        let formula =
            Formula::parse_exactly(&text, &borrowed(&self.predictors), &borrowed(&parameters))?;
        Ok(Formula {
            direct: self.direct,
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
        // 1. A name means one thing in both formulas.
        let pairs = [
            (&self.parameters, &other.parameters),
            (&self.parameters, &other.predictors),
            (&self.predictors, &other.parameters),
        ];
        let shared = pairs
            .iter()
            .flat_map(|(names, known)| names.iter().filter(|name| known.contains(name)));
        let shared: Vec<String> = shared.map(|name| format!("`{name}`")).collect();
        if !shared.is_empty() {
            let message = format!(
                "both formulas have {}; give the parameters of one of them other names, as with_prefix(\"g1_\") does",
                shared.join(", ")
            );
            return Err(Error::invalid("other", message));
        }
        // 2. A term whose name is taken gets another one.
        let names = [
            &self.predictors,
            &self.parameters,
            &other.predictors,
            &other.parameters,
        ];
        let mut taken: Vec<String> = names.into_iter().flatten().cloned().collect();
        let texts = [self, other].map(|formula| formula.rename_taken_terms(&mut taken));
        // 3. The terms of both formulas come first.
        let [first, second] = texts
            .each_ref()
            .map(|text| text.rsplit_once(';').unwrap_or(("", text)));
        let terms: String = [first.0, second.0]
            .iter()
            .filter(|t| !t.is_empty())
            .map(|t| format!("{}; ", t.trim()))
            .collect();
        let text = format!(
            "{terms}({}) {operator} ({})",
            first.1.trim(),
            second.1.trim()
        );
        let others = other
            .predictors
            .iter()
            .filter(|name| !self.predictors.contains(name));
        let predictors: Vec<&str> = self
            .predictors
            .iter()
            .chain(others)
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

    /// Returns the text in which terms have other names where theirs are `taken`, and takes their names.
    fn rename_taken_terms(&self, taken: &mut Vec<String>) -> String {
        let mut renamed = Vec::new();
        for term in &self.terms {
            let is_free = |name: &String| {
                !taken.contains(name) && (name == term || !self.terms.contains(name))
            };
            let numbered = (1..).map(|k| format!("{term}_{k}"));
            let name = std::iter::once(term.clone())
                .chain(numbered)
                .find(is_free)
                .unwrap_or_default();
            taken.push(name.clone());
            renamed.push(name);
        }
        let of = |name: &str| {
            self.terms
                .iter()
                .position(|term| term == name)
                .map(|k| renamed[k].clone())
        };
        rename(&self.text, of)
    }
}

/// Returns the text of a formula with other names: `new` returns that of a name, or `None` if it stays.
fn rename(text: &str, new: impl Fn(&str) -> Option<String>) -> String {
    // the text has been parsed before
    let tokens = tokens(text).unwrap_or_default();
    let mut letters = text.chars();
    let (mut renamed, mut at) = (String::new(), 0);
    for (k, (start, token)) in tokens.iter().enumerate() {
        renamed.extend(letters.by_ref().take(start - at));
        at = *start;
        let is_call = tokens
            .get(k + 1)
            .is_some_and(|(_, next)| *next == Token::Symbol('('));
        if let Token::Name(name) = token
            && let Some(new) = new(name).filter(|_| !is_call)
        {
            let length = name.chars().count();
            letters.by_ref().take(length).for_each(drop);
            at += length;
            renamed += &new;
        }
    }
    renamed.extend(letters);
    renamed
}

/// Returns names as `&str`.
fn borrowed(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use crate::Formula;

    type Combine = fn(&Formula, &Formula) -> crate::Result<Formula>;
    /// From the values of both parts, the value and its derivatives by each of them.
    type ByHand = fn(f64, f64) -> [f64; 3];

    #[test]
    fn prefixes_leave_functions_predictors_and_constants() {
        let formula = Formula::parse_exactly(
            "u = gamma*x; π₂ = e*u; gamma(u)**2 + pi*π₂ >= x",
            &["x"],
            &["unused", "gamma"],
        );
        let (formula, point) = (formula.unwrap(), [0.3, 1.4]);
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
        // no name of a predictor or a function either
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
        let (p, q) = ([0.6, 0.8], [0.7, 1.9]);
        let (p, q) = (
            &p[..first.parameters().len()],
            &q[..second.parameters().len()],
        );
        let [left, right] = [
            first.linearise(&x[..3], p).unwrap(),
            second.linearise(&swapped, q).unwrap(),
        ];
        let whole = [p, q].concat();
        let operators: [(Combine, ByHand); 4] = [
            (Formula::plus, |a, b| [a + b, 1.0, 1.0]),
            (Formula::minus, |a, b| [a - b, 1.0, -1.0]),
            (Formula::times, |a, b| [a * b, b, a]),
            (Formula::over, |a, b| [a / b, 1.0 / b, -a / (b * b)]),
        ];
        for (combine, by_hand) in operators {
            let both = combine(&first, &second).unwrap();
            assert_eq!(both.predictors(), ["x", "z"]);
            assert_eq!(
                both.parameters(),
                [first.parameters(), second.parameters()].concat()
            );
            let rows = both.linearise(&x, &whole).unwrap();
            for j in 0..3 {
                let [value, by_left, by_right] = by_hand(left[j], right[j]);
                assert!(
                    (rows[j] - value).abs() <= 1e-15 * value.abs(),
                    "{}: {} {value}",
                    both.text(),
                    rows[j]
                );
                for k in 0..whole.len() {
                    let slope = match k.checked_sub(p.len()) {
                        None => left[3 * (1 + k) + j] * by_left,
                        Some(k) => right[3 * (1 + k) + j] * by_right,
                    };
                    let found = rows[3 * (1 + k) + j];
                    assert!(
                        (found - slope).abs() <= 1e-14 * slope.abs(),
                        "{}: {found} {slope}",
                        both.text()
                    );
                }
            }
            // what pickles keep
            let [predictors, parameters] = [both.predictors(), both.parameters()]
                .map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
            let again = Formula::parse_exactly(both.text(), &predictors, &parameters).unwrap();
            assert_eq!(again.linearise(&x, &whole).unwrap(), rows);
            assert_eq!(again.wgsl(true), both.wgsl(true));
        }
    }

    #[test]
    fn combinations_of_combinations_and_of_terms_with_the_same_names() {
        let peaks = ["a_", "b_", "c_"].map(|prefix| {
            Formula::builtin("emg")
                .unwrap()
                .with_prefix(prefix)
                .unwrap()
        });
        let named = ["v_", "w_", "x_"].map(|prefix| {
            Formula::parse(&format!(
                "t = x - {prefix}m; t_1 = t^2; {prefix}a*exp(-t_1)"
            ))
            .unwrap()
        });
        for (parts, point) in [
            (peaks, vec![2.0, 0.4, 0.5, 0.9, 0.1]),
            (named, vec![0.4, 2.0]),
        ] {
            let [first, second, third] = &parts;
            let sum = first.plus(second).unwrap().plus(third).unwrap();
            let other = first.plus(&second.plus(third).unwrap()).unwrap();
            let value: f64 = parts
                .iter()
                .map(|part| part.value(&[0.8], &point).unwrap())
                .sum();
            for formula in [sum, other] {
                let found = formula.value(&[0.8], &point.repeat(3)).unwrap();
                assert!((found - value).abs() < 1e-14, "{}", formula.text());
                assert!(formula.warnings().is_empty());
            }
        }
    }

    #[test]
    fn shared_names_are_refused_with_a_remedy() {
        let [peak, line] = ["a*exp(-x^2) + c", "c + a*x"].map(|text| Formula::parse(text).unwrap());
        let message = peak.plus(&line).unwrap_err().to_string();
        assert!(
            message.contains("`a`, `c`") && message.contains("with_prefix(\"g1_\")"),
            "{message}"
        );
        let other = Formula::parse_with("k*a", &["a"]).unwrap();
        for (one, another) in [(&peak, &other), (&other, &peak)] {
            assert!(
                one.times(another)
                    .unwrap_err()
                    .to_string()
                    .contains("both formulas have `a`;")
            );
        }
        let wide = Formula::parse(
            &(0..40)
                .map(|k| format!("p{k}*x"))
                .collect::<Vec<_>>()
                .join(" + "),
        )
        .unwrap();
        let message = wide
            .plus(&wide.with_prefix("q").unwrap())
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("80 parameters are more than 64"),
            "{message}"
        );
    }
}
