//! Symbolic derivatives of a graph's nodes. They are added to the graph itself, so that they share nodes with the
//! value.

use std::f64::consts::{LN_2, LN_10, PI};

use super::function::{BinaryFunction, UnaryFunction};
use super::graph::{Graph, Node, NodeId};
use crate::math::faddeeva::{CURVATURE_RE, FaddeevaPart, SLOPE_IM, SLOPE_RE};

/// Maximum number of nodes of a graph with its derivatives, which may be far more than those of the formula: a product
/// of n factors has n² nodes.
const MAX_NODES: usize = 50_000;

/// Adds the nodes of ∂`value`/∂p for the first parameters to the graph and returns them; fails if the graph gets too
/// large.
pub fn add_derivatives(
    graph: &mut Graph,
    value: NodeId,
    parameter_count: usize,
) -> Result<Vec<NodeId>, String> {
    let mut derivatives = Vec::with_capacity(parameter_count);
    for p in 0..parameter_count {
        if graph.nodes.len() <= MAX_NODES {
            derivatives.push(add_derivative(graph, value, p));
        }
    }
    match graph.nodes.len() {
        0..=MAX_NODES => Ok(derivatives),
        _ => Err(format!(
            "the formula and its derivatives take more than {MAX_NODES} operations"
        )),
    }
}

/// Adds the nodes of ∂`value`/∂p for parameter number `p` to the graph, and returns that of the result: 0 if the value
/// does not depend on the parameter.
fn add_derivative(graph: &mut Graph, value: NodeId, p: usize) -> NodeId {
    let zero = graph.number(0.0);
    let one = graph.number(1.0);
    // The operands of a node come before it, so that their slopes are known when the node is differentiated.
    let mut slopes: Vec<NodeId> = Vec::with_capacity(value.0 + 1);
    for k in 0..=value.0 {
        let node = graph.node(NodeId(k));
        let slope_of = |id: NodeId| slopes[id.0];
        let is_constant = node.operands().all(|id| slope_of(id) == zero);
        let slope = match node {
            Node::Parameter(q) if q == p => one,
            _ if is_constant => zero,
            _ if graph.voigt_arguments(NodeId(k)).is_some() => {
                add_voigt_slope(graph, NodeId(k), &slopes)
            }
            Node::Number(_) | Node::Predictor(_) | Node::Parameter(_) => zero,
            Node::Negate(a) => graph.negate(slope_of(a)),
            Node::Add(a, b) => graph.add(slope_of(a), slope_of(b)),
            Node::Subtract(a, b) => graph.subtract(slope_of(a), slope_of(b)),
            Node::Multiply(a, b) => {
                let by_a = graph.multiply(slope_of(a), b);
                let by_b = graph.multiply(a, slope_of(b));
                graph.add(by_a, by_b)
            }
            Node::Divide(a, b) => {
                // (a/b)′ = (a′ − (a/b) b′) / b, in which the quotient is this node
                let change = graph.multiply(NodeId(k), slope_of(b));
                let numerator = graph.subtract(slope_of(a), change);
                graph.divide(numerator, b)
            }
            Node::Power(a, n) => {
                let lower = graph.integer_power(a, n - 1);
                let factor = graph.number(f64::from(n));
                let outer_slope = graph.multiply(factor, lower);
                graph.multiply(outer_slope, slope_of(a))
            }
            Node::Call(function, a) => {
                let outer_slope = add_function_slope(graph, function, a, NodeId(k));
                graph.multiply(outer_slope, slope_of(a))
            }
            Node::CallBinary(function, a, b) => {
                add_binary_slope(graph, function, [a, b], [slope_of(a), slope_of(b)])
            }
        };
        slopes.push(slope);
    }
    slopes[value.0]
}

