use crate::math::lanes::{LANES, Lanes};
use crate::solver::small::{LaneBlock, LaneGrid};

use super::*;

/// Formulas with parameters inside of their domains.
const FORMULAS: [(&str, &[f64]); 32] = [
    ("a*exp(-(x-m)^2/(2*s^2)) + c", &[2.0, 1.0, 0.5, 0.1]),
    ("b1*(b2 + x)**(-1/b3)", &[-2500.0, 40.0, 0.9]),
    ("b1/(1 + exp(b2 - b3*x))**(1/b4)", &[700.0, 5.0, 0.7, 1.3]),
    (
        "b1*(x**2 + x*b2)/(x**2 + x*b3 + b4)",
        &[0.2, 0.2, 0.1, 0.14],
    ),
    (
        "b1 - b2*x - atan(b3/(x - b4))/pi",
        &[0.2, 1e-3, 100.0, -3.0],
    ),
    ("a*sin(b*x)*cos(c*x) + tan(d*x)", &[1.0, 0.3, 0.7, 0.2]),
    ("asin(a*x) + acos(b*x) - arctan(c*x)", &[0.3, -0.4, 2.0]),
    ("sinh(a*x) - cosh(b*x)*tanh(c*x)", &[0.3, -0.4, 2.0]),
    (
        "ln(a + x) + log(b*x) + log10(c*x) - log2(d + x)",
        &[2.0, 0.4, 2.0, 3.0],
    ),
    ("sqrt(a*x) + cbrt(b*x) - abs(c*x)", &[2.0, 0.4, -2.0]),
    ("a*erf((x - b)/c)", &[2.0, 1.2, 0.6]),
    ("a*erfc((x - b)/c) + expm1(-b*x)*c", &[2.0, 1.2, 0.6]),
    ("asinh(a*x) - arcsinh(-b/x) + log1p(c*x)", &[2.0, 1.2, 0.6]),
    ("a*acosh(1 + b*x) + arctanh(c*x)", &[2.0, 1.2, 0.4]),
    (
        "atan2(a*x, b) + min(a*x, c) + max(b*x, c*x)",
        &[0.7, 0.4, 1.1],
    ),
    (
        "a^x + x^b + pow(a, b) + a^-3 + b^0.5 + a^(-0.5)",
        &[0.7, 0.4],
    ),
    ("-a^2^b/-x", &[1.3, 0.4]),
    ("a - (b - x) - -c + +x", &[1.3, 0.4, 0.2]),
    ("2e-1*a*x + .5*x*a*3.E+1", &[1.0]),
    ("e^(a*x)*pi - a*0 + 0/a + x*1", &[0.4]),
    ("a*x*(a*x)*(a*x) - (a*x)^7/(a*x)", &[0.4]),
    ("(a - a)*x + (a + x)/(a + x)*b", &[0.4, 2.0]),
    ("1/(a*x) - -(x/-a) + (-x)*(-a)", &[0.4]),
    ("sign(x - a)*b", &[0.4, 3.0]),
    (
        "t = (x - m)/s; u = t*t; a*exp(-u/2)*(1 + b*u*t) + c",
        &[1.2, 0.6, 2.0, 0.3, 0.1],
    ),
    (
        "hypot(a*x, b) + copysign(a, x - b)*hypot(x, -a)",
        &[1.3, 0.455],
    ),
    ("select(x < c, a*x, a*c*(x/c)^b)", &[2.0, 0.7, 0.7555]),
    (
        "(0.5 <= x and x < 0.9 or x == 1.2)*a + (x != 0.7)*b*x + heaviside(x - c, d)",
        &[2.0, 0.4, 0.7555, 0.3],
    ),
    (
        "a*gamma(b*x) + lgamma(c*x)*gamma(x - c) - gammaln(d - x)",
        &[2.0, 1.4, 0.4, 0.2345],
    ),
    ("a*select(x > 0.7, sqrt(x - 0.7*b), 0)", &[2.0, 0.95]),
    (
        "a*faddeeva_re(x - b, c*x) + b*faddeeva_im(a*x, b - c)",
        &[2.0, 0.95, 0.3],
    ),
    (
        "a*voigt(x - m, s, g) + voigt(20*x, g - m, s) + a*voigt(x, s, -g/9)",
        &[2.0, 0.9, 0.3, 0.2],
    ),
];

