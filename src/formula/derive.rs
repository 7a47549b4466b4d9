//! Symbolic derivatives of a graph's nodes, added to the graph itself, so that they share what they have in common with
//! the value.

use std::f64::consts::{LN_2, LN_10, PI};

use super::function::{Function, Pair};
use super::graph::{Graph, Node, NodeId};
use crate::math::faddeeva::{CURVATURE_RE, Part, SLOPE_IM, SLOPE_RE};

/// Maximum number of nodes of a graph with its derivatives, which may be far more than those of the formula: a product
/// of n factors has n² nodes.
const MOST_NODES: usize = 50_000;

/// Adds nodes for ∂`value`/∂p of the first `count` parameters to the graph and returns them; fails if it gets too
/// large.
pub fn derivatives(graph: &mut Graph, value: NodeId, count: usize) -> Result<Vec<NodeId>, String> {
    let mut found = Vec::with_capacity(count);
    for p in 0..count {
        if graph.nodes.len() <= MOST_NODES {
            found.push(derivative(graph, value, p));
        }
    }
    match graph.nodes.len() {
        0..=MOST_NODES => Ok(found),
        _ => Err(format!(
            "the formula and its derivatives take more than {MOST_NODES} operations"
        )),
    }
}

/// Adds the nodes of ∂`value`/∂p for parameter number `p` to the graph, and returns the last; 0 if it does not depend
/// on it.
fn derivative(graph: &mut Graph, value: NodeId, p: usize) -> NodeId {
    let zero = graph.number(0.0);
    let one = graph.number(1.0);
    // in the order of the nodes, so that the operands of a node are differentiated before it
    let mut found: Vec<NodeId> = Vec::with_capacity(value.0 + 1);
    for k in 0..=value.0 {
        let node = graph.node(NodeId(k));
        let of = |id: NodeId| found[id.0];
        let constant = node.operands().all(|id| of(id) == zero);
        let slope = match node {
            Node::Parameter(q) if q == p => one,
            _ if constant => zero,
            _ if graph.voigt_arguments(NodeId(k)).is_some() => {
                voigt_slope(graph, NodeId(k), &found)
            }
            Node::Number(_) | Node::Predictor(_) | Node::Parameter(_) => zero,
            Node::Negate(a) => graph.negate(of(a)),
            Node::Add(a, b) => graph.add(of(a), of(b)),
            Node::Subtract(a, b) => graph.subtract(of(a), of(b)),
            Node::Multiply(a, b) => {
                let (left, right) = (graph.multiply(of(a), b), graph.multiply(a, of(b)));
                graph.add(left, right)
            }
            Node::Divide(a, b) => {
                // (a/b)′ = (a′ − (a/b) b′) / b, in which the quotient is this node
                let change = graph.multiply(NodeId(k), of(b));
                let numerator = graph.subtract(of(a), change);
                graph.divide(numerator, b)
            }
            Node::Power(a, n) => {
                let lower = graph.integer_power(a, n - 1);
                let factor = graph.number(f64::from(n));
                let slope = graph.multiply(factor, lower);
                graph.multiply(slope, of(a))
            }
            Node::Call(function, a) => {
                let slope = function_slope(graph, function, a, NodeId(k));
                graph.multiply(slope, of(a))
            }
            Node::CallPair(pair, a, b) => pair_slope(graph, pair, [a, b], [of(a), of(b)]),
        };
        found.push(slope);
    }
    found[value.0]
}

/// Returns the node of f′(a) for a function f, adding nodes as needed; `value` is the node of f(a).
pub fn function_slope(graph: &mut Graph, function: Function, a: NodeId, value: NodeId) -> NodeId {
    let one = graph.number(1.0);
    match function {
        Function::Sin => graph.call(Function::Cos, a),
        Function::Cos => {
            let sine = graph.call(Function::Sin, a);
            graph.negate(sine)
        }
        Function::Sinh => graph.call(Function::Cosh, a),
        Function::Cosh => graph.call(Function::Sinh, a),
        Function::Exp => value,
        Function::Abs => graph.call(Function::Sign, a),
        // second derivatives of the gamma function are not needed
        Function::Sign | Function::Digamma => graph.number(0.0),
        Function::Gamma => {
            let share = graph.call(Function::Digamma, a);
            graph.multiply(value, share)
        }
        Function::LogGamma => graph.call(Function::Digamma, a),
        Function::Tan | Function::Tanh => {
            let square = graph.multiply(value, value);
            if function == Function::Tan {
                graph.add(one, square)
            } else {
                graph.subtract(one, square)
            }
        }
        Function::Asin => reciprocal_root(graph, a, false),
        Function::Acos => {
            let slope = reciprocal_root(graph, a, false);
            graph.negate(slope)
        }
        Function::Acosh => reciprocal_root(graph, a, true),
        // not its value and 1, which cancel far below 0
        Function::Expm1 => graph.call(Function::Exp, a),
        Function::Erf | Function::Erfc => {
            let square = graph.multiply(a, a);
            let exponent = graph.negate(square);
            let bell = graph.call(Function::Exp, exponent);
            let sign = if function == Function::Erf { 1.0 } else { -1.0 };
            let height = graph.number(sign * 2.0 / PI.sqrt());
            graph.multiply(height, bell)
        }
        _ => {
            let denominator = reciprocal_slope(graph, function, a, value);
            graph.divide(one, denominator)
        }
    }
}

