//! Tests of the functions of `shaders/shared/` on the adapter, against f64.

use half::f16;

use super::adapter::{self, AdapterChoice};
use super::context::{GpuContext, Options};
use super::pipelines::Unbound;
use super::{buffers, pipelines, readback};
use crate::Result;
use crate::math::faddeeva::{CURVATURE_RE, FaddeevaPart, IM, RE, SLOPE_IM, SLOPE_RE};
use crate::math::gamma::digamma;
use popfit_testing::required::{Need, skip};

/// Opens the best adapter; `None`, with a printed line, where there is none and none is required.
fn open_context() -> Option<GpuContext> {
    let context = adapter::choose_adapter(AdapterChoice::Best)
        .and_then(|(_, adapter)| GpuContext::open(adapter, Options::default()));
    context.map_err(|error| skip(Need::Gpu, error)).ok()
}

/// Returns the values of the WGSL `expression` of x at all points.
fn evaluate_expression(context: &GpuContext, expression: &str, points: &[f32]) -> Result<Vec<f32>> {
    let mut constants = crate::kernels::source::Constants::default();
    constants.line("@group(0) @binding(0) var<storage, read> points: array<f32>;");
    constants.line("@group(0) @binding(1) var<storage, read_write> values: array<f32>;");
    let text = format!(
        "@compute @workgroup_size(64)\nfn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n\
         if id.x < arrayLength(&points) {{ let x = points[id.x]; values[id.x] = {expression}; }}\n}}"
    );
    let source = crate::kernels::source::WgslSource::join(
        &constants,
        "test",
        &text,
        &["functions", "gamma", "faddeeva", "activation", "halves"],
        None,
    );
    let module = pipelines::compile_module(context, "test", &source)?;
    let Unbound { pipeline, layout } =
        pipelines::make_pipeline(context, "test", &module, &[false, true]);
    let usage =
        wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
    let buffers =
        ["points", "values"].map(|name| buffers::create_buffer(context, name, points.len(), usage));
    let group = pipelines::bind_buffers(context, &layout, buffers.iter());
    context
        .queue
        .write_buffer(&buffers[0], 0, bytemuck::cast_slice(points));
    let mut encoder = context
        .device
        .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups(points.len().div_ceil(64) as u32, 1, 1);
    drop(pass);
    let target = buffers::create_readback(context, points.len());
    pollster::block_on(readback::copy_and_read(
        context,
        encoder,
        &buffers[1],
        &target,
        points.len(),
    ))
}

