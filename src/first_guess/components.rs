//! Principal components of a library's rows, which make correlating all of them cheap.

use nalgebra::{DMatrix, SymmetricEigen};

use super::bins::Bins;
use crate::math::product::Packed;
use crate::math::scan::{Correlate, interleaved};

/// Templates that the principal components are made from.
const PRINCIPAL: usize = 128;
/// Principal components of the lines, and of the lines squared: enough to say which templates are worth a second look.
const COMPONENTS: usize = 16;

#[derive(Debug)]
pub struct Components {
    pub count: usize,
    /// (count, bins), interleaved.
    rows: Vec<f32>,
    /// (templates, count)
    pub mix: Vec<f32>,
}

impl Components {
    /// Computes the principal components of some templates' lines, and projects the lines of all on them.
    ///
    /// `rows` are (templates, bins). The first [`PRINCIPAL`] are used, each scaled to unit length so that weak lines
    /// count as much as strong ones, without subtracting a mean.
    pub fn new(rows: &[f64], templates: usize) -> Components {
        let bins = rows.len() / templates;
        let some = PRINCIPAL.min(templates);
        let count = COMPONENTS.min(some).next_multiple_of(8);
        let mut unit: Vec<f64> = rows[..some * bins].to_vec();
        for row in unit.chunks_exact_mut(bins) {
            let length = row
                .iter()
                .map(|x| x * x)
                .sum::<f64>()
                .sqrt()
                .max(f64::MIN_POSITIVE);
            row.iter_mut().for_each(|x| *x /= length);
        }
        let products = Packed::transposed(&unit, some, bins).product(&unit);
        let eigen = SymmetricEigen::new(DMatrix::from_vec(some, some, products));
        let mut order: Vec<usize> = (0..some).collect();
        order.sort_by(|&a, &b| eigen.eigenvalues[b].total_cmp(&eigen.eigenvalues[a]));
        // orthonormal components = (eigenvectors / √eigenvalue)ᵀ · unit rows
        let mut vectors = vec![0.0; count * some];
        for (c, &at) in order
            .iter()
            .take(count)
            .enumerate()
            .filter(|(_, at)| eigen.eigenvalues[**at] > 1e-12)
        {
            for k in 0..some {
                vectors[c * some + k] = eigen.eigenvectors[(k, at)] / eigen.eigenvalues[at].sqrt();
            }
        }
        let components = Packed::new(&unit, some, bins).product(&vectors);
        let mix = Packed::transposed(&components, count, bins).product(rows);
        let single = |values: Vec<f64>| values.into_iter().map(|x| x as f32).collect::<Vec<f32>>();
        Components {
            count,
            rows: interleaved(&single(components), bins),
            mix: single(mix),
        }
    }

    /// Estimates the memory that `new` needs for so many templates and bins (bytes).
    pub fn bytes(templates: usize, bins: usize) -> u64 {
        let (some, count) = (
            PRINCIPAL.min(templates),
            COMPONENTS.min(templates).next_multiple_of(8),
        );
        let packed = Packed::<f64>::bytes_of(bins as u64, some as u64)
            .max(Packed::<f64>::bytes_of(bins as u64, count as u64));
        (bins as u64)
            .saturating_mul(8 * some as u64 + 12 * count as u64)
            .saturating_add(packed)
    }

    /// Correlates each component with a spectrum's binned `signal` at every whole shift: (count, shifts).
    pub fn correlate(&self, signal: &[f32], bins: &Bins) -> Vec<f32> {
        let Bins {
            count,
            wanted,
            shifts,
            ..
        } = *bins;
        let mut out = vec![0f32; self.count * shifts];
        Correlate {
            rows: &self.rows,
            length: count,
            signal,
            out: &mut out,
            wanted,
            shifts,
        }
        .run();
        out
    }
}