/// Returns the node of 1 / √(1 − a²), or with `beyond` of 1 / √(a² − 1), by (1 − a)(1 + a), which keeps its digits near
/// ±1.
fn reciprocal_root(graph: &mut Graph, a: NodeId, beyond: bool) -> NodeId {
    let one = graph.number(1.0);
    let (below, above) = (
        if beyond {
            graph.subtract(a, one)
        } else {
            graph.subtract(one, a)
        },
        graph.add(one, a),
    );
    let product = graph.multiply(below, above);
    let root = graph.call(Function::Sqrt, product);
    graph.divide(one, root)
}

/// Returns the node of 1 / f′(a) for functions, such as atan and ln, where that is shorter than f′(a).
fn reciprocal_slope(graph: &mut Graph, function: Function, a: NodeId, value: NodeId) -> NodeId {
    let scaled = |graph: &mut Graph, factor: f64, node: NodeId| {
        let factor = graph.number(factor);
        graph.multiply(factor, node)
    };
    match function {
        Function::Atan => {
            let (one, square) = (graph.number(1.0), graph.multiply(a, a));
            graph.add(one, square)
        }
        Function::Asinh => {
            let (one, square) = (graph.number(1.0), graph.multiply(a, a));
            let sum = graph.add(one, square);
            graph.call(Function::Sqrt, sum)
        }
        Function::Atanh => {
            let one = graph.number(1.0);
            let (below, above) = (graph.subtract(one, a), graph.add(one, a));
            graph.multiply(below, above)
        }
        Function::Log1p => {
            let one = graph.number(1.0);
            graph.add(one, a)
        }
        Function::Log10 => scaled(graph, LN_10, a),
        Function::Log2 => scaled(graph, LN_2, a),
        Function::Sqrt => scaled(graph, 2.0, value),
        Function::Cbrt => {
            let square = graph.multiply(value, value);
            scaled(graph, 3.0, square)
        }
        // ln
        _ => a,
    }
}

/// Returns the derivative of a Voigt function Re w(ζ) / (√π s), ζ = (x + iγ)/s, given the derivatives `found` of the
/// nodes before it. That by s is Re w″(ζ) / (2√π s²), because w + ζ w′ = −w″/2. The terms of the chain rule would
/// cancel where s is small.
fn voigt_slope(graph: &mut Graph, value: NodeId, found: &[NodeId]) -> NodeId {
    let Some([x, s, gamma]) = graph.voigt_arguments(value) else {
        return value;
    };
    let (real, imaginary) = (graph.divide(x, s), graph.divide(gamma, s));
    let [by_x, by_gamma, by_s] = [SLOPE_RE, SLOPE_IM, CURVATURE_RE]
        .map(|part| graph.pair(Pair::Faddeeva(part), real, imaginary));
    let half = graph.number(0.5);
    let by_s = graph.multiply(half, by_s);
    let (along, across) = (
        graph.multiply(by_x, found[x.0]),
        graph.multiply(by_gamma, found[gamma.0]),
    );
    let widening = graph.multiply(by_s, found[s.0]);
    let sum = graph.subtract(along, across);
    let sum = graph.add(sum, widening);
    let (square, root) = (graph.integer_power(s, 2), graph.number(PI.sqrt()));
    let norm = graph.multiply(root, square);
    graph.divide(sum, norm)
}

