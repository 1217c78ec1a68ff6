//! Sources of a model's parameters: weights files or random initialization.

use super::Weights;
use crate::{Error, Result};
use rayon::prelude::*;
use std::collections::BTreeSet;
use undertone_tensor::{Host, Matrix};

/// A source of parameter values.
pub trait Source {
    /// The values of a tensor by name and shape, in row-major order.
    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>>;

    /// The unconverted values of a tensor, if it is stored as bf16.
    fn bf16(&mut self, name: &str, shape: &[usize]) -> Result<Option<Vec<u16>>>;

    /// A matrix generated directly in NF4, if the source can do so; others are quantized.
    fn nf4(&mut self, _name: &str, _shape: [usize; 2]) -> Result<Option<Matrix>> {
        Ok(None)
    }

    /// Fails if there is no tensor of this name and shape; does not read or allocate values.
    fn check(&mut self, name: &str, shape: &[usize]) -> Result<()>;

    /// Whether the source has this tensor.
    fn has(&self, name: &str) -> bool;
}

/// Weights files as a source. Tensor names may lack or have the model's prefix, or use LayerNorm's
/// old names (gamma, beta).
pub(crate) struct FileSource<'a> {
    pub weights: &'a Weights,
    /// Prefix of the base model, such as `bert.`, which is missing in files saved without a task
    /// head.
    pub prefix: &'a str,
    /// Names, as stored in the files, of the tensors that were requested.
    pub used: BTreeSet<String>,
}

impl<'a> FileSource<'a> {
    pub fn new(weights: &'a Weights, prefix: &'a str) -> Self {
        Self { weights, prefix, used: BTreeSet::new() }
    }

    /// The name under which the files store a tensor of the model.
    pub fn stored_name(&self, name: &str) -> Option<String> {
        let bare = name.strip_prefix(self.prefix);
        let prefixed = format!("{}{name}", self.prefix);
        for candidate in [Some(name), bare, Some(&prefixed[..])].into_iter().flatten() {
            if self.weights.has(candidate) {
                return Some(candidate.to_owned());
            }
            let old = candidate
                .strip_suffix("LayerNorm.weight")
                .map(|stem| format!("{stem}LayerNorm.gamma"))
                .or_else(|| {
                    candidate
                        .strip_suffix("LayerNorm.bias")
                        .map(|stem| format!("{stem}LayerNorm.beta"))
                });
            if let Some(old) = old.filter(|old| self.weights.has(old)) {
                return Some(old);
            }
        }
        None
    }
}

impl Source for FileSource<'_> {
    fn check(&mut self, name: &str, shape: &[usize]) -> Result<()> {
        let stored = self.stored_name(name).ok_or_else(|| Error::MissingTensor {
            name: name.to_owned(),
            path: self.weights.folder().to_owned(),
        })?;
        let stored_shape = self.weights.shape(&stored).unwrap_or_default();
        if stored_shape != shape {
            return Err(Error::Shape {
                name: stored,
                expected: shape.to_vec(),
                found: stored_shape.to_vec(),
            });
        }
        self.weights.check(&stored)?;
        self.used.insert(stored);
        Ok(())
    }

    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        self.check(name, shape)?;
        self.weights.read(&self.stored_name(name).unwrap_or_default())
    }

    fn bf16(&mut self, name: &str, shape: &[usize]) -> Result<Option<Vec<u16>>> {
        self.check(name, shape)?;
        self.weights.read_bf16(&self.stored_name(name).unwrap_or_default())
    }

    fn has(&self, name: &str) -> bool {
        self.stored_name(name).is_some()
    }
}

/// Random initialization: normal weights, zero biases, and normalization weights of one.
pub struct Random {
    state: u64,
    std: f32,
    in_bf16: bool,
}

/// The state increment of SplitMix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mixed(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// Normal weights with this std; deterministic for a given seed.
    pub fn new(seed: u64, std: f32) -> Self {
        Self { state: seed, std, in_bf16: false }
    }

    /// Matrices in bf16 with uniform values, or in NF4 with uniform codes, which is much faster:
    /// for models with billions of weights whose values do not matter.
    pub fn in_bf16(seed: u64, std: f32) -> Self {
        Self { in_bf16: true, ..Self::new(seed, std) }
    }

    fn uniform(&mut self) -> f64 {
        // SplitMix64 suffices for initial weights, which do not need secure randomness.
        self.state = self.state.wrapping_add(GOLDEN);
        (mixed(self.state) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Normally distributed numbers with mean 0.
    pub fn normal(&mut self, count: usize, std: f32) -> Vec<f32> {
        (0..count)
            .map(|_| {
                let (u, v) = (1.0 - self.uniform(), self.uniform());
                std * ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
            })
            .collect()
    }

    /// Uniformly distributed numbers between −bound and bound.
    pub fn uniform_within(&mut self, count: usize, bound: f32) -> Vec<f32> {
        (0..count).map(|_| bound * (2.0 * self.uniform() - 1.0) as f32).collect()
    }
}

impl Source for Random {
    fn check(&mut self, name: &str, shape: &[usize]) -> Result<()> {
        // Sizes given on the command line must not exhaust memory.
        match shape.iter().try_fold(1_usize, |n, size| n.checked_mul(*size)) {
            Some(count) if count <= 1 << 32 => Ok(()),
            _ => Err(Error::Request(format!(
                "tensor {name} of shape {shape:?} is too large; choose smaller sizes"
            ))),
        }
    }

    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        self.check(name, shape)?;
        let count = shape.iter().product();
        if name.ends_with("bias") {
            return Ok(vec![0.0; count]);
        }
        if shape.len() == 1 {
            return Ok(vec![1.0; count]);
        }
        Ok(self.normal(count, self.std))
    }

    fn bf16(&mut self, name: &str, shape: &[usize]) -> Result<Option<Vec<u16>>> {
        if !self.in_bf16 {
            return Ok(None);
        }
        self.check(name, shape)?;
        let (first, bound) = (self.state, 3.0_f32.sqrt() * self.std);
        let count: usize = shape.iter().product();
        self.state = first.wrapping_add(GOLDEN.wrapping_mul(count as u64));
        let bits = |i: usize| {
            let state = first.wrapping_add(GOLDEN.wrapping_mul(i as u64 + 1));
            let uniform = (mixed(state) >> 40) as f32 / (1 << 24) as f32;
            ((bound * (2.0 * uniform - 1.0)).to_bits() >> 16) as u16
        };
        Ok(Some((0..count).into_par_iter().map(bits).collect()))
    }

    fn nf4(&mut self, name: &str, shape: [usize; 2]) -> Result<Option<Matrix>> {
        if !self.in_bf16 {
            return Ok(None);
        }
        self.check(name, &shape)?;
        let [rows, columns] = shape;
        let words = (rows * columns).div_ceil(16);
        let first = self.state;
        self.state = first.wrapping_add(GOLDEN.wrapping_mul(words as u64));
        let word = |i: usize| mixed(first.wrapping_add(GOLDEN.wrapping_mul(i as u64 + 1)));
        let mut codes = vec![0; (rows * columns).div_ceil(2)];
        codes.par_chunks_mut(8).enumerate().with_min_len(1 << 12).for_each(|(i, codes)| {
            let bytes = word(i).to_le_bytes();
            codes.copy_from_slice(&bytes[..codes.len()]);
        });
        Ok(Some(Matrix::Host(Host::from_nf4_codes(rows, columns, codes, self.std))))
    }

    fn has(&self, _: &str) -> bool {
        true
    }
}
