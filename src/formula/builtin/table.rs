//! Table of the built-in models.

use super::super::guess::Role::{self, *};
use super::super::guess::{Anchor, GuessMethod};

/// A built-in model. `builtin.md` has the same table for users.
pub struct Builtin {
    pub name: &'static str,
    pub predictors: &'static [&'static str],
    /// Parameters, in Gpufit's order where Gpufit has the model (Przybylski et al. 2017).
    pub parameters: &'static [&'static str],
    pub text: &'static str,
    /// How starting values are guessed.
    pub guess: GuessMethod,
}

const X: &[&str] = &["x"];
const XY: &[&str] = &["x", "y"];

const POSITIVE: Anchor = Anchor::Positive { or_zero: false };
const NOT_NEGATIVE: Anchor = Anchor::Positive { or_zero: true };
/// Exponents to try.
const EXPONENT_GRID: &[f64] = &[
    -6.0, -4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0,
];

/// Places and widths of smooth steps to try.
const STEP_GRID: &[&[f64]] = &[&[-0.4, 0.0, 0.4], &[0.02, 0.1, 0.3, 1.0]];
/// Rates and places of growth to try.
const GROWTH_GRID: &[&[f64]] = &[
    &[-20.0, -6.0, -2.0, -0.8, 0.8, 2.0, 6.0, 20.0],
    &[-2.5, -1.0, -0.3, 0.0, 0.3, 1.0, 2.5],
];

/// Returns a search with the roles of all parameters and, for each that is not solved for, the numbers to try.
const fn search_guess(
    roles: &'static [Role],
    anchor: Anchor,
    grid: &'static [&'static [f64]],
) -> GuessMethod {
    GuessMethod::Search {
        roles,
        anchor,
        grid,
    }
}

