//! The function `fill` of a spline for the custom kernel.

use super::SplineAxis;

const KNOTS: &str = include_str!("knots.wgsl");

/// Returns the WGSL function `fill` that evaluates a spline over `axes` with the coefficients in `table`, with
/// `derivatives` also those by each parameter.
pub fn fill(axes: &[SplineAxis], derivatives: bool) -> String {
    let count = axes.len();
    let kind = if count == 1 {
        "f32".to_owned()
    } else {
        format!("array<f32, {count}>")
    };
    let rows = if derivatives { count + 3 } else { 1 };
    let (mut knots, mut digits, mut place) = (String::new(), String::new(), "0u".to_owned());
    let mut sums = format!("        s += {};\n", product(count, None));
    let mut outputs = format!("    (*out)[0] = (*u)[0] * s + (*u)[{}];\n", count + 1);
    for (d, axis) in axes.iter().enumerate() {
        let x = if count == 1 {
            "x".to_owned()
        } else {
            format!("x[{d}]")
        };
        let (first, inverse) = (literal(axis.first), literal(1.0 / axis.step));
        knots += &format!(
            "    let k{d} = spline_knots((({x} - {first}) - (*u)[{}]) * {inverse}, {}u);\n    var d{d} = 0.0;\n",
            d + 1,
            axis.count
        );
        digits += &format!("        let i{d} = (k >> {}u) & 3u;\n", 2 * (count - 1 - d));
        place = format!("({place}) * {}u + k{d}.cell + i{d}", axis.count + 2);
        if derivatives {
            sums += &format!("        d{d} += {};\n", product(count, Some(d)));
            outputs += &format!("    (*out)[{}] = -(*u)[0] * d{d} * {inverse};\n", d + 2);
        }
    }
    if derivatives {
        outputs += &format!("    (*out)[1] = s;\n    (*out)[{}] = 1.0;\n", count + 2);
    }
    format!(
        "{KNOTS}
fn fill(x: {kind}, u: ptr<function, array<f32, {}>>, out: ptr<function, array<f32, {rows}>>) {{
{knots}    var s = 0.0;
    for (var k = 0u; k < {}u; k++) {{
{digits}        let c = table[{place}];
{sums}    }}
{outputs}}}\n",
        count + 2,
        1 << (2 * count)
    )
}

/// Returns the WGSL product of a coefficient `c` and each axis' B-spline value, or for the axis `slope` its derivative.
fn product(count: usize, slope: Option<usize>) -> String {
    let factor = |d: usize| {
        format!(
            " * k{d}.{}[i{d}]",
            if slope == Some(d) { "slope" } else { "value" }
        )
    };
    format!("c{}", (0..count).map(factor).collect::<String>())
}

/// Returns a WGSL literal of a number, in f32.
fn literal(value: f64) -> String {
    format!("{:?}f", value.clamp(-3e38, 3e38) as f32)
}
