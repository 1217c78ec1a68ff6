//! Times training steps on a model with random weights and random tokens.

mod contender;

use super::median;
use super::shape::{Shape, within};
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::{Args, ValueEnum};
use contender::{Contender, Method};
use serde_json::json;
use undertone::data::{Batch, Example, Target};
use undertone::model::tuning::{AdapterSettings, LoraSettings, Tuning};
use undertone::model::{Model, TaskHead};
use undertone::tensor::CpuLevel;
use undertone::train::peak_memory;

/// Time training steps of a model with random weights
#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone bench step --arch bert --layers 6 --hidden 384 --heads 12 \
     --batch 32 --tokens 64 --json\n  undertone bench step --method dp-sgd --beside none"
)]
pub struct StepBench {
    #[command(flatten)]
    shape: Shape,
    /// Batch size, in sequences
    #[arg(long, default_value_t = 32)]
    batch: usize,
    /// Tokens per sequence
    #[arg(long, default_value_t = 64)]
    tokens: usize,
    /// Parameters to train
    #[arg(long, value_enum, default_value = "full")]
    tuning: Kind,
    /// LoRA rank [default: 8], or adapter width [default: 64]
    #[arg(long)]
    size: Option<usize>,
    /// Comma-separated name suffixes of the linear layers to apply LoRA to, or `all` [default:
    /// query and value layers]
    #[arg(long, value_delimiter = ',')]
    targets: Vec<String>,
    /// Method that computes and privatizes the gradient
    #[arg(long, value_enum, default_value = "none")]
    method: Method,
    /// Second method to time, in alternating steps, so that slow moments of the machine affect both
    #[arg(long, value_enum)]
    beside: Option<Method>,
    /// Number of blocks to freeze; local DP methods perturb the embeddings after them [default:
    /// none, or half of the blocks for local DP methods]
    #[arg(long)]
    after: Option<usize>,
    /// Recompute activations in the backward pass (gradient checkpointing), as compute.recompute
    /// does
    #[arg(long)]
    recompute: bool,
    /// Update the weights with AdamW; if false, only compute gradients
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    update: bool,
    /// Number of timed steps, after three warm-up steps
    #[arg(long, default_value_t = 10)]
    steps: usize,
    /// Run one step per line of standard input and print one JSON object for each, so that other
    /// programs can alternate with this one
    #[arg(long, conflicts_with_all = ["beside", "steps"])]
    on_request: bool,
    #[command(flatten)]
    device: DeviceArguments,
    /// Highest CPU instruction set to use; UNDERTONE_CPU sets it for all commands
    #[arg(long, value_enum, value_name = "LEVEL")]
    cpu: Option<CpuLevel>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Full,
    Head,
    Bitfit,
    Lora,
    Adapter,
}

impl StepBench {
    pub fn run(self, output: Output) -> Outcome {
        self.check()?;
        match self.cpu {
            None => self.measure(output),
            Some(_) if self.device.is_gpu() => {
                Err(Failure::arguments("--cpu is for the CPU: add --device cpu"))
            }
            Some(level) => level
                .run(|| self.measure(output))
                .map_err(|error| Failure::arguments(format!("--cpu: {error}")))?,
        }
    }