pub const BUILTINS: [Builtin; 31] = [
    Builtin {
        name: "linear1d",
        predictors: X,
        parameters: &["offset", "slope"],
        text: "offset + slope*x",
        guess: GuessMethod::Polynomial,
    },
    Builtin {
        name: "gauss1d",
        predictors: X,
        parameters: &["a", "m", "s", "c"],
        text: "a*exp(-(x - m)^2/(2*s^2)) + c",
        guess: search_guess(
            &[Height, Place(0), Width(0), Offset],
            Anchor::Peak,
            &[&[0.0], &[0.18, 0.36, 0.72]],
        ),
    },
    Builtin {
        name: "gauss2d",
        predictors: XY,
        parameters: &["a", "x0", "y0", "s", "c"],
        text: "a*exp(-((x - x0)^2 + (y - y0)^2)/(2*s^2)) + c",
        guess: search_guess(
            &[Height, Place(0), Place(1), Width(0), Offset],
            Anchor::Spot,
            &[&[0.0], &[0.0], &[0.2, 0.4, 0.8]],
        ),
    },
    Builtin {
        name: "gauss2d_elliptic",
        predictors: XY,
        parameters: &["a", "x0", "y0", "sx", "sy", "c"],
        text: "a*exp(-((x - x0)^2/(2*sx^2) + (y - y0)^2/(2*sy^2))) + c",
        guess: search_guess(
            &[Height, Place(0), Place(1), Width(0), Width(1), Offset],
            Anchor::Spot,
            &[&[0.0], &[0.0], &[0.2, 0.4, 0.8], &[0.2, 0.4, 0.8]],
        ),
    },
    Builtin {
        name: "gauss2d_rotated",
        predictors: XY,
        parameters: &["a", "x0", "y0", "sx", "sy", "c", "r"],
        text: "a*exp(-(((x - x0)*cos(r) - (y - y0)*sin(r))^2/(2*sx^2) \
               + ((x - x0)*sin(r) + (y - y0)*cos(r))^2/(2*sy^2))) + c",
        guess: search_guess(
            &[
                Height,
                Place(0),
                Place(1),
                Width(0),
                Width(1),
                Offset,
                Shape,
            ],
            Anchor::Spot,
            &[&[0.0], &[0.0], &[0.2, 0.5], &[0.2, 0.5], &[-0.8, 0.0, 0.8]],
        ),
    },
    Builtin {
        name: "cauchy2d_elliptic",
        predictors: XY,
        parameters: &["a", "x0", "y0", "sx", "sy", "c"],
        text: "a/((((x - x0)/sx)^2 + 1)*(((y - y0)/sy)^2 + 1)) + c",
        guess: search_guess(
            &[Height, Place(0), Place(1), Width(0), Width(1), Offset],
            Anchor::Spot,
            &[&[0.0], &[0.0], &[0.15, 0.35, 0.8], &[0.15, 0.35, 0.8]],
        ),
    },
    Builtin {
        name: "exponential",
        predictors: X,
        parameters: &["a", "k", "c"],
        text: "a*exp(-k*x) + c",
        guess: search_guess(
            &[HeightAtZero(1), Rate, Offset],
            Anchor::Whole,
            &[&[
                -40.0, -10.0, -4.0, -1.5, -0.5, -0.15, 0.15, 0.5, 1.5, 4.0, 10.0, 40.0,
            ]],
        ),
    },
    Builtin {
        name: "biexponential",
        predictors: X,
        parameters: &["a1", "k1", "a2", "k2", "c"],
        text: "a1*exp(-k1*x) + a2*exp(-k2*x) + c",
        guess: search_guess(
            &[HeightAtZero(1), Rate, HeightAtZero(3), Rate, Offset],
            Anchor::Whole,
            &[
                &[-4.0, -1.0, 0.1, 0.4, 0.8, 1.6, 3.2, 6.0],
                &[-10.0, -2.5, 0.5, 1.1, 2.2, 4.5, 9.0, 20.0, 50.0],
            ],
        ),
    },
    // At x = 0 the derivative of the power by tau has no value for b < 1.
    Builtin {
        name: "stretched_exponential",
        predictors: X,
        parameters: &["a", "tau", "b", "c"],
        text: "a*select(x == 0, 1, exp(-(x/tau)^b)) + c",
        guess: search_guess(
            &[Height, Width(0), Exponent, Offset],
            NOT_NEGATIVE,
            &[&[0.03, 0.1, 0.3, 1.0, 3.0, 10.0], &[0.4, 0.8, 1.3, 2.2]],
        ),
    },
    Builtin {
        name: "lorentz",
        predictors: X,
        parameters: &["a", "m", "g", "c"],
        text: "a*g^2/((x - m)^2 + g^2) + c",
        guess: search_guess(
            &[Height, Place(0), Width(0), Offset],
            Anchor::Peak,
            &[&[0.0], &[0.15, 0.3, 0.7]],
        ),
    },
    Builtin {
        name: "pseudo_voigt",
        predictors: X,
        parameters: &["a", "m", "w", "f", "c"],
        text: "a*(f/(1 + 4*((x - m)/w)^2) + (1 - f)*exp(-4*ln(2)*((x - m)/w)^2)) + c",
        guess: search_guess(
            &[Height, Place(0), Width(0), Shape, Offset],
            Anchor::Peak,
            &[&[0.0], &[0.4, 0.8, 1.6], &[0.2, 0.8]],
        ),
    },
    Builtin {
        name: "voigt",
        predictors: X,
        parameters: &["a", "m", "s", "g", "c"],
        text: "a*voigt(x - m, s, g) + c",
        guess: search_guess(
            &[Area, Place(0), Width(0), Width(0), Offset],
            Anchor::Peak,
            &[&[0.0], &[0.03, 0.15, 0.35, 0.8], &[0.03, 0.15, 0.35, 0.8]],
        ),
    },
    Builtin {
        name: "moffat",
        predictors: X,
        parameters: &["a", "m", "g", "b", "c"],
        text: "a*(1 + ((x - m)/g)^2)^(-b) + c",
        guess: search_guess(
            &[Height, Place(0), Width(0), Exponent, Offset],
            Anchor::Peak,
            &[&[0.0], &[0.2, 0.45, 1.2], &[1.0, 2.5, 6.0]],
        ),
    },
    Builtin {
        name: "fano",
        predictors: X,
        parameters: &["a", "m", "g", "q", "c"],
        text: "a*(x - m + q*g)^2/((x - m)^2 + g^2) + c",
        guess: search_guess(
            &[Height, Place(0), Width(0), Asymmetry, Offset],
            Anchor::Peak,
            &[&[-0.7, -0.35, 0.0, 0.35, 0.7], &[0.15, 0.4, 1.0]],
        ),
    },
    Builtin {
        name: "skewed_gauss",
        predictors: X,
        parameters: &["a", "m", "s", "b", "c"],
        text: "a*exp(-(x - m)^2/(2*s^2))*erfc(b*(m - x)/(s*sqrt(2))) + c",
        guess: search_guess(
            &[Height, Place(0), Width(0), Shape, Offset],
            Anchor::Peak,
            &[
                &[-0.3, 0.0, 0.3],
                &[0.25, 0.5, 1.0],
                &[-4.0, -1.2, 1.2, 4.0],
            ],
        ),
    },
    // exp(z^2)*erfc(z) is w(iz), so that no factor overflows and no digits cancel on either side of the peak.
    Builtin {
        name: "emg",
        predictors: X,
        parameters: &["a", "m", "s", "tau", "c"],
        text: "u = abs(s); v = abs(tau); t = sign(tau)*(x - m)/u; q = u/v; z = (q - t)/sqrt(2); \
               a/(2*v)*select(z < 0, exp(q*(q/2 - t))*erfc(z), exp(-t^2/2)*faddeeva_re(0, z)) + c",
        guess: search_guess(
            &[Area, Place(0), Width(0), Width(0), Offset],
            Anchor::Peak,
            &[&[-0.3, 0.0, 0.3], &[0.12, 0.3], &[-0.5, -0.12, 0.12, 0.5]],
        ),
    },
    Builtin {
        name: "step_linear",
        predictors: X,
        parameters: &["a", "m", "w", "c"],
        text: "a*min(max((x - m)/w + 0.5, 0), 1) + c",
        guess: search_guess(
            &[Height, Place(0), Width(0), Offset],
            Anchor::Step,
            &[
                &[-0.4, -0.08, 0.0, 0.08, 0.4],
                &[0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6],
            ],
        ),
    },
    Builtin {
        name: "step_arctan",
        predictors: X,
        parameters: &["a", "m", "g", "c"],
        text: "a*(0.5 + atan((x - m)/g)/pi) + c",
        guess: search_guess(
            &[Height, Place(0), Width(0), Offset],
            Anchor::Step,
            STEP_GRID,
        ),
    },
    Builtin {
        name: "step_erf",
        predictors: X,
        parameters: &["a", "m", "s", "c"],
        text: "a*erfc((m - x)/(s*sqrt(2)))/2 + c",
        guess: search_guess(
            &[Height, Place(0), Width(0), Offset],
            Anchor::Step,
            STEP_GRID,
        ),
    },
    // The exponent is limited to 80, where the value is negligible, so that the derivative does not overflow.
    Builtin {
        name: "step_logistic",
        predictors: X,
        parameters: &["a", "m", "s", "c"],
        text: "a/(1 + exp(min((m - x)/s, 80))) + c",
        guess: search_guess(
            &[Height, Place(0), Width(0), Offset],
            Anchor::Step,
            STEP_GRID,
        ),
    },
    Builtin {
        name: "logistic",
        predictors: X,
        parameters: &["a", "k", "m"],
        text: "a/(1 + exp(min(-k*(x - m), 80)))",
        guess: search_guess(&[Height, Rate, Place(0)], Anchor::Step, GROWTH_GRID),
    },
    Builtin {
        name: "gompertz",
        predictors: X,
        parameters: &["a", "k", "m"],
        text: "a*exp(-exp(min(-k*(x - m), 80)))",
        guess: search_guess(&[Height, Rate, Place(0)], Anchor::Step, GROWTH_GRID),
    },
    // At x = 0 the derivative of the power by k has no value for n < 1.
    Builtin {
        name: "hill",
        predictors: X,
        parameters: &["a", "k", "n"],
        text: "u = (x/k)^n; a*select(x == 0, n < 0, select(u >= 1e30, 1, u/(1 + u)))",
        guess: search_guess(
            &[Height, Width(0), Exponent],
            NOT_NEGATIVE,
            &[
                &[0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0],
                &[-5.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 5.0],
            ],
        ),
    },
    Builtin {
        name: "logistic4",
        predictors: X,
        parameters: &["a", "k", "n", "c"],
        text: "u = (x/k)^n; a*select(x == 0, n < 0, select(u >= 1e30, 1, u/(1 + u))) + c",
        guess: search_guess(
            &[Height, Width(0), Exponent, Offset],
            NOT_NEGATIVE,
            &[
                &[0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0],
                &[0.5, 1.0, 2.0, 5.0],
            ],
        ),
    },
    Builtin {
        name: "sine",
        predictors: X,
        parameters: &["a", "f", "p", "c"],
        text: "a*sin(2*pi*f*x + p) + c",
        guess: search_guess(
            &[Height, Frequency, Phase(1), Offset],
            Anchor::Wave,
            &[&[-0.1, 0.0, 0.1]],
        ),
    },
    Builtin {
        name: "damped_sine",
        predictors: X,
        parameters: &["a", "k", "f", "p", "c"],
        text: "a*exp(-k*x)*sin(2*pi*f*x + p) + c",
        guess: search_guess(
            &[HeightAtZero(1), Damping, Frequency, Phase(2), Offset],
            Anchor::Wave,
            &[&[-0.5, 0.0, 1.0], &[-0.1, 0.0, 0.1]],
        ),
    },
    // b is the asymptotic series of Ciotti & Bertin 1999, eq. 18.
    Builtin {
        name: "sersic",
        predictors: X,
        parameters: &["a", "re", "n"],
        text: "b = 2*n - 1/3 + 4/(405*n) + 46/(25515*n^2) + 131/(1148175*n^3) - 2194697/(30690717750*n^4); \
               a*exp(b*(1 - select(x == 0, 0, (x/re)^(1/n))))",
        guess: search_guess(
            &[Height, Width(0), Exponent],
            NOT_NEGATIVE,
            &[
                &[0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0],
                &[0.6, 1.0, 2.0, 4.0, 7.0],
            ],
        ),
    },
    Builtin {
        name: "power_law",
        predictors: X,
        parameters: &["a", "k"],
        text: "a*x^k",
        guess: search_guess(&[HeightAtOne(1), Shape], POSITIVE, &[EXPONENT_GRID]),
    },
    Builtin {
        name: "power_law_offset",
        predictors: X,
        parameters: &["a", "k", "c"],
        text: "a*x^k + c",
        guess: search_guess(&[HeightAtOne(1), Shape, Offset], POSITIVE, &[EXPONENT_GRID]),
    },
    // The term with sign makes the angle range from -1/4 to 3/4 of a turn.
    Builtin {
        name: "fletcher_powell_helix",
        predictors: X,
        parameters: &["p1", "p2", "p3"],
        text: "x*(2 - x)*10*(sqrt(p1^2 + p2^2) - 1) + x*(x - 1)/2*p3 \
               + (x - 1)*(x - 2)*5*(p3 - 10*(atan(p2/p1)/(2*pi) + (1 - sign(p1))/4))",
        guess: GuessMethod::Fixed(&[-1.0, 0.0, 0.0]),
    },
    // x = 0, 1, … as Gpufit numbers the residuals; the 20 residuals of the problem are x = 1 to 20.
    Builtin {
        name: "brown_dennis",
        predictors: X,
        parameters: &["p1", "p2", "p3", "p4"],
        text: "(p1 + p2*x/5 - exp(x/5))^2 + (p3 + p4*sin(x/5) - cos(x/5))^2",
        guess: GuessMethod::Fixed(&[25.0, 5.0, -5.0, -1.0]),
    },
];
