//! The `undertone` command.

mod arguments;
mod audit;
mod before_training;
mod bench;
mod budget;
mod demo;
mod device;
mod dry_run;
mod failure;
mod init;
mod live;
mod model;
mod output;
mod owner;
mod provider;
mod ranks;
mod report;
mod source;
mod stop;
mod sweep;
mod train;
mod use_model;

use crate::failure::Failure;
use crate::output::Output;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Chat templates are programs of others: it holds their memory within bounds.
#[global_allocator]
static ALLOCATOR: undertone::BoundedAllocator = undertone::BoundedAllocator;

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
    /// Print the answer as JSON, for programs
    #[arg(long, global = true)]
    json: bool,
}

// There is one value of this type in a run, so its size does not matter.
#[allow(clippy::large_enum_variant)]
#[derive(Subcommand)]
enum Verb {
    /// Train, attack and report on an embedded corpus: no files, no network, a few minutes
    Demo(demo::Demo),
    /// Look at a data file and write a run file with good settings
    #[command(allow_negative_numbers = true)]
    Init(init::Init),
    /// The privacy accountant as a calculator
    #[command(subcommand, allow_negative_numbers = true)]
    Budget(budget::Budget),
    /// Fine-tune a model as a run file says
    #[command(allow_negative_numbers = true)]
    Train(train::Train),
    /// Follow a training run that was started elsewhere
    Watch(live::Watch),
    /// Train a grid of methods, hyperparameters and seeds, and make a table of it
    Sweep(sweep::Sweep),
    /// Evaluate a model on a file: accuracy, F1 and loss, or perplexity
    Eval(use_model::Eval),
    /// Predict the label, or the loss, of each row of a file
    Predict(use_model::Predict),
    /// Continue prompts with a language model
    Generate(use_model::Generate),
    /// Merge a LoRA into the weights of its base model
    Merge(use_model::Merge),
    #[command(subcommand)]
    Model(model::ModelVerb),
    /// Attack a trained model or perturbed embeddings, to test a guarantee
    #[command(subcommand)]
    Audit(audit::Audit),
    Report(report::Report),
    #[command(subcommand)]
    Provider(provider::Provider),
    Contribute(owner::Contribute),
    Query(owner::Query),
    Device(device::List),
    /// Measure the speed of this machine
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
        output::error(&format!("{sentence} (--help shows what can be given)"));
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
    let output = Output { json: command.json };
    if let Err(unusable) = undertone::tensor::CpuLevel::from_environment() {
        output::error(&format!("error: {unusable}"));
        return ExitCode::from(2);
    }
    let done = match command.verb {
        Verb::Demo(demo) => demo.run(output),
        Verb::Init(init) => init.run(output),
        Verb::Budget(budget) => budget.run(output),
        Verb::Train(train) => train.run(output),
        Verb::Watch(watch) => watch.run(output),
        Verb::Sweep(sweep) => sweep.run(output),
        Verb::Eval(eval) => eval.run(output),
        Verb::Predict(predict) => predict.run(output),
        Verb::Generate(generate) => generate.run(output),
        Verb::Merge(merge) => merge.run(output),
        Verb::Model(verb) => verb.run(output),
        Verb::Audit(audit) => audit.run(output),
        Verb::Report(report) => report.run(output),
        Verb::Provider(provider) => provider.run(output),
        Verb::Contribute(contribute) => contribute.run(output),
        Verb::Query(query) => query.run(output),
        Verb::Device(list) => list.run(output),
        Verb::Bench(bench) => bench.run(output),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            match failure {
                Failure::Stopped(ref how_to_go_on) => output::note(how_to_go_on),
                ref mistake => output::error(&format!("error: {mistake}")),
            }
            failure.exit_code()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_of_all_verbs_go_together() {
        Command::command().debug_assert();
    }

    #[test]
    fn json_is_read_before_and_behind_a_verb() {
        for line in ["undertone --json merge", "undertone merge --json", "undertone merge"] {
            let words = line.split(' ').chain(["--model", "a", "--adapter", "b", "--out", "c"]);
            let command = Command::try_parse_from(words).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(command.json, line.contains("--json"), "{line}");
        }
    }

    #[test]
    fn old_names_of_arguments_are_still_read() {
        for line in [
            "audit all --run a --open b",
            "audit inversion --model a --data b --known c --records 1 --known-records 2",
        ] {
            let words = std::iter::once("undertone").chain(line.split(' '));
            Command::try_parse_from(words).unwrap_or_else(|e| panic!("{e}"));
        }
    }
}
