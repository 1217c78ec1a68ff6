//! A dry run: everything that is decided before the first step, and a step on synthetic tokens.
//!
//! Nothing is released and nothing is written. The training file is asked for its number of units
//! and, where the run file does not name them, its labels; the timed step reads no row of it.

use super::memory::{GpuMemory, peak_memory};
use super::prepare::{ClassNames, check_head};
use super::{Learner, Protection, Step};
use crate::data::{Batch, Example, Target};
use crate::error::Result;
use crate::method;
use crate::model::folder::{LoadOptions, load, locate};
use crate::model::{Model, TaskHead};
use crate::noise::{Noise, Secret};
use crate::plan::{Method, Plan, units_of};
use crate::tensor::Device;
use std::time::{Duration, Instant};
use undertone_run::{ParameterCounts, Resolved};

/// What a run would be.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// Steps and calibrated noise multipliers.
    pub resolved: Resolved,
    /// Number of rows of the training file.
    pub rows: usize,
    /// Steps of the whole run.
    pub steps: u64,
    /// Trainable and all parameters.
    pub parameters: ParameterCounts,
    /// What a timed step came to; none in local DP, whose steps depend on what is released first.
    pub timing: Option<Timing>,
}

/// Steps on synthetic tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// With an eighth of the tokens that a text may have, as short texts do.
    pub short: StepTime,
    /// With as many tokens as a text may have.
    pub long: StepTime,
    /// Peak resident memory of the process in bytes, where the system tells.
    pub memory_bytes: Option<u64>,
    /// Memory of the GPU in bytes.
    pub gpu_memory_bytes: Option<u64>,
}

/// The time of a step of the run's batch, all of whose texts are equally long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTime {
    /// Tokens of each text.
    pub tokens: usize,
    /// Seconds of the step.
    pub seconds: f64,
}

/// Resolves a plan on its data and times a step.
pub fn rehearse(plan: &Plan, device: &Device) -> Result<Rehearsal> {
    let device = match plan.compute.precision {
        Some(precision) => device.clone().with_precision(precision),
        None => Ok(device.clone()),
    };
    let device = device.map_err(crate::model::Error::from)?;
    let count = units_of(&plan.data)?;
    let origin = locate(&plan.model.name())?;
    let labels = ClassNames::of(plan, &origin)?.labels;
    let options = LoadOptions {
        task_head: Some(plan.task_head()),
        labels: labels.as_ref().map(|labels| labels.names().to_vec()),
        seed: 0,
        quantise: plan.model.quantise,
    };
    let gpu_memory = GpuMemory::begin(&device);
    let mut model = load(&origin, &options)?;
    let classes = model.network.head.out.outputs;
    if let Method::Local(local) = &plan.method {
        local.check_model(&model.network)?;
    }
    check_head(&model, &plan.model.tuning)?;
    model.apply_tuning(&plan.model.tuning, 0)?;
    let (trainable, total) = model.parameters.count();
    let resolved = method::calibrate(plan, count.units, classes)?;
    let steps = resolved.steps_per_epoch * u64::from(plan.training.epochs);
    let timing = match plan.method {
        Method::Local(_) => None,
        _ => {
            model.to_device(&device)?;
            model.recompute = plan.compute.recompute;
            if plan.model.tuning.leaves_base() {
                model.round_frozen()?;
            }
            // Authors have several rows, up to the maximum.
            let rows = count.rows.min(count.units * plan.data.most_per_author);
            let rows = rows * plan.data.augment.as_ref().map_or(1, |augment| augment.copies);
            let per_unit = rows as f64 / count.units.max(1) as f64;
            let rows_of_step = plan.training.batch.min(count.units as u64) as f64 * per_unit;
            Some(timed(plan, model, rows_of_step, gpu_memory)?)
        }
    };
    let parameters = ParameterCounts { trainable, total };
    Ok(Rehearsal { resolved, rows: count.rows, steps, parameters, timing })
}

/// Times steps with short and with long texts.
fn timed(plan: &Plan, model: Model, rows: f64, mut gpu_memory: GpuMemory) -> Result<Timing> {
    let long = plan.data.max_tokens.min(model.network.max_positions);
    let protection = match &plan.method {
        Method::Central(central) => Some(Protection {
            method: central.rehearsed(&model.parameters),
            noise: Noise::new(&Secret::from_seed(0)),
        }),
        _ => None,
    };
    let mut learner = Learner::new(model, plan.optimiser(), protection);
    let short = timed_step(plan, &mut learner, rows, (long / 8).max(1))?;
    let long = timed_step(plan, &mut learner, rows, long)?;
    gpu_memory.look(learner.model.device());
    Ok(Timing { short, long, memory_bytes: peak_memory(), gpu_memory_bytes: gpu_memory.peak })
}

/// Times a micro-batch and an update, each the second time: the first one fills caches.
fn timed_step(plan: &Plan, learner: &mut Learner, rows: f64, tokens: usize) -> Result<StepTime> {
    let model = &learner.model;
    let auto = model.micro_batch();
    let most_tokens = plan.compute.micro_tokens.or(auto.tokens);
    let sequences = plan.compute.micro_batch.or(auto.sequences).min((most_tokens / tokens).max(1));
    let sequences = sequences.min(rows.ceil().max(1.0) as usize);
    let batch = synthetic(model, tokens, sequences);
    let (mut of_batch, mut of_update) = (Duration::ZERO, Duration::ZERO);
    for number in 0..2 {
        let begun = Instant::now();
        let mut sum = learner.empty_sum();
        learner.accumulate(&batch, None, &mut sum)?;
        learner.model.device().synchronise().map_err(crate::model::Error::from)?;
        of_batch = begun.elapsed();
        let begun = Instant::now();
        learner.effective_noise_multiplier(&sum, 1.0)?;
        let step = Step {
            number,
            noise_multiplier: 1.0,
            divisor: sequences as f64,
            // The time of an update does not depend on how far it goes.
            learning_rate: 1e-9,
        };
        learner.update(sum, &step)?;
        learner.model.device().synchronise().map_err(crate::model::Error::from)?;
        of_update = begun.elapsed();
    }
    let batches = rows / sequences as f64;
    let seconds = batches * of_batch.as_secs_f64() + of_update.as_secs_f64();
    Ok(StepTime { tokens, seconds })
}

/// Texts of random tokens, each a unit of its own.
fn synthetic(model: &Model, tokens: usize, sequences: usize) -> Batch {
    let vocabulary = model.parameters.get(model.network.embeddings.tokens).shape[0] as u64;
    // Any mixture of tokens will do; the time does not depend on them.
    let token = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % vocabulary;
    let of_row = |row: usize| -> Vec<u32> {
        (0..tokens).map(|i| token((row * tokens + i) as u64) as u32).collect()
    };
    let examples: Vec<Example> = (0..sequences)
        .map(|row| {
            let tokens = of_row(row);
            let target = match model.network.head.task_head {
                TaskHead::CausalLanguageModel if tokens.len() > 1 => Target::Next { from: 1 },
                TaskHead::CausalLanguageModel => Target::None,
                TaskHead::MaskedLanguageModel => {
                    // Every seventh token: the share of masked language modelling.
                    let positions: Vec<u32> = (0..tokens.len() as u32).step_by(7).collect();
                    let labels = positions.iter().map(|&at| tokens[at as usize]).collect();
                    Target::Masked { positions, labels }
                }
                _ => Target::Class(0),
            };
            Example { tokens, segments: Vec::new(), target, unit: row as u32 }
        })
        .collect();
    Batch::pack(&examples)
}
