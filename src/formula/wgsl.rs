//! A graph as WGSL, with one `let` per node.

use std::fmt::Write;

use super::function::Pair;
use super::graph::{Graph, Node, NodeId};

/// Returns the WGSL function `fill` of a [`Custom`](crate::recording::Custom) stage, which computes all `outputs` at
/// one point.
pub fn fill(graph: &Graph, outputs: &[NodeId], predictors: usize, parameters: usize) -> String {
    let rows = outputs.len();
    let kind = if predictors == 1 {
        "f32".to_owned()
    } else {
        format!("array<f32, {predictors}>")
    };
    let mut text = format!(
        "fn fill(x: {kind}, u: ptr<function, array<f32, {parameters}>>, \
         out: ptr<function, array<f32, {rows}>>) {{\n"
    );
    for (k, _) in graph
        .needed(outputs)
        .into_iter()
        .enumerate()
        .filter(|(_, needed)| *needed)
    {
        // writing into a String cannot fail
        let _ = writeln!(
            text,
            "    let n{k} = {};",
            expression(graph.nodes[k], predictors)
        );
    }
    for (row, id) in outputs.iter().enumerate() {
        let _ = writeln!(text, "    (*out)[{row}] = n{};", id.0);
    }
    text + "}\n"
}

/// Returns the WGSL expression of a node, in which its operands are variables `n0`, `n1`, ….
fn expression(node: Node, predictors: usize) -> String {
    match node {
        Node::Number(bits) => literal(f64::from_bits(bits)),
        Node::Predictor(_) if predictors == 1 => "x".into(),
        Node::Predictor(d) => format!("x[{d}]"),
        Node::Parameter(p) => format!("(*u)[{p}]"),
        Node::Negate(a) => format!("-n{}", a.0),
        Node::Add(a, b) => format!("n{} + n{}", a.0, b.0),
        Node::Subtract(a, b) => format!("n{} - n{}", a.0, b.0),
        Node::Multiply(a, b) => format!("n{} * n{}", a.0, b.0),
        Node::Divide(a, b) => format!("n{} / n{}", a.0, b.0),
        Node::Power(a, n) => power(a, n),
        Node::Call(function, a) => format!("{}(n{})", function.wgsl(), a.0),
        Node::CallPair(Pair::Faddeeva(part), a, b) => {
            let axis = if part.is_imaginary { "y" } else { "x" };
            format!("faddeeva(n{}, n{}, {}u).{axis}", a.0, b.0, part.order)
        }
        Node::CallPair(pair, a, b) => format!("{}(n{}, n{})", pair.wgsl(), a.0, b.0),
    }
}

/// Returns the WGSL expression of aⁿ as a product of repeated squares. Large powers repeat factors in the text;
/// compilers share them.
fn power(a: NodeId, n: i32) -> String {
    let mut factors = Vec::new();
    let (mut square, mut left) = (format!("n{}", a.0), n.unsigned_abs());
    while left > 0 {
        if left & 1 == 1 {
            factors.push(square.clone());
        }
        square = format!("({square} * {square})");
        left >>= 1;
    }
    let product = factors.join(" * ");
    if n < 0 {
        format!("1.0 / ({product})")
    } else {
        product
    }
}

/// Returns a WGSL literal of the f32 nearest to a number, clamped to the range of f32. Numbers beyond its range become
/// its largest, because WGSL has no infinite literals.
fn literal(value: f64) -> String {
    let limit = f64::from(f32::MAX);
    format!("{:?}f", value.clamp(-limit, limit) as f32)
}
