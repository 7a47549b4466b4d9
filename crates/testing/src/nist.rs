//! The NIST StRD problems of nonlinear regression, as formulas with their certified answers.

use popfit::{CurveFit, CurveFitter, CurveModel, Curves, Formula, Result};
use serde::Deserialize;

/// One problem as in `nist.json`.
#[derive(Deserialize)]
struct NistEntry {
    name: String,
    model: String,
    /// `y`, or a function of it.
    response: String,
    predictors: serde_json::Map<String, serde_json::Value>,
    y: Vec<f64>,
    start1: Vec<f64>,
    start2: Vec<f64>,
    certified: Vec<f64>,
    certified_sd: Vec<f64>,
}

#[derive(Deserialize)]
struct NistFile {
    problems: Vec<NistEntry>,
}

/// One problem; vectors of parameters are in the formula's order.
pub struct NistProblem {
    pub name: String,
    pub formula: Formula,
    /// (predictors, points)
    pub x: Vec<f64>,
    pub y: Vec<f64>,
    starts: [Vec<f64>; 2],
    pub certified: Vec<f64>,
    /// Certified standard deviations.
    pub certified_errors: Vec<f64>,
}

/// All 27 problems.
pub fn problems() -> Result<Vec<NistProblem>> {
    let parsed = serde_json::from_str(include_str!("../nist.json"));
    let file: NistFile =
        parsed.map_err(|error| popfit::Error::Usage(format!("nist.json: {error}")))?;
    file.problems.iter().map(NistProblem::new).collect()
}

impl NistProblem {
    fn new(entry: &NistEntry) -> Result<NistProblem> {
        let predictors: Vec<&str> = entry.predictors.keys().map(String::as_str).collect();
        let formula = Formula::parse_with(&entry.model, &predictors)?;
        let columns = entry
            .predictors
            .values()
            .flat_map(|column| column.as_array().into_iter().flatten());
        // a formula needs a parameter
        let response = Formula::parse_with(&format!("0*unused + {}", entry.response), &["y"])?;
        let y = response.values(&entry.y, &[0.0])?;
        let in_order = |values: &[f64]| order_parameters(&formula, values);
        Ok(NistProblem {
            name: entry.name.clone(),
            x: columns.filter_map(serde_json::Value::as_f64).collect(),
            y,
            starts: [in_order(&entry.start1), in_order(&entry.start2)],
            certified: in_order(&entry.certified),
            certified_errors: in_order(&entry.certified_sd),
            formula,
        })
    }

    /// With symbolic derivatives, or with differences.
    pub fn model(&self, differences: bool) -> CurveModel {
        CurveModel::from(self.formula.clone()).differences(differences)
    }

    /// Both starts as one call.
    pub fn fit(&self, fitter: &CurveFitter) -> Result<Vec<CurveFit>> {
        fitter.fit(&Curves::on_common_grid(
            self.x.clone(),
            self.y.repeat(2),
            self.starts.concat(),
        ))
    }
}

/// Returns the file's parameters, which are b1, b2, …, in the order in which they appear in the formula.
fn order_parameters(formula: &Formula, values: &[f64]) -> Vec<f64> {
    let value_of = |name: &String| {
        let number: usize = name[1..].parse().ok()?;
        values.get(number.wrapping_sub(1)).copied()
    };
    formula
        .parameters()
        .iter()
        .map(|name| value_of(name).unwrap_or(f64::NAN))
        .collect()
}

/// Digits on which the worst number agrees with the certified ones (log relative error), 0 to 11.
pub fn digits(found: &[f64], certified: &[f64]) -> f64 {
    let mut fewest = 11.0f64;
    for (value, certified) in found.iter().zip(certified) {
        let digits = -((value - certified).abs() / certified.abs()).log10();
        fewest = if digits.is_nan() {
            0.0
        } else {
            fewest.min(digits)
        };
    }
    fewest.max(0.0)
}
