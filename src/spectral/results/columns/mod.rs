//! The columns of the result table: each is declared here, and nowhere else.
//!
//! [`declare!`] generates from this list the row ([`FitRow`]), the columns that a [`FitTable`](super::table::FitTable)
//! stores, and the names, types, units and meanings ([`ROW_FIELDS`]) by which `schema.rs` lists the columns of a table.
//! Parquet, FITS, CSV, the journal and `FitTable::into_columns` write and read them by [`ROW_FIELDS`] alone. A test
//! compares it with the table in `docs/src/results.md`.
//!
//! To add a column, declare it here and fill its field where the row is made (`finish.rs`). Its line reads
//!
//! ```text
//! field: Type[, later | optional | optional(flag)] = ["column", "unit", "meaning"];
//! ```
//!
//! - The type decides how many columns the field has, how they are stored, and the type of their cells: see [`Cell`]
//!   and [`RowField`].
//! - In a column's name NAME stands for each free parameter, ARM for each arm, and A_B for each pair of parameters. The
//!   order is that of the file. Columns of parameters that stand together here are written parameter by parameter.
//! - `later` columns are missing in tables of earlier versions: their cells are then 0, NaN or empty. Every new column
//!   is `later` or `optional`.
//! - `optional` columns exist if the field of the same name in [`Schema`], or the one that is named, is true, because
//!   the user asked for them.
//! - A field without a column appears only in rows and journals.

mod cells;
mod declare;

use std::sync::Arc;

use crate::flag::Flags;
use crate::solver::Status;
use crate::spectral::results::exposures::ExposureVelocities;
use crate::spectral::results::moments::VelocityPosterior;
use crate::spectral::results::row::Id;
use crate::spectral::results::schema::Schema;
use cells::{Cell, RowField};
pub use cells::{FieldColumns, InvalidCell, StoredField};
pub use declare::{DeclaredField, Pattern, Presence};
use declare::{declare, presence};

/// Version of the table's layout, the key `popfit.layout`. It grows when a column is removed, or changes its name,
/// type, unit or meaning. New columns do not change it.
#[cfg(feature = "files")]
pub const LAYOUT: u32 = 1;

