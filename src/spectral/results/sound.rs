//! The last check of every row: a success has no number that is not finite, whatever went wrong before. The same check
//! for curves is in `curves/results/sound.rs`.

use crate::flag::Flags;
use crate::math::all_finite;
use crate::math::covariance::pair_index;
use crate::solver::Status;
use crate::spectral::results::row::FitRow;

/// Text of the status of a row with a number that is not finite.
const NON_FINITE_RESULT: &str = "non_finite_result";
/// Text of the status of a row whose scan found no finite posterior.
const NON_FINITE_POSTERIOR: &str = "non_finite_posterior";

/// Changes the status of a successful row to [`Status::NotFinite`] if a number is not finite, or a scanned velocity has
/// no posterior.
///
/// Parameters at a bound have no error. Parameters that the data do not determine have an infinite error, and there is
/// at least one of them if the flag is set. `scanned` is the index of the velocity, if the user asked for its
/// posterior.
pub fn check_row(row: &mut FitRow, scanned: Option<usize>) {
    if !row.status.is_success() {
        return;
    }
    // A held velocity has no posterior.
    if scanned.is_some_and(|p| row.errors[p] != 0.0) && !has_posterior(row) {
        row.posterior = None;
        row.mark_failed(Status::NotFinite, NON_FINITE_POSTERIOR);
    } else if !row_is_sound(row) {
        row.mark_failed(Status::NotFinite, NON_FINITE_RESULT);
    }
}

/// Returns whether the row has a finite posterior.
fn has_posterior(row: &FitRow) -> bool {
    row.posterior
        .is_some_and(|p| all_finite(&[p.velocity, p.error, p.skewness, p.kurtosis]))
}

