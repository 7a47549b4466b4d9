//! The row of an object with several exposures, from the row of the fit in which each exposure has arms of its own.

use nalgebra::{DMatrix, DVector};

use crate::math::covariance::pair_index;
use crate::math::probability::{Tail, chi2_tail};
use crate::model::{Cause, SpectralModel};
use crate::spectral::input::exposures::ObservedObject;
use crate::spectral::results::exposures::ExposureVelocities;
use crate::spectral::results::row::FitRow;

/// Mean of the velocities of an object's exposures, weighted by their covariance matrix C (generalised least squares):
/// v̄ = wᵀv with w = C⁻¹1 / 1ᵀC⁻¹1.
struct MeanVelocity {
    velocity: f64,
    error: f64,
    /// Parameter and weight w of each velocity that has an error.
    weights: Vec<(usize, f64)>,
    /// (v − v̄1)ᵀ C⁻¹ (v − v̄1), which is distributed as χ² if all velocities are equal.
    chi2: f64,
}

/// Joins the row of a fit in which each exposure has its own arms to the row of an object.
pub fn join_exposures(model: &SpectralModel, mut row: FitRow, object: &ObservedObject) -> FitRow {
    // 1. Sum what belongs to single arms.
    let exposures = &object.exposures;
    let sum_exposures = |numbers: &[u32]| -> Vec<u32> {
        let arms = numbers.chunks(exposures.len());
        arms.map(|exposures| exposures.iter().sum()).collect()
    };
    row.continuum_terms = sum_exposures(&row.continuum_terms);
    row.unreached = sum_exposures(&row.unreached);
    average_jitters(&mut row, exposures.len());
    // 2. Replace the velocities of the exposures by their mean.
    if let (Some(first), true) = (model.free_velocity(), model.has_exposure_velocities()) {
        let parameters = velocity_parameters(model, first, exposures.len());
        row.exposure_velocities = Some(list_velocities(&row, &parameters, object));
        if parameters.len() > 1 {
            let mean = MeanVelocity::new(&row, &parameters);
            row.p_constant_velocity = mean.p_constant(parameters.len());
            replace_velocities(model, &mut row, first, &parameters, &mean);
        }
    }
    let has_data = row.status_text != Cause::NoData.name();
    row.exposures = Some(if has_data { exposures.len() as u64 } else { 0 });
    row.message = object.restore_numbers(&row.message);
    row
}

/// Replaces the fitted jitters and factors of each arm's `count` exposures by their root mean squares over the
/// exposures that have data. The jitters of different exposures are independent.
fn average_jitters(row: &mut FitRow, count: usize) {
    let root_mean_square = |values: &[f64]| {
        let measured = values.iter().filter(|value| value.is_finite());
        let squares = measured.clone().map(|value| value * value);
        (squares.sum::<f64>() / measured.count() as f64).sqrt()
    };
    let by_arm = row
        .jitter
        .chunks(count)
        .zip(row.jitter_errors.chunks(count));
    let mut means = Vec::new();
    let mut mean_errors = Vec::new();
    for (jitters, errors) in by_arm {
        let mean = root_mean_square(jitters);
        let measured = jitters.iter().filter(|s| s.is_finite()).count() as f64;
        // A jitter of 0 has no error.
        let pairs = jitters.iter().zip(errors).filter(|(s, _)| **s > 0.0);
        let variance: f64 = pairs.map(|(s, error)| (s * error).powi(2)).sum();
        means.push(mean);
        mean_errors.push(if mean > 0.0 {
            variance.sqrt() / (measured * mean)
        } else {
            f64::NAN
        });
    }
    row.error_factors = row
        .error_factors
        .chunks(count)
        .map(root_mean_square)
        .collect();
    (row.jitter, row.jitter_errors) = (means, mean_errors);
}

/// Returns the probability of the likelihood ratio of a fit with one velocity per exposure, `row`, to one with a common
/// velocity: the difference of their objectives is distributed as χ² if the velocities are equal (Wilks 1938).
pub fn likelihood_ratio_p(row: &FitRow, common: &FitRow) -> Option<f64> {
    let dof = row.exposures?.checked_sub(1).filter(|dof| *dof > 0)?;
    let rise = (common.objective - row.objective).max(0.0);
    Some(chi2_tail(Tail::Upper, rise, dof as f64)).filter(|p| !p.is_nan())
}

