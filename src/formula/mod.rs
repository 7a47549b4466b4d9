//! Models as formulas: parsed, differentiated symbolically, evaluated in f64 and printed as WGSL, all from one graph.
//!
//! Equal expressions share one node of the graph, also in derivatives. The tape (f64) and the WGSL (f32) are both made
//! from it. Another order of the parameters ([`Formula::with_parameters`]) is passed to the parser, so that the nodes,
//! and with them all sums, do not depend on it. The crate `exmex` parses and differentiates, too, but it has no public
//! tree from which WGSL could be printed, and it differentiates separately by each parameter.
//!
//! ```
//! use popfit::Formula;
//!
//! let line = Formula::parse("a*exp(-(x-m)^2/(2*s^2)) + c")?;
//! assert_eq!(line.parameters(), ["a", "m", "s", "c"]);
//! assert_eq!(line.value(&[1.0], &[2.0, 1.0, 0.5, 0.1])?, 2.1);
//! # Ok::<(), popfit::Error>(())
//! ```

mod builtin;
mod combine;
mod compile;
mod derive;
mod direct;
mod function;
mod fuse;
mod graph;
mod guess;
mod hoist;
mod lanes;
mod names;
mod operation;
mod parse;
mod tape;
mod tie;
mod token;
mod wgsl;

use std::str::FromStr;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::solver::small::{AddUp, LaneModel, SumRounding};
use compile::{compile, parse_to_graph};
use direct::WrittenModel;
use function::{CONSTANTS, FUNCTIONS};
use lanes::LaneTape;
use names::{check_parameters, check_predictors};
pub(crate) use operation::Elementary;
use tape::Tape;
pub(crate) use tie::{ParameterTie, Ties};

/// A model y = f(x; p), its parameters named by its text.
///
/// A formula consists of numbers, names, `+ - * /`, powers (`^` or `**`, from the right; −x² is −(x²)), parentheses and
/// the functions `sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh exp expm1 ln log log1p log10 log2
/// sqrt cbrt abs sign erf erfc pow hypot copysign gamma lgamma voigt faddeeva_re faddeeva_im min max heaviside select`;
/// `log` is the natural logarithm, `min` and `max` take two or more arguments, and `arcsin …` are synonyms. `pi` (or π)
/// and `e` are constants. Every other name that is no predictor and no named term is a parameter
/// ([`warnings`](Self::warnings) lists those that are likely mistakes). Where `abs`, `min` and `max` have a different
/// derivative on either side, that of one side is used; the derivative of `sign` is zero.
///
/// `voigt(x, sigma, gamma)` is the convolution of a Gauss function of the standard deviation |`sigma`| and a Lorentz
/// function of the half width `gamma`, of unit area, all three in one unit. Either width may be 0, and both where x is
/// not. The derivative by `sigma` is 0 at 0, so that a fit does not leave it. A negative `gamma` is the analytic
/// continuation, which grows without bound as `sigma` falls: bound both from below by 0.
///
/// `faddeeva_re(x, y)` and `faddeeva_im(x, y)` are the parts of w(z) = e^(−z²) erfc(−iz), z = x + iy (Abramowitz &
/// Stegun 1964, 7.1.3). For y ≥ 0 their relative errors are below 10⁻¹³ in f64, and in f32 below 10⁻⁶ of |w|.
///
/// Comparisons (`< <= > >= == !=`) are 1 or 0, and `and` and `or` join them. `select(condition, a, b)` is a where the
/// condition is not 0, else b, and the one that is not selected may be infinite or NaN. `heaviside(x, h)` is h at x =
/// 0. Comparisons with NaN do not hold, except for `!=`, and a condition that is NaN selects a. The derivative by a
/// parameter that occurs in conditions alone is zero, so that the data do not determine it.
///
/// ```
/// # use popfit::Formula;
/// let broken = Formula::parse("select(x < knee, a*x, a*knee*(x/knee)^slope)")?;
/// assert_eq!(broken.value(&[8.0], &[2.0, 3.0, 2.0])?, 96.0);
/// # Ok::<(), popfit::Error>(())
/// ```
///
/// Named terms come first, each with a semicolon behind it. A term is computed once, however often it occurs:
///
/// ```
/// # use popfit::Formula;
/// let profile = Formula::parse("t = (x - m)/s; a*exp(-t^2/2)*(1 + h*(t^3 - 3*t))")?;
/// assert_eq!(profile.parameters(), ["m", "s", "a", "h"]);
/// # Ok::<(), popfit::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Formula {
    text: String,
    predictors: Vec<String>,
    /// Indices of the predictors that the formula does not use.
    unused_predictors: Vec<usize>,
    parameters: Vec<String>,
    /// Names of the terms.
    terms: Vec<String>,
    value: Arc<Tape>,
    linearisation: Arc<Tape>,
    lanes: Arc<LaneTape>,
    lane_values: Arc<LaneTape>,
    /// Model that is written out by hand and takes the place of `lanes`.
    written_model: Option<WrittenModel>,
    value_wgsl: String,
    linearisation_wgsl: String,
    /// Indices of the parameters in which the value is jointly linear.
    linear_parameters: Vec<usize>,
    /// Indices of the parameters by which the derivative is 0 everywhere.
    flat_parameters: Vec<usize>,
}

