//! Random numbers that depend only on a seed.

/// A SplitMix64 generator.
pub struct Random(u64);

impl Random {
    /// The generator of one attack, so that each attack can be repeated separately.
    pub fn new(seed: u64, number: u64) -> Self {
        let start = Self(seed).draw() ^ number.wrapping_mul(0xd134_2543_de82_ef95);
        Self(start)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to n − 1, or 0 if n is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.draw() % n.max(1) as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A number in [0, 1).
    pub fn part(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
