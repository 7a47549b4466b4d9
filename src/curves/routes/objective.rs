//! A model as a recording, and curves as its batch. For estimators other than least squares the stage `estimate` takes
//! the place of `normal`: each point becomes a cost, a residual and a slope (`buffers/estimator.rs`).

use std::borrow::Borrow;
use std::sync::Arc;

use crate::curve_model::{Code, CurveModel, Failures};
use crate::curves::input::data::Prior;
use crate::curves::input::data::{Curve, Grid};
use crate::recording::{
    self, BufferId, Custom, Estimate, Kind, Normal, Parameter, Precision, Recording, Scope, Stage,
    Values,
};

use crate::solver::{Batch, Estimator, Objective};

/// Bound, in units of the scale, that stands for no bound in f32: infinities in comparisons are not safe on every GPU.
pub(crate) const FAR: f64 = 1e30;
/// Bound that stands for no bound in f64: with tiny units, fits have reached [`FAR`].
pub(crate) const FARTHEST: f64 = 1e300;
/// Bound in the model's own units that stands for no bound.
const UNBOUNDED: f64 = 3e38;

/// A model and the estimator of its points.
#[derive(Clone)]
pub(crate) struct Design {
    pub model: CurveModel,
    pub estimator: Estimator,
    /// True if the noise is estimated from χ².
    pub is_scaled: bool,
    /// True if the model is told which fit it is evaluated for.
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
const DATA: BufferId = BufferId(0);
const WEIGHT: BufferId = BufferId(1);
const PREDICTOR: BufferId = BufferId(2);
const SCALE: BufferId = BufferId(3);
/// Buffer of the rows.
pub(crate) const MODEL: BufferId = BufferId(4);

impl CurveObjective {
    /// Makes the objective that the solver minimises for curves of so many points, with derivatives or with values
    /// only.
    pub fn new(design: Design, points: usize, grid: Grid, values_only: bool) -> CurveObjective {
        let own_grid = grid == Grid::Own;
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
    /// priors in these units. Where they have no bounds, theirs are ±`far` of their units.
    pub fn batch(
        &self,
        curves: &[impl Borrow<Curve>],
        priors: &[Option<Prior>],
        far: f64,
    ) -> Batch {
        let mut batch = Batch {
            spectra: curves.len(),
            group: (0..curves.len() as u32).collect(),
            ..Batch::default()
        };
        let (mut data, mut weight, mut scales, mut x) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for curve in curves.iter().map(Borrow::borrow) {
            let gain = curve.gain;
            data.extend(curve.y.iter().zip(&curve.weight).map(|(y, w)| gain * w * y));
            weight.extend(curve.weight.iter().map(|w| gain * w));
            if self.own_grid || x.is_empty() {
                x.extend(&curve.x);
            }
            scales.extend(&curve.scale);
            scales.extend(curve.lower.iter().map(|bound| bound.max(-UNBOUNDED)));
            scales.extend(curve.upper.iter().map(|bound| bound.min(UNBOUNDED)));
            if self.design.is_tagged {
                scales.extend([curve.index as f64, curve.number as f64]);
            }
            for (p, prior) in priors.iter().enumerate() {
                let scale = curve.scale[p];
                batch.starts.push(curve.begin[p] / scale);
                batch.lower.push((curve.lower[p] / scale).max(-far));
                batch.upper.push((curve.upper[p] / scale).min(far));
                batch
                    .prior_mean
                    .push(prior.map_or(0.0, |prior| prior.mean / scale));
                batch
                    .prior_weight
                    .push(prior.map_or(0.0, |prior| gain * scale / prior.sigma));
            }
        }
        let pairs = [
            (DATA, data),
            (WEIGHT, weight),
            (PREDICTOR, x),
            (SCALE, scales),
        ];
        batch.blocks = pairs
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
        let parameter = |name: &String| Parameter {
            name: name.clone(),
            origin: 0.0,
            scale: 1.0,
        };
        let mut record = Recording {
            parameters: names.iter().map(parameter).collect(),
            precision: Precision::F64,
            values_only: self.values_only,
            dof: self.dof,
            ..Recording::default()
        };
        let (points, predictors) = (self.points, model.predictors().len());
        let rows = if self.values_only { 1 } else { 1 + names.len() };
        // the order of DATA, WEIGHT, PREDICTOR, SCALE, MODEL
        let data = record.buffer("data", Scope::Spectrum, Kind::Float, points);
        let weight = record.buffer("weight", Scope::Spectrum, Kind::Float, points);
        let grid = if self.own_grid {
            Scope::Spectrum
        } else {
            Scope::Batch
        };
        let predictor = record.buffer("predictor", grid, Kind::Float, predictors * points);
        let scale = record.buffer(
            "scale",
            Scope::Spectrum,
            Kind::Float,
            3 * names.len() + if *is_tagged { 2 } else { 0 },
        );
        let values = record.buffer("model", Scope::Member, Kind::Float, rows * points);
        let columns = (0..rows - 1).collect();
        let Code {
            name,
            wgsl,
            table,
            rust,
            many,
        } = model.code(!self.values_only, failures.clone());
        let (estimator, pixels) = (*estimator, points);
        let sums = if estimator.is_least_squares() {
            Stage::Normal(Normal {
                model: values,
                pixels,
                columns,
                data,
                weight,
                continuum: None,
                loss: None,
            })
        } else {
            Stage::Estimate(Estimate {
                estimator,
                model: values,
                pixels,
                columns,
                data,
                weight,
            })
        };
        record.stages = vec![
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
        record
    }
}
