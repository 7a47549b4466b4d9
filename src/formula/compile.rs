//! Compilation of a formula: from its text to a graph with its derivatives, and from that to tapes, lanes and WGSL.

use std::sync::Arc;

use super::derive::derivatives;
use super::graph::Node;
use super::lanes::LaneTape;
use super::parse::{Parsed, parse};
use super::rounding::rounding;
use super::tape::Tape;
use super::token::Complaint;
use super::{Formula, wgsl};
use crate::error::{Error, Result};

/// Parses a formula into a graph, with the parameters in `order` first and others as they appear in the text; if the
/// order is `complete`, others are mistakes.
pub fn parsed(
    text: &str,
    predictors: &[String],
    order: Vec<String>,
    complete: bool,
) -> Result<Parsed> {
    let at = |Complaint { at, message }| Error::Formula {
        formula: text.into(),
        column: at + 1,
        message,
    };
    parse(text, predictors, order, complete).map_err(at)
}

/// Differentiates a parsed formula by its parameters and compiles it into all forms.
pub fn compile(text: &str, predictors: Vec<String>, parsed: Parsed) -> Result<Formula> {
    let Parsed {
        mut graph,
        value,
        parameters,
        terms,
    } = parsed;
    let mut rows = vec![value];
    let too_large = |message| Error::Formula {
        formula: text.into(),
        column: 1,
        message,
    };
    rows.extend(derivatives(&mut graph, value, parameters.len()).map_err(too_large)?);
    let linear = graph.linear(&rows[1..]);
    let flat = (0..parameters.len())
        .filter(|p| graph.constant(rows[1 + p]) == Some(0.0))
        .collect();
    let is_used = |k: usize| {
        graph
            .nodes
            .iter()
            .any(|node| matches!(node, Node::Predictor(d) if *d == k))
    };
    let unused = (0..predictors.len()).filter(|k| !is_used(*k)).collect();
    let lanes = LaneTape::new(&graph, &rows);
    let bounds = [false, true].map(|held| {
        let mut errors = graph.clone();
        let bound = rounding(&mut errors, value, held);
        Arc::new(LaneTape::new(&errors, &[value, bound]))
    });
    let wgsl = |rows| wgsl::fill(&graph, rows, predictors.len(), parameters.len());
    Ok(Formula {
        text: text.into(),
        value: Arc::new(Tape::new(&graph, &rows[..1])),
        linearisation: Arc::new(Tape::new(&graph, &rows)),
        lanes: Arc::new(lanes),
        lane_values: Arc::new(LaneTape::new(&graph, &rows[..1])),
        direct: None,
        rounding: bounds,
        value_wgsl: wgsl(&rows[..1]),
        linearisation_wgsl: wgsl(&rows),
        linear,
        flat,
        unused,
        predictors,
        parameters,
        terms,
    })
}
