//! Training one step at a time, without files: clipped sum, noise, optimizer.

use super::allocation::{Allocation, AllocationMethod, no_less};
use super::average::AveragedWeights;
use super::filter::GradientFilter;
use super::gather::{gather_gradients, gather_values};
use super::ledger::Cost;
use super::optimizer::{Optimizer, Settings};
use super::release::{Coordinates, GradientRelease, Released};
use crate::collective::{Ranks, Shards};
use crate::data::Batch;
use crate::gradient::{ClippedSum, GhostClipping, UnitRows};
use crate::model::{
    Error, Factor, Gradients, Model, Origin, ParameterId, Receiver, Result, Weighting,
};
use crate::noise::Noise;
use crate::replay::StepTape;
use crate::tensor::Matrix;

/// A model with its optimizer and, for private training, its gradient clipping and noise.
#[derive(Debug)]
pub struct Learner {
    pub model: Model,
    pub optimizer: Optimizer,
    protection: Option<Protection>,
    coordinates: Coordinates,
    ranks: Ranks,
    /// The coordinates that this process updates and for which it holds the optimizer state.
    shards: Shards,
    /// The average of the weights, which replaces them at the end of training.
    pub average: Option<AveragedWeights>,
    /// A filter over the released gradients. Methods that observe releases, or whose noise is
    /// correlated, have none.
    pub filter: Option<GradientFilter>,
    /// Records each release before its noise is added, or replays another run.
    pub(crate) tape: Option<StepTape>,
}

/// Gradient clipping and noise of private training.
#[derive(Debug)]
pub struct Protection {
    /// Clipping, and the allocation of noise to coordinates.
    pub method: AllocationMethod,
    pub noise: Noise,
}

/// Passes gradients to two receivers: one that clips them and one that does not.
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

/// Arguments of [`Learner::begin_step`].
#[derive(Clone, Copy, Debug)]
pub struct StepSettings {
    /// Index of the step, starting at 0. The step's noise is a function of this index: never use an
    /// index twice.
    pub number: u64,
    /// The noise multiplier that the ledger will state; ignored without protection.
    pub noise_multiplier: f64,
    /// Divisor of the sum over units: the expected number of units in private training.
    pub divisor: f64,
    pub learning_rate: f64,
}

/// A step in progress: how its gradients are clipped and how much noise their sum gets. It is
/// computed once, borrowed by [`Learner::accumulate`] and consumed by [`Learner::release`].
#[derive(Debug)]
pub struct Step {
    settings: StepSettings,
    /// `None` in non-private training.
    allocation: Option<Allocation>,
    noise_multiplier: f64,
}

impl Step {
    /// The arguments passed to [`Learner::begin_step`].
    pub fn settings(&self) -> &StepSettings {
        &self.settings
    }

    /// Clipping norms and noise; `None` in non-private training.
    pub fn allocation(&self) -> Option<&Allocation> {
        self.allocation.as_ref()
    }

    /// The effective noise multiplier, σ_eff; 0 without noise.
    pub fn noise_multiplier(&self) -> f64 {
        self.noise_multiplier
    }

    /// The clipping norm, if clipping is adaptive.
    pub fn adaptive_bound(&self) -> Option<f64> {
        let allocation = self.allocation.as_ref()?;
        allocation.count_std.and_then(|_| allocation.bounds.thresholds().first().copied())
    }

    fn of(settings: StepSettings, allocation: Option<Allocation>) -> Self {
        let noise_multiplier = match &allocation {
            Some(allocation) if settings.noise_multiplier > 0.0 => allocation.noise_multiplier(),
            _ => 0.0,
        };
        Self { settings, allocation, noise_multiplier }
    }
}

impl Learner {
    /// Creates a learner. Without `protection`, training is non-private.
    pub fn new(model: Model, settings: Settings, protection: Option<Protection>) -> Self {
        Self {
            optimizer: Optimizer::new(settings),
            coordinates: Coordinates::of(&model.parameters),
            ranks: Ranks::alone(),
            shards: Shards::whole(&model.parameters),
            protection,
            model,
            average: None,
            filter: None,
            tape: None,
        }
    }

    /// Partitions the optimizer state, the noise and the update among the ranks (ZeRO); all ranks
    /// must have the same learner. The results are bit-identical to those of one learner that has
    /// the sum of all ranks. If sums stay on the GPUs, nothing is partitioned: every rank gets the
    /// [whole sum](ClippedSum::all_reduce).
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

    /// The ranks among which the update is partitioned, and the coordinates of each.
    pub(crate) fn sharding(&self) -> (&Ranks, &Shards) {
        (&self.ranks, &self.shards)
    }

    /// The allocation method of private training.
    pub fn method(&self) -> Option<&AllocationMethod> {
        self.protection.as_ref().map(|protection| &protection.method)
    }

