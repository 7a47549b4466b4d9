//! Sums of one arm whose noise is correlated: χ², gradient and normal matrix of the whitened rows, with the continuum
//! eliminated as in `kernels/continuum.rs` and `kernels/normal.rs`. f64. As there, sums are made in the stored basis of
//! the continuum and transformed to the orthonormal one.

use std::borrow::Cow;

use crate::buffers::Sums;
use crate::math::banded::RightHandSides;
use crate::math::triangle::{cholesky, packed_index, packed_length, solve_lower, solve_upper};
use crate::model::{PreparedArm, Sampling};

/// One arm of a spectrum, with the rows of its model at a point.
#[derive(Clone, Copy)]
pub struct ArmPoint<'a> {
    pub prepared: &'a PreparedArm,
    pub sampling: &'a Sampling,
    /// Number of continuum terms of the model, of which the weights may determine fewer.
    pub terms: usize,
    /// (rows, stride) Values at the pixels, then derivatives by the solver's u.
    pub model: &'a [f64],
    pub stride: usize,
}

/// The whitened continuum of an arm at a point, with its solution.
struct WhitenedContinuum {
    /// (pixels, terms + 1) Whitened columns of S in the stored basis, then the residual.
    design: RightHandSides,
    /// (rank) Coefficients a of the orthonormal basis.
    coefficients: Vec<f64>,
    /// (terms) Coefficients of the stored basis.
    stored_coefficients: Vec<f64>,
    /// Cholesky factor of C = SᵀS, packed.
    factor: Vec<f64>,
}

/// Returns the coefficients of an arm's continuum (terms) that minimise rᵀ R⁻¹ r at a point; `None` if they are not
/// determined there, or if the arm's noise is not correlated.
pub fn solve_continuum(arm: ArmPoint) -> Option<Vec<f64>> {
    arm.prepared.noise.as_ref()?;
    let mut coefficients = whiten_continuum(arm, &find_pixels(arm))?.coefficients;
    coefficients.resize(arm.terms, 0.0);
    Some(coefficients)
}

/// Adds an arm at a point to the sums of a member: with L the factor of the correlations,
///
/// ```text
/// S = L⁻¹ (weight · value · basis),   C = SᵀS,   C a = Sᵀ L⁻¹D,   r = L⁻¹D − S a,
/// J = L⁻¹ (weight · continuum · tangents),   B = SᵀJ,
/// χ² += rᵀr,   g += Jᵀr,   A += JᵀJ − Bᵀ C⁻¹ B,   ln det += ln det C.
/// ```
///
/// `columns` has the parameter of each tangent row. Sums become NaN where C is not positive definite.
pub fn add_arm(arm: ArmPoint, columns: &[usize], sums: &mut Sums) {
    let pixels = find_pixels(arm);
    let Some(continuum) = whiten_continuum(arm, &pixels) else {
        *sums = Sums::poisoned(sums.gradient.len());
        return;
    };
    let rank = continuum.coefficients.len();
    let terms = continuum.stored_coefficients.len();
    // 1. Whiten the tangents.
    let mut tangents = RightHandSides::zeros(pixels.len(), columns.len());
    for (i, &j) in pixels.iter().enumerate() {
        let factor = f64::from(arm.prepared.weight[j]) * continuum.value(arm, j);
        for (p, tangent) in tangents.row_mut(i).iter_mut().enumerate() {
            *tangent = factor * arm.model[(1 + p) * arm.stride + j];
        }
    }
    whiten(arm, &mut tangents);
    // 2. Add χ² and ln det C.
    let residuals = continuum.design.rows().map(|row| row[terms]);
    sums.chi2 += residuals.map(|r| r * r).sum::<f64>();
    sums.ln_det += ln_det(&continuum.factor, rank);
    // 3. Add gradient and normal matrix.
    let tangent_products = tangents.products(&tangents);
    let design_products = tangents.products(&continuum.design);
    let width = terms + 1;
    let projections: Vec<Vec<f64>> = (0..columns.len())
        .map(|p| {
            let stored_projection = &design_products[p * width..][..terms];
            let mut projection = orthonormalise(arm, rank, stored_projection);
            solve_lower(&continuum.factor, &mut projection);
            projection
        })
        .collect();
    for (p, &parameter) in columns.iter().enumerate() {
        sums.gradient[parameter] += design_products[p * width + terms];
        for (q, &other) in columns.iter().enumerate().take(p + 1) {
            let projected: f64 = projections[p]
                .iter()
                .zip(&projections[q])
                .map(|(x, y)| x * y)
                .sum();
            let element = tangent_products[p * columns.len() + q] - projected;
            sums.normal_matrix[packed_index(parameter, other)] += element;
        }
    }
}

