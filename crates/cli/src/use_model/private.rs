//! `predict --private`: embeddings of each text are perturbed (local DP), and the release is
//! recorded in a ledger first.

use super::arguments::{Loaded, ModelArguments};
use crate::failure::{Failure, Outcome};
use crate::output;
use clap::Args;
use std::path::PathBuf;
use undertone::method::local::EmbeddingNoise;
use undertone::model::layer::sanitiser::Rows;
use undertone::model::sanitised::{SanitiserConfig, read_config};
use undertone::noise::Secret;
use undertone_accounting::ledger::{Ledger, Terms};
use undertone_accounting::{Adjacency, Event, Guarantee, Mode, Part, Threat, Unit, gaussian};
use undertone_run::ReleaseKind;

/// Whether and with which budget embeddings are perturbed.
#[derive(Args)]
pub struct PrivateArguments {
    /// Perturb the embeddings of each text, as local DP asks, before the layers above the sanitiser
    /// see them
    #[arg(long)]
    pub private: bool,
    /// ε of one text's release [default: the noise that the model was trained with]
    #[arg(long, requires = "private", requires = "delta")]
    epsilon: Option<f64>,
    /// δ of the budget and of the guarantee [default: 1e-5]
    #[arg(long, requires = "private")]
    delta: Option<f64>,
    /// Ledger in which the releases are recorded; kept from call to call [default:
    /// OUT.ledger.jsonl]
    #[arg(long, requires = "private", value_name = "FILE")]
    ledger: Option<PathBuf>,
}

/// The noise of one call, paid for.
pub struct PaidNoise {
    pub noise: EmbeddingNoise,
    ledger: Ledger,
    delta: f64,
}

impl PrivateArguments {
    /// The ledger of a file of predictions.
    pub fn ledger(&self, out: &std::path::Path) -> PathBuf {
        self.ledger.clone().unwrap_or_else(|| {
            let mut name = out.as_os_str().to_owned();
            name.push(".ledger.jsonl");
            PathBuf::from(name)
        })
    }

    /// Records the release in the ledger, and then hands out the noise, from a new secret.
    pub fn pay(
        &self,
        model: &ModelArguments,
        loaded: &Loaded,
        out: &std::path::Path,
    ) -> Outcome<Option<PaidNoise>> {
        if !self.private {
            return Ok(None);
        }
        let mut config = read_config(&loaded.folder)?;
        if let Some(adapter) = &model.adapter {
            config = read_config(adapter)?.or(config);
        }
        let Some(config) = config else {
            return Err(Failure::arguments(
                "--private needs a model with a sanitiser: one that was trained with dp-forward, \
                 ew-ft or mvg",
            ));
        };
        if !config.is_in_range() {
            return Err(Failure::arguments(
                "norm, squash and direction of the model's sanitiser must be 1e-10 to 1e10: \
                 beyond that, numbers of a release overflow or lose their noise",
            ));
        }
        let delta = self.delta.unwrap_or(1e-5);
        let Some(sensitivity) = config.sensitivity() else {
            return Err(Failure::arguments(
                "nothing bounds a text in this model, so no noise can hide it",
            ));
        };
        let noise_multiplier = match self.epsilon {
            Some(epsilon) => sensitivity / gaussian::largest_mu(epsilon, delta)? * (1.0 + 1e-11),
            None => f64::from(config.noise_std / config.norm),
        };
        if !(1e-3..=1e6).contains(&noise_multiplier) {
            return Err(Failure::arguments(format!(
                "a text would have a noise multiplier of {noise_multiplier:e}, and it must be 1e-3 \
                 to 1e6; choose another --epsilon"
            )));
        }
        let event = Event::Gaussian { noise_multiplier, sensitivity };
        let path = self.ledger(out);
        let secret = Secret::from_system()
            .map_err(|e| Failure::arguments(format!("the system gives no random numbers: {e}")))?;
        let wanted = Terms { id: secret.ledger_id(), ..terms(&config) };
        let mut ledger = Ledger::open_or_create(&path, wanted.clone())?;
        if (Terms { id: wanted.id.clone(), ..ledger.terms().clone() }) != wanted {
            return Err(Failure::arguments(format!(
                "{} is the ledger of something else; name another one by --ledger",
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

/// The same for every call, so that calls with other budgets can share a ledger: a line that a
/// crash tears counts as the loudest release there can be.
fn terms(config: &SanitiserConfig) -> Terms {
    let event = Event::Gaussian { noise_multiplier: 1e-2, sensitivity: 1.0 };
    let mut assumptions = vec![
        "a text is in a file once; one that is predicted in several calls is released in each of \
         them"
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
    /// What all calls with this ledger guarantee together.
    pub fn guarantee(&self) -> Outcome<Guarantee> {
        Ok(self.ledger.guarantee(self.delta)?)
    }
}
