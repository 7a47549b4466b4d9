//! The columns of rvspecfit's table of velocities, in its order, types and units.

use super::fits::spelled;
use crate::flag::Flags;
use crate::io::fits::writer::table::FitsColumn;
use crate::solver::Status;
use crate::spectra::{Column, ColumnValues, Spectra};
use crate::spectral::quantity;
use crate::spectral::{ArmFit, FitRow, Id, SpectralFitter};

/// Bits of RVS_WARN.
mod warn {
    /// The template is hardly better than the continuum alone.
    pub const CHISQ: i64 = 1;
    pub const RV: i64 = 2;
    pub const RVERR: i64 = 4;
    pub const PARAM: i64 = 8;
    pub const VSINI: i64 = 16;
    pub const BAD_SPECTRUM: i64 = 32;
    pub const BAD_HESSIAN: i64 = 64;
}

/// Smallest reduction of χ² by the template, compared with the continuum alone.
const LEAST_GAIN: f64 = 50.0;
/// Distance from the end of the range within which a velocity is at its edge, km/s.
const EDGE: f64 = 5.0;
/// Largest plausible error of a velocity, km/s.
const LARGE_ERROR: f64 = 100.0;
/// Largest plausible rotation, km/s.
const FAST: f64 = 100.0;
/// Columns of the fibre map that are repeated.
const REPEATED: [&str; 5] = ["FIBER", "REF_ID", "REF_CAT", "TARGET_RA", "TARGET_DEC"];

/// A batch of rows with their spectra and models.
pub(super) struct RvBatch<'a> {
    pub fitter: &'a SpectralFitter,
    pub spectra: &'a Spectra<'a>,
    pub rows: &'a [FitRow],
    /// Models, `None` without a fit.
    pub fits: &'a [Option<Vec<ArmFit>>],
    /// Columns of the fibre map that all files have.
    pub fibermap: &'a [Column],
}

/// Function with which [`columns`] adds a column: name, unit, comment and values.
type Add<'a> = &'a mut dyn FnMut(&str, &str, &str, ColumnValues);

/// Returns all columns of rvspecfit's table RVTAB for a batch of fits: each one's description, and a value per row.
/// Without rows they are the structure of the table.
pub(super) fn columns(batch: &RvBatch) -> Vec<(FitsColumn, ColumnValues)> {
    let mut all = Vec::new();
    let mut add = |name: &str, unit: &str, comment: &str, values: ColumnValues| {
        all.push((
            FitsColumn::new(name, unit, &values).comment(comment),
            values,
        ));
    };
    let float =
        |get: &dyn Fn(usize) -> f64| ColumnValues::F64((0..batch.rows.len()).map(get).collect());
    parameters(batch, &mut add);
    add(
        "CHISQ_TOT",
        "",
        "chi-square of all arms",
        float(&|k| batch.total(k, |arm| arm.chi2)),
    );
    add(
        "CHISQ_C_TOT",
        "",
        "chi-square of the continuum alone",
        float(&|k| batch.total(k, |arm| arm.chi2_continuum)),
    );
    let pixels =
        (0..batch.rows.len()).map(|k| batch.arms(k).iter().map(|arm| arm.unmasked as i64).sum());
    add(
        "NPIX_TOT",
        "",
        "Unmasked pixels",
        ColumnValues::I64(pixels.collect()),
    );
    for (a, name) in batch.arm_names().iter().enumerate() {
        let of_arm = |k: usize, get: fn(&ArmFit) -> f64| batch.arms(k).get(a).map_or(f64::NAN, get);
        add(
            &format!("CHISQ_{name}"),
            "",
            "chi-square of this arm",
            float(&|k| of_arm(k, |arm| arm.chi2)),
        );
        let comment = "chi-square of the continuum alone in this arm";
        add(
            &format!("CHISQ_C_{name}"),
            "",
            comment,
            float(&|k| of_arm(k, |arm| arm.chi2_continuum)),
        );
    }
    // popfit's first guess compares labels and velocity together: there is no velocity of its own
    add(
        "VRAD_CCF",
        velocity_unit(),
        "Velocity of the cross-correlation: none",
        float(&|_| f64::NAN),
    );
    let warnings: Vec<i64> = (0..batch.rows.len()).map(|k| batch.warnings(k)).collect();
    let success = warnings
        .iter()
        .zip(batch.rows)
        .map(|(warn, row)| *warn == 0 && row.status.is_success())
        .collect();
    add("RVS_WARN", "", "Warnings", ColumnValues::I64(warnings));
    let fibermap = |name: &&str| {
        let like = batch
            .fibermap
            .iter()
            .find(|column| &*column.name == *name)?;
        super::rvtab::find(&batch.spectra.columns, like)
    };
    for Column {
        name, unit, values, ..
    } in REPEATED.iter().filter_map(fibermap)
    {
        add(name, unit, "", values.clone());
    }
    add("TARGETID", "", "Target", ids(batch));
    for (a, name) in batch.arm_names().iter().enumerate() {
        let of_arm = |k: usize| {
            batch
                .arms(k)
                .get(a)
                .map_or(f64::NAN, |arm| arm.signal_to_noise)
        };
        add(
            &format!("SN_{name}"),
            "",
            "Median signal to noise in this arm",
            float(&of_arm),
        );
    }
    add(
        "SUCCESS",
        "",
        "Whether the fit converged without a warning",
        ColumnValues::Bool(success),
    );
    let empty = || ColumnValues::Text(vec![String::new(); batch.rows.len()]);
    add("RR_Z", "", "Redrock redshift: none", float(&|_| f64::NAN));
    add("RR_SPECTYPE", "", "Redrock type: none", empty());
    add("RR_SUBTYPE", "", "Redrock subtype: none", empty());
    all
}

