//! Built-in models by name.

use super::Formula;
use super::direct::Direct;
use crate::error::{Error, Result};
use crate::suggest::hint;

/// A built-in model. `builtin.md` has the same table for users.
struct Builtin {
    name: &'static str,
    predictors: &'static [&'static str],
    /// Parameters, in Gpufit's order where Gpufit has the model (Przybylski et al. 2017).
    parameters: &'static [&'static str],
    text: &'static str,
}

const BUILTINS: [Builtin; 14] = [
    Builtin { name: "linear1d", predictors: &["x"], parameters: &["offset", "slope"], text: "offset + slope*x" },
    Builtin {
        name: "gauss1d",
        predictors: &["x"],
        parameters: &["a", "m", "s", "c"],
        text: "a*exp(-(x - m)^2/(2*s^2)) + c",
    },
    Builtin {
        name: "gauss2d",
        predictors: &["x", "y"],
        parameters: &["a", "x0", "y0", "s", "c"],
        text: "a*exp(-((x - x0)^2 + (y - y0)^2)/(2*s^2)) + c",
    },
    Builtin {
        name: "gauss2d_elliptic",
        predictors: &["x", "y"],
        parameters: &["a", "x0", "y0", "sx", "sy", "c"],
        text: "a*exp(-((x - x0)^2/(2*sx^2) + (y - y0)^2/(2*sy^2))) + c",
    },
    Builtin {
        name: "gauss2d_rotated",
        predictors: &["x", "y"],
        parameters: &["a", "x0", "y0", "sx", "sy", "c", "r"],
        text: "a*exp(-(((x - x0)*cos(r) - (y - y0)*sin(r))^2/(2*sx^2) \
               + ((x - x0)*sin(r) + (y - y0)*cos(r))^2/(2*sy^2))) + c",
    },
    Builtin {
        name: "cauchy2d_elliptic",
        predictors: &["x", "y"],
        parameters: &["a", "x0", "y0", "sx", "sy", "c"],
        text: "a/((((x - x0)/sx)^2 + 1)*(((y - y0)/sy)^2 + 1)) + c",
    },
    Builtin { name: "exponential", predictors: &["x"], parameters: &["a", "k", "c"], text: "a*exp(-k*x) + c" },
    Builtin {
        name: "lorentz",
        predictors: &["x"],
        parameters: &["a", "m", "g", "c"],
        text: "a*g^2/((x - m)^2 + g^2) + c",
    },
    Builtin {
        name: "pseudo_voigt",
        predictors: &["x"],
        parameters: &["a", "m", "w", "f", "c"],
        text: "a*(f/(1 + 4*((x - m)/w)^2) + (1 - f)*exp(-4*ln(2)*((x - m)/w)^2)) + c",
    },
    Builtin {
        name: "voigt",
        predictors: &["x"],
        parameters: &["a", "m", "s", "g", "c"],
        text: "a*voigt(x - m, s, g) + c",
    },
    Builtin { name: "power_law", predictors: &["x"], parameters: &["a", "k"], text: "a*x^k" },
    Builtin { name: "power_law_offset", predictors: &["x"], parameters: &["a", "k", "c"], text: "a*x^k + c" },
    // the term with sign makes the angle go from -1/4 to 3/4 of a turn
    Builtin {
        name: "fletcher_powell_helix",
        predictors: &["x"],
        parameters: &["p1", "p2", "p3"],
        text: "x*(2 - x)*10*(sqrt(p1^2 + p2^2) - 1) + x*(x - 1)/2*p3 \
               + (x - 1)*(x - 2)*5*(p3 - 10*(atan(p2/p1)/(2*pi) + (1 - sign(p1))/4))",
    },
    // x = 0, 1, … as Gpufit numbers the residuals; the problem's 20 are x = 1 to 20
    Builtin {
        name: "brown_dennis",
        predictors: &["x"],
        parameters: &["p1", "p2", "p3", "p4"],
        text: "(p1 + p2*x/5 - exp(x/5))^2 + (p3 + p4*sin(x/5) - cos(x/5))^2",
    },
];

/// Highest degree of a built-in polynomial.
const HIGHEST_DEGREE: usize = 30;