/// Returns the largest relative error (absolute below `floor`) over `range`.
fn largest_error(
    context: &GpuContext,
    expression: &str,
    exact: impl Fn(f64) -> f64,
    range: (f32, f32),
    floor: f64,
) -> f64 {
    let (first, last) = range;
    let points: Vec<f32> = (0..20_001)
        .map(|i| first + (last - first) * i as f32 / 20_000.0)
        .collect();
    let values = evaluate_expression(context, expression, &points).expect("the shader runs");
    let relative_error = |(x, y): (&f32, &f32)| {
        let exact = exact(f64::from(*x));
        let error = (f64::from(*y) - exact).abs() / exact.abs().max(floor);
        if error.is_nan() { f64::INFINITY } else { error }
    };
    points
        .iter()
        .zip(&values)
        .map(relative_error)
        .fold(0.0, f64::max)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn normal_cumulative(x: f64) -> f64 {
    0.5 * libm::erfc(-x / 2f64.sqrt())
}

#[test]
fn elementary_functions_are_accurate() {
    let Some(context) = open_context() else {
        return;
    };
    type Case = (&'static str, fn(f64) -> f64, (f32, f32), f64, f64);
    // Half a unit in the last place is 6e-8, so 2.5e-7 is two units. A tail e^(-x^2) also carries the rounding of x^2.
    let cases: [Case; 13] = [
        ("expf(x)", f64::exp, (-87.0, 88.0), 0.0, 2.5e-7),
        ("expf(x)", f64::exp, (-1.0, 1.0), 0.0, 2e-7),
        ("logf(x)", f64::ln, (1e-6, 3.0), 1e-6, 2.5e-7),
        ("logf(x)", f64::ln, (0.99, 1.01), 1e-9, 2.5e-7),
        ("logf(x)", f64::ln, (3.0, 1e30), 0.0, 2e-7),
        ("sigmoid(x)", sigmoid, (-80.0, 30.0), 0.0, 3e-7),
        ("tanhf(x)", f64::tanh, (-12.0, 12.0), 1e-9, 3e-7),
        ("tanhf(x)", f64::tanh, (-0.01, 0.01), 1e-9, 2e-7),
        ("erff(x)", libm::erf, (-6.0, 6.0), 1e-9, 3e-7),
        (
            "normal_cumulative(x)",
            normal_cumulative,
            (-4.0, 9.0),
            0.0,
            3e-6,
        ),
        ("silu(x).x", |x| x * sigmoid(x), (-20.0, 20.0), 1e-9, 4e-7),
        (
            "gelu(x).x",
            |x| x * normal_cumulative(x),
            (-9.0, 9.0),
            1.0,
            3e-7,
        ),
        (
            "exp_clipped(x, 80.0).x",
            |x| x.clamp(-80.0, 80.0).exp(),
            (-90.0, 90.0),
            0.0,
            2.5e-7,
        ),
    ];
    for (expression, exact, range, floor, tolerance) in cases {
        let error = largest_error(&context, expression, exact, range, floor);
        println!("{expression} on {range:?}: {error:.2e}");
        assert!(
            error <= tolerance,
            "{expression} on {range:?}: {error:e} > {tolerance:e}"
        );
    }
}

#[test]
fn functions_of_formulas_are_accurate() {
    let Some(context) = open_context() else {
        return;
    };
    type Case = (&'static str, fn(f64) -> f64, (f32, f32), f64, f64);
    // The errors of sine and cosine are absolute near their zeros, where the argument's own rounding counts.
    let cases: [Case; 45] = [
        ("sinf(x)", f64::sin, (-1.6, 1.6), 1e-9, 2.5e-7),
        ("sinf(x)", f64::sin, (-300.0, 300.0), 1.0, 2e-7),
        ("cosf(x)", f64::cos, (-300.0, 300.0), 1.0, 2e-7),
        ("cosf(x)", f64::cos, (-9000.0, 9000.0), 1.0, 1e-6),
        ("tanf(x)", f64::tan, (-1.5, 1.5), 1e-9, 6e-7),
        ("asinf(x)", f64::asin, (-1.0, 1.0), 1e-9, 4e-7),
        ("acosf(x)", f64::acos, (-1.0, 0.99), 0.0, 4e-7),
        ("atanf(x)", f64::atan, (-30.0, 30.0), 1e-9, 3e-7),
        ("atan2f(x, -0.5)", |x| x.atan2(-0.5), (0.01, 9.0), 0.0, 3e-7),
        (
            "atan2f(0.5, x)",
            |x| 0.5f64.atan2(x),
            (-9.0, 9.0),
            0.0,
            3e-7,
        ),
        ("sinhf(x)", f64::sinh, (-20.0, 20.0), 1e-9, 4e-7),
        ("coshf(x)", f64::cosh, (-20.0, 20.0), 0.0, 4e-7),
        ("expm1f(x)", f64::exp_m1, (-20.0, 80.0), 1e-30, 5e-7),
        ("expm1f(x)", f64::exp_m1, (-1.1, 1.1), 1e-30, 5e-7),
        ("expm1f(x)", f64::exp_m1, (-1e-6, 1e-6), 1e-30, 1.5e-7),
        ("log1pf(x)", f64::ln_1p, (-0.999, 2.0), 1e-30, 4e-7),
        ("log1pf(x)", f64::ln_1p, (2.0, 1e9), 0.0, 2e-7),
        ("log1pf(x)", f64::ln_1p, (-1e-6, 1e-6), 1e-30, 1.5e-7),
        ("asinhf(x)", f64::asinh, (-5.0, 5.0), 1e-30, 7e-7),
        ("asinhf(x)", f64::asinh, (-1e-6, 1e-6), 1e-30, 2.5e-7),
        ("asinhf(x)", f64::asinh, (10.0, 1e30), 0.0, 3e-7),
        ("acoshf(x)", libm::acosh, (1.0, 1.001), 1e-30, 7e-7),
        ("acoshf(x)", libm::acosh, (1.0, 1e30), 1e-30, 7e-7),
        ("atanhf(x)", f64::atanh, (-0.9999, 0.9999), 1e-30, 7e-7),
        ("atanhf(x)", f64::atanh, (-1e-6, 1e-6), 1e-30, 2.5e-7),
        ("erfcf(x)", libm::erfc, (-4.0, 1.0), 0.0, 1e-6),
        ("erfcf(x)", libm::erfc, (1.0, 8.9), 0.0, 1e-6),
        ("cbrtf(x)", f64::cbrt, (-20.0, 20.0), 1e-6, 3e-7),
        ("log10f(x)", f64::log10, (1e-3, 30.0), 1e-3, 3e-7),
        ("log2f(x)", f64::log2, (1e-3, 30.0), 1e-3, 3e-7),
        ("hypotf(x, 0.5)", |x| x.hypot(0.5), (-9.0, 9.0), 0.0, 3e-7),
        (
            "hypotf(2e25, x)",
            |x| x.hypot(2e25),
            (-8e25, 8e25),
            0.0,
            3e-7,
        ),
        ("gammaf(x)", libm::tgamma, (0.01, 4.0), 0.0, 1e-6),
        ("gammaf(x)", libm::tgamma, (4.0, 35.0), 0.0, 3e-6),
        ("gammaf(x)", libm::tgamma, (-2.95, -2.05), 0.0, 1e-6),
        ("lgammaf(x)", libm::lgamma, (0.001, 3.0), 0.0, 8e-7),
        ("lgammaf(x)", libm::lgamma, (2.5, 20.0), 0.0, 8e-7),
        ("lgammaf(x)", libm::lgamma, (20.0, 1e30), 0.0, 4e-7),
        ("lgammaf(x)", libm::lgamma, (-6.7, -0.3), 1.0, 3e-6),
        ("digammaf(x)", digamma, (0.01, 20.0), 1.0, 1e-6),
        ("digammaf(x)", digamma, (-3.8, -3.2), 1.0, 4e-6),
        ("powf(x, 2.5)", |x| x.powf(2.5), (1e-3, 10.0), 0.0, 2e-6),
        ("powf(x, -3.0)", |x| x.powi(-3), (-2.0, -0.5), 0.0, 1e-6),
        ("powf(2.5, x)", |x| 2.5f64.powf(x), (-5.0, 5.0), 0.0, 1e-6),
        (
            "power_log(x, 1.5)",
            |x| if x == 0.0 { 0.0 } else { x.powf(1.5) * x.ln() },
            (0.0, 10.0),
            1e-2,
            2e-6,
        ),
    ];
    for (expression, exact, range, floor, tolerance) in cases {
        let error = largest_error(&context, expression, exact, range, floor);
        println!("{expression} on {range:?}: {error:.2e}");
        assert!(
            error <= tolerance,
            "{expression} on {range:?}: {error:e} > {tolerance:e}"
        );
    }
}

/// Tests both parts of w and of its derivative on lines through the upper half-plane and one below it.
#[test]
fn the_faddeeva_function_and_its_derivative_are_accurate() {
    let Some(context) = open_context() else {
        return;
    };
    for (first, last) in [(-3.0, 3.0), (0.0, 14.0), (10.0, 1e6)] {
        for y in [0.0, 1e-6, 0.03, 0.4, 1.7, 4.6, 4.8, 30.0, -0.3] {
            // Below the real axis the function has zeros, near which the error is absolute.
            let floor = if y < 0.0 { 1.0 } else { 1e-30 };
            let cases: [(FaddeevaPart, f64, f64); 5] = [
                (RE, floor, 1e-6),
                (IM, floor, 4e-6),
                (SLOPE_RE, 1e-1, 3e-5),
                (SLOPE_IM, 1e-1, 3e-5),
                (CURVATURE_RE, 1e-1, 1e-4),
            ];
            for (part, floor, tolerance) in cases {
                let axis = if part.is_imaginary { "y" } else { "x" };
                let expression = format!("faddeeva(x, {y:?}, {}u).{axis}", part.order);
                let error = largest_error(
                    &context,
                    &expression,
                    |x| part.value(x, f64::from(y as f32)),
                    (first, last),
                    floor,
                );
                println!("{expression} from {first} to {last}: {error:.2e}");
                assert!(
                    error <= tolerance,
                    "{expression} from {first} to {last}: {error:e} > {tolerance:e}"
                );
            }
        }
    }
}

#[test]
fn functions_of_infinities_and_nan_are_right() {
    let Some(context) = open_context() else {
        return;
    };
    let points = [
        f32::NAN,
        -f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        0.0,
        -1.0,
        1e38,
    ];
    let evaluate =
        |expression| evaluate_expression(&context, expression, &points).expect("the shader runs");
    let of_formulas = [
        "expm1f(x)",
        "log1pf(x)",
        "asinhf(x)",
        "acoshf(x)",
        "atanhf(x)",
        "erfcf(x)",
        "gammaf(x)",
        "lgammaf(x)",
        "digammaf(x)",
        "faddeeva_re(x, 1.0)",
        "faddeeva_im(1.0, x)",
        "faddeeva(x, -1.0, 1u).x",
        "faddeeva(1.0, x, 2u).y",
    ];
    let of_models = [
        "expf(x)",
        "logf(x)",
        "tanhf(x)",
        "erff(x)",
        "silu(x).x",
        "gelu(x).x",
        "relu(x).x",
    ];
    for expression in of_formulas.into_iter().chain(of_models) {
        let values = evaluate(expression);
        assert!(
            values[0].is_nan() && values[1].is_nan(),
            "{expression} of NaN: {values:?}"
        );
    }
    assert_eq!(
        evaluate("select(0.0, 1.0, is_nan(x))"),
        [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    );
    assert_eq!(
        evaluate("select(0.0, 1.0, is_finite(x))"),
        [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    );
    assert_eq!(
        evaluate("less(x, 0.5)"),
        [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0]
    );
    assert_eq!(
        evaluate("less_equal(0.0, x)"),
        [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]
    );
    assert_eq!(evaluate("equal(x, x)"), [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(
        evaluate("gate(x, 2.0)"),
        [2.0, 2.0, 2.0, 2.0, 0.0, 2.0, 2.0]
    );
    assert_eq!(evaluate("gate(equal(x, x), 2.0*x)")[..2], [0.0, 0.0]);
    let sign = evaluate("signf(x)");
    let hypot = evaluate("hypotf(x, 1.0)");
    assert!(
        sign[0].is_nan() && sign[2..] == [1.0, -1.0, 0.0, -1.0, 1.0],
        "{sign:?}"
    );
    assert!(
        hypot[0].is_nan() && hypot[2..5] == [f32::INFINITY, f32::INFINITY, 1.0],
        "{hypot:?}"
    );
    let exp = evaluate("expf(x)");
    let log = evaluate("logf(x)");
    let tanh = evaluate("tanhf(x)");
    assert!(
        exp[2].is_infinite() && exp[3] == 0.0 && exp[4] == 1.0 && exp[6].is_infinite(),
        "{exp:?}"
    );
    assert!(log[5].is_nan(), "{log:?}");
    assert_eq!((tanh[2], tanh[3]), (1.0, -1.0));
    let erfc = evaluate("erfcf(x)");
    let acosh = evaluate("acoshf(x)");
    let atanh = evaluate("atanhf(x)");
    assert_eq!((erfc[2], erfc[3], erfc[4]), (0.0, 2.0, 1.0));
    assert!(
        acosh[4].is_nan() && acosh[5].is_nan() && !atanh[5].is_finite() && atanh[6].is_nan(),
        "{acosh:?} {atanh:?}"
    );
}

#[test]
fn a_shader_error_names_its_file_and_line() {
    let Some(context) = open_context() else {
        return;
    };
    let error = evaluate_expression(&context, "no_such_function(x)", &[1.0])
        .expect_err("the shader is wrong");
    assert!(error.to_string().contains("shaders/test.wgsl:3"), "{error}");
}

#[test]
fn numbers_are_rounded_to_the_nearest_half() {
    let Some(context) = open_context() else {
        return;
    };
    let exact_halves = (0..=u16::MAX)
        .map(|bits| f16::from_bits(bits).to_f32())
        .filter(|x| x.is_finite());
    // The points are every half, the tie above it, and the neighbours of the tie.
    let points_near = |x: f32| {
        let tie = 0.5 * (x + f16::from_bits(f16::from_f32(x).to_bits() + 1).to_f32());
        [x, tie, tie.next_up(), tie.next_down()]
    };
    let edges = [
        f32::INFINITY,
        f32::NEG_INFINITY,
        65519.99,
        65520.0,
        1e30,
        -1e30,
        1e-8,
        -1e-8,
        2.0f32.powi(-25),
    ];
    let points: Vec<f32> = exact_halves.flat_map(points_near).chain(edges).collect();
    let rounded =
        evaluate_expression(&context, "f32(half_bits(x))", &points).expect("the shader runs");
    for (x, rounded) in points.into_iter().zip(rounded) {
        let bits = f16::from_f32(x).to_bits();
        assert!(
            rounded == f32::from(bits) || x.is_nan(),
            "{x:e}: {rounded} instead of {bits}"
        );
    }
}

#[test]
fn concurrent_threads_compile_a_kernel_once() {
    let Some(context) = open_context() else {
        return;
    };
    let constants = crate::kernels::source::Constants::default();
    let kernel = |value: &str| {
        let text = format!(
            "@group(0) @binding(0) var<storage, read_write> values: array<f32>;\n\
             @compute @workgroup_size(64)\n\
             fn main(@builtin(global_invocation_id) id: vec3<u32>) {{ values[id.x] = {value}; }}"
        );
        crate::kernels::source::WgslSource::join(&constants, "test", &text, &[], None)
    };
    let [source, other_source] = ["1.0", "2.0"].map(kernel);
    let compiled: Vec<wgpu::ComputePipeline> = std::thread::scope(|scope| {
        let compile = || {
            pipelines::compile_or_reuse(&context, "test", &source, &[true])
                .expect("it compiles")
                .pipeline
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(compile)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    assert!(
        compiled.iter().all(|pipeline| *pipeline == compiled[0]),
        "compiled more than once"
    );
    let second = pipelines::compile_or_reuse(&context, "test", &other_source, &[true])
        .expect("it compiles")
        .pipeline;
    assert!(second != compiled[0], "another kernel");
}
