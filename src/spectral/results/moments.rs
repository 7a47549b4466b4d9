//! Moments of a velocity's posterior.

/// Moments of the posterior in a scan of velocities; km/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VelocityPosterior {
    /// The velocity with the lowest objective, by interpolation with a parabola.
    pub velocity: f64,
    /// √⟨(v − velocity)²⟩.
    pub error: f64,
    /// ⟨(v − velocity)³⟩ / error³.
    pub skewness: f64,
    /// ⟨(v − velocity)⁴⟩ / error⁴: 3 for a Gaussian.
    pub kurtosis: f64,
}

/// Returns the velocity at the minimum of the objective, by a parabola, and the moments of exp(−objective / 2) about
/// it.
///
/// The grid ascends in equal steps, as in rvspecfit's `find_best`. `None` if no objective is finite.
pub fn velocity_moments(velocities: &[f64], objectives: &[f64]) -> Option<VelocityPosterior> {
    // 1. Find the minimum, and probabilities relative to it.
    let finite = (0..velocities.len()).filter(|&i| objectives[i].is_finite());
    let lowest = finite.min_by(|&a, &b| objectives[a].total_cmp(&objectives[b]))?;
    let probability = |i: usize| {
        let excess = objectives[i] - objectives[lowest];
        if excess.is_finite() {
            (-0.5 * excess).exp()
        } else {
            0.0
        }
    };
    let total: f64 = (0..velocities.len()).map(probability).sum();
    // 2. Compute the moments about the vertex. A posterior without width has no shape.
    let velocity = parabola_vertex(velocities, objectives, lowest);
    let moment = |power: i32| -> f64 {
        let terms =
            (0..velocities.len()).map(|i| probability(i) * (velocities[i] - velocity).powi(power));
        terms.sum::<f64>() / total
    };
    let error = moment(2).sqrt();
    let (skewness, kurtosis) = if error < 1e-10 {
        (0.0, 0.0)
    } else {
        (moment(3) / error.powi(3), moment(4) / error.powi(4))
    };
    Some(VelocityPosterior {
        velocity,
        error,
        skewness,
        kurtosis,
    })
}

/// Returns the lowest point of the parabola through point i and its neighbours; the point itself at an end.
fn parabola_vertex(x: &[f64], y: &[f64], i: usize) -> f64 {
    if i == 0 || i + 1 >= x.len() || !y[i - 1].is_finite() || !y[i + 1].is_finite() {
        return x[i];
    }
    let rise_before = y[i - 1] - y[i];
    let rise_after = y[i + 1] - y[i];
    if rise_before + rise_after <= 0.0 {
        return x[i];
    }
    x[i] + 0.25 * (x[i + 1] - x[i - 1]) * (rise_before - rise_after) / (rise_before + rise_after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gaussian_has_its_moments() {
        let v: Vec<f64> = (-12..=12).map(|k| 3.0 + 0.5 * f64::from(k)).collect();
        let y: Vec<f64> = v.iter().map(|v| 100.0 + (v - 3.1).powi(2)).collect();
        let posterior = velocity_moments(&v, &y).unwrap();
        assert!((posterior.velocity - 3.1).abs() < 1e-12 && (posterior.error - 1.0).abs() < 1e-4);
        assert!(posterior.skewness.abs() < 1e-4 && (posterior.kurtosis - 3.0).abs() < 1e-3);
        assert!(velocity_moments(&v, &vec![f64::NAN; v.len()]).is_none());
    }

    /// rvspecfit's `find_best` on three points, worked by hand: the parabola's vertex, moments about it.
    #[test]
    fn moments_are_about_the_vertex() {
        let posterior = velocity_moments(&[0.0, 1.0, 2.0], &[1.0, 0.0, 3.0]).unwrap();
        let probability = [(-0.5f64).exp(), 1.0, (-1.5f64).exp()];
        let vertex = 0.75;
        let moment = |power: i32| {
            (0..3)
                .map(|i| probability[i] * (i as f64 - vertex).powi(power))
                .sum::<f64>()
                / probability.iter().sum::<f64>()
        };
        assert!(
            (posterior.velocity - vertex).abs() < 1e-15
                && (posterior.error - moment(2).sqrt()).abs() < 1e-15
        );
        assert!((posterior.skewness - moment(3) / posterior.error.powi(3)).abs() < 1e-12);
        assert!((posterior.kurtosis - moment(4) / posterior.error.powi(4)).abs() < 1e-12);
    }
}