/// Returns the derivative of a function of two arguments a and b, given their derivatives.
pub fn pair_slope(
    graph: &mut Graph,
    pair: Pair,
    [a, b]: [NodeId; 2],
    [da, db]: [NodeId; 2],
) -> NodeId {
    match pair {
        Pair::Pow => {
            let one = graph.number(1.0);
            let exponent = graph.subtract(b, one);
            let lower = graph.power(a, exponent);
            let factor = graph.multiply(b, lower);
            let by_base = graph.multiply(factor, da);
            let logarithm = graph.pair(Pair::PowLog, a, b);
            let by_exponent = graph.multiply(logarithm, db);
            graph.add(by_base, by_exponent)
        }
        Pair::Atan2 => {
            let (left, right) = (graph.multiply(b, da), graph.multiply(a, db));
            let numerator = graph.subtract(left, right);
            let (first, second) = (graph.multiply(a, a), graph.multiply(b, b));
            let denominator = graph.add(first, second);
            graph.divide(numerator, denominator)
        }
        Pair::Min | Pair::Max => {
            // the slope of the argument that is taken; the first one's where they are equal
            let (low, high) = if pair == Pair::Min { (b, a) } else { (a, b) };
            let other = graph.pair(Pair::Less, low, high);
            let change = graph.subtract(db, da);
            let change = graph.multiply(other, change);
            graph.add(da, change)
        }
        Pair::Hypot => {
            let value = graph.pair(Pair::Hypot, a, b);
            let (by_a, by_b) = (graph.divide(a, value), graph.divide(b, value));
            let (left, right) = (graph.multiply(by_a, da), graph.multiply(by_b, db));
            let slope = graph.add(left, right);
            // at its minimum, which has no slope, 0 is one of its subgradients
            graph.pair(Pair::Gate, value, slope)
        }
        Pair::Faddeeva(Part {
            order: 0,
            is_imaginary,
        }) => {
            // w depends on z = a + ib alone: ∂w/∂a = w′ and ∂w/∂b = iw′
            let (real, imaginary) = (
                graph.pair(Pair::Faddeeva(SLOPE_RE), a, b),
                graph.pair(Pair::Faddeeva(SLOPE_IM), a, b),
            );
            if is_imaginary {
                let (left, right) = (graph.multiply(imaginary, da), graph.multiply(real, db));
                graph.add(left, right)
            } else {
                let (left, right) = (graph.multiply(real, da), graph.multiply(imaginary, db));
                graph.subtract(left, right)
            }
        }
        Pair::Gate => graph.pair(Pair::Gate, a, db),
        // comparisons are flat between their steps, and second derivatives are not needed
        Pair::Less | Pair::LessEqual | Pair::Equal | Pair::PowLog | Pair::Faddeeva(_) => {
            graph.number(0.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use crate::Formula;
    use crate::formula::{Tie, Ties};
    use crate::math::lanes::Lanes;
    use crate::solver::small::{LaneBlock, LaneGrid};

    /// Returns the derivative by the only parameter at x, in f64 and in f32.
    fn slopes(formula: &Formula, x: f64, parameter: f64) -> [f64; 2] {
        let mut rows = [Lanes::splat(f32::NAN); 2];
        (formula.lanes())(LaneBlock {
            points: 0..1,
            of_points: 1,
            grid: LaneGrid::Shared(&[x as f32]),
            parameters: &[Lanes::splat(parameter as f32)],
            registers: &mut Vec::new(),
            y: &[],
            rows: &mut rows,
            stride: 2,
        });
        [
            formula.linearise(&[x], &[parameter]).unwrap()[1],
            f64::from(rows[1].0[3]),
        ]
    }

    /// The slope by σ of a profile that is nearly the Lorentz function V(x) = γ/π / (x² + γ²) is σ V″.
    #[test]
    fn narrow_voigt_profiles_have_the_slopes_of_lorentz_functions() {
        let gamma = 0.7f64;
        let alone = Formula::parse("voigt(x, s, 0.7)").unwrap();
        let tie = Tie {
            parameter: 1,
            expression: "0.7".into(),
        };
        let tied = Ties::new(&Formula::parse("voigt(x, s, g)").unwrap(), &[tie])
            .unwrap()
            .formula;
        for (s, x) in [
            (1e-3, 0.0),
            (1e-3, 0.37),
            (1e-5, 0.37),
            (1e-5, 2.0),
            (1e-8, 0.0),
            (1e-8, 2.0),
        ] {
            let total = x * x + gamma * gamma;
            let exact = s * gamma / PI * (6.0 * x * x - 2.0 * gamma * gamma) / total.powi(3);
            for formula in [&alone, &tied] {
                let [double, single] = slopes(formula, x, s);
                assert!(
                    (double / exact - 1.0).abs() < 1e-4,
                    "{s} {x}: {double} {exact}"
                );
                assert!(
                    (single / exact - 1.0).abs() < 1e-3,
                    "{s} {x} in f32: {single} {exact}"
                );
            }
        }
    }
}
