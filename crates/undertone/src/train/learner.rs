//! A model that learns, one step at a time: the part of training that knows nothing of files.

use super::optimiser::{Optimiser, Settings};
use crate::data::Batch;
use crate::gradient::{Book, ClippedSum, UnitRows};
use crate::method::StepInfo;
use crate::method::central::AllocationMethod;
use crate::method::{Coordinates, GradientRelease};
use crate::model::{Error, Model, Origin, ParameterId, Result, Weighting};
use crate::noise::Noise;

/// A model with its optimiser and, for private training, with its clipping and its noise.
#[derive(Debug)]
pub struct Learner {
    /// The model.
    pub model: Model,
    /// The optimiser's memory.
    pub optimiser: Optimiser,
    protection: Option<Protection>,
    coordinates: Coordinates,
}

/// What makes training private.
#[derive(Debug)]
pub struct Protection {
    /// Where the noise goes.
    pub method: AllocationMethod,
    /// The noise.
    pub noise: Noise,
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

impl Step {
    /// Of a step of the training loop.
    pub(crate) fn of(info: &StepInfo, noise_multiplier: f64) -> Self {
        let StepInfo { step, divisor, learning_rate, .. } = *info;
        Self { number: step, noise_multiplier, divisor, rate: learning_rate }
    }
}

impl Learner {
    /// Without protection for training that is not private.
    pub fn new(model: Model, settings: Settings, protection: Option<Protection>) -> Self {
        Self {
            optimiser: Optimiser::new(settings, &model.parameters),
            coordinates: Coordinates::of(&model.parameters),
            protection,
            model,
        }
    }

    /// The method of private training.
    pub fn method(&self) -> Option<&AllocationMethod> {
        self.protection.as_ref().map(|protection| &protection.method)
    }

    /// Gives the method back what it had learnt; whether everything was there.
    pub fn restore_method(&mut self, find: &dyn Fn(&str) -> Option<Vec<f32>>) -> bool {
        self.protection
            .as_mut()
            .is_none_or(|protection| protection.method.allocator_mut().restore(find))
    }

    /// A sum to which nothing was added.
    pub fn start(&self) -> ClippedSum {
        ClippedSum::new(&self.model.parameters)
    }

    /// Adds the gradients of a micro-batch, each unit's clipped if the training is private; the
    /// loss of each example.
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
            Some(protection) => {
                let allocation = protection.method.allocator().allocation(1.0);
                let mut book = Book::new(UnitRows::of(batch), &allocation.measure);
                let losses =
                    self.model.train(batch, Weighting::SumOfUnits, dropout_seed, &mut book)?;
                book.close(&allocation.bounds, sum)?;
                Ok(losses)
            }
        }
    }

    /// What the release of a sum with this noise multiplier is worth. A published method looks at
    /// the sum first.
    pub fn effective_noise_multiplier(
        &mut self,
        sum: &ClippedSum,
        noise_multiplier: f64,
    ) -> Result<f64> {
        match &mut self.protection {
            None => Ok(0.0),
            Some(Protection { method: AllocationMethod::Published(method), .. }) => {
                method.look(sum, &self.model.parameters)?;
                Ok(method.allocation(noise_multiplier).noise_multiplier())
            }
            Some(Protection { method: AllocationMethod::Proved(method), .. }) => {
                let effective = method.allocation(noise_multiplier).noise_multiplier();
                // Allocators prove this; a mistake in one must not become a wrong entry.
                let enough = effective >= noise_multiplier * (1.0 - 1e-9);
                if !enough {
                    return Err(Error::Request(format!(
                        "the effective noise multiplier is {effective}, not {noise_multiplier}: nothing was \
                         released"
                    )));
                }
                Ok(noise_multiplier)
            }
        }
    }

    /// Adds the noise and moves the weights.
    pub fn update(&mut self, sum: ClippedSum, step: &Step) -> Result<()> {
        let Self { model, optimiser, protection, coordinates } = self;
        let allocation = protection.as_ref().map(|protection| {
            (&protection.noise, protection.method.allocator().allocation(step.noise_multiplier))
        });
        let release = GradientRelease {
            step: step.number,
            noise: allocation.as_ref().map(|(noise, allocation)| (*noise, allocation)),
            coordinates,
            divisor: step.divisor as f32,
        };
        let released = optimiser.step(&mut model.parameters, sum.take(), &release, step.rate)?;
        drop(allocation);
        if let Some(protection) = protection {
            protection.method.allocator_mut().observe(released, &model.parameters)?;
        }
        Ok(())
    }

    /// The trainable parameters that take no part in a sum over at least one unit. That is the
    /// model's doing, and no example's.
    pub fn left_out(&self, sum: &ClippedSum) -> Vec<&str> {
        let trainable = self.model.parameters.iter().filter(|(_, parameter)| parameter.trainable);
        let left_out = trainable.filter(|(id, _)| sum.get(*id).is_none());
        left_out.map(|(_, parameter)| parameter.name.as_str()).collect()
    }

    /// The trainable parameters that a sum over at least one unit does not move. Half of what
    /// stands beside the model (LoRA's A, the first layer of an adapter) has no gradient before its
    /// other half has moved: with `at_first` it only has to take part.
    pub fn unmoved(&self, sum: &ClippedSum, at_first: bool) -> Result<Vec<&str>> {
        let mut unmoved = Vec::new();
        for (id, parameter) in
            self.model.parameters.iter().filter(|(_, parameter)| parameter.trainable)
        {
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

    /// How much noise each trained parameter gets next, relative to the mean over all coordinates.
    pub fn noise_by_parameter(&self) -> Vec<(String, f64)> {
        let Some(protection) = &self.protection else { return Vec::new() };
        let allocation = protection.method.allocator().allocation(1.0);
        let mut found = Vec::new();
        let (mut sum, mut count) = (0.0, 0.0);
        for (id, parameter) in
            self.model.parameters.iter().filter(|(_, parameter)| parameter.trainable)
        {
            let coordinates = parameter.len() as f64;
            let mean = allocation.deviation(id).unwrap_or_else(|| {
                let mut deviations = vec![0.0; parameter.len()];
                allocation.write_deviations(id, 0, &mut deviations);
                deviations.iter().map(|&s| f64::from(s)).sum::<f64>() / coordinates.max(1.0)
            });
            (sum, count) = (sum + mean * coordinates, count + coordinates);
            found.push((parameter.name.clone(), mean));
        }
        found.iter_mut().for_each(|(_, mean)| *mean *= count / sum);
        found
    }

    /// The trainable parameters.
    pub fn trainable(&self) -> Vec<ParameterId> {
        self.model
            .parameters
            .iter()
            .filter(|(_, parameter)| parameter.trainable)
            .map(|(id, _)| id)
            .collect()
    }
}
