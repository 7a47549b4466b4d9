//! The last check of every row: a success has no number that is not finite, whatever went wrong before. That of curves
//! is in `curves/results/sound.rs`.

use crate::flag::Flags;
use crate::math::all_finite;
use crate::math::covariance::pair_index;
use crate::solver::Status;
use crate::spectral::results::row::FitRow;

/// Text of the status of a row with a number that is not finite.
const CAUSE: &str = "non_finite_result";
/// Text of the status of a row whose scan found no finite posterior.
const NO_POSTERIOR: &str = "non_finite_posterior";

/// Changes the status of a successful row to [`Status::NotFinite`] if a number is not finite, or a scanned velocity has
/// no posterior.
///
/// Parameters at a bound have no error. Those that the data do not determine have an infinite one, and there is at
/// least one of them if the flag is set. `scanned` is the index of the velocity, if the user asked for its posterior.
pub fn row(row: &mut FitRow, scanned: Option<usize>) {
    if !row.status.is_success() {
        return;
    }
    // A held velocity has no posterior.
    if scanned.is_some_and(|p| row.errors[p] != 0.0) && !has_posterior(row) {
        row.posterior = None;
        row.fail(Status::NotFinite, NO_POSTERIOR);
    } else if !row_is_sound(row) {
        row.fail(Status::NotFinite, CAUSE);
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
    let inside = |p: &usize| row.at_bound >> p & 1 == 0;
    let count = row.errors.len();
    let undetermined = (0..count)
        .filter(inside)
        .any(|p| row.errors[p] == f64::INFINITY);
    let unknown = (0..count).filter(inside).any(|p| row.errors[p].is_nan());
    if unknown || undetermined != row.flags.contains(Flags::UNDETERMINED) {
        return false;
    }
    // Held parameters have the error 0, and no correlation.
    let known = |p: &usize| inside(p) && row.errors[*p].is_finite() && row.errors[*p] != 0.0;
    let mut pairs = (0..count)
        .filter(known)
        .flat_map(|q| (0..q).filter(known).map(move |p| (p, q)));
    pairs.all(|(p, q)| {
        row.correlations
            .get(pair_index(p, q, count))
            .is_some_and(|c| c.is_finite())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spectral::VelocityPosterior;

    fn good() -> FitRow {
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
        let mut same = good();
        row(&mut same, None);
        assert_eq!(same, good());
        for (k, spoil) in spoils.into_iter().enumerate() {
            for x in [f64::NAN, f64::INFINITY] {
                let mut bad = good();
                spoil(&mut bad, x);
                row(&mut bad, None);
                assert_eq!(
                    (bad.status, bad.status_text.as_str()),
                    (Status::NotFinite, CAUSE),
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
    fn what_has_no_error_by_nature_stays_a_success() {
        let spoils: [fn(&mut FitRow); 3] = [
            |row| {
                (
                    row.at_bound,
                    row.errors[1],
                    row.correlations[0],
                    row.correlations[2],
                ) = (2, f64::NAN, f64::NAN, f64::NAN)
            },
            |row| {
                (row.errors[0], row.correlations[0], row.correlations[1]) =
                    (0.0, f64::NAN, f64::NAN)
            },
            |row| {
                (
                    row.flags,
                    row.errors[2],
                    row.correlations[1],
                    row.correlations[2],
                ) = (Flags::UNDETERMINED, f64::INFINITY, f64::NAN, f64::NAN)
            },
        ];
        for (k, spoil) in spoils.into_iter().enumerate() {
            let mut odd = good();
            spoil(&mut odd);
            row(&mut odd, None);
            assert_eq!(odd.status, Status::Ftol, "case {k}");
        }
    }

    /// Errors of parameters that the data do not determine are infinite, all others are finite, and the flag is set for
    /// no other reason.
    #[test]
    fn a_covariance_that_lacks_rank_says_whose_errors() {
        let spoils: [fn(&mut FitRow); 5] = [
            |row| row.errors[2] = f64::NAN,
            // a pair of determined ones
            |row| row.correlations[0] = f64::NAN,
            // nobody is undetermined
            |row| row.errors[2] = 0.1,
            // but for one at its bound
            |row| row.at_bound = 4,
            // without the flag
            |row| row.flags = Flags::empty(),
        ];
        let deficient = FitRow {
            flags: Flags::UNDETERMINED,
            errors: vec![0.1, 0.1, f64::INFINITY],
            ..good()
        };
        let mut same = deficient.clone();
        row(&mut same, None);
        assert_eq!(same.status, Status::Ftol);
        for (k, spoil) in spoils.into_iter().enumerate() {
            let mut bad = deficient.clone();
            spoil(&mut bad);
            row(&mut bad, None);
            assert_eq!(
                (bad.status, bad.status_text.as_str()),
                (Status::NotFinite, CAUSE),
                "case {k}"
            );
        }
    }

    #[test]
    fn a_scan_that_found_nothing_is_no_success() {
        let whole = VelocityPosterior {
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
                let mut posterior = whole;
                spoil(&mut posterior, x);
                Some(posterior)
            })
        });
        for posterior in spoilt.chain([None]) {
            let mut bad = FitRow {
                posterior,
                ..good()
            };
            row(&mut bad, Some(1));
            assert_eq!(
                (bad.status, bad.status_text.as_str()),
                (Status::NotFinite, NO_POSTERIOR)
            );
            assert!(bad.posterior.is_none() && bad.errors.iter().all(|x| x.is_nan()));
        }
        // a good one, one that nobody asked for, and a velocity that is held
        let held = FitRow {
            errors: vec![0.1, 0.0, 0.1],
            ..good()
        };
        let fine = [
            (
                FitRow {
                    posterior: Some(whole),
                    ..good()
                },
                Some(1),
            ),
            (good(), None),
            (held, Some(1)),
        ];
        for (mut one, scanned) in fine {
            row(&mut one, scanned);
            assert_eq!(one.status, Status::Ftol);
        }
    }
}
