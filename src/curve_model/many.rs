//! Evaluation of many curves by one call of a user's model.

use super::differences::{DifferenceStep, FiniteDifferences, MAX_STEP_CORRECTIONS, Sides};
use super::model::{Context, Failure, Model};
use super::{ModelEvaluation, catch_failure};
use crate::recording::CustomInput;

impl ModelEvaluation<'_> {
    /// Evaluates many curves as [`evaluate_curve`](Self::evaluate_curve) does, into `output` (curves, rows, n), by one
    /// call of the model for each grid; NaN of fits in which the model has failed.
    pub(super) fn evaluate_many(&self, sides: Sides, inputs: &[CustomInput], output: &mut [f64]) {
        let size = output.len() / inputs.len().max(1);
        let mut outputs = output.chunks_exact_mut(size.max(1));
        // Curves of a common grid borrow the same x.
        for curves in inputs.chunk_by(|a, b| std::ptr::eq(a.x, b.x)) {
            // 1. Leave out the fits in which the model has failed before.
            let mut live: Vec<(&CustomInput, &mut [f64])> = Vec::with_capacity(curves.len());
            for (input, output) in curves.iter().zip(&mut outputs) {
                match self.failures.text(input.member.index) {
                    Some(_) => output.fill(f64::NAN),
                    None => live.push((input, output)),
                }
            }
            // 2. Evaluate the others together.
            if catch_failure(|| self.try_curves(sides, &mut live)).is_ok() {
                continue;
            }
            // 3. After a failure evaluate them one by one, to find out whose it was.
            for (input, output) in live {
                let single = &mut [(input, &mut *output)];
                if let Err(failure) = catch_failure(|| self.try_curves(sides, single)) {
                    output.fill(f64::NAN);
                    self.failures.add(input.member.index, failure);
                }
            }
        }
    }

    /// Computes values, with `derivatives` also the model's own or differences, of curves of the same grid into their
    /// outputs, or returns the model's error.
    fn try_curves(
        &self,
        sides: Sides,
        curves: &mut [(&CustomInput, &mut [f64])],
    ) -> Result<(), Failure> {
        if !self.derivatives {
            return self.evaluate_values(curves);
        }
        let Some((first, output)) = curves.first_mut() else {
            return Ok(());
        };
        // A model with derivatives of its own evaluates each curve by itself.
        let has_derivatives = !self.differences
            && self
                .model
                .linearise(&context_of(first), first.x, first.parameters, output)?;
        if has_derivatives {
            return curves
                .iter_mut()
                .try_for_each(|(input, output)| self.try_curve(input, output));
        }
        self.take_differences(sides, curves)
    }

    /// Computes values of curves of the same grid into their outputs (n) by one call.
    fn evaluate_values(&self, curves: &mut [(&CustomInput, &mut [f64])]) -> Result<(), Failure> {
        let Some((first, output)) = curves.first() else {
            return Ok(());
        };
        let x = first.x;
        let length = output.len();
        let mut points = BatchedPoints::default();
        for (input, _) in &*curves {
            points.parameters.extend_from_slice(input.parameters);
            points.add_curve(context_of(input), 1);
        }
        let values = points.evaluate(self.model, x, length)?;
        for ((_, output), values) in curves.iter_mut().zip(points.split(&values, length)) {
            output.copy_from_slice(values);
        }
        Ok(())
    }

    /// Computes values and, from differences of values, derivatives by each parameter of curves of the same grid into
    /// their outputs (1 + P, n). The model is never evaluated outside the limits. Where it is not finite on one side of
    /// a parameter, the difference is taken between the other side and the parameter itself. Where steps change the
    /// values too much, or by little more than the rounding of f32, others are taken.
    pub(super) fn take_differences(
        &self,
        sides: Sides,
        curves: &mut [(&CustomInput, &mut [f64])],
    ) -> Result<(), Failure> {
        let Some((first, output)) = curves.first() else {
            return Ok(());
        };
        let x = first.x;
        let length = output.len() / (1 + first.parameters.len());
        // 1. Collect the parameters, and the points at the usual steps from them.
        let contexts: Vec<Context> = curves.iter().map(|(input, _)| context_of(input)).collect();
        let mut points = BatchedPoints::default();
        let mut steps_of_curves: Vec<Vec<DifferenceStep>> = Vec::new();
        for ((input, _), context) in curves.iter().zip(&contexts) {
            let differences = FiniteDifferences {
                model: self.model,
                context,
                input,
            };
            let steps = differences.usual_steps();
            points.parameters.extend_from_slice(input.parameters);
            let rows_beside = differences.append_points(sides, &steps, &mut points.parameters);
            points.add_curve(*context, 1 + rows_beside);
            steps_of_curves.push(steps);
        }
        // 2. Evaluate all of them by one call.
        let values = points.evaluate(self.model, x, length)?;
        let mut values_beside: Vec<&[f64]> = Vec::with_capacity(curves.len());
        for ((_, output), of_curve) in curves.iter_mut().zip(points.split(&values, length)) {
            let (at_parameters, beside) = of_curve.split_at(length);
            output[..length].copy_from_slice(at_parameters);
            values_beside.push(beside);
        }
        // 3. Take differences, and those of other steps where some are too long or too short.
        let mut corrected_values;
        for _ in 0..=MAX_STEP_CORRECTIONS {
            let mut points = BatchedPoints::default();
            let each_curve = curves
                .iter_mut()
                .zip(&contexts)
                .zip(&values_beside)
                .zip(&mut steps_of_curves);
            for ((((input, output), context), beside), steps) in each_curve {
                let differences = FiniteDifferences {
                    model: self.model,
                    context,
                    input,
                };
                *steps = differences.combine(sides, steps, beside, output);
                let rows = differences.append_points(sides, steps, &mut points.parameters);
                points.add_curve(*context, rows);
            }
            if points.contexts.is_empty() {
                break;
            }
            corrected_values = points.evaluate(self.model, x, length)?;
            values_beside = points.split(&corrected_values, length).collect();
        }
        Ok(())
    }
}

/// Returns the context of a curve for a user's model.
pub(super) fn context_of(input: &CustomInput) -> Context {
    Context {
        index: input.member.number,
    }
}

/// Points of several curves at which a model is evaluated by one call.
#[derive(Default)]
struct BatchedPoints {
    /// (rows)
    contexts: Vec<Context>,
    /// (rows, P)
    parameters: Vec<f64>,
    /// Numbers of the rows of each curve.
    rows: Vec<usize>,
}

impl BatchedPoints {
    /// Adds the next curve, whose parameters in so many rows have been added.
    fn add_curve(&mut self, context: Context, rows: usize) {
        self.contexts.extend(std::iter::repeat_n(context, rows));
        self.rows.push(rows);
    }

    /// Returns the model's values, (rows, n).
    fn evaluate(&self, model: &dyn Model, x: &[f64], n: usize) -> Result<Vec<f64>, Failure> {
        let mut values = vec![f64::NAN; self.contexts.len() * n];
        model.values_many(&self.contexts, x, &self.parameters, &mut values)?;
        Ok(values)
    }

    /// Divides values (rows, n) among the curves.
    fn split<'v>(
        &self,
        values: &'v [f64],
        n: usize,
    ) -> impl Iterator<Item = &'v [f64]> + use<'v, '_> {
        let mut remaining = values;
        self.rows.iter().map(move |rows| {
            let (of_curve, rest) = remaining.split_at(rows * n);
            remaining = rest;
            of_curve
        })
    }
}
