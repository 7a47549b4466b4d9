//! Tied parameters, which are expressions of other parameters. They are substituted into a formula's graph, so that the
//! solver never sees them.

use super::derive::add_derivatives;
use super::graph::{Graph, Node, NodeId};
use super::parse::Parsed;
use super::tape::Tape;
use super::{Formula, compile, parse_to_graph};
use crate::error::{Error, Result};
use crate::suggest::hint;

/// A parameter that is an expression of others.
#[derive(Clone, Debug)]
pub(crate) struct ParameterTie {
    /// Index of the parameter.
    pub parameter: usize,
    pub expression: String,
}

/// A formula without its tied parameters, and the expressions of these.
pub(crate) struct Ties {
    pub formula: Formula,
    /// Indices, in the whole formula, of the parameters that are not tied.
    pub kept: Vec<usize>,
    /// Indices, in the whole formula, of the tied parameters.
    pub tied: Vec<usize>,
    /// The tied parameters and their derivatives.
    tape: Tape,
}

/// Error: the expression of this parameter leads back to itself.
struct Cycle(usize);

impl Ties {
    /// Replaces tied parameters of a formula by their expressions, so that only the others are fitted. Returns
    /// [`Error::Formula`] for an expression that cannot be read, and [`Error::Usage`] for unknown names and cycles.
    pub fn new(whole: &Formula, ties: &[ParameterTie]) -> Result<Ties> {
        let names = whole.parameters();
        // 1. Parse the expressions, and separate tied from free parameters.
        let expressions: Vec<Option<Parsed>> = (0..names.len())
            .map(|p| {
                ties.iter()
                    .find(|tie| tie.parameter == p)
                    .map(|tie| parse_tie(whole, tie))
                    .transpose()
            })
            .collect::<Result<_>>()?;
        let (tied, free): (Vec<usize>, Vec<usize>) =
            (0..names.len()).partition(|&p| expressions[p].is_some());
        if free.is_empty() {
            return Err(Error::Usage(
                "every parameter is tied: none is left to fit".into(),
            ));
        }
        // 2. Express every parameter by the free ones, in a new graph.
        let mut resolver = TieResolver {
            expressions: &expressions,
            free: &free,
            graph: Graph::default(),
            nodes: vec![None; names.len()],
            is_open: vec![false; names.len()],
        };
        for p in 0..names.len() {
            resolver.resolve(p).map_err(|Cycle(p)| {
                Error::Usage(format!("the tie of `{}` leads back to itself", names[p]))
            })?;
        }
        let parameter_nodes: Vec<NodeId> = resolver.nodes.iter().flatten().copied().collect();
        let mut graph = resolver.graph;
        // 3. Copy the formula into this graph, with the expressions in place of its parameters.
        let parsed = parse_to_graph(whole.text(), whole.predictors(), names.to_vec(), false)?;
        let value = copy_expression(
            &mut graph,
            &parsed.graph,
            parsed.value,
            &mut |graph, leaf| match leaf {
                Node::Parameter(p) => parameter_nodes[p],
                Node::Predictor(d) => graph.predictor(d),
                _ => add_leaf_number(graph, leaf),
            },
        );
        // 4. Compile the tied parameters with their derivatives, for the errors of fits, and the formula.
        let mut outputs = Vec::new();
        for &p in &tied {
            outputs.push(parameter_nodes[p]);
            let derivatives = add_derivatives(&mut graph, parameter_nodes[p], free.len())
                .map_err(|message| Error::Usage(format!("the tie of `{}`: {message}", names[p])))?;
            outputs.extend(derivatives);
        }
        let tape = Tape::new(&graph, &outputs);
        let substituted = Parsed {
            graph,
            value,
            parameters: free.iter().map(|&p| names[p].clone()).collect(),
            terms: parsed.terms,
        };
        let formula = compile(whole.text(), whole.predictors().to_vec(), substituted)?;
        Ok(Ties {
            formula,
            kept: free,
            tied,
            tape,
        })
    }

    /// Computes the tied parameters and their derivatives by the free ones from the values of the free ones:
    /// (tied, 1 + free).
    pub fn evaluate(&self, free: &[f64]) -> Vec<f64> {
        let mut output = vec![0.0; self.tied.len() * (1 + self.kept.len())];
        self.tape.evaluate(1, &[], free, &mut output);
        output
    }
}

