//! Times training steps on a model with random weights and random tokens.

use super::median;
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use crate::output;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::time::Instant;
use undertone::data::{Batch, Example, Target};
use undertone::gradient::Clip;
use undertone::mechanism::allocation::Method::{Proved, Published};
use undertone::mechanism::allocation::{
    Anadp, Form, ImportanceSettings, Map, PublishedAnadp, RapFt, SeenMap, Uniform,
};
use undertone::mechanism::forward::{RecordNoise, Release};
use undertone::mechanism::{Noise, Secret};
use undertone::model::architecture::{Architecture, Dimensions};
use undertone::model::layer::sanitiser::{Bounding, Rows, Sanitiser, Spot};
use undertone::model::sanitised::rows_alone;
use undertone::model::tuning::{AdapterSettings, LoraSettings, Tuning};
use undertone::model::{Conditions, Model, Purpose, Weighting};
use undertone::train::optimiser::Settings;
use undertone::train::{Learner, Protection, Step, peak_memory};

/// Time training steps on random weights
#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone bench step --arch bert --layers 6 --hidden 384 --heads 12 --batch 32 --tokens 64 --json"
)]
pub struct StepBench {
    /// Architecture
    #[arg(long, value_enum, default_value = "bert")]
    arch: Arch,
    /// Blocks
    #[arg(long, default_value_t = 6)]
    layers: usize,
    /// Features of a token
    #[arg(long, default_value_t = 384)]
    hidden: usize,
    /// Heads of attention
    #[arg(long, default_value_t = 12)]
    heads: usize,
    /// Features inside of the feed-forward network [default: four times hidden]
    #[arg(long)]
    inner: Option<usize>,
    /// Tokens in the vocabulary
    #[arg(long, default_value_t = 30_522)]
    vocabulary: usize,
    /// Sequences in a step
    #[arg(long, default_value_t = 32)]
    batch: usize,
    /// Tokens in a sequence
    #[arg(long, default_value_t = 64)]
    tokens: usize,
    /// What is trained
    #[arg(long, value_enum, default_value = "full")]
    tuning: Kind,
    /// Rank of LoRA, or width of the adapters
    #[arg(long)]
    size: Option<usize>,
    /// How the gradient is made
    #[arg(long, value_enum, default_value = "none")]
    method: Method,
    /// Freeze everything up to this block; of the forward methods, the noise is there [default: half-way]
    #[arg(long)]
    after: Option<usize>,
    /// Whether AdamW moves the weights, or only gradients are computed
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    update: bool,
    /// Steps that are timed, after three that are not
    #[arg(long, default_value_t = 10)]
    steps: usize,
    #[command(flatten)]
    device: DeviceArguments,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Arch {
    Bert,
    Distilbert,
    Roberta,
    Gpt2,
    Llama,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Full,
    Head,
    Bitfit,
    Lora,
    Adapter,
}

#[derive(Clone, Copy, ValueEnum)]
enum Method {
    /// No privacy
    None,
    /// Every example clipped, Gaussian noise
    DpSgd,
    /// As dp-sgd, with every layer clipped on its own
    DpSgdPerLayer,
    /// Noise by importance, in the usual form for what is trained
    Anadp,
    /// The same for single elements
    AnadpElement,
    /// The same as published
    AnadpPaper,
    /// Two groups by relevance (any mask: its cost does not depend on it)
    RapFt,
    /// Token rows bounded and perturbed after block --after, and everything trained, as published
    DpForwardPaper,
    /// The same with what is below frozen
    DpForward,
    /// The same with what is below computed once, before the time is taken
    DpForwardCached,
}

impl StepBench {
    pub fn run(self) -> Outcome {
        if self.steps == 0 || self.batch == 0 || self.tokens < 2 {
            return Err(Failure::arguments("--steps and --batch must be at least 1, --tokens at least 2"));
        }
        let (architecture, purpose) = match self.arch {
            Arch::Bert => (Architecture::Bert, Purpose::SequenceClassification),
            Arch::Distilbert => (Architecture::DistilBert, Purpose::SequenceClassification),
            Arch::Roberta => (Architecture::Roberta, Purpose::SequenceClassification),
            Arch::Gpt2 => (Architecture::Gpt2, Purpose::CausalLanguageModel),
            Arch::Llama => (Architecture::Llama, Purpose::CausalLanguageModel),
        };
        let dimensions = Dimensions {
            layers: self.layers,
            hidden: self.hidden,
            heads: self.heads,
            inner: self.inner.unwrap_or(4 * self.hidden),
            vocabulary: self.vocabulary,
            positions: self.tokens.max(512),
        };
        let labels = ["no".to_owned(), "yes".to_owned()];
        let mut model = architecture.random(dimensions, purpose, &labels, 1)?;
        let lora = LoraSettings { rank: self.size.unwrap_or(8), ..LoraSettings::default() };
        let adapter = AdapterSettings { size: self.size.unwrap_or(64), ..AdapterSettings::default() };
        let tuning = match self.tuning {
            Kind::Full => Tuning::Full,
            Kind::Head => Tuning::Head,
            Kind::Bitfit => Tuning::Bitfit,
            Kind::Lora => Tuning::Lora(lora),
            Kind::Adapter => Tuning::Adapter(adapter),
        };
        tuning.apply(&mut model, 2)?;
        let forward =
            matches!(self.method, Method::DpForwardPaper | Method::DpForward | Method::DpForwardCached);
        if forward || self.after.is_some() {
            self.cut(&mut model, forward)?;
        }
        model.to_place(&self.device.place()?)?;
        let batch = self.random_batch(purpose);
        let form = if matches!(self.tuning, Kind::Full) { Form::Factored } else { Form::Element };
        let parameters = &model.parameters;
        let method = match self.method {
            Method::None | Method::DpForwardPaper | Method::DpForward | Method::DpForwardCached => None,
            Method::DpSgd => Some(Proved(Box::new(Uniform::new(&Clip::Automatic, parameters)))),
            Method::DpSgdPerLayer => Some(Proved(Box::new(Uniform::new(&Clip::PerLayer(1.0), parameters)))),
            Method::Anadp => Some(Proved(Box::new(Anadp::new(
                &Clip::Automatic,
                ImportanceSettings::usual(form),
                parameters,
            )))),
            Method::AnadpElement => Some(Proved(Box::new(Anadp::new(
                &Clip::Automatic,
                ImportanceSettings::usual(Form::Element),
                parameters,
            )))),
            Method::RapFt => {
                let odd = |i: usize| (i as f32 * 0.618).fract();
                let of = parameters.iter().map(|(_, p)| match p.trainable {
                    true => (0..p.len()).map(odd).collect(),
                    false => Vec::new(),
                });
                let map = SeenMap::of_public(Map { of: of.collect() });
                Some(Proved(Box::new(RapFt::new(&Clip::Automatic, &map, 0.7, parameters))))
            }
            Method::AnadpPaper => {
                let settings = ImportanceSettings::usual(Form::Element);
                Some(Published(Box::new(PublishedAnadp::new(&Clip::Automatic, settings, parameters))))
            }
        };
        let protection = method.map(|method| Protection { method, noise: Noise::new(&Secret::from_seed(1)) });
        let mut learner = Learner::new(model, Settings::default(), protection);
        let noise = RecordNoise::new(&Secret::from_seed(1), Release::Once, vec![1.0]);
        let records: Vec<u64> = (0..self.batch as u64).collect();
        let noise = noise.of(&records, 0);
        let conditions = Conditions { noise: Some(&noise), ..Conditions::default() };
        let cached = match self.method {
            Method::DpForwardCached => Some(learner.model.bounded_rows(&batch)?.0),
            _ => None,
        };
        let mut times = Vec::new();
        for number in 0..self.steps as u64 + 3 {
            let start = Instant::now();
            let mut sum = learner.start();
            match (&cached, forward) {
                (Some(rows), _) => {
                    let model = &learner.model;
                    model.train_above(&batch, rows.clone(), Weighting::SumOfUnits, &conditions, &mut sum)?;
                }
                (None, true) => {
                    learner.model.train_under(&batch, Weighting::SumOfUnits, &conditions, &mut sum)?;
                }
                (None, false) => {
                    learner.accumulate(&batch, None, &mut sum)?;
                }
            }
            if self.update {
                learner.worth(&sum, 1.0)?;
                let divisor = self.batch as f64;
                learner.update(sum, &Step { number, noise_multiplier: 1.0, divisor, rate: 1e-6 })?;
            }
            if number >= 3 {
                times.push(1e3 * start.elapsed().as_secs_f64());
            }
        }
        let step_ms = median(times);
        let speed = 1e3 * self.batch as f64 / step_ms;
        let memory = peak_memory();
        if self.json {
            output::json(
                &json!({ "step_ms": step_ms, "examples_per_second": speed, "peak_memory_bytes": memory }),
            );
        } else {
            let memory = memory.map_or("unknown".to_owned(), |bytes| format!("{:.2} GB", bytes as f64 / 1e9));
            let rows = [
                ("step", format!("{step_ms:.1} ms")),
                ("speed", format!("{speed:.1} examples/s")),
                ("memory", memory),
            ];
            output::rows(&rows);
        }
        Ok(())
    }

