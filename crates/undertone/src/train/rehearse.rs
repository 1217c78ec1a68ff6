//! A dry run: everything that is determined before the first step, and one step on synthetic
//! tokens.
//!
//! Nothing is released and nothing is written. [`rehearse`] loads and checks everything that a run
//! does, with the same code; [`rehearse_model`] only counts the rows and units of the training
//! file. The timed step reads no rows; the measured memory depends on the lengths of the texts.

use super::footprint::exercise;
use super::load::{device_of, load};
use super::prepare::{ClassNames, check_head};
use crate::data::{Batch, Dataset, Example, Target};
use crate::error::{Error, Result};
use crate::memory::{GpuMemory, peak_memory};
use crate::method::{self, Prepared, TrainingEvent};
use crate::model::folder::{LoadOptions, load as load_model, locate};
use crate::model::{Model, TaskHead};
use crate::noise::{Noise, Secret};
use crate::plan::{Method, Plan, Population, units_of};
use crate::step::{Cost, Learner, Protection, StepSettings};
use crate::tensor::Device;
use std::time::{Duration, Instant};
use undertone_run::{ParameterCounts, Resolved};

/// The result of a dry run.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// Steps and calibrated noise multipliers.
    pub resolved: Resolved,
    /// Number of rows in the training file.
    pub rows: usize,
    /// Steps of the whole run.
    pub steps: u64,
    /// Trainable and all parameters.
    pub parameters: ParameterCounts,
    /// The result of timing a step; `None` in local DP, whose steps depend on earlier releases.
    pub timing: Option<Timing>,
}

/// Steps on synthetic tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// With the number of tokens of a typical text.
    pub typical: StepTime,
    /// With the maximum number of tokens per text.
    pub long: StepTime,
    /// Peak resident memory of the run in bytes, with texts of the data's lengths and validation,
    /// if the system reports it.
    pub memory_bytes: Option<u64>,
    /// GPU memory in bytes.
    pub gpu_memory_bytes: Option<u64>,
}

/// The time of a step with the run's batch, in which all texts have the same length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTime {
    /// Tokens per text.
    pub tokens: usize,
    /// Duration of the step in seconds.
    pub seconds: f64,
}

/// Makes all checks of a run, reports [`TrainingEvent::Loaded`] and times a step. `typical` is the
/// number of tokens of a typical text; by default, a quarter of the maximum.
pub fn rehearse(
    plan: &Plan,
    device: &Device,
    typical: Option<usize>,
    callback: &mut dyn FnMut(TrainingEvent),
) -> Result<Rehearsal> {
    let device = device_of(plan, device.clone())?;
    let gpu_memory = GpuMemory::begin(&device);
    // The initial values of new parameters do not matter here.
    let secret = Secret::from_seed(0);
    let (prepared, resolved) = load(plan, &secret, &device, None, callback)?;
    let Prepared { model, data, validation, .. } = prepared;
    let per_unit = data.examples.len() as f64 / data.units.max(1) as f64;
    let (rows, units) = (units_of(&plan.data)?.rows, data.units);
    let texts = Some(Texts { data, validation });
    let size = Size { rows, units, per_unit, texts };
    rehearsal(plan, model, resolved, size, typical, gpu_memory)
}

/// Like [`rehearse`], but only counts the rows and units of the training file, and reads the class
/// names from it if the run file does not name them.
pub fn rehearse_model(plan: &Plan, device: &Device, typical: Option<usize>) -> Result<Rehearsal> {
    let device = device_of(plan, device.clone())?;
    let count = units_of(&plan.data)?;
    let origin = locate(&plan.model.name())?;
    let labels = ClassNames::of(plan, &origin)?.labels;
    let options = LoadOptions {
        task_head: Some(plan.task_head()),
        labels: labels.as_ref().map(|labels| labels.names().to_vec()),
        seed: 0,
        quantize: plan.model.quantize,
    };
    let gpu_memory = GpuMemory::begin(&device);
    let mut model = load_model(&origin, &options)?;
    let classes = model.network.head.out.outputs;
    if let Method::Local(local) = &plan.method {
        local.check_model(&model.network)?;
    }
    check_head(&model, &plan.model.tuning)?;
    model.apply_tuning(&plan.model.tuning, 0)?;
    let resolved = method::calibrate(plan, Population::counted(plan, &count), classes)?;
    model.to_device(&device)?;
    model.recompute = plan.compute.recompute;
    if plan.model.tuning.leaves_base() && !matches!(plan.method, Method::Local(_)) {
        model.round_frozen()?;
    }
    let size = match resolved.examples {
        Some(examples) => {
            Size { rows: count.rows, units: examples.number, per_unit: 1.0, texts: None }
        }
        None => {
            // Authors have several rows, up to the maximum.
            let per_unit = count.examples as f64 / count.units.max(1) as f64;
            Size { rows: count.rows, units: count.units, per_unit, texts: None }
        }
    };
    rehearsal(plan, model, resolved, size, typical, gpu_memory)
}