/// Adds the nodes of f′(a) for a function f and returns that of the result; `value` is the node of f(a).
fn add_function_slope(
    graph: &mut Graph,
    function: UnaryFunction,
    a: NodeId,
    value: NodeId,
) -> NodeId {
    let one = graph.number(1.0);
    match function {
        UnaryFunction::Sin => graph.call(UnaryFunction::Cos, a),
        UnaryFunction::Cos => {
            let sine = graph.call(UnaryFunction::Sin, a);
            graph.negate(sine)
        }
        UnaryFunction::Sinh => graph.call(UnaryFunction::Cosh, a),
        UnaryFunction::Cosh => graph.call(UnaryFunction::Sinh, a),
        UnaryFunction::Exp => value,
        UnaryFunction::Abs => graph.call(UnaryFunction::Sign, a),
        // Second derivatives of the gamma function are not needed.
        UnaryFunction::Sign | UnaryFunction::Digamma => graph.number(0.0),
        UnaryFunction::Gamma => {
            let relative_slope = graph.call(UnaryFunction::Digamma, a);
            graph.multiply(value, relative_slope)
        }
        UnaryFunction::LogGamma => graph.call(UnaryFunction::Digamma, a),
        UnaryFunction::Tan | UnaryFunction::Tanh => {
            let square = graph.multiply(value, value);
            if function == UnaryFunction::Tan {
                graph.add(one, square)
            } else {
                graph.subtract(one, square)
            }
        }
        UnaryFunction::Asin => add_reciprocal_root(graph, a, false),
        UnaryFunction::Acos => {
            let slope = add_reciprocal_root(graph, a, false);
            graph.negate(slope)
        }
        UnaryFunction::Acosh => add_reciprocal_root(graph, a, true),
        // The sum of its value and 1 would cancel far below 0.
        UnaryFunction::Expm1 => graph.call(UnaryFunction::Exp, a),
        UnaryFunction::Erf | UnaryFunction::Erfc => {
            let square = graph.multiply(a, a);
            let exponent = graph.negate(square);
            let bell = graph.call(UnaryFunction::Exp, exponent);
            let sign = if function == UnaryFunction::Erf {
                1.0
            } else {
                -1.0
            };
            let height = graph.number(sign * 2.0 / PI.sqrt());
            graph.multiply(height, bell)
        }
        _ => {
            let denominator = add_reciprocal_slope(graph, function, a, value);
            graph.divide(one, denominator)
        }
    }
}

/// Adds the node of 1 / √(1 − a²), or with `beyond` that of 1 / √(a² − 1). The product (1 − a)(1 + a) keeps its digits
/// near ±1.
fn add_reciprocal_root(graph: &mut Graph, a: NodeId, beyond: bool) -> NodeId {
    let one = graph.number(1.0);
    let difference = if beyond {
        graph.subtract(a, one)
    } else {
        graph.subtract(one, a)
    };
    let sum = graph.add(one, a);
    let product = graph.multiply(difference, sum);
    let root = graph.call(UnaryFunction::Sqrt, product);
    graph.divide(one, root)
}

/// Adds the nodes of 1 / f′(a) for functions, such as atan and ln, of which that is shorter than f′(a).
fn add_reciprocal_slope(
    graph: &mut Graph,
    function: UnaryFunction,
    a: NodeId,
    value: NodeId,
) -> NodeId {
    match function {
        UnaryFunction::Atan => {
            let one = graph.number(1.0);
            let square = graph.multiply(a, a);
            graph.add(one, square)
        }
        UnaryFunction::Asinh => {
            let one = graph.number(1.0);
            let square = graph.multiply(a, a);
            let sum = graph.add(one, square);
            graph.call(UnaryFunction::Sqrt, sum)
        }
        UnaryFunction::Atanh => {
            let one = graph.number(1.0);
            let difference = graph.subtract(one, a);
            let sum = graph.add(one, a);
            graph.multiply(difference, sum)
        }
        UnaryFunction::Log1p => {
            let one = graph.number(1.0);
            graph.add(one, a)
        }
        UnaryFunction::Log10 => add_multiple(graph, LN_10, a),
        UnaryFunction::Log2 => add_multiple(graph, LN_2, a),
        UnaryFunction::Sqrt => add_multiple(graph, 2.0, value),
        UnaryFunction::Cbrt => {
            let square = graph.multiply(value, value);
            add_multiple(graph, 3.0, square)
        }
        // ln
        _ => a,
    }
}

/// Adds the node of factor · node.
fn add_multiple(graph: &mut Graph, factor: f64, node: NodeId) -> NodeId {
    let factor = graph.number(factor);
    graph.multiply(factor, node)
}

