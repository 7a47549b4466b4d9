//! Resets a member's sums, then adds least-squares rows that are not pixels: Gaussian priors r = (μ − θ)/τ, and training hulls
//! with data 0 and model √(10 n) d, d the largest facet distance, where d > 0 (see `docs/src/equations.md`). f64. Twin of `shaders/prior.wgsl`.

use super::labels::scaled;
use crate::solver::member::Sums;
use crate::solver::recording::{HullRow, Parameter, Prior};
use crate::solver::triangle::packed_index;

/// Resets `sums` and adds the rows. `mean` and `weight` are this spectrum's priors, `hull_weight` that of each of its hulls.
pub fn prior(
    (stage, parameters): (&Prior, &[Parameter]),
    u: &[f64],
    (mean, weight): (&[f64], &[f64]),
    hull_weight: impl Fn(usize) -> f64,
    sums: &mut Sums,
) {
    sums.chi2 = 0.0;
    sums.penalty = 0.0;
    sums.ln_det = 0.0;
    sums.gradient.fill(0.0);
    sums.normal_matrix.fill(0.0);
    for p in 0..u.len() {
        if weight[p] > 0.0 {
            let residual = (mean[p] - u[p]) * weight[p];
            sums.penalty += residual * residual;
            sums.gradient[p] += weight[p] * residual;
            sums.normal_matrix[packed_index(p, p)] += weight[p] * weight[p];
        }
    }
    for (h, hull) in stage.hulls.iter().enumerate() {
        add_hull((hull, hull_weight(h)), parameters, u, sums);
    }
}

fn add_hull((hull, weight): (&HullRow, f64), parameters: &[Parameter], u: &[f64], sums: &mut Sums) {
    let z: Vec<(f64, f64)> = hull.labels.iter().map(|label| scaled(label, parameters, u)).collect();
    let (mut distance, mut normal) = (f64::NEG_INFINITY, &hull.facets[..0]);
    for facet in hull.facets.chunks_exact(z.len() + 1) {
        let d = facet.iter().zip(&z).map(|(n, (z, _))| n * z).sum::<f64>() + facet[z.len()];
        if d > distance {
            (distance, normal) = (d, &facet[..z.len()]);
        }
    }
    if distance.is_nan() || distance <= 0.0 {
        return;
    }
    let mut row = vec![0.0; u.len()];
    for ((label, (_, slope)), n) in hull.labels.iter().zip(&z).zip(normal) {
        for (p, factor) in label.source.slopes() {
            row[p] += weight * n * slope * factor * parameters[p].scale;
        }
    }
    let residual = -weight * distance;
    sums.penalty += residual * residual;
    for p in 0..u.len() {
        sums.gradient[p] += row[p] * residual;
        for q in 0..=p {
            sums.normal_matrix[packed_index(p, q)] += row[p] * row[q];
        }
    }
}
