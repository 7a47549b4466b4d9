//! A graph for many points at once: factors that are the same at all points are gathered and computed once.

use super::graph::{Graph, Node, NodeId};

/// Maximum number of factors of a product that is rearranged: products that share factors would grow without end.
const MOST_FACTORS: usize = 12;

/// A graph under construction.
#[derive(Default)]
struct Hoist {
    graph: Graph,
    /// True for nodes that depend on a predictor, as far as this is known.
    varies: Vec<bool>,
}

/// Rewrites a graph so that factors independent of predictors are multiplied first; returns it and the nodes that equal
/// `outputs`. Divisors that are the same at all points become factors by their reciprocals, and in products the factors
/// that are the same at all points come first.
pub fn hoisted(graph: &Graph, outputs: &[NodeId]) -> (Graph, Vec<NodeId>) {
    let mut new = Hoist::default();
    let mut known: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let of = |id: NodeId| known[id.0];
        let id = match *node {
            Node::Number(bits) => new.graph.number(f64::from_bits(bits)),
            Node::Predictor(d) => new.graph.predictor(d),
            Node::Parameter(p) => new.graph.parameter(p),
            Node::Negate(a) => {
                let minus = new.graph.number(-1.0);
                new.product(&[minus, of(a)])
            }
            Node::Add(a, b) => new.graph.add(of(a), of(b)),
            Node::Subtract(a, b) => new.graph.subtract(of(a), of(b)),
            Node::Multiply(a, b) => new.product(&[of(a), of(b)]),
            Node::Divide(a, b) if new.is_varying(of(a)) && !new.is_varying(of(b)) => {
                let reciprocal = new.graph.integer_power(of(b), -1);
                new.product(&[of(a), reciprocal])
            }
            Node::Divide(a, b) => new.graph.divide(of(a), of(b)),
            Node::Power(a, n) => new.graph.integer_power(of(a), n),
            Node::Call(function, a) => new.graph.call(function, of(a)),
            Node::CallPair(pair, a, b) => new.graph.pair(pair, of(a), of(b)),
        };
        known.push(id);
    }
    (new.graph, outputs.iter().map(|id| known[id.0]).collect())
}

impl Hoist {
    /// Returns whether a node depends on a predictor.
    fn is_varying(&mut self, id: NodeId) -> bool {
        // nodes that are new since the last call
        for node in &self.graph.nodes[self.varies.len()..] {
            self.varies.push(
                matches!(node, Node::Predictor(_)) || node.operands().any(|id| self.varies[id.0]),
            );
        }
        self.varies[id.0]
    }

    /// Returns the node of the factors' product, those that do not depend on predictors being multiplied first.
    fn product(&mut self, factors: &[NodeId]) -> NodeId {
        let mut all = Vec::new();
        factors.iter().for_each(|id| self.split(*id, &mut all));
        all.sort();
        let (mut same, mut others) = (self.graph.number(1.0), self.graph.number(1.0));
        for id in all {
            let product = if self.is_varying(id) {
                &mut others
            } else {
                &mut same
            };
            *product = self.graph.multiply(*product, id);
        }
        self.graph.multiply(same, others)
    }

    /// Appends the factors of a node to `factors`: of a product that depends on predictors, those of both operands;
    /// else itself.
    fn split(&mut self, id: NodeId, factors: &mut Vec<NodeId>) {
        match self.graph.node(id) {
            Node::Multiply(a, b) if factors.len() < MOST_FACTORS && self.is_varying(id) => {
                self.split(a, factors);
                self.split(b, factors);
            }
            Node::Negate(a) if self.is_varying(id) => {
                factors.push(self.graph.number(-1.0));
                self.split(a, factors);
            }
            _ => factors.push(id),
        }
    }
}