/// Adds the derivative of a Voigt function Re w(ζ) / (√π s), ζ = (x + iγ)/s, given the `slopes` of the nodes before it.
/// The derivative by s is Re w″(ζ) / (2√π s²), because w + ζ w′ = −w″/2. The terms of the chain rule would cancel where
/// s is small.
fn add_voigt_slope(graph: &mut Graph, value: NodeId, slopes: &[NodeId]) -> NodeId {
    let Some([x, s, gamma]) = graph.voigt_arguments(value) else {
        return value;
    };
    // 1. Add the derivatives by x, γ and s, all times √π s².
    let real = graph.divide(x, s);
    let imaginary = graph.divide(gamma, s);
    let [by_x, by_gamma, twice_by_s] = [SLOPE_RE, SLOPE_IM, CURVATURE_RE]
        .map(|part| graph.call_binary(BinaryFunction::Faddeeva(part), real, imaginary));
    let half = graph.number(0.5);
    let by_s = graph.multiply(half, twice_by_s);
    // 2. Add the chain rule. The derivative by γ has the other sign, because ∂w/∂γ = iw′/s.
    let x_term = graph.multiply(by_x, slopes[x.0]);
    let gamma_term = graph.multiply(by_gamma, slopes[gamma.0]);
    let s_term = graph.multiply(by_s, slopes[s.0]);
    let difference = graph.subtract(x_term, gamma_term);
    let sum = graph.add(difference, s_term);
    let square = graph.integer_power(s, 2);
    let root = graph.number(PI.sqrt());
    let norm = graph.multiply(root, square);
    graph.divide(sum, norm)
}

/// Adds the derivative of a function of two arguments a and b, given their derivatives.
fn add_binary_slope(
    graph: &mut Graph,
    function: BinaryFunction,
    [a, b]: [NodeId; 2],
    [da, db]: [NodeId; 2],
) -> NodeId {
    match function {
        BinaryFunction::Pow => {
            let one = graph.number(1.0);
            let exponent = graph.subtract(b, one);
            let lower = graph.power(a, exponent);
            let factor = graph.multiply(b, lower);
            let by_base = graph.multiply(factor, da);
            let logarithm = graph.call_binary(BinaryFunction::PowLog, a, b);
            let by_exponent = graph.multiply(logarithm, db);
            graph.add(by_base, by_exponent)
        }
        BinaryFunction::Atan2 => {
            // (b a′ − a b′) / (a² + b²)
            let a_term = graph.multiply(b, da);
            let b_term = graph.multiply(a, db);
            let numerator = graph.subtract(a_term, b_term);
            let a_square = graph.multiply(a, a);
            let b_square = graph.multiply(b, b);
            let denominator = graph.add(a_square, b_square);
            graph.divide(numerator, denominator)
        }
        BinaryFunction::Min | BinaryFunction::Max => {
            // This is the slope of the argument that is taken; that of the first one where they are equal.
            let (low, high) = if function == BinaryFunction::Min {
                (b, a)
            } else {
                (a, b)
            };
            let takes_second = graph.call_binary(BinaryFunction::Less, low, high);
            let difference = graph.subtract(db, da);
            let change = graph.multiply(takes_second, difference);
            graph.add(da, change)
        }
        BinaryFunction::Hypot => {
            let value = graph.call_binary(BinaryFunction::Hypot, a, b);
            let by_a = graph.divide(a, value);
            let by_b = graph.divide(b, value);
            let a_term = graph.multiply(by_a, da);
            let b_term = graph.multiply(by_b, db);
            let slope = graph.add(a_term, b_term);
            // At its minimum, where it has no slope, 0 is one of its subgradients.
            graph.call_binary(BinaryFunction::Gate, value, slope)
        }
        BinaryFunction::Faddeeva(FaddeevaPart {
            order: 0,
            is_imaginary,
        }) => {
            // w depends on z = a + ib alone: ∂w/∂a = w′ and ∂w/∂b = iw′.
            let real_slope = graph.call_binary(BinaryFunction::Faddeeva(SLOPE_RE), a, b);
            let imaginary_slope = graph.call_binary(BinaryFunction::Faddeeva(SLOPE_IM), a, b);
            if is_imaginary {
                let a_term = graph.multiply(imaginary_slope, da);
                let b_term = graph.multiply(real_slope, db);
                graph.add(a_term, b_term)
            } else {
                let a_term = graph.multiply(real_slope, da);
                let b_term = graph.multiply(imaginary_slope, db);
                graph.subtract(a_term, b_term)
            }
        }
        BinaryFunction::Gate => graph.call_binary(BinaryFunction::Gate, a, db),
        // Comparisons are flat between their steps, and second derivatives are not needed.
        BinaryFunction::Less
        | BinaryFunction::LessEqual
        | BinaryFunction::Equal
        | BinaryFunction::PowLog
        | BinaryFunction::Faddeeva(_) => graph.number(0.0),
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use crate::Formula;
    use crate::formula::{ParameterTie, Ties};
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
        let untied = Formula::parse("voigt(x, s, 0.7)").unwrap();
        let tie = ParameterTie {
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
            let square_sum = x * x + gamma * gamma;
            let exact = s * gamma / PI * (6.0 * x * x - 2.0 * gamma * gamma) / square_sum.powi(3);
            for formula in [&untied, &tied] {
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
