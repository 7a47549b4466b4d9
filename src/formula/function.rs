//! The functions that a formula may call: their names, values, and names in WGSL.

use std::f64::consts::{E, PI};

use crate::math::Real;
use crate::math::faddeeva::{IM, Part, RE};
use crate::math::gamma::digamma;
use crate::math::lanes::pick;

/// A function of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
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
pub enum Pair {
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
    Faddeeva(Part),
    /// 1 where the first is less than the second, else 0.
    Less,
    /// 1 where the first is less than the second or equal to it, else 0.
    LessEqual,
    /// 1 where both are equal, else 0.
    Equal,
    /// The second where the first is not 0, else 0, even if the second is NaN or infinite.
    Gate,
}

/// Function that a name in front of a parenthesis stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Callable {
    One(Function),
    Two(Pair),
    /// A function of two or more arguments, applied to the first two, then to the result and the next.
    Several(Pair),
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
            Callable::One(_) => (1, 1, "one argument"),
            Callable::Two(_) | Callable::Heaviside | Callable::CopySign => (2, 2, "two arguments"),
            Callable::Several(_) => (2, usize::MAX, "at least two arguments"),
            Callable::Select | Callable::Voigt => (3, 3, "three arguments"),
        }
    }
}

/// Names of functions. The name in WGSL follows the first name of a function.
pub const FUNCTIONS: [(&str, Callable); 46] = [
    ("sin", Callable::One(Function::Sin)),
    ("cos", Callable::One(Function::Cos)),
    ("tan", Callable::One(Function::Tan)),
    ("asin", Callable::One(Function::Asin)),
    ("arcsin", Callable::One(Function::Asin)),
    ("acos", Callable::One(Function::Acos)),
    ("arccos", Callable::One(Function::Acos)),
    ("atan", Callable::One(Function::Atan)),
    ("arctan", Callable::One(Function::Atan)),
    ("sinh", Callable::One(Function::Sinh)),
    ("cosh", Callable::One(Function::Cosh)),
    ("tanh", Callable::One(Function::Tanh)),
    ("exp", Callable::One(Function::Exp)),
    ("ln", Callable::One(Function::Ln)),
    ("log", Callable::One(Function::Ln)),
    ("log10", Callable::One(Function::Log10)),
    ("log2", Callable::One(Function::Log2)),
    ("sqrt", Callable::One(Function::Sqrt)),
    ("cbrt", Callable::One(Function::Cbrt)),
    ("abs", Callable::One(Function::Abs)),
    ("sign", Callable::One(Function::Sign)),
    ("erf", Callable::One(Function::Erf)),
    ("erfc", Callable::One(Function::Erfc)),
    ("expm1", Callable::One(Function::Expm1)),
    ("log1p", Callable::One(Function::Log1p)),
    ("asinh", Callable::One(Function::Asinh)),
    ("arcsinh", Callable::One(Function::Asinh)),
    ("acosh", Callable::One(Function::Acosh)),
    ("arccosh", Callable::One(Function::Acosh)),
    ("atanh", Callable::One(Function::Atanh)),
    ("arctanh", Callable::One(Function::Atanh)),
    ("gamma", Callable::One(Function::Gamma)),
    ("lgamma", Callable::One(Function::LogGamma)),
    ("gammaln", Callable::One(Function::LogGamma)),
    ("pow", Callable::Two(Pair::Pow)),
    ("atan2", Callable::Two(Pair::Atan2)),
    ("arctan2", Callable::Two(Pair::Atan2)),
    ("hypot", Callable::Two(Pair::Hypot)),
    ("min", Callable::Several(Pair::Min)),
    ("max", Callable::Several(Pair::Max)),
    ("select", Callable::Select),
    ("heaviside", Callable::Heaviside),
    ("copysign", Callable::CopySign),
    ("faddeeva_re", Callable::Two(Pair::Faddeeva(RE))),
    ("faddeeva_im", Callable::Two(Pair::Faddeeva(IM))),
    ("voigt", Callable::Voigt),
];

/// Constants that a formula may name.
pub const CONSTANTS: [(&str, f64); 3] = [("pi", PI), ("π", PI), ("e", E)];

/// Functions whose names are parameters, too, where no parenthesis follows.
const ALSO_PARAMETERS: [&str; 1] = ["gamma"];

/// Returns whether a name can only be a function's.
pub fn is_function(name: &str) -> bool {
    callable(name).is_some() && !ALSO_PARAMETERS.contains(&name)
}

/// Returns the function that a name such as `sin` means in formulas; `None` for other names.
pub fn callable(name: &str) -> Option<Callable> {
    FUNCTIONS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, callable)| *callable)
}

