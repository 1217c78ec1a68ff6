//! The `undertone-provider` command: local DP over a network. A provider creates a task, receives
//! releases, trains on them and answers queries. Owners contribute perturbed embeddings and send
//! queries.

mod failure;
mod init;
mod log;
mod owner;
mod serve;
mod task;
mod tokens;
mod train;

pub(crate) use undertone_terminal::{device, output, stop};

use crate::output::Output;
use clap::{Parser, Subcommand};
use std::process::ExitCode;
use undertone::tensor::CpuLevel;

/// Limits the memory of tokenizers and chat templates, which come with third-party models.
#[global_allocator]
static ALLOCATOR: undertone::BoundedAllocator = undertone::BoundedAllocator;

/// Fine-tune a model on texts that never leave their owners, with local differential privacy
#[derive(Parser)]
#[command(version, about, allow_negative_numbers = true, propagate_version = true)]
#[command(after_help = "Example:\n  undertone-provider init task.toml --out task/")]
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
    Init(init::Init),
    Serve(serve::Serve),
    #[command(subcommand)]
    Tokens(tokens::Tokens),
    Train(train::Train),
    Contribute(owner::Contribute),
    Query(owner::Query),
}

fn main() -> ExitCode {
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(error) => return undertone_terminal::misread(&error),
    };
    let output = Output { json: command.json };
    if let Err(unusable) = CpuLevel::from_environment() {
        output::error(&format!("error: {unusable}"));
        return ExitCode::from(2);
    }
    undertone::data::observe_reading(output::show_reading);
    let done = match command.verb {
        Verb::Init(init) => init.run(output),
        Verb::Serve(serve) => serve.run(output),
        Verb::Tokens(tokens) => tokens.run(output),
        Verb::Train(train) => train.run(output),
        Verb::Contribute(contribute) => contribute.run(output),
        Verb::Query(query) => query.run(output),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::error(&format!("error: {failure}"));
            failure.exit_code()
        }
    }
}

#[cfg(test)]
#[path = "../../../../../tests/reference"]
mod reference {
    pub mod commands;
    #[path = "mod.rs"]
    pub mod pages;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{commands, pages};
    use clap::CommandFactory;

    #[test]
    fn the_command_reference_is_what_clap_has() {
        let text = commands::reference(Command::command());
        pages::assert_generated("docs/cli.md", "provider", &text);
    }

    #[test]
    fn arguments_of_all_verbs_go_together() {
        Command::command().debug_assert();
    }
}
