//! The strongest frequencies of points at any x: a periodogram with a floating mean (Zechmeister & Kürster 2009), of
//! waves that decay, too.

use std::f64::consts::TAU;

use super::scale::Points;

/// Number of frequencies per width of a line in the periodogram, 1/range.
const PER_LINE: f64 = 4.0;
/// Dampings that are tried, per half range.
const DAMPINGS: [f64; 4] = [0.0, 1.0, 3.0, 9.0];
/// Number of frequencies that are returned.
const MOST: usize = 3;

/// Returns frequencies and dampings, in cycles and per unit of x, at which a wave reduces the sum of squares the most.
/// The points lie between −1 and 1.
pub fn strongest(points: &Points) -> Vec<(f64, f64)> {
    let (x, n) = (&points.axes[0], points.y.len());
    let step = 0.5 / PER_LINE;
    // up to the frequency of which the points have two per cycle
    let count = (n as f64 / 4.0 / step).ceil().max(1.0) as usize;
    let mean = points.y.iter().sum::<f64>() / n as f64;
    let mut found: Vec<[f64; 3]> = Vec::new();
    for damping in DAMPINGS {
        // cos and sin of the frequency, and those by which the next one is further
        let mut waves: Vec<[f64; 4]> = x
            .iter()
            .map(|x| {
                let (sine, cosine) = (TAU * step * x).sin_cos();
                let envelope = (-damping * (x + 1.0)).exp();
                [envelope, 0.0, cosine, sine]
            })
            .collect();
        for k in 1..=count {
            let mut sums = [0.0; 7];
            for ([c, s, dc, ds], y) in waves.iter_mut().zip(&points.y) {
                (*c, *s) = (*c * *dc - *s * *ds, *s * *dc + *c * *ds);
                let y = y - mean;
                let terms = [*c, *s, *c * *c, *c * *s, *s * *s, y * *c, y * *s];
                sums.iter_mut()
                    .zip(terms)
                    .for_each(|(sum, term)| *sum += term);
            }
            let [c, s, cc, cs, ss, yc, ys] = sums;
            let (cc, cs, ss) = (
                cc - c * c / n as f64,
                cs - c * s / n as f64,
                ss - s * s / n as f64,
            );
            let determinant = cc * ss - cs * cs;
            if determinant > 1e-6 * cc * ss {
                let gain = (ss * yc * yc + cc * ys * ys - 2.0 * cs * yc * ys) / determinant;
                found.push([gain, k as f64 * step, damping]);
            }
        }
    }
    found.sort_by(|a, b| b[0].total_cmp(&a[0]));
    let mut chosen: Vec<(f64, f64)> = Vec::new();
    for [_, frequency, damping] in found {
        if chosen.len() < MOST
            && chosen
                .iter()
                .all(|(other, _)| (other - frequency).abs() > 0.5)
        {
            chosen.push((frequency, damping));
        }
    }
    if chosen.is_empty() {
        chosen.push((1.0, 0.0));
    }
    chosen
}
