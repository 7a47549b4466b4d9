//! The functions that a formula may call: their names, values, and names in WGSL.

use std::f64::consts::{E, PI};

use crate::math::Real;
use crate::math::faddeeva::{FaddeevaPart, IM, RE};
use crate::math::gamma::digamma;
use crate::math::lanes::pick;

/// A function of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryFunction {
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Exp,
    Ln,
    Log10,
    Log2,
    Sqrt,
    Cbrt,
    Abs,
    Sign,
    Erf,
    Erfc,
    Expm1,
    Log1p,
    Asinh,
    Acosh,
    Atanh,
    Gamma,
    /// ln |Γ(x)|.
    LogGamma,
    /// The derivative of ln Γ(x), for derivatives of the two.
    Digamma,
}

/// A function of two arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryFunction {
    /// a^b.
    Pow,
    /// a^b ln a, the derivative of a^b by b; 0 at a = 0 for b > 0, its limit.
    PowLog,
    /// The angle of the point (second, first).
    Atan2,
    Min,
    Max,
    /// √(a² + b²).
    Hypot,
    /// A part of the Faddeeva function w(a + ib), or of a derivative of it, for derivatives.
    Faddeeva(FaddeevaPart),
    /// 1 where the first is less than the second, else 0.
    Less,
    /// 1 where the first is less than the second or equal to it, else 0.
    LessEqual,
    /// 1 where both are equal, else 0.
    Equal,
    /// The second where the first is not 0, else 0, even if the second is NaN or infinite.
    Gate,
}

/// Function that a name in front of a parenthesis means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Callable {
    Unary(UnaryFunction),
    Binary(BinaryFunction),
    /// A function of two or more arguments, applied to the first two, then to the result and the next.
    Variadic(BinaryFunction),
    /// `select(condition, a, b)`: a where the condition is not 0, else b.
    Select,
    /// `heaviside(x, h)`: 0 for x < 0, 1 for x > 0, and h for x = 0.
    Heaviside,
    /// `copysign(a, b)`: |a| with the sign of b, which is positive where b is 0 or NaN.
    CopySign,
    /// `voigt(x, sigma, gamma)`: the convolution of a Gauss function and a Lorentz function of unit area.
    Voigt,
}

impl Callable {
    /// Returns the smallest and the largest number of arguments, and both in words.
    pub fn arity(self) -> (usize, usize, &'static str) {
        match self {
            Callable::Unary(_) => (1, 1, "one argument"),
            Callable::Binary(_) | Callable::Heaviside | Callable::CopySign => {
                (2, 2, "two arguments")
            }
            Callable::Variadic(_) => (2, usize::MAX, "at least two arguments"),
            Callable::Select | Callable::Voigt => (3, 3, "three arguments"),
        }
    }
}

