//! Averages of the weights over steps. They evaluate and generalize better than the final weights
//! when noise moves the weights in every step.
//!
//! **Statement.** An average costs no privacy: it is a function of the weights after each step,
//! which the guarantee allows an adversary to see (post-processing).
//!
//! Each rank averages the weights that it updates. The averages are gathered from all ranks for
//! evaluation or saving.

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
    /// Number of steps included in the average.
    count: u64,
    values: Vec<Matrix>,
    /// The weights of the last step, while the average has replaced them in the model.
    replaced: Option<Vec<Matrix>>,
}

impl AveragedWeights {
    /// An empty average.
    pub fn new(kind: WeightAverage) -> Self {
        Self { kind, count: 0, values: Vec::new(), replaced: None }
    }

    /// Number of steps included in the average.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The average of each of this process's slices, in order; empty before the first step.
    pub(crate) fn values(&self) -> &[Matrix] {
        &self.values
    }

    /// Restores the average from a checkpoint.
    pub(crate) fn restore(&mut self, count: u64, values: Vec<Matrix>) {
        (self.count, self.values) = (count, values);
    }

    /// Adds the weights of each slice after step `done` of `steps`.
    fn add(&mut self, weights: &[Matrix], done: u64, steps: u64) -> Result<()> {
        let weight = match self.kind {
            // A decay that starts low forgets the first steps' weights, which are far off.
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
                // A separate copy, since the optimizer changes weights in place.
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
    /// Adds the weights after step `done` of `steps` to the average, if there is one.
    pub(crate) fn add_to_average(&mut self, done: u64, steps: u64) -> Result<()> {
        if self.average.is_none() {
            return Ok(());
        }
        let own = self.sharding().1.own().into_iter();
        let weights = own.map(|slice| self.numbers_of(&slice)).collect::<Result<Vec<_>>>()?;
        self.average.as_mut().map_or(Ok(()), |average| average.add(&weights, done, steps))
    }

    /// The weights of one of this process's slices; with a single process, the whole parameter.
    fn numbers_of(&self, slice: &Slice) -> Result<Matrix> {
        let value = self.model.parameters.value(slice.parameter);
        if self.sharding().0.are_one() { Ok(value.clone()) } else { slice.of(value) }
    }

    /// Swaps the weights with their average, if there is one; a second call undoes the swap. All
    /// ranks must call this.
    pub fn swap_average(&mut self) -> error::Result<()> {
        let trainable = self.trainable();
        // Do not check whether this rank has values: a rank that updates no coordinates still takes
        // part.
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
