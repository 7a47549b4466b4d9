//! Principal components of a library's rows, which make correlating all of them cheap.

use nalgebra::{DMatrix, SymmetricEigen};

use super::bins::Bins;
use crate::math::product::Packed;
use crate::math::scan::{Correlate, interleaved};

/// Maximum number of templates from which the principal components are computed.
const MAX_COMPONENT_TEMPLATES: usize = 128;
/// Principal components of the lines, and of the lines squared: enough to say which templates are worth a second look.
const MAX_COMPONENTS: usize = 16;

/// Principal components of the lines of a library, or of their squares.
#[derive(Debug)]
pub struct Components {
    pub count: usize,
    /// (count, bins), interleaved.
    rows: Vec<f32>,
    /// (templates, count)
    pub coefficients: Vec<f32>,
}

impl Components {
    /// Computes the principal components of some templates' lines, and projects the lines of all on them.
    ///
    /// `rows` are (templates, bins). The first [`MAX_COMPONENT_TEMPLATES`] are used, each scaled to unit length so that
    /// weak lines count as much as strong ones, without subtracting a mean.
    pub fn new(rows: &[f64], templates: usize) -> Components {
        let bins = rows.len() / templates;
        let used = MAX_COMPONENT_TEMPLATES.min(templates);
        let count = MAX_COMPONENTS.min(used).next_multiple_of(8);
        // 1. Scale the rows of the first templates to unit length.
        let mut unit_rows: Vec<f64> = rows[..used * bins].to_vec();
        for row in unit_rows.chunks_exact_mut(bins) {
            let square = row.iter().map(|x| x * x).sum::<f64>();
            let length = square.sqrt().max(f64::MIN_POSITIVE);
            row.iter_mut().for_each(|x| *x /= length);
        }
        // 2. The eigenvectors of the rows' products, by descending eigenvalue, give the orthonormal components:
        //    (eigenvectors / √eigenvalue)ᵀ · unit rows.
        let products = Packed::transposed(&unit_rows, used, bins).product(&unit_rows);
        let eigen = SymmetricEigen::new(DMatrix::from_vec(used, used, products));
        let mut order: Vec<usize> = (0..used).collect();
        order.sort_by(|&a, &b| eigen.eigenvalues[b].total_cmp(&eigen.eigenvalues[a]));
        let mut vectors = vec![0.0; count * used];
        for (component, &index) in order.iter().take(count).enumerate() {
            let eigenvalue = eigen.eigenvalues[index];
            if eigenvalue > 1e-12 {
                for k in 0..used {
                    vectors[component * used + k] =
                        eigen.eigenvectors[(k, index)] / eigenvalue.sqrt();
                }
            }
        }
        let components = Packed::new(&unit_rows, used, bins).product(&vectors);
        // 3. Project the lines of all templates on them.
        let coefficients = Packed::transposed(&components, count, bins).product(rows);
        Components {
            count,
            rows: interleaved(&to_single(components), bins),
            coefficients: to_single(coefficients),
        }
    }

    /// Estimates the memory that `new` needs for these numbers of templates and bins (bytes).
    pub fn estimate_bytes(templates: usize, bins: usize) -> u64 {
        let used = MAX_COMPONENT_TEMPLATES.min(templates) as u64;
        let count = MAX_COMPONENTS.min(templates).next_multiple_of(8) as u64;
        let bins = bins as u64;
        let packed = Packed::<f64>::bytes_of(bins, used).max(Packed::<f64>::bytes_of(bins, count));
        bins.saturating_mul(8 * used + 12 * count)
            .saturating_add(packed)
    }

    /// Correlates each component with a spectrum's binned `signal` at every whole shift: (count, shifts).
    pub fn correlate(&self, signal: &[f32], bins: &Bins) -> Vec<f32> {
        let mut correlations = vec![0f32; self.count * bins.shifts];
        Correlate {
            rows: &self.rows,
            length: bins.count,
            signal,
            out: &mut correlations,
            wanted: bins.wanted_shifts,
            shifts: bins.shifts,
        }
        .run();
        correlations
    }
}

/// Converts values to single precision.
fn to_single(values: Vec<f64>) -> Vec<f32> {
    values.into_iter().map(|value| value as f32).collect()
}
