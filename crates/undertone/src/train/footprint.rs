//! Measures the memory that a run needs by running micro-batches and an evaluation on synthetic
//! tokens, in the shapes that result from the run's own texts.
//!
//! The peak depends on the lengths of the texts. Like the peak of the run itself, it is shown to
//! whoever starts the run and is not released.

use super::steps::mix;
use crate::data::{Batch, Dataset, Example, Target, micro_batches, pieces};
use crate::error::Result;
use crate::evaluate::{Limits, predict};
use crate::model;
use crate::plan::Plan;
use crate::step::{AveragedWeights, Cost, Learner, StepSettings};
use crate::tensor::unused_room;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use undertone_accounting::{Accountant, Adjacency, Composition, epsilon};
use undertone_run::Resolved;

/// Number of samples from which the steps with the largest micro-batches are chosen.
const SAMPLES: u64 = 64;

/// Number of steps taken. The optimizer's moments exist only after the first.
const STEPS: usize = 2;

/// Number of micro-batches per step. Their different sizes leave gaps between matrices.
const BATCHES: usize = 6;

/// Time after which a step runs only its largest micro-batch.
const LONG: Duration = Duration::from_secs(40);

/// Takes steps and evaluates as the run would, so that the process comes close to the run's peak of
/// memory, and returns the number of bytes by which the run may exceed it: micro-batches of sizes
/// that were not tried may fill the pool of buffers up to its limit. `rate` is the share of units in
/// a step.
pub fn exercise(
    plan: &Plan,
    learner: &mut Learner,
    resolved: &Resolved,
    data: &Dataset,
    validation: Option<&Dataset>,
    rate: f64,
) -> Result<u64> {
    // Masks from another draw have about the same number of positions.
    let examples = data.for_evaluation();
    let auto = learner.model.micro_batch();
    let compute = &plan.compute;
    let most = (compute.micro_batch.or(auto.sequences), compute.micro_tokens.or(auto.tokens));
    let members = data.members();
    let mut steps: Vec<Vec<Vec<usize>>> = (0..SAMPLES)
        .map(|step| {
            let is_drawn = |unit: &usize| {
                let draw = mix(mix(*unit as u64) ^ mix(step.wrapping_add(1 << 32)));
                (draw as f64) < rate * 2_f64.powi(64)
            };
            let units: Vec<usize> = (0..data.units).filter(is_drawn).collect();
            micro_batches(&members.of_units(&units), &examples, most.0, most.1)
        })
        .collect();
    let lengths = |batch: &Vec<usize>, power: u32| -> usize {
        batch.iter().map(|&i| examples[i].tokens.len().pow(power)).sum()
    };
    // The batch with the most tokens, then the one with the most pairs of tokens in attention.
    let size = |batch: &Vec<usize>| (lengths(batch, 1), lengths(batch, 2));
    steps.sort_by_key(|batches| Reverse(batches.iter().map(size).max()));
    let mut untried: BTreeSet<(usize, usize)> = steps.iter().flatten().map(size).collect();
    let begun = Instant::now();
    for (number, batches) in (0..).zip(steps.iter().take(STEPS)) {
        let largest = (0..batches.len()).max_by_key(|&i| size(&batches[i]));
        let every = batches.len().div_ceil(BATCHES).max(1);
        let chosen = (0..batches.len()).filter(|i| i % every == 0 || Some(*i) == largest);
        let chosen = chosen.filter(|i| begun.elapsed() < LONG || Some(*i) == largest);
        let chosen = chosen.map(|i| &batches[i]).inspect(|batch| {
            untried.remove(&size(batch));
        });
        step(learner, number, chosen, &examples)?;
        compute_epsilon(plan, resolved)?;
    }
    if let Some(kind) = plan.training.average {
        learner.average = Some(AveragedWeights::new(kind));
        learner.add_to_average(1, 1).map_err(model::Error::from)?;
    }
    if let Some(validation) = validation {
        let limits = Limits::default();
        let examples = validation.for_evaluation();
        let largest = pieces(&examples, limits.sequences, limits.tokens)
            .into_iter()
            .max_by_key(|piece| piece.iter().map(|&i| examples[i].tokens.len()).sum::<usize>());
        let piece: Vec<Example> =
            largest.iter().flatten().map(|&i| like(&examples[i], &learner.model)).collect();
        learner.swap_average()?;
        predict(&learner.model, &piece, limits, false)?;
        learner.swap_average()?;
    }
    learner.average = None;
    learner.model.device().synchronize().map_err(model::Error::from)?;
    Ok(if untried.is_empty() { 0 } else { unused_room() })
}

/// Computes ε of the plan, as the run does after each epoch: the accountant's transforms need
/// memory in addition to what the allocator keeps from a step.
fn compute_epsilon(plan: &Plan, resolved: &Resolved) -> Result<()> {
    let (Some(delta), Some(_)) = (plan.delta(), resolved.sampling_rate) else {
        return Ok(());
    };
    let mut planned = Composition::new(Adjacency::AddRemove);
    for &noise_multiplier in &resolved.noise_multipliers {
        planned.push(resolved.step(noise_multiplier), resolved.steps_per_epoch);
    }
    epsilon(&planned, delta, Accountant::Auto)?;
    Ok(())
}

/// A step over some micro-batches that hardly changes the weights.
fn step<'a>(
    learner: &mut Learner,
    number: u64,
    batches: impl Iterator<Item = &'a Vec<usize>>,
    examples: &[Example],
) -> Result<()> {
    let mut step = learner.begin_step(StepSettings {
        number,
        noise_multiplier: 1.0,
        divisor: 1.0,
        learning_rate: 1e-9,
    })?;
    let mut sum = learner.empty_sum();
    for indices in batches {
        let batch: Vec<Example> =
            indices.iter().map(|&i| like(&examples[i], &learner.model)).collect();
        learner.accumulate(&step, &Batch::pack(&batch), None, &mut sum)?;
    }
    learner.observe_raw(&sum, &mut step)?;
    // The tokens are synthetic.
    learner.release(sum, step, Cost::NonPrivate)?;
    Ok(())
}

/// An example of the same shape with different tokens and a different class.
fn like(example: &Example, model: &model::Model) -> Example {
    let vocabulary = model.parameters.get(model.network.embeddings.tokens).shape[0] as u64;
    let token = |i: usize| (mix(i as u64) % vocabulary) as u32;
    let target = match &example.target {
        Target::Class(_) => Target::Class(0),
        Target::Masked { positions, .. } => Target::Masked {
            positions: positions.clone(),
            labels: positions.iter().map(|&at| token(at as usize)).collect(),
        },
        other => other.clone(),
    };
    let tokens = (0..example.tokens.len()).map(token).collect();
    Example { tokens, target, ..example.clone() }
}
