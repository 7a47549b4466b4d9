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
    /// (P): the model sees `scale · u`, and row 1 + p, its derivative by that parameter p, is brought back to `u`. Without: `u` itself.
    pub scale: Option<BufferId>,
    /// `fn model(x: f32, u: ptr<function, array<f32, P>>, out: ptr<function, array<f32, ROWS>>)`, for one pixel; `x: array<f32, D>`
    /// for several predictors. It may call the functions of `shaders/shared/math.wgsl` and `functions.wgsl`.
    pub wgsl: String,
    /// The same in Rust, for all pixels.
    pub rust: CustomFunction,
}

/// A custom model's Rust twin: predictors (D, pixels), parameters, output (rows, pixels).
pub type CustomFunction = Arc<dyn Fn(&[f64], &[f64], &mut [f64]) + Send + Sync>;

/// The twin of a model of one predictor that is given for one pixel: predictor, parameters, rows.
pub fn pointwise(model: impl Fn(f64, &[f64], &mut [f64]) + Send + Sync + 'static) -> CustomFunction {
    Arc::new(move |x, u, output| {
        let pixels = x.len();
        let mut column = vec![0.0; output.len() / pixels.max(1)];
        for (j, x) in x.iter().enumerate() {
            model(*x, u, &mut column);
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