/// The size of the training file.
struct Size {
    rows: usize,
    /// Number of units, or of examples that are sampled one by one.
    units: usize,
    /// Mean number of examples per unit.
    per_unit: f64,
    /// The texts, if they were read: their lengths determine how much memory a run needs.
    texts: Option<Texts>,
}

struct Texts {
    data: Dataset,
    validation: Option<Dataset>,
}

fn rehearsal(
    plan: &Plan,
    model: Model,
    resolved: Resolved,
    size: Size,
    typical: Option<usize>,
    gpu_memory: GpuMemory,
) -> Result<Rehearsal> {
    let (trainable, total) = model.parameters.count();
    let steps = resolved.steps_per_epoch * u64::from(plan.training.epochs);
    let units_of_step = match resolved.sampling_rate {
        // A declared number of units may be far from the true number.
        Some(_) => plan.training.batch as f64 * size.units as f64 / resolved.sampled() as f64,
        None => plan.training.batch.min(size.units as u64) as f64,
    };
    let timing = match plan.method {
        Method::Local(_) => None,
        _ => {
            let rate = units_of_step / size.units.max(1) as f64;
            let texts = size.texts.as_ref().map(|texts| (texts, &resolved, rate));
            let rows_of_step = units_of_step * size.per_unit;
            Some(timed(plan, model, rows_of_step, typical, texts, gpu_memory)?)
        }
    };
    let parameters = ParameterCounts { trainable, total };
    Ok(Rehearsal { resolved, rows: size.rows, steps, parameters, timing })
}

/// Times steps with typical and with long texts, after measuring memory with the lengths of the
/// run's texts if they were read.
fn timed(
    plan: &Plan,
    model: Model,
    rows: f64,
    typical: Option<usize>,
    texts: Option<(&Texts, &Resolved, f64)>,
    mut gpu_memory: GpuMemory,
) -> Result<Timing> {
    let long = plan.data.max_tokens.min(model.network.max_positions);
    let protection = match &plan.method {
        Method::Central(central) => Some(Protection {
            method: central.rehearsed(&model.parameters),
            noise: Noise::new(&Secret::from_seed(0)),
        }),
        _ => None,
    };
    let mut learner = Learner::new(model, plan.optimizer(), protection);
    let typical = typical.unwrap_or(long / 4).clamp(1, long.max(1));
    // Measured before the long texts, which the run may not contain.
    let mut memory_bytes = None;
    if let Some((texts, resolved, rate)) = texts {
        let Texts { data, validation } = texts;
        let room = exercise(plan, &mut learner, resolved, data, validation.as_ref(), rate)?;
        gpu_memory.look(learner.model.device());
        memory_bytes = peak_memory().map(|peak| peak + room);
    }
    let typical = timed_step(plan, &mut learner, rows, typical)?;
    let long = timed_step(plan, &mut learner, rows, long)?;
    if texts.is_none() {
        gpu_memory.look(learner.model.device());
        memory_bytes = peak_memory();
    }
    Ok(Timing { typical, long, memory_bytes, gpu_memory_bytes: gpu_memory.peak })
}

/// Times a micro-batch and an update, each on its second run, since the first one warms up caches.
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
        let mut step = learner.begin_step(StepSettings {
            number,
            noise_multiplier: 1.0,
            divisor: sequences as f64,
            // The duration of an update does not depend on its size.
            learning_rate: 1e-9,
        })?;
        let mut sum = learner.empty_sum();
        learner.accumulate(&step, &batch, None, &mut sum)?;
        let unconnected: Vec<String> =
            learner.unconnected(&sum).into_iter().map(str::to_owned).collect();
        if !unconnected.is_empty() {
            return Err(Error::not_moved(&unconnected));
        }
        learner.model.device().synchronize().map_err(crate::model::Error::from)?;
        of_batch = begun.elapsed();
        let begun = Instant::now();
        learner.observe_raw(&sum, &mut step)?;
        // The tokens are synthetic.
        learner.release(sum, step, Cost::NonPrivate)?;
        learner.model.device().synchronize().map_err(crate::model::Error::from)?;
        of_update = begun.elapsed();
    }
    let batches = rows / sequences as f64;
    let seconds = batches * of_batch.as_secs_f64() + of_update.as_secs_f64();
    Ok(StepTime { tokens, seconds })
}

/// Texts of random tokens, each its own unit.
fn synthetic(model: &Model, tokens: usize, sequences: usize) -> Batch {
    let vocabulary = model.parameters.get(model.network.embeddings.tokens).shape[0] as u64;
    // Any mix of tokens will do; the timing does not depend on them.
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
                    // Every seventh token: the masking rate of masked language modeling.
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
