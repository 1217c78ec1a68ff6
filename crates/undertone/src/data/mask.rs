//! Hiding tokens, for masked language modelling.

use super::error::{Error, Result};
use super::example::{Example, Target};
use super::shuffle::below;
use super::tokenise::Tokeniser;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Of the hidden tokens so many in ten are masked and so many replaced by any token; the others
/// stay, so that the model must have an opinion on tokens that it sees, too (Devlin et al. 2019).
const MASKED: u64 = 8;
const REPLACED: u64 = 1;

/// How tokens are hidden.
#[derive(Clone, Debug, PartialEq)]
pub struct Masking {
    mask: u32,
    vocabulary: u64,
    special: Vec<u32>,
    share: f64,
}

impl Masking {
    /// Hides a share of the tokens, customarily 0.15, that are not special ones.
    pub fn new(tokeniser: &Tokeniser, share: f64) -> Result<Masking> {
        if !(share > 0.0 && share <= 1.0) {
            return Err(Error::invalid(
                "the share of hidden tokens",
                share,
                "above 0 and at most 1",
            ));
        }
        let Some(mask) = tokeniser.mask() else {
            return Err(Error::invalid(
                "the tokenizer's mask token",
                "missing",
                "there to mask tokens with",
            ));
        };
        let (vocabulary, special) = (tokeniser.vocabulary() as u64, tokeniser.special());
        Ok(Masking { mask, vocabulary, special, share })
    }

    /// The example with some of its tokens hidden, at least one unless all are special.
    ///
    /// The choice is a function of the seed and the draw alone; give every step another draw.
    pub fn hide(&self, example: &Example, seed: [u8; 32], draw: u64) -> Example {
        let mut random = ChaCha20Rng::from_seed(seed);
        random.set_stream(draw);
        let speaks = |i: &usize| self.special.binary_search(&example.tokens[*i]).is_err();
        let candidates: Vec<usize> = (0..example.tokens.len()).filter(speaks).collect();
        let mut hidden: Vec<usize> =
            candidates.iter().copied().filter(|_| fraction(&mut random) < self.share).collect();
        if hidden.is_empty() && !candidates.is_empty() {
            hidden.push(candidates[below(&mut random, candidates.len() as u64) as usize]);
        }
        let mut tokens = example.tokens.clone();
        for &i in &hidden {
            tokens[i] = match below(&mut random, 10) {
                chance if chance < MASKED => self.mask,
                chance if chance < MASKED + REPLACED => below(&mut random, self.vocabulary) as u32,
                _ => tokens[i],
            };
        }
        let labels = hidden.iter().map(|&i| example.tokens[i]).collect();
        let positions = hidden.iter().map(|&i| i as u32).collect();
        Example { tokens, target: Target::Masked { positions, labels }, ..example.clone() }
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
        Masking::new(&Tokeniser::load(folder.path())?, share)
    }

    fn example() -> Example {
        let tokens = [vec![1], (0..2000).map(|i| 5 + i % 26).collect(), vec![2]].concat();
        Example { tokens, unit: 7, ..Example::default() }
    }

    #[test]
    fn about_the_share_is_hidden_and_known_by_its_labels() {
        let (masking, example) = (masking(&fixture::bert(), 0.15).unwrap(), example());
        let hidden = masking.hide(&example, [1; 32], 0);
        assert_eq!(hidden, masking.hide(&example, [1; 32], 0));
        assert_ne!(hidden, masking.hide(&example, [1; 32], 1));
        let Target::Masked { positions, labels } = &hidden.target else {
            panic!("{:?}", hidden.target)
        };
        // The expected 300 with six standard deviations of 16.
        assert!((204..396).contains(&positions.len()), "{}", positions.len());
        let masks = positions.iter().filter(|&&i| hidden.tokens[i as usize] == 4).count();
        assert!((0.65..0.95).contains(&(masks as f64 / positions.len() as f64)), "{masks}");
        // Putting the labels back restores the example, whose special tokens were left alone.
        let mut restored = hidden.tokens.clone();
        positions.iter().zip(labels).for_each(|(&i, &label)| restored[i as usize] = label);
        assert_eq!((restored, hidden.unit), (example.tokens, 7));
        assert!(!positions.contains(&0) && !positions.contains(&2001));
    }

    #[test]
    fn one_token_is_hidden_at_least_where_there_is_one() {
        let masking = masking(&fixture::bert(), 1e-9).unwrap();
        let short = Example { tokens: vec![1, 9, 2], ..Example::default() };
        let target = Target::Masked { positions: vec![1], labels: vec![9] };
        assert_eq!(masking.hide(&short, [2; 32], 3).target, target);
        let silent = Example { tokens: vec![1, 2], ..Example::default() };
        let target = Target::Masked { positions: vec![], labels: vec![] };
        assert_eq!(masking.hide(&silent, [2; 32], 3).target, target);
    }

    #[test]
    fn what_cannot_be_masked_is_refused() {
        assert!(masking(&fixture::gpt(), 0.15).is_err());
        for share in [0.0, 1.5, f64::NAN] {
            assert!(masking(&fixture::bert(), share).is_err());
        }
    }
}
