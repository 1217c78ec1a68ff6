//! Model, data, hyperparameters and speed of the run.

use super::{method_name, task_name};
use crate::document::{Block, Section};
use crate::folder::Run;
use crate::settings::{base_model, clip, tuning, words_of};
use crate::words;
use undertone_run::ModeName;

pub fn section(run: &Run, level: u8) -> Section {
    let (summary, plan) = (&run.summary, &run.summary.plan);
    let (data, training, resolved) = (&plan.data, &plan.training, &summary.resolved);
    let validation = data.validation.as_ref();
    let validation = validation.map_or("none".to_owned(), |file| file.display().to_string());
    let mut facts: Vec<(&str, String)> = vec![
        ("Model", base_model(plan)),
        (
            "Trainable parameters",
            format!(
                "{} of {} ({})",
                words::count(summary.parameters.trainable),
                words::count(summary.parameters.total),
                tuning(plan)
            ),
        ),
        ("Task", task_name(data.task).to_owned()),
        ("Training file", data.train.display().to_string()),
        ("Validation file", validation),
        (
            match plan.privacy.units {
                Some(_) => "Privacy units, as declared",
                None => "Privacy units",
            },
            words::count(resolved.units),
        ),
        ("Maximum sequence length", format!("{} tokens", words::count(data.max_tokens))),
    ];
    if let Some(labels) = &data.labels {
        facts.push(("Labels", labels.join(", ")));
    }
    if let Some(author) = &data.author {
        facts.push((
            "Privacy unit",
            format!("all rows with the same {author}, at most {}", data.most_per_author),
        ));
    }
    let method = match plan.privacy.mode {
        ModeName::Paper => format!("{}, as published", method_name(plan.privacy.method)),
        ModeName::Proved => method_name(plan.privacy.method).to_owned(),
    };
    facts.push(("Method", method));
    facts.extend(clip(plan).map(|clip| ("Clipping", clip)));
    if let Some(records) = &summary.records {
        facts.push(("Width of perturbed embeddings", words::count(records.width)));
        facts.extend(
            records
                .reconstruction_error
                .map(|lost| ("Variance lost by the encoder", words::percent(lost))),
        );
        facts.extend(
            records
                .loudest_over_quietest
                .map(|ratio| ("Largest over smallest noise std of a column", words::number(ratio))),
        );
    }
    facts.extend(resolved.releases.as_ref().map(|releases| {
        ("Examples of a privacy unit, at most", words::count(releases.records_per_unit))
    }));
    facts.extend([
        (
            "Epochs and steps",
            format!(
                "{} epochs of {} steps; {} steps taken",
                training.epochs,
                words::count(resolved.steps_per_epoch),
                words::count(summary.steps)
            ),
        ),
        (
            "Batch size",
            format!(
                "{} {}{}",
                words::count(training.batch),
                if resolved.examples.is_some() { "examples" } else { "privacy units" },
                if resolved.sampling_rate.is_some() {
                    " on average (Poisson sampling)"
                } else {
                    ""
                }
            ),
        ),
        (
            "Optimizer",
            format!(
                "{}, learning rate {}, {}",
                words_of(&training.optimizer),
                training.learning_rate,
                words_of(&training.learning_rate_schedule)
            ),
        ),
    ]);
    if let Some(registered) = &resolved.registered {
        facts.push((
            "Budget",
            format!(
                "{} in the register {}, reservation {}",
                registered.dataset,
                registered.file.display(),
                registered.reservation
            ),
        ));
    }
    if let Some(seed) = training.seed {
        facts.push(("Seed", seed.to_string()));
    }
    facts.extend(summary.throughput.map(|speed| {
        let (rate, time) = (speed.examples_per_second, words::duration(speed.seconds));
        ("Speed", format!("{rate:.1} examples per second, for {time}"))
    }));
    facts.extend(
        summary
            .peak_memory_bytes
            .map(|bytes| ("Peak memory", format!("{:.2} GB", bytes as f64 / 1e9))),
    );
    facts.extend(
        summary
            .peak_gpu_memory_bytes
            .map(|bytes| ("Peak GPU memory", format!("{:.2} GB", bytes as f64 / 1e9))),
    );
    let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Section::new(level, "Model, data and training").with(Block::Facts(facts))
}
