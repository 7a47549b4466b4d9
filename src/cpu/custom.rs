//! A user's own model: value and derivatives by `u` into rows. Twin of `shaders/custom.wgsl`.

use crate::rows::Real;
use crate::solver::recording::{Custom, CustomInput, Limits};

/// Fills one member's block (rows, pixels). `scale` is what `u` is in units of, with its bounds.
pub fn custom<R: Real>(stage: &Custom, u: &[f64], predictor: &[R], scale: Option<&[R]>, output: &mut [R]) {
    let wide = |values: &[R]| -> Vec<f64> { values.iter().map(|x| x.to_f64()).collect() };
    let (x, block) = (wide(predictor), scale.map(wide));
    let limits = block.as_deref().map(Limits::of);
    let unit = |p: usize| limits.map_or(1.0, |limits| limits.scale[p]);
    let parameters: Vec<f64> = u.iter().enumerate().map(|(p, u)| u * unit(p)).collect();
    let mut rows = vec![f64::NAN; stage.rows * stage.pixels];
    (stage.rust)(&CustomInput { x: &x, parameters: &parameters, limits }, &mut rows);
    for (r, (out, row)) in output.chunks_exact_mut(stage.pixels).zip(rows.chunks_exact(stage.pixels)).enumerate() {
        let factor = if r > 0 { unit(r - 1) } else { 1.0 };
        out.iter_mut().zip(row).for_each(|(o, v)| *o = R::of(factor * *v));
    }
}
