//! Banded covariance matrices of the noise of an arm's spectra.

use std::ops::Range;

use super::ArmSpectra;
use crate::error::{Error, Result};
use crate::values::Values;

/// Banded covariance matrix of the noise of each spectrum, in flux units squared, which may be borrowed.
#[derive(Clone, Debug, PartialEq)]
pub struct NoiseCovariance<'a> {
    /// Number K + 1 of diagonals: the main one and K below it.
    pub diagonals: usize,
    /// (n × diagonals × pixels), the lower form of scipy's banded matrices: values\[d\]\[j\] is the covariance of the
    /// pixels j + d and j. The variances are values\[0\]. Values with j + d ≥ pixels are not read.
    pub values: Values<'a>,
}

impl NoiseCovariance<'_> {
    /// Returns the inverse variances (n × pixels) of spectra with `pixels` pixels. An infinite variance gives 0, which
    /// masks the pixel.
    ///
    /// ```
    /// use popfit::spectra::NoiseCovariance;
    ///
    /// let covariance = NoiseCovariance { diagonals: 2, values: vec![4.0, 2.0, 1.0, 0.0].into() };
    /// assert_eq!(covariance.ivar(2), [0.25, 0.5]);
    /// ```
    pub fn ivar(&self, pixels: usize) -> Vec<f64> {
        let length = (self.diagonals * pixels).max(1);
        let mut ivar = Vec::with_capacity(self.values.len() / self.diagonals.max(1));
        for start in (0..self.values.len()).step_by(length) {
            let variances = self.values.double(start..start + pixels);
            ivar.extend(variances.iter().map(|variance| variance.recip()));
        }
        ivar
    }

    /// Borrows the matrices of spectra with `pixels` pixels, `rows` of them.
    pub(super) fn borrow_rows(&self, rows: Range<usize>, pixels: usize) -> NoiseCovariance<'_> {
        let length = self.diagonals * pixels;
        NoiseCovariance {
            diagonals: self.diagonals,
            values: self.values.range(rows.start * length..rows.end * length),
        }
    }

    /// Copies the matrices of these rows of `count` spectra, in their order.
    pub(super) fn copy_rows(&self, count: usize, rows: &[usize]) -> NoiseCovariance<'static> {
        NoiseCovariance {
            diagonals: self.diagonals,
            values: self.values.copy_rows(count, rows),
        }
    }

    /// Copies the values if they are borrowed.
    pub(super) fn into_owned(self) -> NoiseCovariance<'static> {
        NoiseCovariance {
            diagonals: self.diagonals,
            values: self.values.into_owned(),
        }
    }
}

impl<'a> ArmSpectra<'a> {
    /// Sets a banded covariance matrix of the noise for each spectrum. A fit then minimises rᵀ C⁻¹ r.
    ///
    /// The arm's ivar masks pixels where it is 0. Elsewhere it must be the inverse of the variance in the matrix to
    /// 10⁻³ ([`NoiseCovariance::ivar`] returns it), or the spectrum cannot be fitted.
    ///
    /// # Errors
    /// `ShapeMismatch` if the values are not (n × diagonals × pixels), or if there is no diagonal or more than one for
    /// each pixel.
    pub fn with_covariance(mut self, covariance: NoiseCovariance<'a>) -> Result<ArmSpectra<'a>> {
        let NoiseCovariance { diagonals, values } = &covariance;
        let is_valid = (1..=self.pixels).contains(diagonals);
        if !is_valid || values.len() != diagonals * self.flux.len() {
            let message = format!(
                "covariance has {} values of {diagonals} diagonals, not (spectra, diagonals, {}) of {} spectra",
                values.len(),
                self.pixels,
                self.len()
            );
            return Err(Error::mismatch(self.describe_place(), message).naming("covariance"));
        }
        self.covariance = Some(covariance);
        Ok(self)
    }
}
