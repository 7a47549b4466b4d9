//! Evaluation of many curves by one call of a user's model.

use super::differences::{Differences, Sides};
use super::model::{Context, Failure};
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
    fn rows_many(&self, sides: Sides, curves: &mut [(&CustomInput, &mut [f64])]) -> Result<(), Failure> {
        let Some((first, output)) = curves.first_mut() else { return Ok(()) };
        let (x, context) = (first.x, Context { index: first.member.number });
        let takes_differences = self.derivatives
            && (self.differences || !self.model.try_linearise(&context, x, first.parameters, output)?);
        if self.derivatives && !takes_differences {
            return curves.iter_mut().try_for_each(|(input, output)| self.rows(input, output));
        }
        // 1. Collect the points of all curves.
        let (mut contexts, mut parameters, mut counts) = (Vec::new(), Vec::new(), Vec::with_capacity(curves.len()));
        for (input, _) in curves.iter() {
            let context = Context { index: input.member.number };
            let rows = match takes_differences {
                true => {
                    Differences { model: self.model, context: &context, input }.append_points(sides, &mut parameters)
                }
                false => {
                    parameters.extend_from_slice(input.parameters);
                    1
                }
            };
            contexts.extend(std::iter::repeat_n(context, rows));
            counts.push(rows);
        }
        // 2. Evaluate them.
        let points = curves.first().map_or(0, |(input, output)| match self.derivatives {
            true => output.len() / (1 + input.parameters.len()),
            false => output.len(),
        });
        let mut values = vec![f64::NAN; contexts.len() * points];
        self.model.values_many(&contexts, x, &parameters, &mut values)?;
        // 3. Give each curve its own.
        let mut remaining = &values[..];
        for ((input, output), rows) in curves.iter_mut().zip(counts) {
            let (of_curve, rest) = remaining.split_at(rows * points);
            match takes_differences {
                true => {
                    let context = Context { index: input.member.number };
                    Differences { model: self.model, context: &context, input }.combine(sides, of_curve, output);
                }
                false => output.copy_from_slice(of_curve),
            }
            remaining = rest;
        }
        Ok(())
    }
}
