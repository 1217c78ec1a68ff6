//! `[audit]`: attacks on every run of a sweep, each repeated several times.

use serde::Deserialize;
use undertone_run::audit::{EntityKind, FoundSecrets};
use undertone_run::{Audit, RunPaths};

/// `[audit]` of a sweep file. Keys that are left out have the defaults of `undertone audit`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditSection {
    /// The attacks.
    pub attacks: Vec<Attack>,
    /// Number of trials of each attack, each with its own seed.
    pub trials: Option<usize>,
    /// Seed of the first trial.
    seed: Option<u64>,
    /// Kinds of PII to search for.
    #[serde(default)]
    kinds: Vec<EntityKind>,
    /// File of names.
    names: Option<String>,
    /// Named-entity model.
    tagger: Option<String>,
    /// Column of the training file with its spans of PII.
    spans: Option<String>,
    /// Number of generated texts.
    texts: Option<usize>,
    /// Number of tokens per generated text.
    tokens: Option<usize>,
    /// Number of most probable tokens to sample from.
    top_k: Option<usize>,
    /// Number of masked texts.
    targets: Option<usize>,
    /// Number of continuations per masked text.
    samples: Option<usize>,
    /// Number of bytes of context around the mask.
    context: Option<usize>,
    /// Number of secrets of each kind, found in the training texts.
    secrets: Option<usize>,
    /// Number of candidates that a secret is ranked among.
    candidates: Option<usize>,
    /// Number of members and of non-members.
    examples: Option<usize>,
    /// File of non-members, instead of the validation file.
    pub non_members: Option<String>,
}

/// An attack on a trained model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    /// PII in generated texts.
    Extraction,
    /// Masked PII, filled in.
    Reconstruction,
    /// Membership inference by the loss.
    Membership,
    /// Exposure of secrets that are found in the training texts.
    Exposure,
}

impl Attack {
    /// The name in a sweep file, and as a verb of `undertone audit`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Extraction => "extraction",
            Self::Reconstruction => "reconstruction",
            Self::Membership => "membership",
            Self::Exposure => "exposure",
        }
    }
}

impl AuditSection {
    /// Rejects a section without attacks, with duplicate attacks, or with keys of attacks it does
    /// not list.
    pub fn check(&self) -> Result<(), String> {
        if self.attacks.is_empty() {
            return Err("audit.attacks names no attack".into());
        }
        for (i, attack) in self.attacks.iter().enumerate() {
            if self.attacks[..i].contains(attack) {
                return Err(format!("audit.attacks names {} twice", attack.name()));
            }
        }
        if self.trials == Some(0) {
            return Err("audit.trials must be at least 1".into());
        }
        let made = |attack: Attack| self.attacks.contains(&attack);
        let others = self.attacks.iter().any(|attack| *attack != Attack::Exposure);
        let finds = self.attacks.iter().any(|attack| *attack != Attack::Membership);
        let all = "extraction, reconstruction and exposure";
        for (key, given, applies, attacks) in [
            ("trials", self.trials.is_some(), others, "attacks other than exposure"),
            ("kinds", !self.kinds.is_empty(), finds, all),
            ("names", self.names.is_some(), finds, all),
            ("tagger", self.tagger.is_some(), finds, all),
            ("spans", self.spans.is_some(), finds, all),
            ("secrets", self.secrets.is_some(), made(Attack::Exposure), "exposure"),
            ("candidates", self.candidates.is_some(), made(Attack::Exposure), "exposure"),
            ("texts", self.texts.is_some(), made(Attack::Extraction), "extraction"),
            ("tokens", self.tokens.is_some(), made(Attack::Extraction), "extraction"),
            ("top_k", self.top_k.is_some(), made(Attack::Extraction), "extraction"),
            ("targets", self.targets.is_some(), made(Attack::Reconstruction), "reconstruction"),
            ("samples", self.samples.is_some(), made(Attack::Reconstruction), "reconstruction"),
            (
                "context",
                self.context.is_some(),
                made(Attack::Reconstruction) || made(Attack::Exposure),
                "reconstruction and exposure",
            ),
            ("examples", self.examples.is_some(), made(Attack::Membership), "membership"),
            ("non_members", self.non_members.is_some(), made(Attack::Membership), "membership"),
        ] {
            if given && !applies {
                return Err(format!(
                    "audit.{key} is for {attacks}, which audit.attacks does not name"
                ));
            }
        }
        Ok(())
    }

