//! Token masking for masked language modeling (MLM).
//!
//! A mask is a function only of a key, a counter and the example. In training, the counter is
//! composed of the step and the example, so every step draws new masks, a resumed run draws the
//! masks of the interrupted run, and no example's mask depends on another example. In evaluation,
//! key and counter are fixed, so all models are measured on the same masks.

use super::error::{Error, Result};
use super::example::{Example, Target};
use super::shuffle::below;
use super::task::Task;
use super::tokenize::Tokenizer;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Fraction of the tokens that is selected. Of ten selected tokens, `MASKED` are replaced by the
/// mask token and `REPLACED` by a random token; the others are unchanged (Devlin et al. 2019).
const SHARE: f64 = 0.15;
const MASKED: u64 = 8;
const REPLACED: u64 = 1;

/// Key of the evaluation masks, which are not secret.
const EVALUATION: [u8; 32] = *b"masks of evaluation, the same...";

/// The counter value that stands for relevance maps instead of a step.
const RELEVANCE_MAP: u64 = u32::MAX as u64;

/// Random masking of tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Masking {
    mask: u32,
    /// Random tokens are drawn below this id.
    vocabulary: u64,
    special: Vec<u32>,
    share: f64,
}

impl Masking {
    /// The masking that a task needs: `None` unless it is masked language modeling.
    pub fn of(task: &Task, tokenizer: &Tokenizer) -> Result<Option<Masking>> {
        match task {
            Task::MaskedLanguageModeling { .. } => Masking::new(tokenizer, SHARE).map(Some),
            _ => Ok(None),
        }
    }

    /// Masks a fraction of the tokens that are not special, usually 0.15.
    pub fn new(tokenizer: &Tokenizer, share: f64) -> Result<Masking> {
        if !(share > 0.0 && share <= 1.0) {
            return Err(Error::invalid(
                "the share of masked tokens",
                share,
                "above 0 and at most 1",
            ));
        }
        let usable = tokenizer.usable() as u64;
        let Some(mask) = tokenizer.mask().filter(|&mask| u64::from(mask) < usable) else {
            return Err(Error::invalid(
                "the tokenizer's mask token",
                "missing",
                "in the vocabulary for masked language modeling",
            ));
        };
        Ok(Masking { mask, vocabulary: usable, special: tokenizer.special(), share })
    }

    /// The chosen examples as masked for a training step, in the order in which they were chosen.
    pub fn in_step(
        &self,
        examples: &[Example],
        chosen: &[usize],
        key: [u8; 32],
        step: u64,
    ) -> Vec<Example> {
        let masked = |&i: &usize| self.mask(&examples[i], key, step << 32 | i as u64);
        chosen.iter().map(masked).collect()
    }

    /// An example as masked for a relevance map; no step has the same mask.
    pub fn in_relevance_map(&self, examples: &[Example], index: usize, key: [u8; 32]) -> Example {
        self.mask(&examples[index], key, RELEVANCE_MAP << 32 | index as u64)
    }

    /// Examples with the evaluation masks; `first` is the index of the first example.
    pub fn for_evaluation(&self, examples: &[Example], first: u64) -> Vec<Example> {
        let indices = first..;
        examples.iter().zip(indices).map(|(example, i)| self.mask(example, EVALUATION, i)).collect()
    }

    /// The example with a random selection of its tokens masked: at least one, unless all are
    /// special.
    ///
    /// The selection is a function only of `seed`, `draw` and the example.
    pub fn mask(&self, example: &Example, seed: [u8; 32], draw: u64) -> Example {
        let mut random = ChaCha20Rng::from_seed(seed);
        random.set_stream(draw);
        let selected = self.select(example, &mut random);
        let mut tokens = example.tokens.clone();
        for &i in &selected {
            tokens[i] = match below(&mut random, 10) {
                chance if chance < MASKED => self.mask,
                chance if chance < MASKED + REPLACED => below(&mut random, self.vocabulary) as u32,
                _ => tokens[i],
            };
        }
        let labels = selected.iter().map(|&i| example.tokens[i]).collect();
        let positions = selected.iter().map(|&i| i as u32).collect();
        Example { tokens, target: Target::Masked { positions, labels }, ..example.clone() }
    }

    /// Positions of a random selection of the tokens: at least one, unless all are special.
    fn select(&self, example: &Example, random: &mut ChaCha20Rng) -> Vec<usize> {
        let maskable = |i: &usize| self.special.binary_search(&example.tokens[*i]).is_err();
        let candidates: Vec<usize> = (0..example.tokens.len()).filter(maskable).collect();
        let mut selected: Vec<usize> =
            candidates.iter().copied().filter(|_| fraction(random) < self.share).collect();
        if selected.is_empty() && !candidates.is_empty() {
            selected.push(candidates[below(random, candidates.len() as u64) as usize]);
        }
        selected
    }
}