/// Adds rvspecfit's columns of velocity, rotation and its four labels, by calls of `add`; NaN where the model has no
/// such parameter.
fn parameters(batch: &RvBatch, add: Add) {
    let float =
        |get: &dyn Fn(usize) -> f64| ColumnValues::F64((0..batch.rows.len()).map(get).collect());
    let unit = velocity_unit();
    add(
        "VRAD",
        unit,
        "Radial velocity",
        float(&|k| batch.value(k, "velocity").0),
    );
    add(
        "VRAD_ERR",
        unit,
        "Radial velocity error",
        float(&|k| batch.value(k, "velocity").1),
    );
    add(
        "VRAD_SKEW",
        "",
        "Skewness of the velocity's posterior",
        float(&|k| posterior(&batch.rows[k]).0),
    );
    add(
        "VRAD_KURT",
        "",
        "Kurtosis of the velocity's posterior",
        float(&|k| posterior(&batch.rows[k]).1),
    );
    add(
        "VSINI",
        unit,
        "Stellar rotation velocity",
        float(&|k| batch.value(k, "vsini").0),
    );
    let labels = [
        ("LOGG", "logg", "", "log of the surface gravity"),
        ("TEFF", "teff", "K", "Effective temperature"),
        ("FEH", "feh", "", "[Fe/H]"),
        ("ALPHAFE", "alpha", "", "[alpha/Fe]"),
    ];
    for (name, label, unit, comment) in labels {
        add(name, unit, comment, float(&|k| batch.value(k, label).0));
        add(
            &format!("{name}_ERR"),
            unit,
            &format!("{comment}, error"),
            float(&|k| batch.value(k, label).1),
        );
    }
}

/// Returns the unit of velocities as FITS spells it: `km s-1`.
fn velocity_unit() -> &'static str {
    spelled(quantity::unit(&[], "velocity"))
}

/// Returns skewness and kurtosis of a row's velocity posterior, both NaN if it was not computed.
fn posterior(row: &FitRow) -> (f64, f64) {
    row.posterior
        .map_or((f64::NAN, f64::NAN), |p| (p.skewness, p.kurtosis))
}

