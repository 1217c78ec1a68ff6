//! `predict --private`: a text is perturbed before it leaves its owner, and what that costs is written down first.

use super::arguments::{Loaded, ModelArguments};
use crate::failure::{Failure, Outcome};
use clap::Args;
use std::path::PathBuf;
use undertone::mechanism::Secret;
use undertone::mechanism::forward::{RecordNoise, Release};
use undertone::model::sanitised::{SanitiserConfig, read_config};
use undertone_accounting::ledger::{Ledger, Terms};
use undertone_accounting::{Adjacency, Event, Guarantee, Mode, Part, Threat, Unit, gaussian};

/// Whether and how texts are perturbed.
#[derive(Args)]
pub struct PrivateArguments {
    /// Perturb each text before it reaches the part of the model above its sanitiser
    #[arg(long)]
    pub private: bool,
    /// ε of one text's release [default: the noise that the model was trained with]
    #[arg(long, requires = "private", requires = "delta")]
    epsilon: Option<f64>,
    /// δ
    #[arg(long, requires = "private")]
    delta: Option<f64>,
    /// Ledger that the releases are written into; kept from call to call [default: OUT.ledger.jsonl]
    #[arg(long, requires = "private", value_name = "FILE")]
    ledger: Option<PathBuf>,
}

/// The noise of one call, paid for.
pub struct PaidNoise {
    pub noise: RecordNoise,
    ledger: Ledger,
    delta: f64,
}

impl PrivateArguments {
    /// Draws a new secret, writes the release into the ledger and hands the noise out, in this order.
    pub fn pay(&self, model: &ModelArguments, loaded: &Loaded, out: &std::path::Path) -> Outcome<Option<PaidNoise>> {
        if !self.private {
            return Ok(None);
        }
        let folder = model.adapter.as_deref().unwrap_or(&loaded.folder);
        let Some(config) = read_config(folder)? else {
            return Err(Failure::arguments(
                "--private needs a model with a sanitiser: one that was trained with dp-forward, ew-ft or mvg",
            ));
        };
        let delta = self.delta.unwrap_or(1e-5);
        let event = event(&config, self.epsilon, delta)?;
        let Event::Gaussian { noise_multiplier, .. } = event else { return Ok(None) };
        let path = self.ledger.clone().unwrap_or_else(|| {
            let mut name = out.as_os_str().to_owned();
            name.push(".ledger.jsonl");
            PathBuf::from(name)
        });
        let mut ledger = if path.exists() { Ledger::open(&path)? } else { Ledger::create(&path, terms(event))? };
        ledger.append(event, 1)?;
        let secret = Secret::from_system()
            .map_err(|e| Failure::arguments(format!("the system gives no random numbers: {e}")))?;
        let deviation = noise_multiplier * f64::from(config.norm);
        Ok(Some(PaidNoise { noise: RecordNoise::new(&secret, Release::Once, vec![deviation]), ledger, delta }))
    }
}

fn event(config: &SanitiserConfig, epsilon: Option<f64>, delta: f64) -> Outcome<Event> {
    let sensitivity = config.sensitivity();
    let noise_multiplier = match epsilon {
        Some(epsilon) => sensitivity / gaussian::largest_mu(epsilon, delta)? * (1.0 + 1e-11),
        None => f64::from(config.deviation / config.norm),
    };
    Ok(Event::Gaussian { noise_multiplier, sensitivity })
}

fn terms(event: Event) -> Terms {
    Terms {
        unit: Unit::Example,
        adjacency: Adjacency::ReplaceOne,
        threat: Threat::Local,
        mode: Mode::Proved,
        assumptions: vec![
            "a text is in a file once; one that is predicted in several calls is released in each of them".to_owned(),
            "the number of texts is public".to_owned(),
        ],
        announced: vec![Part { event, count: 1 }],
    }
}

impl PaidNoise {
    /// What all calls with this ledger guarantee together.
    pub fn guarantee(&self) -> Outcome<Guarantee> {
        Ok(self.ledger.guarantee(self.delta)?)
    }
}
