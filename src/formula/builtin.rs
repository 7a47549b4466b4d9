//! Models by name.

use super::Formula;
use crate::error::{Error, Result};

/// Names, predictors and texts. The models of Gpufit (Przybylski et al. 2017) are among them; parameters come in the order of the
/// text, which for the elliptic ones is not Gpufit's. s, sx, sy are standard deviations, but half widths of the Cauchy profile.
const BUILTINS: [(&str, &[&str], &str); 13] = [
    ("linear1d", &["x"], "offset + slope*x"),
    ("gauss1d", &["x"], "a*exp(-(x - m)^2/(2*s^2)) + c"),
    ("gauss2d", &["x", "y"], "a*exp(-((x - x0)^2 + (y - y0)^2)/(2*s^2)) + c"),
    ("gauss2d_elliptic", &["x", "y"], "a*exp(-((x - x0)^2/(2*sx^2) + (y - y0)^2/(2*sy^2))) + c"),
    (
        "gauss2d_rotated",
        &["x", "y"],
        "a*exp(-(((x - x0)*cos(r) - (y - y0)*sin(r))^2/(2*sx^2) + ((x - x0)*sin(r) + (y - y0)*cos(r))^2/(2*sy^2))) + c",
    ),
    ("cauchy2d_elliptic", &["x", "y"], "a/((((x - x0)/sx)^2 + 1)*(((y - y0)/sy)^2 + 1)) + c"),
    ("exponential", &["x"], "a*exp(-k*x) + c"),
    ("lorentz", &["x"], "a*g^2/((x - m)^2 + g^2) + c"),
    // w: full width at half maximum; f: the share of the Lorentz profile
    ("pseudo_voigt", &["x"], "a*(f/(1 + 4*((x - m)/w)^2) + (1 - f)*exp(-4*ln(2)*((x - m)/w)^2)) + c"),
    ("power_law", &["x"], "a*x^k"),
    ("power_law_offset", &["x"], "a*x^k + c"),
    // residuals at x = 0, 1, 2, for data of zeros; the term with sign makes the angle go from -1/4 to 3/4 of a turn
    (
        "fletcher_powell_helix",
        &["x"],
        "x*(2 - x)*10*(sqrt(p1^2 + p2^2) - 1) + x*(x - 1)/2*p3 \
         + (x - 1)*(x - 2)*5*(p3 - 10*(atan(p2/p1)/(2*pi) + (1 - sign(p1))/4))",
    ),
    // residuals at x = 0, 1, …, for data of zeros, as Gpufit numbers them; the problem's 20 are x = 1 to 20
    ("brown_dennis", &["x"], "(p1 + p2*x/5 - exp(x/5))^2 + (p3 + p4*sin(x/5) - cos(x/5))^2"),
];

/// Highest degree of a built-in polynomial.
const HIGHEST_DEGREE: usize = 30;

impl Formula {
    /// A model by name: `linear1d`, `gauss1d`, `gauss2d` (round), `gauss2d_elliptic`, `gauss2d_rotated`, `cauchy2d_elliptic`,
    /// `exponential`, `lorentz`, `pseudo_voigt`, `power_law`, `power_law_offset`, the residuals `fletcher_powell_helix` and `brown_dennis` (for
    /// [`Curves::residuals`](crate::Curves::residuals)), and `polynomial(n)` of degree n with coefficients `c0`, …, `cn`.
    /// [`Error::Usage`] names the nearest one.
    pub fn builtin(name: &str) -> Result<Formula> {
        if let Some((_, predictors, text)) = BUILTINS.iter().find(|(known, ..)| *known == name) {
            return Formula::parse_with(text, predictors);
        }
        if let Some(degree) = name.strip_prefix("polynomial(").and_then(|rest| rest.strip_suffix(')')) {
            return match degree.trim().parse::<usize>() {
                Ok(degree) if degree <= HIGHEST_DEGREE => Formula::parse(&polynomial(degree)),
                _ => Err(Error::Usage(format!("a polynomial's degree is 0 to {HIGHEST_DEGREE}, not {degree}"))),
            };
        }
        let near = Formula::builtins().min_by_key(|known| strsim::damerau_levenshtein(known, name));
        Err(Error::Usage(format!("no model `{name}`; the nearest is `{}`", near.unwrap_or_default())))
    }

    /// The names of the models, `polynomial(n)` with n = 2.
    pub fn builtins() -> impl Iterator<Item = &'static str> {
        BUILTINS.iter().map(|(name, ..)| *name).chain(["polynomial(2)"])
    }
}

/// By Horner's scheme, written from the inside, its parameters in ascending order.
fn polynomial(degree: usize) -> String {
    let mut text = String::new();
    for k in 0..degree {
        text += &format!("c{k} + x*(");
    }
    text + &format!("c{degree}") + &")".repeat(degree)
}