/// Returns the column of ids, as text if the spectra's ids are text, else as integers.
fn ids(batch: &RvBatch) -> ColumnValues {
    match &batch.spectra.ids {
        crate::spectra::Ids::Text(_) => {
            ColumnValues::Text(batch.rows.iter().map(|row| row.id.to_string()).collect())
        }
        crate::spectra::Ids::Integer(_) => {
            let integer = |row: &FitRow| if let Id::Integer(n) = row.id { n } else { -1 };
            ColumnValues::I64(batch.rows.iter().map(integer).collect())
        }
    }
}

impl RvBatch<'_> {
    /// Returns the fit of each arm of spectrum `k` in the batch; an empty slice if it has no fit.
    fn arms(&self, k: usize) -> &[ArmFit] {
        self.fits[k].as_deref().unwrap_or(&[])
    }

    /// Returns the upper-case names of the model's arms, as column names have them.
    fn arm_names(&self) -> Vec<String> {
        self.fitter
            .model()
            .arms()
            .map(|(name, _)| arm_name(name))
            .collect()
    }

    /// Returns the sum over all arms of spectrum `k` of the number that `get` returns; NaN if it has no fit.
    fn total(&self, k: usize, get: impl Fn(&ArmFit) -> f64) -> f64 {
        self.fits[k]
            .as_ref()
            .map_or(f64::NAN, |arms| arms.iter().map(get).sum())
    }

    /// Returns (value, error) of a named parameter of spectrum `k`; NaN without a fit or such a parameter.
    fn value(&self, k: usize, name: &str) -> (f64, f64) {
        let found = self.fits[k]
            .as_ref()
            .and_then(|_| self.fitter.value(&self.rows[k], name));
        found.unwrap_or((f64::NAN, f64::NAN))
    }

    /// Returns rvspecfit's warning bits RVS_WARN for the fit of spectrum `k`; 0 is a good fit.
    fn warnings(&self, k: usize) -> i64 {
        let row = &self.rows[k];
        if self.fits[k].is_none() || row.status == Status::NotFinite {
            return warn::BAD_SPECTRUM;
        }
        let parameters = self.fitter.parameters();
        let at_bound = |name: &str| {
            parameters
                .iter()
                .position(|p| p == name)
                .is_some_and(|p| row.at_bound >> p & 1 == 1)
        };
        let gain = self.total(k, |arm| arm.chi2_continuum) - self.total(k, |arm| arm.chi2);
        let (velocity, error) = self.value(k, "velocity");
        let range = self
            .fitter
            .model()
            .bounds()
            .into_iter()
            .zip(&parameters)
            .find(|(_, p)| *p == "velocity");
        let near_edge =
            range.is_some_and(|((low, high), _)| velocity - low < EDGE || high - velocity < EDGE);
        let labels = parameters
            .iter()
            .filter(|p| !["velocity", "vsini"].contains(&p.as_str()));
        let held_back =
            row.flags.contains(Flags::OUTSIDE_HULL) || labels.into_iter().any(|p| at_bound(p));
        let no_error = row
            .errors
            .iter()
            .zip(&parameters)
            .any(|(e, p)| !e.is_finite() && !at_bound(p));
        [
            (warn::CHISQ, gain < LEAST_GAIN),
            (warn::RV, near_edge),
            (
                warn::RVERR,
                !near_edge && (error.is_nan() || error > LARGE_ERROR),
            ),
            (warn::PARAM, held_back),
            (warn::VSINI, self.value(k, "vsini").0 > FAST),
            (
                warn::BAD_HESSIAN,
                row.flags.contains(Flags::UNDETERMINED) || no_error,
            ),
        ]
        .into_iter()
        .filter(|(_, set)| *set)
        .map(|(bit, _)| bit)
        .sum()
    }
}

/// Returns an arm's name in upper case for columns and extensions; `ARM` if it has none.
pub(super) fn arm_name(name: &str) -> String {
    if name.is_empty() {
        "ARM".into()
    } else {
        name.to_uppercase()
    }
}
