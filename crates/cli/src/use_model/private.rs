//! `predict --private`: perturbs the embeddings of each text (local DP), after recording the
//! release in a ledger.

use super::arguments::Loaded;
use crate::failure::{Failure, Outcome};
use crate::output;
use clap::Args;
use std::path::PathBuf;
use undertone::method::local::EmbeddingNoise;
use undertone::model::layer::sanitizer::Rows;
use undertone::model::sanitized::{SanitizerConfig, read_config};
use undertone::noise::Secret;
use undertone_accounting::ledger::{Ledger, Terms};
use undertone_accounting::{
    Adjacency, Event, Guarantee, Mode, Part, Threat, Unit, gaussian, limits,
};
use undertone_run::ReleaseKind;

/// Whether to perturb embeddings, and with which budget.
#[derive(Args)]
pub struct PrivateArguments {
    /// Perturb the embeddings of each text with the noise of local DP before the layers above the
    /// sanitizer see them
    #[arg(long)]
    pub private: bool,
    /// ε of releasing one text; requires `--delta` [default: the noise used in training]
    #[arg(long, requires = "private", requires = "delta")]
    epsilon: Option<f64>,
    /// δ of `--epsilon` and of the guarantee [default: 1e-5]
    #[arg(long, requires = "private")]
    delta: Option<f64>,
    /// Ledger to record the releases in; appended to if it exists [default: OUT.ledger.jsonl]
    #[arg(long, requires = "private", value_name = "FILE")]
    ledger: Option<PathBuf>,
}

/// Noise of one call whose release is recorded in the ledger.
pub struct PaidNoise {
    pub noise: EmbeddingNoise,
    ledger: Ledger,
    delta: f64,
}

impl PrivateArguments {
    /// Path of the ledger for a file of predictions.
    pub fn ledger(&self, out: &std::path::Path) -> PathBuf {
        self.ledger.clone().unwrap_or_else(|| {
            let mut name = out.as_os_str().to_owned();
            name.push(".ledger.jsonl");
            PathBuf::from(name)
        })
    }

    /// Records the release in the ledger, then returns noise generated from a new secret.
    pub fn pay(&self, loaded: &Loaded, out: &std::path::Path) -> Outcome<Option<PaidNoise>> {
        if !self.private {
            return Ok(None);
        }
        let mut config = read_config(&loaded.folder)?;
        if let Some(adapter) = &loaded.adapter {
            config = read_config(adapter)?.or(config);
        }
        let Some(config) = config else {
            return Err(Failure::arguments(
                "--private needs a model that was trained with dp-forward, ew-ft or mvg",
            ));
        };
        if !config.is_in_range() {
            return Err(Failure::arguments(
                "norm, squash and direction of the model's sanitizer must be from 1e-10 to 1e10: \
                 beyond that, a release would overflow or lose its noise",
            ));
        }
        let delta = self.delta.unwrap_or(1e-5);
        let allowed = limits::LEAST_EPSILON..=limits::EPSILON;
        if let Some(epsilon) = self.epsilon.filter(|epsilon| !allowed.contains(epsilon)) {
            let (least, most) = (allowed.start(), allowed.end());
            return Err(Failure::arguments(format!(
                "--epsilon is {epsilon}, but must be from {least} to {most}"
            )));
        }
        let Some(sensitivity) = config.sensitivity() else {
            return Err(Failure::arguments(
                "this model does not bound its embeddings, so noise cannot protect them",
            ));
        };
        let noise_multiplier = match self.epsilon {
            Some(epsilon) => sensitivity / gaussian::largest_mu(epsilon, delta)? * (1.0 + 1e-11),
            None => f64::from(config.noise_std / config.norm),
        };
        if !(1e-3..=1e6).contains(&noise_multiplier) {
            return Err(Failure::arguments(format!(
                "the noise multiplier would be {noise_multiplier:e}, but must be from 1e-3 to 1e6; \
                 choose another --epsilon"
            )));
        }
        let event = Event::Gaussian { noise_multiplier, sensitivity };
        let path = self.ledger(out);
        let secret = Secret::from_system().map_err(|e| {
            Failure::arguments(format!(
                "the operating system provides no random \
                                                     numbers: {e}"
            ))
        })?;
        let wanted = Terms { id: secret.ledger_id(), ..terms(&config) };
        let mut ledger = Ledger::open_or_create(&path, wanted.clone())?;
        if (Terms { id: wanted.id.clone(), ..ledger.terms().clone() }) != wanted {
            return Err(Failure::arguments(format!(
                "{} is not a ledger of predictions; choose another file with --ledger",
                path.display()
            )));
        }
        if let Some(warning) = ledger.warning() {
            output::note(warning);
        }
        ledger.append(event, 1)?;
        let std = noise_multiplier * f64::from(config.norm);
        Ok(Some(PaidNoise {
            noise: EmbeddingNoise::new(&secret, ReleaseKind::Once, vec![std]),
            ledger,
            delta,
        }))
    }
}

/// Terms of the ledger, the same for every call, so that calls with different budgets can share it.
/// A line truncated by a crash counts as the costliest possible release.
fn terms(config: &SanitizerConfig) -> Terms {
    let event = Event::Gaussian { noise_multiplier: 1e-2, sensitivity: 1.0 };
    let mut assumptions = vec![
        "each text occurs once in a file; a text that is predicted in several calls is released in \
         each of them"
            .to_owned(),
        "the number of texts is public".to_owned(),
    ];
    if matches!(config.rows, Rows::Tokens(None) | Rows::Padded(_)) {
        assumptions.push("the number of tokens of each text is public".to_owned());
    }
    Terms {
        id: String::new(),
        run: None,
        unit: Unit::Example,
        adjacency: Adjacency::ReplaceOne,
        threat: Threat::Local,
        mode: Mode::Proved,
        assumptions,
        announced: vec![Part { event, count: 1 }],
    }
}

impl PaidNoise {
    /// The guarantee of all calls recorded in this ledger.
    pub fn guarantee(&self) -> Outcome<Guarantee> {
        Ok(self.ledger.guarantee(self.delta)?)
    }
}
