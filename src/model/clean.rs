//! Data without fluxes that no absorption line explains: cosmic rays and pixels far below zero.
//!
//! Under a robust loss the fit itself finds pixels that do not belong to the spectrum. Before the fit, the continuum
//! without lines, the first guess and the first coefficients of the continuum come from least squares, which a single
//! cosmic ray can spoil.

use crate::math::median;

/// Number of pixels of a block. Each block has a level of its own, which is measured at every other pixel.
const PIXELS_PER_BLOCK: usize = 64;
/// Number of standard errors from the median of its block beyond which a pixel is an outlier. The distance must also
/// exceed the same multiple of the block's scatter, which is large where lines are close together. The difference
/// between the medians of neighbouring blocks is subtracted from the distance.
const OUTLIER_SIGMAS: f64 = 5.0;
/// Standard deviation of a normal distribution in units of its median absolute deviation.
const SIGMA_PER_DEVIATION: f64 = 1.4826;

/// Median and scatter of the flux in a block.
#[derive(Clone, Copy)]
struct BlockLevel {
    median: f64,
    scatter: f64,
}

/// Returns √ivar flux (padded, as `data`), with the median of its block of 64 pixels in place of each flux that is too
/// high, or too far below zero.
pub fn replace_outliers(flux: &[f64], ivar: &[f64], data: &[f32]) -> Vec<f32> {
    let mut cleaned = data.to_vec();
    let blocks = || {
        flux.chunks(PIXELS_PER_BLOCK)
            .zip(ivar.chunks(PIXELS_PER_BLOCK))
    };
    // 1. Measure the level of each block.
    let levels: Vec<Option<BlockLevel>> = blocks()
        .map(|(flux, ivar)| measure_level(flux, ivar))
        .collect();
    // 2. Replace outliers by the median of their block, after allowing for the slope to its neighbours.
    for (block, ((flux, ivar), cleaned)) in blocks()
        .zip(cleaned.chunks_mut(PIXELS_PER_BLOCK))
        .enumerate()
    {
        let Some(BlockLevel { median, scatter }) = levels[block] else {
            continue;
        };
        let neighbours = [block.wrapping_sub(1), block + 1]
            .map(|neighbour| levels.get(neighbour).copied().flatten());
        let slope = neighbours
            .iter()
            .flatten()
            .map(|neighbour| (neighbour.median - median).abs())
            .fold(0.0, f64::max);
        for ((y, w), cleaned) in flux.iter().zip(ivar).zip(cleaned) {
            let excess = *y - median;
            let distance = excess.abs() - slope;
            // Most pixels fail this test.
            if distance > OUTLIER_SIGMAS * scatter
                && distance * distance * *w > OUTLIER_SIGMAS * OUTLIER_SIGMAS
            {
                let is_negative = *y < 0.0 && *y * *y * *w > OUTLIER_SIGMAS * OUTLIER_SIGMAS;
                *cleaned = if excess > 0.0 || is_negative {
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
fn measure_level(flux: &[f64], ivar: &[f64]) -> Option<BlockLevel> {
    let mut sorted: Vec<f64> = flux
        .iter()
        .zip(ivar)
        .step_by(2)
        .filter(|(_, w)| **w > 0.0)
        .map(|(y, _)| *y)
        .collect();
    let median_flux = median(&mut sorted)?;
    sorted
        .iter_mut()
        .for_each(|y| *y = (*y - median_flux).abs());
    Some(BlockLevel {
        median: median_flux,
        scatter: SIGMA_PER_DEVIATION * median(&mut sorted)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spikes and deep negative pixels are replaced; absorption lines and masked pixels are not.
    #[test]
    fn spikes_are_replaced_and_absorption_lines_are_not() {
        let noise = |j: usize| 0.01 * ((j * 7919 % 101) as f64 / 50.0 - 1.0);
        let mut flux: Vec<f64> = (0..200)
            .map(|j| 1.0 + 0.002 * j as f64 + noise(j))
            .collect();
        (80..90).for_each(|j| flux[j] = 0.1);
        let clean_flux = flux.clone();
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
        let cleaned = replace_outliers(&flux, &ivar, &data);
        assert_eq!(cleaned.len(), 256);
        for j in (0..200).filter(|j| *j != 100) {
            let is_outlier = flux[j] != clean_flux[j];
            assert_eq!(is_outlier, cleaned[j] != data[j], "pixel {j}");
            assert!(
                !is_outlier || (f64::from(cleaned[j]) / 100.0 - clean_flux[j]).abs() < 0.2,
                "pixel {j}: {}",
                cleaned[j]
            );
        }
        assert!(cleaned[200..].iter().all(|x| *x == 0.0) && cleaned[100] == data[100]);
        assert_eq!(
            replace_outliers(&[f64::NAN; 3], &[0.0; 3], &[0.0; 3]),
            [0.0; 3]
        );
    }
}