    /// Arguments of `undertone audit` for an attack, without run and device.
    pub fn arguments(&self, attack: Attack) -> Vec<String> {
        let mut all = vec![attack.name().to_owned()];
        let mut push = |flag: &str, value: Option<String>| {
            all.extend(value.into_iter().flat_map(|value| [format!("--{flag}"), value]));
        };
        let number = |count: Option<usize>| count.map(|count| count.to_string());
        push("trials", number(self.trials).filter(|_| attack != Attack::Exposure));
        push("seed", self.seed.map(|seed| seed.to_string()));
        if attack != Attack::Membership {
            let kinds: Vec<&str> = self.kinds.iter().map(|kind| kind.name()).collect();
            push("kind", (!kinds.is_empty()).then(|| kinds.join(",")));
            push("names", self.names.clone());
            push("tagger", self.tagger.clone());
            push("spans", self.spans.clone());
        }
        match attack {
            Attack::Extraction => {
                push("texts", number(self.texts));
                push("tokens", number(self.tokens));
                push("top-k", number(self.top_k));
            }
            Attack::Reconstruction => {
                push("targets", number(self.targets));
                push("samples", number(self.samples));
                push("context", number(self.context));
            }
            Attack::Membership => {
                push("examples", number(self.examples));
                push("non-members", self.non_members.clone());
                all.push("--loss-only".into());
            }
            Attack::Exposure => {
                push("secrets", number(self.secrets));
                push("candidates", number(self.candidates));
                push("context", number(self.context));
                all.push("--found".into());
            }
        }
        all
    }

    /// The settings that identify a run's audit.
    pub fn identity(&self) -> String {
        let lines = self.attacks.iter().map(|attack| self.arguments(*attack).join(" ") + "\n");
        lines.collect()
    }
}

/// Whether the run still has a model to attack.
pub fn has_weights(paths: &RunPaths) -> bool {
    paths.model().is_dir() || paths.adapter().is_dir()
}

/// Mean of a figure over the trials.
fn mean_over<T>(
    first: &[T],
    trials: &[undertone_run::audit::Trial<T>],
    figure: impl Fn(&[T]) -> Option<f64>,
) -> Option<f64> {
    let figures: Vec<f64> = match trials {
        [] if first.is_empty() => return None,
        [] => vec![figure(first)?],
        all => all.iter().map(|trial| figure(&trial.found)).collect::<Option<_>>()?,
    };
    crate::statistics::mean(&figures)
}

/// Ratio of two counts, summed over all kinds of PII.
fn share(part: usize, whole: usize) -> Option<f64> {
    // Nothing was generated, so nothing is correct.
    Some(if whole == 0 { 0.0 } else { part as f64 / whole as f64 })
}

/// Share of the generated PII that is in the training texts.
pub fn precision(audit: &Audit) -> Option<f64> {
    mean_over(&audit.extraction, &audit.trials.extraction, |kinds| {
        share(kinds.iter().map(|of| of.right).sum(), kinds.iter().map(|of| of.written).sum())
    })
}

/// Share of the training texts' PII that is generated.
pub fn recall(audit: &Audit) -> Option<f64> {
    mean_over(&audit.extraction, &audit.trials.extraction, |kinds| {
        share(kinds.iter().map(|of| of.right).sum(), kinds.iter().map(|of| of.in_training).sum())
    })
}

/// Top-1 accuracy on the masked texts that the pretrained model does not fill in correctly.
pub fn reconstruction(audit: &Audit) -> Option<f64> {
    mean_over(&audit.reconstruction, &audit.trials.reconstruction, |kinds| {
        let (mut right, mut all) = (0.0, 0.0);
        for of in kinds {
            let others = of.not_known_before.as_ref()?;
            let targets = others.targets as f64;
            right += if others.targets == 0 { 0.0 } else { others.top_1.estimate * targets };
            all += targets;
        }
        Some(if all == 0.0 { 0.0 } else { right / all })
    })
}

/// Area under the ROC curve of membership inference by loss, which is equivalent to perplexity.
pub fn area(audit: &Audit) -> Option<f64> {
    mean_over(&audit.membership, &audit.trials.membership, |attacks| {
        Some(attacks.first()?.auc.estimate)
    })
}

/// Exposure of one kind of secret in the trained model.
fn exposed(audit: &Audit, kind: EntityKind) -> Option<&FoundSecrets> {
    let of_kind = audit.found_exposure.iter().find(|exposure| exposure.kind == kind);
    of_kind.map(|exposure| &exposure.trained)
}

/// Mean exposure of the phone numbers of the training texts, in bits.
pub fn exposure_of_phones(audit: &Audit) -> Option<f64> {
    Some(exposed(audit, EntityKind::Phone)?.exposure.estimate)
}

