//! `undertone audit exposure`: how likely is a planted secret among all that could have been
//! planted?

use super::progress;
use super::run_folder::{AuditedRun, language_model};
use crate::arguments::{ConfidenceArgument, RunArgument, SeedArgument, up_to};
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use undertone::audit::exposure::{Exposure as Found, exact, mean_reciprocal_rank, sampled};
use undertone::audit::statistics::{Interval, mean};
use undertone::audit::texts::Writer;
use undertone_run::audit::SecretExposure;

/// Exposure of planted secrets (canaries): how likely the language model finds them, among all that
/// could have been planted
///
/// Each line of the file is {"text": "the code is ####", "secret": "1234"}: every # stands for a
/// digit. All ways to fill them are ranked by their likelihood, or a sample of them where there are
/// too many.
#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone audit exposure --run runs/mail --canaries canaries.jsonl"
)]
pub struct Exposure {
    #[command(flatten)]
    target: RunArgument,
    /// File of planted secrets (JSON lines)
    #[arg(long, value_name = "FILE")]
    canaries: PathBuf,
    #[command(flatten)]
    asked: ExposureArguments,
    #[command(flatten)]
    device: DeviceArguments,
}

/// How many candidates are ranked, and how sure the answer is.
#[derive(Args)]
pub struct ExposureArguments {
    /// Candidates that are ranked at most; where there are more, so many are drawn
    #[arg(long, default_value_t = 10_000, value_parser = up_to(10_000_000))]
    pub candidates: usize,
    #[command(flatten)]
    pub random: SeedArgument,
    #[command(flatten)]
    pub intervals: ConfidenceArgument,
}

/// A planted secret: a text with a `#` for each digit, and the digits.
#[derive(Deserialize)]
pub struct Canary {
    text: String,
    secret: String,
}

impl Canary {
    fn digits(&self) -> usize {
        self.text.matches('#').count()
    }

    /// The text with its digits filled in.
    fn filled(&self, secret: &str) -> String {
        let mut digits = secret.chars();
        self.text.chars().map(|c| if c == '#' { digits.next().unwrap_or('0') } else { c }).collect()
    }

    /// All other ways to fill the digits, or some of them.
    fn others(&self, most: usize, seed: u64) -> BTreeSet<String> {
        let digits = self.digits();
        let space = 10_u64.pow(digits as u32);
        let name = |i: u64| format!("{i:0digits$}");
        let mut others: BTreeSet<String> = BTreeSet::new();
        if space <= most as u64 {
            others.extend((0..space).map(name));
        } else {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            while others.len() < most {
                others.insert(name(random.next_u64() % space));
            }
        }
        others.remove(&self.secret);
        others
    }
}

impl Exposure {
    pub fn run(self, output: Output) -> Outcome {
        let run = AuditedRun::open(&self.target.run)?;
        language_model(&run, "exposure")?;
        let canaries = read(&self.canaries)?;
        let trained = self.asked.attack(&run, true, &canaries, &self.device)?;
        let pretrained = self.asked.attack(&run, false, &canaries, &self.device)?;
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
            let bits = |found: &Found| {
                format!("{:.1}{}", found.bits, if found.exact { "" } else { " (estimate)" })
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
        for (name, found) in [("trained", &trained), ("pretrained", &pretrained)] {
            let mean = self.asked.mean(found);
            output::line(format_args!(
                "\n{name}: mean exposure {:.2} bits ({:.2} … {:.2}), mean reciprocal rank {:.3}",
                mean.estimate,
                mean.lower,
                mean.upper,
                mean_reciprocal_rank(&found.iter().map(|found| found.rank).collect::<Vec<_>>()),
            ));
        }
        output::line("An unseen secret has an exposure of 1.44 bits on average.");
        Ok(())
    }
}

impl ExposureArguments {
    /// The exposure of each secret in the run's model, or in the one that it began from.
    pub fn attack(
        &self,
        run: &AuditedRun,
        trained: bool,
        canaries: &[Canary],
        device: &DeviceArguments,
    ) -> Outcome<Vec<Found>> {
        if self.candidates < 100 {
            return Err(Failure::arguments("--candidates must be at least 100"));
        }
        let model = run.model(trained, device)?;
        let tokeniser = run.tokeniser(&model)?;
        let writer = Writer { model: &model, tokeniser: &tokeniser };
        let bar = progress(canaries.len(), "secrets");
        let mut all = Vec::new();
        for canary in canaries {
            let others = canary.others(self.candidates, self.random.seed);
            let texts: Vec<String> = std::iter::once(&canary.secret)
                .chain(&others)
                .map(|secret| canary.filled(secret))
                .collect();
            let losses: Vec<f64> = writer.losses(&texts)?.into_iter().map(|(sum, _)| sum).collect();
            let bits = canary.digits() as f64 * 10_f64.log2();
            all.push(match bits.exp2() <= self.candidates as f64 + 0.5 {
                true => exact(losses[0], &losses[1..]),
                false => sampled(losses[0], &losses[1..], bits),
            });
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(all)
    }

    /// The mean exposure in bits, with its bootstrap interval.
    pub fn mean(&self, found: &[Found]) -> Interval {
        mean(
            &found.iter().map(|found| found.bits).collect::<Vec<_>>(),
            self.intervals.confidence,
            self.random.seed,
        )
    }
}

/// The planted secrets of a file.
pub fn read(path: &Path) -> Outcome<Vec<Canary>> {
    let wrong = |why: String| Failure::arguments(format!("{}: {why}", path.display()));
    let text =
        undertone_run::read_settings(path).map_err(|e| wrong(format!("cannot be read: {e}")))?;
    let mut canaries = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let canary: Canary =
            serde_json::from_str(line).map_err(|e| wrong(format!("line {}: {e}", i + 1)))?;
        let fits = canary.digits() > 0
            && canary.digits() <= 18
            && canary.secret.len() == canary.digits()
            && canary.secret.bytes().all(|b| b.is_ascii_digit());
        if !fits {
            return Err(wrong(format!(
                "line {}: the secret must have a digit for every # of the text, at most 18",
                i + 1
            )));
        }
        canaries.push(canary);
    }
    if canaries.is_empty() {
        return Err(wrong("holds no secrets".into()));
    }
    Ok(canaries)
}
