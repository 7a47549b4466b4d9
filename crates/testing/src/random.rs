//! Random numbers that are the same in every run.

/// A fixed sequence: splitmix64 (Steele, Lea and Flood 2014).
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    /// Uniform in (0, 1).
    pub fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Mean 0, standard deviation 1 (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// One of the numbers below `limit`, or 0 if there is none.
    pub fn below(&mut self, limit: usize) -> usize {
        ((self.uniform() * limit as f64) as usize).min(limit.saturating_sub(1))
    }

    /// −size … size, as f32 so that both devices see the same number.
    pub fn around(&mut self, size: f64) -> f64 {
        f64::from((size * (2.0 * self.uniform() - 1.0)) as f32)
    }

    pub fn list(&mut self, count: usize, size: f64) -> Vec<f32> {
        (0..count).map(|_| self.around(size) as f32).collect()
    }
}
