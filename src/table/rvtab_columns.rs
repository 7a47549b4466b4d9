//! The columns of rvspecfit's table of velocities, in its order, types and units.

use super::fits::fits_unit_name;
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
    pub const FAST_ROTATION: i64 = 16;
    pub const BAD_SPECTRUM: i64 = 32;
    pub const BAD_HESSIAN: i64 = 64;
}

/// Smallest reduction of χ² by the template, compared with the continuum alone.
const MIN_CHI2_GAIN: f64 = 50.0;
/// Distance from the end of the range within which a velocity is at its edge, km/s.
const VELOCITY_EDGE_DISTANCE: f64 = 5.0;
/// Largest plausible error of a velocity, km/s.
const MAX_VELOCITY_ERROR: f64 = 100.0;
/// Largest plausible rotation, km/s.
const MAX_VSINI: f64 = 100.0;
/// Columns of the fibre map that are repeated.
const COPIED_FIBERMAP_COLUMNS: [&str; 5] =
    ["FIBER", "REF_ID", "REF_CAT", "TARGET_RA", "TARGET_DEC"];

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

/// Function with which [`build_columns`] adds a column: name, unit, comment and values.
type Add<'a> = &'a mut dyn FnMut(&str, &str, &str, ColumnValues);

/// Returns all columns of rvspecfit's table RVTAB for a batch of fits: each one's description, and a value per row.
/// Without rows they are the structure of the table.
pub(super) fn build_columns(batch: &RvBatch) -> Vec<(FitsColumn, ColumnValues)> {
    let mut columns = Vec::new();
    let mut add = |name: &str, unit: &str, comment: &str, values: ColumnValues| {
        let column = FitsColumn::new(name, unit, &values).comment(comment);
        columns.push((column, values));
    };
    let rows = 0..batch.rows.len();
    let arm_names = batch.arm_names();
    // 1. Velocity, rotation and labels.
    add_parameter_columns(batch, &mut add);
    // 2. χ², with and without a template, and the number of pixels.
    add(
        "CHISQ_TOT",
        "",
        "chi-square of all arms",
        batch.float_column(&|k| batch.sum_over_arms(k, |arm| arm.chi2)),
    );
    add(
        "CHISQ_C_TOT",
        "",
        "chi-square of the continuum alone",
        batch.float_column(&|k| batch.sum_over_arms(k, |arm| arm.chi2_continuum)),
    );
    let unmasked = |k| batch.arm_fits(k).iter().map(|arm| arm.unmasked as i64);
    let pixels = rows.clone().map(|k| unmasked(k).sum()).collect();
    add("NPIX_TOT", "", "Unmasked pixels", ColumnValues::I64(pixels));
    for (a, name) in arm_names.iter().enumerate() {
        add(
            &format!("CHISQ_{name}"),
            "",
            "chi-square of this arm",
            batch.float_column(&|k| batch.arm_number(k, a, |arm| arm.chi2)),
        );
        add(
            &format!("CHISQ_C_{name}"),
            "",
            "chi-square of the continuum alone in this arm",
            batch.float_column(&|k| batch.arm_number(k, a, |arm| arm.chi2_continuum)),
        );
    }
    // 3. popfit's first guess compares labels and velocity together: there is no velocity of its own.
    add(
        "VRAD_CCF",
        velocity_unit(),
        "Velocity of the cross-correlation: none",
        batch.float_column(&|_| f64::NAN),
    );
    // 4. Warnings.
    let warnings: Vec<i64> = rows.clone().map(|k| batch.find_warnings(k)).collect();
    let success = rows
        .map(|k| warnings[k] == 0 && batch.rows[k].status.is_success())
        .collect();
    add("RVS_WARN", "", "Warnings", ColumnValues::I64(warnings));
    // 5. What identifies the target.
    for name in COPIED_FIBERMAP_COLUMNS {
        let in_all_files = batch.fibermap.iter().find(|column| &*column.name == name);
        let input = in_all_files
            .and_then(|column| super::rvtab::find_matching_column(&batch.spectra.columns, column));
        if let Some(column) = input {
            add(&column.name, &column.unit, "", column.values.clone());
        }
    }
    add("TARGETID", "", "Target", id_column(batch));
    for (a, name) in arm_names.iter().enumerate() {
        add(
            &format!("SN_{name}"),
            "",
            "Median signal to noise in this arm",
            batch.float_column(&|k| batch.arm_number(k, a, |arm| arm.signal_to_noise)),
        );
    }
    add(
        "SUCCESS",
        "",
        "Whether the fit converged without a warning",
        ColumnValues::Bool(success),
    );
    // 6. Columns of Redrock, which popfit does not run.
    let empty_texts = || ColumnValues::Text(vec![String::new(); batch.rows.len()]);
    add(
        "RR_Z",
        "",
        "Redrock redshift: none",
        batch.float_column(&|_| f64::NAN),
    );
    add("RR_SPECTYPE", "", "Redrock type: none", empty_texts());
    add("RR_SUBTYPE", "", "Redrock subtype: none", empty_texts());
    columns
}

