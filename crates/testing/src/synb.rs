//! Tables of synb spectra against the f64 reference minima of `rvspecfit.npz`.

use std::path::{Path, PathBuf};

use popfit::{FitRow, FitTable, Spectra};

use super::fits::{offset, share};
use super::{array, data_folder, median};

/// The folder of the spectra without rotation, `fixed_vsini`, or of those with it, `free_vsini`.
pub fn folder(name: &str) -> PathBuf {
    data_folder().join("synb").join(name)
}

/// The 128 spectra of `fixed_vsini` or the 48 of `free_vsini`.
pub fn spectra(name: &str) -> Spectra<'static> {
    Spectra::open(folder(name).join("spectra.npz")).unwrap()
}

/// Σ −ln ivar over a spectrum's masked pixels, which rvspecfit keeps.
pub fn masked_constant(spectra: &Spectra, n: usize) -> f64 {
    let arm = &spectra.arms[0];
    let range = n * arm.pixels..(n + 1) * arm.pixels;
    range
        .filter(|&j| arm.mask[j])
        .map(|j| -arm.ivar.at(j).ln())
        .sum()
}

/// Comparison of a table with its reference, by spectrum.
pub struct Comparison {
    /// Objective above the reference.
    pub gaps: Vec<f64>,
    /// Largest offset of a parameter in reference errors.
    pub offsets: Vec<f64>,
    /// Errors over reference errors, all parameters; those at a bound have none.
    pub ratios: Vec<f64>,
}

impl Comparison {
    /// `folder` holds `rvspecfit.npz`.
    pub fn new(table: &FitTable, spectra: &Spectra, folder: &Path) -> Comparison {
        let count = table.names().len();
        let reference = folder.join("rvspecfit.npz");
        let (_, objectives) = array(&reference, "ref_m2logl");
        let (_, parameters) = array(&reference, "ref_x");
        let (_, errors) = array(&reference, "ref_err");
        let gap =
            |(n, row): (usize, FitRow)| row.objective + masked_constant(spectra, n) - objectives[n];
        let values_of = |values: &[f64], n: usize| values[n * count..][..count].to_vec();
        let largest_offset = |(n, row): (usize, FitRow)| {
            offset(&row, &values_of(&parameters, n), &values_of(&errors, n))
        };
        let error_pairs = table
            .to_rows()
            .into_iter()
            .flat_map(|row| row.errors)
            .zip(&errors);
        Comparison {
            gaps: table.to_rows().into_iter().enumerate().map(gap).collect(),
            offsets: table
                .to_rows()
                .into_iter()
                .enumerate()
                .map(largest_offset)
                .collect(),
            ratios: error_pairs
                .map(|(error, reference)| error / reference)
                .collect(),
        }
    }

    pub fn print(&self, what: &str, table: &FitTable) {
        let Comparison {
            gaps,
            offsets,
            ratios,
        } = self;
        let largest = |values: &[f64]| values.iter().copied().fold(f64::MIN, f64::max);
        println!(
            "{what}: objective above the reference: at most {:.4}, {:.4} within 0.02; offsets in sigma: median {:.5}, \
             at most {:.4}, {:.4} within 0.1; error ratios: median {:.4}, {:.4} within 5 %; evaluations: median {}",
            largest(gaps),
            share(gaps, |g| *g <= 0.02),
            median(offsets.clone()),
            largest(offsets),
            share(offsets, |s| *s <= 0.1),
            median(ratios.clone()),
            self.errors_within(0.05),
            median(
                table
                    .to_rows()
                    .into_iter()
                    .map(|r| f64::from(r.evaluations))
                    .collect()
            ),
        );
    }

    /// Share of all errors that agree to this part of themselves.
    pub fn errors_within(&self, part: f64) -> f64 {
        share(&self.ratios, |r| (r - 1.0).abs() <= part)
    }
}
