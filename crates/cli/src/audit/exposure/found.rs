//! Secrets in the training texts: phone numbers, addresses, names.

use super::ExposureArguments;
use super::digits::Digits;
use crate::audit::membership::at_random;
use crate::audit::private_things::PrivateTexts;
use crate::audit::progress;
use crate::audit::run_folder::AuditedRun;
use crate::device::DeviceArguments;
use crate::failure::Outcome;
use clap::Args;
use std::collections::BTreeMap;
use undertone::audit::exposure::{Exposure as Found, exact, mean_reciprocal_rank, sampled};
use undertone::audit::secret::{SecretInText, SecretReader};
use undertone::audit::spans::{EntityKind, plain};
use undertone::audit::statistics::mean;
use undertone_run::audit::FoundSecrets;

/// Selection of the secrets to attack.
#[derive(Args)]
pub struct FoundArguments {
    /// Maximum number of found secrets per kind, sampled at random
    #[arg(long, default_value_t = 100, value_parser = crate::arguments::up_to(1_000_000))]
    secrets: usize,
    /// Bytes of context to use before and after a found secret
    #[arg(long, default_value_t = 400, value_parser = crate::arguments::up_to(1_000_000))]
    context: usize,
}

/// Minimum number of digits for varying them; a secret with fewer is compared with others of its
/// kind.
const FEWEST_DIGITS: usize = 4;

/// A secret and its alternatives.
pub struct FoundSecret {
    text: SecretInText,
    candidates: Candidates,
}

enum Candidates {
    /// Every way to fill its digits.
    Digits(Digits),
    /// The other secrets of its kind.
    Others(Vec<String>),
}

impl FoundArguments {
    /// Secrets of one kind in the training texts, sampled from all that have alternatives. A secret
    /// that occurs in many texts is sampled once.
    pub fn secrets(
        &self,
        training: &PrivateTexts,
        kind: EntityKind,
        asked: &ExposureArguments,
    ) -> Vec<FoundSecret> {
        let mut all: BTreeMap<String, SecretInText> = BTreeMap::new();
        for (text, spans) in training.texts.iter().zip(&training.spans) {
            for span in spans.iter().filter(|span| span.kind == kind) {
                let secret = &text[span.range()];
                all.entry(plain(secret, kind)).or_insert_with(|| SecretInText {
                    before: last(&text[..span.start], self.context).to_owned(),
                    secret: secret.to_owned(),
                    after: first(&text[span.end..], self.context).to_owned(),
                });
            }
        }
        let others: Vec<String> = all.values().map(|text| text.secret.clone()).collect();
        let chosen = at_random(all.into_values().collect(), self.secrets, asked.random.seed);
        let with_candidates = |text: SecretInText| {
            let candidates = match Digits::of(&text.secret, FEWEST_DIGITS) {
                Some(digits) => Candidates::Digits(digits),
                None => {
                    let mut others = others.clone();
                    others.retain(|other| *other != text.secret);
                    Candidates::Others(at_random(others, asked.candidates, asked.random.seed))
                }
            };
            let some = !matches!(&candidates, Candidates::Others(others) if others.is_empty());
            some.then_some(FoundSecret { text, candidates })
        };
        chosen.into_iter().filter_map(with_candidates).collect()
    }
}

impl ExposureArguments {
    /// Exposure and token ranks of found secrets in the run's model or its base model.
    pub fn found(
        &self,
        run: &AuditedRun,
        trained: bool,
        secrets: &[FoundSecret],
        device: &DeviceArguments,
    ) -> Outcome<FoundSecrets> {
        self.check()?;
        let model = run.model(trained, device)?;
        let tokenizer = run.tokenizer(&model)?;
        let reader = SecretReader::new(&model, &tokenizer, self.hidden)?;
        let bar = progress(secrets.len(), "secrets");
        let scored = run.ranks().divided(secrets.len(), |i| -> Outcome<(Found, f64)> {
            let exposure = self.exposure_of(&reader, &secrets[i])?;
            // The mean over the secret's tokens, as Wu et al. (2023) rank names.
            let rank = mean_reciprocal_rank(&reader.token_ranks(&secrets[i].text)?);
            bar.inc(run.ranks().size() as u64);
            Ok((exposure, rank))
        })?;
        bar.finish_and_clear();
        let (exposures, reciprocal_ranks): (Vec<Found>, Vec<f64>) = scored.into_iter().unzip();
        let (confidence, seed) = (self.intervals.confidence, self.random.seed);
        Ok(FoundSecrets {
            exposure: self.mean(&exposures),
            mean_reciprocal_rank: mean(&reciprocal_ranks, confidence, seed),
            exposures,
            reciprocal_ranks,
        })
    }

    fn exposure_of(&self, reader: &SecretReader, secret: &FoundSecret) -> Outcome<Found> {
        let candidates: Vec<String> = match &secret.candidates {
            Candidates::Digits(digits) => {
                let all = digits.candidates(self.candidates, self.random.seed);
                all.iter().map(|candidate| digits.filled(candidate)).collect()
            }
            Candidates::Others(others) => {
                std::iter::once(&secret.text.secret).chain(others).cloned().collect()
            }
        };
        let losses = reader.losses(&secret.text, &candidates)?;
        Ok(match &secret.candidates {
            Candidates::Digits(digits) if digits.bits().exp2() > self.candidates as f64 + 0.5 => {
                sampled(losses[0], &losses[1..], digits.bits())
            }
            _ => exact(losses[0], &losses[1..]),
        })
    }
}

/// The first bytes, up to a character boundary.
fn first(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|&i| text.is_char_boundary(i));
    &text[..end.unwrap_or(0)]
}

/// The last bytes, from a character boundary.
fn last(text: &str, bytes: usize) -> &str {
    let start = (text.len().saturating_sub(bytes)..=text.len()).find(|&i| text.is_char_boundary(i));
    &text[start.unwrap_or(0)..]
}
