//! A user's own model: value and derivatives by `u` into rows. Twin of `shaders/custom.wgsl`.

use crate::rows::Real;
use crate::solver::recording::{Custom, CustomInput, Limits, Member};

/// What a call works with: taking its memory would cost as much as a small model.
#[derive(Debug, Default)]
pub struct Scratch {
    x: Vec<f64>,
    limits: Vec<f64>,
    parameters: Vec<f64>,
    rows: Vec<f64>,
}

/// Fills one member's block (rows, pixels). `scale` is what `u` is in units of, with its bounds.
pub fn custom<R: Real>(
    stage: &Custom,
    u: &[f64],
    (predictor, scale): (&[R], Option<&[R]>),
    output: &mut [R],
    Scratch { x, limits, parameters, rows }: &mut Scratch,
) {
    widen(x, predictor);
    widen(limits, scale.unwrap_or(&[]));
    let member = Member::of(limits, u.len());
    let limits = scale.map(|_| Limits::of(limits, u.len()));
    let unit = |p: usize| limits.map_or(1.0, |limits| limits.scale[p]);
    parameters.clear();
    parameters.extend(u.iter().enumerate().map(|(p, u)| u * unit(p)));
    rows.clear();
    rows.resize(stage.rows * stage.pixels, f64::NAN);
    (stage.rust)(&CustomInput { x, parameters, limits, member }, rows);
    for (r, (out, row)) in output.chunks_exact_mut(stage.pixels).zip(rows.chunks_exact(stage.pixels)).enumerate() {
        let factor = if r > 0 { unit(r - 1) } else { 1.0 };
        out.iter_mut().zip(row).for_each(|(o, v)| *o = R::of(factor * *v));
    }
}

fn widen<R: Real>(to: &mut Vec<f64>, from: &[R]) {
    to.clear();
    to.extend(from.iter().map(|x| x.to_f64()));
}
