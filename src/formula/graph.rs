//! Expressions as a graph in which equal ones are one node. Its constructors simplify.
//!
//! Nodes refer to earlier ones only, so that one pass in their order evaluates, differentiates or prints them all,
//! however deep a formula is.

use std::collections::HashMap;
use std::f64::consts::{PI, SQRT_2};

use super::function::{Function, Pair, integer_power};
use crate::math::faddeeva::RE;

/// Index of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub usize);

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// A number, by its bits.
    Number(u64),
    Predictor(usize),
    Parameter(usize),
    Negate(NodeId),
    Add(NodeId, NodeId),
    Subtract(NodeId, NodeId),
    Multiply(NodeId, NodeId),
    Divide(NodeId, NodeId),
    /// An integer power, as products.
    Power(NodeId, i32),
    Call(Function, NodeId),
    CallPair(Pair, NodeId, NodeId),
}

impl Node {
    /// Returns the nodes whose values the operation reads: none, one or two.
    pub fn operands(self) -> impl Iterator<Item = NodeId> {
        let (a, b) = match self {
            Node::Number(_) | Node::Predictor(_) | Node::Parameter(_) => (None, None),
            Node::Negate(a) | Node::Power(a, _) | Node::Call(_, a) => (Some(a), None),
            Node::Add(a, b)
            | Node::Subtract(a, b)
            | Node::Multiply(a, b)
            | Node::Divide(a, b)
            | Node::CallPair(_, a, b) => (Some(a), Some(b)),
        };
        a.into_iter().chain(b)
    }

    /// Returns whether the operation is a comparison, whose value is 1 or 0.
    pub fn is_comparison(self) -> bool {
        matches!(
            self,
            Node::CallPair(Pair::Less | Pair::LessEqual | Pair::Equal, ..)
        )
    }

    /// Returns the operand at one or some of whose values the operation jumps, if it does; of a comparison, either.
    fn jumps_by(self) -> impl Iterator<Item = NodeId> {
        let (a, b) = match self {
            Node::Call(Function::Sign, a) | Node::CallPair(Pair::Gate, a, _) => (Some(a), None),
            Node::CallPair(_, a, b) if self.is_comparison() => (Some(a), Some(b)),
            _ => (None, None),
        };
        a.into_iter().chain(b)
    }

    /// Computes the operation's value in f64 from those of its operands, `a` and `b`; a leaf returns `a`, or its
    /// number.
    #[inline(always)]
    pub fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            Node::Number(bits) => f64::from_bits(bits),
            // the caller fills in leaves
            Node::Predictor(_) | Node::Parameter(_) => a,
            Node::Negate(_) => -a,
            Node::Add(..) => a + b,
            Node::Subtract(..) => a - b,
            Node::Multiply(..) => a * b,
            Node::Divide(..) => a / b,
            Node::Power(_, n) => integer_power(a, n),
            Node::Call(function, _) => function.value(a),
            Node::CallPair(pair, ..) => pair.value(a, b),
        }
    }
}

/// Largest exponent of a power that is computed by products.
const LARGEST_PRODUCT: f64 = 64.0;

/// All nodes, in the order in which they can be evaluated.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
    known: HashMap<Node, NodeId>,
    /// Arguments x, s and γ of the nodes that are Voigt functions, whose derivatives have a form of their own.
    voigts: HashMap<NodeId, [NodeId; 3]>,
}

impl Graph {
    /// Returns the operation, with its operands, that this node stands for.
    pub fn node(&self, id: NodeId) -> Node {
        self.nodes[id.0]
    }

    /// Returns the value of a node that is a number; `None` for any other.
    pub fn constant(&self, id: NodeId) -> Option<f64> {
        match self.node(id) {
            Node::Number(bits) => Some(f64::from_bits(bits)),
            _ => None,
        }
    }

