//! Refuses run files whose noise on records cannot be meant.

use super::{AttentionName, EncoderName, ForwardPlan, ForwardSettings, Learn, MvgPlan};
use crate::method::local::Release;
use crate::model::layer::sanitiser::{Bounding, Rows, Spot};
use crate::model::tuning::Tuning;
use crate::train::error::{Error, Result};
use crate::train::plan::{Method, ModeName, Plan, TaskName};

fn wrong(sentence: &str) -> Result<()> {
    Err(Error::plan(sentence))
}

impl Plan {
    /// Refuses what cannot be meant of a forward method.
    pub(in crate::train::plan) fn check_forward(&self) -> Result<()> {
        if self.privacy.forward != ForwardPlan::default() && !self.is_forward() {
            return Err(Error::plan(
                "[privacy.forward] is for the methods dp-forward, ew-ft and mvg; remove it",
            ));
        }
        if self.privacy.mvg != MvgPlan::default() && self.privacy.method != Method::Mvg {
            return Err(Error::plan("[privacy.mvg] is for the method mvg; remove it"));
        }
        if !self.is_forward() {
            return Ok(());
        }
        let settings = self.forward();
        let given = &self.privacy.forward;
        let paper = self.privacy.mode == ModeName::Paper;
        if self.data.task != TaskName::Classification {
            return wrong(
                "noise on embeddings is for classification: a language model's targets are the \
                 private text itself, which would be released beside it",
            );
        }
        if !matches!(
            self.privacy.clip,
            crate::gradient::Clip::Flat(_) | crate::gradient::Clip::Automatic
        ) {
            return wrong(
                "privacy.clip of a forward method is a number: the norm of a record's rows",
            );
        }
        let mvg_as_published = paper && self.privacy.method == Method::Mvg;
        if settings.bounding == Bounding::Box && !mvg_as_published {
            return wrong(
                "privacy.forward.bound is \"normalise\" or \"clip\": a box does not bound the norm \
                 of a record",
            );
        }
        if self.training.epochs > 65_536 {
            return wrong("methods that perturb records take at most 65536 epochs");
        }
        if self.training.dropout && !paper {
            return wrong(
                "dropout below the noise would make a record differ between releases; leave \
                 training.dropout out",
            );
        }
        self.check_encoder(&settings)?;
        if settings.learn == Learn::Discriminant && settings.release != Release::Once {
            return wrong(
                "learn = \"discriminant\" looks at each record once; leave release at \"once\"",
            );
        }
        if given.adapt.is_some() && !matches!(self.model.tuning, Tuning::Head | Tuning::Full) {
            return wrong(
                "adapt changes all of the model, so model.tuning must be \"head\" or \"full\"",
            );
        }
        if settings.learn == Learn::Discriminant
            && (matches!(settings.rows, Rows::Tokens(_))
                || settings.spot != Spot::Output
                || self.model.tuning != Tuning::Head)
        {
            return wrong(
                "learn = \"discriminant\" is for one row at the output and model.tuning = \
                 \"head\"; deeper parts learn by \"gradient\"",
            );
        }
        if self.privacy.noise_multiplier.is_some() {
            return wrong(
                "forward methods are calibrated to epsilon; give that in place of noise_multiplier",
            );
        }
        self.check_adapt(&settings)?;
        if given.label_epsilon.is_some_and(|e| !(e.is_finite() && e >= 0.0)) {
            return wrong("label_epsilon must be a number of at least 0");
        }
        let labels = settings.label_epsilon.map(|e| e * self.records_per_unit() as f64);
        if !paper && labels >= self.privacy.epsilon {
            return wrong(
                "the labels take all of epsilon (label_epsilon for each record of a unit); leave \
                 some for the text",
            );
        }
        self.check_mvg(&settings)
    }

