//! The `undertone` command.

mod audit;
mod bench;
mod budget;
mod demo;
mod device;
mod failure;
mod files;
mod live;
mod output;
mod plot;
mod report;
mod sweep;
mod train;
mod use_model;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Fine-tune language models on private text with a privacy guarantee that is proved.
#[derive(Parser)]
#[command(version, about, allow_negative_numbers = true, propagate_version = true)]
#[command(
    after_help = "Example:\n  undertone budget epsilon --noise-multiplier 1.1 --examples 60000 \
     --batch 256 --epochs 60 --delta 1e-5"
)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

// There is one value of this type in a run, so its size does not matter.
#[allow(clippy::large_enum_variant)]
#[derive(Subcommand)]
enum Verb {
    /// See it at work: no files, no network, a few minutes
    Demo(demo::Demo),
    /// The privacy accountant as a calculator
    #[command(subcommand, allow_negative_numbers = true)]
    Budget(budget::Budget),
    /// Fine-tune a model as a run file says
    Train(train::Train),
    /// Watch a run that was started elsewhere
    Watch(live::Watch),
    /// Run a grid of runs, and make a table of them
    Sweep(sweep::Sweep),
    /// How good a model is on a file
    Eval(use_model::Eval),
    /// What a model says of each row of a file
    Predict(use_model::Predict),
    /// Continue texts
    Generate(use_model::Generate),
    /// Fold a LoRA into the weights of its model
    Merge(use_model::Merge),
    /// Attack what was released
    #[command(subcommand)]
    Audit(audit::Audit),
    Report(report::Report),
    /// How fast this machine is
    #[command(subcommand)]
    Bench(bench::Bench),
}

/// Help and version as they are; a mistake as one sentence, without the usage that `--help` shows.
fn misread(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let sentence = text
        .split("\n\n")
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    if sentence.starts_with("error:") {
        eprintln!("{sentence} (--help shows what can be given)");
    } else {
        // Called without a verb: clap shows the help.
        let _ = error.print();
    }
    ExitCode::from(2)
}

fn main() -> ExitCode {
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(error) => return misread(&error),
    };
    if let Err(unknown) = undertone::tensor::CpuLevel::from_environment() {
        eprintln!("error: {unknown}");
        return ExitCode::from(2);
    }
    let done = match command.verb {
        Verb::Demo(demo) => demo.run(),
        Verb::Budget(budget) => budget.run(),
        Verb::Train(train) => train.run(),
        Verb::Watch(watch) => watch.run(),
        Verb::Sweep(sweep) => sweep.run(),
        Verb::Eval(eval) => eval.run(),
        Verb::Predict(predict) => predict.run(),
        Verb::Generate(generate) => generate.run(),
        Verb::Merge(merge) => merge.run(),
        Verb::Audit(audit) => audit.run(),
        Verb::Report(report) => report.run(),
        Verb::Bench(bench) => bench.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}