/// Adds rvspecfit's columns of velocity, rotation and its four labels, by calls of `add`; NaN where the model has no
/// such parameter.
fn add_parameter_columns(batch: &RvBatch, add: Add) {
    // 1. Velocity and rotation.
    let unit = velocity_unit();
    add(
        "VRAD",
        unit,
        "Radial velocity",
        batch.float_column(&|k| batch.parameter_value(k, "velocity").0),
    );
    add(
        "VRAD_ERR",
        unit,
        "Radial velocity error",
        batch.float_column(&|k| batch.parameter_value(k, "velocity").1),
    );
    add(
        "VRAD_SKEW",
        "",
        "Skewness of the velocity's posterior",
        batch.float_column(&|k| posterior_shape(&batch.rows[k]).0),
    );
    add(
        "VRAD_KURT",
        "",
        "Kurtosis of the velocity's posterior",
        batch.float_column(&|k| posterior_shape(&batch.rows[k]).1),
    );
    add(
        "VSINI",
        unit,
        "Stellar rotation velocity",
        batch.float_column(&|k| batch.parameter_value(k, "vsini").0),
    );
    // 2. Labels, each with its error.
    let labels = [
        ("LOGG", "logg", "", "log of the surface gravity"),
        ("TEFF", "teff", "K", "Effective temperature"),
        ("FEH", "feh", "", "[Fe/H]"),
        ("ALPHAFE", "alpha", "", "[alpha/Fe]"),
    ];
    for (name, label, unit, comment) in labels {
        add(
            name,
            unit,
            comment,
            batch.float_column(&|k| batch.parameter_value(k, label).0),
        );
        add(
            &format!("{name}_ERR"),
            unit,
            &format!("{comment}, error"),
            batch.float_column(&|k| batch.parameter_value(k, label).1),
        );
    }
}

/// Returns the unit of velocities as FITS spells it: `km s-1`.
fn velocity_unit() -> &'static str {
    fits_unit_name(quantity::unit(&[], "velocity"))
}

/// Returns skewness and kurtosis of a row's velocity posterior, both NaN if it was not computed.
fn posterior_shape(row: &FitRow) -> (f64, f64) {
    match &row.posterior {
        Some(posterior) => (posterior.skewness, posterior.kurtosis),
        None => (f64::NAN, f64::NAN),
    }
}

/// Returns the column of ids, as text if the spectra's ids are text, else as integers.
fn id_column(batch: &RvBatch) -> ColumnValues {
    let ids = batch.rows.iter().map(|row| &row.id);
    match &batch.spectra.ids {
        crate::spectra::Ids::Text(_) => ColumnValues::Text(ids.map(ToString::to_string).collect()),
        crate::spectra::Ids::Integer(_) => {
            let integer = |id: &Id| if let Id::Integer(n) = id { *n } else { -1 };
            ColumnValues::I64(ids.map(integer).collect())
        }
    }
}

