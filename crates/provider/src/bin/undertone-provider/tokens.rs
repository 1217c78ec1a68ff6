//! `undertone-provider tokens`

use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use crate::task::TaskArguments;
use clap::{Args, Subcommand};
use serde_json::json;
use undertone_provider::store::new_token;

/// Manage the access tokens of owners
#[derive(Subcommand)]
pub enum Tokens {
    New(New),
    List(List),
    Revoke(Revoke),
}

/// Create a token for an owner
///
/// The token is printed once; the store keeps only its hash.
#[derive(Args)]
#[command(after_help = "Example:\n  undertone-provider tokens new task/ --owner clinic-7 > token")]
pub struct New {
    #[command(flatten)]
    task: TaskArguments,
    /// Name of the owner
    #[arg(long, value_name = "NAME")]
    owner: String,
    /// Maximum number of texts of the owner
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    most_texts: u64,
}

/// List the owners and their number of releases
#[derive(Args)]
#[command(after_help = "Example:\n  undertone-provider tokens list task/")]
pub struct List {
    #[command(flatten)]
    task: TaskArguments,
}

/// Revoke an owner's token
///
/// From then on, contributions and queries with this token are refused.
#[derive(Args)]
#[command(after_help = "Example:\n  undertone-provider tokens revoke task/ --owner clinic-7")]
pub struct Revoke {
    #[command(flatten)]
    task: TaskArguments,
    /// Name of the owner
    #[arg(long, value_name = "NAME")]
    owner: String,
    /// Also delete the owner's releases, so that later training does not use them; existing models
    /// do not change
    #[arg(long)]
    forget: bool,
}

impl Tokens {
    pub fn run(self, output: Output) -> Outcome {
        match self {
            Self::New(New { task, owner, most_texts }) => {
                let (_, mut store) = task.open()?;
                let token = new_token(store.as_mut(), &owner, most_texts)?;
                match output.json {
                    true => output::json(&json!({ "owner": owner, "token": token })),
                    false => output::line(token),
                }
            }
            Self::List(List { task }) => {
                let owners = task.open()?.1.owners()?;
                if output.json {
                    let each = owners.iter().map(|owner| {
                        json!({
                            "owner": owner.name, "since": owner.since, "revoked": owner.revoked,
                            "releases": owner.releases, "most_texts": owner.limit,
                        })
                    });
                    output::json(&each.collect::<Vec<_>>());
                    return Ok(());
                }
                let rows: Vec<Vec<String>> = owners
                    .iter()
                    .map(|owner| {
                        let state = if owner.revoked { "revoked" } else { "valid" };
                        vec![owner.name.clone(), owner.releases.to_string(), state.to_owned()]
                    })
                    .collect();
                output::table(&["owner", "releases", "token"], &rows);
            }
            Self::Revoke(Revoke { task, owner, forget }) => {
                let mut store = task.open()?.1;
                let unknown = || Failure::arguments(format!("there is no owner called {owner}"));
                let forgotten = match forget {
                    true => Some(store.forget(&owner)?.ok_or_else(unknown)?),
                    false if store.revoke(&owner)? => None,
                    false => return Err(unknown()),
                };
                match (output.json, forgotten) {
                    (true, forgotten) => output::json(
                        &json!({ "owner": owner, "revoked": true, "forgotten": forgotten }),
                    ),
                    (false, None) => {
                        output::line(format_args!("the token of {owner} is revoked"));
                    }
                    (false, Some(releases)) => output::line(format_args!(
                        "the token of {owner} is revoked, and {releases} releases are deleted"
                    )),
                }
            }
        }
        Ok(())
    }
}
