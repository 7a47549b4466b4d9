//! A model as a recording, and curves as its batch. For estimators other than least squares the stage `estimate`
//! replaces `normal`: each point becomes a cost, a residual and a slope (`buffers/estimator.rs`).

use std::borrow::Borrow;
use std::sync::Arc;

use crate::curve_model::{Code, CurveModel, Failures};
use crate::curves::input::data::ParameterPrior;
use crate::curves::input::data::{Curve, GridKind};
use crate::recording::{
    self, BufferId, Custom, Estimate, Kind, Normal, Parameter, Precision, Recording, Scope, Stage,
    Values,
};

use crate::solver::{Batch, Estimator, Objective};

/// Bound, in units of the scale, that stands for no bound in f32: infinities in comparisons are not safe on every GPU.
pub(crate) const INFINITE_BOUND_IN_F32: f64 = 1e30;
/// Bound that stands for no bound in f64: with tiny units, fits have reached [`INFINITE_BOUND_IN_F32`].
pub(crate) const INFINITE_BOUND_IN_F64: f64 = 1e300;
/// Bound in the model's own units that stands for no bound.
const INFINITE_BOUND_OF_MODEL: f64 = 3e38;

/// A model and the estimator of its points.
#[derive(Clone)]
pub(crate) struct Design {
    pub model: CurveModel,
    pub estimator: Estimator,
    /// True if the noise is estimated from χ².
    pub is_scaled: bool,
    /// True if the model receives the index and the number of the curve that it is evaluated for.
    pub is_tagged: bool,
    /// Failures of the model, by fit.
    pub failures: Arc<Failures>,
}

/// The objective of a model for curves of the same number of points.
pub(crate) struct CurveObjective {
    design: Design,
    points: usize,
    own_grid: bool,
    values_only: bool,
    dof: Option<f64>,
}

/// The buffers of the batch, in the order in which they are recorded.
const DATA_BUFFER: BufferId = BufferId(0);
const WEIGHT_BUFFER: BufferId = BufferId(1);
const PREDICTOR_BUFFER: BufferId = BufferId(2);
const SCALE_BUFFER: BufferId = BufferId(3);
/// Buffer of the model's values and derivatives.
pub(crate) const MODEL_BUFFER: BufferId = BufferId(4);

impl CurveObjective {
    /// Makes the objective that the solver minimises for curves of so many points, with derivatives or with values
    /// only.
    pub fn new(design: Design, points: usize, grid: GridKind, values_only: bool) -> CurveObjective {
        let own_grid = grid == GridKind::Own;
        let dof = points
            .saturating_sub(design.model.parameters().len())
            .max(1) as f64;
        CurveObjective {
            points,
            own_grid,
            values_only,
            dof: design.is_scaled.then_some(dof),
            design,
        }
    }

