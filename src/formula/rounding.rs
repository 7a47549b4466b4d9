//! Bounds of the rounding error of a graph's value in f32: a running error analysis (Higham 2002, §3.3) as nodes of the
//! graph itself.

use std::collections::HashMap;

use super::derive::{add_binary_slope, add_function_slope};
use super::function::{BinaryFunction, UnaryFunction};
use super::graph::{Graph, Node, NodeId};

/// Roundings of a function's value: a few units in the last place.
const FUNCTION_ROUNDINGS: f64 = 8.0;
/// Roundings of the real and the imaginary part of the Faddeeva function in the upper half-plane. Below it they have
/// zeros, and f32 is not trusted there.
const FADDEEVA_ROUNDINGS: [f64; 2] = [16.0, 64.0];

/// Unit of the bounds: the unit roundoff of f32, 2⁻²⁴.
const ROUNDING_UNIT: f64 = 1.0 / 16_777_216.0;

/// Bound on the error of a node, in units of 2⁻²⁴, to first order.
#[derive(Clone, Copy)]
enum ErrorBound {
    Absolute(NodeId),
    /// Bound relative to the node's size. The relative bounds of products are mostly numbers.
    Relative(NodeId),
}

/// Adds nodes that bound the absolute rounding error of `value` computed in f32, to first order, and returns the last;
/// its unit is 2⁻²⁴. Parameters are exact. Predictors may be exact, else they are rounded.
pub fn add_rounding_bound(graph: &mut Graph, value: NodeId, predictors_are_exact: bool) -> NodeId {
    let mut analysis = ErrorAnalysis {
        graph,
        bounds: Vec::new(),
        predictors_are_exact,
        not_negative: Vec::new(),
        sizes: HashMap::new(),
    };
    // The operands of a node come before it, so that their bounds are known.
    for k in 0..=value.0 {
        let bound = analysis.bound_node(NodeId(k));
        analysis.bounds.push(bound);
    }
    analysis.absolute_bound(value)
}

/// Error analysis of a graph, with the bounds of its first nodes.
struct ErrorAnalysis<'a> {
    graph: &'a mut Graph,
    bounds: Vec<ErrorBound>,
    predictors_are_exact: bool,
    /// Cached results of [`is_not_negative`](Self::is_not_negative) for the first nodes.
    not_negative: Vec<bool>,
    /// Cached results of [`size`](Self::size).
    sizes: HashMap<NodeId, NodeId>,
}

