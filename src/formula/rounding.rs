//! Bound on the rounding error of a graph's value in f32: a running error analysis (Higham 2002, §3.3) as nodes of the
//! graph itself.

use std::collections::HashMap;

use super::derive::{function_slope, pair_slope};
use super::function::{Function, Pair};
use super::graph::{Graph, Node, NodeId};

/// Roundings of a function's value: a few units in the last place.
const FUNCTION: f64 = 8.0;
/// Roundings of the real and the imaginary part of the Faddeeva function in the upper half-plane. Below it they have
/// zeros, and f32 is not trusted there.
const FADDEEVA: [f64; 2] = [16.0, 64.0];

/// The unit of the bounds, 2⁻²⁴.
const UNIT: f64 = 1.0 / 16_777_216.0;

/// Bound on the error of a node, in units of 2⁻²⁴, to first order.
#[derive(Clone, Copy)]
enum Bound {
    Absolute(NodeId),
    /// Bound as a share of the node's size. The shares of products are mostly numbers.
    Relative(NodeId),
}

/// Adds nodes that bound the absolute rounding error of `value` computed in f32, to first order, and returns the last;
/// its unit is 2⁻²⁴. Parameters are exact. Predictors are exact if f32 holds them exactly (`held`), else rounded.
pub fn rounding(graph: &mut Graph, value: NodeId, held: bool) -> NodeId {
    let mut errors = Errors {
        graph,
        found: Vec::new(),
        held,
        positive: Vec::new(),
        sizes: HashMap::new(),
    };
    // in the order of the nodes, so that the operands of a node have their bounds before it
    for k in 0..=value.0 {
        let bound = errors.of_node(NodeId(k));
        errors.found.push(bound);
    }
    errors.absolute(value)
}

/// A graph and the bounds of its first nodes.
struct Errors<'a> {
    graph: &'a mut Graph,
    found: Vec<Bound>,
    held: bool,
    /// Cached results of [`is_positive`](Self::is_positive) for the first nodes.
    positive: Vec<bool>,
    /// Cached results of [`size`](Self::size).
    sizes: HashMap<NodeId, NodeId>,
}