/// Names of functions. The name in WGSL follows the first name of a function.
pub const FUNCTIONS: [(&str, Callable); 46] = [
    ("sin", Callable::Unary(UnaryFunction::Sin)),
    ("cos", Callable::Unary(UnaryFunction::Cos)),
    ("tan", Callable::Unary(UnaryFunction::Tan)),
    ("asin", Callable::Unary(UnaryFunction::Asin)),
    ("arcsin", Callable::Unary(UnaryFunction::Asin)),
    ("acos", Callable::Unary(UnaryFunction::Acos)),
    ("arccos", Callable::Unary(UnaryFunction::Acos)),
    ("atan", Callable::Unary(UnaryFunction::Atan)),
    ("arctan", Callable::Unary(UnaryFunction::Atan)),
    ("sinh", Callable::Unary(UnaryFunction::Sinh)),
    ("cosh", Callable::Unary(UnaryFunction::Cosh)),
    ("tanh", Callable::Unary(UnaryFunction::Tanh)),
    ("exp", Callable::Unary(UnaryFunction::Exp)),
    ("ln", Callable::Unary(UnaryFunction::Ln)),
    ("log", Callable::Unary(UnaryFunction::Ln)),
    ("log10", Callable::Unary(UnaryFunction::Log10)),
    ("log2", Callable::Unary(UnaryFunction::Log2)),
    ("sqrt", Callable::Unary(UnaryFunction::Sqrt)),
    ("cbrt", Callable::Unary(UnaryFunction::Cbrt)),
    ("abs", Callable::Unary(UnaryFunction::Abs)),
    ("sign", Callable::Unary(UnaryFunction::Sign)),
    ("erf", Callable::Unary(UnaryFunction::Erf)),
    ("erfc", Callable::Unary(UnaryFunction::Erfc)),
    ("expm1", Callable::Unary(UnaryFunction::Expm1)),
    ("log1p", Callable::Unary(UnaryFunction::Log1p)),
    ("asinh", Callable::Unary(UnaryFunction::Asinh)),
    ("arcsinh", Callable::Unary(UnaryFunction::Asinh)),
    ("acosh", Callable::Unary(UnaryFunction::Acosh)),
    ("arccosh", Callable::Unary(UnaryFunction::Acosh)),
    ("atanh", Callable::Unary(UnaryFunction::Atanh)),
    ("arctanh", Callable::Unary(UnaryFunction::Atanh)),
    ("gamma", Callable::Unary(UnaryFunction::Gamma)),
    ("lgamma", Callable::Unary(UnaryFunction::LogGamma)),
    ("gammaln", Callable::Unary(UnaryFunction::LogGamma)),
    ("pow", Callable::Binary(BinaryFunction::Pow)),
    ("atan2", Callable::Binary(BinaryFunction::Atan2)),
    ("arctan2", Callable::Binary(BinaryFunction::Atan2)),
    ("hypot", Callable::Binary(BinaryFunction::Hypot)),
    ("min", Callable::Variadic(BinaryFunction::Min)),
    ("max", Callable::Variadic(BinaryFunction::Max)),
    ("select", Callable::Select),
    ("heaviside", Callable::Heaviside),
    ("copysign", Callable::CopySign),
    (
        "faddeeva_re",
        Callable::Binary(BinaryFunction::Faddeeva(RE)),
    ),
    (
        "faddeeva_im",
        Callable::Binary(BinaryFunction::Faddeeva(IM)),
    ),
    ("voigt", Callable::Voigt),
];

/// Constants that a formula may name.
pub const CONSTANTS: [(&str, f64); 3] = [("pi", PI), ("π", PI), ("e", E)];

/// Functions whose names are parameters where no parenthesis follows.
const FUNCTIONS_ALSO_PARAMETERS: [&str; 1] = ["gamma"];

/// Returns whether a name can only be that of a function.
pub fn is_function(name: &str) -> bool {
    find_callable(name).is_some() && !FUNCTIONS_ALSO_PARAMETERS.contains(&name)
}

/// Returns the function that a name such as `sin` means in formulas; `None` for other names.
pub fn find_callable(name: &str) -> Option<Callable> {
    FUNCTIONS
        .iter()
        .find(|(function_name, _)| *function_name == name)
        .map(|(_, callable)| *callable)
}

impl UnaryFunction {
    /// Computes the function of x, in f64.
    #[inline(always)]
    pub fn value(self, x: f64) -> f64 {
        match self {
            UnaryFunction::Sin => x.sin(),
            UnaryFunction::Cos => x.cos(),
            UnaryFunction::Tan => x.tan(),
            UnaryFunction::Asin => x.asin(),
            UnaryFunction::Acos => x.acos(),
            UnaryFunction::Atan => x.atan(),
            UnaryFunction::Sinh => x.sinh(),
            UnaryFunction::Cosh => x.cosh(),
            UnaryFunction::Tanh => x.tanh(),
            UnaryFunction::Exp => x.exp(),
            UnaryFunction::Ln => x.ln(),
            UnaryFunction::Log10 => x.log10(),
            UnaryFunction::Log2 => x.log2(),
            UnaryFunction::Sqrt => x.sqrt(),
            UnaryFunction::Cbrt => x.cbrt(),
            UnaryFunction::Abs => x.abs(),
            UnaryFunction::Sign => sign(x),
            UnaryFunction::Erf => libm::erf(x),
            UnaryFunction::Erfc => libm::erfc(x),
            UnaryFunction::Expm1 => x.exp_m1(),
            UnaryFunction::Log1p => x.ln_1p(),
            UnaryFunction::Asinh => x.asinh(),
            // The function of the standard library loses digits near 1.
            UnaryFunction::Acosh => libm::acosh(x),
            UnaryFunction::Atanh => x.atanh(),
            UnaryFunction::Gamma => libm::tgamma(x),
            UnaryFunction::LogGamma => libm::lgamma(x),
            UnaryFunction::Digamma => digamma(x),
        }
    }

