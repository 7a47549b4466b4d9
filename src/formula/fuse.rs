//! Fused operations for lanes: a product with the sum or the product that reads it, a predictor with the number that is
//! subtracted from it.

use super::graph::{Graph, Node, NodeId};

/// Operation of a step.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    Node(Node),
    /// a b + c
    MultiplyAdd(NodeId, NodeId, NodeId),
    /// a b c
    MultiplyMultiply(NodeId, NodeId, NodeId),
    /// A predictor − a.
    Beyond(usize, NodeId),
}

impl Action {
    /// Returns the nodes whose values the operation reads, at most three.
    pub fn operands(self) -> impl Iterator<Item = NodeId> {
        let (node, fused) = match self {
            Action::Node(node) => (Some(node), [None; 3]),
            Action::MultiplyAdd(a, b, c) | Action::MultiplyMultiply(a, b, c) => {
                (None, [Some(a), Some(b), Some(c)])
            }
            Action::Beyond(_, a) => (None, [Some(a), None, None]),
        };
        node.into_iter()
            .flat_map(Node::operands)
            .chain(fused.into_iter().flatten())
    }
}

/// Merges products into the operations that alone read them; returns each node's operation, and whether it is needed
/// for `outputs`. Nodes that depend on no predictor stay as they are.
pub fn fused(graph: &Graph, outputs: &[NodeId], varies: &[bool]) -> (Vec<Action>, Vec<bool>) {
    let mut readers = vec![0; graph.nodes.len()];
    let needed = graph.needed(outputs);
    let nodes = graph
        .nodes
        .iter()
        .zip(&needed)
        .filter(|(_, needed)| **needed);
    nodes
        .flat_map(|(node, _)| node.operands())
        .chain(outputs.iter().copied())
        .for_each(|id| readers[id.0] += 1);
    let fusion = Fusion {
        graph,
        varies,
        readers,
    };
    let actions: Vec<Action> = (0..graph.nodes.len()).map(|k| fusion.action(k)).collect();
    let mut needed = vec![false; actions.len()];
    outputs.iter().for_each(|id| needed[id.0] = true);
    for k in (0..actions.len()).rev() {
        if needed[k] {
            actions[k].operands().for_each(|id| needed[id.0] = true);
        }
    }
    (actions, needed)
}

/// Returns each node's own operation, and whether it is needed for `outputs`.
pub fn unfused(graph: &Graph, outputs: &[NodeId]) -> (Vec<Action>, Vec<bool>) {
    (
        graph.nodes.iter().map(|node| Action::Node(*node)).collect(),
        graph.needed(outputs),
    )
}

/// A graph whose operations are being fused.
struct Fusion<'a> {
    graph: &'a Graph,
    varies: &'a [bool],
    /// Number of nodes and outputs that read each node.
    readers: Vec<usize>,
}

impl Fusion<'_> {
    /// Chooses the operation that computes node `k`: fused with a product or predictor that it reads, or as it is.
    fn action(&self, k: usize) -> Action {
        let node = self.graph.nodes[k];
        match node {
            _ if !self.varies[k] => Action::Node(node),
            Node::Add(a, b) => match (self.factors(a), self.factors(b)) {
                (_, Some((x, y))) => Action::MultiplyAdd(x, y, a),
                (Some((x, y)), None) => Action::MultiplyAdd(x, y, b),
                (None, None) => Action::Node(node),
            },
            Node::Multiply(a, b) => match (self.factors(a), self.factors(b)) {
                (_, Some((x, y))) => Action::MultiplyMultiply(x, y, a),
                (Some((x, y)), None) => Action::MultiplyMultiply(x, y, b),
                (None, None) => Action::Node(node),
            },
            Node::Subtract(a, b) => match self.graph.node(a) {
                Node::Predictor(d) => Action::Beyond(d, b),
                _ => Action::Node(node),
            },
            node => Action::Node(node),
        }
    }

    /// Returns the two factors of a product that varies with the predictors and is read only once; else `None`. One
    /// that others read, too, is computed anyway.
    fn factors(&self, id: NodeId) -> Option<(NodeId, NodeId)> {
        match self.graph.node(id) {
            _ if self.readers[id.0] > 1 || !self.varies[id.0] => None,
            Node::Multiply(a, b) => Some((a, b)),
            Node::Power(a, 2) => Some((a, a)),
            _ => None,
        }
    }
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
            (
                matches!(actions[sum.0], Action::MultiplyAdd(..)),
                needed[product.0],
            )
        };
        assert_eq!(
            (count(&[sum]), count(&[sum, product])),
            ((true, false), (false, true))
        );
    }
}
