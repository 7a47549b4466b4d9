//! Evaluation of many curves by one call of a user's model.

use super::differences::{Differences, MOST_OTHERS, Sides, Step};
use super::model::{Context, Failure, Model};
use super::{Evaluation, guarded};
use crate::recording::CustomInput;

impl Evaluation<'_> {
    /// Computes what [`fill`](Self::fill) does of many curves into `output` (curves, rows, n), by one call of the model
    /// for each grid; NaN of fits in which the model has failed.
    pub(super) fn fill_many(&self, sides: Sides, inputs: &[CustomInput], output: &mut [f64]) {
        let size = output.len() / inputs.len().max(1);
        let mut outputs = output.chunks_exact_mut(size.max(1));
        // curves of a common grid lend one and the same
        for curves in inputs.chunk_by(|a, b| std::ptr::eq(a.x, b.x)) {
            let mut live: Vec<(&CustomInput, &mut [f64])> = Vec::with_capacity(curves.len());
            for (input, output) in curves.iter().zip(&mut outputs) {
                match self.failures.text(input.member.index) {
                    Some(_) => output.fill(f64::NAN),
                    None => live.push((input, output)),
                }
            }
            if guarded(|| self.rows_many(sides, &mut live)).is_ok() {
                continue;
            }
            // whose failure it was
            for (input, output) in live {
                if let Err(text) = guarded(|| self.rows_many(sides, &mut [(input, &mut *output)])) {
                    output.fill(f64::NAN);
                    self.failures.add(input.member.index, text);
                }
            }
        }
    }

    /// Computes values, with `derivatives` also the model's own or differences, of curves of the same grid into their
    /// outputs, or returns the model's error.
    fn rows_many(
        &self,
        sides: Sides,
        curves: &mut [(&CustomInput, &mut [f64])],
    ) -> Result<(), Failure> {
        let Some((first, output)) = curves.first_mut() else {
            return Ok(());
        };
        let (x, context) = (
            first.x,
            Context {
                index: first.member.number,
            },
        );
        let takes_differences = self.derivatives
            && (self.differences
                || !self
                    .model
                    .try_linearise(&context, x, first.parameters, output)?);
        if self.derivatives && !takes_differences {
            return curves
                .iter_mut()
                .try_for_each(|(input, output)| self.rows(input, output));
        }
        let contexts: Vec<Context> = curves
            .iter()
            .map(|(input, _)| Context {
                index: input.member.number,
            })
            .collect();
        let mut points = Points::default();
        // 1. The values at the parameters, and at the usual steps from them.
        let mut steps: Vec<Vec<Step>> = Vec::new();
        for ((input, _), context) in curves.iter().zip(&contexts) {
            let differences = Differences {
                model: self.model,
                context,
                input,
            };
            let own = if takes_differences {
                differences.usual_steps()
            } else {
                Vec::new()
            };
            points.parameters.extend_from_slice(input.parameters);
            let beside = differences.append_points(sides, &own, &mut points.parameters);
            points.add(*context, 1 + beside);
            steps.push(own);
        }
        let length = curves
            .first()
            .map_or(0, |(input, output)| match self.derivatives {
                true => output.len() / (1 + input.parameters.len()),
                false => output.len(),
            });
        let values = points.evaluate(self.model, x, length)?;
        let mut of_curves = points.split(&values, length);
        let mut beside: Vec<&[f64]> = Vec::with_capacity(curves.len());
        for ((_, output), of_curve) in curves.iter_mut().zip(&mut of_curves) {
            let (own, others) = of_curve.split_at(length);
            output[..length].copy_from_slice(own);
            beside.push(others);
        }
        if !takes_differences {
            return Ok(());
        }
        // 2. Differences, and those of other steps where some are too long or too short.
        let mut others;
        for _ in 0..=MOST_OTHERS {
            let mut points = Points::default();
            let all = curves
                .iter_mut()
                .zip(&contexts)
                .zip(&beside)
                .zip(&mut steps);
            for ((((input, output), context), beside), steps) in all {
                let differences = Differences {
                    model: self.model,
                    context,
                    input,
                };
                *steps = differences.combine(sides, steps, beside, output);
                let rows = differences.append_points(sides, steps, &mut points.parameters);
                points.add(*context, rows);
            }
            if points.contexts.is_empty() {
                break;
            }
            others = points.evaluate(self.model, x, length)?;
            beside = points.split(&others, length).collect();
        }
        Ok(())
    }
}

/// Points of several curves at which a model is evaluated by one call.
#[derive(Default)]
struct Points {
    /// (rows)
    contexts: Vec<Context>,
    /// (rows, P)
    parameters: Vec<f64>,
    /// Numbers of the rows of each curve.
    rows: Vec<usize>,
}

impl Points {
    /// Adds the next curve, whose parameters in so many rows have been added.
    fn add(&mut self, context: Context, rows: usize) {
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
