//! The NIST StRD problems of nonlinear regression (shared `data/nist`), as formulas.

use popfit::Formula;
use serde_json::Value;

use super::shared;

/// One problem and its certified answers. P is the number of parameters, in the order in which the formula names them.
pub struct Problem {
    pub name: String,
    pub formula: Formula,
    /// (predictors, points)
    pub x: Vec<f64>,
    pub y: Vec<f64>,
    pub starts: [Vec<f64>; 2],
    /// (P) values and standard errors.
    pub parameters: Vec<f64>,
    pub errors: Vec<f64>,
    /// √(χ²/dof): the standard deviation of a residual.
    pub residual: f64,
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// The file's parameters are b1, b2, …; a formula's come as they appear.
fn ordered(formula: &Formula, values: &[f64]) -> Vec<f64> {
    formula.parameters().iter().map(|name| values[name[1..].parse::<usize>().unwrap() - 1]).collect()
}

/// All of them, from the easiest to the hardest.
pub fn problems() -> Option<Vec<Problem>> {
    let text = std::fs::read_to_string(shared()?.join("data/nist/nist_strd.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    Some(
        file["order"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| problem(&file["problems"][name.as_str().unwrap()]))
            .collect(),
    )
}

fn problem(entry: &Value) -> Problem {
    let predictors: Vec<&str> = entry["predictors"].as_object().unwrap().keys().map(String::as_str).collect();
    let formula = Formula::parse_with(entry["model"].as_str().unwrap(), &predictors).unwrap();
    let x = predictors.iter().flat_map(|name| numbers(&entry["predictors"][name])).collect();
    let response = Formula::parse_with(&format!("0*unused + {}", entry["response"].as_str().unwrap()), &["y"]);
    let y = response.unwrap().values(&numbers(&entry["y"]), &[0.0]).unwrap();
    let of = |key: &str| ordered(&formula, &numbers(&entry[key]));
    Problem {
        name: entry["name"].as_str().unwrap().to_owned(),
        x,
        y,
        starts: [of("start1"), of("start2")],
        parameters: of("certified"),
        errors: of("certified_sd"),
        residual: entry["rsd"].as_f64().unwrap(),
        formula,
    }
}
