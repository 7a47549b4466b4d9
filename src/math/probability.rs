//! Tail probabilities of χ² and of F(1, ν), and the inverse for one degree of freedom.

use statrs::function::beta::beta_reg;
use statrs::function::gamma::{gamma_lr, gamma_ur};

/// Relative accuracy of the bisection.
const RELATIVE_ACCURACY: f64 = 1e-15;

/// Returns the probability of a normal deviate beyond ±`sigma`; as in lmfit, a `sigma` below 1 is taken as the
/// probability of a deviate within.
pub fn tail_of(sigma: f64) -> f64 {
    if sigma < 1.0 {
        1.0 - sigma
    } else {
        libm::erfc(sigma / std::f64::consts::SQRT_2)
    }
}

/// Returns the value at which χ² with one degree of freedom, or with `dof` F(1, dof), has the tail probability `tail`.
pub fn threshold(tail: f64, dof: Option<f64>) -> f64 {
    // Bisect the logarithm of the value.
    let mut low = -700.0;
    let mut high = 700.0_f64;
    while high - low > RELATIVE_ACCURACY * high.abs().max(low.abs()) {
        let middle = 0.5 * (low + high);
        if middle == low || middle == high {
            break;
        }
        if tail_above(middle.exp(), dof) > tail {
            low = middle
        } else {
            high = middle
        }
    }
    (0.5 * (low + high)).exp()
}

/// Returns the probability that χ² with one degree of freedom, or with `dof` F(1, dof), is above x.
fn tail_above(x: f64, dof: Option<f64>) -> f64 {
    match dof {
        None => libm::erfc((0.5 * x).sqrt()),
        // The tail of F(1, ν) is the incomplete beta function at ν / (ν + x).
        Some(dof) => beta_reg(0.5 * dof, 0.5, dof / (dof + x)),
    }
}

/// Side of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    Lower,
    Upper,
}