/// Parses the expression of a tie; fails if it names anything but parameters of the formula. For the parser these are
/// the expression's predictors, so that any other name appears among its parameters.
fn parse_tie(whole: &Formula, tie: &ParameterTie) -> Result<Parsed> {
    let names = whole.parameters();
    let tied = &names[tie.parameter];
    let expression = parse_to_graph(&tie.expression, names, Vec::new(), false)
        .map_err(|error| add_tie_to_message(error, tied))?;
    if let Some(name) = expression
        .terms
        .iter()
        .find(|name| whole.predictors().contains(name))
    {
        return Err(Error::Usage(format!(
            "the tie of `{tied}` has a term with the name of the predictor `{name}`"
        )));
    }
    match expression.parameters.first() {
        None => Ok(expression),
        Some(name) if whole.predictors().contains(name) => Err(Error::Usage(format!(
            "the tie of `{tied}` must not depend on the predictor `{name}`"
        ))),
        Some(name) => {
            let hint = hint(name, names.iter().map(String::as_str));
            Err(Error::Usage(format!(
                "the tie of `{tied}` names `{name}`, which is no parameter{hint}"
            )))
        }
    }
}

/// Puts "in the tie of `NAME`" in front of the message of a formula error; returns other errors unchanged.
fn add_tie_to_message(error: Error, tied: &str) -> Error {
    match error {
        Error::Formula {
            formula,
            column,
            message,
        } => Error::Formula {
            formula,
            column,
            message: format!("in the tie of `{tied}`: {message}"),
        },
        other_error => other_error,
    }
}

/// Search for the node of each parameter in a graph of the free parameters.
struct TieResolver<'a> {
    expressions: &'a [Option<Parsed>],
    free: &'a [usize],
    graph: Graph,
    nodes: Vec<Option<NodeId>>,
    /// True for parameters whose expressions are being resolved.
    is_open: Vec<bool>,
}

impl TieResolver<'_> {
    /// Returns the node of parameter `p`: itself if it is free, else its tie's expression; fails if ties form a cycle.
    fn resolve(&mut self, p: usize) -> Result<NodeId, Cycle> {
        if let Some(node) = self.nodes[p] {
            return Ok(node);
        }
        let node = match &self.expressions[p] {
            None => {
                let free_index = self.free.iter().position(|k| *k == p).unwrap_or_default();
                self.graph.parameter(free_index)
            }
            Some(_) if self.is_open[p] => return Err(Cycle(p)),
            Some(expression) => {
                // 1. Resolve the parameters that the expression needs.
                self.is_open[p] = true;
                let needed = expression.graph.find_needed(&[expression.value]);
                for (node, is_needed) in expression.graph.nodes.iter().zip(needed) {
                    if let Node::Predictor(q) = node
                        && is_needed
                    {
                        self.resolve(*q)?;
                    }
                }
                // 2. Copy the expression.
                let nodes = &self.nodes;
                copy_expression(
                    &mut self.graph,
                    &expression.graph,
                    expression.value,
                    &mut |graph, leaf| match leaf {
                        // A parameter that cancelled has no node, and needs none.
                        Node::Predictor(q) => nodes[q].unwrap_or_else(|| graph.number(0.0)),
                        _ => add_leaf_number(graph, leaf),
                    },
                )
            }
        };
        self.nodes[p] = Some(node);
        Ok(node)
    }
}

/// Adds a leaf that is a number to the graph, or 0 for another leaf, and returns its node.
fn add_leaf_number(graph: &mut Graph, leaf: Node) -> NodeId {
    graph.number(if let Node::Number(bits) = leaf {
        f64::from_bits(bits)
    } else {
        0.0
    })
}

/// Copies the expression of node `root` into another graph and returns its node there; `copy_leaf` replaces numbers,
/// predictors and parameters.
fn copy_expression(
    graph: &mut Graph,
    source: &Graph,
    root: NodeId,
    copy_leaf: &mut dyn FnMut(&mut Graph, Node) -> NodeId,
) -> NodeId {
    let mut copies: Vec<NodeId> = Vec::with_capacity(root.0 + 1);
    for k in 0..=root.0 {
        let copy_of = |id: NodeId| copies[id.0];
        let copy = match source.node(NodeId(k)) {
            Node::Negate(a) => graph.negate(copy_of(a)),
            Node::Add(a, b) => graph.add(copy_of(a), copy_of(b)),
            Node::Subtract(a, b) => graph.subtract(copy_of(a), copy_of(b)),
            Node::Multiply(a, b) => graph.multiply(copy_of(a), copy_of(b)),
            Node::Divide(a, b) => graph.divide(copy_of(a), copy_of(b)),
            Node::Power(a, n) => graph.integer_power(copy_of(a), n),
            Node::Call(function, a) => graph.call(function, copy_of(a)),
            Node::CallBinary(pair, a, b) => graph.call_binary(pair, copy_of(a), copy_of(b)),
            leaf => copy_leaf(graph, leaf),
        };
        if let Some(arguments) = source.voigt_arguments(NodeId(k)) {
            graph.mark_voigt(copy, arguments.map(copy_of));
        }
        copies.push(copy);
    }
    copies[root.0]
}