impl Function {
    /// Computes the function of x, in f64.
    #[inline(always)]
    pub fn value(self, x: f64) -> f64 {
        match self {
            Function::Sin => x.sin(),
            Function::Cos => x.cos(),
            Function::Tan => x.tan(),
            Function::Asin => x.asin(),
            Function::Acos => x.acos(),
            Function::Atan => x.atan(),
            Function::Sinh => x.sinh(),
            Function::Cosh => x.cosh(),
            Function::Tanh => x.tanh(),
            Function::Exp => x.exp(),
            Function::Ln => x.ln(),
            Function::Log10 => x.log10(),
            Function::Log2 => x.log2(),
            Function::Sqrt => x.sqrt(),
            Function::Cbrt => x.cbrt(),
            Function::Abs => x.abs(),
            Function::Sign => sign(x),
            Function::Erf => libm::erf(x),
            Function::Erfc => libm::erfc(x),
            Function::Expm1 => x.exp_m1(),
            Function::Log1p => x.ln_1p(),
            Function::Asinh => x.asinh(),
            // the function of the standard library loses digits near 1
            Function::Acosh => libm::acosh(x),
            Function::Atanh => x.atanh(),
            Function::Gamma => libm::tgamma(x),
            Function::LogGamma => libm::lgamma(x),
            Function::Digamma => digamma(x),
        }
    }

    /// Returns the name in WGSL: that of an accurate function in `shaders/shared` where the built-in one is not.
    pub const fn wgsl(self) -> &'static str {
        match self {
            Function::Sin => "sinf",
            Function::Cos => "cosf",
            Function::Tan => "tanf",
            Function::Asin => "asinf",
            Function::Acos => "acosf",
            Function::Atan => "atanf",
            Function::Sinh => "sinhf",
            Function::Cosh => "coshf",
            Function::Tanh => "tanhf",
            Function::Exp => "expf",
            Function::Ln => "logf",
            Function::Log10 => "log10f",
            Function::Log2 => "log2f",
            Function::Sqrt => "sqrt",
            Function::Cbrt => "cbrtf",
            Function::Abs => "abs",
            Function::Sign => "signf",
            Function::Erf => "erff",
            Function::Erfc => "erfcf",
            Function::Expm1 => "expm1f",
            Function::Log1p => "log1pf",
            Function::Asinh => "asinhf",
            Function::Acosh => "acoshf",
            Function::Atanh => "atanhf",
            Function::Gamma => "gammaf",
            Function::LogGamma => "lgammaf",
            Function::Digamma => "digammaf",
        }
    }
}

impl Pair {
    /// Computes the function of a and b, in f64; minimum and maximum are NaN if either is.
    #[inline(always)]
    pub fn value(self, a: f64, b: f64) -> f64 {
        match self {
            Pair::Pow => a.powf(b),
            Pair::PowLog if a == 0.0 && b > 0.0 => 0.0,
            Pair::PowLog => a.powf(b) * a.ln(),
            Pair::Atan2 => a.atan2(b),
            // `min` would drop a NaN
            Pair::Min if a.is_nan() || b.is_nan() => f64::NAN,
            Pair::Max if a.is_nan() || b.is_nan() => f64::NAN,
            Pair::Min => a.min(b),
            Pair::Max => a.max(b),
            Pair::Hypot if a.is_nan() || b.is_nan() => f64::NAN,
            Pair::Hypot => a.hypot(b),
            Pair::Faddeeva(part) => part.value(a, b),
            Pair::Less => f64::from(u8::from(a < b)),
            Pair::LessEqual => f64::from(u8::from(a <= b)),
            Pair::Equal => f64::from(u8::from(a == b)),
            Pair::Gate => pick(a == 0.0, 0.0, b),
        }
    }

    /// Returns the function's name in the WGSL of popfit's shaders.
    pub const fn wgsl(self) -> &'static str {
        match self {
            Pair::Pow => "powf",
            Pair::PowLog => "power_log",
            Pair::Atan2 => "atan2f",
            Pair::Min => "minf",
            Pair::Max => "maxf",
            Pair::Hypot => "hypotf",
            Pair::Faddeeva(_) => "faddeeva",
            Pair::Less => "less",
            Pair::LessEqual => "less_equal",
            Pair::Equal => "equal",
            Pair::Gate => "gate",
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
    let (mut result, mut square, mut left) = (R::ONE, x, n.unsigned_abs());
    while left > 0 {
        if left & 1 == 1 {
            result *= square;
        }
        square *= square;
        left >>= 1;
    }
    if n < 0 { R::ONE / result } else { result }
}