impl Errors<'_> {
    /// Computes the rounding-error bound of a node from the bounds of its operands.
    fn of_node(&mut self, own: NodeId) -> Bound {
        match self.graph.node(own) {
            Node::Parameter(_) => self.share(0.0),
            Node::Number(bits) => {
                let x = f64::from_bits(bits);
                self.share(if f64::from(x as f32) == x { 0.0 } else { 1.0 })
            }
            Node::Predictor(_) => self.share(if self.held { 0.0 } else { 1.0 }),
            Node::Negate(a) => self.found[a.0],
            Node::Add(a, b)
                if self.is_positive(a) && self.is_positive(b) && self.shares(a, b).is_some() =>
            {
                let (left, right) = self.shares(a, b).unwrap_or_default();
                self.share(left.max(right) + 1.0)
            }
            Node::Add(a, b) | Node::Subtract(a, b) if self.shares(a, b) == Some((0.0, 0.0)) => {
                self.share(1.0)
            }
            Node::Add(a, b) | Node::Subtract(a, b) => {
                let (left, right) = (self.absolute(a), self.absolute(b));
                let carried = self.graph.add(left, right);
                self.rounded(carried, own, 1.0)
            }
            Node::Multiply(a, b) => match (self.found[a.0], self.found[b.0]) {
                (Bound::Relative(left), Bound::Relative(right)) => {
                    self.sum_of_shares(left, right, 1.0)
                }
                _ => self.carried([a, b], [b, a], own, 1.0),
            },
            // lanes multiply by a reciprocal, which rounds once more
            Node::Divide(a, b) => match (self.found[a.0], self.found[b.0]) {
                (Bound::Relative(left), Bound::Relative(right)) => {
                    self.sum_of_shares(left, right, 2.0)
                }
                _ => {
                    let one = self.graph.number(1.0);
                    let (by_a, by_b) = (self.graph.divide(one, b), self.graph.divide(own, b));
                    self.carried([a, b], [by_a, by_b], own, 2.0)
                }
            },
            Node::Power(a, n) => {
                if let Bound::Relative(share) = self.found[a.0] {
                    let (own, times) = (
                        self.graph.number(1.0),
                        self.graph.number(f64::from(n).abs()),
                    );
                    let each = self.graph.add(share, own);
                    return Bound::Relative(self.graph.multiply(times, each));
                }
                let (lower, times) = (
                    self.graph.integer_power(a, n - 1),
                    self.graph.number(f64::from(n)),
                );
                let slope = self.graph.multiply(times, lower);
                self.through(a, slope, own, f64::from(n).abs())
            }
            Node::Call(Function::Exp, a) => {
                let (carried, own) = (self.absolute(a), self.graph.number(FUNCTION));
                Bound::Relative(self.graph.add(carried, own))
            }
            Node::Call(Function::Sign, a) => {
                let (size, error) = (self.size(a), self.absolute(a));
                self.jump(2.0, size, error)
            }
            Node::Call(function, a) => {
                let slope = function_slope(self.graph, function, a, own);
                self.through(a, slope, own, FUNCTION)
            }
            Node::CallPair(_, a, b) if self.graph.node(own).is_comparison() => {
                let (left, right, difference) = (
                    self.absolute(a),
                    self.absolute(b),
                    self.graph.subtract(a, b),
                );
                let (distance, error) = (
                    self.graph.call(Function::Abs, difference),
                    self.graph.add(left, right),
                );
                self.jump(1.0, distance, error)
            }
            Node::CallPair(Pair::Gate, a, b) => {
                // what is not selected may be NaN, and so may its bound
                let (condition, bound, size) = (self.absolute(a), self.absolute(b), self.size(b));
                let whole = self.graph.multiply(condition, size);
                let (selected, doubtful) = (
                    self.graph.pair(Pair::Gate, a, bound),
                    self.graph.pair(Pair::Gate, condition, whole),
                );
                Bound::Absolute(self.graph.add(selected, doubtful))
            }
            Node::CallPair(pair, a, b) => {
                let (zero, one) = (self.graph.number(0.0), self.graph.number(1.0));
                let by_a = pair_slope(self.graph, pair, [a, b], [one, zero]);
                let by_b = pair_slope(self.graph, pair, [a, b], [zero, one]);
                let Pair::Faddeeva(part) = pair else {
                    return self.carried([a, b], [by_a, by_b], own, FUNCTION);
                };
                let (is_lower, whole) = (
                    self.graph.pair(Pair::Less, b, zero),
                    self.graph.number(1.0 / UNIT),
                );
                let doubt = self.graph.multiply(whole, is_lower);
                match self.carried(
                    [a, b],
                    [by_a, by_b],
                    own,
                    FADDEEVA[usize::from(part.is_imaginary)],
                ) {
                    Bound::Absolute(upper) => Bound::Absolute(self.graph.add(upper, doubt)),
                    relative => relative,
                }
            }
        }
    }

    /// Makes the bound of a value that jumps by `height` at a place that is `distance` away: all of the height where
    /// the distance is within its rounding `error`, else 0.
    fn jump(&mut self, height: f64, distance: NodeId, error: NodeId) -> Bound {
        let (unit, height) = (self.graph.number(UNIT), self.graph.number(height / UNIT));
        let reach = self.graph.multiply(unit, error);
        let is_near = self.graph.pair(Pair::LessEqual, distance, reach);
        let jump = self.graph.multiply(height, is_near);
        // an exact value is on the right side even at the very place
        Bound::Absolute(self.graph.pair(Pair::Gate, error, jump))
    }

    /// Makes a relative bound of x units of 2⁻²⁴.
    fn share(&mut self, x: f64) -> Bound {
        Bound::Relative(self.graph.number(x))
    }

    /// Makes a relative bound that is the sum of two relative bounds and `own` roundings of the result.
    fn sum_of_shares(&mut self, left: NodeId, right: NodeId, own: f64) -> Bound {
        let (sum, own) = (self.graph.add(left, right), self.graph.number(own));
        Bound::Relative(self.graph.add(sum, own))
    }

    /// Returns the relative bounds of two nodes as numbers; `None` if either is absolute or depends on parameters or
    /// predictors.
    fn shares(&self, a: NodeId, b: NodeId) -> Option<(f64, f64)> {
        match (self.found[a.0], self.found[b.0]) {
            (Bound::Relative(a), Bound::Relative(b)) => {
                self.graph.constant(a).zip(self.graph.constant(b))
            }
            _ => None,
        }
    }

    /// Returns whether a node is certainly not negative, by its operations; false if that is unknown.
    fn is_positive(&mut self, a: NodeId) -> bool {
        for k in self.positive.len()..=a.0 {
            let of = |id: NodeId| self.positive[id.0];
            let positive = match self.graph.node(NodeId(k)) {
                Node::Number(bits) => f64::from_bits(bits) >= 0.0,
                Node::Power(a, n) => n % 2 == 0 || of(a),
                Node::Call(Function::Exp | Function::Abs | Function::Sqrt | Function::Cosh, _) => {
                    true
                }
                Node::CallPair(Pair::Hypot | Pair::Less | Pair::LessEqual | Pair::Equal, ..) => {
                    true
                }
                Node::CallPair(Pair::Gate, _, a) => of(a),
                Node::Add(a, b) | Node::Multiply(a, b) | Node::Divide(a, b) => of(a) && of(b),
                _ => false,
            };
            self.positive.push(positive);
        }
        self.positive[a.0]
    }

    /// Returns the node of |a|, from the cache or new.
    fn size(&mut self, a: NodeId) -> NodeId {
        if let Some(size) = self.sizes.get(&a) {
            return *size;
        }
        let size = self.new_size(a);
        self.sizes.insert(a, size);
        size
    }

    /// Adds the node of |a|, simplified where the signs of its factors allow it.
    fn new_size(&mut self, a: NodeId) -> NodeId {
        match self.graph.node(a) {
            _ if self.is_positive(a) => a,
            Node::Negate(a) => self.size(a),
            Node::Multiply(a, b) => {
                let (a, b) = (self.size(a), self.size(b));
                self.graph.multiply(a, b)
            }
            Node::Divide(a, b) => {
                let (a, b) = (self.size(a), self.size(b));
                self.graph.divide(a, b)
            }
            _ => self.graph.call(Function::Abs, a),
        }
    }

    /// Returns the node of the absolute error bound of `a`, in units of 2⁻²⁴.
    fn absolute(&mut self, a: NodeId) -> NodeId {
        match self.found[a.0] {
            Bound::Absolute(bound) => bound,
            Bound::Relative(share) => {
                let size = self.size(a);
                self.graph.multiply(share, size)
            }
        }
    }

    /// Makes an absolute bound: `carried` from the operands plus n roundings of the value of node `own`.
    fn rounded(&mut self, carried: NodeId, own: NodeId, n: f64) -> Bound {
        let (size, n) = (self.size(own), self.graph.number(n));
        let rounded = self.graph.multiply(n, size);
        Bound::Absolute(self.graph.add(carried, rounded))
    }

    /// Returns the node of |slope| × the error bound of `a`; 0 if a is exact, whatever the slope.
    fn times(&mut self, a: NodeId, slope: NodeId) -> NodeId {
        let (bound, size) = (self.absolute(a), self.size(slope));
        self.graph.multiply(size, bound)
    }

    /// Makes the bound of a function value `own` from that of its argument `a`, its slope and n roundings of its own.
    fn through(&mut self, a: NodeId, slope: NodeId, own: NodeId, n: f64) -> Bound {
        let carried = self.times(a, slope);
        self.rounded(carried, own, n)
    }

    /// Returns the bound of a function of two operands with these slopes and n roundings of its own.
    fn carried(
        &mut self,
        [a, b]: [NodeId; 2],
        [by_a, by_b]: [NodeId; 2],
        own: NodeId,
        n: f64,
    ) -> Bound {
        let (left, right) = (self.times(a, by_a), self.times(b, by_b));
        let sum = self.graph.add(left, right);
        self.rounded(sum, own, n)
    }
}
