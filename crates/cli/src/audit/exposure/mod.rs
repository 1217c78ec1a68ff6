//! `undertone audit exposure`: how likely is a secret to the model, compared with all alternatives?

mod digits;
mod found;
mod planted;

pub use found::FoundArguments;
pub use planted::read;

use super::private_things::FinderArguments;
use super::run_folder::{AuditedRun, any_language_model};
use crate::arguments::{ConfidenceArgument, RunArgument, SeedArgument, up_to};
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use crate::ranks::RankArguments;
use clap::Args;
use std::path::{Path, PathBuf};
use undertone::audit::exposure::{Exposure as Exposed, mean_reciprocal_rank};
use undertone::audit::secret::Hidden;
use undertone::audit::statistics::{Interval, mean};
use undertone::collective::Ranks;
use undertone_run::audit::{ExposureOfKind, FoundSecrets, SecretExposure};

/// Measure the exposure of secrets in a language model: planted canaries, or PII of the training
/// texts
///
/// The exposure of a secret is log₂(candidates) − log₂(rank) bits, where its likelihood is ranked
/// among that of all candidates. Candidates are all ways to fill the secret's digits, or a sample
/// of them; a found secret with fewer than four digits is compared with the others of its kind.
///
/// For planted secrets (`--canaries`), each line of the file is {"text": "the code is ####",
/// "secret": "1234"}, where every # stands for a digit. Found secrets (`--found`) are the names,
/// e-mail addresses, phone numbers and postal addresses in the training texts.
#[derive(Args)]
#[command(after_help = "Examples:\n  undertone audit exposure --run runs/mail --canaries \
     canaries.jsonl\n  undertone audit exposure --run runs/mail --found --kind phone,person")]
pub struct Exposure {
    #[command(flatten)]
    target: RunArgument,
    /// File of planted secrets (JSON Lines)
    #[arg(long, value_name = "FILE", conflicts_with = "found", required_unless_present = "found")]
    canaries: Option<PathBuf>,
    /// Attack the PII found in the run's training texts
    #[arg(long)]
    found: bool,
    #[command(flatten)]
    asked: ExposureArguments,
    #[command(flatten)]
    of_found: FoundArguments,
    #[command(flatten)]
    finder: FinderArguments,
    #[command(flatten)]
    device: DeviceArguments,
    #[command(flatten)]
    together: RankArguments,
}

/// Number of candidates, and the confidence level.
#[derive(Args)]
pub struct ExposureArguments {
    /// Maximum number of candidates to rank, at least 100; sampled at random if there are more
    #[arg(long, default_value_t = 10_000, value_parser = up_to(10_000_000))]
    pub candidates: usize,
    /// Tokens of a secret to hide from a masked language model at a time
    #[arg(long, value_enum, default_value = "together")]
    pub hidden: Hidden,
    #[command(flatten)]
    pub random: SeedArgument,
    #[command(flatten)]
    pub intervals: ConfidenceArgument,
}

impl Exposure {
    pub fn run(self, output: Output) -> Outcome {
        self.together.together(|ranks| self.run_on(ranks, output))
    }

    fn run_on(&self, ranks: &Ranks, output: Output) -> Outcome {
        let run = AuditedRun::open(&self.target.run)?.on(ranks);
        any_language_model(&run, "exposure")?;
        match &self.canaries {
            Some(file) if self.finder.is_given() => Err(Failure::arguments(format!(
                "--kind, --names, --tagger and --spans apply to --found only; {} lists the planted \
                 secrets",
                file.display()
            ))),
            Some(file) => self.planted(&run, file, output),
            None => self.found(&run, output),
        }
    }