impl Formula {
    /// Returns a built-in model by its name.
    ///
    #[doc = include_str!("builtin.md")]
    ///
    /// # Errors
    /// Returns [`Error::Usage`] for an unknown name, with the names that it may have been meant for, and for a
    /// polynomial of a degree above 30.
    pub fn builtin(name: &str) -> Result<Formula> {
        if let Some(known) = BUILTINS.iter().find(|known| known.name == name) {
            let formula = Formula::parse_with(known.text, known.predictors)?.with_parameters(known.parameters)?;
            return Ok(Formula { direct: Direct::of(name), ..formula });
        }
        if let Some(degree) = name.strip_prefix("polynomial(").and_then(|rest| rest.strip_suffix(')')) {
            return match degree.trim().parse::<usize>() {
                Ok(degree) if degree <= HIGHEST_DEGREE => Formula::parse(&polynomial(degree)),
                _ => Err(Error::Usage(format!("a polynomial's degree is 0 to {HIGHEST_DEGREE}, not {degree}"))),
            };
        }
        Err(Error::Usage(format!(
            "no model `{name}`{}",
            hint(name, BUILTINS.iter().map(|known| known.name).chain(["polynomial(n)"]))
        )))
    }

    /// Returns the names of the built-in models, with `polynomial(2)` for polynomials of any degree.
    pub fn builtins() -> impl Iterator<Item = &'static str> {
        BUILTINS.iter().map(|known| known.name).chain(["polynomial(2)"])
    }
}

/// Returns a polynomial's formula by Horner's scheme, such as `c0 + x*(c1 + x*(c2))` for degree 2.
fn polynomial(degree: usize) -> String {
    let mut text = String::new();
    for k in 0..degree {
        text += &format!("c{k} + x*(");
    }
    text + &format!("c{degree}") + &")".repeat(degree)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gpufit's models: its name, ours, and the places of its parameters in its documentation (Gpufit 1.2, "Fit model
    /// functions").
    const GPUFIT: [(&str, &str, &[&str]); 8] = [
        ("GAUSS_1D", "gauss1d", &["amplitude", "center", "width", "offset"]),
        ("GAUSS_2D", "gauss2d", &["amplitude", "center x", "center y", "width", "offset"]),
        (
            "GAUSS_2D_ELLIPTIC",
            "gauss2d_elliptic",
            &["amplitude", "center x", "center y", "width x", "width y", "offset"],
        ),
        (
            "GAUSS_2D_ROTATED",
            "gauss2d_rotated",
            &["amplitude", "center x", "center y", "width x", "width y", "offset", "rotation angle"],
        ),
        (
            "CAUCHY_2D_ELLIPTIC",
            "cauchy2d_elliptic",
            &["amplitude", "center x", "center y", "width x", "width y", "offset"],
        ),
        ("LINEAR_1D", "linear1d", &["offset", "slope"]),
        ("FLETCHER_POWELL_HELIX", "fletcher_powell_helix", &["p1", "p2", "p3"]),
        ("BROWN_DENNIS", "brown_dennis", &["p1", "p2", "p3", "p4"]),
    ];

    fn word(parameter: &str) -> &str {
        match parameter {
            "a" => "amplitude",
            "m" => "center",
            "x0" => "center x",
            "y0" => "center y",
            "s" => "width",
            "sx" => "width x",
            "sy" => "width y",
            "c" => "offset",
            "r" => "rotation angle",
            other => other,
        }
    }

    #[test]
    fn the_order_is_gpufits() {
        for (gpufit, name, parameters) in GPUFIT {
            let found = Formula::builtin(name).unwrap();
            assert_eq!(found.parameters().iter().map(|p| word(p)).collect::<Vec<_>>(), parameters, "{gpufit}");
        }
    }

    /// Name, formula, parameters and Gpufit's name of every line of the table are those of the source.
    #[test]
    fn the_table_of_the_docs_is_the_source() {
        let lines = include_str!("builtin.md").lines().filter(|line| line.starts_with("| `"));
        let rows: Vec<Vec<String>> =
            lines.map(|line| line.split('|').map(|c| c.trim().replace('`', "")).collect()).collect();
        assert_eq!(rows.len(), BUILTINS.len() + 1);
        for (row, known) in rows.iter().zip(&BUILTINS) {
            let gpufit = GPUFIT.iter().find(|one| one.1 == known.name).map_or("", |one| one.0);
            let words: Vec<&str> = known.text.split_whitespace().collect();
            let wanted = [known.name, &words.join(" "), &known.parameters.join(", "), gpufit];
            assert_eq!(row[1..5], wanted);
        }
        let degrees = Formula::builtin("polynomial(3)").unwrap();
        assert_eq!(
            (rows[BUILTINS.len()][1].as_str(), degrees.parameters().join(", ")),
            ("polynomial(n)", "c0, c1, c2, c3".into())
        );
    }
}