impl ErrorAnalysis<'_> {
    /// Computes the error bound of a node from the bounds of its operands.
    fn bound_node(&mut self, node: NodeId) -> ErrorBound {
        match self.graph.node(node) {
            // 1. Leaves.
            Node::Parameter(_) => self.relative_number(0.0),
            Node::Number(bits) => {
                let x = f64::from_bits(bits);
                let is_exact = f64::from(x as f32) == x;
                self.relative_number(if is_exact { 0.0 } else { 1.0 })
            }
            Node::Predictor(_) => {
                self.relative_number(if self.predictors_are_exact { 0.0 } else { 1.0 })
            }
            // 2. Sums: where nothing cancels, relative bounds do, and where the operands are exact.
            Node::Negate(a) => self.bounds[a.0],
            Node::Add(a, b)
                if self.is_not_negative(a)
                    && self.is_not_negative(b)
                    && self.relative_numbers(a, b).is_some() =>
            {
                let (of_a, of_b) = self.relative_numbers(a, b).unwrap_or_default();
                self.relative_number(of_a.max(of_b) + 1.0)
            }
            Node::Add(a, b) | Node::Subtract(a, b)
                if self.relative_numbers(a, b) == Some((0.0, 0.0)) =>
            {
                self.relative_number(1.0)
            }
            Node::Add(a, b) | Node::Subtract(a, b) => {
                let from_a = self.absolute_bound(a);
                let from_b = self.absolute_bound(b);
                let propagated = self.graph.add(from_a, from_b);
                self.add_roundings(propagated, node, 1.0)
            }
            // 3. Products, quotients and powers: relative bounds add up.
            Node::Multiply(a, b) => match (self.bounds[a.0], self.bounds[b.0]) {
                (ErrorBound::Relative(of_a), ErrorBound::Relative(of_b)) => {
                    self.add_relative_bounds(of_a, of_b, 1.0)
                }
                _ => self.propagate_two([a, b], [b, a], node, 1.0),
            },
            // Lanes multiply by a reciprocal, which rounds once more.
            Node::Divide(a, b) => match (self.bounds[a.0], self.bounds[b.0]) {
                (ErrorBound::Relative(of_a), ErrorBound::Relative(of_b)) => {
                    self.add_relative_bounds(of_a, of_b, 2.0)
                }
                _ => {
                    let one = self.graph.number(1.0);
                    let by_a = self.graph.divide(one, b);
                    let by_b = self.graph.divide(node, b);
                    self.propagate_two([a, b], [by_a, by_b], node, 2.0)
                }
            },
            Node::Power(a, n) => {
                if let ErrorBound::Relative(of_a) = self.bounds[a.0] {
                    let one_rounding = self.graph.number(1.0);
                    let factor_count = self.graph.number(f64::from(n).abs());
                    let per_factor = self.graph.add(of_a, one_rounding);
                    return ErrorBound::Relative(self.graph.multiply(factor_count, per_factor));
                }
                let lower = self.graph.integer_power(a, n - 1);
                let exponent = self.graph.number(f64::from(n));
                let slope = self.graph.multiply(exponent, lower);
                self.propagate(a, slope, node, f64::from(n).abs())
            }
            // 4. Functions of one argument.
            Node::Call(UnaryFunction::Exp, a) => {
                let propagated = self.absolute_bound(a);
                let roundings = self.graph.number(FUNCTION_ROUNDINGS);
                ErrorBound::Relative(self.graph.add(propagated, roundings))
            }
            Node::Call(UnaryFunction::Sign, a) => {
                let distance = self.size(a);
                let error = self.absolute_bound(a);
                self.bound_jump(2.0, distance, error)
            }
            Node::Call(function, a) => {
                let slope = add_function_slope(self.graph, function, a, node);
                self.propagate(a, slope, node, FUNCTION_ROUNDINGS)
            }
            // 5. Functions of two arguments.
            Node::CallBinary(_, a, b) if self.graph.node(node).is_comparison() => {
                let from_a = self.absolute_bound(a);
                let from_b = self.absolute_bound(b);
                let difference = self.graph.subtract(a, b);
                let distance = self.graph.call(UnaryFunction::Abs, difference);
                let error = self.graph.add(from_a, from_b);
                self.bound_jump(1.0, distance, error)
            }
            Node::CallBinary(BinaryFunction::Gate, a, b) => {
                // A value that is not selected may be NaN, and so may its bound. The whole value is in doubt where the
                // condition is.
                let condition_bound = self.absolute_bound(a);
                let value_bound = self.absolute_bound(b);
                let size = self.size(b);
                let whole = self.graph.multiply(condition_bound, size);
                let selected = self.graph.call_binary(BinaryFunction::Gate, a, value_bound);
                let doubtful = self
                    .graph
                    .call_binary(BinaryFunction::Gate, condition_bound, whole);
                ErrorBound::Absolute(self.graph.add(selected, doubtful))
            }
            Node::CallBinary(function, a, b) => {
                let zero = self.graph.number(0.0);
                let one = self.graph.number(1.0);
                let by_a = add_binary_slope(self.graph, function, [a, b], [one, zero]);
                let by_b = add_binary_slope(self.graph, function, [a, b], [zero, one]);
                let BinaryFunction::Faddeeva(part) = function else {
                    return self.propagate_two([a, b], [by_a, by_b], node, FUNCTION_ROUNDINGS);
                };
                // In the lower half-plane nothing is known of the value, and the bound is 1.
                let is_lower = self.graph.call_binary(BinaryFunction::Less, b, zero);
                let whole = self.graph.number(1.0 / ROUNDING_UNIT);
                let doubt = self.graph.multiply(whole, is_lower);
                let roundings = FADDEEVA_ROUNDINGS[usize::from(part.is_imaginary)];
                match self.propagate_two([a, b], [by_a, by_b], node, roundings) {
                    ErrorBound::Absolute(bound) => {
                        ErrorBound::Absolute(self.graph.add(bound, doubt))
                    }
                    relative => relative,
                }
            }
        }
    }

    /// Makes the bound of a value that jumps by `height` at a place that is `distance` away: all of the height where
    /// the distance is within its rounding `error`, else 0.
    fn bound_jump(&mut self, height: f64, distance: NodeId, error: NodeId) -> ErrorBound {
        let unit = self.graph.number(ROUNDING_UNIT);
        let height = self.graph.number(height / ROUNDING_UNIT);
        let reach = self.graph.multiply(unit, error);
        let is_near = self
            .graph
            .call_binary(BinaryFunction::LessEqual, distance, reach);
        let jump = self.graph.multiply(height, is_near);
        // An exact value is on the right side even at the place of the jump.
        ErrorBound::Absolute(self.graph.call_binary(BinaryFunction::Gate, error, jump))
    }

    /// Makes a relative bound of x units of 2⁻²⁴.
    fn relative_number(&mut self, x: f64) -> ErrorBound {
        ErrorBound::Relative(self.graph.number(x))
    }

    /// Makes a relative bound that is the sum of two relative bounds and the roundings of the result.
    fn add_relative_bounds(&mut self, of_a: NodeId, of_b: NodeId, roundings: f64) -> ErrorBound {
        let sum = self.graph.add(of_a, of_b);
        let roundings = self.graph.number(roundings);
        ErrorBound::Relative(self.graph.add(sum, roundings))
    }

    /// Returns the relative bounds of two nodes as numbers; `None` if either is absolute or depends on parameters or
    /// predictors.
    fn relative_numbers(&self, a: NodeId, b: NodeId) -> Option<(f64, f64)> {
        match (self.bounds[a.0], self.bounds[b.0]) {
            (ErrorBound::Relative(of_a), ErrorBound::Relative(of_b)) => {
                self.graph.constant(of_a).zip(self.graph.constant(of_b))
            }
            _ => None,
        }
    }

    /// Returns whether a node is certainly not negative, by its operations; false if that is unknown.
    fn is_not_negative(&mut self, a: NodeId) -> bool {
        for k in self.not_negative.len()..=a.0 {
            let operand_is_not_negative = |id: NodeId| self.not_negative[id.0];
            let is_not_negative = match self.graph.node(NodeId(k)) {
                Node::Number(bits) => f64::from_bits(bits) >= 0.0,
                Node::Power(a, n) => n % 2 == 0 || operand_is_not_negative(a),
                Node::Call(
                    UnaryFunction::Exp
                    | UnaryFunction::Abs
                    | UnaryFunction::Sqrt
                    | UnaryFunction::Cosh,
                    _,
                ) => true,
                Node::CallBinary(
                    BinaryFunction::Hypot
                    | BinaryFunction::Less
                    | BinaryFunction::LessEqual
                    | BinaryFunction::Equal,
                    ..,
                ) => true,
                Node::CallBinary(BinaryFunction::Gate, _, a) => operand_is_not_negative(a),
                Node::Add(a, b) | Node::Multiply(a, b) | Node::Divide(a, b) => {
                    operand_is_not_negative(a) && operand_is_not_negative(b)
                }
                _ => false,
            };
            self.not_negative.push(is_not_negative);
        }
        self.not_negative[a.0]
    }

    /// Returns the node of |a|, from the cache or new.
    fn size(&mut self, a: NodeId) -> NodeId {
        if let Some(size) = self.sizes.get(&a) {
            return *size;
        }
        let size = self.add_size(a);
        self.sizes.insert(a, size);
        size
    }

    /// Adds the node of |a|, simplified where the signs of its factors allow it.
    fn add_size(&mut self, a: NodeId) -> NodeId {
        match self.graph.node(a) {
            _ if self.is_not_negative(a) => a,
            Node::Negate(a) => self.size(a),
            Node::Multiply(a, b) => {
                let a_size = self.size(a);
                let b_size = self.size(b);
                self.graph.multiply(a_size, b_size)
            }
            Node::Divide(a, b) => {
                let a_size = self.size(a);
                let b_size = self.size(b);
                self.graph.divide(a_size, b_size)
            }
            _ => self.graph.call(UnaryFunction::Abs, a),
        }
    }

    /// Returns the node of the absolute error bound of `a`, in units of 2⁻²⁴.
    fn absolute_bound(&mut self, a: NodeId) -> NodeId {
        match self.bounds[a.0] {
            ErrorBound::Absolute(bound) => bound,
            ErrorBound::Relative(bound) => {
                let size = self.size(a);
                self.graph.multiply(bound, size)
            }
        }
    }

    /// Makes an absolute bound: the propagated bound of the operands plus so many roundings of the value of `node`.
    fn add_roundings(&mut self, propagated: NodeId, node: NodeId, roundings: f64) -> ErrorBound {
        let size = self.size(node);
        let roundings = self.graph.number(roundings);
        let rounded = self.graph.multiply(roundings, size);
        ErrorBound::Absolute(self.graph.add(propagated, rounded))
    }

    /// Returns the node of |slope| × the error bound of `a`; 0 if a is exact, whatever the slope.
    fn multiply_by_slope(&mut self, a: NodeId, slope: NodeId) -> NodeId {
        let bound = self.absolute_bound(a);
        let slope_size = self.size(slope);
        self.graph.multiply(slope_size, bound)
    }

    /// Makes the bound of the function value `node` from that of its argument `a`, the slope and the roundings of the
    /// function.
    fn propagate(&mut self, a: NodeId, slope: NodeId, node: NodeId, roundings: f64) -> ErrorBound {
        let propagated = self.multiply_by_slope(a, slope);
        self.add_roundings(propagated, node, roundings)
    }

    /// Makes the bound of the value `node` of a function of two operands, with these slopes and the roundings of the
    /// function.
    fn propagate_two(
        &mut self,
        [a, b]: [NodeId; 2],
        [by_a, by_b]: [NodeId; 2],
        node: NodeId,
        roundings: f64,
    ) -> ErrorBound {
        let from_a = self.multiply_by_slope(a, by_a);
        let from_b = self.multiply_by_slope(b, by_b);
        let propagated = self.graph.add(from_a, from_b);
        self.add_roundings(propagated, node, roundings)
    }
}
