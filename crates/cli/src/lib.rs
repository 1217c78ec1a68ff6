//! The verbs of the `undertone` program, as a library: `src/bin/undertone.rs` is the program, and
//! `bindings/python` runs attacks, synthesizes rows and loads trained models with the same code.

mod arguments;
pub mod audit;
pub mod before_training;
mod bench;
mod budget;
pub mod demo;
mod device;
mod display;
mod dry_run;
pub mod failure;
mod init;
mod installation;
mod live;
mod model;
mod ranks;
pub mod register;
pub mod report;
mod scan;
mod sign;
pub mod source;
mod stats;
mod sweep;
pub mod synthesize;
mod train;
mod typical;
mod unknown_flag;
pub mod use_model;

pub use train::draw;
pub(crate) use undertone_terminal::{output, stop};

use crate::failure::Failure;
use crate::output::Output;
use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Limits the memory of chat templates, which are untrusted programs.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: undertone::BoundedAllocator = undertone::BoundedAllocator;

/// Fine-tune language models on private text with differential privacy
#[derive(Parser)]
#[command(
    name = "undertone",
    version,
    about,
    allow_negative_numbers = true,
    propagate_version = true
)]
#[command(
    after_help = "Example:\n  undertone budget epsilon --noise-multiplier 1.1 --examples 60000 \
     --batch 256 --epochs 60 --delta 1e-5"
)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
    /// Print the result as JSON
    #[arg(long, global = true)]
    json: bool,
}

// Only one value of this type exists, so its size does not matter.
#[allow(clippy::large_enum_variant)]
#[derive(Subcommand)]
enum Verb {
    Demo(demo::Demo),
    #[command(allow_negative_numbers = true)]
    Init(init::Init),
    Scan(scan::Scan),
    #[command(allow_negative_numbers = true)]
    Stats(stats::Stats),
    /// Calculate ε, δ and noise multipliers with the privacy accountant
    #[command(subcommand, allow_negative_numbers = true)]
    Budget(budget::Budget),
    #[command(allow_negative_numbers = true)]
    Train(train::Train),
    Watch(live::Watch),
    Sweep(sweep::Sweep),
    Eval(use_model::Eval),
    Predict(use_model::Predict),
    Generate(use_model::Generate),
    Merge(use_model::Merge),
    #[command(allow_negative_numbers = true)]
    Synthesize(synthesize::Synthesize),
    #[command(subcommand)]
    Model(model::ModelVerb),
    #[command(subcommand)]
    Audit(audit::Audit),
    Report(report::Report),
    /// Keep privacy budgets per data set: runs reserve before they read, and never exceed the cap
    #[command(subcommand, allow_negative_numbers = true)]
    Register(register::RegisterVerb),
    Sign(sign::Sign),
    Verify(sign::Verify),
    Device(device::List),
    #[command(subcommand)]
    Bench(bench::Bench),
    #[command(subcommand, name = "self")]
    Installation(installation::Installation),
}

/// The program's commands and options, as clap builds them.
fn program() -> clap::Command {
    Command::command().name("undertone")
}

/// Reads the command line, runs the verb, and returns the exit code.
pub fn run() -> ExitCode {
    undertone::tensor::return_freed_memory();
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(error) => {
            let words: Vec<String> =
                std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
            let Some(sentence) = unknown_flag::meant_key(&error, &words) else {
                return undertone_terminal::misread(&error);
            };
            output::error(&sentence);
            return ExitCode::from(2);
        }
    };
    let output = Output { json: command.json };
    undertone::data::observe_reading(output::show_reading);
    register::provide_databases();
    if let Err(unusable) = undertone::tensor::CpuLevel::from_environment() {
        output::error(&format!("error: {unusable}"));
        return ExitCode::from(2);
    }
    let done = match command.verb {
        Verb::Demo(demo) => demo.run(output),
        Verb::Init(init) => init.run(output),
        Verb::Scan(scan) => scan.run(output),
        Verb::Stats(stats) => stats.run(output),
        Verb::Budget(budget) => budget.run(output),
        Verb::Train(train) => train.run(output),
        Verb::Watch(watch) => watch.run(output),
        Verb::Sweep(sweep) => sweep.run(output),
        Verb::Eval(eval) => eval.run(output),
        Verb::Predict(predict) => predict.run(output),
        Verb::Generate(generate) => generate.run(output),
        Verb::Merge(merge) => merge.run(output),
        Verb::Synthesize(synthesize) => synthesize.run(output),
        Verb::Model(verb) => verb.run(output),
        Verb::Audit(audit) => audit.run(output),
        Verb::Report(report) => report.run(output),
        Verb::Register(verb) => verb.run(output),
        Verb::Sign(sign) => sign.run(output),
        Verb::Verify(verify) => verify.run(output),
        Verb::Device(list) => list.run(output),
        Verb::Bench(bench) => bench.run(output),
        Verb::Installation(verb) => verb.run(output),
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
#[path = "../../../tests/reference"]
mod reference {
    pub mod commands;
    #[path = "mod.rs"]
    pub mod pages;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{commands, pages};

    #[test]
    fn the_command_reference_is_what_clap_has() {
        let text = commands::reference(program());
        pages::assert_generated("docs/cli.md", "undertone", &text);
    }

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
}
