//! Training one step at a time, without files: clipped sum, noise, optimiser.

use super::average::AveragedWeights;
use super::gather::{gather_gradients, gather_values};
use super::optimiser::{Optimiser, Settings};
use crate::collective::{Ranks, Shards};
use crate::data::Batch;
use crate::gradient::{ClippedSum, GhostClipping, UnitRows};
use crate::method::StepInfo;
use crate::method::central::{AllocationMethod, no_less};
use crate::method::{Coordinates, GradientRelease, Released};
use crate::model::{
    Error, Factor, Gradients, Model, Origin, ParameterId, Receiver, Result, Weighting,
};
use crate::noise::Noise;
use crate::replay::StepTape;
use crate::tensor::Matrix;

/// A model with its optimiser and, for private training, its gradient clipping and noise.
#[derive(Debug)]
pub struct Learner {
    pub model: Model,
    pub optimiser: Optimiser,
    protection: Option<Protection>,
    coordinates: Coordinates,
    ranks: Ranks,
    /// Which coordinates this process updates, and has the optimiser's state of.
    shards: Shards,
    /// The average of the weights that takes their place in the end.
    pub average: Option<AveragedWeights>,
    /// Records each release before its noise is added, or replays another run.
    pub(crate) tape: Option<StepTape>,
}

/// Gradient clipping and noise of private training.
#[derive(Debug)]
pub struct Protection {
    /// Clipping, and the allocation of noise over coordinates.
    pub method: AllocationMethod,
    pub noise: Noise,
}

/// Receives gradients twice: to be clipped, and as they are.
struct Both<'a> {
    unclipped: &'a mut Gradients,
    clipping: &'a mut dyn Receiver,
}

impl Receiver for Both<'_> {
    fn receive(&mut self, factor: Factor) -> crate::tensor::Result<()> {
        self.unclipped.receive(factor.clone())?;
        self.clipping.receive(factor)
    }
}

/// Arguments of [`Learner::update`].
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Index of the step, from 0. Its noise is a function of it: never use one twice.
    pub number: u64,
    /// The effective noise multiplier; ignored without protection.
    pub noise_multiplier: f64,
    /// Divisor of the sum over units: the expected number of units in private training.
    pub divisor: f64,
    pub learning_rate: f64,
}

impl Step {
    /// Arguments of a step of the training loop.
    pub(crate) fn of(info: &StepInfo, noise_multiplier: f64) -> Self {
        let StepInfo { step, divisor, learning_rate, .. } = *info;
        Self { number: step, noise_multiplier, divisor, learning_rate }
    }
}

impl Learner {
    /// A learner; without `protection`, training is non-private.
    pub fn new(model: Model, settings: Settings, protection: Option<Protection>) -> Self {
        Self {
            optimiser: Optimiser::new(settings),
            coordinates: Coordinates::of(&model.parameters),
            ranks: Ranks::alone(),
            shards: Shards::whole(&model.parameters),
            protection,
            model,
            average: None,
            tape: None,
        }
    }

    /// Divides the optimiser's state, the noise and the update among ranks (ZeRO), all of which
    /// have such a learner. Bits are those of a learner that has the sum of all ranks. Where sums
    /// stay on the GPUs nothing is divided: every rank gets the [whole sum](ClippedSum::all_reduce).
    pub fn over(self, ranks: &Ranks) -> Self {
        if ranks.gpus().is_some() {
            return self;
        }
        let shards = Shards::of(&self.model.parameters, ranks.rank(), ranks.size());
        self.in_shards(ranks, shards)
    }

    pub(super) fn in_shards(self, ranks: &Ranks, shards: Shards) -> Self {
        Self { shards, ranks: ranks.clone(), ..self }
    }

    /// The processes that the update is divided among, and which of them has which coordinates.
    pub(super) fn sharding(&self) -> (&Ranks, &Shards) {
        (&self.ranks, &self.shards)
    }

    /// The allocation method of private training.
    pub fn method(&self) -> Option<&AllocationMethod> {
        self.protection.as_ref().map(|protection| &protection.method)
    }

    /// Restores the allocation method's state from a checkpoint; returns whether it was complete.
    pub fn restore_method(&mut self, find: &dyn Fn(&str) -> Option<Vec<f32>>) -> bool {
        self.protection
            .as_mut()
            .is_none_or(|protection| protection.method.allocator_mut().restore(find))
    }

    /// The clipping norm of the next step, under adaptive clipping.
    pub fn adaptive_bound(&self) -> Option<f64> {
        let allocation = self.method()?.allocator().allocation(1.0);
        allocation.count_std.and_then(|_| allocation.bounds.thresholds().first().copied())
    }

    /// The empty sum that a step begins with.
    pub fn empty_sum(&self) -> ClippedSum {
        match self.method() {
            Some(AllocationMethod::Published(method)) if method.needs_unclipped() => {
                ClippedSum::with_unclipped(&self.model.parameters)
            }
            _ => ClippedSum::new(&self.model.parameters),
        }
    }

