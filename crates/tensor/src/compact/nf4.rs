//! 4-bit NormalFloat (NF4) with double quantization (Dettmers et al., "QLoRA", 2023).
//!
//! Each block of 64 values is divided by its largest magnitude, and each value becomes the index of
//! the nearest of 16 levels, which are spaced for normally distributed values. The largest
//! magnitudes are stored in eight bits each, between the smallest and the largest of 256 blocks. In
//! total this takes 4.13 bits per value.

use rayon::prelude::*;

/// The quantization levels.
pub(crate) const LEVELS: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// Values per scale, and blocks whose scales are stored together.
pub(crate) const BLOCK: usize = 64;
pub(crate) const GROUP: usize = 256;

/// Values quantized together when they are not all in memory as f32: whole groups, so that each
/// value is rounded as it would be in one pass.
const PART: usize = 64 * GROUP * BLOCK;

/// Values in NF4.
#[derive(Debug)]
pub struct Nf4 {
    count: usize,
    /// Two values per byte, the first in the lower half.
    codes: Vec<u8>,
    /// The scale of each block, quantized to a step of its group.
    scales: Vec<u8>,
    /// The smallest scale of each group, and the width of its 256 steps.
    groups: Vec<[f32; 2]>,
}

/// The index of the nearest level.
fn nearest(x: f32) -> u8 {
    let above = LEVELS.partition_point(|&level| level < x).clamp(1, 15);
    let below = above - 1;
    (if x - LEVELS[below] < LEVELS[above] - x { below } else { above }) as u8
}

impl Nf4 {
    /// Quantizes to the nearest values in NF4.
    pub fn quantize(values: &[f32]) -> Self {
        let largest =
            |block: &[f32]| block.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        let exact: Vec<f32> = values.par_chunks(BLOCK).map(largest).collect();
        let (mut scales, mut groups) = (Vec::with_capacity(exact.len()), Vec::new());
        for group in exact.chunks(GROUP) {
            let low = group.iter().copied().fold(f32::INFINITY, f32::min);
            let high = group.iter().copied().fold(0.0, f32::max);
            let step = (high - low) / 255.0;
            let nearest = |&scale: &f32| match step > 0.0 {
                true => ((scale - low) / step).round().clamp(0.0, 255.0) as u8,
                false => 0,
            };
            scales.extend(group.iter().map(nearest));
            groups.push([low, step]);
        }
        let mut nf4 = Self { count: values.len(), codes: Vec::new(), scales, groups };
        let mut codes = vec![0; values.len().div_ceil(2)];
        codes.par_chunks_mut(BLOCK / 2).zip(values.par_chunks(BLOCK)).enumerate().for_each(
            |(block, (codes, values))| {
                let scale = nf4.scale(block);
                let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
                for (code, pair) in codes.iter_mut().zip(values.chunks(2)) {
                    let high = pair.get(1).map_or(0, |&value| nearest(value * inverse));
                    *code = nearest(pair[0] * inverse) | high << 4;
                }
            },
        );
        nf4.codes = codes;
        nf4
    }

    /// Values with these codes, two per byte, all with the same scale: if the codes are uniformly
    /// distributed, the values have about a normal distribution with this std.
    ///
    /// # Panics
    /// If there is not a byte for every two values.
    pub fn from_codes(count: usize, codes: Vec<u8>, std: f32) -> Self {
        assert_eq!(codes.len(), count.div_ceil(2), "a byte for every two values");
        let mean_square = LEVELS.iter().map(|level| level * level).sum::<f32>() / 16.0;
        let blocks = count.div_ceil(BLOCK);
        let groups = vec![[std / mean_square.sqrt(), 0.0]; blocks.div_ceil(GROUP)];
        Self { count, codes, scales: vec![0; blocks], groups }
    }

