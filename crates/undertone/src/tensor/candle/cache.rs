//! Keys and values of earlier tokens on a device.

use crate::tensor::AttentionShape;
use candle_core::{D, Result, Tensor};

/// One pair of tensors [tokens, key heads · width] for each sequence.
#[derive(Clone, Debug)]
pub struct CandleCache {
    sequences: Vec<Option<(Tensor, Tensor)>>,
}

impl CandleCache {
    pub fn new(sequences: usize) -> Self {
        Self { sequences: vec![None; sequences] }
    }

    /// How many sequences there are.
    pub fn sequences(&self) -> usize {
        self.sequences.len()
    }

    pub fn select(&mut self, origins: &[usize]) {
        self.sequences = origins.iter().map(|&origin| self.sequences[origin].clone()).collect();
    }

    pub fn attend(&mut self, qkv: &Tensor, shape: &AttentionShape) -> Result<Tensor> {
        let (heads, kept, width) = (shape.heads, shape.key_heads, shape.width);
        let mut outputs = Vec::new();
        for (sequence, window) in self.sequences.iter_mut().zip(shape.starts.windows(2)) {
            let new = window[1] - window[0];
            if new == 0 {
                continue;
            }
            let rows = qkv.narrow(0, window[0], new)?;
            let query = rows.narrow(1, 0, heads * width)?;
            let mut keys = rows.narrow(1, heads * width, kept * width)?.contiguous()?;
            let mut values = rows.narrow(1, (heads + kept) * width, kept * width)?.contiguous()?;
            if let Some((old_keys, old_values)) = sequence.take() {
                keys = Tensor::cat(&[&old_keys, &keys], 0)?;
                values = Tensor::cat(&[&old_values, &values], 0)?;
            }
            let all = keys.dims()[0];
            let split = |x: &Tensor, rows: usize, heads: usize| -> Result<Tensor> {
                x.contiguous()?.reshape((rows, heads, width))?.transpose(0, 1)?.contiguous()
            };
            let repeat = |x: Tensor| -> Result<Tensor> {
                let times = heads / kept;
                let wide = x.unsqueeze(1)?.broadcast_as((kept, times, all, width))?;
                wide.contiguous()?.reshape((heads, all, width))
            };
            let q = split(&query, new, heads)?;
            let k = repeat(split(&keys, all, kept)?)?;
            let v = repeat(split(&values, all, kept)?)?;
            let mut hidden = vec![0.0_f32; new * all];
            for i in 0..new {
                hidden[i * all + (all - new + i + 1)..(i + 1) * all].fill(-1e30);
            }
            let hidden = Tensor::from_vec(hidden, (1, new, all), qkv.device())?;
            let scores = (q.matmul(&k.t()?.contiguous()?)? * f64::from(shape.scale()))?
                .broadcast_add(&hidden)?;
            let exponentials = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
            let probabilities =
                exponentials.broadcast_div(&exponentials.sum_keepdim(D::Minus1)?)?;
            let mixed = probabilities.matmul(&v)?.transpose(0, 1)?.contiguous()?;
            outputs.push(mixed.reshape((new, heads * width))?);
            *sequence = Some((keys, values));
        }
        Tensor::cat(&outputs, 0)
    }
}
