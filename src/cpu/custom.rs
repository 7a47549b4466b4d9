//! A user's own model, one pixel at a time: value and derivatives by `u` into rows. Twin of `shaders/custom.wgsl`.

use crate::rows::Real;
use crate::solver::recording::Custom;

/// Fills one member's block (rows, pixels).
pub fn custom<R: Real>(stage: &Custom, u: &[f64], predictor: &[R], output: &mut [R]) {
    let mut row = vec![0.0; stage.rows];
    for (j, x) in predictor.iter().enumerate() {
        (stage.rust)(x.to_f64(), u, &mut row);
        for (r, value) in row.iter().enumerate() {
            output[r * stage.pixels + j] = R::of(*value);
        }
    }
}
