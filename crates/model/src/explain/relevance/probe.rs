//! Probes: random weights in place of zero weights.
//!
//! Under the rules, a weight of 0 has no relevance, and neither does anything behind it. LoRA's B
//! and the second layer of an adapter are initialized to 0, so before fine-tuning both halves would
//! have no relevance. Their relevance is therefore defined as the mean over random draws of the
//! zero weight, each draw large relative to the parallel branch, with the rest of the pretrained
//! model unchanged. All relevance of the outputs then flows through the branch, and the draw only
//! determines the shares in which an output's relevance is distributed to its inputs. A draw uses
//! the same row for all outputs, so outputs differ in their relevance and not in their draw. No
//! relevance is taken from the pretrained model, which at a weight of 0 is the whole model.
//!
//! The draws, and therefore the map, are a function of a seed and the example's own tokens. An
//! example's map does not depend on which other examples are present, as the sensitivity of a sum
//! of maps requires.

use super::rules::{LinearRule, linear, product};
use crate::{Model, ParameterId, Result};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};
use undertone_data::Example;
use undertone_tensor::Host;

/// How zero weights are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probes {
    /// Seed of all draws.
    pub seed: u64,
    /// Number of draws per example.
    pub count: usize,
}

impl Probes {
    /// The draws for one example.
    pub(super) fn of(self, example: &Example) -> ExampleProbes {
        let mut hash = Sha256::new();
        hash.update(self.seed.to_le_bytes());
        example.tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
        ExampleProbes { key: hash.finalize().into(), count: self.count.max(1) }
    }
}

/// The draws for one example.
#[derive(Clone, Debug)]
pub(super) struct ExampleProbes {
    key: [u8; 32],
    count: usize,
}

/// Relevance of a zero weight, `[outputs, inputs]`, and of its inputs, `[tokens, inputs]`.
pub(super) struct Probed {
    pub weight: Host,
    pub inputs: Host,
}

impl ExampleProbes {
    /// One row of weights per draw, uniform in (−1, 1): `[draws, inputs]`.
    fn rows(&self, weight: ParameterId, inputs: usize) -> Host {
        let mut random = ChaCha8Rng::from_seed(self.key);
        random.set_stream(weight.index() as u64);
        let mut draw = || (random.next_u32() >> 8) as f32 / (1_u32 << 23) as f32 - 1.0;
        let values = (0..self.count * inputs).map(|_| draw()).collect();
        Host::from_vec(self.count, inputs, values)
    }

    /// The relevance of a zero weight with these inputs, `[tokens, inputs]`, given the relevance of
    /// its outputs, `[tokens, outputs]`.
    pub(super) fn through(
        &self,
        rule: LinearRule,
        weight: ParameterId,
        x: &Host,
        relevance: &Host,
    ) -> Result<Probed> {
        // Each draw is treated as a separate output with an equal part of a total relevance of 1,
        // so the relevance of an input is its mean share.
        let part = 1.0 / self.count as f32;
        let equal = Host::from_vec(x.rows(), self.count, vec![part; x.rows() * self.count]);
        let rows = self.rows(weight, x.columns());
        let mut shares = linear(rule, x, &rows, None, &equal, false)?.inputs;
        let weight = product(relevance, true, &shares, false)?;
        let columns = shares.columns().max(1);
        for (t, row) in shares.values_mut().chunks_exact_mut(columns).enumerate() {
            let whole: f32 = relevance.row(t).iter().sum();
            row.iter_mut().for_each(|share| *share *= whole);
        }
        Ok(Probed { weight, inputs: shares })
    }
}

/// Indexed by parameter: whether it is a LoRA or adapter weight that is all zero.
pub(super) fn zero_weights(model: &Model) -> Result<Vec<bool>> {
    let mut zero = Vec::new();
    for (_, parameter) in model.parameters.iter() {
        let added = parameter.trainable
            && parameter.origin == crate::Origin::Adapter
            && parameter.shape.len() > 1;
        zero.push(added && parameter.value.to_vec()?.iter().all(|&x| x == 0.0));
    }
    Ok(zero)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::relevance::AlphaBeta;

    fn id(model: &Model) -> ParameterId {
        model.parameters.iter().next().unwrap().0
    }

    fn model() -> Model {
        use crate::architecture::{Architecture, Dimensions};
        let dimensions = Dimensions {
            layers: 1,
            hidden: 8,
            heads: 2,
            inner: 8,
            vocabulary: 9,
            positions: 9,
            key_heads: None,
        };
        let head = crate::TaskHead::CausalLanguageModel;
        Architecture::Llama.random(dimensions, head, &[], 1).unwrap()
    }

    /// The result is the mean over draws of the ordinary rule for a weight with equal rows.
    #[test]
    fn the_mean_over_draws_is_that_of_the_rule() {
        let model = model();
        let weight = id(&model);
        let example = Example { tokens: vec![3, 1, 4], ..Example::default() };
        let probes = Probes { seed: 7, count: 5 }.of(&example);
        let x = Host::from_vec(2, 3, vec![0.5, -1.0, 2.0, 0.3, 0.2, -0.1]);
        let relevance = Host::from_vec(2, 2, vec![3.0, -1.0, 0.5, 2.0]);
        let rule = AlphaBeta { alpha: 0.7, beta: 0.3 };
        let mean = probes.through(rule.into(), weight, &x, &relevance).unwrap();
        let (mut of_weight, mut of_inputs) = ([0.0_f64; 6], [0.0_f64; 6]);
        let rows = probes.rows(weight, 3);
        for k in 0..5 {
            let both = Host::from_vec(2, 3, [rows.row(k), rows.row(k)].concat());
            let draw = linear(rule, &x, &both, None, &relevance, true).unwrap();
            let add = |sum: &mut [f64; 6], part: &Host| {
                let part = part.dense();
                sum.iter_mut().zip(part.iter()).for_each(|(sum, &x)| *sum += f64::from(x) / 5.0);
            };
            add(&mut of_weight, &draw.weights.unwrap());
            add(&mut of_inputs, &draw.inputs);
        }
        for (have, want) in [(&mean.weight, of_weight), (&mean.inputs, of_inputs)] {
            for (have, want) in have.dense().iter().zip(want) {
                assert!((f64::from(*have) - want).abs() < 1e-5, "{have}, not {want}");
            }
        }
    }

    #[test]
    fn draws_follow_from_seed_tokens_and_parameter() {
        let model = model();
        let ids: Vec<ParameterId> = model.parameters.iter().map(|(id, _)| id).take(2).collect();
        let of = |seed: u64, tokens: &[u32], id: ParameterId| {
            let example = Example { tokens: tokens.to_vec(), unit: 9, ..Example::default() };
            Probes { seed, count: 400 }.of(&example).rows(id, 5).dense().into_owned()
        };
        let first = of(1, &[1, 2], ids[0]);
        assert_eq!(first, of(1, &[1, 2], ids[0]));
        let others = [of(2, &[1, 2], ids[0]), of(1, &[1, 3], ids[0]), of(1, &[1, 2], ids[1])];
        for other in others {
            // Neighbors are independent: 2,000 products with mean 0 and std 1/3.
            let mean = first.iter().zip(&other).map(|(x, y)| x * y).sum::<f32>() / 2_000.0;
            assert!(mean.abs() < 5.0 / 3.0 / 2_000_f32.sqrt(), "{mean}");
        }
        let mean = first.iter().sum::<f32>() / 2_000.0;
        assert!(mean.abs() < 0.07 && first.iter().all(|x| (-1.0..1.0).contains(x)), "{mean}");
    }
}