/// Returns whether parameters, χ² and correlations are finite, and errors missing or infinite only where bounds or
/// flags say why.
fn row_is_sound(row: &FitRow) -> bool {
    if !(all_finite(&[row.chi2, row.objective]) && all_finite(&row.parameters)) {
        return false;
    }
    // 1. Errors of parameters inside the bounds exist, and are infinite only if the flag says so.
    let is_inside = |p: &usize| row.at_bound >> p & 1 == 0;
    let count = row.errors.len();
    let mut errors_inside = (0..count).filter(is_inside).map(|p| row.errors[p]);
    let has_undetermined = errors_inside.clone().any(|error| error == f64::INFINITY);
    let lacks_error = errors_inside.any(f64::is_nan);
    if lacks_error || has_undetermined != row.flags.contains(Flags::UNDETERMINED) {
        return false;
    }
    // 2. Pairs of parameters with errors have a correlation. Held parameters have the error 0, and no correlation.
    let has_error = |p: &usize| is_inside(p) && row.errors[*p].is_finite() && row.errors[*p] != 0.0;
    let mut pairs = (0..count)
        .filter(has_error)
        .flat_map(|q| (0..q).filter(has_error).map(move |p| (p, q)));
    pairs.all(|(p, q)| {
        row.correlations
            .get(pair_index(p, q, count))
            .is_some_and(|correlation| correlation.is_finite())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spectral::VelocityPosterior;

    fn sound_row() -> FitRow {
        FitRow {
            status: Status::Ftol,
            status_text: "ftol".into(),
            chi2: 1.0,
            dof: 1,
            objective: 1.0,
            parameters: vec![1.0; 3],
            errors: vec![0.1; 3],
            released_errors: vec![0.1; 3],
            start: Some(0),
            correlations: vec![0.5; 3],
            ..FitRow::new(0, 3)
        }
    }

    #[test]
    fn a_row_that_is_not_finite_is_no_success() {
        let spoils: [fn(&mut FitRow, f64); 5] = [
            |row, x| row.chi2 = x,
            |row, x| row.objective = x,
            |row, x| row.parameters[1] = x,
            |row, x| row.errors[2] = x,
            |row, x| row.correlations[1] = x,
        ];
        let mut unchanged = sound_row();
        check_row(&mut unchanged, None);
        assert_eq!(unchanged, sound_row());
        for (k, spoil) in spoils.into_iter().enumerate() {
            for x in [f64::NAN, f64::INFINITY] {
                let mut bad = sound_row();
                spoil(&mut bad, x);
                check_row(&mut bad, None);
                assert_eq!(
                    (bad.status, bad.status_text.as_str()),
                    (Status::NotFinite, NON_FINITE_RESULT),
                    "field {k}: {x}"
                );
                assert!(
                    bad.errors
                        .iter()
                        .chain(&bad.correlations)
                        .all(|x| x.is_nan())
                );
            }
        }
    }

    #[test]
    fn bounded_held_and_undetermined_parameters_stay_a_success() {
        let changes: [fn(&mut FitRow); 3] = [
            |row| {
                row.at_bound = 2;
                row.errors[1] = f64::NAN;
                row.correlations[0] = f64::NAN;
                row.correlations[2] = f64::NAN;
            },
            |row| {
                row.errors[0] = 0.0;
                row.correlations[0] = f64::NAN;
                row.correlations[1] = f64::NAN;
            },
            |row| {
                row.flags = Flags::UNDETERMINED;
                row.errors[2] = f64::INFINITY;
                row.correlations[1] = f64::NAN;
                row.correlations[2] = f64::NAN;
            },
        ];
        for (k, change) in changes.into_iter().enumerate() {
            let mut changed = sound_row();
            change(&mut changed);
            check_row(&mut changed, None);
            assert_eq!(changed.status, Status::Ftol, "case {k}");
        }
    }

    /// Errors of parameters that the data do not determine are infinite, all others are finite, and the flag is set
    /// only with them.
    #[test]
    fn infinite_errors_and_the_undetermined_flag_go_together() {
        let spoils: [fn(&mut FitRow); 5] = [
            |row| row.errors[2] = f64::NAN,
            // A pair of determined parameters has no correlation.
            |row| row.correlations[0] = f64::NAN,
            // The flag is set, but every error is finite.
            |row| row.errors[2] = 0.1,
            // The undetermined parameter is at a bound.
            |row| row.at_bound = 4,
            // The flag is missing.
            |row| row.flags = Flags::empty(),
        ];
        let deficient = FitRow {
            flags: Flags::UNDETERMINED,
            errors: vec![0.1, 0.1, f64::INFINITY],
            ..sound_row()
        };
        let mut unchanged = deficient.clone();
        check_row(&mut unchanged, None);
        assert_eq!(unchanged.status, Status::Ftol);
        for (k, spoil) in spoils.into_iter().enumerate() {
            let mut bad = deficient.clone();
            spoil(&mut bad);
            check_row(&mut bad, None);
            assert_eq!(
                (bad.status, bad.status_text.as_str()),
                (Status::NotFinite, NON_FINITE_RESULT),
                "case {k}"
            );
        }
    }

    #[test]
    fn a_scan_without_a_finite_posterior_is_no_success() {
        let finite = VelocityPosterior {
            velocity: 1.0,
            error: 0.1,
            skewness: 0.0,
            kurtosis: 3.0,
        };
        let spoils: [fn(&mut VelocityPosterior, f64); 4] = [
            |posterior, x| posterior.velocity = x,
            |posterior, x| posterior.error = x,
            |posterior, x| posterior.skewness = x,
            |posterior, x| posterior.kurtosis = x,
        ];
        let spoilt = spoils.iter().flat_map(|spoil| {
            [f64::NAN, f64::INFINITY].map(|x| {
                let mut posterior = finite;
                spoil(&mut posterior, x);
                Some(posterior)
            })
        });
        for posterior in spoilt.chain([None]) {
            let mut bad = FitRow {
                posterior,
                ..sound_row()
            };
            check_row(&mut bad, Some(1));
            assert_eq!(
                (bad.status, bad.status_text.as_str()),
                (Status::NotFinite, NON_FINITE_POSTERIOR)
            );
            assert!(bad.posterior.is_none() && bad.errors.iter().all(|x| x.is_nan()));
        }
        // A finite posterior, none that was asked for, and none of a held velocity stay successes.
        let held = FitRow {
            errors: vec![0.1, 0.0, 0.1],
            ..sound_row()
        };
        let sound_cases = [
            (
                FitRow {
                    posterior: Some(finite),
                    ..sound_row()
                },
                Some(1),
            ),
            (sound_row(), None),
            (held, Some(1)),
        ];
        for (mut unchanged, scanned) in sound_cases {
            check_row(&mut unchanged, scanned);
            assert_eq!(unchanged.status, Status::Ftol);
        }
    }
}
