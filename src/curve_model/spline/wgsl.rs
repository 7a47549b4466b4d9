//! The function `fill` of a spline for the custom kernel.

use super::SplineAxis;

const KNOTS_WGSL: &str = include_str!("knots.wgsl");

/// Returns the WGSL function `fill` that evaluates a spline over `axes` with the coefficients in `table`, with
/// `derivatives` also those by each parameter.
pub fn write_fill(axes: &[SplineAxis], derivatives: bool) -> String {
    let count = axes.len();
    let predictor_type = if count == 1 {
        "f32".to_owned()
    } else {
        format!("array<f32, {count}>")
    };
    let rows = if derivatives { count + 3 } else { 1 };
    // 1. Statements for the value: knots and digits of each axis, the index of a coefficient, sums and outputs.
    let mut knots = String::new();
    let mut digits = String::new();
    let mut index = "0u".to_owned();
    let mut sums = format!("        s += {};\n", write_product(count, None));
    let mut outputs = format!("    (*out)[0] = (*u)[0] * s + (*u)[{}];\n", count + 1);
    for (d, axis) in axes.iter().enumerate() {
        let x = if count == 1 {
            "x".to_owned()
        } else {
            format!("x[{d}]")
        };
        let first = write_literal(axis.first);
        let inverse_step = write_literal(1.0 / axis.step);
        knots += &format!(
            "    let k{d} = spline_knots((({x} - {first}) - (*u)[{}]) * {inverse_step}, {}u);\n    var d{d} = 0.0;\n",
            d + 1,
            axis.count
        );
        digits += &format!("        let i{d} = (k >> {}u) & 3u;\n", 2 * (count - 1 - d));
        index = format!("({index}) * {}u + k{d}.cell + i{d}", axis.count + 2);
        // 2. The derivative by the shift along this axis.
        if derivatives {
            sums += &format!("        d{d} += {};\n", write_product(count, Some(d)));
            outputs += &format!(
                "    (*out)[{}] = -(*u)[0] * d{d} * {inverse_step};\n",
                d + 2
            );
        }
    }
    // 3. The derivatives by amplitude and offset.
    if derivatives {
        outputs += &format!("    (*out)[1] = s;\n    (*out)[{}] = 1.0;\n", count + 2);
    }
    format!(
        "{KNOTS_WGSL}
fn fill(x: {predictor_type}, u: ptr<function, array<f32, {}>>, out: ptr<function, array<f32, {rows}>>) {{
{knots}    var s = 0.0;
    for (var k = 0u; k < {}u; k++) {{
{digits}        let c = table[{index}];
{sums}    }}
{outputs}}}\n",
        count + 2,
        1 << (2 * count)
    )
}

/// Returns the WGSL product of a coefficient `c` and each axis' B-spline value, or for the axis `slope` its derivative.
fn write_product(count: usize, slope: Option<usize>) -> String {
    let mut product = "c".to_owned();
    for d in 0..count {
        let field = if slope == Some(d) { "slope" } else { "value" };
        product += &format!(" * k{d}.{field}[i{d}]");
    }
    product
}

/// Returns a WGSL literal of a number, in f32.
fn write_literal(value: f64) -> String {
    format!("{:?}f", value.clamp(-3e38, 3e38) as f32)
}
