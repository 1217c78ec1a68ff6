//! What a run file must not say.

use super::{Method, ModeName, Plan, RelevanceSource, TaskName};
use crate::gradient::Clip;
use crate::model::tuning::Tuning;
use crate::train::error::{Error, Result};

impl Plan {
    /// Refuses what cannot be meant, in one sentence.
    pub(super) fn check(&self) -> Result<()> {
        self.check_ranges()?;
        if self.model.path.is_some() == self.model.hub.is_some() {
            return Err(Error::plan("[model] needs either path (a folder) or hub (a name)"));
        }
        let text_columns = match self.data.task {
            TaskName::Classification => 1..=2,
            TaskName::LanguageModelling => 1..=1,
            TaskName::Completion => 0..=0,
        };
        if !text_columns.contains(&self.data.text.len()) {
            return Err(Error::plan(match self.data.task {
                TaskName::Classification => {
                    "data.text names the column of the text, or the two of a pair"
                }
                TaskName::LanguageModelling => "data.text names the one column of the text",
                TaskName::Completion => {
                    "completion reads data.prompt and data.completion; leave data.text out"
                }
            }));
        }
        let anadp = &self.privacy.anadp;
        let (high, low) = anadp.quantiles;
        if !(0.0 <= low && low < high && high <= 1.0) {
            return Err(Error::plan(
                "privacy.anadp.quantiles are a larger and a smaller one between 0 and 1, such as \
                 [0.75, 0.25]",
            ));
        }
        for (name, (least, largest)) in
            [("anadp", anadp.range), ("adaclip", self.privacy.adaclip.range)]
        {
            if !((1e-4..=1.0).contains(&least) && (1.0..=1e4).contains(&largest)) {
                return Err(Error::plan(format!(
                    "privacy.{name}.range is a weight from 0.0001 to 1 and one from 1 to 10000, \
                     such as [0.25, 4.0]"
                )));
            }
        }
        let rap_ft = &self.privacy.rap_ft;
        if !(rap_ft.irrelevance > 0.5 && rap_ft.irrelevance < 1.0) {
            return Err(Error::plan("privacy.rap_ft.irrelevance must be above 0.5 and below 1"));
        }
        if let RelevanceSource::Noised { share, .. } = rap_ft.relevance
            && !(share > 0.0 && share < 1.0)
        {
            return Err(Error::plan(
                "privacy.rap_ft.relevance is { public = \"file\" } or { noised = { share = 0.05, \
                 examples = 512 } } with a share between 0 and 1",
            ));
        }
        self.check_forward()?;
        if self.privacy.method == Method::RapFt {
            if self.model.tuning == Tuning::Full {
                return Err(Error::plan(
                    "rap-ft masks single parameters, which is for lora, adapter, bitfit or head; \
                     change model.tuning",
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
                    "a noised relevance map takes a share of epsilon; give epsilon, or relevance = \
                     { public = \"file\" }",
                ));
            }
        }
        if self.privacy.mode == ModeName::Paper
            && matches!(self.privacy.method, Method::None | Method::DpSgd | Method::Adaclip)
        {
            return Err(Error::plan(
                "privacy.mode = \"paper\" is for methods that differ as published, such as anadp; \
                 leave it out",
            ));
        }
        match self.privacy.method {
            Method::None => {
                if self.privacy.epsilon.is_some() || self.privacy.noise_multiplier.is_some() {
                    return Err(Error::plan(
                        "privacy.method is \"none\", which has no epsilon and no noise_multiplier; \
                         remove them, or choose dp-sgd",
                    ));
                }
            }
            _ => {
                // Of MVG as published the budgets are the tokens'.
                let by_token =
                    self.privacy.method == Method::Mvg && self.privacy.mode == ModeName::Paper;
                if !by_token
                    && self.privacy.epsilon.is_some() == self.privacy.noise_multiplier.is_some()
                {
                    return Err(Error::plan("[privacy] needs either epsilon or noise_multiplier"));
                }
                if self.privacy.delta.is_none() {
                    return Err(Error::plan(
                        "[privacy] needs delta; well below 1/(number of examples) is usual, such \
                         as 1e-5",
                    ));
                }
            }
        }
        Ok(())
    }
}
