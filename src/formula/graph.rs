//! Graph of expressions, in which equal expressions share one node. Its constructors simplify.
//!
//! Nodes refer to earlier ones only, so that one pass in their order evaluates, differentiates or prints them all,
//! however deeply a formula is nested.

use std::collections::HashMap;
use std::f64::consts::{PI, SQRT_2};

use super::function::{BinaryFunction, UnaryFunction, integer_power};
use crate::math::faddeeva::RE;

/// Index of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub usize);

/// Operation of a node, with its operands.
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
    Call(UnaryFunction, NodeId),
    CallBinary(BinaryFunction, NodeId, NodeId),
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
            | Node::CallBinary(_, a, b) => (Some(a), Some(b)),
        };
        a.into_iter().chain(b)
    }

    /// Returns whether the operation is a comparison, whose value is 1 or 0.
    pub fn is_comparison(self) -> bool {
        matches!(
            self,
            Node::CallBinary(
                BinaryFunction::Less | BinaryFunction::LessEqual | BinaryFunction::Equal,
                ..
            )
        )
    }

    /// Returns the operands at certain values of which the operation jumps, if it does: for a comparison both.
    fn jumping_operands(self) -> impl Iterator<Item = NodeId> {
        let (a, b) = match self {
            Node::Call(UnaryFunction::Sign, a) | Node::CallBinary(BinaryFunction::Gate, a, _) => {
                (Some(a), None)
            }
            Node::CallBinary(_, a, b) if self.is_comparison() => (Some(a), Some(b)),
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
            // The caller fills in the values of leaves.
            Node::Predictor(_) | Node::Parameter(_) => a,
            Node::Negate(_) => -a,
            Node::Add(..) => a + b,
            Node::Subtract(..) => a - b,
            Node::Multiply(..) => a * b,
            Node::Divide(..) => a / b,
            Node::Power(_, n) => integer_power(a, n),
            Node::Call(function, _) => function.value(a),
            Node::CallBinary(function, ..) => function.value(a, b),
        }
    }
}

/// Maximum integer exponent of a power that is computed by products.
const MAX_PRODUCT_EXPONENT: f64 = 64.0;

/// All nodes, in the order in which they can be evaluated.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
    /// Index of each node, by its operation.
    ids: HashMap<Node, NodeId>,
    /// Arguments x, s and γ of the nodes that are Voigt functions, whose derivatives have a form of their own.
    voigts: HashMap<NodeId, [NodeId; 3]>,
}

impl Graph {
    /// Returns the operation of a node.
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

    /// Returns for each node whether it is one of `outputs` or one of them depends on it.
    pub fn find_needed(&self, outputs: &[NodeId]) -> Vec<bool> {
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
    pub fn find_varying(&self) -> Vec<bool> {
        let mut varies = vec![false; self.nodes.len()];
        for (k, node) in self.nodes.iter().enumerate() {
            varies[k] =
                matches!(node, Node::Predictor(_)) || node.operands().any(|id| varies[id.0]);
        }
        varies
    }

    /// Returns whether an operation that `output` depends on jumps, as comparisons do.
    pub fn has_jumps(&self, output: NodeId) -> bool {
        let needed = self.find_needed(&[output]);
        self.nodes
            .iter()
            .zip(needed)
            .any(|(node, needed)| needed && node.jumping_operands().next().is_some())
    }

    /// Returns the indices of parameters in which the value is jointly linear, given its derivatives `slopes`. Earlier
    /// parameters are preferred; those that decide where the value jumps are not linear. There may be at most 64
    /// parameters.
    pub fn find_linear_parameters(&self, slopes: &[NodeId]) -> Vec<usize> {
        // 1. Find the parameters on which each node depends, as one bit per parameter.
        let mut dependencies: Vec<u64> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let parameter_bit = if let Node::Parameter(p) = node {
                1 << p
            } else {
                0
            };
            let bits = node
                .operands()
                .fold(parameter_bit, |bits, id| bits | dependencies[id.0]);
            dependencies.push(bits);
        }
        let deciding_jumps = self
            .nodes
            .iter()
            .flat_map(|node| node.jumping_operands())
            .fold(0, |bits, id| bits | dependencies[id.0]);
        // 2. Collect parameters of which no slope depends on any of them. A slope of 0 says nothing.
        let depends_on =
            |slope: NodeId, p: usize| (dependencies[slope.0] | deciding_jumps) >> p & 1 == 1;
        let mut linear: Vec<usize> = Vec::new();
        for (p, &slope) in slopes.iter().enumerate() {
            let is_separate = |q: &usize| !depends_on(slope, *q) && !depends_on(slopes[*q], p);
            if self.constant(slope) != Some(0.0)
                && !depends_on(slope, p)
                && linear.iter().all(is_separate)
            {
                linear.push(p);
            }
        }
        linear
    }

