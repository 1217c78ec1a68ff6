//! The `undertone` command.

mod budget;
mod demo;
mod failure;
mod output;
mod plot;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Fine-tune language models on private text with a privacy guarantee that is proved.
#[derive(Parser)]
#[command(version, about, allow_negative_numbers = true, propagate_version = true)]
#[command(after_help = "Example:\n  undertone budget epsilon --noise-multiplier 1.1 --examples 60000 --batch 256 --epochs 60 --delta 1e-5")]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// See it at work: no files, no network, a few seconds
    Demo(demo::Demo),
    /// The privacy accountant as a calculator
    #[command(subcommand, allow_negative_numbers = true)]
    Budget(budget::Budget),
}

fn main() -> ExitCode {
    let command = Command::parse();
    let done = match command.verb {
        Verb::Demo(demo) => demo.run(),
        Verb::Budget(budget) => budget.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}
