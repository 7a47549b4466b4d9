//! The models, each with noiseless data and starts that are off.

use popfit::{Closure, Context, CurveModel, Failure, Formula, Model, SplineAxis};

pub struct Problem {
    pub name: String,
    pub model: CurveModel,
    /// (predictors, points)
    pub x: Vec<f64>,
    pub y: Vec<f64>,
    pub truth: Vec<f64>,
    pub starts: Vec<Vec<f64>>,
    pub bounds: Vec<(&'static str, f64, f64)>,
    pub on_cpu: bool,
    pub on_gpu: bool,
    pub has_derivatives: bool,
    /// Relative errors of the parameters in f32: with derivatives, and by values alone.
    pub f32: f64,
    pub f32_simplex: f64,
}

impl Problem {
    /// A model that can do everything, its data its own values.
    fn new(name: &str, model: CurveModel, x: Vec<f64>, truth: &[f64], start: &[f64]) -> Problem {
        let y = model.values(&x, truth).unwrap();
        // The other start is nearer, on the other side of the true value.
        let other = truth
            .iter()
            .zip(start)
            .map(|(t, s)| t + 0.5 * (t - s))
            .collect();
        Problem {
            name: name.to_owned(),
            model,
            x,
            y,
            truth: truth.to_vec(),
            starts: vec![start.to_vec(), other],
            bounds: Vec::new(),
            on_cpu: true,
            on_gpu: true,
            has_derivatives: true,
            f32: 1e-5,
            f32_simplex: 2e-4,
        }
    }

