//! Search for the strongest frequencies of unevenly spaced points: a periodogram with a floating mean (Zechmeister &
//! Kürster 2009), which includes waves that decay.

use std::f64::consts::TAU;

use super::scale::CurvePoints;

/// Number of frequencies per width of a line in the periodogram, 1/range.
const FREQUENCIES_PER_LINE: f64 = 4.0;
/// Dampings to try, in units of 1 / half range.
const TRIAL_DAMPINGS: [f64; 4] = [0.0, 1.0, 3.0, 9.0];
/// Maximum number of waves that are returned.
const MAX_WAVES: usize = 3;

/// Returns frequencies and dampings, in cycles and per unit of x, at which a wave reduces the sum of squares the most.
/// The points lie between −1 and 1.
pub fn find_strongest_waves(points: &CurvePoints) -> Vec<(f64, f64)> {
    let x = &points.axes[0];
    let point_count = points.y.len() as f64;
    let frequency_step = 0.5 / FREQUENCIES_PER_LINE;
    // The highest frequency is the one of which the points have two per cycle.
    let frequency_count = (point_count / 4.0 / frequency_step).ceil().max(1.0) as usize;
    let mean = points.y.iter().sum::<f64>() / point_count;
    // 1. Compute by how much a wave of each frequency and damping reduces the sum of squares.
    let mut candidates: Vec<[f64; 3]> = Vec::new();
    for damping in TRIAL_DAMPINGS {
        // For each point: damped cosine and sine of the current frequency, and cosine and sine of one frequency step.
        let mut waves: Vec<[f64; 4]> = x
            .iter()
            .map(|x| {
                let (sine, cosine) = (TAU * frequency_step * x).sin_cos();
                let envelope = (-damping * (x + 1.0)).exp();
                [envelope, 0.0, cosine, sine]
            })
            .collect();
        for k in 1..=frequency_count {
            let mut sums = [0.0; 7];
            for ([c, s, dc, ds], y) in waves.iter_mut().zip(&points.y) {
                (*c, *s) = (*c * *dc - *s * *ds, *s * *dc + *c * *ds);
                let y = y - mean;
                let terms = [*c, *s, *c * *c, *c * *s, *s * *s, y * *c, y * *s];
                sums.iter_mut()
                    .zip(terms)
                    .for_each(|(sum, term)| *sum += term);
            }
            // The means are removed from the products, because the mean of the data floats.
            let [c, s, cc, cs, ss, yc, ys] = sums;
            let cc = cc - c * c / point_count;
            let cs = cs - c * s / point_count;
            let ss = ss - s * s / point_count;
            let determinant = cc * ss - cs * cs;
            if determinant > 1e-6 * cc * ss {
                let gain = (ss * yc * yc + cc * ys * ys - 2.0 * cs * yc * ys) / determinant;
                candidates.push([gain, k as f64 * frequency_step, damping]);
            }
        }
    }
    // 2. Choose the strongest waves whose frequencies differ by more than a line's width.
    candidates.sort_by(|a, b| b[0].total_cmp(&a[0]));
    let mut strongest: Vec<(f64, f64)> = Vec::new();
    for [_, frequency, damping] in candidates {
        let is_separate =
            |(chosen_frequency, _): &(f64, f64)| (chosen_frequency - frequency).abs() > 0.5;
        if strongest.len() < MAX_WAVES && strongest.iter().all(is_separate) {
            strongest.push((frequency, damping));
        }
    }
    if strongest.is_empty() {
        strongest.push((1.0, 0.0));
    }
    strongest
}
