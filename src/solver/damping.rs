//! Nielsen's damping (Nielsen 1999, IMM-REP-1999-05, eq. 2.21; Madsen, Nielsen & Tingleff 2004, §3.2).

use super::round::step::equations::relaxation;

/// μ multiplies the diagonal of the normal matrix (Marquardt scaling); ν is the factor of the next rejection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Damping {
    pub mu: f64,
    pub nu: f64,
}

impl Damping {
    /// Starts with damping `mu` and the factor ν = 2.
    pub const fn new(mu: f64) -> Damping {
        Damping { mu, nu: 2.0 }
    }

    /// Updates the damping after an accepted step: μ ← μ max(⅓, 1 − (2ρ−1)³), ν ← 2, with ρ the gain ratio.
    pub fn accept(&mut self, gain_ratio: f64) {
        self.mu *= relaxation(gain_ratio);
        self.nu = 2.0;
    }

    /// Updates the damping after a rejected step: μ ← μν, ν ← 2ν.
    pub fn reject(&mut self) {
        self.mu *= self.nu;
        self.nu *= 2.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_sequence_computed_by_hand() {
        // start 0.9; reject, reject: 0.9·2 = 1.8, 1.8·4 = 7.2, ν = 8; accept ρ = 1 (factor ⅓): 2.4, ν = 2;
        // accept ρ = ½ (factor 1): 2.4; accept ρ = ¼ (1 + ⅛): 2.7; reject: 5.4.
        let mut damping = Damping::new(0.9);
        let mut seen = Vec::new();
        damping.reject();
        seen.push((damping.mu, damping.nu));
        damping.reject();
        seen.push((damping.mu, damping.nu));
        for gain_ratio in [1.0, 0.5, 0.25] {
            damping.accept(gain_ratio);
            seen.push((damping.mu, damping.nu));
        }
        damping.reject();
        seen.push((damping.mu, damping.nu));
        let expected = [(1.8, 4.0), (7.2, 8.0), (2.4, 2.0), (2.4, 2.0), (2.7, 2.0), (5.4, 4.0)];
        for (s, e) in seen.iter().zip(expected) {
            assert!((s.0 - e.0).abs() < 1e-12 && s.1 == e.1, "{seen:?}");
        }
    }
}