    /// Residuals, for data of zeros.
    fn residuals(
        name: &str,
        model: CurveModel,
        rows: usize,
        truth: &[f64],
        start: &[f64],
    ) -> Problem {
        let x = (0..rows).map(|row| row as f64).collect();
        let zeros = vec![0.0; rows];
        let starts = vec![start.to_vec()];
        Problem {
            y: zeros,
            starts,
            ..Problem::new(name, model, x, truth, start)
        }
    }
}

fn line(count: usize, first: f64, step: f64) -> Vec<f64> {
    (0..count).map(|j| first + step * j as f64).collect()
}

/// Points of a square or a cube, (predictors, points).
fn grid(axes: usize, count: usize, first: f64, step: f64) -> Vec<f64> {
    let points = count.pow(axes as u32);
    let one = |d: usize, j: usize| first + step * (j / count.pow(d as u32) % count) as f64;
    (0..axes * points)
        .map(|k| one(k / points, k % points))
        .collect()
}

/// Every built-in formula, by its name.
fn formulas() -> Vec<Problem> {
    let image = || grid(2, 7, 0.0, 1.0);
    let of = |name: &str, x: Vec<f64>, truth: &[f64], start: &[f64]| {
        Problem::new(
            name,
            Formula::builtin(name).unwrap().into(),
            x,
            truth,
            start,
        )
    };
    let helix = Formula::builtin("fletcher_powell_helix").unwrap();
    let mut all = vec![
        of("linear1d", line(20, -1.0, 0.3), &[1.5, -0.7], &[0.5, 0.1]),
        of(
            "gauss1d",
            line(30, 0.0, 0.3),
            &[3.0, 4.2, 1.1, 0.5],
            &[2.0, 3.6, 1.6, 0.2],
        ),
        of(
            "gauss2d",
            image(),
            &[4.0, 3.2, 2.7, 1.1, 0.5],
            &[3.0, 2.6, 3.2, 1.5, 0.2],
        ),
        of(
            "gauss2d_elliptic",
            image(),
            &[4.0, 3.2, 2.7, 1.1, 1.4, 0.5],
            &[3.0, 2.8, 3.0, 1.4, 1.2, 0.2],
        ),
        of(
            "gauss2d_rotated",
            image(),
            &[4.0, 3.2, 2.7, 1.0, 1.8, 0.5, 0.4],
            &[3.0, 3.0, 2.9, 1.2, 1.6, 0.3, 0.6],
        ),
        of(
            "cauchy2d_elliptic",
            image(),
            &[4.0, 3.2, 2.7, 1.1, 1.4, 0.5],
            &[3.0, 2.8, 3.0, 1.3, 1.2, 0.2],
        ),
        of(
            "exponential",
            line(25, 0.0, 0.2),
            &[3.0, 0.7, 0.4],
            &[2.0, 1.0, 0.1],
        ),
        of(
            "lorentz",
            line(30, 0.0, 0.3),
            &[3.0, 4.2, 1.1, 0.5],
            &[2.0, 3.8, 1.5, 0.2],
        ),
        of(
            "pseudo_voigt",
            line(40, 0.0, 0.25),
            &[3.0, 4.8, 2.0, 0.4, 0.5],
            &[2.5, 4.5, 2.4, 0.6, 0.4],
        ),
        of(
            "voigt",
            line(40, 0.0, 0.25),
            &[6.0, 4.8, 0.8, 0.5, 0.5],
            &[5.0, 4.5, 1.1, 0.3, 0.4],
        ),
        of("power_law", line(20, 0.5, 0.3), &[2.0, -1.3], &[1.5, -0.9]),
        of(
            "power_law_offset",
            line(20, 0.5, 0.3),
            &[2.0, -1.3, 0.5],
            &[1.6, -1.1, 0.3],
        ),
        of(
            "polynomial(2)",
            line(20, -1.0, 0.1),
            &[1.0, -2.0, 0.5],
            &[0.5, 0.3, 0.1],
        ),
        of(
            "polynomial(4)",
            line(30, -1.0, 0.07),
            &[1.0, -2.0, 0.5, 0.3, -0.8],
            &[0.5, 0.3, 0.1, 0.1, 0.1],
        ),
        Problem::residuals(
            "helix",
            helix.into(),
            3,
            &[1.0, 0.0, 0.0],
            &[-1.0, 0.0, 0.0],
        ),
    ];
    all.extend(
        peaks_and_steps()
            .chain(decays_and_growth())
            .map(|(name, x, truth, start)| of(name, x, &truth, &start)),
    );
    all
}

/// Name, x, truth and start of a built-in formula.
type Row = (&'static str, Vec<f64>, Vec<f64>, Vec<f64>);

fn peaks_and_steps() -> impl Iterator<Item = Row> {
    let step = |name, width, start| {
        (
            name,
            line(40, 0.0, 0.25),
            vec![3.0, 4.8, width, 0.5],
            vec![2.5, 4.6, start, 0.4],
        )
    };
    [
        (
            "moffat",
            line(40, 0.0, 0.25),
            vec![3.0, 4.8, 1.3, 2.0, 0.5],
            vec![2.7, 4.6, 1.5, 2.3, 0.4],
        ),
        (
            "fano",
            line(40, 0.0, 0.25),
            vec![1.0, 4.8, 0.8, 2.0, 0.5],
            vec![1.2, 4.7, 0.9, 1.8, 0.4],
        ),
        (
            "skewed_gauss",
            line(40, 0.0, 0.25),
            vec![2.0, 3.8, 1.4, 2.0, 0.5],
            vec![2.2, 3.9, 1.3, 1.7, 0.4],
        ),
        (
            "emg",
            line(40, 0.0, 0.25),
            vec![6.0, 2.8, 0.7, 1.2, 0.5],
            vec![5.0, 2.9, 0.8, 1.0, 0.4],
        ),
        step("step_linear", 3.1, 2.6),
        step("step_arctan", 0.8, 1.0),
        step("step_erf", 0.9, 1.2),
        step("step_logistic", 0.7, 0.9),
    ]
    .into_iter()
}

fn decays_and_growth() -> impl Iterator<Item = Row> {
    [
        (
            "biexponential",
            line(60, 0.0, 0.1),
            vec![3.0, 0.5, 2.0, 3.0, 0.4],
            vec![2.6, 0.6, 2.2, 2.5, 0.3],
        ),
        (
            "stretched_exponential",
            line(40, 0.0, 0.1),
            vec![3.0, 0.9, 0.7, 0.4],
            vec![2.7, 1.1, 0.8, 0.3],
        ),
        (
            "logistic",
            line(40, 0.0, 0.25),
            vec![3.0, 1.1, 4.8],
            vec![2.6, 0.9, 4.5],
        ),
        (
            "gompertz",
            line(40, 0.0, 0.25),
            vec![3.0, 0.8, 3.8],
            vec![2.6, 0.7, 3.5],
        ),
        (
            "hill",
            line(40, 0.0, 0.25),
            vec![3.0, 2.5, 1.7],
            vec![2.6, 2.2, 1.4],
        ),
        (
            "logistic4",
            line(40, 0.0, 0.25),
            vec![3.0, 2.5, 1.7, 0.5],
            vec![2.6, 2.2, 1.5, 0.4],
        ),
        (
            "sine",
            line(50, 0.0, 0.1),
            vec![3.0, 0.31, 0.7, 0.5],
            vec![2.6, 0.32, 0.6, 0.4],
        ),
        (
            "damped_sine",
            line(50, 0.0, 0.1),
            vec![3.0, 0.2, 0.31, 0.7, 0.5],
            vec![2.6, 0.25, 0.32, 0.6, 0.4],
        ),
        (
            "sersic",
            line(40, 0.0, 0.1),
            vec![3.0, 1.3, 1.5],
            vec![2.7, 1.4, 1.4],
        ),
    ]
    .into_iter()
}

fn splines() -> Vec<Problem> {
    let bump = |x: &[f64]| {
        x.iter()
            .map(|x| (-0.5 * ((x - 5.0) / 1.7).powi(2)).exp())
            .product::<f64>()
    };
    let model = |axes: usize| {
        let points = grid(axes, 11, 0.0, 1.0);
        let total = points.len() / axes;
        // The first predictor varies slowest in a table.
        let values: Vec<f64> = (0..total)
            .map(|j| {
                bump(
                    &(0..axes)
                        .map(|d| points[(axes - 1 - d) * total + j])
                        .collect::<Vec<_>>(),
                )
            })
            .collect();
        CurveModel::spline(&vec![SplineAxis::unit(11); axes], &values).unwrap()
    };
    vec![
        Problem::new(
            "spline 1d",
            model(1),
            line(21, 0.0, 0.5),
            &[2.0, 0.7, 0.3],
            &[1.0, -0.2, 0.1],
        ),
        Problem::new(
            "spline 2d",
            model(2),
            grid(2, 11, 0.0, 1.0),
            &[2.0, 0.7, -0.4, 0.3],
            &[1.5, 0.1, 0.2, 0.1],
        ),
        Problem::new(
            "spline 3d",
            model(3),
            grid(3, 6, 0.0, 2.0),
            &[2.0, 0.7, -0.4, 0.3, 0.2],
            &[1.5, 0.2, 0.2, 0.1, 0.1],
        ),
    ]
}

/// a exp(−k x) + c
fn decay() -> Closure {
    Closure::new(&["x"], &["a", "k", "c"], |x, p, y| {
        y.iter_mut()
            .zip(x)
            .for_each(|(y, x)| *y = p[0] * (-p[1] * x).exp() + p[2]);
    })
    .unwrap()
}

fn decay_slopes(x: &[f64], p: &[f64], rows: &mut [f64]) {
    let n = x.len();
    for (j, x) in x.iter().enumerate() {
        let e = (-p[1] * x).exp();
        (rows[j], rows[n + j], rows[2 * n + j]) = (e, -p[0] * x * e, 1.0);
    }
}

/// a cos(w x + f) exp(−k x), not defined for k < 0.
struct Ringing;

impl Model for Ringing {
    fn predictors(&self) -> Vec<String> {
        vec!["t".into()]
    }

    fn parameters(&self) -> Vec<String> {
        ["a", "w", "f", "k"].map(String::from).to_vec()
    }

    fn values(&self, _: &Context, x: &[f64], p: &[f64], values: &mut [f64]) -> Result<(), Failure> {
        for (value, t) in values.iter_mut().zip(x) {
            let swing = p[0] * (p[1] * t + p[2]).cos() * (-p[3] * t).exp();
            *value = if p[3] < 0.0 { f64::NAN } else { swing };
        }
        Ok(())
    }
}

fn functions() -> Vec<Problem> {
    let x = || line(25, 0.0, 0.2);
    let on_cpu = |name: &str, model: CurveModel, has_derivatives| Problem {
        on_gpu: false,
        has_derivatives,
        ..Problem::new(name, model, x(), &[3.0, 0.7, 0.4], &[2.0, 1.0, 0.1])
    };
    let rosenbrock = Closure::residuals(&["x", "y"], |p, r| {
        (r[0], r[1]) = (10.0 * (p[1] - p[0] * p[0]), 1.0 - p[0]);
    });
    let ringing = CurveModel::new(Ringing).unwrap();
    // The best damping is 0, on the edge of the model's domain.
    let edge = [2.0, 1.5, 0.3, 0.0];
    let plane = Closure::new(&["x", "y"], &["a", "b"], |x, p, z| {
        let n = z.len();
        (0..n).for_each(|j| z[j] = p[0] * x[j] + p[1] * x[n + j]);
    });
    vec![
        on_cpu(
            "closure with derivatives",
            decay().derivatives(decay_slopes).into(),
            true,
        ),
        on_cpu("closure", decay().into(), false),
        Problem {
            on_gpu: true,
            ..on_cpu(
                "a formula's differences",
                decay_formula().differences(true),
                true,
            )
        },
        Problem {
            on_gpu: false,
            has_derivatives: false,
            ..Problem::residuals(
                "Rosenbrock",
                rosenbrock.unwrap().into(),
                2,
                &[1.0, 1.0],
                &[-1.2, 1.0],
            )
        },
        Problem {
            on_gpu: false,
            has_derivatives: false,
            ..Problem::new(
                "plane",
                plane.unwrap().into(),
                grid(2, 4, 0.0, 1.0),
                &[2.0, -1.0],
                &[1.0, 1.0],
            )
        },
        Problem {
            on_gpu: false,
            has_derivatives: false,
            ..Problem::new(
                "trait",
                ringing.clone(),
                line(30, 0.0, 0.25),
                &[2.0, 1.5, 0.3, 0.2],
                &[1.5, 1.6, 0.1, 0.3],
            )
        },
        Problem {
            on_gpu: false,
            has_derivatives: false,
            starts: vec![vec![1.5, 1.6, 0.1, 0.3]],
            bounds: vec![("k", 0.0, 5.0)],
            ..Problem::new(
                "trait at its edge",
                ringing,
                line(30, 0.0, 0.25),
                &edge,
                &edge,
            )
        },
    ]
}

fn decay_formula() -> CurveModel {
    Formula::parse("a*exp(-k*x) + c").unwrap().into()
}

const DECAY: &str = "
// An exponential decay.
const UNIT: f32 = 1.0;

fn envelope(k: f32, x: f32) -> f32 {
    return expf(-k * x * UNIT);
}

fn model(p: array<f32, 3>, x: f32) -> f32 {
    return p[0] * envelope(p[1], x) + p[2];
}
";

const DECAY_SLOPES: &str = "
fn derivative(p: array<f32, 3>, x: f32) -> array<f32, 3> {
    let e = envelope(p[1], x);
    return array<f32, 3>(e, -p[0] * x * e, 1.0);
}
";

/// A line far from zero: a single step of differences would be wrong for its place or for its height.
const FAR_LINE: &str = "
fn model(p: array<f32, 3>, x: array<f32, 1>) -> f32 {
    let t = (x[0] - p[1]) / p[2];
    return p[0] * expf(-0.5 * t * t);
}
";

const SPOT: &str = "
fn model(p: array<f32, 4>, x: array<f32, 2>) -> f32 {
    let d = array<f32, 2>(x[0] - p[1], x[1] - p[2]);
    return p[0] * expf(-(d[0] * d[0] + d[1] * d[1]) / (2.0 * p[3] * p[3]));
}
";

fn wgsl() -> Vec<Problem> {
    let names = ["a", "k", "c"];
    let with_slopes = format!("{DECAY}{DECAY_SLOPES}");
    let truth = [3.0, 0.7, 0.4];
    let start = [2.0, 1.0, 0.1];
    let gpu = |name: &str,
               model: CurveModel,
               twin: CurveModel,
               x: Vec<f64>,
               truth: &[f64],
               start: &[f64]| {
        let problem = Problem::new(name, twin, x, truth, start);
        Problem {
            model,
            on_cpu: false,
            has_derivatives: false,
            ..problem
        }
    };
    let decay_wgsl = |source: &str| CurveModel::wgsl(&["x"], &names, source).unwrap();
    let twinned = decay_wgsl(&with_slopes)
        .with_rust(decay().derivatives(decay_slopes))
        .unwrap();
    let x = || line(25, 0.0, 0.2);
    let far: CurveModel = Formula::parse("a*exp(-0.5*((x - m)/s)^2)").unwrap().into();
    let spot: CurveModel =
        Formula::parse_with("a*exp(-((x - x0)^2 + (y - y0)^2)/(2*s^2))", &["x", "y"])
            .unwrap()
            .into();
    let far_line = CurveModel::wgsl(&["x"], &["a", "m", "s"], FAR_LINE).unwrap();
    let own_spot = CurveModel::wgsl(&["x", "y"], &["a", "x0", "y0", "s"], SPOT).unwrap();
    vec![
        Problem {
            has_derivatives: true,
            ..gpu(
                "WGSL with derivatives",
                decay_wgsl(&with_slopes),
                decay_formula(),
                x(),
                &truth,
                &start,
            )
        },
        gpu(
            "WGSL",
            decay_wgsl(DECAY),
            decay_formula(),
            x(),
            &truth,
            &start,
        ),
        gpu(
            "WGSL far from zero",
            far_line,
            far,
            line(30, 997.0, 0.2),
            &[3.0, 1000.2, 0.8],
            &[2.0, 999.8, 1.0],
        ),
        gpu(
            "WGSL of two predictors",
            own_spot,
            spot,
            grid(2, 7, 0.0, 1.0),
            &[4.0, 3.2, 2.7, 1.1],
            &[3.0, 2.8, 3.0, 1.4],
        ),
        Problem::new("WGSL with its twin", twinned, x(), &truth, &start),
    ]
}

pub fn problems() -> Vec<Problem> {
    let all: Vec<Problem> = [formulas(), splines(), functions(), wgsl()]
        .into_iter()
        .flatten()
        .collect();
    for name in Formula::builtins()
        .filter(|name| *name != "brown_dennis" && *name != "fletcher_powell_helix")
    {
        assert!(
            all.iter().any(|problem| problem.name == name),
            "{name} is not among the problems"
        );
    }
    all
}