/// Checks derivatives against central differences, whose own error is about 1e-9 of the value and of the slope.
fn assert_derivatives_meet_differences(formula: &Formula, x: &[f64], parameters: &[f64]) {
    let points = x.len() / formula.predictors().len();
    let rows = formula.linearise(x, parameters).unwrap();
    assert!(
        rows.iter().all(|v| v.is_finite()),
        "{}: {rows:?}",
        formula.text()
    );
    assert_eq!(
        rows[..points],
        formula.values(x, parameters).unwrap(),
        "{}",
        formula.text()
    );
    for p in 0..parameters.len() {
        let step = 1e-6 * parameters[p].abs().max(1e-3);
        let values_at = |offset: f64| {
            let mut moved = parameters.to_vec();
            moved[p] += offset;
            formula.values(x, &moved).unwrap()
        };
        let low = values_at(-step);
        let high = values_at(step);
        for j in 0..points {
            let difference = (high[j] - low[j]) / (2.0 * step);
            let slope = rows[(1 + p) * points + j];
            let scale = slope.abs() + 1e-3 * rows[j].abs() / step.max(1e-6) * 1e-3;
            assert!(
                (difference - slope).abs() <= 1e-6 * scale.max(1e-3),
                "{} {p}: {difference} {slope}",
                formula.text()
            );
        }
    }
}

#[test]
fn every_derivative_assert_derivatives_meet_differences() {
    // More points than a block has, and not a whole number of blocks.
    let x: Vec<f64> = (0..131).map(|j| 0.3 + 0.009 * f64::from(j)).collect();
    for (text, parameters) in FORMULAS {
        assert_derivatives_meet_differences(&Formula::parse(text).unwrap(), &x, parameters);
    }
}

#[test]
fn every_builtin_assert_derivatives_meet_differences() {
    for name in Formula::builtins() {
        let formula = Formula::builtin(name).unwrap();
        let parameters: Vec<f64> = (0..formula.parameters().len())
            .map(|p| 0.6 + 0.17 * p as f64)
            .collect();
        let x: Vec<f64> = (0..70 * formula.predictors().len())
            .map(|j| 0.2 + 0.013 * j as f64)
            .collect();
        assert_derivatives_meet_differences(&formula, &x, &parameters);
    }
    let cubic = Formula::builtin("polynomial(3)").unwrap();
    assert_eq!(cubic.parameters(), ["c0", "c1", "c2", "c3"]);
    assert_eq!(cubic.value(&[2.0], &[1.0, 2.0, 3.0, 4.0]).unwrap(), 49.0);
    let message = Formula::builtin("gaus2d").unwrap_err().to_string();
    assert!(message.contains("`gauss2d`"), "{message}");
}

