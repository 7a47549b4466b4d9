//! Random numbers, the same in every run: shared with `benches/` and `tests/curves/small/`.

/// Random numbers from a fixed sequence.
pub struct Sequence(pub u64);

impl Sequence {
    /// Returns a uniform random number in (0, 1).
    pub fn uniform(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}
