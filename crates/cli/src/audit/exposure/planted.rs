//! Planted secrets: a file of texts with a `#` for each digit, and the digits.

use super::ExposureArguments;
use crate::audit::progress;
use crate::audit::run_folder::AuditedRun;
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use serde::Deserialize;
use std::path::Path;
use undertone::audit::exposure::{Exposure as Found, exact, sampled};
use undertone::audit::secret::{SecretInText, SecretReader};
use undertone::audit::texts::Writer;
use undertone::model::TaskHead;

use super::digits::Digits;

/// A planted secret: a text with a `#` for each digit, and the digits.
#[derive(Deserialize)]
pub struct Canary {
    pub text: String,
    secret: String,
}

impl Canary {
    fn digits(&self) -> Digits {
        Digits { form: self.text.clone(), secret: self.secret.clone() }
    }

    /// The text before the digits, the template, and the text after it.
    fn parts(&self) -> (&str, Digits, &str) {
        let first = self.text.find('#').unwrap_or(0);
        let last = self.text.rfind('#').map_or(0, |last| last + 1);
        let form = self.text[first..last].to_owned();
        let digits = Digits { form, secret: self.secret.clone() };
        (&self.text[..first], digits, &self.text[last..])
    }
}

impl ExposureArguments {
    /// The exposure of each planted secret in the run's model or its base model.
    pub fn planted(
        &self,
        run: &AuditedRun,
        trained: bool,
        canaries: &[Canary],
        device: &DeviceArguments,
    ) -> Outcome<Vec<Found>> {
        self.check()?;
        let model = run.model(trained, device)?;
        let tokenizer = run.tokenizer(&model)?;
        let bar = progress(canaries.len(), "secrets");
        let all = run.ranks().divided(canaries.len(), |i| -> Outcome<Found> {
            let canary = &canaries[i];
            let digits = canary.digits();
            let candidates = digits.candidates(self.candidates, self.random.seed);
            let losses: Vec<f64> = match model.network.head.task_head {
                TaskHead::MaskedLanguageModel => {
                    let (before, digits, after) = canary.parts();
                    let filled: Vec<String> =
                        candidates.iter().map(|digits_of| digits.filled(digits_of)).collect();
                    let text = SecretInText {
                        before: before.to_owned(),
                        secret: filled[0].clone(),
                        after: after.to_owned(),
                    };
                    SecretReader::new(&model, &tokenizer, self.hidden)?.losses(&text, &filled)?
                }
                _ => {
                    let writer = Writer { model: &model, tokenizer: &tokenizer };
                    let texts: Vec<String> =
                        candidates.iter().map(|secret| digits.filled(secret)).collect();
                    writer.losses(&texts)?.into_iter().map(|(sum, _)| sum).collect()
                }
            };
            bar.inc(run.ranks().size() as u64);
            Ok(match digits.bits().exp2() <= self.candidates as f64 + 0.5 {
                true => exact(losses[0], &losses[1..]),
                false => sampled(losses[0], &losses[1..], digits.bits()),
            })
        })?;
        bar.finish_and_clear();
        Ok(all)
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
        if !canary.digits().fits() {
            return Err(wrong(format!(
                "line {}: the secret must have one digit for every # in the text, and at most 18",
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