#[test]
fn values_are_those_of_the_same_expression_in_rust() {
    let value = |text: &str, p: &[f64]| Formula::parse(text).unwrap().value(&[1.5], p).unwrap();
    assert_eq!(value("-a^2", &[3.0]), -9.0);
    assert_eq!(value("2^3^a", &[2.0]), 512.0);
    assert_eq!(value("2^-a", &[2.0]), 0.25);
    assert_eq!(value("a - 1 - 2", &[2.0]), -1.0);
    assert_eq!(value("8/4/a", &[2.0]), 1.0);
    assert_eq!(value("-a*x", &[2.0]), -3.0);
    assert_eq!(value("a**-2", &[2.0]), 0.25);
    assert_eq!(value("a + 0*x^2", &[2.0]), 2.0);
    assert_eq!(value("a*ln(e) + cos(pi)", &[2.0]), 1.0);
    assert_eq!(value("a*sin(π/2) + x₀*0", &[2.0, 1.0]), 2.0);
    assert_eq!(
        value("max(a, x, b, 1) - 10*min(b, a, x)", &[3.0, -2.0]),
        23.0
    );
    for (text, exact) in [
        ("a*expm1(1e-10)", 1.000_000_000_05e-10),
        ("a*log1p(1e-10)", 0.999_999_999_95e-10),
        ("a*asinh(1e-10)", 1e-10),
        ("a*acosh(1 + 2^-40)", 1.348_699_152_348_507e-6),
        ("a*atanh(1e-10)", 1e-10),
        ("a*erfc(5)", 1.537_459_794_428_035e-12),
        ("hypot(a*3e200, 4e200)", 5e200),
        ("a*gamma(4.5)", 11.631_728_396_567_448),
        ("a*lgamma(-1.5)", 0.860_047_015_376_481_1),
        ("lgamma(a + 2^-20)", -5.504_750_066_148_867e-7),
        ("a*voigt(x, 0.3, 0.2)", 0.031_834_761_006_159_04),
        ("a*voigt(x, -1.2, 0)", 0.152_207_571_157_518_26),
        ("a*voigt(x - 1.5, 0.5, 1e-3)", 0.796_612_915_331_194),
        ("a*voigt(x, 0, 0.4)", 0.052_831_516_379_052_394),
        ("a*voigt(x, 0.001, -0.4)", -0.052_831_576_322_973_15),
        ("a*voigt(x, 0, -0.4)", -0.052_831_516_379_052_394),
        ("a*voigt(x, 1e-300, 0.4)", 0.052_831_516_379_052_394),
        ("a*faddeeva_re(-x, 0.001)", 0.105_720_158_703_314_26),
        ("-a*faddeeva_im(-x, 0.001)", 0.482_911_133_898_116_6),
    ] {
        assert!((value(text, &[1.0]) / exact - 1.0).abs() < 1e-15, "{text}");
    }
    // x is 1.5
    for (text, exact) in [
        ("a*(1 + (x < 2)*10 + (x > 2)*100)", 22.0),
        (
            "a*((x <= 1.5) + 10*(x >= 1.5) + 100*(x == 1.5) + 1000*(x != 1.5))",
            222.0,
        ),
        ("a*(1 < x and x < 2 or x/0.0001 < 0)", 2.0),
        ("a*(x and a and 0 < 1) + (0*a or 0)", 2.0),
        (
            "10*(a > 1 or a > 3 and 0) + (a > 1 and x > 2 or a > 1 and x > 1)",
            11.0,
        ),
        ("heaviside(0*a, 0.1)", 0.1),
        (
            "t = (x - 1.5)/(x - 1.5); (t < 1) + 10*(t != 1) + 100*select(t, 1, a)",
            110.0,
        ),
        ("a < x + 1 and 2*a > x", 1.0),
        ("-a < x", 1.0),
        ("a*select(x > 1, 3, 1/(x - 1.5))", 6.0),
        ("select(x < 1, log(-a), a)", 2.0),
        ("select(a, x, 0)", 1.5),
        (
            "a*heaviside(x - 1.5, 0.25) + heaviside(x, a) + heaviside(-x, a)",
            1.5,
        ),
        ("copysign(a, -x) + 10*copysign(-a, x)", 18.0),
        ("hypot(a*1.5, 4)", 5.0),
        ("hypot(0, x - 1.5) + a", 2.0),
    ] {
        assert_eq!(value(text, &[2.0]), exact, "{text}");
    }
    // `gamma` is a function in calls, else a parameter or a term.
    assert_eq!(value("gamma(4)*gamma/(gamma^2 + x - 1.5)", &[2.0]), 3.0);
    assert_eq!(value("gamma = a; gamma", &[2.0]), 2.0);
    assert!(
        value("heaviside(log(a), 1)", &[-1.0]).is_nan()
            && value("hypot(log(a), exp(800*x))", &[-1.0]).is_nan()
    );
    // The minimum of a cone has no slope.
    let cone = Formula::parse("hypot(x - m, x - n)").unwrap();
    assert_eq!(cone.linearise(&[1.5], &[1.5, 1.5]).unwrap(), [0.0; 3]);
    assert_eq!(
        Formula::parse("c*x + a*(x < c) + b").unwrap().linear(),
        [1, 2]
    );
    let power = Formula::parse("x^k").unwrap();
    assert_eq!(power.linearise(&[0.0], &[2.0]).unwrap(), [0.0, 0.0]);
    let plane = Formula::parse_with("a*x + b*y", &["x", "y"]).unwrap();
    assert_eq!(
        plane.values(&[1.0, 2.0, 10.0, 20.0], &[1.0, 3.0]).unwrap(),
        [31.0, 62.0]
    );
    assert!(
        plane.values(&[1.0], &[1.0, 3.0]).is_err() && plane.values(&[1.0, 2.0], &[1.0]).is_err()
    );
    assert!(
        plane.values(&[], &[1.0, 3.0]).unwrap().is_empty()
            && plane.value(&[], &[1.0, 3.0]).is_err()
    );
}