    /// Freezes what is below the cut, unless everything learns, and puts the noise there.
    fn cut(&self, model: &mut Model, forward: bool) -> Outcome {
        let after = self.after.unwrap_or(self.layers / 2);
        if after > self.layers {
            return Err(Failure::arguments(format!("--after {after}: there are {} blocks", self.layers)));
        }
        if !matches!(self.method, Method::DpForwardPaper) {
            let network = &model.network;
            let mut below: Vec<_> = network.embeddings.parameters().collect();
            below.extend(network.blocks[..after].iter().flat_map(|block| block.parameters()));
            below.into_iter().for_each(|id| model.parameters.get_mut(id).trainable = false);
        }
        if forward {
            let layer = rows_alone(Spot::After(after), Rows::Tokens(None));
            model.network.sanitiser = Some(Sanitiser { bounding: Bounding::Normalise, ..layer });
        }
        Ok(())
    }

    fn random_batch(&self, purpose: Purpose) -> Batch {
        // Any mixture of tokens will do; the time does not depend on them.
        let token =
            |i: usize| ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize % self.vocabulary;
        let examples: Vec<Example> = (0..self.batch)
            .map(|row| Example {
                tokens: (0..self.tokens).map(|i| token(row * self.tokens + i) as u32).collect(),
                segments: Vec::new(),
                target: match purpose {
                    Purpose::CausalLanguageModel => Target::Next { from: 1 },
                    _ => Target::Class((row % 2) as u32),
                },
                unit: row as u32,
            })
            .collect();
        Batch::pack(&examples)
    }
}