    /// Returns for each node whether it is one of `outputs` or they depend on it.
    pub fn needed(&self, outputs: &[NodeId]) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len()];
        outputs.iter().for_each(|id| needed[id.0] = true);
        for k in (0..self.nodes.len()).rev() {
            if needed[k] {
                self.nodes[k].operands().for_each(|id| needed[id.0] = true);
            }
        }
        needed
    }

    /// Returns for each node whether it depends on a predictor, so that it differs from point to point.
    pub fn varying(&self) -> Vec<bool> {
        let mut varies = vec![false; self.nodes.len()];
        for (k, node) in self.nodes.iter().enumerate() {
            varies[k] =
                matches!(node, Node::Predictor(_)) || node.operands().any(|id| varies[id.0]);
        }
        varies
    }

    /// Returns whether an operation that `output` depends on jumps, as comparisons do.
    pub fn has_jumps(&self, output: NodeId) -> bool {
        let needed = self.needed(&[output]);
        self.nodes
            .iter()
            .zip(needed)
            .any(|(node, needed)| needed && node.jumps_by().next().is_some())
    }

    /// Returns the indices of parameters in which the value is jointly linear, given its derivatives `slopes`.
    /// Parameters that come first are preferred; those that decide where the value jumps are not linear. There may be
    /// at most 64 parameters.
    pub fn linear(&self, slopes: &[NodeId]) -> Vec<usize> {
        // one bit per parameter
        let mut reads: Vec<u64> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let own = if let Node::Parameter(p) = node {
                1 << p
            } else {
                0
            };
            reads.push(node.operands().fold(own, |all, id| all | reads[id.0]));
        }
        let deciding = self
            .nodes
            .iter()
            .flat_map(|node| node.jumps_by())
            .fold(0, |all, id| all | reads[id.0]);
        let has = |slope: NodeId, p: usize| (reads[slope.0] | deciding) >> p & 1 == 1;
        let mut found: Vec<usize> = Vec::new();
        for (p, &slope) in slopes.iter().enumerate() {
            let apart = |q: &usize| !has(slope, *q) && !has(slopes[*q], p);
            // a slope of 0 says nothing
            if self.constant(slope) != Some(0.0) && !has(slope, p) && found.iter().all(apart) {
                found.push(p);
            }
        }
        found
    }

    /// Returns the node of a number, added to the graph if it is new.
    pub fn number(&mut self, value: f64) -> NodeId {
        // −0 and 0 are one number here
        self.intern(Node::Number(if value == 0.0 { 0 } else { value.to_bits() }))
    }

    /// Returns the node of predictor number `index`, added to the graph if it is new.
    pub fn predictor(&mut self, index: usize) -> NodeId {
        self.intern(Node::Predictor(index))
    }

    /// Returns the node of parameter number `index`, added to the graph if it is new.
    pub fn parameter(&mut self, index: usize) -> NodeId {
        self.intern(Node::Parameter(index))
    }

    /// Returns the node of −a, simplified where possible; it is added if it is new.
    pub fn negate(&mut self, a: NodeId) -> NodeId {
        match self.node(a) {
            Node::Negate(inner) => inner,
            Node::Subtract(left, right) => self.subtract(right, left),
            _ => self.fold(Node::Negate(a)),
        }
    }

    /// Returns the node of a + b, simplified where possible; it is added if it is new.
    pub fn add(&mut self, a: NodeId, b: NodeId) -> NodeId {
        match (
            self.constant(a),
            self.constant(b),
            self.node(a),
            self.node(b),
        ) {
            (Some(0.0), ..) => b,
            (_, Some(0.0), ..) => a,
            (.., Node::Negate(inner)) => self.subtract(a, inner),
            (.., Node::Negate(inner), _) => self.subtract(b, inner),
            _ => self.fold(Node::Add(a.min(b), a.max(b))),
        }
    }

    /// Returns the node of a − b, simplified where possible; it is added if it is new.
    pub fn subtract(&mut self, a: NodeId, b: NodeId) -> NodeId {
        match (self.constant(a), self.constant(b), self.node(b)) {
            (_, Some(0.0), _) => a,
            (Some(0.0), ..) => self.negate(b),
            (.., Node::Negate(inner)) => self.add(a, inner),
            _ => self.fold(Node::Subtract(a, b)),
        }
    }

    /// Returns the node of a · b, simplified where possible; it is added if it is new.
    pub fn multiply(&mut self, a: NodeId, b: NodeId) -> NodeId {
        match (
            self.constant(a),
            self.constant(b),
            self.node(a),
            self.node(b),
        ) {
            (Some(0.0), ..) | (_, Some(1.0), ..) => a,
            (_, Some(0.0), ..) | (Some(1.0), ..) => b,
            (Some(-1.0), ..) => self.negate(b),
            (_, Some(-1.0), ..) => self.negate(a),
            (.., Node::Negate(inner), _) => {
                let product = self.multiply(inner, b);
                self.negate(product)
            }
            (.., Node::Negate(inner)) => {
                let product = self.multiply(a, inner);
                self.negate(product)
            }
            _ if a == b => self.fold(Node::Power(a, 2)),
            _ => self.fold(Node::Multiply(a.min(b), a.max(b))),
        }
    }

    /// Returns the node of a / b, simplified where possible; it is added if it is new.
    pub fn divide(&mut self, a: NodeId, b: NodeId) -> NodeId {
        match (
            self.constant(a),
            self.constant(b),
            self.node(a),
            self.node(b),
        ) {
            (_, Some(1.0), ..) => a,
            (Some(0.0), None, ..) => a,
            (.., Node::Negate(inner), _) => {
                let quotient = self.divide(inner, b);
                self.negate(quotient)
            }
            (.., Node::Negate(inner)) => {
                let quotient = self.divide(a, inner);
                self.negate(quotient)
            }
            _ => self.fold(Node::Divide(a, b)),
        }
    }

    /// Returns the node of aⁿ for an integer n, added if it is new: evaluation forms the power by products.
    pub fn integer_power(&mut self, a: NodeId, n: i32) -> NodeId {
        match n {
            0 => self.number(1.0),
            1 => a,
            _ => self.fold(Node::Power(a, n)),
        }
    }

    /// Returns the node of a^b, computed by products for small integer b and by square roots for ±½; it is added if it
    /// is new.
    pub fn power(&mut self, a: NodeId, b: NodeId) -> NodeId {
        match self.constant(b) {
            Some(n) if n.fract() == 0.0 && n.abs() <= LARGEST_PRODUCT => {
                self.integer_power(a, n as i32)
            }
            Some(0.5) => self.call(Function::Sqrt, a),
            Some(-0.5) => {
                let (one, root) = (self.number(1.0), self.call(Function::Sqrt, a));
                self.divide(one, root)
            }
            _ => self.fold(Node::CallPair(Pair::Pow, a, b)),
        }
    }

    /// Returns the node of `function` of a, or of its value if a is a number; it is added if it is new.
    pub fn call(&mut self, function: Function, a: NodeId) -> NodeId {
        self.fold(Node::Call(function, a))
    }

    /// Returns the node of the two-argument function `pair` of a and b, simplified where possible; it is added if it is
    /// new.
    pub fn pair(&mut self, pair: Pair, a: NodeId, b: NodeId) -> NodeId {
        match pair {
            Pair::Pow => self.power(a, b),
            Pair::Gate if self.constant(b) == Some(0.0) => b,
            Pair::Gate if self.constant(a).is_some_and(|a| a != 0.0) => b,
            Pair::Gate if self.constant(a) == Some(0.0) => a,
            _ => self.fold(Node::CallPair(pair, a, b)),
        }
    }

    /// Returns the node of 1 where a is 0, else 0: the negation of a condition.
    pub fn is_zero(&mut self, a: NodeId) -> NodeId {
        let zero = self.number(0.0);
        self.pair(Pair::Equal, a, zero)
    }

    /// Returns the node of 1 where a is not 0, else 0; that of a itself if it is a comparison.
    fn truth(&mut self, a: NodeId) -> NodeId {
        if self.node(a).is_comparison() {
            return a;
        }
        let is_zero = self.is_zero(a);
        self.is_zero(is_zero)
    }

    /// Returns the node of 1 where at least `least` of the two conditions a and b hold, else 0. It is a comparison,
    /// too.
    pub fn at_least(&mut self, least: u8, a: NodeId, b: NodeId) -> NodeId {
        let (a, b) = (self.truth(a), self.truth(b));
        let (between, holding) = (self.number(f64::from(least) - 0.5), self.add(a, b));
        self.pair(Pair::Less, between, holding)
    }

    /// Returns the node of a where `condition` is not 0, else of b.
    pub fn select(&mut self, condition: NodeId, a: NodeId, b: NodeId) -> NodeId {
        let (first, otherwise) = (self.pair(Pair::Gate, condition, a), self.is_zero(condition));
        let second = self.pair(Pair::Gate, otherwise, b);
        self.add(first, second)
    }

    /// Returns the node of 0 where x < 0, 1 where x > 0, `at_zero` where x is 0, and NaN where it is NaN.
    pub fn heaviside(&mut self, x: NodeId, at_zero: NodeId) -> NodeId {
        let (half, sign, is_zero) = (
            self.number(0.5),
            self.call(Function::Sign, x),
            self.is_zero(x),
        );
        let half_sign = self.multiply(half, sign);
        let step = self.add(half, half_sign);
        let (beside, at) = (
            self.pair(Pair::Gate, x, step),
            self.pair(Pair::Gate, is_zero, at_zero),
        );
        self.add(beside, at)
    }

    /// Returns the node of |a| with the sign of b, which is positive where b is 0.
    pub fn copy_sign(&mut self, a: NodeId, b: NodeId) -> NodeId {
        let (zero, one, two) = (self.number(0.0), self.number(1.0), self.number(2.0));
        let (size, is_negative) = (self.call(Function::Abs, a), self.pair(Pair::Less, b, zero));
        let twice = self.multiply(two, is_negative);
        let sign = self.subtract(one, twice);
        self.multiply(size, sign)
    }

    /// Returns the node of the Voigt function, Re w((x + iγ)/s) / (√π s) with s = √2 |σ|, where w is the Faddeeva
    /// function; at σ = 0 the Lorentz function.
    pub fn voigt(&mut self, x: NodeId, sigma: NodeId, gamma: NodeId) -> NodeId {
        // a width σ of 2⁻³⁰ of |x| or γ is as good as none, and keeps the arguments finite
        let (share, scale, root) = (
            self.number(1.0 / 1_073_741_824.0),
            self.number(SQRT_2),
            self.number(PI.sqrt()),
        );
        let (sigma, x_size, gamma_size) = (
            self.call(Function::Abs, sigma),
            self.call(Function::Abs, x),
            self.call(Function::Abs, gamma),
        );
        let distance = self.pair(Pair::Max, x_size, gamma_size);
        let least = self.multiply(share, distance);
        let width = self.pair(Pair::Max, sigma, least);
        let s = self.multiply(scale, width);
        let (real, imaginary) = (self.divide(x, s), self.divide(gamma, s));
        let (w, norm) = (
            self.pair(Pair::Faddeeva(RE), real, imaginary),
            self.multiply(root, s),
        );
        let value = self.divide(w, norm);
        self.mark_voigt(value, [x, s, gamma]);
        value
    }

    /// Notes that a node is the Voigt function Re w((x + iγ)/s) / (√π s) of `arguments` x, s and γ.
    pub fn mark_voigt(&mut self, value: NodeId, arguments: [NodeId; 3]) {
        self.voigts.insert(value, arguments);
    }

    /// Returns the arguments x, s and γ of a node that is a Voigt function; `None` for other nodes.
    pub fn voigt_arguments(&self, id: NodeId) -> Option<[NodeId; 3]> {
        self.voigts.get(&id).copied()
    }

    /// Returns the node of an operation, or that of its value if all operands are numbers and the value is finite.
    /// Infinities are left to the evaluation.
    fn fold(&mut self, node: Node) -> NodeId {
        let values: Option<Vec<f64>> = node.operands().map(|id| self.constant(id)).collect();
        if let Some(values) = values {
            let value = node.apply(values[0], values.get(1).copied().unwrap_or(0.0));
            if value.is_finite() {
                return self.number(value);
            }
        }
        self.intern(node)
    }

    /// Returns the node of an operation: the existing one if the graph has it, else a new one.
    fn intern(&mut self, node: Node) -> NodeId {
        let next = NodeId(self.nodes.len());
        let id = *self.known.entry(node).or_insert(next);
        if id == next {
            self.nodes.push(node);
        }
        id
    }
}