#[test]
fn named_terms_equal_their_expressions() {
    let [named, plain] = [
        "t = (x - m)/s; k = a*t; k*exp(-t^2/2) + k*b",
        "a*((x - m)/s)*exp(-((x - m)/s)^2/2) + a*((x - m)/s)*b",
    ]
    .map(|text| Formula::parse(text).unwrap());
    assert_eq!(
        (named.parameters(), named.warnings()),
        (&["m", "s", "a", "b"].map(String::from)[..], Vec::new())
    );
    let named = named.with_parameters(&["a", "m", "s", "b"]).unwrap();
    let [named_rows, plain_rows] = [&named, &plain].map(|formula| {
        formula
            .linearise(&[0.3, 1.7], &[2.0, 0.4, 0.9, 0.5])
            .unwrap()
    });
    assert_eq!(
        (named_rows, named.linearisation.count_steps()),
        (plain_rows, plain.linearisation.count_steps())
    );
}

/// Each term occurs twice in the next one, so that a text without names would double in length 200 times.
#[test]
fn terms_of_terms_are_computed_once() {
    let terms: String = (1..200)
        .map(|k| format!("t{k} = (t{p} + cos(t{p}))/2; ", p = k - 1))
        .collect();
    let formula = Formula::parse(&format!("t0 = a*x; {terms} t199")).unwrap();
    assert!(
        formula.linearisation.count_steps() < 2000,
        "{}",
        formula.linearisation.count_steps()
    );
    // The value is the fixed point of the cosine, which no longer depends on a.
    let rows = formula.linearise(&[1.0], &[0.7]).unwrap();
    assert!(
        (rows[0] - 0.739_085_133_215_160_6).abs() < 1e-15 && rows[1].abs() < 1e-15,
        "{rows:?}"
    );
}

#[test]
fn equal_expressions_are_computed_once() {
    let count_steps = |text: &str| Formula::parse(text).unwrap().linearisation.count_steps();
    assert_eq!(
        count_steps("a*exp(-k*x) + exp(-k*x)*b"),
        count_steps("a*exp(-k*x) + b*exp(-x*k)")
    );
    assert!(
        count_steps("a*exp(-(x-m)^2/(2*s^2)) + c") <= 28,
        "{}",
        count_steps("a*exp(-(x-m)^2/(2*s^2)) + c")
    );
}