/// Lists the velocities of all of an object's exposures. Those that were not fitted, and those that the data do not
/// determine, are NaN.
fn list_velocities(
    row: &FitRow,
    parameters: &[usize],
    object: &ObservedObject,
) -> ExposureVelocities {
    let mut list = ExposureVelocities {
        velocities: vec![f64::NAN; object.count],
        errors: vec![f64::NAN; object.count],
    };
    for (exposure, &p) in object.exposures.iter().zip(parameters) {
        if !row.errors[p].is_infinite() {
            list.velocities[*exposure] = row.parameters[p];
            list.errors[*exposure] = row.errors[p];
        }
    }
    list
}

/// Returns the parameters of the velocities of `count` exposures: the model's own, then those behind all others.
fn velocity_parameters(model: &SpectralModel, first: usize, count: usize) -> Vec<usize> {
    let others = (0..count - 1).map(|k| model.parameters.len() + k);
    std::iter::once(first).chain(others).collect()
}

/// Returns the covariance of two parameters of a row.
fn covariance_of(row: &FitRow, a: usize, b: usize) -> f64 {
    let product = row.errors[a] * row.errors[b];
    if a == b {
        return product;
    }
    product * row.correlations[pair_index(a.min(b), a.max(b), row.parameters.len())]
}

impl MeanVelocity {
    /// Computes the mean of those of these parameters that have a positive error; the plain mean of all without one.
    fn new(row: &FitRow, parameters: &[usize]) -> MeanVelocity {
        let is_measured = |p: &usize| row.errors[*p] > 0.0 && row.errors[*p].is_finite();
        let measured: Vec<usize> = parameters.iter().copied().filter(is_measured).collect();
        let n = measured.len();
        let covariance =
            DMatrix::from_fn(n, n, |i, j| covariance_of(row, measured[i], measured[j]));
        let inverse = covariance.cholesky().map(|factor| factor.inverse());
        let Some(inverse) = inverse.filter(|_| n > 0) else {
            let sum: f64 = parameters.iter().map(|&p| row.parameters[p]).sum();
            return MeanVelocity {
                velocity: sum / parameters.len() as f64,
                error: if parameters.iter().all(|&p| row.errors[p] == 0.0) {
                    0.0
                } else {
                    f64::NAN
                },
                weights: Vec::new(),
                chi2: f64::NAN,
            };
        };
        let column_sums = &inverse * DVector::from_element(n, 1.0);
        let information = column_sums.sum();
        let weights = column_sums / information;
        let values = DVector::from_fn(n, |k, _| row.parameters[measured[k]]);
        let velocity = weights.dot(&values);
        let deviations = values.add_scalar(-velocity);
        MeanVelocity {
            velocity,
            error: (1.0 / information).sqrt(),
            weights: measured.into_iter().zip(weights.iter().copied()).collect(),
            chi2: deviations.dot(&(&inverse * &deviations)),
        }
    }

    /// Returns the probability of velocities that differ as much as these or more if all are equal; `None` if one of
    /// the `count` exposures has no standard error, or if there is a single one.
    fn p_constant(&self, count: usize) -> Option<f64> {
        if self.weights.len() < count || count < 2 {
            return None;
        }
        Some(chi2_tail(Tail::Upper, self.chi2, count as f64 - 1.0))
    }

    /// Returns the covariance of the mean with another parameter of the row.
    fn covariance_with(&self, row: &FitRow, other: usize) -> f64 {
        let terms = self
            .weights
            .iter()
            .map(|(p, weight)| weight * covariance_of(row, *p, other));
        terms.sum()
    }
}

