//! The last check of every curve: all numbers of a success are finite, and a failed fit has no errors.

use crate::curves::results::result::CurveFit;
use crate::flag::Flags;
use crate::math::all_finite;
use crate::solver::Status;

/// Message of a success that had a number that is not finite.
pub const NOT_FINITE: &str = "the result is not finite";

/// Changes the status of a successful curve to [`Status::NotFinite`], and its errors to NaN, if one of its numbers is
/// not finite. Its covariance may be NaN if a parameter is undetermined or at a bound, or if the noise is unknown. The
/// point of a failed fit is no minimum: errors of free parameters become NaN, and no parameter is flagged as
/// undetermined.
pub fn require_finite(mut fit: CurveFit) -> CurveFit {
    if !fit.status.is_success() {
        // The errors and covariances of held parameters are 0 and stay so.
        for error in fit.errors.iter_mut().chain(&mut fit.covariance) {
            if *error != 0.0 {
                *error = f64::NAN;
            }
        }
        fit.flags.set(Flags::UNDETERMINED, false);
    }
    if fit.status.is_success() && !is_sound_fit(&fit) {
        fit.status = Status::NotFinite;
        fit.message = NOT_FINITE.into();
        fit.errors.fill(f64::NAN);
        fit.covariance.fill(f64::NAN);
    }
    fit
}

/// Returns whether parameters, χ² and covariances are finite, and errors infinite only, and always, with the flag for
/// undetermined ones.
fn is_sound_fit(fit: &CurveFit) -> bool {
    all_finite(&[fit.chi2, fit.aic, fit.bic, fit.optimality])
        && is_sound(&fit.parameters, &fit.errors, &fit.covariance, fit.flags)
}

/// Returns whether parameters (P) and covariances (P, P) are finite, and errors (P) infinite only, and always, with the
/// flag for undetermined ones.
pub fn is_sound(parameters: &[f64], errors: &[f64], covariance: &[f64], flags: Flags) -> bool {
    let count = errors.len();
    let has_error = |p: &usize| errors[*p].is_finite();
    let mut pairs_with_errors = (0..count)
        .filter(has_error)
        .flat_map(|q| (0..count).filter(has_error).map(move |p| (p, q)));
    all_finite(parameters)
        && errors.iter().any(|error| error.is_infinite()) == flags.contains(Flags::UNDETERMINED)
        && pairs_with_errors.all(|(p, q)| covariance[p * count + q].is_finite())
}

/// Changes the status codes (n) of successful curves whose χ² or parameters are not finite to [`Status::NotFinite`],
/// and the errors of fits that are no successes to NaN. `parameters` and `errors` are (n, P), and `chi2` is (n).
pub fn require_finite_columns(
    status: &mut [i8],
    parameters: &[f64],
    errors: &mut [f64],
    chi2: &[f64],
) {
    // Usually all values are finite. A loop without an early exit compiles to vector code.
    let are_finite = |values: &[f64]| values.iter().fold(true, |all, x| all & x.is_finite());
    let count = parameters.len() / status.len().max(1);
    if count == 0
        || (are_finite(parameters)
            && are_finite(chi2)
            && status.iter().fold(true, |all, code| all & (*code > 0)))
    {
        return;
    }
    let fits = parameters
        .chunks(count)
        .zip(errors.chunks_mut(count))
        .zip(chi2);
    for (status, ((parameters, errors), chi2)) in status.iter_mut().zip(fits) {
        if *status > 0 && !(chi2.is_finite() && all_finite(parameters)) {
            *status = Status::NotFinite.code() as i8;
        }
        if *status <= 0 {
            for error in errors {
                if *error != 0.0 {
                    *error = f64::NAN;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_that_is_not_finite_is_no_success() {
        let good = || CurveFit {
            status: Status::Ftol,
            parameters: vec![1.0; 2],
            errors: vec![0.1; 2],
            covariance: vec![0.01, 0.001, 0.001, 0.01],
            chi2: 1.0,
            aic: 1.0,
            bic: 1.0,
            optimality: 0.0,
            ..CurveFit::blank(2)
        };
        let undetermined = || CurveFit {
            errors: vec![0.1, f64::INFINITY],
            covariance: vec![0.01, f64::NAN, f64::NAN, f64::INFINITY],
            flags: Flags::UNDETERMINED,
            ..good()
        };
        for fit in [good(), undetermined()] {
            assert_eq!(require_finite(fit).status, Status::Ftol);
        }
        let spoils: [fn(&mut CurveFit, f64); 6] = [
            |fit, x| fit.parameters[1] = x,
            |fit, x| fit.chi2 = x,
            |fit, x| fit.aic = x,
            |fit, x| fit.optimality = x,
            |fit, x| fit.errors[1] = x.abs().max(f64::INFINITY),
            |fit, x| fit.covariance[1] = x,
        ];
        for (k, spoil) in spoils.into_iter().enumerate() {
            for x in [f64::NAN, f64::INFINITY] {
                let mut bad = good();
                spoil(&mut bad, x);
                let bad = require_finite(bad);
                assert_eq!(bad.status, Status::NotFinite, "field {k}: {x}");
                assert!(bad.errors.iter().chain(&bad.covariance).all(|x| x.is_nan()));
            }
        }
    }

    #[test]
    fn a_fit_that_is_no_success_has_no_errors() {
        let stalled = require_finite(CurveFit {
            status: Status::Stalled,
            errors: vec![0.1, 0.0],
            covariance: vec![0.01, 0.0, 0.0, 0.0],
            ..CurveFit::blank(2)
        });
        assert!(stalled.errors[0].is_nan() && stalled.covariance[0].is_nan());
        // The second parameter is held.
        assert_eq!(
            (stalled.errors[1], &stalled.covariance[1..]),
            (0.0, &[0.0; 3][..])
        );
    }

    #[test]
    fn a_column_that_is_not_finite_is_no_success() {
        for (parameter, chi2, expected) in
            [(1.0, 1.0, 2), (f64::NAN, 1.0, -4), (1.0, f64::INFINITY, -4)]
        {
            let mut status = [2, 2, -1];
            let mut errors = [0.1; 6];
            let parameters = [1.0, 1.0, parameter, 1.0, f64::NAN, f64::NAN];
            require_finite_columns(
                &mut status,
                &parameters,
                &mut errors,
                &[1.0, chi2, f64::NAN],
            );
            assert_eq!(status, [2, expected, -1]);
            assert_eq!(
                errors.map(f64::is_nan),
                [false, false, expected < 0, expected < 0, true, true]
            );
        }
    }
}