    /// Returns the name in WGSL. Where the built-in function is not accurate, it is the name of one in
    /// `shaders/shared`.
    pub const fn wgsl(self) -> &'static str {
        match self {
            UnaryFunction::Sin => "sinf",
            UnaryFunction::Cos => "cosf",
            UnaryFunction::Tan => "tanf",
            UnaryFunction::Asin => "asinf",
            UnaryFunction::Acos => "acosf",
            UnaryFunction::Atan => "atanf",
            UnaryFunction::Sinh => "sinhf",
            UnaryFunction::Cosh => "coshf",
            UnaryFunction::Tanh => "tanhf",
            UnaryFunction::Exp => "expf",
            UnaryFunction::Ln => "logf",
            UnaryFunction::Log10 => "log10f",
            UnaryFunction::Log2 => "log2f",
            UnaryFunction::Sqrt => "sqrt",
            UnaryFunction::Cbrt => "cbrtf",
            UnaryFunction::Abs => "abs",
            UnaryFunction::Sign => "signf",
            UnaryFunction::Erf => "erff",
            UnaryFunction::Erfc => "erfcf",
            UnaryFunction::Expm1 => "expm1f",
            UnaryFunction::Log1p => "log1pf",
            UnaryFunction::Asinh => "asinhf",
            UnaryFunction::Acosh => "acoshf",
            UnaryFunction::Atanh => "atanhf",
            UnaryFunction::Gamma => "gammaf",
            UnaryFunction::LogGamma => "lgammaf",
            UnaryFunction::Digamma => "digammaf",
        }
    }
}

impl BinaryFunction {
    /// Computes the function of a and b, in f64; minimum and maximum are NaN if either is.
    #[inline(always)]
    pub fn value(self, a: f64, b: f64) -> f64 {
        match self {
            BinaryFunction::Pow => a.powf(b),
            BinaryFunction::PowLog if a == 0.0 && b > 0.0 => 0.0,
            BinaryFunction::PowLog => a.powf(b) * a.ln(),
            BinaryFunction::Atan2 => a.atan2(b),
            // `f64::min` and `f64::max` would drop a NaN.
            BinaryFunction::Min if a.is_nan() || b.is_nan() => f64::NAN,
            BinaryFunction::Max if a.is_nan() || b.is_nan() => f64::NAN,
            BinaryFunction::Min => a.min(b),
            BinaryFunction::Max => a.max(b),
            BinaryFunction::Hypot if a.is_nan() || b.is_nan() => f64::NAN,
            BinaryFunction::Hypot => a.hypot(b),
            BinaryFunction::Faddeeva(part) => part.value(a, b),
            BinaryFunction::Less => f64::from(u8::from(a < b)),
            BinaryFunction::LessEqual => f64::from(u8::from(a <= b)),
            BinaryFunction::Equal => f64::from(u8::from(a == b)),
            BinaryFunction::Gate => pick(a == 0.0, 0.0, b),
        }
    }

    /// Returns the function's name in the WGSL of popfit's shaders.
    pub const fn wgsl(self) -> &'static str {
        match self {
            BinaryFunction::Pow => "powf",
            BinaryFunction::PowLog => "power_log",
            BinaryFunction::Atan2 => "atan2f",
            BinaryFunction::Min => "minf",
            BinaryFunction::Max => "maxf",
            BinaryFunction::Hypot => "hypotf",
            BinaryFunction::Faddeeva(_) => "faddeeva",
            BinaryFunction::Less => "less",
            BinaryFunction::LessEqual => "less_equal",
            BinaryFunction::Equal => "equal",
            BinaryFunction::Gate => "gate",
        }
    }
}

/// Returns −1 or 1, the sign of x; x itself if it is 0 or NaN.
fn sign(x: f64) -> f64 {
    if x == 0.0 || x.is_nan() {
        x
    } else {
        x.signum()
    }
}

/// Computes xⁿ by repeated squaring, as WGSL does, for positive and negative n. x⁰ = 1.
#[inline(always)]
pub fn integer_power<R: Real>(x: R, n: i32) -> R {
    let mut result = R::ONE;
    let mut square = x;
    let mut remaining_bits = n.unsigned_abs();
    while remaining_bits > 0 {
        if remaining_bits & 1 == 1 {
            result *= square;
        }
        square *= square;
        remaining_bits >>= 1;
    }
    if n < 0 { R::ONE / result } else { result }
}