/// Puts the mean velocity into the place of the first one, and removes the others from the row's parameters, errors and
/// correlations. The mean is at a bound if any of the velocities is.
fn replace_velocities(
    model: &SpectralModel,
    row: &mut FitRow,
    first: usize,
    velocities: &[usize],
    mean: &MeanVelocity,
) {
    let count = model.parameters.len();
    // 1. Correlations of the remaining parameters.
    let mut correlations = Vec::with_capacity(count * count.saturating_sub(1) / 2);
    for a in 0..count {
        for b in a + 1..count {
            correlations.push(if a == first || b == first {
                let other = if a == first { b } else { a };
                mean.covariance_with(row, other) / (mean.error * row.errors[other])
            } else {
                row.correlations[pair_index(a, b, row.parameters.len())]
            });
        }
    }
    // 2. Bits of the velocities at bounds.
    let is_any_at_bound = velocities.iter().any(|&p| row.at_bound & 1 << p != 0);
    let other_bits = (0..count).filter(|&p| p != first).map(|p| 1 << p);
    row.at_bound &= other_bits.sum::<u32>();
    row.at_bound |= u32::from(is_any_at_bound) << first;
    // 3. Parameters and errors. The errors with all bounds released are independent here.
    let released_information = velocities
        .iter()
        .filter_map(|&p| row.released_errors.get(p))
        .map(|error| error.powi(-2))
        .sum::<f64>();
    row.parameters[first] = mean.velocity;
    row.errors[first] = mean.error;
    if let Some(error) = row.released_errors.get_mut(first) {
        *error = if is_any_at_bound {
            released_information.powf(-0.5)
        } else {
            mean.error
        };
    }
    for values in [
        &mut row.parameters,
        &mut row.errors,
        &mut row.released_errors,
    ] {
        values.truncate(count);
    }
    row.correlations = correlations;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Emulator;
    use crate::model::ExposureVelocity;

    /// Velocities with the errors 1, 2 and 2 and a common part of their errors, and a label that is correlated with it.
    #[test]
    fn the_mean_velocity_is_that_of_generalised_least_squares() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/emulator.safetensors");
        let model = SpectralModel::builder()
            .arm("b", Emulator::open(path).unwrap())
            .velocity(-500.0..=500.0)
            .label("logg", crate::LabelSettings::default().fixed(4.0))
            .label("feh", crate::LabelSettings::default().fixed(0.0))
            .label("alpha", crate::LabelSettings::default().fixed(0.0))
            .exposures(ExposureVelocity::Each)
            .build()
            .unwrap();
        // Parameters are velocity, teff, velocity#2, velocity#3.
        let covariance = [
            [1.0, 3.0, 0.5, 0.5],
            [3.0, 100.0, 3.0, 3.0],
            [0.5, 3.0, 4.0, 0.5],
            [0.5, 3.0, 0.5, 4.0],
        ];
        let errors = [1.0, 10.0, 2.0, 2.0];
        let mut row = FitRow::new(1, 4);
        row.parameters = vec![10.0, 5000.0, 12.0, 11.0];
        row.errors = errors.to_vec();
        row.correlations = (0..4)
            .flat_map(|a| (a + 1..4).map(move |b| covariance[a][b] / (errors[a] * errors[b])))
            .collect();
        row.continuum_terms = vec![3, 4, 5];
        row.unreached = vec![0, 1, 0];
        row.at_bound = 0b1000;
        let object = ObservedObject {
            place: 0,
            file: 0,
            index: 0,
            exposures: vec![0, 1, 3],
            count: 4,
        };
        let joined = join_exposures(&model, row, &object);
        // C⁻¹1 is proportional to 1/0.5, 1/3.5 and 1/3.5, that is, to 7, 1 and 1.
        let mean = (7.0 * 10.0 + 12.0 + 11.0) / 9.0;
        assert!((joined.parameters[0] - mean).abs() < 1e-12 && joined.parameters[1] == 5000.0);
        let variance = (49.0 + 4.0 + 4.0 + 0.5 * 2.0 * (7.0 + 7.0 + 1.0)) / 81.0;
        assert!((joined.errors[0] - f64::sqrt(variance)).abs() < 1e-12);
        let correlation = 3.0 / (10.0 * variance.sqrt());
        assert!((joined.correlations[0] - correlation).abs() < 1e-12);
        assert_eq!(
            (
                joined.parameters.len(),
                joined.errors.len(),
                joined.correlations.len()
            ),
            (2, 2, 1)
        );
        // The velocity is at a bound if that of any exposure is.
        assert_eq!((joined.at_bound, joined.exposures), (0b1, Some(3)));
        assert_eq!(
            (joined.continuum_terms, joined.unreached),
            (vec![12], vec![1])
        );
        let list = joined.exposure_velocities.unwrap();
        assert_eq!((list.velocities[1], list.velocities[3]), (12.0, 11.0));
        assert!(list.velocities[2].is_nan() && list.errors[2].is_nan());
        // Two degrees of freedom: the probability is exp(−X/2).
        let deviations = [10.0 - mean, 12.0 - mean, 11.0 - mean];
        // C = diag(0.5, 3.5, 3.5) + 0.5; the inverse by Sherman and Morrison.
        let scaled: Vec<f64> = deviations
            .iter()
            .zip([0.5, 3.5, 3.5])
            .map(|(d, s)| d / s)
            .collect();
        let sum: f64 = scaled.iter().sum();
        let trace = 1.0 / 0.5 + 2.0 / 3.5;
        let plain: f64 = deviations.iter().zip(&scaled).map(|(d, s)| d * s).sum();
        let chi2 = plain - 0.5 * sum * sum / (1.0 + 0.5 * trace);
        let p_constant = joined.p_constant_velocity.unwrap();
        assert!(
            (p_constant - (-0.5 * chi2).exp()).abs() < 1e-12,
            "{p_constant}"
        );
    }
}
