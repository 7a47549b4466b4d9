//! Parameters that are expressions of other parameters, substituted into a formula's graph: the solver never sees them.

use super::derive::derivatives;
use super::graph::{Graph, Node, NodeId};
use super::parse::Parsed;
use super::tape::Tape;
use super::{Formula, compile, parsed};
use crate::error::{Error, Result};
use crate::suggest::hint;

/// A parameter that is an expression of others.
#[derive(Clone, Debug)]
pub(crate) struct Tie {
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

/// The parameter at which an expression leads back to itself.
struct Cycle(usize);

impl Ties {
    /// Replaces tied parameters of a formula by their expressions, so that only the others are fitted. Returns
    /// [`Error::Formula`] for an expression that cannot be read, and [`Error::Usage`] for unknown names and circles.
    pub fn new(whole: &Formula, ties: &[Tie]) -> Result<Ties> {
        let names = whole.parameters();
        let expressions: Vec<Option<Parsed>> = (0..names.len())
            .map(|p| {
                ties.iter()
                    .find(|tie| tie.parameter == p)
                    .map(|tie| expression(whole, tie))
                    .transpose()
            })
            .collect::<Result<_>>()?;
        let (tied, kept): (Vec<usize>, Vec<usize>) =
            (0..names.len()).partition(|&p| expressions[p].is_some());
        if kept.is_empty() {
            return Err(Error::Usage(
                "every parameter is tied: none is left to fit".into(),
            ));
        }
        let mut resolver = Resolver {
            expressions: &expressions,
            kept: &kept,
            graph: Graph::default(),
            nodes: vec![None; names.len()],
            open: vec![false; names.len()],
        };
        for p in 0..names.len() {
            let circle = |Cycle(p): Cycle| {
                Error::Usage(format!("the tie of `{}` leads back to itself", names[p]))
            };
            resolver.node(p).map_err(circle)?;
        }
        let nodes: Vec<NodeId> = resolver.nodes.iter().flatten().copied().collect();
        let mut graph = resolver.graph;
        let parsed = parsed(whole.text(), whole.predictors(), names.to_vec(), false)?;
        let value = import(
            &mut graph,
            &parsed.graph,
            parsed.value,
            &mut |graph, leaf| match leaf {
                Node::Parameter(p) => nodes[p],
                Node::Predictor(d) => graph.predictor(d),
                _ => leaf_number(graph, leaf),
            },
        );
        let mut outputs = Vec::new();
        for &p in &tied {
            let too_large = |message| Error::Usage(format!("the tie of `{}`: {message}", names[p]));
            outputs.push(nodes[p]);
            outputs.extend(derivatives(&mut graph, nodes[p], kept.len()).map_err(too_large)?);
        }
        let tape = Tape::new(&graph, &outputs);
        let parameters = kept.iter().map(|&p| names[p].clone()).collect();
        let left = Parsed {
            graph,
            value,
            parameters,
            terms: parsed.terms,
        };
        let formula = compile(whole.text(), whole.predictors().to_vec(), left)?;
        Ok(Ties {
            formula,
            kept,
            tied,
            tape,
        })
    }

    /// Computes the tied parameters and their derivatives by the kept ones from the values of those: (tied, 1 + kept).
    pub fn evaluate(&self, kept: &[f64]) -> Vec<f64> {
        let mut output = vec![0.0; self.tied.len() * (1 + self.kept.len())];
        self.tape.evaluate(1, &[], kept, &mut output);
        output
    }
}

/// Parses the expression of a tie, in which names are parameters of the formula; fails on other names. The formula's
/// parameters are its predictors, so that any other name is a parameter.
fn expression(whole: &Formula, tie: &Tie) -> Result<Parsed> {
    let names = whole.parameters();
    let tied = &names[tie.parameter];
    let found =
        parsed(&tie.expression, names, Vec::new(), false).map_err(|error| in_tie(error, tied))?;
    if let Some(name) = found
        .terms
        .iter()
        .find(|name| whole.predictors().contains(name))
    {
        return Err(Error::Usage(format!(
            "the tie of `{tied}` has a term with the name of the predictor `{name}`"
        )));
    }
    match found.parameters.first() {
        None => Ok(found),
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
fn in_tie(error: Error, tied: &str) -> Error {
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
        other => other,
    }
}

/// Finds the node of each parameter in the graph of those that are left.
struct Resolver<'a> {
    expressions: &'a [Option<Parsed>],
    kept: &'a [usize],
    graph: Graph,
    nodes: Vec<Option<NodeId>>,
    open: Vec<bool>,
}

impl Resolver<'_> {
    /// Returns the node of parameter `p`: itself if it is kept, else its tie's expression; fails if ties form a cycle.
    fn node(&mut self, p: usize) -> Result<NodeId, Cycle> {
        if let Some(node) = self.nodes[p] {
            return Ok(node);
        }
        let node = match &self.expressions[p] {
            None => {
                let place = self.kept.iter().position(|k| *k == p).unwrap_or_default();
                self.graph.parameter(place)
            }
            Some(_) if self.open[p] => return Err(Cycle(p)),
            Some(expression) => {
                self.open[p] = true;
                let needed = expression.graph.needed(&[expression.value]);
                for node in expression
                    .graph
                    .nodes
                    .iter()
                    .zip(needed)
                    .filter(|(_, needed)| *needed)
                {
                    if let Node::Predictor(q) = node.0 {
                        self.node(*q)?;
                    }
                }
                let nodes = &self.nodes;
                import(
                    &mut self.graph,
                    &expression.graph,
                    expression.value,
                    &mut |graph, leaf| match leaf {
                        // a parameter that cancelled has no node, and needs none
                        Node::Predictor(q) => nodes[q].unwrap_or_else(|| graph.number(0.0)),
                        _ => leaf_number(graph, leaf),
                    },
                )
            }
        };
        self.nodes[p] = Some(node);
        Ok(node)
    }
}

/// Returns the node, in `graph`, of a leaf that is a number; 0 for another leaf.
fn leaf_number(graph: &mut Graph, leaf: Node) -> NodeId {
    graph.number(if let Node::Number(bits) = leaf {
        f64::from_bits(bits)
    } else {
        0.0
    })
}

/// Copies the expression of node `root` into another graph and returns its node there; `leaf` replaces numbers,
/// predictors and parameters.
fn import(
    graph: &mut Graph,
    source: &Graph,
    root: NodeId,
    leaf: &mut dyn FnMut(&mut Graph, Node) -> NodeId,
) -> NodeId {
    let mut found: Vec<NodeId> = Vec::with_capacity(root.0 + 1);
    for k in 0..=root.0 {
        let of = |id: NodeId| found[id.0];
        let node = match source.node(NodeId(k)) {
            Node::Negate(a) => graph.negate(of(a)),
            Node::Add(a, b) => graph.add(of(a), of(b)),
            Node::Subtract(a, b) => graph.subtract(of(a), of(b)),
            Node::Multiply(a, b) => graph.multiply(of(a), of(b)),
            Node::Divide(a, b) => graph.divide(of(a), of(b)),
            Node::Power(a, n) => graph.integer_power(of(a), n),
            Node::Call(function, a) => graph.call(function, of(a)),
            Node::CallPair(pair, a, b) => graph.pair(pair, of(a), of(b)),
            other => leaf(graph, other),
        };
        if let Some(arguments) = source.voigt_arguments(NodeId(k)) {
            graph.mark_voigt(node, arguments.map(of));
        }
        found.push(node);
    }
    found[root.0]
}
