//! Frozen weights in fewer bits than f32.
//!
//! Weights loaded from a bf16 file stay in bf16, which is lossless. [NF4](Nf4) takes an eighth of
//! the memory of f32 and rounds. Both are expanded to f32 where a product needs them, one
//! cache-sized part at a time, and discarded afterward.

mod nf4;

pub use nf4::Nf4;

use super::pool::Buffer;
use std::sync::OnceLock;

/// Constant values.
#[derive(Debug)]
pub(crate) struct Compact {
    numbers: Numbers,
    /// All values in f32, once an operation has requested a slice of f32.
    expanded: OnceLock<Buffer>,
}

#[derive(Debug)]
pub(crate) enum Numbers {
    /// The upper halves of f32 values.
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

    /// Number of values.
    pub fn len(&self) -> usize {
        match &self.numbers {
            Numbers::Bf16(bits) => bits.len(),
            Numbers::Nf4(nf4) => nf4.len(),
        }
    }

    /// Writes the values starting at index `first`.
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

    /// All values in f32, which stay in memory from then on: for operations that few models apply
    /// to frozen weights.
    pub fn expanded(&self) -> &[f32] {
        let all = self.expanded.get_or_init(|| {
            let mut values = vec![0.0; self.len()];
            self.expand(0, &mut values);
            Buffer::from_vec(values)
        });
        all.values()
    }

    /// Whether [`Self::expanded`] has been called.
    #[cfg(test)]
    pub fn was_expanded(&self) -> bool {
        self.expanded.get().is_some()
    }
}