impl FromStr for Formula {
    type Err = Error;

    /// Parses a formula of the predictor `x`, as [`Formula::parse`] does.
    fn from_str(text: &str) -> Result<Formula> {
        Formula::parse(text)
    }
}

impl Formula {
    /// Parses a formula such as `a*exp(-k*x)`, in which x is the predictor and all unknown names are parameters.
    ///
    /// # Errors
    /// Returns [`Error::Formula`] with the place of a mistake, and for a formula without a parameter.
    pub fn parse(text: &str) -> Result<Formula> {
        Formula::parse_with(text, &["x"])
    }

    /// Parses a formula with these predictors, in which all other unknown names are parameters. Their names must be
    /// distinct and no function's or constant's.
    ///
    /// # Errors
    /// The errors of [`parse`](Self::parse); [`Error::InvalidArgument`] if there is no predictor, or if a name cannot
    /// be a predictor's.
    pub fn parse_with(text: &str, predictors: &[&str]) -> Result<Formula> {
        let predictors = check_predictors(predictors)?;
        let parsed = parse_to_graph(text, &predictors, Vec::new(), false)?;
        if parsed.parameters.is_empty() {
            return Err(Error::Formula {
                formula: text.into(),
                column: 1,
                message: "no parameter to fit".into(),
            });
        }
        compile(text, predictors, parsed)
    }

