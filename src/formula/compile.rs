//! Compilation of a formula: from its text to a graph with its derivatives, and from that to tapes, lanes and WGSL.

use std::sync::Arc;

use super::derive::add_derivatives;
use super::graph::Node;
use super::lanes::LaneTape;
use super::parse::{Parsed, parse};
use super::tape::Tape;
use super::{Formula, wgsl};
use crate::error::{Error, Result};

/// Parses a formula into a graph. The parameters in `order` come first, then others as they appear in the text; if the
/// order is `complete`, others are mistakes.
pub fn parse_to_graph(
    text: &str,
    predictors: &[String],
    order: Vec<String>,
    complete: bool,
) -> Result<Parsed> {
    parse(text, predictors, order, complete).map_err(|complaint| Error::Formula {
        formula: text.into(),
        column: complaint.at + 1,
        message: complaint.message,
    })
}

/// Differentiates a parsed formula by its parameters and compiles it into all forms.
pub fn compile(text: &str, predictors: Vec<String>, parsed: Parsed) -> Result<Formula> {
    let Parsed {
        mut graph,
        value,
        parameters,
        terms,
    } = parsed;
    // 1. Differentiate the value by the parameters.
    let derivatives =
        add_derivatives(&mut graph, value, parameters.len()).map_err(|message| Error::Formula {
            formula: text.into(),
            column: 1,
            message,
        })?;
    let mut outputs = vec![value];
    outputs.extend(derivatives);
    // 2. Find linear parameters, parameters without an effect, and unused predictors.
    let linear_parameters = graph.find_linear_parameters(&outputs[1..]);
    let flat_parameters = (0..parameters.len())
        .filter(|p| graph.constant(outputs[1 + p]) == Some(0.0))
        .collect();
    let is_used = |k: usize| {
        graph
            .nodes
            .iter()
            .any(|node| matches!(node, Node::Predictor(d) if *d == k))
    };
    let unused_predictors = (0..predictors.len()).filter(|k| !is_used(*k)).collect();
    // 3. Compile for lanes, and print as WGSL.
    let lanes = LaneTape::new(&graph, &outputs);
    let print_wgsl =
        |outputs| wgsl::print_fill(&graph, outputs, predictors.len(), parameters.len());
    Ok(Formula {
        text: text.into(),
        value: Arc::new(Tape::new(&graph, &outputs[..1])),
        linearisation: Arc::new(Tape::new(&graph, &outputs)),
        lanes: Arc::new(lanes),
        lane_values: Arc::new(LaneTape::new(&graph, &outputs[..1])),
        written_model: None,
        value_wgsl: print_wgsl(&outputs[..1]),
        linearisation_wgsl: print_wgsl(&outputs),
        linear_parameters,
        flat_parameters,
        unused_predictors,
        predictors,
        parameters,
        terms,
    })
}