    /// Returns the solver's input for some curves, one member each: weighted data, grids, units, and starts, bounds and
    /// priors in these units. `infinite_bound` stands for infinite bounds, in these units.
    pub fn batch(
        &self,
        curves: &[impl Borrow<Curve>],
        priors: &[Option<ParameterPrior>],
        infinite_bound: f64,
    ) -> Batch {
        let mut batch = Batch {
            spectra: curves.len(),
            group: (0..curves.len() as u32).collect(),
            ..Batch::default()
        };
        let mut data = Vec::new();
        let mut weights = Vec::new();
        let mut scales = Vec::new();
        let mut x = Vec::new();
        for curve in curves.iter().map(Borrow::borrow) {
            // 1. Data and weights, times the curve's factor, and the grid, once if all share it.
            let row_factor = curve.row_factor;
            data.extend(
                curve
                    .y
                    .iter()
                    .zip(&curve.weight)
                    .map(|(y, w)| row_factor * w * y),
            );
            weights.extend(curve.weight.iter().map(|w| row_factor * w));
            if self.own_grid || x.is_empty() {
                x.extend(&curve.x);
            }
            // 2. Units and bounds, by which the model converts the solver's parameters to its own.
            scales.extend(&curve.scale);
            scales.extend(
                curve
                    .lower
                    .iter()
                    .map(|bound| bound.max(-INFINITE_BOUND_OF_MODEL)),
            );
            scales.extend(
                curve
                    .upper
                    .iter()
                    .map(|bound| bound.min(INFINITE_BOUND_OF_MODEL)),
            );
            if self.design.is_tagged {
                scales.extend([curve.index as f64, curve.number as f64]);
            }
            // 3. Starts, bounds and priors in the solver's units.
            for (p, prior) in priors.iter().enumerate() {
                let scale = curve.scale[p];
                let (mean, weight) = match prior {
                    Some(prior) => (prior.mean / scale, row_factor * scale / prior.sigma),
                    None => (0.0, 0.0),
                };
                batch.starts.push(curve.first_point[p] / scale);
                batch
                    .lower
                    .push((curve.lower[p] / scale).max(-infinite_bound));
                batch
                    .upper
                    .push((curve.upper[p] / scale).min(infinite_bound));
                batch.prior_mean.push(mean);
                batch.prior_weight.push(weight);
            }
        }
        batch.blocks = [
            (DATA_BUFFER, data),
            (WEIGHT_BUFFER, weights),
            (PREDICTOR_BUFFER, x),
            (SCALE_BUFFER, scales),
        ]
        .into_iter()
        .map(|(id, values)| (id, Values::F64(values.into())))
        .collect();
        batch
    }
}

impl Objective for CurveObjective {
    fn record(&self) -> Recording {
        let Design {
            model,
            estimator,
            is_tagged,
            failures,
            ..
        } = &self.design;
        let names = model.parameters();
        let parameters = names
            .iter()
            .map(|name| Parameter {
                name: name.clone(),
                origin: 0.0,
                scale: 1.0,
            })
            .collect();
        let mut recording = Recording {
            parameters,
            precision: Precision::F64,
            values_only: self.values_only,
            dof: self.dof,
            ..Recording::default()
        };
        // 1. Buffers, in the order of DATA_BUFFER, WEIGHT_BUFFER, PREDICTOR_BUFFER, SCALE_BUFFER, MODEL_BUFFER.
        let points = self.points;
        let predictors = model.predictors().len();
        let rows = if self.values_only { 1 } else { 1 + names.len() };
        let data = recording.buffer("data", Scope::Spectrum, Kind::Float, points);
        let weight = recording.buffer("weight", Scope::Spectrum, Kind::Float, points);
        let grid_scope = if self.own_grid {
            Scope::Spectrum
        } else {
            Scope::Batch
        };
        let predictor = recording.buffer("predictor", grid_scope, Kind::Float, predictors * points);
        let tags = if *is_tagged { 2 } else { 0 };
        let scale = recording.buffer(
            "scale",
            Scope::Spectrum,
            Kind::Float,
            3 * names.len() + tags,
        );
        let values = recording.buffer("model", Scope::Member, Kind::Float, rows * points);
        // 2. The model evaluates its rows, and the last stage adds them up.
        let Code {
            name,
            wgsl,
            table,
            rust,
            many,
        } = model.stage_code(!self.values_only, failures.clone());
        let columns = (0..rows - 1).collect();
        let sums = if estimator.is_least_squares() {
            Stage::Normal(Normal {
                model: values,
                pixels: points,
                columns,
                data,
                weight,
                continuum: None,
                loss: None,
            })
        } else {
            Stage::Estimate(Estimate {
                estimator: *estimator,
                model: values,
                pixels: points,
                columns,
                data,
                weight,
            })
        };
        recording.stages = vec![
            Stage::Prior(recording::Prior::WITHOUT_HULLS),
            Stage::Custom(Custom {
                name,
                output: values,
                rows,
                pixels: points,
                predictors,
                predictor,
                scale: Some(scale),
                table,
                wgsl,
                rust,
                many,
            }),
            sums,
        ];
        recording
    }
}
