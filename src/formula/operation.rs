//! Evaluation of one operation over a row of numbers, f32 or f64. The match is outside of the loops, so that each loop
//! has one operation.

use super::function::{BinaryFunction, UnaryFunction, integer_power};
use super::graph::Node;
use crate::math::{Real, functions, gamma, hyperbolic};

/// Floating-point types for which formulas have functions.
pub trait Elementary: Real {
    /// Fills `out` with a function of each number of `a`.
    fn call(function: UnaryFunction, a: &[Self], out: &mut [Self]);
    /// Fills `out` with a function of each pair of numbers of `a` and `b`.
    fn call_binary(function: BinaryFunction, a: &[Self], b: &[Self], out: &mut [Self]);
}

/// Applies the operation of `node` element by element to its operands `a` and `b`, and writes the results to `out`. The
/// caller fills in predictors and parameters.
#[inline(always)]
pub fn apply_operation<R: Elementary>(node: Node, a: &[R], b: &[R], out: &mut [R]) {
    match node {
        Node::Number(bits) => out.fill(R::of(f64::from_bits(bits))),
        Node::Predictor(_) | Node::Parameter(_) => out.copy_from_slice(a),
        Node::Negate(_) => map_row(a, out, |x| -x),
        Node::Add(..) => zip_rows(a, b, out, |x, y| x + y),
        Node::Subtract(..) => zip_rows(a, b, out, |x, y| x - y),
        Node::Multiply(..) => zip_rows(a, b, out, |x, y| x * y),
        Node::Divide(..) => zip_rows(a, b, out, |x, y| x / y),
        Node::Power(_, 2) => map_row(a, out, |x| x * x),
        Node::Power(_, -1) => map_row(a, out, |x| R::ONE / x),
        Node::Power(_, n) => map_row(a, out, |x| integer_power(x, n)),
        Node::Call(function, _) => R::call(function, a, out),
        Node::CallBinary(function, ..) => R::call_binary(function, a, b, out),
    }
}

/// Writes f of each element of `a` to `out`.
#[inline(always)]
fn map_row<R: Copy>(a: &[R], out: &mut [R], f: impl Fn(R) -> R) {
    out.iter_mut().zip(a).for_each(|(o, x)| *o = f(*x));
}

/// Writes f of each pair of elements of `a` and `b` to `out`.
#[inline(always)]
fn zip_rows<R: Copy>(a: &[R], b: &[R], out: &mut [R], f: impl Fn(R, R) -> R) {
    out.iter_mut()
        .zip(a.iter().zip(b))
        .for_each(|(o, (x, y))| *o = f(*x, *y));
}

impl Elementary for f64 {
    #[inline(always)]
    fn call(function: UnaryFunction, a: &[f64], out: &mut [f64]) {
        match function {
            UnaryFunction::Sqrt => map_row(a, out, f64::sqrt),
            UnaryFunction::Exp => map_row(a, out, functions::exp_f64),
            _ => map_row(a, out, |x| function.value(x)),
        }
    }
    #[inline(always)]
    fn call_binary(function: BinaryFunction, a: &[f64], b: &[f64], out: &mut [f64]) {
        match function {
            BinaryFunction::Faddeeva(part) => part.fill(a, b, out),
            _ => zip_rows(a, b, out, |x, y| function.value(x, y)),
        }
    }
}

impl Elementary for f32 {
    #[inline(always)]
    fn call(function: UnaryFunction, a: &[f32], out: &mut [f32]) {
        match function {
            UnaryFunction::Sin => map_row(a, out, functions::sin),
            UnaryFunction::Cos => map_row(a, out, functions::cos),
            UnaryFunction::Tan => map_row(a, out, functions::tan),
            UnaryFunction::Asin => map_row(a, out, functions::asin),
            UnaryFunction::Acos => map_row(a, out, functions::acos),
            UnaryFunction::Atan => map_row(a, out, functions::atan),
            UnaryFunction::Sinh => map_row(a, out, functions::sinh),
            UnaryFunction::Cosh => map_row(a, out, functions::cosh),
            UnaryFunction::Tanh => map_row(a, out, Real::tanh),
            UnaryFunction::Exp => map_row(a, out, functions::exp),
            UnaryFunction::Ln => map_row(a, out, functions::ln),
            UnaryFunction::Log10 => map_row(a, out, functions::log10),
            UnaryFunction::Log2 => map_row(a, out, functions::log2),
            UnaryFunction::Sqrt => map_row(a, out, f32::sqrt),
            UnaryFunction::Cbrt => map_row(a, out, functions::cbrt),
            UnaryFunction::Abs => map_row(a, out, f32::abs),
            UnaryFunction::Sign => map_row(a, out, functions::sign),
            UnaryFunction::Erf => map_row(a, out, functions::erf),
            UnaryFunction::Erfc => map_row(a, out, functions::erfc),
            UnaryFunction::Expm1 => map_row(a, out, hyperbolic::expm1),
            UnaryFunction::Log1p => map_row(a, out, hyperbolic::log1p),
            UnaryFunction::Asinh => map_row(a, out, hyperbolic::asinh),
            UnaryFunction::Acosh => map_row(a, out, hyperbolic::acosh),
            UnaryFunction::Atanh => map_row(a, out, hyperbolic::atanh),
            UnaryFunction::Gamma => map_row(a, out, gamma::gamma_f32),
            UnaryFunction::LogGamma => map_row(a, out, gamma::log_gamma_f32),
            UnaryFunction::Digamma => map_row(a, out, gamma::digamma_f32),
        }
    }
    #[inline(always)]
    fn call_binary(function: BinaryFunction, a: &[f32], b: &[f32], out: &mut [f32]) {
        // `min` and `max` would drop a NaN in one of the arguments.
        let any_is_nan = |x: f32, y: f32| x.is_nan() || y.is_nan();
        match function {
            BinaryFunction::Pow => zip_rows(a, b, out, functions::pow),
            BinaryFunction::PowLog => zip_rows(a, b, out, functions::power_log),
            BinaryFunction::Atan2 => zip_rows(a, b, out, functions::atan2),
            BinaryFunction::Min => zip_rows(a, b, out, |x, y| {
                if any_is_nan(x, y) { f32::NAN } else { x.min(y) }
            }),
            BinaryFunction::Max => zip_rows(a, b, out, |x, y| {
                if any_is_nan(x, y) { f32::NAN } else { x.max(y) }
            }),
            BinaryFunction::Hypot => zip_rows(a, b, out, functions::hypot),
            BinaryFunction::Faddeeva(part) => part.fill(a, b, out),
            BinaryFunction::Less => zip_rows(a, b, out, |x, y| if x < y { 1.0 } else { 0.0 }),
            BinaryFunction::LessEqual => zip_rows(a, b, out, |x, y| if x <= y { 1.0 } else { 0.0 }),
            BinaryFunction::Equal => zip_rows(a, b, out, |x, y| if x == y { 1.0 } else { 0.0 }),
            BinaryFunction::Gate => zip_rows(a, b, out, |x, y| if x == 0.0 { 0.0 } else { y }),
        }
    }
}
