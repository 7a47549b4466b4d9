//! One operation over a row of numbers, f32 or f64. The match stands outside the loops, so that each loop has one
//! operation.

use super::function::{Function, Pair, integer_power};
use super::graph::Node;
use crate::math::{Real, functions, gamma, hyperbolic};

/// Numbers for which formulas have functions.
pub trait Elementary: Real {
    /// Fills `out` with a function of each number of `a`.
    fn call(function: Function, a: &[Self], out: &mut [Self]);
    /// Fills `out` with a function of each pair of numbers of `a` and `b`.
    fn call_pair(pair: Pair, a: &[Self], b: &[Self], out: &mut [Self]);
}

/// Applies the operation of `node` element by element to its operands `a` and `b`, and writes the results to `out`. The
/// caller fills in predictors and parameters.
#[inline(always)]
pub fn run<R: Elementary>(node: Node, a: &[R], b: &[R], out: &mut [R]) {
    match node {
        Node::Number(bits) => out.fill(R::of(f64::from_bits(bits))),
        Node::Predictor(_) | Node::Parameter(_) => out.copy_from_slice(a),
        Node::Negate(_) => map(a, out, |x| -x),
        Node::Add(..) => zip(a, b, out, |x, y| x + y),
        Node::Subtract(..) => zip(a, b, out, |x, y| x - y),
        Node::Multiply(..) => zip(a, b, out, |x, y| x * y),
        Node::Divide(..) => zip(a, b, out, |x, y| x / y),
        Node::Power(_, 2) => map(a, out, |x| x * x),
        Node::Power(_, -1) => map(a, out, |x| R::ONE / x),
        Node::Power(_, n) => map(a, out, |x| integer_power(x, n)),
        Node::Call(function, _) => R::call(function, a, out),
        Node::CallPair(pair, ..) => R::call_pair(pair, a, b, out),
    }
}

/// Writes f of each element of `a` to `out`.
#[inline(always)]
fn map<R: Copy>(a: &[R], out: &mut [R], f: impl Fn(R) -> R) {
    out.iter_mut().zip(a).for_each(|(o, x)| *o = f(*x));
}

/// Writes f of each pair of elements of `a` and `b` to `out`.
#[inline(always)]
fn zip<R: Copy>(a: &[R], b: &[R], out: &mut [R], f: impl Fn(R, R) -> R) {
    out.iter_mut()
        .zip(a.iter().zip(b))
        .for_each(|(o, (x, y))| *o = f(*x, *y));
}

impl Elementary for f64 {
    #[inline(always)]
    fn call(function: Function, a: &[f64], out: &mut [f64]) {
        match function {
            Function::Sqrt => map(a, out, f64::sqrt),
            Function::Exp => map(a, out, functions::exp_f64),
            _ => map(a, out, |x| function.value(x)),
        }
    }
    #[inline(always)]
    fn call_pair(pair: Pair, a: &[f64], b: &[f64], out: &mut [f64]) {
        match pair {
            Pair::Faddeeva(part) => part.fill(a, b, out),
            _ => zip(a, b, out, |x, y| pair.value(x, y)),
        }
    }
}

impl Elementary for f32 {
    #[inline(always)]
    fn call(function: Function, a: &[f32], out: &mut [f32]) {
        match function {
            Function::Sin => map(a, out, functions::sin),
            Function::Cos => map(a, out, functions::cos),
            Function::Tan => map(a, out, functions::tan),
            Function::Asin => map(a, out, functions::asin),
            Function::Acos => map(a, out, functions::acos),
            Function::Atan => map(a, out, functions::atan),
            Function::Sinh => map(a, out, functions::sinh),
            Function::Cosh => map(a, out, functions::cosh),
            Function::Tanh => map(a, out, Real::tanh),
            Function::Exp => map(a, out, functions::exp),
            Function::Ln => map(a, out, functions::ln),
            Function::Log10 => map(a, out, functions::log10),
            Function::Log2 => map(a, out, functions::log2),
            Function::Sqrt => map(a, out, f32::sqrt),
            Function::Cbrt => map(a, out, functions::cbrt),
            Function::Abs => map(a, out, f32::abs),
            Function::Sign => map(a, out, functions::sign),
            Function::Erf => map(a, out, functions::erf),
            Function::Erfc => map(a, out, functions::erfc),
            Function::Expm1 => map(a, out, hyperbolic::expm1),
            Function::Log1p => map(a, out, hyperbolic::log1p),
            Function::Asinh => map(a, out, hyperbolic::asinh),
            Function::Acosh => map(a, out, hyperbolic::acosh),
            Function::Atanh => map(a, out, hyperbolic::atanh),
            Function::Gamma => map(a, out, gamma::gamma_f32),
            Function::LogGamma => map(a, out, gamma::log_gamma_f32),
            Function::Digamma => map(a, out, gamma::digamma_f32),
        }
    }
    #[inline(always)]
    fn call_pair(pair: Pair, a: &[f32], b: &[f32], out: &mut [f32]) {
        // comparisons, so that NaN in either argument shows, which `min` would drop
        let nan = |x: f32, y: f32| x.is_nan() || y.is_nan();
        match pair {
            Pair::Pow => zip(a, b, out, functions::pow),
            Pair::PowLog => zip(a, b, out, functions::power_log),
            Pair::Atan2 => zip(a, b, out, functions::atan2),
            Pair::Min => zip(
                a,
                b,
                out,
                |x, y| if nan(x, y) { f32::NAN } else { x.min(y) },
            ),
            Pair::Max => zip(
                a,
                b,
                out,
                |x, y| if nan(x, y) { f32::NAN } else { x.max(y) },
            ),
            Pair::Hypot => zip(a, b, out, functions::hypot),
            Pair::Faddeeva(part) => part.fill(a, b, out),
            Pair::Less => zip(a, b, out, |x, y| if x < y { 1.0 } else { 0.0 }),
            Pair::LessEqual => zip(a, b, out, |x, y| if x <= y { 1.0 } else { 0.0 }),
            Pair::Equal => zip(a, b, out, |x, y| if x == y { 1.0 } else { 0.0 }),
            Pair::Gate => zip(a, b, out, |x, y| if x == 0.0 { 0.0 } else { y }),
        }
    }
}
