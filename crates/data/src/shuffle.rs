//! Shuffled epochs for non-private training.

use super::error::{Error, Result};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Fixed-size batches that cover all examples, reshuffled every epoch.
///
/// These batches are not independent of each other, so no accountant here covers them: private
/// training must use [`PoissonSampler`](super::PoissonSampler).
#[derive(Clone, Debug)]
pub struct ShuffledEpochs {
    examples: usize,
    size: usize,
    seed: [u8; 32],
    /// The last epoch used and its permutation.
    drawn: Option<(u64, Vec<usize>)>,
}

impl ShuffledEpochs {
    /// Epochs over `examples` examples in batches of `size`; the last batch of an epoch may be
    /// smaller.
    pub fn new(examples: usize, size: usize, seed: [u8; 32]) -> Result<ShuffledEpochs> {
        if examples == 0 || size == 0 {
            let name = if size == 0 { "the batch size" } else { "the number of examples" };
            return Err(Error::invalid(name, 0, "at least 1"));
        }
        Ok(ShuffledEpochs { examples, size, seed, drawn: None })
    }

    /// Number of steps per epoch.
    pub fn steps_per_epoch(&self) -> u64 {
        self.examples.div_ceil(self.size) as u64
    }

    /// The examples of a step, a function only of the seed and the step.
    pub fn step(&mut self, step: u64) -> Vec<usize> {
        let (epoch, index) = (step / self.steps_per_epoch(), step % self.steps_per_epoch());
        let order = match self.drawn.take() {
            Some((drawn, order)) if drawn == epoch => order,
            _ => self.order(epoch),
        };
        let start = index as usize * self.size;
        let batch = order[start..(start + self.size).min(self.examples)].to_vec();
        self.drawn = Some((epoch, order));
        batch
    }

    /// The permutation of an epoch, uniformly random.
    pub fn order(&self, epoch: u64) -> Vec<usize> {
        let mut random = ChaCha20Rng::from_seed(self.seed);
        random.set_stream(epoch);
        let mut order: Vec<usize> = (0..self.examples).collect();
        for last in (1..self.examples).rev() {
            order.swap(last, below(&mut random, last as u64 + 1) as usize);
        }
        order
    }
}

/// A uniform number below `bound`, rejecting draws that would bias it.
pub(crate) fn below(random: &mut ChaCha20Rng, bound: u64) -> u64 {
    let biased = (u64::MAX % bound + 1) % bound;
    loop {
        let drawn = random.next_u64();
        if drawn <= u64::MAX - biased {
            return drawn % bound;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_passes_through_everything_once() {
        let mut epochs = ShuffledEpochs::new(10, 4, [5; 32]).unwrap();
        assert_eq!(epochs.steps_per_epoch(), 3);
        let first: Vec<usize> = (0..3).flat_map(|step| epochs.step(step)).collect();
        let second: Vec<usize> = (3..6).flat_map(|step| epochs.step(step)).collect();
        assert_ne!(first, second);
        for mut epoch in [first, second] {
            epoch.sort_unstable();
            assert_eq!(epoch, (0..10).collect::<Vec<_>>());
        }
        assert_eq!(epochs.step(2).len(), 2);
    }

    #[test]
    fn a_step_does_not_depend_on_those_before() {
        let mut first = ShuffledEpochs::new(50, 7, [6; 32]).unwrap();
        let mut second = first.clone();
        second.step(3);
        assert_eq!(first.step(20), second.step(20));
    }

    #[test]
    fn nothing_to_shuffle_is_refused() {
        assert!(ShuffledEpochs::new(0, 4, [0; 32]).is_err());
        assert!(ShuffledEpochs::new(4, 0, [0; 32]).is_err());
    }
}