declare! {
    /// Identifier of the spectrum.
    id: Id = ["id", "", "Identifier of the spectrum, an integer or a text"];
    /// File of the spectrum.
    file: Arc<str> = ["file", "", "File of the spectrum"];
    /// Row in the file, from 0.
    row: u64 = ["row", "", "Row in that file, from 0"];
    /// Status with which the fit ended.
    status: Status = ["status", "", "How the fit ended: 1 to 4 converged"];
    /// Name of the status, or the cause of `bad_input`.
    status_text: String = ["status_text", "", "Name of the status, or the cause of a failure"];
    /// Details of a `bad_input` (arm, pixel and value) or of an interrupted fit. Not a column of the table.
    message: String;
    /// Number of rounds of the winning start.
    rounds: u32 = ["rounds", "", "Rounds of the winning start"];
    /// Number of linearisations of all starts.
    evaluations: u32 = ["evaluations", "", "Evaluations of the model, of all starts"];
    /// χ² = Σ ivar (flux − model)² over the unmasked pixels, or the cost under the model's robust loss, without priors
    /// and penalties.
    chi2: f64 = ["chi2", "", "chi-square of the pixels"];
    /// Degrees of freedom: unmasked pixels − free parameters − continuum terms.
    dof: i64 = ["dof", "", "Pixels - free parameters - continuum terms"];
    /// χ² plus priors and penalties, and plus ln det of the normal matrix of the continuum if the model marginalises
    /// over it. The start with the lowest objective wins.
    objective: f64 = ["objective", "", "chi2, priors and marginalisation"];
    /// (P) Physical values.
    parameters: Vec<f64> = ["NAME", "its own", "Free parameter of the model"];
    /// (P) Standard errors, NaN if there is none. If parameters ended at a bound, the errors of the others are
    /// conditional: they hold if the true values of those parameters are at the bound.
    errors: Vec<f64> = ["NAME_err", "its own", "Standard error of NAME"];
    /// Bit p is set if parameter p ended at a bound.
    at_bound: u32 = ["at_bound", "", "Bit p: free parameter p ended at a bound"];
    /// Warnings and other facts about the fit.
    flags: Flags = ["flags", "", "Bits: what to know of the fit"];
    /// Index of the winning start, from 0. The further starts of a spectrum with a large χ²/dof, and one beyond a fold,
    /// come after its first ones. `None` without a winner, which tables write as −1.
    start: Option<u32> = ["start", "", "Index of the winning start, -1 without one"];
    /// Number of basins of the first guess whose starts ended within 0.1 of the winner's objective, or were stopped on
    /// the way there. Starts of one basin count once, because they would end together anyway, and so do all further
    /// starts together.
    n_starts_agree: u32 =
        ["n_starts_agree", "", "Basins of the first guess from which starts found the minimum"];
    /// (arms) Number of the model's continuum terms that the data of the arm determine; 0 if the arm has no data.
    continuum_terms: Vec<u32>, later = ["continuum_terms_ARM", "", "Continuum terms that the data determine"];
    /// (arms) Number of good pixels that are left out because the template does not cover them at the velocity and
    /// vsini of the fit.
    unreached: Vec<u32>, later = ["unreached_ARM", "", "Good pixels left out: the template does not cover them"];
    /// Share of the unmasked pixels to which the model's robust loss gives less than half of the weight of a pixel that
    /// fits; `None` without a loss.
    downweighted: Option<f64>, optional =
        ["downweighted", "", "Share of pixels with less than half of the weight under the loss"];
    /// (arms) Fitted jitter: the fraction of the model's flux that is added to the errors in quadrature; 0 where a
    /// factor of the errors is likelier. NaN for an arm without data; empty unless the model fits the jitter.
    jitter: Vec<f64>, optional =
        ["jitter_ARM", "", "Fraction of the flux that was added to errors"];
    /// (arms) Standard errors of the fitted jitter, NaN where it is 0.
    jitter_errors: Vec<f64>, optional(jitter) =
        ["jitter_err_ARM", "", "Standard error of jitter_ARM"];
    /// (arms) Fitted factor of the errors; 1 where the jitter is likelier. NaN for an arm without data; empty unless
    /// the model fits the jitter.
    error_factors: Vec<f64>, optional(jitter) =
        ["error_factor_ARM", "", "Factor by which errors were multiplied"];
    /// Posterior of the velocity; `None` without a scan, or where it gave none.
    posterior: Option<VelocityPosterior>, optional =
        ["velocity_posterior", "km/s", "Velocity at the minimum of the scanned objective"]
        ["velocity_posterior_err", "km/s", "RMS deviation of the posterior from velocity_posterior"]
        ["velocity_skewness", "", "Skewness of the posterior about velocity_posterior"]
        ["velocity_kurtosis", "", "Kurtosis of the posterior about velocity_posterior"];
    /// Number of exposures of the object that were fitted together; `None` if the model has no exposures, or without a
    /// fit, which tables write as 0.
    exposures: Option<u64>, optional = ["exposures", "", "Exposures that were fitted together"];
    /// Velocities of the exposures if each has its own; `None` otherwise, or without a fit, which tables write as empty
    /// lists.
    exposure_velocities: Option<ExposureVelocities>, optional =
        ["velocity_exposures", "km/s", "Velocity of each exposure, NaN without data"]
        ["velocity_exposures_err", "km/s", "Standard error of velocity_exposures"];
    /// Probability of exposures' velocities that differ as much as these or more if the true ones are equal; `None` if
    /// fewer than two exposures have a velocity.
    p_constant_velocity: Option<f64>, optional(exposure_velocities) =
        ["p_constant_velocity", "", "Probability of velocities as different as these if all are equal"];
    /// Number of spectra of the cluster that were fitted together, this one included; `None` if there was no joint fit,
    /// which tables write as 0.
    shared_members: Option<u64>, optional(shared) =
        ["shared_members", "", "Spectra of the cluster in the joint fit, 0 without one"];
    /// Probability that the costs of the cluster's spectra rise as much from their single fits to the joint one, or
    /// more, if the true values of the shared labels are equal; `None` without a joint fit of several spectra.
    shared_p: Option<f64>, optional(shared) =
        ["shared_p", "", "Probability of so large a rise if the cluster shares its labels"];
    /// (P) Standard errors with all bounds released, if
    /// [`SpectralFitter::released_errors`](crate::SpectralFitter::released_errors) asks for them; empty otherwise. The
    /// covariance counts parameters at a bound as free.
    released_errors: Vec<f64>, optional =
        ["NAME_err_released", "its own", "Standard error of NAME, bounds released"];
    /// (P (P − 1) / 2) Correlation coefficients of the pairs (0,1), (0,2), … (1,2), …; NaN if an error is NaN.
    correlations: Vec<f64>, later = ["correlation_A_B", "", "Correlation of A and B"];
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULTS: &str = include_str!("../../../../docs/src/results.md");

    /// Fails unless the page on results has a table of these lines, and of no others.
    fn assert_listed(lines: impl IntoIterator<Item = String>) {
        let table = lines.into_iter().collect::<Vec<_>>().join("\n");
        assert!(
            RESULTS.contains(&format!("---|\n{table}\n\n")),
            "the page's table is not this one:\n{table}"
        );
    }

    #[test]
    fn the_page_on_results_lists_columns_statuses_and_flags_as_they_are() {
        assert_listed(ROW_FIELDS.iter().flat_map(|field| {
            let kind = field.kind.name();
            field.patterns.iter().map(move |pattern| {
                format!(
                    "| `{}` | {kind} | {} | {} |",
                    pattern.name, pattern.unit, pattern.meaning
                )
            })
        }));
        assert_listed(
            Status::ALL
                .iter()
                .map(|s| format!("| {} | `{}` | {} |", s.code(), s.name(), s.meaning())),
        );
        assert_listed(
            crate::flag::FLAG_DESCRIPTIONS
                .iter()
                .map(|f| format!("| {} | `{}` | {} |", f.bit, f.name, f.meaning)),
        );
    }

    #[test]
    fn meanings_fit_a_card_of_fits() {
        let parameters = ["velocity", "vsini", "teff", "logg", "feh", "alpha"]
            .map(String::from)
            .to_vec();
        let schema = Schema {
            parameters,
            arms: vec!["b".into()],
            posterior: true,
            released_errors: true,
            downweighted: true,
            jitter: true,
            exposures: true,
            exposure_velocities: true,
            shared: true,
            ..Schema::default()
        };
        for column in schema.columns() {
            let length = column.meaning.len();
            assert!(
                column.meaning.is_ascii() && (1..=66).contains(&length),
                "{}: {length}",
                column.name
            );
        }
    }
}