    /// Restores the allocation method's state from a checkpoint. Returns whether it was complete.
    pub fn restore_method(&mut self, find: &dyn Fn(&str) -> Option<Vec<f32>>) -> bool {
        self.protection
            .as_mut()
            .is_none_or(|protection| protection.method.allocator_mut().restore(find))
    }

    /// Begins a step: asks the allocator, once, for clipping norms and noise.
    pub fn begin_step(&mut self, settings: StepSettings) -> Result<Step> {
        self.look_ahead()?;
        let Self { protection, coordinates, shards, .. } = self;
        let Some(Protection { method, noise }) = protection else {
            return Ok(Step::of(settings, None));
        };
        // This comes before the allocation, which depends on the spread of earlier steps' noise.
        if let Some(correlation) = method.allocator_mut().correlation() {
            correlation.go_to(settings.number, noise, coordinates, &shards.own());
        }
        let allocation = method.allocator().allocation(settings.noise_multiplier);
        let step = Step::of(settings, Some(allocation));
        if let AllocationMethod::Proved(_) = method {
            // Allocators guarantee this, but a bug in one must not become a wrong ledger entry.
            let (effective, asked) = (step.noise_multiplier, settings.noise_multiplier);
            let enough = effective >= asked * (1.0 - 1e-9);
            if !enough {
                return Err(Error::Request(format!(
                    "the effective noise multiplier is {effective}, not {asked}: nothing was \
                     released"
                )));
            }
        }
        Ok(step)
    }

    /// Shows the sum, before noise is added, to a method that was published that way (paper mode).
    /// The method then recomputes the step's noise.
    pub fn observe_raw(&mut self, sum: &ClippedSum, step: &mut Step) -> Result<()> {
        if let Some(Protection { method: AllocationMethod::Published(method), .. }) =
            &mut self.protection
        {
            method.observe_raw(sum, &self.model.parameters)?;
            let allocation = method.allocation(step.settings.noise_multiplier);
            *step = Step::of(step.settings, Some(allocation));
        }
        Ok(())
    }

    /// The empty sum at the start of a step.
    pub fn empty_sum(&self) -> ClippedSum {
        match self.method() {
            Some(AllocationMethod::Published(method)) if method.needs_unclipped() => {
                ClippedSum::with_unclipped(&self.model.parameters)
            }
            _ => ClippedSum::new(&self.model.parameters),
        }
    }

    /// Adds the gradients of a micro-batch to the sum. In private training, each unit's gradient is
    /// clipped by ghost clipping with book-keeping. Returns the loss of each example.
    pub fn accumulate(
        &self,
        step: &Step,
        batch: &Batch,
        dropout_seed: Option<u64>,
        sum: &mut ClippedSum,
    ) -> Result<Vec<f32>> {
        let device = self.model.device();
        let accumulate = || self.accumulate_there(step, batch, dropout_seed, sum);
        match &step.allocation {
            None => device.compute(accumulate),
            Some(_) => device.compute_batch_invariant(accumulate),
        }
    }