    /// Parses a formula with these predictors and these parameters, in this order. The text need not have all of them.
    /// The others stay at their starts and have infinite errors, unless a prior or a tie determines them.
    ///
    /// ```
    /// # use popfit::Formula;
    /// let line = Formula::parse_exactly("slope*x", &["x"], &["offset", "slope"])?;
    /// assert_eq!(line.parameters(), ["offset", "slope"]);
    /// assert!(Formula::parse_exactly("slope*x + c", &["x"], &["offset", "slope"]).is_err());
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`parse_with`](Self::parse_with); [`Error::Formula`] if the text has another name;
    /// [`Error::InvalidArgument`] if a name cannot be a parameter's.
    pub fn parse_exactly(text: &str, predictors: &[&str], parameters: &[&str]) -> Result<Formula> {
        let predictors = check_predictors(predictors)?;
        let order = check_parameters(parameters, &predictors)?;
        let parsed = parse_to_graph(text, &predictors, order, true)?;
        compile(text, predictors, parsed)
    }

    /// Returns the same formula with its parameters in another order, that of `names`, which must name each of them
    /// once.
    ///
    /// ```
    /// # use popfit::Formula;
    /// let line = Formula::parse("slope*x + offset")?.with_parameters(&["offset", "slope"])?;
    /// assert_eq!(line.value(&[10.0], &[1.0, 2.0])?, 21.0);
    /// assert!(line.with_parameters(&["offset"]).is_err());
    /// # Ok::<(), popfit::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidArgument`] if a parameter is missing or named twice, or if a name is not one of the
    /// formula's.
    pub fn with_parameters(self, names: &[&str]) -> Result<Formula> {
        let invalid = |name: &str, reason: &str| {
            let message = format!(
                "parameter `{name}` {reason}; the formula has {}",
                self.parameters.join(", ")
            );
            Err(Error::invalid("parameters", message))
        };
        for (k, name) in names.iter().enumerate() {
            if !self.parameters.iter().any(|parameter| parameter == name) {
                return invalid(name, "is not in the formula");
            }
            if names[..k].contains(name) {
                return invalid(name, "is named twice");
            }
        }
        if let Some(missing) = self
            .parameters
            .iter()
            .find(|parameter| !names.contains(&parameter.as_str()))
        {
            return invalid(missing, "is not named");
        }
        let order = names.iter().map(|name| (*name).to_owned()).collect();
        let parsed = parse_to_graph(&self.text, &self.predictors, order, true)?;
        compile(&self.text, self.predictors, parsed)
    }

    /// Returns the text from which the formula was parsed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the names of the parameters, in the order of every vector of parameters: that in which they appear in
    /// the text, or that given to [`parse_exactly`](Self::parse_exactly) or [`with_parameters`](Self::with_parameters).
    pub fn parameters(&self) -> &[String] {
        &self.parameters
    }

    /// Returns a sentence for each parameter whose name differs from that of a predictor, a constant or a function only
    /// in upper or lower case, one for each predictor that a formula of several parameters does not use (in
    /// `a*exp(-t/tau)` of the predictor `x`, `t` is a parameter), and one for each parameter on which the formula
    /// depends by its conditions alone, if at all.
    ///
    /// ```
    /// let formula = popfit::Formula::parse("a*x + X")?;
    /// assert_eq!(formula.warnings(), ["`X` is taken as a parameter; did you mean the predictor `x`?"]);
    /// # Ok::<(), popfit::Error>(())
    /// ```
    pub fn warnings(&self) -> Vec<String> {
        // 1. Parameters whose names differ from another name only in upper or lower case.
        let predictors = self
            .predictors
            .iter()
            .map(|name| ("predictor", name.as_str()));
        let constants = CONSTANTS.iter().map(|(name, _)| ("constant", *name));
        let functions = FUNCTIONS
            .iter()
            .filter(|(name, _)| function::is_function(name))
            .map(|(name, _)| ("function", *name));
        let operators = parse::WORD_OPERATORS.iter().map(|name| ("operator", *name));
        let terms = self.terms.iter().map(|name| ("term", name.as_str()));
        let names_with_meaning: Vec<(&str, &str)> = predictors
            .chain(constants)
            .chain(functions)
            .chain(operators)
            .chain(terms)
            .collect();
        let confusable = self.parameters.iter().filter_map(|parameter| {
            names_with_meaning
                .iter()
                .find(|(_, name)| name.to_lowercase() == parameter.to_lowercase())
                .map(|(kind, name)| {
                    format!(
                        "`{parameter}` is taken as a parameter; did you mean the {kind} `{name}`?"
                    )
                })
        });
        // 2. Predictors that are not used.
        let has_several_parameters = self.parameters.len() > 1;
        let unused = self.unused_predictors
            .iter()
            .filter(|_| has_several_parameters)
            .map(|k| {
                format!(
                    "the predictor `{}` is not used, and `{}` are parameters; `Formula::parse_with` names other \
                     predictors",
                    self.predictors[*k],
                    self.parameters.join("`, `")
                )
            });
        // 3. Parameters whose derivative is zero.
        let flat = self.flat_parameters.iter().map(|p| {
            format!(
                "the derivative by `{}` is zero everywhere, so that no data determine it",
                self.parameters[*p]
            )
        });
        confusable.chain(unused).chain(flat).collect()
    }

    /// Returns the names of the predictors, in the order of the rows of `x`.
    pub fn predictors(&self) -> &[String] {
        &self.predictors
    }

    /// Computes the value at one point, in f64; `x` has one number per predictor.
    ///
    /// # Errors
    /// Returns [`Error::ShapeMismatch`] if `x` has another length, or if that of `parameters` is not the number of
    /// parameters.
    pub fn value(&self, x: &[f64], parameters: &[f64]) -> Result<f64> {
        if x.len() != self.predictors.len() {
            let message = format!(
                "{} numbers for the predictors {}",
                x.len(),
                self.predictors.join(", ")
            );
            return Err(Error::mismatch("x", message).naming("x"));
        }
        Ok(self.values(x, parameters)?[0])
    }

    /// Computes the values at n points, in f64; `x` is (predictors, n).
    ///
    /// # Errors
    /// Returns [`Error::ShapeMismatch`] if the length of `x` is no multiple of the number of predictors, or that of
    /// `parameters` is not the number of parameters.
    pub fn values(&self, x: &[f64], parameters: &[f64]) -> Result<Vec<f64>> {
        self.check_and_evaluate(false, x, parameters)
    }

    /// Computes values and derivatives by every parameter at n points, in f64: (1 + parameters, n); `x` is (predictors,
    /// n).
    ///
    /// # Errors
    /// The errors of [`values`](Self::values).
    pub fn linearise(&self, x: &[f64], parameters: &[f64]) -> Result<Vec<f64>> {
        self.check_and_evaluate(true, x, parameters)
    }

    /// Returns the WGSL function `fill` for a [`Custom`](crate::recording::Custom) stage: the value, and with
    /// `derivatives` also the derivatives by all parameters.
    #[doc(hidden)]
    pub fn wgsl(&self, derivatives: bool) -> &str {
        if derivatives {
            &self.linearisation_wgsl
        } else {
            &self.value_wgsl
        }
    }

    /// Returns the indices of parameters in which the value is jointly linear.
    pub(crate) fn linear(&self) -> &[usize] {
        &self.linear_parameters
    }

    /// Computes values, with `derivatives` also the derivatives by each parameter, in f64 at all points of `x` into
    /// `output` (rows, n).
    pub(crate) fn fill_rows(
        &self,
        derivatives: bool,
        x: &[f64],
        parameters: &[f64],
        output: &mut [f64],
    ) {
        let tape = if derivatives {
            &self.linearisation
        } else {
            &self.value
        };
        tape.evaluate(x.len() / self.predictors.len(), x, parameters, output);
    }

    /// Returns a function that computes values and derivatives for several fits side by side, in f32 or f64.
    pub(crate) fn lanes<R: Elementary>(&self) -> LaneModel<R> {
        if let Some(model) = self.written_model {
            return Arc::new(move |block| model.evaluate(block));
        }
        let tape = Arc::clone(&self.lanes);
        Arc::new(move |block| tape.evaluate(block))
    }

    /// Returns a function that computes values alone for several fits side by side; `None` for models that are written
    /// out, whose derivatives cost little.
    pub(crate) fn lane_values(&self) -> Option<LaneModel<f64>> {
        let tape = Arc::clone(&self.lane_values);
        self.written_model
            .is_none()
            .then(|| -> LaneModel<f64> { Arc::new(move |block| tape.evaluate(block)) })
    }

    /// Returns a function that sums unweighted products of residuals and derivatives over the grid `x` (predictors,
    /// points); `None` unless the formula is a two-dimensional Gaussian of popfit's own on a lattice.
    pub(crate) fn lane_sums<R: Elementary>(&self, x: &[R]) -> Option<AddUp<R>> {
        self.written_model.and_then(|model| model.lattice_sums(x))
    }

    /// Returns whether the values for lanes at a point have the same bits whichever points are evaluated with it.
    /// Models of two predictors that are written out are an exception: they make factors for a whole lattice.
    pub(crate) fn is_pointwise(&self) -> bool {
        self.written_model.is_none() || self.predictors.len() == 1
    }

    /// Returns whether the derivative by the last parameter, an offset, is known to be 1 at all points.
    pub(crate) fn ends_in_ones(&self) -> bool {
        self.written_model.is_some()
    }

    /// Returns a bound of the rounding errors of values in f32, where f32 holds the predictors exactly; `None` for
    /// models that have none.
    pub(crate) fn rounding(&self) -> Option<SumRounding> {
        self.written_model.map(WrittenModel::sum_rounding)
    }

    /// Checks the lengths and computes values at n points, with `derivatives` also the derivatives by each parameter:
    /// (1 + P, n).
    fn check_and_evaluate(
        &self,
        derivatives: bool,
        x: &[f64],
        parameters: &[f64],
    ) -> Result<Vec<f64>> {
        let mismatch = |argument: &str, message: String| {
            Err(Error::mismatch(argument, message).naming(argument))
        };
        if !x.len().is_multiple_of(self.predictors.len()) {
            return mismatch(
                "x",
                format!(
                    "{} numbers for the predictors {}",
                    x.len(),
                    self.predictors.join(", ")
                ),
            );
        }
        if parameters.len() != self.parameters.len() {
            let names = self.parameters.join(", ");
            return mismatch(
                "parameters",
                format!("{} numbers for {names}", parameters.len()),
            );
        }
        let row_count = if derivatives {
            1 + self.parameters.len()
        } else {
            1
        };
        let mut output = vec![0.0; row_count * (x.len() / self.predictors.len())];
        self.fill_rows(derivatives, x, parameters, &mut output);
        Ok(output)
    }
}

#[cfg(test)]
mod tests;