/// Returns the probability that χ² with `dof` > 0 degrees of freedom lies at or beyond `chi2`: P(a, x) or Q(a, x), the
/// regularised incomplete gamma functions at a = dof/2 and x = χ²/2.
pub fn chi2_tail(tail: Tail, chi2: f64, dof: f64) -> f64 {
    if chi2.is_nan() {
        return f64::NAN;
    }
    match tail {
        Tail::Lower if chi2 <= 0.0 => 0.0,
        Tail::Lower if chi2 == f64::INFINITY => 1.0,
        Tail::Lower => gamma_lr(0.5 * dof, 0.5 * chi2),
        Tail::Upper if chi2 <= 0.0 => 1.0,
        Tail::Upper if chi2 == f64::INFINITY => 0.0,
        Tail::Upper => gamma_ur(0.5 * dof, 0.5 * chi2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// scipy.stats.f.isf(tail, 1, dof), tail = erfc(sigma / √2); tests/python/make_estimators.py.
    #[test]
    fn thresholds_agree_with_scipy() {
        assert!((threshold(tail_of(2.0), None) / 4.0 - 1.0).abs() < 1e-13);
        assert!((threshold(tail_of(0.5), None) / 0.454_936_423_119_572_4 - 1.0).abs() < 1e-13);
        for (sigma, dof, exact) in THRESHOLDS {
            let computed = threshold(tail_of(sigma), Some(dof));
            assert!(
                (computed / exact - 1.0).abs() < 1e-11,
                "{sigma} {dof}: {computed} {exact}"
            );
        }
    }

    #[test]
    fn chi2_tails_agree_with_mpmath() {
        for (dof, lower, upper) in CHI2_TAILS {
            for (tail, points) in [(Tail::Lower, lower), (Tail::Upper, upper)] {
                for (chi2, exact) in points {
                    let computed = chi2_tail(tail, chi2, dof);
                    let complement = chi2_tail(opposite(tail), chi2, dof);
                    // the logarithms of the gamma function lose digits at many degrees of freedom
                    let tolerance = 1e-12 + 1e-14 * dof.min(1e6) + 1e-15 * dof;
                    assert!(
                        (computed / exact - 1.0).abs() < tolerance,
                        "{tail:?} {chi2} {dof}: {computed} {exact}"
                    );
                    assert!(
                        (computed + complement - 1.0).abs() < tolerance,
                        "{tail:?} {chi2} {dof}"
                    );
                }
            }
        }
    }

    #[test]
    fn chi2_outside_its_range_has_tails_0_and_1() {
        for dof in [1.0, 19.0, 1e7] {
            for (chi2, expected_tails) in [
                (-1.0, [0.0, 1.0]),
                (0.0, [0.0, 1.0]),
                (f64::INFINITY, [1.0, 0.0]),
            ] {
                assert_eq!(
                    [Tail::Lower, Tail::Upper].map(|tail| chi2_tail(tail, chi2, dof)),
                    expected_tails,
                    "{chi2} {dof}"
                );
            }
            assert!(chi2_tail(Tail::Lower, f64::NAN, dof).is_nan());
        }
    }

    fn opposite(tail: Tail) -> Tail {
        if tail == Tail::Lower {
            Tail::Upper
        } else {
            Tail::Lower
        }
    }

    /// Degrees of freedom, then χ² and its tail probability: three of the lower tail, three of the upper.
    type TailCase = (f64, [(f64, f64); 3], [(f64, f64); 3]);

    /// Quantiles of scipy 1.17.1 with probabilities of mpmath 1.4.1: `tests/python/make_chi2_tails.py`.
    const CHI2_TAILS: [TailCase; 11] = [
        (
            1.0,
            [
                (0.14847186183254538, 0.29999999999999993),
                (1.5707963267957187e-12, 1e-06),
                (1.570796326794893e-60, 9.999999999999989e-31),
            ],
            [
                (1.0741941708575722, 0.300000000000003),
                (23.928126976934827, 1.000000000000001e-06),
                (132.79989270501423, 9.999999999999938e-31),
            ],
        ),
        (
            2.0,
            [
                (0.7133498878774648, 0.3),
                (2.0000010000006676e-06, 1.0000000000000004e-06),
                (1.9999999999999865e-30, 9.999999999999933e-31),
            ],
            [
                (2.4079456086518713, 0.3000000000000001),
                (27.631021115928547, 1.0000000000000004e-06),
                (138.15510557964274, 1.0000000000000024e-30),
            ],
        ),
        (
            3.0,
            [
                (1.4236522430352798, 0.30000000000000004),
                (0.00024181048720124264, 9.99999999999999e-07),
                (2.4179879310247137e-20, 1.0000000000000057e-30),
            ],
            [
                (3.6648707831703162, 0.30000000000000016),
                (30.664849706213598, 1.0000000000000006e-06),
                (142.67798622346095, 9.999999999999983e-31),
            ],
        ),
        (
            7.0,
            [
                (4.671330448981073, 0.29999999999999993),
                (0.07852360099036994, 1.0000000000000006e-06),
                (1.0816112885473552e-08, 9.999999999999957e-31),
            ],
            [
                (8.383430828608384, 0.3),
                (40.521831234179864, 1.0000000000000004e-06),
                (157.65302773124347, 1.0000000000000022e-30),
            ],
        ),
        (
            19.0,
            [
                (15.35166026260527, 0.29999999999999977),
                (2.25505372342003, 9.999999999999997e-07),
                (0.0060333514099612595, 9.99999999999998e-31),
            ],
            [
                (21.68912658301488, 0.30000000000000016),
                (63.677052285677995, 1.0000000000000014e-06),
                (192.60664249104576, 1.0000000000000048e-30),
            ],
        ),
        (
            20.0,
            [
                (16.26585648501278, 0.29999999999999977),
                (2.553637575728816, 9.999999999999997e-07),
                (0.00906118859550399, 1.0000000000000032e-30),
            ],
            [
                (22.774545073646436, 0.2999999999999997),
                (65.42068103504783, 1e-06),
                (195.1983493607649, 1.0000000000000015e-30),
            ],
        ),
        (
            100.0,
            [
                (92.1289443388967, 0.30000000000000016),
                (46.50133071589314, 9.999999999999743e-07),
                (10.889437699733415, 9.999999999999801e-31),
            ],
            [
                (106.9057606538451, 0.3),
                (182.12677711954765, 9.999999999999817e-07),
                (358.0294606001977, 9.99999999999961e-31),
            ],
        ),
        (
            2574.0,
            [
                (2535.8966436025808, 0.3000000000000007),
                (2247.2225102136804, 9.999999999999856e-07),
                (1836.0981523084042, 9.999999999999526e-31),
            ],
            [
                (2611.136737411213, 0.300000000000001),
                (2929.564457607861, 1.0000000000000082e-06),
                (3485.5983133822774, 1.0000000000000612e-30),
            ],
        ),
        (
            15873.0,
            [
                (15779.084292667394, 0.30000000000000154),
                (15040.412976887184, 9.999999999999953e-07),
                (13916.45120740319, 1.0000000000000367e-30),
            ],
            [
                (15965.94904381326, 0.30000000000000016),
                (16734.37937186432, 1.0000000000000144e-06),
                (18003.41447848453, 9.999999999999251e-31),
            ],
        ),
        (
            1000000.0,
            [
                (999257.9026238887, 0.30000000000001287),
                (993292.0337421375, 1.0000000166816227e-06),
                (983874.2577185031, 1.0000000000003292e-30),
            ],
            [
                (1000741.1307041118, 0.30000000000000154),
                (1006736.7596362906, 9.999999999998312e-07),
                (1016299.6402435438, 1.0000000000002742e-30),
            ],
        ),
        (
            10000000.0,
            [
                (9997654.326363856, 0.3000000000000144),
                (9978763.777621673, 1.0081677662217006e-06),
                (9948818.245118367, 1.0000216143671113e-30),
            ],
            [
                (10002344.706964022, 0.2999999999999984),
                (10021272.358296907, 1.000000000000577e-06),
                (10051355.661652686, 1.0000000000022956e-30),
            ],
        ),
    ];

    const THRESHOLDS: [(f64, f64, f64); 4] = [
        (1.0, 3.0, 1.432_524_976_517_931_8),
        (2.0, 17.0, 4.658_088_096_261_328),
        (3.0, 50.0, 9.967_582_179_501_457),
        (5.0, 1000.0, 25.327_913_505_078_193),
    ];
}
