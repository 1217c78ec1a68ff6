//! A model that learns, one step at a time: the part of training that knows nothing of files.

use super::optimiser::{Optimiser, Settings};
use crate::data::Batch;
use crate::gradient::{Book, Clip, ClippedSum, Groups, UnitRows};
use crate::mechanism::{Coordinates, GroupedGaussian, Noise, Release};
use crate::model::{Model, Origin, ParameterId, Result, Weighting};

/// A model with its optimiser and, for private training, with its clipping and its noise.
#[derive(Debug)]
pub struct Learner {
    /// The model.
    pub model: Model,
    /// The optimiser's memory.
    pub optimiser: Optimiser,
    protection: Option<(Clip, Noise)>,
    groups: Groups,
    coordinates: Coordinates,
}

/// What one step is told.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Its number, which names its noise.
    pub number: u64,
    /// What its noise is worth; without meaning if there is no protection.
    pub noise_multiplier: f64,
    /// What the sum over units is divided by: the expected number of units if the run is private.
    pub divisor: f64,
    /// The learning rate.
    pub rate: f64,
}

impl Learner {
    /// Without protection for training that is not private.
    pub fn new(model: Model, settings: Settings, protection: Option<(Clip, Noise)>) -> Self {
        let groups = match &protection {
            Some((clip, _)) => clip.groups(&model.parameters),
            None => Groups::one(&model.parameters),
        };
        Self {
            optimiser: Optimiser::new(settings, &model.parameters),
            coordinates: Coordinates::of(&model.parameters),
            groups,
            protection,
            model,
        }
    }

    /// A sum to which nothing was added.
    pub fn start(&self) -> ClippedSum {
        ClippedSum::new(&self.model.parameters)
    }

    /// Adds the gradients of a micro-batch, each unit's clipped if the training is private; the loss of each example.
    pub fn accumulate(
        &self,
        batch: &Batch,
        dropout_seed: Option<u64>,
        sum: &mut ClippedSum,
    ) -> Result<Vec<f32>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        match &self.protection {
            None => self.model.train(batch, Weighting::SumOfUnits, dropout_seed, sum),
            Some((clip, _)) => {
                let mut book = Book::new(UnitRows::of(batch), &self.groups);
                let losses = self.model.train(batch, Weighting::SumOfUnits, dropout_seed, &mut book)?;
                book.close(clip, sum)?;
                Ok(losses)
            }
        }
    }

    /// Adds the noise and moves the weights.
    pub fn update(&mut self, sum: ClippedSum, step: &Step) -> Result<()> {
        let mechanism = self.protection.as_ref().map(|(clip, noise)| {
            (noise, GroupedGaussian::uniform(self.groups.count(), clip.bound(), step.noise_multiplier))
        });
        let release = Release {
            step: step.number,
            noise: mechanism.as_ref().map(|(noise, mechanism)| (*noise, mechanism)),
            groups: &self.groups,
            coordinates: &self.coordinates,
            divisor: step.divisor as f32,
        };
        Ok(self.optimiser.step(&mut self.model.parameters, sum.take(), &release, step.rate)?)
    }

    /// The trainable parameters that a sum over at least one unit does not move. Half of what stands beside the model (LoRA's A, the first layer of an adapter) has no
    /// gradient before its other half has moved: with `at_first` it only has to take part.
    pub fn unmoved(&self, sum: &ClippedSum, at_first: bool) -> Result<Vec<&str>> {
        let mut unmoved = Vec::new();
        for (id, parameter) in self.model.parameters.iter().filter(|(_, parameter)| parameter.trainable) {
            let moves = match sum.get(id) {
                None => false,
                Some(_) if at_first && parameter.origin == Origin::Adapter => true,
                Some(sum) => sum.to_vec()?.iter().any(|&x| x != 0.0),
            };
            if !moves {
                unmoved.push(parameter.name.as_str());
            }
        }
        Ok(unmoved)
    }

    /// The trainable parameters.
    pub fn trainable(&self) -> Vec<ParameterId> {
        self.model.parameters.iter().filter(|(_, parameter)| parameter.trainable).map(|(id, _)| id).collect()
    }
}