    /// Quantizes `count` values, which `read` provides starting at a given index.
    pub fn quantize_in_parts(count: usize, read: impl Fn(usize, &mut [f32])) -> Self {
        let mut whole = Self {
            count,
            codes: Vec::with_capacity(count.div_ceil(2)),
            scales: Vec::with_capacity(count.div_ceil(BLOCK)),
            groups: Vec::with_capacity(count.div_ceil(GROUP * BLOCK)),
        };
        let mut values = vec![0.0; PART.min(count)];
        for first in (0..count).step_by(PART) {
            let values = &mut values[..PART.min(count - first)];
            read(first, values);
            let part = Self::quantize(values);
            whole.codes.extend(part.codes);
            whole.scales.extend(part.scales);
            whole.groups.extend(part.groups);
        }
        whole
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Codes, scales and groups, as stored in memory.
    pub(crate) fn parts(&self) -> (&[u8], &[u8], &[[f32; 2]]) {
        (&self.codes, &self.scales, &self.groups)
    }

    fn scale(&self, block: usize) -> f32 {
        let [low, step] = self.groups[block / GROUP];
        low + f32::from(self.scales[block]) * step
    }

    /// Writes the values starting at index `first`.
    #[inline(always)]
    pub fn expand(&self, first: usize, out: &mut [f32]) {
        let (mut at, mut out) = (first, out);
        while !out.is_empty() {
            let block = at / BLOCK;
            let (now, later) = out.split_at_mut(((block + 1) * BLOCK - at).min(out.len()));
            let scale = self.scale(block);
            let levels = LEVELS.map(|level| level * scale);
            let code = |i: usize| usize::from(self.codes[i / 2] >> (4 * (i & 1)) & 15);
            if at & 1 == 0 && now.len().is_multiple_of(2) {
                let codes = &self.codes[at / 2..][..now.len() / 2];
                for (pair, &code) in now.chunks_exact_mut(2).zip(codes) {
                    pair[0] = levels[usize::from(code & 15)];
                    pair[1] = levels[usize::from(code >> 4)];
                }
            } else {
                now.iter_mut().enumerate().for_each(|(i, out)| *out = levels[code(at + i)]);
            }
            at += now.len();
            out = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn expanded(nf4: &Nf4) -> Vec<f32> {
        let mut values = vec![f32::NAN; nf4.len()];
        nf4.expand(0, &mut values);
        values
    }

    /// Every value is within half a level spacing, plus the step of its scale, of the original; the
    /// error for normally distributed weights is that of 16 levels, about a tenth of their standard
    /// deviation.
    #[test]
    fn numbers_are_near_what_they_were() {
        let values = Random::new(3).normal(64 * 300 + 17, 0.02);
        let nf4 = Nf4::quantize(&values);
        assert_eq!(nf4.len(), values.len());
        let back = expanded(&nf4);
        let widest = LEVELS.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f32::max);
        for (i, (value, back)) in values.iter().zip(&back).enumerate() {
            let (scale, step) = (nf4.scale(i / BLOCK), nf4.groups[i / BLOCK / GROUP][1]);
            let most = scale * widest / 2.0 + step;
            assert!((value - back).abs() <= most, "{i}: {value} became {back}");
        }
        let squares =
            |numbers: &mut dyn Iterator<Item = f32>| -> f32 { numbers.map(|x| x * x).sum::<f32>() };
        let error = squares(&mut values.iter().zip(&back).map(|(a, b)| a - b));
        let share = (error / squares(&mut values.iter().copied())).sqrt();
        assert!((0.07..0.12).contains(&share), "{share}");
        let bits = 8 * (nf4.codes.len() + nf4.scales.len() + 8 * nf4.groups.len());
        assert!((bits as f64) < 4.15 * values.len() as f64, "{bits} bits");
    }

    #[test]
    fn uniform_codes_have_the_std() {
        let codes = (0..=255_u8).cycle().take(700).collect();
        let values = expanded(&Nf4::from_codes(1399, codes, 0.02));
        let square = values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32;
        assert!((square.sqrt() / 0.02 - 1.0).abs() < 0.1, "{square}");
        assert!(values.iter().any(|&x| x > 0.03) && values.iter().any(|&x| x < -0.03));
    }

    /// Values that are levels are exact, and so are zeros and blocks of only zeros.
    #[test]
    fn levels_are_kept() {
        let mut values: Vec<f32> = (0..64).map(|i| LEVELS[i % 16] * 0.5).collect();
        values.extend([0.0; 64]);
        let back = expanded(&Nf4::quantize(&values));
        assert_eq!(back, values);
    }

    #[test]
    fn parts_are_rounded_as_the_whole_is() {
        for count in [100, PART, 2 * PART + 17] {
            let values = Random::new(7).normal(count, 0.02);
            let read = |first: usize, out: &mut [f32]| {
                out.copy_from_slice(&values[first..first + out.len()]);
            };
            let (parts, whole) = (Nf4::quantize_in_parts(count, read), Nf4::quantize(&values));
            assert_eq!(parts.parts(), whole.parts());
            assert_eq!(parts.len(), count);
        }
    }

    /// Expansion may start at any index and cross blocks.
    #[test]
    fn a_part_is_a_part_of_the_whole() {
        let nf4 = Nf4::quantize(&Random::new(5).normal(500, 1.0));
        let whole = expanded(&nf4);
        for (first, count) in [(0, 1), (1, 130), (63, 2), (64, 64), (127, 301), (499, 1)] {
            let mut part = vec![0.0; count];
            nf4.expand(first, &mut part);
            assert_eq!(part, whole[first..first + count], "{first}");
        }
    }
}
