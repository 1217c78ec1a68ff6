//! `undertone self`: checks this installation, and writes shell completions and man pages.

mod check;
mod machine;
mod mechanism;
mod randomness;

use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::{Args, Subcommand};
use clap_complete::Shell;
use serde_json::json;
use std::path::PathBuf;

/// Check this installation, and write shell completions and man pages
#[derive(Subcommand)]
pub enum Installation {
    Check(check::Check),
    Completions(Completions),
    Man(Man),
}

impl Installation {
    pub fn run(self, output: Output) -> Outcome {
        match self {
            Self::Check(check) => check.run(output),
            Self::Completions(completions) => completions.run(output),
            Self::Man(man) => man.run(output),
        }
    }
}

/// Print completions for a shell
#[derive(Args)]
#[command(after_help = "Example:\n  undertone self completions bash > \
     ~/.local/share/bash-completion/completions/undertone")]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    fn run(self, output: Output) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::program(), "undertone", &mut script);
        let script = String::from_utf8_lossy(&script);
        if output.json {
            output::json(&json!({ "shell": self.shell.to_string(), "script": script }));
        } else {
            output::line(script.trim_end());
        }
        Ok(())
    }
}

/// Write a man page for each command
#[derive(Args)]
#[command(after_help = "Example:\n  undertone self man --out ~/.local/share/man/man1")]
pub struct Man {
    /// Folder for the pages
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Man {
    fn run(self, output: Output) -> Outcome {
        std::fs::create_dir_all(&self.out).map_err(|e| Failure::write(&self.out, e))?;
        clap_mangen::generate_to(crate::program(), &self.out)
            .map_err(|e| Failure::write(&self.out, e))?;
        if output.json {
            output::json(&json!({ "folder": self.out }));
        }
        Ok(())
    }
}
