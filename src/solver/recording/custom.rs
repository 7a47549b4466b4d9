//! A model of the user's own.

use std::fmt;
use std::sync::Arc;

use super::BufferId;

/// A model of the user's own: fills rows 0 (value) and 1… (derivatives by its parameters) of `output`, `pixels` wide.
#[derive(Clone)]
pub struct Custom {
    pub name: String,
    pub output: BufferId,
    pub rows: usize,
    pub pixels: usize,
    /// D.
    pub predictors: usize,
    /// (D, pixels)
    pub predictor: BufferId,
    /// (3, P): units, lower and upper bounds ([`Limits`]). The model sees unit · `u`, and row 1 + p, its derivative by that parameter p,
    /// is brought back to `u`. Without: `u` itself. On the CPU two numbers may follow, the fit's [`Member`].
    pub scale: Option<BufferId>,
    /// What the WGSL may read as `table`, if there is any: constants too many to write down.
    pub table: Arc<[f32]>,
    /// `fn fill(x: f32, u: ptr<function, array<f32, P>>, out: ptr<function, array<f32, ROWS>>)`, for one pixel; `x: array<f32, D>`
    /// for several predictors. It may call the functions of `shaders/shared/math.wgsl` and `functions.wgsl`.
    pub wgsl: String,
    /// The same in Rust, for all pixels.
    pub rust: CustomFunction,
}

/// Where a custom model is evaluated.
#[derive(Clone, Copy, Debug)]
pub struct CustomInput<'a> {
    /// (D, pixels)
    pub x: &'a [f64],
    /// (P)
    pub parameters: &'a [f64],
    /// Where the stage has them.
    pub limits: Option<Limits<'a>>,
    pub member: Member,
}

/// The fit for which a custom model is evaluated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Member {
    /// Place among the fits of a run.
    pub index: usize,
    /// Number of its data in the user's input.
    pub number: usize,
}

impl Member {
    /// From the two numbers that may follow the limits of `count` parameters.
    pub fn of(block: &[f64], count: usize) -> Member {
        match block.get(3 * count..) {
            Some(&[index, number]) => Member { index: index as usize, number: number as usize },
            _ => Member::default(),
        }
    }
}

/// What parameters are in units of, and between which bounds they stay: (P) each.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    pub scale: &'a [f64],
    pub lower: &'a [f64],
    pub upper: &'a [f64],
}

impl<'a> Limits<'a> {
    /// From the first three rows of a block, (3, `count`).
    pub fn of(block: &'a [f64], count: usize) -> Limits<'a> {
        let (scale, bounds) = block.split_at(count);
        let (lower, rest) = bounds.split_at(count);
        Limits { scale, lower, upper: &rest[..count] }
    }
}

/// A custom model's Rust twin: fills (rows, pixels).
pub type CustomFunction = Arc<dyn Fn(&CustomInput, &mut [f64]) + Send + Sync>;

/// The twin of a model of one predictor that is given for one pixel: predictor, parameters, rows.
pub fn pointwise(model: impl Fn(f64, &[f64], &mut [f64]) + Send + Sync + 'static) -> CustomFunction {
    Arc::new(move |&CustomInput { x, parameters, .. }, output| {
        let pixels = x.len();
        let mut column = vec![0.0; output.len() / pixels.max(1)];
        for (j, x) in x.iter().enumerate() {
            model(*x, parameters, &mut column);
            for (r, value) in column.iter().enumerate() {
                output[r * pixels + j] = *value;
            }
        }
    })
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Custom").field("name", &self.name).finish_non_exhaustive()
    }
}