    fn measure(&self, output: Output) -> Outcome {
        let batch = self.random_batch(self.shape.task_head());
        let mut contender = Contender::new(self, self.method, &batch)?;
        if self.on_request {
            return self.answer_requests(&mut contender, &batch);
        }
        let mut other = match self.beside {
            Some(method) => Some(Contender::new(self, method, &batch)?),
            None => None,
        };
        let (mut times, mut others) = (Vec::new(), Vec::new());
        for number in 0..self.steps as u64 + 3 {
            let took = contender.step(&batch, number, self.update)?;
            let beside =
                other.as_mut().map(|other| other.step(&batch, number, self.update)).transpose()?;
            if number >= 3 {
                times.push(took);
                others.extend(beside);
            }
        }
        let ratio = other
            .map(|_| median(times.iter().zip(&others).map(|(own, peer)| own / peer).collect()));
        let (step_ms, beside_ms) = (median(times), ratio.map(|_| median(others)));
        let speed = 1e3 * self.batch as f64 / step_ms;
        let memory = peak_memory();
        if output.json {
            let mut figures = json!({
                "step_ms": step_ms, "examples_per_second": speed, "peak_memory_bytes": memory,
                "device_memory_bytes": contender.device_memory(),
            });
            if let (Some(ratio), Some(beside)) = (ratio, beside_ms) {
                figures["beside"] = json!({ "step_ms": beside, "ratio": ratio });
            }
            output::json(&figures);
        } else {
            let memory = memory
                .map_or("unknown".to_owned(), |bytes| format!("{:.2} GB", bytes as f64 / 1e9));
            let mut rows = vec![
                ("step", format!("{step_ms:.1} ms")),
                ("speed", format!("{speed:.1} examples/s")),
                ("memory", memory),
            ];
            if let (Some(ratio), Some(beside)) = (ratio, beside_ms) {
                rows.push(("beside", format!("{beside:.1} ms")));
                rows.push((
                    "ratio",
                    format!("{ratio:.3} (median over pairs of steps; the memory is that of both)"),
                ));
            }
            output::rows(&rows);
        }
        Ok(())
    }

    /// Rejects implausibly large sizes before allocating memory.
    fn check(&self) -> Outcome {
        self.shape.check()?;
        within("--batch", self.batch, 1..=1 << 20)?;
        within("--tokens", self.tokens, 2..=1 << 20)?;
        within("--steps", self.steps, 1..=1_000_000)?;
        if self.batch * self.tokens > 1 << 26 {
            return Err(Failure::arguments("--batch times --tokens must be at most 67108864"));
        }
        Ok(())
    }

    fn answer_requests(&self, contender: &mut Contender, batch: &Batch) -> Outcome {
        for (number, line) in std::io::stdin().lines().enumerate() {
            line.map_err(|error| {
                Failure::arguments(format!("standard input cannot be read: {error}"))
            })?;
            let step_ms = contender.step(batch, number as u64, self.update)?;
            output::json(&json!({
                "step_ms": step_ms,
                "peak_memory_bytes": peak_memory(),
                "device_memory_bytes": contender.device_memory(),
            }));
        }
        Ok(())
    }

    /// A model with random weights, some of which are trainable.
    fn model(&self) -> Result<Model, Failure> {
        let mut model = self.shape.model(self.tokens)?;
        let lora = LoraSettings {
            rank: self.size.unwrap_or(8),
            targets: self.lora_targets(&model),
            ..LoraSettings::default()
        };
        let adapter =
            AdapterSettings { size: self.size.unwrap_or(64), ..AdapterSettings::default() };
        let tuning = match self.tuning {
            Kind::Full => Tuning::Full,
            Kind::Head => Tuning::Head,
            Kind::Bitfit => Tuning::Bitfit,
            Kind::Lora => Tuning::Lora(lora),
            Kind::Adapter => Tuning::Adapter(adapter),
        };
        model.apply_tuning(&tuning, 2)?;
        Ok(model)
    }

    /// The name suffixes of the layers with LoRA.
    fn lora_targets(&self, model: &Model) -> Vec<String> {
        if self.targets != ["all"] {
            return self.targets.clone();
        }
        let layers = model.network.blocks.iter().flat_map(|block| block.linear_layers());
        let mut ends: Vec<String> = layers
            .map(|layer| layer.name.rsplit('.').next().unwrap_or_default().to_owned())
            .collect();
        ends.sort();
        ends.dedup();
        ends
    }

    fn random_batch(&self, task_head: TaskHead) -> Batch {
        // Any mixture of tokens will do; the time does not depend on them.
        let token = |i: usize| {
            ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize % self.shape.vocabulary
        };
        let examples: Vec<Example> = (0..self.batch)
            .map(|row| Example {
                tokens: (0..self.tokens).map(|i| token(row * self.tokens + i) as u32).collect(),
                segments: Vec::new(),
                target: match task_head {
                    TaskHead::CausalLanguageModel => Target::Next { from: 1 },
                    _ => Target::Class((row % 2) as u32),
                },
                unit: row as u32,
            })
            .collect();
        Batch::pack(&examples)
    }
}
