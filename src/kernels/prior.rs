//! Resets a member's sums, then adds least-squares rows that are not pixels: Gaussian priors r = (μ − θ)/τ, and
//! training hulls with data 0 and model √(10 n) d, d the largest facet distance, where d > 0 (see
//! `docs/src/equations.md`). f64. Twin of `shaders/prior.wgsl`.

use super::label::scale_label;
#[cfg(feature = "gpu")]
use super::label::{declare_label, slope_ratios};
#[cfg(feature = "gpu")]
use super::shader::{BindingTarget, Dispatch, Shader, ShaderContext};
use super::{Kernel, LabelInput, Memory, Priors};
use crate::buffers::{BufferId, Cost, Declared, LossSums, Parameter, Sums, Work};
#[cfg(feature = "gpu")]
use crate::error::{Error, Result};
use crate::math::Real;
use crate::math::triangle::packed_index;

/// Convex hull of a training set in scaled labels: outside where normal · z + offset > 0.
#[derive(Clone, Debug, PartialEq)]
pub struct HullRow {
    /// The labels it acts on, one for each component of a facet's normal.
    pub labels: Vec<LabelInput>,
    /// Facets, each `labels.len()` components of the normal and the offset.
    pub facets: Vec<f64>,
}

/// Resets the members' sums, then adds Gaussian priors (of the batch) and training hulls as least-squares rows. Always
/// first.
#[derive(Clone, Debug, PartialEq)]
pub struct Prior {
    pub hulls: Vec<HullRow>,
    /// (hulls) Where there are hulls: √(10 n), n the pixels of the spectrum's arm, masked ones too.
    pub weights: Option<BufferId>,
}

impl Prior {
    /// Priors without hulls.
    pub const WITHOUT_HULLS: Prior = Prior {
        hulls: Vec::new(),
        weights: None,
    };
}

impl Kernel for Prior {
    const WORK: Work = Work::NormalMatrix;

    fn member_buffers(&self) -> Vec<BufferId> {
        Vec::new()
    }

    /// Returns two operations per number of the hulls.
    fn cost(&self, declared: Declared<'_>) -> Cost {
        let facets: usize = self.hulls.iter().map(|hull| hull.facets.len()).sum();
        Cost::new(2 * facets, 4 * declared.parameters.len()).with_shared(facets)
    }

    fn run<R: Real>(&self, memory: &mut impl Memory<R>) {
        memory.add(|memory, sums| {
            let weights = self.weights.map_or(&[][..], |id| memory.floats(id));
            add_penalties(
                self,
                memory.parameters(),
                memory.trial(),
                memory.priors(),
                |hull| weights[hull].to_f64(),
                sums,
            );
        });
    }

    #[cfg(feature = "gpu")]
    fn shader(&self, context: &ShaderContext<'_>) -> Result<Shader> {
        let mut shader = context.start_shader(
            "prior",
            include_str!("../../shaders/prior.wgsl"),
            Dispatch::MEMBERS,
        );
        shader.bind_state(true);
        shader.bind("limits", "f32", BindingTarget::Limits, false);
        shader.bind("facets", "f32", BindingTarget::Table, false);
        if let Some(weights) = self.weights {
            shader.bind_block(context, "hull_weights", "f32", weights, false);
        }
        let constants = &mut shader.constants;
        constants.unsigned("HULLS", self.hulls.len());
        for (h, hull) in self.hulls.iter().enumerate() {
            // 1. The hull's size, its place in the table of facets, and its weight.
            let axes = hull.labels.len();
            constants.unsigned(&format!("HULL_AXES_{h}"), axes);
            constants.unsigned(&format!("HULL_FACETS_{h}"), hull.facets.len() / (axes + 1));
            constants.unsigned(&format!("HULL_FIRST_{h}"), shader.table.len());
            constants.line(&format!(
                "fn hull_weight_{h}(slot: u32) -> f32 {{ \
                 return hull_weights[hull_weights_base(0u, spectrum_of(slot)) + {h}u]; }}"
            ));
            shader.table.extend(hull.facets.iter().map(|x| *x as f32));
            // 2. Functions for the scaled labels and for the row of the Jacobian.
            let mut values = String::new();
            let mut slopes = String::new();
            for (a, label) in hull.labels.iter().enumerate() {
                declare_label(
                    constants,
                    context.parameters(),
                    label,
                    &format!("hull_{h}_{a}"),
                );
                values += &format!(
                    "let label_{a} = hull_{h}_{a}(slot); z[{a}] = label_{a}.x; slope[{a}] = label_{a}.y;\n"
                );
                for (p, ratio) in slope_ratios(context.parameters(), label) {
                    let ratio = constants.literal(ratio);
                    slopes += &format!(
                        "jacobian[{p}] += weight * facets[facet + {a}u] * slope[{a}] * {ratio};\n"
                    );
                }
            }
            let array = format!("ptr<function, array<f32, {axes}>>");
            constants.line(&format!(
                "fn hull_labels_{h}(slot: u32, z: {array}, slope: {array}) {{\n{values}}}"
            ));
            constants.line(&format!(
                "fn hull_jacobian_{h}(facet: u32, weight: f32, slope: {array}) {{\n{slopes}}}"
            ));
        }
        // llvmpipe ends all loops of an invocation after 65,535 iterations.
        if shader.table.len() > 50_000 {
            return Err(Error::model(format!(
                "training hulls of {} numbers are too large",
                shader.table.len()
            )));
        }
        Ok(shader)
    }
}

/// Resets `sums`, then adds the penalties of a spectrum's priors and of hulls around labels at the point `u`.
pub fn add_penalties(
    stage: &Prior,
    parameters: &[Parameter],
    u: &[f64],
    Priors { mean, weight }: Priors<'_>,
    hull_weight: impl Fn(usize) -> f64,
    sums: &mut Sums,
) {
    sums.chi2 = 0.0;
    sums.penalty = 0.0;
    sums.ln_det = 0.0;
    sums.loss = LossSums::default();
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
        add_hull(hull, hull_weight(h), parameters, u, sums);
    }
}

/// Adds the penalty of a hull to the sums, with its derivatives, if the labels at `u` are outside it.
fn add_hull(hull: &HullRow, weight: f64, parameters: &[Parameter], u: &[f64], sums: &mut Sums) {
    let z: Vec<(f64, f64)> = hull
        .labels
        .iter()
        .map(|label| scale_label(label, parameters, u))
        .collect();
    // 1. The largest distance outside a facet.
    let mut distance = f64::NEG_INFINITY;
    let mut normal = &hull.facets[..0];
    for facet in hull.facets.chunks_exact(z.len() + 1) {
        let offset = facet[z.len()];
        let facet_distance = facet.iter().zip(&z).map(|(n, (z, _))| n * z).sum::<f64>() + offset;
        if facet_distance > distance {
            distance = facet_distance;
            normal = &facet[..z.len()];
        }
    }
    if distance.is_nan() || distance <= 0.0 {
        return;
    }
    // 2. Its derivatives by u.
    let mut row = vec![0.0; u.len()];
    for ((label, (_, slope)), n) in hull.labels.iter().zip(&z).zip(normal) {
        for (p, factor) in label.source.slopes() {
            row[p] += weight * n * slope * factor * parameters[p].scale;
        }
    }
    // 3. The sums of this least-squares row.
    let residual = -weight * distance;
    sums.penalty += residual * residual;
    for p in 0..u.len() {
        sums.gradient[p] += row[p] * residual;
        for q in 0..=p {
            sums.normal_matrix[packed_index(p, q)] += row[p] * row[q];
        }
    }
}