#[test]
fn messages_point_at_mistakes() {
    for (text, column, part) in [
        ("", 1, "empty"),
        ("  ", 1, "empty"),
        ("a*exq(x)", 3, "did you mean `exp`"),
        ("a*frobnicate(x)", 3, "there are sin, cos"),
        ("a*(x + 1", 3, "not closed"),
        ("a*exp(x", 6, "not closed"),
        ("a*x)", 4, "closes none"),
        ("a*1.2.3*x", 3, "`1.2.3` is no number"),
        ("a*1e999", 3, "too large"),
        ("2a*x", 2, "without an operator"),
        ("a x", 3, "an operator is missing before `x`"),
        ("a*(x 2)", 6, "an operator is missing"),
        ("a*x(2)", 3, "`x` is not a function"),
        ("a + a(2)", 5, "`a` is not a function"),
        ("pi(a)", 1, "`pi` is not a function"),
        ("sin*x + a", 1, "`sin` is a function"),
        ("a*x + NaN", 7, "`NaN` is a value"),
        ("a*x*inf", 5, "rename the parameter"),
        ("a*sin(x, 2)", 8, "takes one argument"),
        ("a*atan2(x)", 10, "takes two arguments"),
        ("a*atan2(x, a, 1)", 13, "comma"),
        ("a*(x, 2)", 5, "comma"),
        ("a*select(x < 1, 2)", 18, "takes three arguments"),
        ("a*select(x < 1, 2, 3, 4)", 21, "takes three arguments"),
        ("a*max(x)", 8, "at least two"),
        ("0 < x < a", 7, "joined by `and`"),
        ("a*(x == 1 != 0)", 11, "joined by `and`"),
        ("and < x*a", 1, "missing before `and`"),
        ("a*x and", 8, "before the end"),
        ("a*x and or x", 9, "missing before `or`"),
        ("or = 2; a*or", 1, "`or` means something else"),
        ("a*(x < 1 && x > 0)", 10, "write and instead of `&&`"),
        ("a*(x < 1 | x > 0)", 10, "write or instead of `|`"),
        ("a*(x < 1 AND x > 0)", 10, "write and instead of `AND`"),
        ("a*not(x < 1)", 3, "write (condition) == 0"),
        ("a*where(x < 1, 2, 3)", 3, "write select(condition, a, b)"),
        (
            "a*voigt_profile(x, s, g)",
            3,
            "write voigt(x, sigma, gamma)",
        ),
        ("a*voigt(x, s)", 13, "takes three arguments"),
        ("a*(x = 1)", 6, "`==` compares"),
        ("a*(x ! 1)", 6, "`!` has no meaning"),
        ("a*x >= ", 8, "before the end"),
        ("a*x >=== 2", 7, "before `==`"),
        ("a* /x", 4, "is missing before `/`"),
        ("a*x +", 6, "before the end"),
        ("a*sin()", 7, "before `)`"),
        ("a ? x", 3, "`?` has no meaning"),
        ("é*x = a", 5, "`=` has no meaning"),
        ("y = a*x", 3, "only what is right of `=`"),
        ("np.exp(-a*x)", 3, "`.` has no meaning"),
        ("f(x) = a*x", 6, "only what is right of it"),
        ("t = x - m; a*x", 1, "`t` is not used"),
        ("t = x - m;", 11, "before the end"),
        ("t = x - m; ; a*t", 12, "before `;`"),
        ("t = (x - m; a*t", 11, "`;` has no meaning"),
        ("t = x - m = 2; a*t", 11, "`=` has no meaning"),
        ("a*x; b", 4, "`;` has no meaning"),
        ("x = 2; a*x", 1, "`x` means something else"),
        ("pi = 3; a*x*pi", 1, "`pi` means something else"),
        ("nan = 3; a*x*nan", 1, "`nan` means something else"),
        ("t = x; t = m; a*t", 8, "defined twice"),
        ("t = t + x; a*t", 1, "before the end of its definition"),
        (
            "u = t*x; t = m; a*t*u",
            10,
            "before the end of its definition",
        ),
        ("t = x; a*t(2)", 10, "`t` is not a function"),
        ("t = 2; t*x", 1, "no parameter"),
        ("a*x² + c", 4, "write ^2 instead of `²`"),
        ("a*2¹⁰*x", 4, "write ^10 instead of `¹⁰`"),
        ("a·x", 2, "write * instead of `·`"),
        ("a*x − 1", 5, "write - instead of `−`"),
        ("a*½*x", 3, "`½` has no meaning"),
        ("1/0*a*x", 2, "not a finite number"),
        ("x + a/(1 - 1)", 6, "divides by zero"),
        ("a*x + (2 - 2)^-1", 14, "not a finite number"),
        ("a*x*ln(0)", 5, "not a finite number"),
        ("a*atan2(1e308*10, 1)*x", 14, "not a finite number"),
        ("a*pow(0, -1.5)", 3, "not a finite number"),
        ("x + 1", 1, "no parameter"),
    ] {
        match Formula::parse(text) {
            Err(Error::Formula {
                column: reported,
                message,
                ..
            }) => {
                assert!(
                    reported == column && message.contains(part),
                    "{text:?}: {reported}: {message}"
                );
            }
            outcome => panic!("{text:?}: {outcome:?}"),
        }
    }
    let message = Formula::parse("a*exq(x)").unwrap_err().to_string();
    assert!(message.ends_with("\n  a*exq(x)\n    ^"), "{message}");
    assert!(
        Formula::parse(&"(".repeat(5000)).is_err() && Formula::parse(&"-".repeat(5000)).is_err()
    );
    assert!(Formula::parse(&"a+".repeat(20_000)).is_err());
    assert!(Formula::parse(&format!("a{}", "+a*x".repeat(2000))).is_ok());
    for predictors in [
        &["sin"][..],
        &["and"],
        &["x", "x"],
        &["e"],
        &["2"],
        &[""],
        &[],
    ] {
        assert!(
            matches!(
                Formula::parse_with("a*x", predictors),
                Err(Error::InvalidArgument { .. })
            ),
            "{predictors:?}"
        );
    }
}