/// Returns the indices of the pixels that count.
fn find_pixels(arm: ArmPoint<'_>) -> Cow<'_, [usize]> {
    match &arm.prepared.noise {
        Some(noise) => Cow::Borrowed(&noise.pixels),
        None => {
            let weights = arm.prepared.weight.iter().enumerate();
            weights
                .filter(|(_, weight)| **weight != 0.0)
                .map(|(j, _)| j)
                .collect()
        }
    }
}

/// Replaces vectors by L⁻¹ times these. Noise that is not correlated leaves them as they are.
fn whiten(arm: ArmPoint, vectors: &mut RightHandSides) {
    if let Some(noise) = &arm.prepared.noise {
        noise.whiten(vectors);
    }
}

/// Returns the products of the first `rank` functions of the orthonormal basis from those of the stored one.
fn orthonormalise(arm: ArmPoint, rank: usize, stored: &[f64]) -> Vec<f64> {
    let rows = arm.prepared.transform.chunks_exact(arm.terms.max(1));
    rows.take(rank)
        .map(|row| {
            row.iter()
                .zip(stored)
                .map(|(t, product)| f64::from(*t) * product)
                .sum()
        })
        .collect()
}

/// Solves for the continuum of an arm at a point; `None` where C is not positive definite.
fn whiten_continuum(arm: ArmPoint, pixels: &[usize]) -> Option<WhitenedContinuum> {
    let prepared = arm.prepared;
    let (terms, rank) = if pixels.is_empty() {
        (0, 0)
    } else {
        (arm.terms, prepared.rank)
    };
    // 1. Whiten the columns of S and the data. Without a continuum the model is subtracted from the data.
    let stored_basis = prepared.basis(arm.sampling);
    let stored_pixels = prepared.weighted_flux.len();
    let mut design = RightHandSides::zeros(pixels.len(), terms + 1);
    for (i, &j) in pixels.iter().enumerate() {
        let row = design.row_mut(i);
        let data = f64::from(prepared.weighted_flux[j]);
        let value = f64::from(prepared.weight[j]) * arm.model[j];
        row[terms] = if terms == 0 { data - value } else { data };
        for (k, element) in row.iter_mut().take(terms).enumerate() {
            *element = value * f64::from(stored_basis[k * stored_pixels + j]);
        }
    }
    whiten(arm, &mut design);
    // 2. Transform the products to the orthonormal basis, and solve C a = Sᵀ L⁻¹D.
    let products = design.products(&design);
    let rows: Vec<Vec<f64>> = products
        .chunks_exact(terms + 1)
        .map(|row| orthonormalise(arm, rank, &row[..terms]))
        .collect();
    let mut factor = vec![0.0; packed_length(rank)];
    for d in 0..rank {
        let column: Vec<f64> = rows[..terms].iter().map(|row| row[d]).collect();
        for (c, element) in orthonormalise(arm, rank, &column).into_iter().enumerate() {
            factor[packed_index(c, d)] = element;
        }
    }
    let mut coefficients = rows.last().cloned().unwrap_or_default();
    if !cholesky(&mut factor, rank) {
        return None;
    }
    solve_lower(&factor, &mut coefficients);
    solve_upper(&factor, &mut coefficients);
    // 3. Replace the data by the residual.
    let mut stored_coefficients = vec![0.0; terms];
    let transform = prepared.transform.chunks_exact(arm.terms.max(1));
    for (a, row) in coefficients.iter().zip(transform) {
        for (stored, t) in stored_coefficients.iter_mut().zip(row) {
            *stored += a * f64::from(*t);
        }
    }
    for i in 0..pixels.len() {
        let row = design.row_mut(i);
        for (k, coefficient) in stored_coefficients.iter().enumerate() {
            row[terms] -= row[k] * coefficient;
        }
    }
    Some(WhitenedContinuum {
        design,
        coefficients,
        stored_coefficients,
        factor,
    })
}

impl WhitenedContinuum {
    /// Returns the continuum at pixel `j`; 1 for a model without a continuum.
    fn value(&self, arm: ArmPoint, j: usize) -> f64 {
        if arm.terms == 0 {
            return 1.0;
        }
        let basis = arm.prepared.basis(arm.sampling);
        let functions = basis.chunks_exact(arm.prepared.weighted_flux.len());
        functions
            .zip(&self.stored_coefficients)
            .map(|(function, a)| f64::from(function[j]) * a)
            .sum()
    }
}

/// Returns ln det C of a packed Cholesky factor.
fn ln_det(factor: &[f64], rank: usize) -> f64 {
    (0..rank)
        .map(|c| 2.0 * factor[packed_index(c, c)].ln())
        .sum()
}