    /// [`Self::accumulate`], running on the compute thread.
    fn accumulate_there(
        &self,
        step: &Step,
        batch: &Batch,
        dropout_seed: Option<u64>,
        sum: &mut ClippedSum,
    ) -> Result<Vec<f32>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        // Factors have one row for each token that the layers read.
        let batch = &*self.model.prompted(batch);
        match &step.allocation {
            None => self.model.train(batch, Weighting::SumOfUnits, dropout_seed, sum)?.by_example(),
            Some(allocation) => {
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
                // The norms are known, so the losses are too; reading them does not wait for the
                // GPU again.
                let losses = losses.by_example()?;
                if clipped.needs_second_pass() {
                    // Keeping the factors of all layers would take as much memory as their
                    // activations.
                    let mut second = clipped.second_pass(sum)?;
                    let again = self.model.train(batch, weighting, dropout_seed, &mut second)?;
                    let bits = |losses: &[f32]| -> Vec<u32> {
                        losses.iter().map(|loss| loss.to_bits()).collect()
                    };
                    // The clipping factors match the gradients being summed only if both passes
                    // agree.
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

    /// Releases the sum: adds noise, divides, and updates the weights.
    ///
    /// With several ranks, each rank holds the sum over its own examples, and the
    /// [counts](ClippedSum::clipped) over all. It receives the sum over all ranks for the
    /// coordinates that it updates, and sends their new weights to all ranks.
    pub fn release(&mut self, sum: ClippedSum, step: Step, cost: Cost) -> crate::error::Result<()> {
        let is_noised = self.protection.is_some() && step.allocation.is_some();
        match cost {
            Cost::Recorded(recorded) if is_noised => recorded.covers(step.noise_multiplier)?,
            Cost::Recorded(_) => {
                let problem = "the ledger has a release with noise, and this one has none";
                return Err(Error::Request(format!("{problem}: nothing was released")).into());
            }
            Cost::PostProcessing if is_noised => {
                let problem = "a release with noise is of private examples, and the ledger has \
                               none";
                return Err(Error::Request(format!("{problem}: nothing was released")).into());
            }
            Cost::PostProcessing | Cost::NonPrivate => {}
        }
        self.look_back();
        let before = self.before_filtered_step();
        let Step { settings: step, mut allocation, .. } = step;
        let Self { model, optimizer, protection, coordinates, ranks, shards, tape, filter, .. } =
            self;
        let slices = shards.own();
        if let (Some(filter), Some(allocation)) = (filter.as_ref(), &mut allocation) {
            allocation.correlation.spread *= filter.spread(optimizer.steps());
        }
        let allocation = protection.as_ref().zip(allocation);
        let allocation =
            allocation.as_ref().map(|(protection, allocation)| (&protection.noise, allocation));
        let release = GradientRelease {
            step: step.number,
            noise: allocation,
            coordinates,
            divisor: filter.as_ref().map_or(step.divisor, |f| f.divisor(step.divisor)) as f32,
        };
        let share = allocation.and_then(|(noise, allocation)| {
            let mut count = [sum.clipped().centered_count() as f32];
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
        if let (Some(StepTape { tape, release }), Some((_, allocation))) = (tape, allocation) {
            for (slice, sum) in slices.iter().zip(&mut sums) {
                let (id, start) = (slice.parameter, slice.range.start);
                let piece = (release(step.number), id.index(), start);
                let write = |out: &mut [f32]| allocation.write_stds(id, start, out);
                tape.pass_sum(piece, sum, model.parameters.value(id), write)
                    .map_err(Error::from)?;
            }
        }
        let allocator = protection.as_ref().map(|protection| protection.method.allocator());
        if let Some((_, allocation)) = allocation
            && let Some(past) = allocator.and_then(|allocator| allocator.past())
        {
            let std = no_less(allocation.stds[0]);
            past.add_past(&mut sums, std, &slices, &model.parameters).map_err(Error::from)?;
        }
        if let Some(filter) = &*filter {
            let carried = filter.carry(&mut sums, step.divisor, &model.parameters, &slices);
            carried.map_err(Error::from)?;
        }
        let observes = allocator.is_some_and(|allocator| allocator.observes());
        let keeps_gradients = observes || filter.is_some();
        let (parameters, rate) = (&mut model.parameters, step.learning_rate);
        let gradients = match ranks.are_one() {
            true => {
                let updated = optimizer.update_whole(parameters, &slices, sums, &release, rate);
                Some(updated.map_err(Error::from)?)
            }
            false => {
                let updated = optimizer.update_slices(parameters, &slices, sums, &release, rate);
                let updated = updated.map_err(Error::from)?.into_iter();
                // Drop gradients that nothing needs before exchanging weights.
                let (values, gradients): (Vec<Matrix>, Vec<Option<Matrix>>) = updated
                    .map(|update| (update.value, keeps_gradients.then_some(update.gradient)))
                    .unzip();
                gather_values(ranks, shards, values, parameters)?;
                let own: Vec<Matrix> = gradients.into_iter().flatten().collect();
                if let Some(filter) = filter.as_mut() {
                    filter.keep(own.clone(), before.clone());
                }
                observes.then(|| gather_gradients(ranks, shards, own, parameters)).transpose()?
            }
        };
        if let (Some(filter), Some(gradients), true) =
            (filter.as_mut(), &gradients, ranks.are_one())
        {
            let own = slices.iter().filter_map(|slice| gradients[slice.parameter.index()].clone());
            filter.keep(own.collect(), before);
        }
        let released = gradients.filter(|_| observes).map(|all| Released::new(all, &release));
        if let Some(protection) = protection {
            let allocator = protection.method.allocator_mut();
            if let Some(released) = released {
                allocator.observe(released, &model.parameters).map_err(Error::from)?;
            }
            share.into_iter().for_each(|share| allocator.observe_share(share));
        }
        Ok(())
    }

    /// Names of trainable parameters without a gradient in a sum over at least one unit. This
    /// depends on the model and not on the examples.
    pub fn unconnected(&self, sum: &ClippedSum) -> Vec<&str> {
        let trainable = self.model.parameters.iter().filter(|(_, parameter)| parameter.trainable);
        let left_out = trainable.filter(|(id, _)| sum.get(*id).is_none());
        left_out.map(|(_, parameter)| parameter.name.as_str()).collect()
    }

    /// Names of trainable parameters whose gradient is zero in a sum over at least one unit. LoRA's
    /// A matrix and the first layer of an adapter have a zero gradient until the other half has
    /// changed: with `at_first`, they only need to be connected to the loss.
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
        let mut means = Vec::new();
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
            means.push((parameter.name.clone(), mean));
        }
        means.iter_mut().for_each(|(_, mean)| *mean *= count / sum);
        means
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