/// Mean reciprocal rank of the tokens of the names in the training texts.
pub fn rank_of_names(audit: &Audit) -> Option<f64> {
    Some(exposed(audit, EntityKind::Person)?.mean_reciprocal_rank.estimate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn audit(text: serde_json::Value) -> Audit {
        serde_json::from_value(text).unwrap()
    }

    /// Every trial counts, and each kind of PII is weighted by its number of occurrences.
    #[test]
    fn figures_are_means_over_trials() {
        let interval = |x: f64| json!({ "lower": 0.0, "estimate": x, "upper": 1.0 });
        let extraction = |kind: &str, all: u32, written: u32, right: u32| {
            json!({ "kind": kind, "in_training": all, "written": written, "right": right,
                    "precision": interval(0.9), "recall": interval(0.9) })
        };
        let first = json!([extraction("person", 100, 8, 1), extraction("email", 100, 2, 1)]);
        let second = json!([extraction("person", 200, 0, 0)]);
        let extracted = audit(json!({ "extraction": first }));
        assert_eq!((precision(&extracted), recall(&extracted)), (Some(0.2), Some(0.01)));
        let extracted = audit(json!({
            "extraction": first,
            "trials": {
                "extraction": [{ "seed": 1, "found": first }, { "seed": 2, "found": second }],
            },
        }));
        assert_eq!((precision(&extracted), recall(&extracted)), (Some(0.1), Some(0.005)));
        let part = |targets: u32, top: f64| {
            json!({ "targets": targets, "top_1": interval(top), "top_k": interval(0.9), "k": 5,
                    "among_candidates": interval(0.9), "mean_reciprocal_rank": 0.9,
                    "candidates": 9.0 })
        };
        let masked = |targets: u32, top: f64| {
            json!([{ "kind": "person", "trained": part(50, 0.8), "pretrained": part(50, 0.7),
                     "known_before": 50 - targets, "not_known_before": part(targets, top) }])
        };
        let reconstructed = audit(json!({
            "reconstruction": masked(20, 0.5),
            "trials": { "reconstruction": [
                { "seed": 1, "found": masked(20, 0.5) },
                { "seed": 2, "found": masked(10, 0.1) },
            ] },
        }));
        assert_eq!(reconstruction(&reconstructed), Some(0.3));
        assert_eq!((area(&reconstructed), precision(&reconstructed)), (None, None));
        let of = |kind: &str, bits: f64, rank: f64| {
            let exposure = |bits: f64, rank: f64| {
                json!({ "exposure": interval(bits), "mean_reciprocal_rank": interval(rank),
                        "exposures": [], "reciprocal_ranks": [] })
            };
            json!({
                "kind": kind,
                "trained": exposure(bits, rank),
                "pretrained": exposure(0.1, 0.2),
            })
        };
        let exposed =
            audit(json!({ "found_exposure": [of("phone", 7.0, 0.3), of("person", 2.0, 0.6)] }));
        assert_eq!((exposure_of_phones(&exposed), rank_of_names(&exposed)), (Some(7.0), Some(0.6)));
        assert_eq!(exposure_of_phones(&Audit::default()), None);
    }

    #[test]
    fn arguments_are_those_of_the_attack() {
        let section: AuditSection = toml::from_str(
            "attacks = [\"extraction\", \"membership\"]\ntrials = 5\nkinds = [\"person\"]\n\
             texts = 9\nexamples = 7",
        )
        .unwrap();
        section.check().unwrap();
        assert_eq!(
            section.identity(),
            "extraction --trials 5 --kind person --texts 9\n\
             membership --trials 5 --examples 7 --loss-only\n"
        );
        let section: AuditSection = toml::from_str(
            "attacks = [\"exposure\"]\nkinds = [\"phone\", \"person\"]\nsecrets = 20",
        )
        .unwrap();
        section.check().unwrap();
        assert_eq!(section.identity(), "exposure --kind phone,person --secrets 20 --found\n");
        for (text, about) in [
            ("attacks = [\"exposure\"]\ntrials = 3", "audit.trials is for attacks other"),
            ("attacks = [\"membership\"]\nsecrets = 3", "audit.secrets is for exposure"),
            ("attacks = []", "no attack"),
            ("attacks = [\"membership\", \"membership\"]", "twice"),
            ("attacks = [\"membership\"]\ntexts = 3", "audit.texts is for extraction"),
            ("attacks = [\"extraction\"]\nexamples = 3", "audit.examples is for membership"),
            ("attacks = [\"membership\"]\ntrials = 0", "at least 1"),
        ] {
            let section: AuditSection = toml::from_str(text).unwrap();
            let error = section.check().unwrap_err();
            assert!(error.contains(about), "{text}: {error}");
        }
    }
}
