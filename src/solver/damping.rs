//! Nielsen's damping (Nielsen 1999, IMM-REP-1999-05, eq. 2.21; Madsen, Nielsen & Tingleff 2004, §3.2).

use super::round::step::equations::relaxation;
use super::thresholds::{DAMPING_RAISE, LEAST_RAISED_DAMPING};
use crate::math::Real;
use crate::math::lanes::pick;

/// μ multiplies the diagonal of the normal matrix (Marquardt scaling); ν is the factor of the next rejection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Damping<R = f64> {
    pub mu: R,
    pub nu: R,
}

impl<R: Real> Damping<R> {
    /// Starts with damping `mu` and the factor ν = 2.
    pub fn new(mu: R) -> Damping<R> {
        Damping { mu, nu: R::of(2.0) }
    }

    /// Returns the damping after a step. If it was accepted, μ ← μ max(⅓, 1 − (2ρ−1)³) and ν ← 2, with ρ the gain
    /// ratio; else μ ← μν and ν ← 2ν.
    #[inline(always)]
    pub fn update(self, is_accepted: bool, gain_ratio: R) -> Damping<R> {
        let Damping { mu, nu } = self;
        let two = R::of(2.0);
        Damping {
            mu: pick(is_accepted, mu * relaxation(gain_ratio), mu * nu),
            nu: pick(is_accepted, two, two * nu),
        }
    }

    /// Returns a damping with which a matrix is more likely to factorise, after one that did not.
    #[inline(always)]
    pub fn raise(self) -> Damping<R> {
        Damping {
            mu: (R::of(DAMPING_RAISE) * self.mu).maximum(R::of(LEAST_RAISED_DAMPING)),
            nu: self.nu,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_follow_the_sequence_computed_by_hand() {
        // start 0.9; reject, reject: 0.9·2 = 1.8, 1.8·4 = 7.2, ν = 8; accept ρ = 1 (factor ⅓): 2.4, ν = 2;
        // accept ρ = ½ (factor 1): 2.4; accept ρ = ¼ (1 + ⅛): 2.7; reject: 5.4.
        let steps = [
            (false, 0.0),
            (false, 0.0),
            (true, 1.0),
            (true, 0.5),
            (true, 0.25),
            (false, 0.0),
        ];
        let mut damping = Damping::new(0.9_f64);
        let updated = steps.map(|(is_accepted, gain_ratio)| {
            damping = damping.update(is_accepted, gain_ratio);
            (damping.mu, damping.nu)
        });
        let expected = [
            (1.8, 4.0),
            (7.2, 8.0),
            (2.4, 2.0),
            (2.4, 2.0),
            (2.7, 2.0),
            (5.4, 4.0),
        ];
        for ((mu, nu), (expected_mu, expected_nu)) in updated.iter().zip(expected) {
            assert!(
                (mu - expected_mu).abs() < 1e-12 && *nu == expected_nu,
                "{updated:?}"
            );
        }
    }
}
