//! The NIST StRD problems of nonlinear regression, as formulas with their certified answers.

use popfit::{CurveFit, CurveFitter, CurveModel, Curves, Formula, Result};
use serde::Deserialize;

/// One problem as in `nist.json`.
#[derive(Deserialize)]
struct Entry {
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
struct File {
    problems: Vec<Entry>,
}

/// One problem; vectors of parameters are in the formula's order.
pub struct Problem {
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
pub fn problems() -> Result<Vec<Problem>> {
    let parsed = serde_json::from_str(include_str!("../nist.json"));
    let file: File = parsed.map_err(|error| popfit::Error::Usage(format!("nist.json: {error}")))?;
    file.problems.iter().map(Problem::new).collect()
}

impl Problem {
    fn new(entry: &Entry) -> Result<Problem> {
        let predictors: Vec<&str> = entry.predictors.keys().map(String::as_str).collect();
        let formula = Formula::parse_with(&entry.model, &predictors)?;
        let columns = entry
            .predictors
            .values()
            .flat_map(|column| column.as_array().into_iter().flatten());
        // a formula needs a parameter
        let response = Formula::parse_with(&format!("0*unused + {}", entry.response), &["y"])?;
        let y = response.values(&entry.y, &[0.0])?;
        let of = |values: &[f64]| ordered(&formula, values);
        Ok(Problem {
            name: entry.name.clone(),
            x: columns.filter_map(serde_json::Value::as_f64).collect(),
            y,
            starts: [of(&entry.start1), of(&entry.start2)],
            certified: of(&entry.certified),
            certified_errors: of(&entry.certified_sd),
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

/// The file's parameters are b1, b2, …; a formula's come as they appear.
fn ordered(formula: &Formula, values: &[f64]) -> Vec<f64> {
    let place = |name: &String| {
        name[1..]
            .parse()
            .ok()
            .and_then(|n: usize| values.get(n.wrapping_sub(1)).copied())
    };
    formula
        .parameters()
        .iter()
        .map(|name| place(name).unwrap_or(f64::NAN))
        .collect()
}

/// Digits on which the worst number agrees with the certified ones (log relative error), 0 to 11.
pub fn digits(found: &[f64], certified: &[f64]) -> f64 {
    let one = |(f, c): (&f64, &f64)| -((f - c).abs() / c.abs()).log10();
    let worst = found
        .iter()
        .zip(certified)
        .map(one)
        .fold(11.0, |a: f64, b| if b.is_nan() { 0.0 } else { a.min(b) });
    worst.max(0.0)
}