    fn check_encoder(&self, settings: &ForwardSettings) -> Result<()> {
        let given = &self.privacy.forward;
        let paper = self.privacy.mode == ModeName::Paper;
        if settings.encoder != EncoderName::None && settings.dims.is_empty() {
            return wrong("privacy.forward.dims are widths, such as [64] or [256, 64, 4]");
        }
        if matches!(settings.encoder, EncoderName::Orthogonal | EncoderName::Pca)
            && settings.dims.len() != 1
        {
            return wrong(
                "a projection has one width, such as dims = [64]; encoder = \"autoencoder\" stacks \
                 several",
            );
        }
        if matches!(settings.encoder, EncoderName::Pca | EncoderName::Autoencoder)
            && given.public.is_none()
        {
            return wrong(
                "an encoder that is fitted needs public text: public = \"file\", or encoder = \
                 \"orthogonal\", which needs none",
            );
        }
        if settings.encoder == EncoderName::Trained && !paper && given.adapt.is_none() {
            return wrong(
                "an encoder that learns from the records voids the guarantee; give it public data \
                 by adapt, or choose mode = \"paper\"",
            );
        }
        if self.privacy.method == Method::EwFt && settings.encoder == EncoderName::None {
            return wrong(
                "ew-ft releases what an encoder makes of a record; without one, the method is \
                 dp-forward",
            );
        }
        Ok(())
    }

    fn check_adapt(&self, settings: &ForwardSettings) -> Result<()> {
        let Some(adapt) = &self.privacy.forward.adapt else { return Ok(()) };
        let paper = self.privacy.mode == ModeName::Paper;
        let rate = adapt.learning_rate();
        if !(adapt.epochs() > 0 && adapt.batch() > 0 && rate.is_finite() && rate > 0.0) {
            return wrong("adapt needs epochs, batch and learning_rate above 0");
        }
        if adapt.public.is_some() == adapt.share.is_some() {
            return wrong(
                "adapt learns from public data, { public = \"file\" }, or from the records, { \
                 share = 0.5 }; name one of them",
            );
        }
        if adapt.share.is_some_and(|share| !(share > 0.0 && share < 1.0)) {
            return wrong(
                "adapt.share must lie between 0 and 1: it is the part of epsilon that DP-SGD may \
                 cost",
            );
        }
        if adapt.share.is_some() && (paper || self.data.author.is_some()) {
            return wrong(
                "adapt.share is for mode = \"proved\" and records that each are a unit of their \
                 own, without data.author",
            );
        }
        if adapt.share.is_some() && settings.encoder == EncoderName::Trained {
            return wrong(
                "DP-SGD adapts what is below the encoder, not the encoder; choose encoder = \
                 \"orthogonal\" or \"pca\"",
            );
        }
        Ok(())
    }

    fn check_mvg(&self, settings: &ForwardSettings) -> Result<()> {
        if self.privacy.method != Method::Mvg {
            return Ok(());
        }
        let mvg = &self.privacy.mvg;
        let paper = self.privacy.mode == ModeName::Paper;
        if mvg.epsilon_max < mvg.epsilon_min {
            return wrong("privacy.mvg.epsilon_max must not be below privacy.mvg.epsilon_min");
        }
        if mvg.attention == AttentionName::Raw && !paper {
            return wrong(
                "attention = \"raw\" uses the records without noise; choose \"position\" or \
                 \"atten-dp\", or mode = \"paper\"",
            );
        }
        if !paper
            && mvg.attention == AttentionName::AttenDp
            && Some(mvg.attention_epsilon) >= self.privacy.epsilon
        {
            return wrong(
                "the attention map takes all of epsilon; lower attention_epsilon, or choose \
                 attention = \"position\"",
            );
        }
        if settings.encoder == EncoderName::None {
            return wrong(
                "mvg releases the outputs of a sanitisation layer; its encoder cannot be \"none\"",
            );
        }
        if !matches!(settings.rows, Rows::First | Rows::Last) {
            return wrong("mvg releases one token's row: rows is \"first\" or \"last\"");
        }
        Ok(())
    }
}
