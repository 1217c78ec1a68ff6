//! Averages of the weights over steps, which evaluate and generalise better than the last weights
//! where noise moves every step.
//!
//! **Statement.** An average costs no privacy: it is a function of the weights after each step,
//! which the guarantee lets an adversary see (post-processing).

use crate::model::{ParameterId, Parameters};
use crate::tensor::{Matrix, Result, lerp};
use undertone_run::WeightAverage;

/// A running average of the trainable weights.
#[derive(Debug)]
pub struct AveragedWeights {
    kind: WeightAverage,
    /// How many steps' weights are in it.
    count: u64,
    values: Vec<(ParameterId, Matrix)>,
}

impl AveragedWeights {
    /// An average of nothing yet.
    pub fn new(kind: WeightAverage) -> Self {
        Self { kind, count: 0, values: Vec::new() }
    }

    /// Number of steps whose weights are in the average.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The averages, by parameter.
    pub fn values(&self) -> &[(ParameterId, Matrix)] {
        &self.values
    }

    /// Restores the average from a checkpoint.
    pub fn restore(&mut self, count: u64, values: Vec<(ParameterId, Matrix)>) {
        (self.count, self.values) = (count, values);
    }

    /// Takes in the weights after step `done` of `steps`.
    pub fn add(&mut self, parameters: &Parameters, done: u64, steps: u64) -> Result<()> {
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
            let trainable = parameters.iter().filter(|(_, parameter)| parameter.trainable);
            for (id, parameter) in trainable {
                // A copy of its own: the optimiser changes weights in place.
                let value = &parameter.value;
                let zeros = Matrix::zeros(value.rows(), value.columns());
                let copy = lerp(zeros.to_device(&value.device())?, value, 1.0)?;
                self.values.push((id, copy));
            }
        } else {
            for (id, average) in &mut self.values {
                let taken = std::mem::replace(average, Matrix::zeros(0, 0));
                *average = lerp(taken, parameters.value(*id), weight as f32)?;
            }
        }
        self.count += 1;
        Ok(())
    }

    /// Exchanges the weights and their average; a second call undoes it.
    pub fn swap(&mut self, parameters: &mut Parameters) {
        for (id, average) in &mut self.values {
            std::mem::swap(&mut parameters.get_mut(*id).value, average);
        }
    }
}
