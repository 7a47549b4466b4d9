//! Sums of logarithms, in vector code.

/// Number of sums side by side.
pub const SUMS_SIDE_BY_SIDE: usize = 8;

/// Returns Σ ln w of the positive values among at most 4,096. It takes few logarithms, because mantissas are multiplied
/// and exponents added.
#[inline(always)]
pub fn sum_of_logarithms(values: &[f64]) -> f64 {
    const MANTISSA_MASK: u64 = (1 << 52) - 1;
    let mut exponents = [0u64; SUMS_SIDE_BY_SIDE];
    let mut mantissas = [1f64; SUMS_SIDE_BY_SIDE];
    for part in values.chunks(SUMS_SIDE_BY_SIDE) {
        for ((w, exponent), mantissa) in part.iter().zip(&mut exponents).zip(&mut mantissas) {
            // A subnormal number counts as the smallest normal one.
            let bits = if *w > 0.0 {
                w.max(f64::MIN_POSITIVE).to_bits()
            } else {
                1f64.to_bits()
            };
            *exponent += bits >> 52;
            *mantissa *= f64::from_bits(bits & MANTISSA_MASK | 1f64.to_bits());
        }
    }
    let total_exponent = exponents.iter().sum::<u64>() as f64 - (1023 * values.len()) as f64;
    total_exponent * std::f64::consts::LN_2 + mantissas.iter().map(|m| m.ln()).sum::<f64>()
}
