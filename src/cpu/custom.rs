//! A user's own model: value and derivatives by `u` into rows. Twin of `shaders/custom.wgsl`.

use crate::rows::Real;
use crate::solver::recording::Custom;

/// Fills one member's block (rows, pixels). `scale` is what `u` is in units of.
pub fn custom<R: Real>(stage: &Custom, u: &[f64], predictor: &[R], scale: Option<&[R]>, output: &mut [R]) {
    let scale: Vec<f64> = scale.map_or_else(|| vec![1.0; u.len()], |s| s.iter().map(|x| x.to_f64()).collect());
    let x: Vec<f64> = predictor.iter().map(|x| x.to_f64()).collect();
    let parameters: Vec<f64> = u.iter().zip(&scale).map(|(u, s)| u * s).collect();
    let mut rows = vec![0.0; stage.rows * stage.pixels];
    (stage.rust)(&x, &parameters, &mut rows);
    for (r, (out, row)) in output.chunks_exact_mut(stage.pixels).zip(rows.chunks_exact(stage.pixels)).enumerate() {
        let factor = if r > 0 && stage.scale.is_some() { scale[r - 1] } else { 1.0 };
        out.iter_mut().zip(row).for_each(|(o, v)| *o = R::of(factor * *v));
    }
}
