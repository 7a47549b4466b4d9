//! Data without what no absorption line does: cosmic rays and pixels far below zero.
//!
//! Under a robust loss the fit itself finds pixels that do not belong to the spectrum. What is made before it, the
//! continuum without lines, the first guess, and the coefficients at which the fit's continuum sets out, comes by least
//! squares, which a single cosmic ray can spoil.

use crate::math::median;

/// Pixels of a block, which has a level of its own, and of which every other one says what it is.
const BLOCK: usize = 64;
/// A pixel is replaced if it lies further above the median of its block than this many standard errors or, where lines
/// are close together, so many times the block's own scatter; and than the medians of neighbouring blocks differ.
const FAR: f64 = 5.0;
/// Standard deviation of a normal distribution in units of its median absolute deviation.
const OF_DEVIATION: f64 = 1.4826;

/// Median and scatter of the flux in a block.
#[derive(Clone, Copy)]
struct Level {
    median: f64,
    scatter: f64,
}

/// Returns √ivar flux (padded, as `data`), with the median of its block of 64 pixels in place of each flux that is too
/// high, or too far below zero.
pub fn clean(flux: &[f64], ivar: &[f64], data: &[f32]) -> Vec<f32> {
    let mut cleaned = data.to_vec();
    let blocks = || flux.chunks(BLOCK).zip(ivar.chunks(BLOCK));
    let levels: Vec<Option<Level>> = blocks().map(|(flux, ivar)| level(flux, ivar)).collect();
    for (b, ((flux, ivar), cleaned)) in blocks().zip(cleaned.chunks_mut(BLOCK)).enumerate() {
        let Some(Level { median, scatter }) = levels[b] else {
            continue;
        };
        let near = [b.wrapping_sub(1), b + 1].map(|b| levels.get(b).copied().flatten());
        let slope = near
            .iter()
            .flatten()
            .map(|other| (other.median - median).abs())
            .fold(0.0, f64::max);
        for ((y, w), cleaned) in flux.iter().zip(ivar).zip(cleaned) {
            let above = *y - median;
            let distance = above.abs() - slope;
            // most pixels end here
            if distance > FAR * scatter && distance * distance * *w > FAR * FAR {
                let is_negative = *y < 0.0 && *y * *y * *w > FAR * FAR;
                *cleaned = if above > 0.0 || is_negative {
                    (median * w.sqrt()) as f32
                } else {
                    *cleaned
                };
            }
        }
    }
    cleaned
}

/// Returns the level of a block; `None` if none of its pixels counts.
fn level(flux: &[f64], ivar: &[f64]) -> Option<Level> {
    let mut sorted: Vec<f64> = flux
        .iter()
        .zip(ivar)
        .step_by(2)
        .filter(|(_, w)| **w > 0.0)
        .map(|(y, _)| *y)
        .collect();
    let level = median(&mut sorted)?;
    sorted.iter_mut().for_each(|y| *y = (*y - level).abs());
    Some(Level {
        median: level,
        scatter: OF_DEVIATION * median(&mut sorted)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spikes and deep negative pixels go, absorption lines and masked pixels stay.
    #[test]
    fn lines_stay_and_spikes_go() {
        let noise = |j: usize| 0.01 * ((j * 7919 % 101) as f64 / 50.0 - 1.0);
        let mut flux: Vec<f64> = (0..200)
            .map(|j| 1.0 + 0.002 * j as f64 + noise(j))
            .collect();
        (80..90).for_each(|j| flux[j] = 0.1);
        let lines = flux.clone();
        for (j, y) in [(20, 3.0), (21, 30.0), (150, -4.0), (199, 1.6), (64, 9.0)] {
            flux[j] = y;
        }
        flux[100] = 1e9;
        let mut ivar = vec![1e4; 200];
        ivar[100] = 0.0;
        let data: Vec<f32> = flux
            .iter()
            .zip(&ivar)
            .map(|(y, w): (&f64, &f64)| (y * w.sqrt()) as f32)
            .chain([0.0; 56])
            .collect();
        let cleaned = clean(&flux, &ivar, &data);
        assert_eq!(cleaned.len(), 256);
        for j in (0..200).filter(|j| *j != 100) {
            let is_hit = flux[j] != lines[j];
            assert_eq!(is_hit, cleaned[j] != data[j], "pixel {j}");
            assert!(
                !is_hit || (f64::from(cleaned[j]) / 100.0 - lines[j]).abs() < 0.2,
                "pixel {j}: {}",
                cleaned[j]
            );
        }
        assert!(cleaned[200..].iter().all(|x| *x == 0.0) && cleaned[100] == data[100]);
        assert_eq!(clean(&[f64::NAN; 3], &[0.0; 3], &[0.0; 3]), [0.0; 3]);
    }
}
