//! Number formats of weights files: f32, f16 and bf16, little-endian.

use half::{bf16, f16};
use safetensors::Dtype;
use std::io::{Read, Result, Write};

/// Number of values converted at a time. Reading or writing a tensor takes one such buffer in
/// addition to the tensor itself.
const CHUNK: usize = 1 << 18;

/// Data type of a tensor's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    F32,
    F16,
    Bf16,
}

impl Numbers {
    /// The data type, if it is supported for training.
    pub fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F32 => Some(Self::F32),
            Dtype::F16 => Some(Self::F16),
            Dtype::BF16 => Some(Self::Bf16),
            _ => None,
        }
    }

    /// Its name in a safetensors header.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
        }
    }

    /// Size of a value in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// Reads `count` values as f32.
    pub fn read(self, mut from: impl Read, count: usize) -> Result<Vec<f32>> {
        let mut values = vec![0.0_f32; count];
        if self == Self::F32 {
            from.read_exact(bytemuck::cast_slice_mut(&mut values))?;
            if cfg!(target_endian = "big") {
                values.iter_mut().for_each(|v| *v = f32::from_bits(v.to_bits().swap_bytes()));
            }
            return Ok(values);
        }
        let mut bytes = vec![0; 2 * CHUNK.min(count)];
        for chunk in values.chunks_mut(CHUNK) {
            let bytes = &mut bytes[..2 * chunk.len()];
            from.read_exact(bytes)?;
            for (value, pair) in chunk.iter_mut().zip(bytes.chunks_exact(2)) {
                let bits = u16::from_le_bytes([pair[0], pair[1]]);
                *value = match self {
                    Self::F16 => f16::from_bits(bits).to_f32(),
                    _ => bf16::from_bits(bits).to_f32(),
                };
            }
        }
        Ok(values)
    }

    /// Reads `count` 16-bit values without conversion.
    pub fn read_bits(mut from: impl Read, count: usize) -> Result<Vec<u16>> {
        let mut bits = vec![0_u16; count];
        from.read_exact(bytemuck::cast_slice_mut(&mut bits))?;
        if cfg!(target_endian = "big") {
            bits.iter_mut().for_each(|bits| *bits = bits.swap_bytes());
        }
        Ok(bits)
    }

    /// Writes values, rounded to the nearest representable value, ties to even.
    pub fn write(self, values: &[f32], to: &mut impl Write) -> Result<()> {
        let mut bytes = Vec::with_capacity(self.size() * CHUNK.min(values.len()));
        for chunk in values.chunks(CHUNK) {
            bytes.clear();
            match self {
                Self::F32 => chunk.iter().for_each(|v| bytes.extend(v.to_le_bytes())),
                Self::F16 => {
                    chunk.iter().for_each(|v| bytes.extend(f16::from_f32(*v).to_le_bytes()))
                }
                Self::Bf16 => {
                    chunk.iter().for_each(|v| bytes.extend(bf16::from_f32(*v).to_le_bytes()));
                }
            }
            to.write_all(&bytes)?;
        }
        Ok(())
    }

    /// Largest magnitude that the type can represent.
    pub fn largest(self) -> f32 {
        match self {
            Self::F32 => f32::MAX,
            Self::F16 => f16::MAX.to_f32(),
            Self::Bf16 => bf16::MAX.to_f32(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values survive a round trip in every type and across chunks; representable values are
    /// preserved bit for bit.
    #[test]
    fn numbers_come_back() {
        let values: Vec<f32> = (0..CHUNK + 77).map(|i| ((i % 513) as f32 - 256.0) / 64.0).collect();
        for numbers in [Numbers::F32, Numbers::F16] {
            let mut bytes = Vec::new();
            numbers.write(&values, &mut bytes).unwrap();
            assert_eq!(bytes.len(), numbers.size() * values.len());
            assert_eq!(numbers.read(&bytes[..], values.len()).unwrap(), values);
            assert!(numbers.read(&bytes[1..], values.len()).is_err(), "cut off");
        }
        let mut bytes = Vec::new();
        Numbers::Bf16.write(&values, &mut bytes).unwrap();
        let rounded = Numbers::Bf16.read(&bytes[..], values.len()).unwrap();
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= a.abs() / 256.0;
        assert!(values.iter().zip(&rounded).all(close));
        let mut again = Vec::new();
        Numbers::Bf16.write(&rounded, &mut again).unwrap();
        assert_eq!(bytes, again);
    }
}
