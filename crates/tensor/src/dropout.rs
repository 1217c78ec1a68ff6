//! Dropout whose mask is a function of (seed, position), so that nothing has to be stored for the
//! backward pass and every backend uses the same mask.

/// A dropout mask: each value is dropped with probability `rate`, as determined by a hash of the
/// seed and its position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Probability of dropping, in [0, 1).
    pub rate: f32,
    /// Identifies the mask.
    pub seed: u64,
}

impl Dropout {
    /// The factor for the value at this position: 0 or 1/(1 − rate).
    #[inline(always)]
    pub fn factor(self, position: u32) -> f32 {
        // Positions are multiplied by an odd constant, mixed with both halves of the seed, and
        // finished with two multiply–xorshift rounds; dropout masks only need to look random, not
        // to resist an adversary.
        let mut h = position.wrapping_mul(0x9e37_79b1) ^ (self.seed as u32);
        h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b) ^ ((self.seed >> 32) as u32);
        h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
        h ^= h >> 16;
        // 24 bits are represented exactly in f32.
        let uniform = (h >> 8) as i32 as f32 * (1.0 / 16_777_216.0);
        if uniform < self.rate { 0.0 } else { 1.0 / (1.0 - self.rate) }
    }

    /// Another mask with the same rate.
    pub fn fork(self, salt: u64) -> Self {
        let mut z =
            self.seed.wrapping_add(salt.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self { seed: z ^ (z >> 31), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_masks_differ() {
        for rate in [0.0, 0.1, 0.5, 0.9] {
            let mask = Dropout { rate, seed: 7 };
            let n = 100_000;
            let dropped = (0..n).filter(|&i| mask.factor(i) == 0.0).count() as f64 / f64::from(n);
            // Six standard deviations.
            assert!(
                (dropped - f64::from(rate)).abs() < 6.0 * (0.25 / f64::from(n)).sqrt(),
                "{rate}: {dropped}"
            );
            let both =
                (0..n).filter(|&i| mask.factor(i) == 0.0 && mask.fork(1).factor(i) == 0.0).count();
            let both = both as f64 / f64::from(n);
            assert!((both - f64::from(rate * rate)).abs() < 6.0 * (0.25 / f64::from(n)).sqrt());
        }
    }
}
