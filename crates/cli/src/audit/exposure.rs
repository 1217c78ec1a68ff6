//! `undertone audit exposure`: how likely is a planted secret among all that could have been planted?

use super::run_folder::FinishedRun;
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use crate::output;
use clap::Args;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;
use undertone::audit::exposure::{Exposure as Found, exact, mean_reciprocal_rank, sampled};
use undertone::data::{Dataset, Options, Task};
use undertone::evaluate::{Limits, predict};
use undertone::model::folder::locate;
use undertone::model::{Model, Purpose};

/// How likely a language model holds planted secrets, among all that could have been planted
///
/// Each line of the file is {"text": "the code is ####", "secret": "1234"}: every # stands for a digit. All ways to fill them are ranked by their likelihood, or a sample of them where there are too many.
#[derive(Args)]
#[command(after_help = "Example:\n  undertone audit exposure --run runs/mail --canaries canaries.jsonl")]
pub struct Exposure {
    /// Folder of the finished run, of a language model
    #[arg(long, value_name = "DIR")]
    run: PathBuf,
    /// File of planted secrets (JSON lines)
    #[arg(long, value_name = "FILE")]
    canaries: PathBuf,
    /// Candidates that are asked for at most; where there are more, as many are drawn
    #[arg(long, default_value_t = 10_000)]
    candidates: usize,
    /// Draws the candidates
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    device: DeviceArguments,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Canary {
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
}

#[derive(Serialize)]
struct Row {
    text: String,
    trained: Found,
    untouched: Found,
}

impl Exposure {
    pub fn run(self) -> Outcome {
        let run = FinishedRun::open(&self.run)?;
        if run.plan.purpose() != Purpose::CausalLanguageModel {
            return Err(Failure::arguments(
                "exposure is for language models; of a classifier, audit membership or one-run",
            ));
        }
        if self.candidates < 100 {
            return Err(Failure::arguments("--candidates must be at least 100"));
        }
        let canaries = self.read()?;
        let (trained, untouched) = (run.model(true, &self.device)?, run.model(false, &self.device)?);
        let mut rows = Vec::new();
        for canary in &canaries {
            let others = self.others(canary);
            let texts: Vec<String> =
                std::iter::once(&canary.secret).chain(&others).map(|secret| canary.filled(secret)).collect();
            let judge = |model: &Model| -> Outcome<Found> {
                let losses = self.losses(&run, model, &texts)?;
                let whole = 10_f64.powi(canary.digits() as i32) <= self.candidates as f64;
                Ok(match whole {
                    true => exact(losses[0], &losses[1..]),
                    false => sampled(losses[0], &losses[1..], canary.digits() as f64 * 10_f64.log2()),
                })
            };
            rows.push(Row {
                text: canary.text.clone(),
                trained: judge(&trained)?,
                untouched: judge(&untouched)?,
            });
        }
        run.keep("exposure", json!(rows))?;
        if self.json {
            output::json(&rows);
            return Ok(());
        }
        let cells = |row: &Row| {
            let bits =
                |found: &Found| format!("{:.1}{}", found.bits, if found.exact { "" } else { " (estimate)" });
            vec![
                row.text.clone(),
                bits(&row.trained),
                bits(&row.untouched),
                format!("{:.1}", row.trained.most),
            ]
        };
        output::table(
            &["secret", "exposure, bits", "untouched model", "at most"],
            &rows.iter().map(cells).collect::<Vec<_>>(),
        );
        let ranks =
            |pick: &dyn Fn(&Row) -> f64| mean_reciprocal_rank(&rows.iter().map(pick).collect::<Vec<_>>());
        output::line(format_args!(
            "\nmean reciprocal rank {:.3}, of the untouched model {:.3}; an unseen secret has an exposure of 1.4 on average",
            ranks(&|row| row.trained.rank),
            ranks(&|row| row.untouched.rank)
        ));
        Ok(())
    }

    fn read(&self) -> Outcome<Vec<Canary>> {
        let wrong = |why: String| Failure::arguments(format!("{}: {why}", self.canaries.display()));
        let text =
            std::fs::read_to_string(&self.canaries).map_err(|e| wrong(format!("cannot be read: {e}")))?;
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

    /// All other ways to fill the digits, or some of them.
    fn others(&self, canary: &Canary) -> BTreeSet<String> {
        let digits = canary.digits();
        let space = 10_u64.pow(digits as u32);
        let name = |i: u64| format!("{i:0digits$}");
        let mut others: BTreeSet<String> = BTreeSet::new();
        if space <= self.candidates as u64 {
            others.extend((0..space).map(name));
        } else {
            let mut random = ChaCha8Rng::seed_from_u64(self.seed);
            while others.len() < self.candidates {
                others.insert(name(random.next_u64() % space));
            }
        }
        others.remove(&canary.secret);
        others
    }

    /// The negative log-likelihood of each text.
    fn losses(&self, run: &FinishedRun, model: &Model, texts: &[String]) -> Outcome<Vec<f64>> {
        let failed = |e: std::io::Error| Failure::write(&run.folder, e);
        let folder = tempfile::tempdir().map_err(failed)?;
        let path = folder.path().join("texts.jsonl");
        let lines: String = texts.iter().map(|text| format!("{}\n", json!({ "text": text }))).collect();
        std::fs::write(&path, lines).map_err(failed)?;
        let name = run.plan.model.path.as_deref().or(run.plan.model.hub.as_deref()).unwrap_or_default();
        let tokeniser = model.tokeniser(&locate(name)?, run.plan.data.max_tokens)?;
        let task = Task::LanguageModelling { text: "text".into() };
        let data = Dataset::load(&path, &task, &tokeniser, None, &Options::default())?;
        let said = predict(model, &data.examples, Limits::default(), false)?;
        Ok(said
            .iter()
            .map(|said| said.loss.map_or(f64::NAN, |loss| f64::from(loss) * said.predictions as f64))
            .collect())
    }
}
