//! Valid ranges of the numbers in a run file.

use super::{Clip, InitialRelevance, RelevanceSource, RunFile, Tuning, WeightAverage};
use crate::error::{Error, Result};
use std::fmt::Debug;
use std::ops::RangeInclusive;
use undertone_accounting::limits;

/// Beyond these limits, products overflow or underflow `f32`.
const SMALLEST: f64 = 1e-10;
const LARGEST: f64 = 1e10;
/// Maximum width of a layer.
const WIDEST: usize = 65_536;

fn within<T: PartialOrd + Debug>(key: &str, value: T, range: RangeInclusive<T>) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let [value, least, most] = [&value, range.start(), range.end()].map(written);
    Err(Error::run_file(format!("{key} is {value}, but must be from {least} to {most}")))
}

/// Formats a number as in a run file: 1e300, not three hundred digits.
fn written(number: &impl Debug) -> String {
    let text = format!("{number:?}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Requires a number in (0, largest].
fn above_zero(key: &str, value: f64, largest: f64) -> Result<()> {
    if value > 0.0 && value <= largest {
        return Ok(());
    }
    Err(Error::run_file(format!(
        "{key} is {}, but must be above 0 and at most {}",
        written(&value),
        written(&largest)
    )))
}

/// Requires a number in [0, 1).
fn share(key: &str, value: f64) -> Result<()> {
    if (0.0..1.0).contains(&value) {
        return Ok(());
    }
    Err(Error::run_file(format!(
        "{key} is {}, but must be at least 0 and below 1",
        written(&value)
    )))
}

impl RunFile {
    /// Rejects numbers outside their ranges, whether or not the method uses them.
    pub(super) fn check_ranges(&self) -> Result<()> {
        self.check_training()?;
        self.check_data_and_tuning()?;
        self.check_budget()?;
        self.check_allocations()?;
        self.check_local_numbers()?;
        self.check_synthesis()
    }

    fn check_synthesis(&self) -> Result<()> {
        let Some(synthesis) = &self.synthesis else { return Ok(()) };
        within("synthesis.rows", synthesis.rows, 1..=10_000_000)?;
        within("synthesis.temperature", synthesis.temperature, 0.0..=10.0)?;
        above_zero("synthesis.top_p", synthesis.top_p, 1.0)?;
        within("synthesis.statistics_share", synthesis.statistics_share, 0.001..=0.5)?;
        for (column, values) in &synthesis.codes {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            sorted.dedup();
            if values.len() < 2 || sorted.len() < values.len() || values.contains(&String::new()) {
                return Err(Error::run_file(format!(
                    "synthesis.codes.{column} must list at least two different values, none of \
                     them empty; a column with one value needs no control code"
                )));
            }
        }
        Ok(())
    }

    fn check_training(&self) -> Result<()> {
        let training = &self.training;
        above_zero("training.learning_rate", training.learning_rate, 1e6)?;
        above_zero("training.adam_epsilon", f64::from(training.adam_epsilon), 1e6)?;
        share("training.momentum", f64::from(training.momentum))?;
        share("training.betas", f64::from(training.betas.0))?;
        share("training.betas", f64::from(training.betas.1))?;
        share("training.warmup", training.warmup)?;
        match training.average {
            Some(WeightAverage::Ema(decay)) => share("training.average.ema", decay)?,
            Some(WeightAverage::Last(part)) => above_zero("training.average.last", part, 1.0)?,
            None => {}
        }
        if let Some(gain) = training.filter_gain
            && !(SMALLEST..1.0).contains(&gain)
        {
            return Err(Error::run_file(format!(
                "training.filter_gain is {}, but must be at least {} and below 1",
                written(&gain),
                written(&SMALLEST)
            )));
        }
        if let Tuning::Lora(lora) = &self.model.tuning {
            above_zero("model.tuning.lora.b_rate", lora.b_rate, 1e6)?;
        }
        within("training.weight_decay", training.weight_decay, 0.0..=1e3)?;
        within("training.epochs", u64::from(training.epochs), 1..=limits::STEPS)?;
        if let Some(stop) = training.stop_early {
            within("training.stop_early.patience", stop.patience, 1..=1_000_000)?;
        }
        within("evaluation.every", u64::from(self.evaluation.every), 1..=limits::STEPS)?;
        if let Some(epsilon) = self.evaluation.epsilon {
            within("evaluation.epsilon", epsilon, limits::LEAST_EPSILON..=limits::EPSILON)?;
            if let Some(whole) = self.privacy.epsilon.filter(|whole| epsilon >= *whole) {
                return Err(Error::run_file(format!(
                    "evaluation.epsilon is {}, but must be below privacy.epsilon ({}), of which \
                     it is a part",
                    written(&epsilon),
                    written(&whole)
                )));
            }
        }
        within("training.batch", training.batch, 1..=u64::from(u32::MAX))?;
        let compute = &self.compute;
        within("compute.micro_batch", compute.micro_batch.or(1), 1..=usize::MAX)?;
        within("compute.micro_tokens", compute.micro_tokens.or(1), 1..=usize::MAX)?;
        within("compute.checkpoint_every", compute.checkpoint_every.unwrap_or(1), 1..=u64::MAX)
    }

    fn check_data_and_tuning(&self) -> Result<()> {
        let data = &self.data;
        within("data.max_tokens", data.max_tokens, 1..=1 << 20)?;
        within("data.most_per_author", data.most_per_author, 1..=1 << 32)?;
        if let Some(share) = data.hold_out.filter(|share| !(*share > 0.0 && *share <= 0.5)) {
            return Err(Error::run_file(format!(
                "data.hold_out is {}, but must be a share above 0 and at most 0.5, such as 0.1: \
                 with a fixed number of units, each unit's side would depend on the others",
                written(&share)
            )));
        }
        if data.labels.as_ref().is_some_and(Vec::is_empty) {
            return Err(Error::run_file("data.labels is empty; name the labels, or leave it out"));
        }
        match &self.model.tuning {
            Tuning::Lora(lora) => {
                within("model.tuning.lora.rank", lora.rank, 1..=4096)?;
                above_zero("model.tuning.lora.alpha", lora.alpha, 1e6)?;
                share("model.tuning.lora.dropout", f64::from(lora.dropout))
            }
            Tuning::Adapter(adapter) => {
                within("model.tuning.adapter.size", adapter.size, 1..=WIDEST)
            }
            Tuning::Prompt(prompt) => within("model.tuning.prompt.tokens", prompt.tokens, 1..=1024),
            Tuning::Full | Tuning::Head | Tuning::Bitfit | Tuning::Ia3(_) => Ok(()),
        }
    }

    fn check_budget(&self) -> Result<()> {
        let privacy = &self.privacy;
        within("privacy.units", privacy.units.unwrap_or(1), 1..=u64::from(u32::MAX))?;
        if let Some(epsilon) = privacy.epsilon {
            within("privacy.epsilon", epsilon, limits::LEAST_EPSILON..=limits::EPSILON)?;
        }
        if let Some(delta) = privacy.delta {
            within("privacy.delta", delta, limits::DELTA)?;
        }
        if let Some(noise) = privacy.noise_multiplier {
            above_zero("privacy.noise_multiplier", noise, 1e9)?;
        }
        // 0 means an epoch without noise; other values must lie where subsampled noise can be
        // accounted for.
        for &noise in privacy.noise_multipliers.iter().flatten().filter(|&&noise| noise != 0.0) {
            within("privacy.noise_multipliers", noise, limits::NOISE_MULTIPLIER)?;
        }
        if let Clip::Flat(bound) | Clip::PerLayer(bound) = privacy.clip {
            within("privacy.clip", bound, SMALLEST..=LARGEST)?;
        }
        if let Some(correlation) = privacy.correlation {
            within("privacy.correlation.bands", correlation.bands, 2..=1024)?;
        }
        if let Clip::Adaptive(adaptive) = privacy.clip {
            within("privacy.clip.adaptive.quantile", adaptive.quantile, 0.01..=0.99)?;
            within("privacy.clip.adaptive.initial", adaptive.initial, SMALLEST..=LARGEST)?;
            above_zero("privacy.clip.adaptive.rate", adaptive.rate, 10.0)?;
            within("privacy.clip.adaptive.noise", adaptive.noise.unwrap_or(1.0), 1.0..=1e9)?;
        }
        above_zero("privacy.step_distance", privacy.step_distance, 1e6)?;
        within("privacy.reserve", privacy.reserve, 0.0..=limits::EPSILON)
    }

    fn check_allocations(&self) -> Result<()> {
        let anadp = &self.privacy.anadp;
        share("privacy.anadp.beta1", f64::from(anadp.beta1))?;
        share("privacy.anadp.beta2", f64::from(anadp.beta2))?;
        within("privacy.anadp.alpha", anadp.alpha, 0.0..=1.0)?;
        let adaclip = &self.privacy.adaclip;
        share("privacy.adaclip.beta", f64::from(adaclip.beta))?;
        within("privacy.adaclip.exponent", adaclip.exponent, 0.0..=1.0)?;
        let rap_ft = &self.privacy.rap_ft;
        within("privacy.rap_ft.alpha", rap_ft.alpha, 0.0..=100.0)?;
        within("privacy.rap_ft.examples", rap_ft.examples, 1..=usize::MAX)?;
        within("privacy.rap_ft.probes", rap_ft.probes, 1..=65_536)?;
        if let RelevanceSource::Noised { examples, clip, .. } = rap_ft.relevance {
            within("privacy.rap_ft.relevance.noised.examples", examples, 1..=u64::MAX)?;
            within("privacy.rap_ft.relevance.noised.clip", clip, SMALLEST..=1e6)?;
        }
        match rap_ft.initial {
            InitialRelevance::Naive => Ok(()),
            InitialRelevance::TopK(k) => within("privacy.rap_ft.initial.top_k", k, 1..=usize::MAX),
            InitialRelevance::TopP(p) => {
                above_zero("privacy.rap_ft.initial.top_p", f64::from(p), 1.0)
            }
            InitialRelevance::Beam(beam) => within("privacy.rap_ft.initial.beam", beam, 1..=1024),
        }
    }

    fn check_local_numbers(&self) -> Result<()> {
        for &width in self.privacy.local.dims.iter().flatten() {
            within("privacy.local.dims", width, 1..=WIDEST)?;
        }
        if let Some(adapt) = &self.privacy.local.adapt {
            above_zero("privacy.local.adapt.learning_rate", adapt.learning_rate(), 1e6)?;
        }
        let mvg = &self.privacy.mvg;
        within("privacy.mvg.width", mvg.width, 1..=WIDEST)?;
        within("privacy.mvg.shift", mvg.shift, -10.0..=10.0)?;
        above_zero("privacy.mvg.spread", mvg.spread, 1e6)?;
        above_zero("privacy.mvg.epsilon_min", mvg.epsilon_min, 1e6)?;
        above_zero("privacy.mvg.epsilon_max", mvg.epsilon_max, 1e6)?;
        let budgets = limits::LEAST_EPSILON..=limits::EPSILON;
        within("privacy.mvg.attention_epsilon", mvg.attention_epsilon, budgets)?;
        within("privacy.mvg.attention_examples", mvg.attention_examples, 1..=usize::MAX)
    }
}