    fn planted(&self, run: &AuditedRun, file: &Path, output: Output) -> Outcome {
        let canaries = read(file)?;
        let trained = self.asked.planted(run, true, &canaries, &self.device)?;
        let pretrained = self.asked.planted(run, false, &canaries, &self.device)?;
        let rows: Vec<SecretExposure> = canaries
            .iter()
            .zip(trained.iter().zip(&pretrained))
            .map(|(canary, (trained, pretrained))| SecretExposure {
                text: canary.text.clone(),
                trained: *trained,
                pretrained: *pretrained,
            })
            .collect();
        run.keep(|audit| audit.exposure = rows.clone())?;
        if output.json {
            output::json(&rows);
            return Ok(());
        }
        let cells = |row: &SecretExposure| {
            let bits = |exposed: &Exposed| {
                format!("{:.1}{}", exposed.bits, if exposed.exact { "" } else { " (estimate)" })
            };
            vec![
                row.text.clone(),
                bits(&row.trained),
                bits(&row.pretrained),
                format!("{:.1}", row.trained.most),
            ]
        };
        output::table(
            &["secret", "exposure, bits", "pretrained model", "at most"],
            &rows.iter().map(cells).collect::<Vec<_>>(),
        );
        for (name, exposures) in [("trained", &trained), ("pretrained", &pretrained)] {
            let mean = self.asked.mean(exposures);
            output::line(format_args!(
                "\n{name}: mean exposure {:.2} bits ({:.2} … {:.2}), mean reciprocal rank {:.3}",
                mean.estimate,
                mean.lower,
                mean.upper,
                mean_reciprocal_rank(
                    &exposures.iter().map(|exposed| exposed.rank).collect::<Vec<_>>()
                ),
            ));
        }
        output::line("An unseen secret has an exposure of 1.44 bits on average.");
        Ok(())
    }

    fn found(&self, run: &AuditedRun, output: Output) -> Outcome {
        let (training, _) = self.finder.read(run)?;
        let mut rows: Vec<ExposureOfKind> = Vec::new();
        for kind in self.finder.kinds() {
            let secrets = self.of_found.secrets(&training, kind, &self.asked);
            if secrets.is_empty() {
                continue;
            }
            let of = |trained: bool| self.asked.found(run, trained, &secrets, &self.device);
            rows.push(ExposureOfKind { kind, trained: of(true)?, pretrained: of(false)? });
        }
        if rows.is_empty() {
            return Err(Failure::arguments(
                "no secrets that can be compared with others were found in the training texts; see \
                 --kind, --names and --tagger",
            ));
        }
        run.keep(|audit| audit.found_exposure = rows.clone())?;
        if output.json {
            output::json(&rows);
            return Ok(());
        }
        let cells = |(row, name, of_secrets): (&ExposureOfKind, &str, &FoundSecrets)| {
            let of = |i: &Interval, digits: usize| {
                format!("{:.digits$} ({:.digits$} … {:.digits$})", i.estimate, i.lower, i.upper)
            };
            let most = of_secrets.exposures.iter().map(|exposure| exposure.most).sum::<f64>();
            vec![
                row.kind.plural().to_owned(),
                name.to_owned(),
                of_secrets.exposures.len().to_string(),
                of(&of_secrets.exposure, 2),
                format!("{:.1}", most / of_secrets.exposures.len().max(1) as f64),
                of(&of_secrets.mean_reciprocal_rank, 4),
            ]
        };
        let models = rows
            .iter()
            .flat_map(|row| [(row, "trained", &row.trained), (row, "pretrained", &row.pretrained)]);
        output::table(
            &["kind", "model", "secrets", "exposure, bits", "at most", "mean reciprocal rank"],
            &models.map(cells).collect::<Vec<_>>(),
        );
        output::line(format_args!(
            "\nMeans over the secrets, with {:.0} % confidence intervals. An unseen secret has an \
             exposure of 1.44 bits on average. Ranks are those of the secret's tokens in the \
             vocabulary.",
            self.asked.intervals.percent()
        ));
        Ok(())
    }
}

impl ExposureArguments {
    fn check(&self) -> Outcome {
        match self.candidates < 100 {
            true => Err(Failure::arguments("--candidates must be at least 100")),
            false => Ok(()),
        }
    }

    /// The mean exposure in bits, with its bootstrap interval.
    pub fn mean(&self, exposures: &[Exposed]) -> Interval {
        mean(
            &exposures.iter().map(|exposed| exposed.bits).collect::<Vec<_>>(),
            self.intervals.confidence,
            self.random.seed,
        )
    }
}
