//! Weights that training leaves as they are, in fewer bits than f32.
//!
//! The weights of a file in bf16 stay in bf16, which loses nothing. In [NF4](Nf4) they take an
//! eighth of f32 and are rounded. Both are expanded to f32 where a product needs them: a part that
//! fits a cache at a time, which is forgotten after it.

mod nf4;

pub use nf4::Nf4;

use super::pool::Buffer;
use std::sync::OnceLock;

/// Numbers that do not change.
#[derive(Debug)]
pub(crate) struct Compact {
    numbers: Numbers,
    /// All of them in f32, once an operation asked for a slice of f32.
    expanded: OnceLock<Buffer>,
}

#[derive(Debug)]
pub(crate) enum Numbers {
    /// The upper halves of f32.
    Bf16(Vec<u16>),
    Nf4(Nf4),
}

impl Compact {
    pub fn new(numbers: Numbers) -> Self {
        Self { numbers, expanded: OnceLock::new() }
    }

    pub fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// How many numbers there are.
    pub fn len(&self) -> usize {
        match &self.numbers {
            Numbers::Bf16(bits) => bits.len(),
            Numbers::Nf4(nf4) => nf4.len(),
        }
    }

    /// Writes the numbers from an index on.
    #[inline(always)]
    pub fn expand(&self, first: usize, out: &mut [f32]) {
        match &self.numbers {
            Numbers::Bf16(bits) => {
                for (out, &bits) in out.iter_mut().zip(&bits[first..]) {
                    *out = f32::from_bits(u32::from(bits) << 16);
                }
            }
            Numbers::Nf4(nf4) => nf4.expand(first, out),
        }
    }

    /// All numbers in f32, kept from now on: for operations that few models need on frozen weights.
    pub fn expanded(&self) -> &[f32] {
        let all = self.expanded.get_or_init(|| {
            let mut values = vec![0.0; self.len()];
            self.expand(0, &mut values);
            Buffer::from_vec(values)
        });
        all.values()
    }

    /// Whether [`Self::expanded`] was called.
    #[cfg(test)]
    pub fn was_expanded(&self) -> bool {
        self.expanded.get().is_some()
    }
}
