//! Hoisting of factors that are the same at all points: they are gathered in front of each product and computed once.

use super::graph::{Graph, Node, NodeId};

/// Maximum number of factors of a product that is rearranged: without a limit, products that share factors would grow
/// without end.
const MAX_REARRANGED_FACTORS: usize = 12;

/// The rewritten graph under construction.
#[derive(Default)]
struct HoistedGraph {
    graph: Graph,
    /// True for nodes that depend on a predictor; it may lack the newest nodes.
    varies: Vec<bool>,
}

/// Rewrites a graph so that factors independent of predictors are multiplied first; returns it and the nodes that equal
/// `outputs`. Divisors that are independent of predictors become factors by their reciprocals.
pub fn hoist_constant_factors(graph: &Graph, outputs: &[NodeId]) -> (Graph, Vec<NodeId>) {
    let mut hoisted = HoistedGraph::default();
    let mut new_ids: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let new_id = |id: NodeId| new_ids[id.0];
        let rewritten = match *node {
            Node::Number(bits) => hoisted.graph.number(f64::from_bits(bits)),
            Node::Predictor(d) => hoisted.graph.predictor(d),
            Node::Parameter(p) => hoisted.graph.parameter(p),
            Node::Negate(a) => {
                let minus = hoisted.graph.number(-1.0);
                hoisted.multiply_factors(&[minus, new_id(a)])
            }
            Node::Add(a, b) => hoisted.graph.add(new_id(a), new_id(b)),
            Node::Subtract(a, b) => hoisted.graph.subtract(new_id(a), new_id(b)),
            Node::Multiply(a, b) => hoisted.multiply_factors(&[new_id(a), new_id(b)]),
            Node::Divide(a, b)
                if hoisted.is_varying(new_id(a)) && !hoisted.is_varying(new_id(b)) =>
            {
                let reciprocal = hoisted.graph.integer_power(new_id(b), -1);
                hoisted.multiply_factors(&[new_id(a), reciprocal])
            }
            Node::Divide(a, b) => hoisted.graph.divide(new_id(a), new_id(b)),
            Node::Power(a, n) => hoisted.graph.integer_power(new_id(a), n),
            Node::Call(function, a) => hoisted.graph.call(function, new_id(a)),
            Node::CallBinary(pair, a, b) => hoisted.graph.call_binary(pair, new_id(a), new_id(b)),
        };
        new_ids.push(rewritten);
    }
    (
        hoisted.graph,
        outputs.iter().map(|id| new_ids[id.0]).collect(),
    )
}

impl HoistedGraph {
    /// Returns whether a node depends on a predictor.
    fn is_varying(&mut self, id: NodeId) -> bool {
        // Judge the nodes that are new since the last call.
        for node in &self.graph.nodes[self.varies.len()..] {
            self.varies.push(
                matches!(node, Node::Predictor(_)) || node.operands().any(|id| self.varies[id.0]),
            );
        }
        self.varies[id.0]
    }

    /// Returns the node of the operands' product, in which factors that do not depend on predictors are multiplied
    /// first.
    fn multiply_factors(&mut self, operands: &[NodeId]) -> NodeId {
        let mut factors = Vec::new();
        operands
            .iter()
            .for_each(|id| self.split_product(*id, &mut factors));
        factors.sort();
        let mut constant_product = self.graph.number(1.0);
        let mut varying_product = self.graph.number(1.0);
        for id in factors {
            let product = if self.is_varying(id) {
                &mut varying_product
            } else {
                &mut constant_product
            };
            *product = self.graph.multiply(*product, id);
        }
        self.graph.multiply(constant_product, varying_product)
    }

    /// Appends the factors of a node to `factors`: for a product that depends on predictors, those of both operands,
    /// else the node itself.
    fn split_product(&mut self, id: NodeId, factors: &mut Vec<NodeId>) {
        match self.graph.node(id) {
            Node::Multiply(a, b)
                if factors.len() < MAX_REARRANGED_FACTORS && self.is_varying(id) =>
            {
                self.split_product(a, factors);
                self.split_product(b, factors);
            }
            Node::Negate(a) if self.is_varying(id) => {
                factors.push(self.graph.number(-1.0));
                self.split_product(a, factors);
            }
            _ => factors.push(id),
        }
    }
}
