//! Averages of the weights over steps, which evaluate and generalise better than the last weights
//! where noise moves every step.
//!
//! **Statement.** An average costs no privacy: it is a function of the weights after each step,
//! which the guarantee lets an adversary see (post-processing).

//!
//! Each rank averages the weights that it updates; the average of all is collected to be evaluated
//! or saved.

use super::gather::gather_values;
use super::learner::Learner;
use crate::collective::Slice;
use crate::error;
use crate::tensor::{Matrix, Result, lerp};
use undertone_run::WeightAverage;

/// A running average of the trainable weights that this process updates.
#[derive(Debug)]
pub struct AveragedWeights {
    kind: WeightAverage,
    /// How many steps' weights are in it.
    count: u64,
    values: Vec<Matrix>,
    /// The weights of the last step, while their average is in their place.
    replaced: Option<Vec<Matrix>>,
}

impl AveragedWeights {
    /// An average of nothing yet.
    pub fn new(kind: WeightAverage) -> Self {
        Self { kind, count: 0, values: Vec::new(), replaced: None }
    }

    /// Number of steps whose weights are in the average.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The average of each of this process's slices, in order; none before the first step.
    pub(super) fn values(&self) -> &[Matrix] {
        &self.values
    }

    /// Restores the average from a checkpoint.
    pub(super) fn restore(&mut self, count: u64, values: Vec<Matrix>) {
        (self.count, self.values) = (count, values);
    }

    /// Takes in the weights of each slice after step `done` of `steps`.
    fn add(&mut self, weights: &[Matrix], done: u64, steps: u64) -> Result<()> {
        let weight = match self.kind {
            // A decay that begins low forgets the weights of the beginning, which are far off.
            WeightAverage::Ema(decay) => {
                let taken = self.count as f64;
                1.0 - decay.min((1.0 + taken) / (10.0 + taken))
            }
            WeightAverage::Last(share) => {
                let averaged = (share * steps as f64).ceil() as u64;
                if done + averaged <= steps {
                    return Ok(());
                }
                1.0 / (self.count + 1) as f64
            }
        };
        if self.count == 0 {
            for value in weights {
                // A copy of its own: the optimiser changes weights in place.
                let zeros = Matrix::zeros(value.rows(), value.columns());
                self.values.push(lerp(zeros.to_device(&value.device())?, value, 1.0)?);
            }
        } else {
            for (average, value) in self.values.iter_mut().zip(weights) {
                let taken = std::mem::replace(average, Matrix::zeros(0, 0));
                *average = lerp(taken, value, weight as f32)?;
            }
        }
        self.count += 1;
        Ok(())
    }
}

impl Learner {
    /// Takes the weights after step `done` of `steps` into their average, if there is one.
    pub(super) fn add_to_average(&mut self, done: u64, steps: u64) -> Result<()> {
        if self.average.is_none() {
            return Ok(());
        }
        let own = self.sharding().1.own().into_iter();
        let weights = own.map(|slice| self.numbers_of(&slice)).collect::<Result<Vec<_>>>()?;
        self.average.as_mut().map_or(Ok(()), |average| average.add(&weights, done, steps))
    }

    /// The weights of one of this process's slices: of one process, the whole parameter.
    fn numbers_of(&self, slice: &Slice) -> Result<Matrix> {
        let value = self.model.parameters.value(slice.parameter);
        if self.sharding().0.are_one() { Ok(value.clone()) } else { slice.of(value) }
    }

    /// Exchanges the weights and their average, if there is one; a second call undoes it. All ranks
    /// call it.
    pub fn swap_average(&mut self) -> error::Result<()> {
        let trainable = self.trainable();
        // Not whether this rank has values: it may update no coordinate, and still takes part.
        let Some(average) = self.average.as_mut().filter(|average| average.count > 0) else {
            return Ok(());
        };
        if let Some(replaced) = average.replaced.take() {
            for (id, value) in trainable.into_iter().zip(replaced) {
                self.model.parameters.get_mut(id).value = value;
            }
            return Ok(());
        }
        let values = average.values.clone();
        let of_last = trainable.iter().map(|&id| self.model.parameters.value(id).clone());
        average.replaced = Some(of_last.collect());
        let (ranks, shards) = self.sharding();
        if ranks.are_one() {
            for (id, value) in trainable.into_iter().zip(values) {
                self.model.parameters.get_mut(id).value = value;
            }
            return Ok(());
        }
        let (ranks, shards) = (ranks.clone(), shards.clone());
        gather_values(&ranks, &shards, values, &mut self.model.parameters)
    }
}