/// A uniform number in [0, 1).
fn fraction(random: &mut ChaCha20Rng) -> f64 {
    (random.next_u64() >> 11) as f64 * 2_f64.powi(-53)
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    fn masking(tokenizer: &serde_json::Value, share: f64) -> Result<Masking> {
        let folder = tempfile::tempdir().unwrap();
        fixture::write(folder.path(), tokenizer);
        Masking::new(&Tokenizer::load(folder.path())?, share)
    }

    fn example() -> Example {
        let tokens = [vec![1], (0..2000).map(|i| 5 + i % 26).collect(), vec![2]].concat();
        Example { tokens, unit: 7, ..Example::default() }
    }

    #[test]
    fn about_the_share_is_masked_and_labels_restore_it() {
        let (masking, example) = (masking(&fixture::bert(), 0.15).unwrap(), example());
        let masked = masking.mask(&example, [1; 32], 0);
        assert_eq!(masked, masking.mask(&example, [1; 32], 0));
        assert_ne!(masked, masking.mask(&example, [1; 32], 1));
        let Target::Masked { positions, labels } = &masked.target else {
            panic!("{:?}", masked.target)
        };
        // The expected 300, plus or minus six standard deviations of 16.
        assert!((204..396).contains(&positions.len()), "{}", positions.len());
        let masks = positions.iter().filter(|&&i| masked.tokens[i as usize] == 4).count();
        assert!((0.65..0.95).contains(&(masks as f64 / positions.len() as f64)), "{masks}");
        // Putting the labels back restores the example, whose special tokens were not modified.
        let mut restored = masked.tokens.clone();
        positions.iter().zip(labels).for_each(|(&i, &label)| restored[i as usize] = label);
        assert_eq!((restored, masked.unit), (example.tokens, 7));
        assert!(!positions.contains(&0) && !positions.contains(&2001));
    }

    #[test]
    fn at_least_one_token_is_masked() {
        let masking = masking(&fixture::bert(), 1e-9).unwrap();
        let short = Example { tokens: vec![1, 9, 2], ..Example::default() };
        let target = Target::Masked { positions: vec![1], labels: vec![9] };
        assert_eq!(masking.mask(&short, [2; 32], 3).target, target);
        let only_special = Example { tokens: vec![1, 2], ..Example::default() };
        let target = Target::Masked { positions: vec![], labels: vec![] };
        assert_eq!(masking.mask(&only_special, [2; 32], 3).target, target);
    }

    #[test]
    fn masks_are_a_function_of_key_step_and_example() {
        let masking = masking(&fixture::bert(), 0.15).unwrap();
        let examples = vec![example(); 3];
        let of =
            |chosen: &[usize], key: u8, step| masking.in_step(&examples, chosen, [key; 32], step);
        // The other examples in the step make no difference: a mask that depended on them would let
        // one example affect another's gradient.
        assert_eq!(of(&[0, 1, 2], 1, 7)[2], of(&[2], 1, 7)[0]);
        assert_ne!(of(&[0], 1, 7)[0].target, of(&[1], 1, 7)[0].target);
        assert_ne!(of(&[0], 1, 7), of(&[0], 1, 8));
        assert_ne!(of(&[0], 1, 7), of(&[0], 2, 7));
        assert_ne!(masking.in_relevance_map(&examples, 0, [1; 32]), of(&[0], 1, 7)[0]);
        // Evaluation masks do not depend on how a file is read.
        let all = masking.for_evaluation(&examples, 0);
        assert_eq!(all[1..], masking.for_evaluation(&examples[1..], 1));
    }

    #[test]
    fn random_tokens_are_tokens_of_the_model() {
        let folder = tempfile::tempdir().unwrap();
        fixture::write(folder.path(), &fixture::bert());
        let of = |embedded: usize| {
            let tokenizer = Tokenizer::load(folder.path())?.with_embedded(embedded);
            Masking::new(&tokenizer, 1.0)
        };
        let masked = of(6).unwrap().mask(&example(), [1; 32], 0);
        let Target::Masked { labels, .. } = &masked.target else { panic!() };
        let changed = |&(token, label): &(&u32, &u32)| token != label;
        let drawn: Vec<u32> = masked.tokens[1..]
            .iter()
            .zip(labels)
            .filter(changed)
            .map(|(&token, _)| token)
            .collect();
        assert!(drawn.iter().all(|&token| token < 6) && drawn.contains(&5), "{drawn:?}");
        assert!(of(4).is_err(), "the mask token has no embedding");
    }

    #[test]
    fn what_cannot_be_masked_is_refused() {
        assert!(masking(&fixture::gpt(), 0.15).is_err());
        for share in [0.0, 1.5, f64::NAN] {
            assert!(masking(&fixture::bert(), share).is_err());
        }
    }
}