#[test]
fn parameters_may_be_missing_in_the_text_but_not_in_the_list() {
    let parse = |text: &str, names: &[&str]| Formula::parse_exactly(text, &["x"], names);
    let line = parse("b*x", &["a", "b"]).unwrap();
    assert_eq!(
        line.linearise(&[3.0], &[7.0, 2.0]).unwrap(),
        [6.0, 0.0, 3.0]
    );
    assert!(line.warnings()[0].contains("`a`"), "{:?}", line.warnings());
    assert_eq!(
        parse("1 + x", &["a"])
            .unwrap()
            .value(&[3.0], &[7.0])
            .unwrap(),
        4.0
    );
    match parse("ab*x + b", &["ab"]) {
        Err(Error::Formula {
            column: 8, message, ..
        }) => assert!(message.contains("`b` is neither"), "{message}"),
        outcome => panic!("{outcome:?}"),
    }
    for (text, column, part) in [
        ("gamma(x)*a + gamma", 14, "`gamma` is neither"),
        ("t = x - a; b*t", 12, "`b` is neither"),
        ("a = x; 2*a", 1, "`a` is a parameter"),
    ] {
        match parse(text, &["a"]) {
            Err(Error::Formula {
                column: reported,
                message,
                ..
            }) => {
                assert!(
                    reported == column && message.contains(part),
                    "{text}: {reported}: {message}"
                );
            }
            outcome => panic!("{text}: {outcome:?}"),
        }
    }
    let names_of_65: Vec<String> = (0..65).map(|k| format!("p{k}")).collect();
    let names_of_65: Vec<&str> = names_of_65.iter().map(String::as_str).collect();
    assert!(parse("p64*x", &names_of_65).is_err() && parse("p63*x", &names_of_65[..64]).is_ok());
    for names in [&[][..], &["a", "a"], &["x"], &["pi"], &["nan"], &["2a"]] {
        assert!(
            matches!(parse("a*x", names), Err(Error::InvalidArgument { .. })),
            "{names:?}"
        );
    }
}