impl RvBatch<'_> {
    /// Returns the fit of each arm of spectrum `k` in the batch; an empty slice if it has no fit.
    fn arm_fits(&self, k: usize) -> &[ArmFit] {
        self.fits[k].as_deref().unwrap_or(&[])
    }

    /// Returns a column of the number that `get` returns for each spectrum of the batch.
    fn float_column(&self, get: &dyn Fn(usize) -> f64) -> ColumnValues {
        ColumnValues::F64((0..self.rows.len()).map(get).collect())
    }

    /// Returns the number that `get` returns for arm `a` of spectrum `k`; NaN if it has no fit of this arm.
    fn arm_number(&self, k: usize, a: usize, get: fn(&ArmFit) -> f64) -> f64 {
        self.arm_fits(k).get(a).map_or(f64::NAN, get)
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
    fn sum_over_arms(&self, k: usize, get: impl Fn(&ArmFit) -> f64) -> f64 {
        self.fits[k]
            .as_ref()
            .map_or(f64::NAN, |arms| arms.iter().map(get).sum())
    }

    /// Returns (value, error) of a named parameter of spectrum `k`; NaN without a fit or such a parameter.
    fn parameter_value(&self, k: usize, name: &str) -> (f64, f64) {
        if self.fits[k].is_none() {
            return (f64::NAN, f64::NAN);
        }
        let value_and_error = self.fitter.value(&self.rows[k], name);
        value_and_error.unwrap_or((f64::NAN, f64::NAN))
    }

    /// Returns rvspecfit's warning bits RVS_WARN for the fit of spectrum `k`; 0 is a good fit.
    fn find_warnings(&self, k: usize) -> i64 {
        let row = &self.rows[k];
        if self.fits[k].is_none() || row.status == Status::NotFinite {
            return warn::BAD_SPECTRUM;
        }
        let parameters = self.fitter.parameters();
        let is_at_bound = |p: usize| row.at_bound >> p & 1 == 1;
        // 1. The gain of the template over the continuum alone.
        let chi2_gain =
            self.sum_over_arms(k, |arm| arm.chi2_continuum) - self.sum_over_arms(k, |arm| arm.chi2);
        // 2. The velocity and its distance from the ends of its range.
        let (velocity, velocity_error) = self.parameter_value(k, "velocity");
        let bounds = self.fitter.model().bounds();
        let mut ranges = bounds.into_iter().zip(&parameters);
        let range = ranges.find(|(_, name)| *name == "velocity");
        let is_near_edge = range.is_some_and(|((low, high), _)| {
            velocity - low < VELOCITY_EDGE_DISTANCE || high - velocity < VELOCITY_EDGE_DISTANCE
        });
        let has_poor_error = velocity_error.is_nan() || velocity_error > MAX_VELOCITY_ERROR;
        // 3. Labels that a bound or the hull of the training set holds back, and parameters without an error.
        let mut has_label_at_limit = row.flags.contains(Flags::OUTSIDE_HULL);
        let mut lacks_error = false;
        for (p, name) in parameters.iter().enumerate() {
            let is_label = !["velocity", "vsini"].contains(&name.as_str());
            has_label_at_limit |= is_label && is_at_bound(p);
            let has_no_error = row.errors.get(p).is_some_and(|error| !error.is_finite());
            lacks_error |= has_no_error && !is_at_bound(p);
        }
        [
            (warn::CHISQ, chi2_gain < MIN_CHI2_GAIN),
            (warn::RV, is_near_edge),
            (warn::RVERR, !is_near_edge && has_poor_error),
            (warn::PARAM, has_label_at_limit),
            (
                warn::FAST_ROTATION,
                self.parameter_value(k, "vsini").0 > MAX_VSINI,
            ),
            (
                warn::BAD_HESSIAN,
                row.flags.contains(Flags::UNDETERMINED) || lacks_error,
            ),
        ]
        .into_iter()
        .filter(|(_, is_set)| *is_set)
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
