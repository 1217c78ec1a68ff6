//! What a run file must not say.

use super::{Method, ModeName, Plan, RelevanceSource, TaskName};
use crate::gradient::Clip;
use crate::model::tuning::Tuning;
use crate::train::error::{Error, Result};

impl Plan {
    /// Refuses what cannot be meant, in one sentence.
    pub(super) fn check(&self) -> Result<()> {
        let positive = |name: &str, value: f64| {
            if value.is_finite() && value > 0.0 {
                return Ok(());
            }
            Err(Error::plan(format!("{name} is {value}, but must be above 0")))
        };
        if self.model.path.is_some() == self.model.hub.is_some() {
            return Err(Error::plan("[model] needs either path (a folder) or hub (a name)"));
        }
        positive("training.learning_rate", self.training.learning_rate)?;
        positive("training.adam_epsilon", f64::from(self.training.adam_epsilon))?;
        let share = |name: &str, value: f64| {
            if (0.0..1.0).contains(&value) {
                return Ok(());
            }
            Err(Error::plan(format!("{name} is {value}, but must be at least 0 and below 1")))
        };
        share("training.momentum", f64::from(self.training.momentum))?;
        share("training.betas", f64::from(self.training.betas.0))?;
        share("training.betas", f64::from(self.training.betas.1))?;
        share("training.warmup", self.training.warmup)?;
        if !(self.training.weight_decay.is_finite() && self.training.weight_decay >= 0.0) {
            return Err(Error::plan("training.weight_decay must be at least 0"));
        }
        if self.training.epochs == 0 || self.training.batch == 0 {
            return Err(Error::plan("training.epochs and training.batch must be at least 1"));
        }
        if self.compute.micro_batch == 0
            || self.compute.micro_tokens == 0
            || self.compute.checkpoint_every == Some(0)
        {
            return Err(Error::plan("the numbers in [compute] must be at least 1"));
        }
        let text_columns = match self.data.task {
            TaskName::Classification => 1..=2,
            TaskName::LanguageModelling => 1..=1,
            TaskName::Completion => 0..=0,
        };
        if !text_columns.contains(&self.data.text.len()) {
            return Err(Error::plan(match self.data.task {
                TaskName::Classification => "data.text names the column of the text, or the two of a pair",
                TaskName::LanguageModelling => "data.text names the one column of the text",
                TaskName::Completion => {
                    "completion reads data.prompt and data.completion; leave data.text out"
                }
            }));
        }
        if let Clip::Flat(bound) | Clip::PerLayer(bound) = self.privacy.clip {
            positive("privacy.clip", bound)?;
        }
        let anadp = &self.privacy.anadp;
        share("privacy.anadp.beta1", f64::from(anadp.beta1))?;
        share("privacy.anadp.beta2", f64::from(anadp.beta2))?;
        if !(0.0..=1.0).contains(&anadp.alpha) {
            return Err(Error::plan("privacy.anadp.alpha must lie between 0 and 1"));
        }
        let (high, low) = anadp.quantiles;
        if !(0.0 <= low && low < high && high <= 1.0) {
            return Err(Error::plan(
                "privacy.anadp.quantiles are a larger and a smaller one between 0 and 1, such as [0.75, 0.25]",
            ));
        }
        for (name, (least, largest)) in [("anadp", anadp.range), ("adaclip", self.privacy.adaclip.range)] {
            if !((1e-4..=1.0).contains(&least) && (1.0..=1e4).contains(&largest)) {
                return Err(Error::plan(format!(
                    "privacy.{name}.range is a weight from 0.0001 to 1 and one from 1 to 10000, such as [0.25, 4.0]"
                )));
            }
        }
        share("privacy.adaclip.beta", f64::from(self.privacy.adaclip.beta))?;
        if !(0.0..=1.0).contains(&self.privacy.adaclip.exponent) {
            return Err(Error::plan("privacy.adaclip.exponent must lie between 0 and 1"));
        }
        let rap_ft = &self.privacy.rap_ft;
        if !(rap_ft.irrelevance > 0.5 && rap_ft.irrelevance < 1.0) {
            return Err(Error::plan("privacy.rap_ft.irrelevance must be above 0.5 and below 1"));
        }
        if !(rap_ft.alpha.is_finite() && rap_ft.examples > 0) {
            return Err(Error::plan("privacy.rap_ft needs a finite alpha and at least one example"));
        }
        if let RelevanceSource::Noised { share: part, examples } = rap_ft.relevance
            && !(part > 0.0 && part < 1.0 && examples > 0)
        {
            return Err(Error::plan(
                "privacy.rap_ft.relevance is { public = \"file\" } or { noised = { share = 0.05, examples = 512 } } with a share between 0 and 1",
            ));
        }
        self.check_forward()?;
        if self.privacy.method == Method::RapFt {
            if self.model.tuning == Tuning::Full {
                return Err(Error::plan(
                    "rap-ft masks single parameters, which is for lora, adapter, bitfit or head; change model.tuning",
                ));
            }
            if matches!(self.privacy.clip, Clip::PerLayer(_)) {
                return Err(Error::plan(
                    "rap-ft has its own two groups; clip must be a number or \"automatic\"",
                ));
            }
            if self.privacy.epsilon.is_none()
                && self.privacy.mode == ModeName::Proved
                && matches!(rap_ft.relevance, RelevanceSource::Noised { .. })
            {
                return Err(Error::plan(
                    "a noised relevance map takes a share of epsilon; give epsilon, or relevance = { public = \"file\" }",
                ));
            }
        }
        if self.privacy.mode == ModeName::Paper
            && matches!(self.privacy.method, Method::None | Method::DpSgd | Method::Adaclip)
        {
            return Err(Error::plan(
                "privacy.mode = \"paper\" is for methods that differ as published, such as anadp; leave it out",
            ));
        }
        match self.privacy.method {
            Method::None => {
                if self.privacy.epsilon.is_some() || self.privacy.noise_multiplier.is_some() {
                    return Err(Error::plan(
                        "privacy.method is \"none\", which has no epsilon and no noise_multiplier; remove them, or choose dp-sgd",
                    ));
                }
            }
            _ => {
                // Of MVG as published the budgets are the tokens'.
                let by_token = self.privacy.method == Method::Mvg && self.privacy.mode == ModeName::Paper;
                if !by_token && self.privacy.epsilon.is_some() == self.privacy.noise_multiplier.is_some() {
                    return Err(Error::plan("[privacy] needs either epsilon or noise_multiplier"));
                }
                if self.privacy.delta.is_none() {
                    return Err(Error::plan(
                        "[privacy] needs delta; well below 1/(number of examples) is usual, such as 1e-5",
                    ));
                }
            }
        }
        Ok(())
    }
}
