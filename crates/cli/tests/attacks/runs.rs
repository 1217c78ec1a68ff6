//! Training runs that are killed, and the folders they leave.

use super::classify::Class;
use super::world::{LORA, words};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// A training run that is killed.
pub struct Scheme {
    pub name: &'static str,
    settings: &'static [&'static str],
    /// The trained weights, as a path within the run folder.
    pub model: &'static str,
    /// Whether the run has a seed, and therefore the same weights every time.
    pub seed: bool,
    /// Whether each step is a release.
    pub by_step: bool,
}

const fn scheme(name: &'static str, settings: &'static [&'static str]) -> Scheme {
    Scheme { name, settings, model: "model/model.safetensors", seed: true, by_step: true }
}

const ADAPTER: &str = "adapter/adapter_model.safetensors";

/// One scheme for each kind of method.
pub static SCHEMES: [Scheme; 9] = [
    scheme("dp-sgd", &[]),
    Scheme { seed: false, ..scheme("dp-sgd without seed", &[]) },
    Scheme { model: ADAPTER, ..scheme("anadp", &["privacy.method=anadp", LORA]) },
    Scheme { model: ADAPTER, ..scheme("rap-ft", &["privacy.method=rap-ft", LORA]) },
    Scheme {
        seed: false,
        model: ADAPTER,
        ..scheme("rap-ft without seed", &["privacy.method=rap-ft", LORA])
    },
    scheme("adaclip", &["privacy.method=adaclip"]),
    Scheme {
        by_step: false,
        ..scheme(
            "ew-ft",
            &[
                "privacy.method=ew-ft",
                "privacy.local.dims=[4]",
                "privacy.local.release=path",
                "privacy.schedule=linear",
            ],
        )
    },
    Scheme {
        by_step: false,
        model: ADAPTER,
        ..scheme("dp-forward", &["privacy.method=dp-forward", "model.tuning=head"])
    },
    Scheme {
        by_step: false,
        ..scheme("non-private", &["privacy.method=none", "-privacy.epsilon", "-privacy.delta"])
    },
];

impl Scheme {
    /// The command that starts the run.
    pub fn start(&self, out: &str) -> Vec<OsString> {
        let mut line = vec!["train", "run.toml", "--json", "--out", out];
        line.extend(["--set", "training.epochs=3", "--set", "compute.checkpoint_every=2"]);
        for &setting in self.settings {
            match setting.strip_prefix('-') {
                Some(key) => line.extend(["--unset", key]),
                None => line.extend(["--set", setting]),
            }
        }
        if self.seed {
            line.extend(["--seed", "3"]);
        }
        words(&line)
    }
}

/// The parts of a run folder that are compared.
pub struct Left {
    model: Vec<u8>,
    metrics: Vec<Value>,
    releases: Vec<Value>,
    repairs: usize,
    epsilon: Option<f64>,
}

impl Left {
    pub fn read(folder: &Path, model: &str) -> Result<Self, String> {
        let bytes = |name: &str| fs::read(folder.join(name)).map_err(|e| format!("{name}: {e}"));
        let mut metrics = objects(&folder.join("metrics.jsonl"));
        // After a crash the ledger is ahead of the repeated steps.
        metrics.iter_mut().for_each(|record| record["epsilon"] = Value::Null);
        let summary: Value = serde_json::from_slice(&bytes("summary.json")?)
            .map_err(|e| format!("summary.json: {e}"))?;
        let ledger = objects(&folder.join("ledger.jsonl"));
        Ok(Self {
            model: bytes(model)?,
            metrics,
            releases: ledger.iter().filter_map(|line| line.get("spent").cloned()).collect(),
            repairs: ledger.iter().filter(|line| line.get("repair").is_some()).count(),
            epsilon: summary["guarantee"]["epsilon"]["upper"].as_f64(),
        })
    }

    /// The first difference from an uninterrupted run.
    pub fn compare(&self, whole: &Left, seed: bool) -> Result<(), (Class, String)> {
        let lost = |what: &str| Err((Class::Lost, format!("{what} is another one")));
        if seed && self.model != whole.model {
            return lost("the model");
        }
        if self.metrics.len() != whole.metrics.len() || (seed && self.metrics != whole.metrics) {
            return lost("metrics.jsonl");
        }
        let (is, was) = (self.releases.len() + self.repairs, whole.releases.len());
        let same = self.releases == whole.releases || self.repairs > 0;
        if is < was || !same {
            return Err((Class::UnderCounted, format!("{is} releases in the ledger, not {was}")));
        }
        if self.repairs == 0 && self.epsilon != whole.epsilon {
            return lost("the guarantee");
        }
        Ok(())
    }
}

/// The complete lines of a file of JSON objects.
fn objects(path: &Path) -> Vec<Value> {
    let is_file = path.symlink_metadata().is_ok_and(|data| data.is_file());
    let text = if is_file { fs::read_to_string(path).unwrap_or_default() } else { String::new() };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap_or_default()).collect()
}

/// The number of releases in a ledger, including those represented by repairs.
pub fn releases(ledger: &Path) -> usize {
    objects(ledger).len().saturating_sub(1)
}

/// Whether a run folder shows more steps than its ledger has releases.
pub fn is_under_counted(folder: &Path) -> bool {
    objects(&folder.join("metrics.jsonl")).len() > releases(&folder.join("ledger.jsonl"))
}
