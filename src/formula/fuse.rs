//! Fused operations for lanes: a product with the sum or the product that reads it, a predictor with the number that is
//! subtracted from it.

use super::graph::{Graph, Node, NodeId};

/// Operation of a step of a [`LaneTape`](super::lanes::LaneTape).
#[derive(Clone, Copy, Debug)]
pub enum LaneOperation {
    Node(Node),
    /// a b + c
    MultiplyAdd(NodeId, NodeId, NodeId),
    /// a b c
    MultiplyMultiply(NodeId, NodeId, NodeId),
    /// A predictor − a.
    Beyond(usize, NodeId),
}

impl LaneOperation {
    /// Returns the nodes whose values the operation reads, at most three.
    pub fn operands(self) -> impl Iterator<Item = NodeId> {
        let (node, fused_operands) = match self {
            LaneOperation::Node(node) => (Some(node), [None; 3]),
            LaneOperation::MultiplyAdd(a, b, c) | LaneOperation::MultiplyMultiply(a, b, c) => {
                (None, [Some(a), Some(b), Some(c)])
            }
            LaneOperation::Beyond(_, a) => (None, [Some(a), None, None]),
        };
        node.into_iter()
            .flat_map(Node::operands)
            .chain(fused_operands.into_iter().flatten())
    }
}

/// Merges each product that only one operation reads into that operation. Returns the operation of each node, and
/// whether it is needed for `outputs`. Nodes that depend on no predictor stay as they are.
pub fn fuse_products(
    graph: &Graph,
    outputs: &[NodeId],
    varies: &[bool],
) -> (Vec<LaneOperation>, Vec<bool>) {
    // 1. Count the readers of each node.
    let mut readers = vec![0; graph.nodes.len()];
    let needed_nodes = graph.find_needed(outputs);
    for (node, is_needed) in graph.nodes.iter().zip(needed_nodes) {
        if is_needed {
            node.operands().for_each(|id| readers[id.0] += 1);
        }
    }
    outputs.iter().for_each(|id| readers[id.0] += 1);
    // 2. Choose the operation of each node.
    let fusion = Fusion {
        graph,
        varies,
        readers,
    };
    let operations: Vec<LaneOperation> = (0..graph.nodes.len())
        .map(|k| fusion.choose_operation(k))
        .collect();
    // 3. Find the operations that are still needed, from the outputs back to the leaves.
    let mut needed = vec![false; operations.len()];
    outputs.iter().for_each(|id| needed[id.0] = true);
    for k in (0..operations.len()).rev() {
        if needed[k] {
            operations[k].operands().for_each(|id| needed[id.0] = true);
        }
    }
    (operations, needed)
}

/// Returns each node's own operation, and whether it is needed for `outputs`.
pub fn keep_operations(graph: &Graph, outputs: &[NodeId]) -> (Vec<LaneOperation>, Vec<bool>) {
    (
        graph
            .nodes
            .iter()
            .map(|node| LaneOperation::Node(*node))
            .collect(),
        graph.find_needed(outputs),
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
    /// Chooses the operation that computes node `k`: its own, or one that is fused with a product or predictor that it
    /// reads.
    fn choose_operation(&self, k: usize) -> LaneOperation {
        let node = self.graph.nodes[k];
        match node {
            _ if !self.varies[k] => LaneOperation::Node(node),
            Node::Add(a, b) => match (self.fusible_factors(a), self.fusible_factors(b)) {
                (_, Some((x, y))) => LaneOperation::MultiplyAdd(x, y, a),
                (Some((x, y)), None) => LaneOperation::MultiplyAdd(x, y, b),
                (None, None) => LaneOperation::Node(node),
            },
            Node::Multiply(a, b) => match (self.fusible_factors(a), self.fusible_factors(b)) {
                (_, Some((x, y))) => LaneOperation::MultiplyMultiply(x, y, a),
                (Some((x, y)), None) => LaneOperation::MultiplyMultiply(x, y, b),
                (None, None) => LaneOperation::Node(node),
            },
            Node::Subtract(a, b) => match self.graph.node(a) {
                Node::Predictor(d) => LaneOperation::Beyond(d, b),
                _ => LaneOperation::Node(node),
            },
            node => LaneOperation::Node(node),
        }
    }

    /// Returns the two factors of a product that depends on predictors and is read only once; else `None`. A product
    /// with several readers is computed anyway.
    fn fusible_factors(&self, id: NodeId) -> Option<(NodeId, NodeId)> {
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
    fn products_with_several_readers_are_not_fused() {
        let mut graph = Graph::default();
        let x = graph.predictor(0);
        let a = graph.parameter(0);
        let b = graph.parameter(1);
        let product = graph.multiply(a, x);
        let sum = graph.add(product, b);
        let fuse = |outputs: &[NodeId]| {
            let (operations, needed) = fuse_products(&graph, outputs, &graph.find_varying());
            assert!(needed[sum.0] && needed[x.0]);
            (
                matches!(operations[sum.0], LaneOperation::MultiplyAdd(..)),
                needed[product.0],
            )
        };
        assert_eq!(fuse(&[sum]), (true, false));
        assert_eq!(fuse(&[sum, product]), (false, true));
    }
}