    /// Returns the node of a number, added to the graph if it is new.
    pub fn number(&mut self, value: f64) -> NodeId {
        // −0 and 0 share one node.
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
            _ => self.fold_constants(Node::Negate(a)),
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
            _ => self.fold_constants(Node::Add(a.min(b), a.max(b))),
        }
    }

    /// Returns the node of a − b, simplified where possible; it is added if it is new.
    pub fn subtract(&mut self, a: NodeId, b: NodeId) -> NodeId {
        match (self.constant(a), self.constant(b), self.node(b)) {
            (_, Some(0.0), _) => a,
            (Some(0.0), ..) => self.negate(b),
            (.., Node::Negate(inner)) => self.add(a, inner),
            _ => self.fold_constants(Node::Subtract(a, b)),
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
            _ if a == b => self.fold_constants(Node::Power(a, 2)),
            _ => self.fold_constants(Node::Multiply(a.min(b), a.max(b))),
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
            _ => self.fold_constants(Node::Divide(a, b)),
        }
    }

    /// Returns the node of aⁿ for an integer n, added if it is new: evaluation forms the power by products.
    pub fn integer_power(&mut self, a: NodeId, n: i32) -> NodeId {
        match n {
            0 => self.number(1.0),
            1 => a,
            _ => self.fold_constants(Node::Power(a, n)),
        }
    }

    /// Returns the node of a^b, computed by products for small integer b and by square roots for ±½; it is added if it
    /// is new.
    pub fn power(&mut self, a: NodeId, b: NodeId) -> NodeId {
        match self.constant(b) {
            Some(n) if n.fract() == 0.0 && n.abs() <= MAX_PRODUCT_EXPONENT => {
                self.integer_power(a, n as i32)
            }
            Some(0.5) => self.call(UnaryFunction::Sqrt, a),
            Some(-0.5) => {
                let one = self.number(1.0);
                let root = self.call(UnaryFunction::Sqrt, a);
                self.divide(one, root)
            }
            _ => self.fold_constants(Node::CallBinary(BinaryFunction::Pow, a, b)),
        }
    }

    /// Returns the node of `function` of a, or of its value if a is a number; it is added if it is new.
    pub fn call(&mut self, function: UnaryFunction, a: NodeId) -> NodeId {
        self.fold_constants(Node::Call(function, a))
    }

    /// Returns the node of the function of a and b, simplified where possible; it is added if it is
    /// new.
    pub fn call_binary(&mut self, function: BinaryFunction, a: NodeId, b: NodeId) -> NodeId {
        match function {
            BinaryFunction::Pow => self.power(a, b),
            BinaryFunction::Gate if self.constant(b) == Some(0.0) => b,
            BinaryFunction::Gate if self.constant(a).is_some_and(|a| a != 0.0) => b,
            BinaryFunction::Gate if self.constant(a) == Some(0.0) => a,
            _ => self.fold_constants(Node::CallBinary(function, a, b)),
        }
    }

    /// Returns the node that is 1 where a is 0, else 0: the negation of a condition.
    pub fn is_zero(&mut self, a: NodeId) -> NodeId {
        let zero = self.number(0.0);
        self.call_binary(BinaryFunction::Equal, a, zero)
    }

    /// Returns the node that is 1 where a is not 0, else 0: a itself if it is a comparison.
    fn normalise_condition(&mut self, a: NodeId) -> NodeId {
        if self.node(a).is_comparison() {
            return a;
        }
        let is_zero = self.is_zero(a);
        self.is_zero(is_zero)
    }

    /// Returns the node that is 1 where at least `min_count` of the two conditions a and b hold, else 0. It is a
    /// comparison, too.
    pub fn require_conditions(&mut self, min_count: u8, a: NodeId, b: NodeId) -> NodeId {
        let a = self.normalise_condition(a);
        let b = self.normalise_condition(b);
        let threshold = self.number(f64::from(min_count) - 0.5);
        let count = self.add(a, b);
        self.call_binary(BinaryFunction::Less, threshold, count)
    }

    /// Returns the node of a where `condition` is not 0, else of b.
    pub fn select(&mut self, condition: NodeId, a: NodeId, b: NodeId) -> NodeId {
        let a_or_zero = self.call_binary(BinaryFunction::Gate, condition, a);
        let opposite = self.is_zero(condition);
        let b_or_zero = self.call_binary(BinaryFunction::Gate, opposite, b);
        self.add(a_or_zero, b_or_zero)
    }

    /// Returns the node of 0 where x < 0, 1 where x > 0, `at_zero` where x is 0, and NaN where it is NaN.
    pub fn heaviside(&mut self, x: NodeId, at_zero: NodeId) -> NodeId {
        let half = self.number(0.5);
        let sign = self.call(UnaryFunction::Sign, x);
        let is_zero = self.is_zero(x);
        let half_sign = self.multiply(half, sign);
        let step = self.add(half, half_sign);
        let value_off_zero = self.call_binary(BinaryFunction::Gate, x, step);
        let value_at_zero = self.call_binary(BinaryFunction::Gate, is_zero, at_zero);
        self.add(value_off_zero, value_at_zero)
    }

    /// Returns the node of |a| with the sign of b, which is positive where b is 0.
    pub fn copy_sign(&mut self, a: NodeId, b: NodeId) -> NodeId {
        let zero = self.number(0.0);
        let one = self.number(1.0);
        let two = self.number(2.0);
        let size = self.call(UnaryFunction::Abs, a);
        let is_negative = self.call_binary(BinaryFunction::Less, b, zero);
        let twice = self.multiply(two, is_negative);
        let sign = self.subtract(one, twice);
        self.multiply(size, sign)
    }

    /// Returns the node of the Voigt function, Re w((x + iγ)/s) / (√π s) with s = √2 |σ|, where w is the Faddeeva
    /// function; at σ = 0 the Lorentz function.
    pub fn voigt(&mut self, x: NodeId, sigma: NodeId, gamma: NodeId) -> NodeId {
        // 1. Bound the width from below: 2⁻³⁰ of |x| or γ acts like 0, but keeps the arguments finite.
        let min_relative_width = self.number(1.0 / 1_073_741_824.0);
        let sqrt_2 = self.number(SQRT_2);
        let sqrt_pi = self.number(PI.sqrt());
        let sigma_size = self.call(UnaryFunction::Abs, sigma);
        let x_size = self.call(UnaryFunction::Abs, x);
        let gamma_size = self.call(UnaryFunction::Abs, gamma);
        let larger = self.call_binary(BinaryFunction::Max, x_size, gamma_size);
        let min_width = self.multiply(min_relative_width, larger);
        let width = self.call_binary(BinaryFunction::Max, sigma_size, min_width);
        // 2. Compute the function.
        let s = self.multiply(sqrt_2, width);
        let real = self.divide(x, s);
        let imaginary = self.divide(gamma, s);
        let w = self.call_binary(BinaryFunction::Faddeeva(RE), real, imaginary);
        let norm = self.multiply(sqrt_pi, s);
        let value = self.divide(w, norm);
        self.mark_voigt(value, [x, s, gamma]);
        value
    }

    /// Records that a node is the Voigt function Re w((x + iγ)/s) / (√π s) of `arguments` x, s and γ.
    pub fn mark_voigt(&mut self, value: NodeId, arguments: [NodeId; 3]) {
        self.voigts.insert(value, arguments);
    }

    /// Returns the arguments x, s and γ of a node that is a Voigt function; `None` for other nodes.
    pub fn voigt_arguments(&self, id: NodeId) -> Option<[NodeId; 3]> {
        self.voigts.get(&id).copied()
    }

    /// Returns the node of an operation, or that of its value if all operands are numbers and the value is finite. A
    /// value that is not finite is left to the evaluation.
    fn fold_constants(&mut self, node: Node) -> NodeId {
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
        let new_id = NodeId(self.nodes.len());
        let id = *self.ids.entry(node).or_insert(new_id);
        if id == new_id {
            self.nodes.push(node);
        }
        id
    }
}
