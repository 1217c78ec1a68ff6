//! `budget certify`.

use super::ledger::Read;
use super::releases::Releases;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use undertone_accounting::certificate::{Certified, FORMAT, Target, certify};
use undertone_accounting::{Composition, Mode};
use undertone_run::{check_output, write_atomically};

/// Write a certificate of ε that others can check without Undertone
///
/// A certificate lists the releases, a discretized dominating pair for each of them in exact
/// integers, and δ at ε. checker/check_certificate.py recomputes every number in rational
/// arithmetic. The certified ε is at most 0.5 % above the accountant's.
#[derive(Args)]
#[command(after_help = "Examples:
  undertone budget certify runs/demo/sort-epsilon-8 --out certificate.json
  undertone budget certify --noise-multiplier 1.5 --sampling-rate 0.04 --steps 2250 --delta 1e-5 \
                        --out certificate.json
  python3 checker/check_certificate.py certificate.json")]
pub struct Certify {
    /// Run folder or ledger (JSON Lines) to certify; for planned releases, use the options instead
    #[arg(
        value_name = "RUN|LEDGER",
        conflicts_with_all = [
            "noise_multiplier", "phase", "releases", "sensitivity", "response", "adjacency",
            "sampling_rate", "steps", "examples", "batch", "epochs", "examples_per_user",
        ]
    )]
    path: Option<PathBuf>,
    /// Certificate file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// δ at which to certify ε [default: the run's δ]
    #[arg(long, conflicts_with = "epsilon")]
    delta: Option<f64>,
    /// ε at which to certify δ
    #[arg(long)]
    epsilon: Option<f64>,
    #[command(flatten)]
    releases: Releases,
}

impl Certify {
    pub fn run(self, output: Output) -> Outcome {
        let read = self.path.as_deref().map(Read::open).transpose()?;
        let composition = match &read {
            Some(read) => proved(read)?,
            None => self.releases.composition()?,
        };
        let target = self.target(read.as_ref())?;
        let ledger = read.as_ref().map(Read::ledger_file);
        let reads: Vec<_> = ledger.iter().map(PathBuf::as_path).collect();
        check_output(&self.out, &reads, |text| text.contains(FORMAT))?;
        let certified = certify(&composition, target)?;
        let text = serde_json::to_string(&certified.certificate)
            .map_err(|e| Failure::Write { path: self.out.clone(), why: e.to_string() })?;
        write_atomically(&self.out, |file| writeln!(file, "{text}"))?;
        self.show(&certified, target, output);
        Ok(())
    }

    fn target(&self, read: Option<&Read>) -> Outcome<Target> {
        match (self.epsilon, self.delta, read) {
            (Some(epsilon), _, _) => Ok(Target::Epsilon(epsilon)),
            (None, Some(delta), _) => Ok(Target::Delta(delta)),
            (None, None, Some(read)) => Ok(Target::Delta(read.delta(None)?)),
            (None, None, None) => Err(Failure::arguments(
                "pass --delta to certify ε at this δ, or --epsilon to certify δ at this ε",
            )),
        }
    }

    fn show(&self, certified: &Certified, target: Target, output: Output) {
        let Certified { certificate, epsilon, delta, accountant } = certified;
        if output.json {
            output::json(&json!({
                "epsilon": epsilon,
                "delta": delta,
                "accountant_upper": accountant,
                "adjacency": certificate.adjacency,
                "certificate": self.out,
            }));
            return;
        }
        let accountant = match target {
            Target::Delta(_) => format!("ε ≤ {}", output::up(*accountant)),
            Target::Epsilon(_) => format!("δ ≤ {}", output::delta_up(*accountant)),
        };
        output::rows(&[
            ("ε", certificate.epsilon.clone()),
            ("δ", output::delta_up(*delta)),
            ("accountant", accountant),
            ("adjacency", certificate.adjacency.to_string()),
            ("certificate", self.out.display().to_string()),
        ]);
        output::line("");
        output::line(format_args!(
            "Anybody can check it: python3 checker/check_certificate.py {}",
            self.out.display()
        ));
    }
}

/// The composition in the ledger, if its ε is a guarantee.
fn proved(read: &Read) -> Outcome<Composition> {
    let why = match read.mode() {
        Mode::Proved => return Ok(read.spent().clone()),
        Mode::Paper => "ran as published, which releases more than the ledger records",
        Mode::Seeded => "drew its noise from a known seed",
    };
    Err(Failure::arguments(format!(
        "{} {why}: there is no guarantee to certify",
        read.path().display()
    )))
}