    /// Adds the gradients of a micro-batch to the sum, in private training with each unit's
    /// gradient clipped by book-keeping (ghost clipping); returns the loss of each example.
    pub fn accumulate(
        &self,
        batch: &Batch,
        dropout_seed: Option<u64>,
        sum: &mut ClippedSum,
    ) -> Result<Vec<f32>> {
        self.model.device().compute(|| self.accumulate_there(batch, dropout_seed, sum))
    }

    /// [`Self::accumulate`] on the thread that computes.
    fn accumulate_there(
        &self,
        batch: &Batch,
        dropout_seed: Option<u64>,
        sum: &mut ClippedSum,
    ) -> Result<Vec<f32>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        match &self.protection {
            None => self.model.train(batch, Weighting::SumOfUnits, dropout_seed, sum)?.by_example(),
            Some(protection) => {
                let allocation = protection.method.allocator().allocation(1.0);
                let (units, groups) = (UnitRows::of(batch), &allocation.groups);
                let recompute = self.model.recompute;
                let mut clipping = match recompute {
                    true => GhostClipping::of_norms(units, groups, self.model.tied_parameters()),
                    false => GhostClipping::new(units, groups),
                };
                let weighting = Weighting::SumOfUnits;
                let losses = match sum.unclipped_mut() {
                    None => self.model.train(batch, weighting, dropout_seed, &mut clipping)?,
                    Some(unclipped) => {
                        let mut both = Both { unclipped, clipping: &mut clipping };
                        self.model.train(batch, weighting, dropout_seed, &mut both)?
                    }
                };
                let clipped = clipping.clip(&allocation.bounds)?;
                // Norms are known, so losses are, too, and a GPU is not waited for again.
                let losses = losses.by_example()?;
                if recompute {
                    // Factors of all layers would take as much memory as their activations.
                    let mut second = clipped.second_pass(sum)?;
                    let again = self.model.train(batch, weighting, dropout_seed, &mut second)?;
                    let bits = |losses: &[f32]| -> Vec<u32> {
                        losses.iter().map(|loss| loss.to_bits()).collect()
                    };
                    // Clipping factors are those of what is added only if both passes agree.
                    if bits(&again.by_example()?) != bits(&losses) {
                        return Err(Error::Request(
                            "the second forward pass differs from the first, so nothing was \
                             released: set compute.recompute to false"
                                .into(),
                        ));
                    }
                } else {
                    clipped.sum(sum)?;
                }
                Ok(losses)
            }
        }
    }

    /// Effective noise multiplier of the release of a sum with this nominal one, to be recorded in
    /// the ledger. A published method first updates its allocation from the sum.
    pub fn effective_noise_multiplier(
        &mut self,
        sum: &ClippedSum,
        noise_multiplier: f64,
    ) -> Result<f64> {
        match &mut self.protection {
            None => Ok(0.0),
            Some(Protection { method: AllocationMethod::Published(method), .. }) => {
                method.observe_raw(sum, &self.model.parameters)?;
                Ok(method.allocation(noise_multiplier).noise_multiplier())
            }
            Some(Protection { method: AllocationMethod::Proved(method), .. }) => {
                let effective = method.allocation(noise_multiplier).noise_multiplier();
                // Allocators guarantee this; a mistake in one must not become a wrong ledger entry.
                let enough = effective >= noise_multiplier * (1.0 - 1e-9);
                if !enough {
                    return Err(Error::Request(format!(
                        "the effective noise multiplier is {effective}, not {noise_multiplier}: \
                         nothing was released"
                    )));
                }
                Ok(noise_multiplier)
            }
        }
    }

    /// Releases the sum: adds noise, divides, and updates the weights. Record the release in a
    /// ledger before.
    ///
    /// Of several ranks each has the sum of its own examples, and the [counts](ClippedSum::clipped)
    /// of all. It gets the sum over all ranks of the coordinates that it updates, and sends their
    /// new weights to all.
    pub fn update(&mut self, sum: ClippedSum, step: &Step) -> crate::error::Result<()> {
        let Self { model, optimiser, protection, coordinates, ranks, shards, tape, .. } = self;
        let slices = shards.own();
        // Before the allocation, which knows how far the noise of earlier steps reaches.
        if let Some(Protection { method, noise }) = protection
            && let Some(correlation) = method.allocator_mut().correlation()
        {
            correlation.go_to(step.number, noise, coordinates, &slices);
        }
        let allocation = protection.as_ref().map(|protection| {
            (&protection.noise, protection.method.allocator().allocation(step.noise_multiplier))
        });
        let release = GradientRelease {
            step: step.number,
            noise: allocation.as_ref().map(|(noise, allocation)| (*noise, allocation)),
            coordinates,
            divisor: step.divisor as f32,
        };
        let share = allocation.as_ref().and_then(|(noise, allocation)| {
            let mut count = [sum.clipped().centred_count() as f32];
            let std = no_less(allocation.count_std?);
            if let Some(StepTape { tape, release }) = tape {
                tape.pass_slice(release(step.number), usize::MAX, &mut count, std);
            }
            noise.add(step.number, coordinates.end(), std, 1.0, &mut count);
            Some(f64::from(count[0]) / step.divisor + 0.5)
        });
        let mut sums: Vec<Option<Matrix>> = match ranks.are_one() {
            true => {
                let mut all = sum.take();
                slices.iter().map(|slice| all[slice.parameter.index()].take()).collect()
            }
            false => {
                let own = sum.reduce_scatter(ranks, shards, &model.parameters)?;
                own.into_iter().map(Some).collect()
            }
        };
        if let (Some(StepTape { tape, release }), Some((_, allocation))) = (tape, &allocation) {
            for (slice, sum) in slices.iter().zip(&mut sums) {
                let (id, start) = (slice.parameter, slice.range.start);
                let piece = (release(step.number), id.index(), start);
                let write = |out: &mut [f32]| allocation.write_stds(id, start, out);
                tape.pass_sum(piece, sum, model.parameters.value(id), write)
                    .map_err(Error::from)?;
            }
        }
        let allocator = protection.as_ref().map(|one| one.method.allocator());
        if let Some((_, allocation)) = &allocation
            && let Some(past) = allocator.and_then(|allocator| allocator.past())
        {
            let std = no_less(allocation.stds[0]);
            past.add_past(&mut sums, std, &slices, &model.parameters).map_err(Error::from)?;
        }
        let observes = allocator.is_some_and(|allocator| allocator.observes());
        let (parameters, rate) = (&mut model.parameters, step.learning_rate);
        let gradients = match ranks.are_one() {
            true => {
                let found = optimiser.update_whole(parameters, &slices, sums, &release, rate);
                Some(found.map_err(Error::from)?)
            }
            false => {
                let updated = optimiser.update_slices(parameters, &slices, sums, &release, rate);
                let updated = updated.map_err(Error::from)?.into_iter();
                // Gradients that nobody looks at are given up before weights are exchanged.
                let (values, gradients): (Vec<Matrix>, Vec<Option<Matrix>>) =
                    updated.map(|one| (one.value, observes.then_some(one.gradient))).unzip();
                gather_values(ranks, shards, values, parameters)?;
                let own = gradients.into_iter().flatten().collect();
                observes.then(|| gather_gradients(ranks, shards, own, parameters)).transpose()?
            }
        };
        let released = gradients.filter(|_| observes).map(|all| Released::new(all, &release));
        drop(allocation);
        if let Some(protection) = protection {
            let allocator = protection.method.allocator_mut();
            if let Some(released) = released {
                allocator.observe(released, &model.parameters).map_err(Error::from)?;
            }
            share.into_iter().for_each(|share| allocator.observe_share(share));
        }
        Ok(())
    }

    /// Names of trainable parameters without gradient in a sum over at least one unit, which
    /// depends on the model and not on the examples.
    pub fn unconnected(&self, sum: &ClippedSum) -> Vec<&str> {
        let trainable = self.model.parameters.iter().filter(|(_, parameter)| parameter.trainable);
        let left_out = trainable.filter(|(id, _)| sum.get(*id).is_none());
        left_out.map(|(_, parameter)| parameter.name.as_str()).collect()
    }

    /// Names of trainable parameters whose gradient is zero in a sum over at least one unit. LoRA's
    /// A and the first layer of an adapter have a zero gradient before the other half has changed:
    /// with `at_first` they only have to be connected to the loss.
    pub fn without_gradient(&self, sum: &ClippedSum, at_first: bool) -> Result<Vec<&str>> {
        let mut without_gradient = Vec::new();
        for (id, parameter) in
            self.model.parameters.iter().filter(|(_, parameter)| parameter.trainable)
        {
            let moves = match sum.get(id) {
                None => false,
                Some(_) if at_first && parameter.origin == Origin::Adapter => true,
                Some(sum) => sum.to_vec()?.iter().any(|&x| x != 0.0),
            };
            if !moves {
                without_gradient.push(parameter.name.as_str());
            }
        }
        Ok(without_gradient)
    }

    /// Noise std of each trainable parameter in the next step, relative to the mean over all
    /// coordinates.
    pub fn noise_by_parameter(&self) -> Vec<(String, f64)> {
        let Some(protection) = &self.protection else { return Vec::new() };
        let allocation = protection.method.allocator().allocation(1.0);
        let mut found = Vec::new();
        let (mut sum, mut count) = (0.0, 0.0);
        for (id, parameter) in
            self.model.parameters.iter().filter(|(_, parameter)| parameter.trainable)
        {
            let coordinates = parameter.len() as f64;
            let mean = allocation.std(id).unwrap_or_else(|| {
                let mut stds = vec![0.0; parameter.len()];
                allocation.write_stds(id, 0, &mut stds);
                stds.iter().map(|&s| f64::from(s)).sum::<f64>() / coordinates.max(1.0)
            });
            (sum, count) = (sum + mean * coordinates, count + coordinates);
            found.push((parameter.name.clone(), mean));
        }
        found.iter_mut().for_each(|(_, mean)| *mean *= count / sum);
        found
    }

    pub fn trainable(&self) -> Vec<ParameterId> {
        self.model
            .parameters
            .iter()
            .filter(|(_, parameter)| parameter.trainable)
            .map(|(id, _)| id)
            .collect()
    }
}
