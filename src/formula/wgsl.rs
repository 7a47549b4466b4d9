//! Printing of a graph as WGSL, with one `let` per node.

use std::fmt::Write;

use super::function::BinaryFunction;
use super::graph::{Graph, Node, NodeId};

/// Returns the WGSL function `fill` of a [`Custom`](crate::recording::Custom) stage, which computes all `outputs` at
/// one point.
pub fn print_fill(
    graph: &Graph,
    outputs: &[NodeId],
    predictor_count: usize,
    parameter_count: usize,
) -> String {
    let rows = outputs.len();
    let x_type = if predictor_count == 1 {
        "f32".to_owned()
    } else {
        format!("array<f32, {predictor_count}>")
    };
    let mut text = format!(
        "fn fill(x: {x_type}, u: ptr<function, array<f32, {parameter_count}>>, \
         out: ptr<function, array<f32, {rows}>>) {{\n"
    );
    // Writing into a String cannot fail.
    for (k, is_needed) in graph.find_needed(outputs).into_iter().enumerate() {
        if is_needed {
            let expression = print_expression(graph.nodes[k], predictor_count);
            let _ = writeln!(text, "    let n{k} = {expression};");
        }
    }
    for (row, id) in outputs.iter().enumerate() {
        let _ = writeln!(text, "    (*out)[{row}] = n{};", id.0);
    }
    text + "}\n"
}

/// Returns the WGSL expression of a node, in which its operands are variables `n0`, `n1`, ….
fn print_expression(node: Node, predictor_count: usize) -> String {
    match node {
        Node::Number(bits) => print_literal(f64::from_bits(bits)),
        Node::Predictor(_) if predictor_count == 1 => "x".into(),
        Node::Predictor(d) => format!("x[{d}]"),
        Node::Parameter(p) => format!("(*u)[{p}]"),
        Node::Negate(a) => format!("-n{}", a.0),
        Node::Add(a, b) => format!("n{} + n{}", a.0, b.0),
        Node::Subtract(a, b) => format!("n{} - n{}", a.0, b.0),
        Node::Multiply(a, b) => format!("n{} * n{}", a.0, b.0),
        Node::Divide(a, b) => format!("n{} / n{}", a.0, b.0),
        Node::Power(a, n) => print_power(a, n),
        Node::Call(function, a) => format!("{}(n{})", function.wgsl(), a.0),
        Node::CallBinary(BinaryFunction::Faddeeva(part), a, b) => {
            let axis = if part.is_imaginary { "y" } else { "x" };
            format!("faddeeva(n{}, n{}, {}u).{axis}", a.0, b.0, part.order)
        }
        Node::CallBinary(function, a, b) => format!("{}(n{}, n{})", function.wgsl(), a.0, b.0),
    }
}

/// Returns the WGSL expression of aⁿ as a product of repeated squares. Large powers repeat factors in the text;
/// compilers share them.
fn print_power(a: NodeId, n: i32) -> String {
    let mut factors = Vec::new();
    let mut square = format!("n{}", a.0);
    let mut remaining_bits = n.unsigned_abs();
    while remaining_bits > 0 {
        if remaining_bits & 1 == 1 {
            factors.push(square.clone());
        }
        square = format!("({square} * {square})");
        remaining_bits >>= 1;
    }
    let product = factors.join(" * ");
    if n < 0 {
        format!("1.0 / ({product})")
    } else {
        product
    }
}

/// Returns a WGSL literal of the f32 nearest to a number, clamped to the range of f32, because WGSL has no infinite
/// literals.
fn print_literal(value: f64) -> String {
    let limit = f64::from(f32::MAX);
    format!("{:?}f", value.clamp(-limit, limit) as f32)
}