/// Values in f32 lie within their bound of those in f64, which is no more than 100 times too large.
#[test]
fn rounding_errors_stay_within_their_bounds() {
    let pseudorandom = |k: usize| 0.5 + (k as f32 * 0.618_034).fract();
    let points = 9;
    let mut n_checked = 0;
    for name in Formula::builtins() {
        let formula = Formula::builtin(name).unwrap();
        let Some(rounding) = formula.rounding() else {
            continue;
        };
        n_checked += 1;
        // 1. Evaluate the model in f32, a point in parameter space in each lane. The first parameter has either sign.
        let p = formula.parameters().len();
        let stride = 1 + p;
        let random_lanes =
            |i: usize| Lanes(std::array::from_fn(|l| pseudorandom(7 + i * LANES + l)));
        let mut parameters: Vec<Lanes<f32>> = (0..p).map(random_lanes).collect();
        parameters[0].0.iter_mut().step_by(2).for_each(|a| *a = -*a);
        let x: Vec<f32> = (0..formula.predictors().len() * points)
            .map(|k| 2.0 * pseudorandom(1001 + k))
            .collect();
        let mut rows = vec![Lanes::splat(f32::NAN); points * stride];
        formula.lanes()(LaneBlock {
            points: 0..points,
            of_points: points,
            grid: LaneGrid::Shared(&x),
            parameters: &parameters,
            registers: &mut Vec::new(),
            y: &[],
            rows: &mut rows,
            stride,
        });
        // 2. Compare the norms of the errors with their bounds.
        let x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let mut largest_share = 0.0f64;
        for l in 0..LANES {
            let parameters: Vec<f64> = parameters.iter().map(|x| f64::from(x.0[l])).collect();
            let exact = formula.values(&x, &parameters).unwrap();
            let column = |k: usize| {
                rows[k..]
                    .iter()
                    .step_by(stride)
                    .map(|row| f64::from(row.0[l]))
            };
            let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
            let error = norm(&mut column(0).zip(exact).map(|(a, b)| a - b));
            let exponent_size: f64 = rounding
                .exponents
                .iter()
                .map(|&(p, factor)| {
                    f64::from(factor) * parameters[p].abs() * norm(&mut column(1 + p))
                })
                .sum();
            let bound = f64::from(rounding.of_exponent) * exponent_size
                + f64::from(rounding.others) * parameters[0].abs() * norm(&mut column(1))
                + norm(&mut column(0));
            largest_share = largest_share.max(error * 16_777_216.0 / bound);
        }
        assert!(
            largest_share > 0.01 && largest_share <= 1.0,
            "{name}: {largest_share} of the bound"
        );
    }
    assert_eq!(n_checked, 5);
}

#[test]
fn warnings_list_names_that_differ_by_case() {
    let warnings = |text: &str| Formula::parse(text).unwrap().warnings();
    assert!(warnings("a*exp(-k*x) + y*pi + gamma").is_empty());
    assert_eq!(
        warnings("AND*x"),
        ["`AND` is taken as a parameter; did you mean the operator `and`?"]
    );
    let [x, pi, exp] = [
        ("X", "predictor `x`"),
        ("PI", "constant `pi`"),
        ("Exp", "function `exp`"),
    ]
    .map(|(name, meant)| format!("`{name}` is taken as a parameter; did you mean the {meant}?"));
    assert_eq!(warnings("a*X*PI + Exp*x"), [x, pi, exp]);
    assert_eq!(
        warnings("T = a*x; T + t"),
        ["`t` is taken as a parameter; did you mean the term `T`?"]
    );
}

#[test]
fn warnings_list_unused_predictors_and_flat_parameters() {
    let warnings =
        |text: &str, predictors: &[&str]| Formula::parse_with(text, predictors).unwrap().warnings();
    let expected = "the predictor `x` is not used, and `a`, `t`, `tau` are parameters; `Formula::parse_with` names \
                    other predictors";
    assert_eq!(warnings("a*exp(-t/tau)", &["x"]), [expected]);
    assert!(warnings("a*exp(-t/tau)", &["t"]).is_empty());
    assert!(warnings("a*x + b*y + c", &["x", "z"])[0].starts_with("the predictor `z` is not used"));
    let expected = "the derivative by `knee` is zero everywhere, so that no data determine it";
    assert_eq!(warnings("select(x < knee, a, b)", &["x"]), [expected]);
    // A formula of one parameter, such as the mean of the data, needs no predictor.
    assert!(warnings("mean", &["x"]).is_empty());
}
