//! Operations that lanes do in one go: a product with the sum or the product that it goes into, a predictor with what
//! is taken from it.

use super::graph::{Graph, Node, NodeId};

/// Operation of a step.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    Node(Node),
    /// a b + c
    MultiplyAdd(NodeId, NodeId, NodeId),
    /// a b c
    MultiplyMultiply(NodeId, NodeId, NodeId),
    /// A predictor less a.
    Beyond(usize, NodeId),
}

impl Action {
    /// The nodes that it reads.
    pub fn operands(self) -> impl Iterator<Item = NodeId> {
        let (node, fused) = match self {
            Action::Node(node) => (Some(node), [None; 3]),
            Action::MultiplyAdd(a, b, c) | Action::MultiplyMultiply(a, b, c) => (None, [Some(a), Some(b), Some(c)]),
            Action::Beyond(_, a) => (None, [Some(a), None, None]),
        };
        node.into_iter().flat_map(Node::operands).chain(fused.into_iter().flatten())
    }
}

/// Returns the operation that makes each node, and whether each node is then needed. Nodes that depend on no predictor
/// stay as they are.
pub fn fused(graph: &Graph, outputs: &[NodeId], varies: &[bool]) -> (Vec<Action>, Vec<bool>) {
    let mut readers = vec![0; graph.nodes.len()];
    let needed = graph.needed(outputs);
    let nodes = graph.nodes.iter().zip(&needed).filter(|(_, needed)| **needed);
    nodes.flat_map(|(node, _)| node.operands()).chain(outputs.iter().copied()).for_each(|id| readers[id.0] += 1);
    // a product that others read, too, is at hand
    let product = |id: NodeId| match graph.node(id) {
        _ if readers[id.0] > 1 || !varies[id.0] => None,
        Node::Multiply(a, b) => Some((a, b)),
        Node::Power(a, 2) => Some((a, a)),
        _ => None,
    };
    let action = |(node, varies): (&Node, &bool)| match *node {
        _ if !varies => Action::Node(*node),
        Node::Add(a, b) => match (product(a), product(b)) {
            (_, Some((x, y))) => Action::MultiplyAdd(x, y, a),
            (Some((x, y)), None) => Action::MultiplyAdd(x, y, b),
            (None, None) => Action::Node(*node),
        },
        Node::Multiply(a, b) => match (product(a), product(b)) {
            (_, Some((x, y))) => Action::MultiplyMultiply(x, y, a),
            (Some((x, y)), None) => Action::MultiplyMultiply(x, y, b),
            (None, None) => Action::Node(*node),
        },
        Node::Subtract(a, b) => match graph.node(a) {
            Node::Predictor(d) => Action::Beyond(d, b),
            _ => Action::Node(*node),
        },
        node => Action::Node(node),
    };
    let actions: Vec<Action> = graph.nodes.iter().zip(varies).map(action).collect();
    let mut needed = vec![false; actions.len()];
    outputs.iter().for_each(|id| needed[id.0] = true);
    for k in (0..actions.len()).rev() {
        if needed[k] {
            actions[k].operands().for_each(|id| needed[id.0] = true);
        }
    }
    (actions, needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_that_others_read_stay() {
        let mut graph = Graph::default();
        let (x, a, b) = (graph.predictor(0), graph.parameter(0), graph.parameter(1));
        let product = graph.multiply(a, x);
        let sum = graph.add(product, b);
        let count = |outputs: &[NodeId]| {
            let (actions, needed) = fused(&graph, outputs, &graph.varying());
            assert!(needed[sum.0] && needed[x.0]);
            (matches!(actions[sum.0], Action::MultiplyAdd(..)), needed[product.0])
        };
        assert_eq!((count(&[sum]), count(&[sum, product])), ((true, false), (false, true)));
    }
}
