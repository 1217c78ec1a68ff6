//! The plan of a local DP method.

use super::mvg::Budgets;
use super::settings::{LocalSettings, examples_per_unit};
use crate::data::Task;
use crate::error::{Error, Result};
use crate::method::schedule::Schedule;
use crate::model::Network;
use crate::model::layer::head::Pick;
use crate::model::layer::sanitizer::{NoiseLayer, Rows};
use crate::plan::check::delta;
use std::path::Path;
use undertone_run::{
    AdaptSection, AttentionSource, Bounding, Clip, DataSection, EncoderKind, LearnerKind,
    MethodName, ModeName, MvgSection, PublicFile, ReleaseKind, RunFile, TaskName, Tuning,
};

/// Mechanism, budget and training of a local DP method.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalPlan {
    pub method: LocalMethod,
    /// Proved, or as published.
    pub mode: ModeName,
    /// The calibration target of the noise.
    pub target: Target,
    pub delta: f64,
    /// Shape of the noise multiplier over the epochs.
    pub schedule: Schedule,
    /// Layer, mechanism and training above the noise.
    pub settings: LocalSettings,
    /// Public text on which the encoder and the center of the embeddings are fitted.
    pub public: Option<PublicFile>,
    /// Fine-tuning of the whole model before anything is perturbed.
    pub adapt: Option<AdaptSection>,
    /// Maximum number of examples per privacy unit.
    pub examples_per_unit: u64,
}

/// The local DP methods.
#[derive(Clone, Debug, PartialEq)]
pub enum LocalMethod {
    /// DP-Forward: noise on hidden states.
    DpForward,
    /// EW-FT: noise on the encoded hidden states, decreasing over the epochs.
    EwFt,
    /// MVG: noise on a sanitization layer, in a direction determined by the tokens' budgets.
    Mvg(MvgSection),
}

/// The calibration target of the noise.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// ε of an example; in paper mode, by the paper's own accounting.
    Epsilon(f64),
    /// No target: the noise multiplier of each epoch is given, 0 for an epoch without noise. Paper
    /// mode only.
    NoiseMultipliers(Vec<f64>),
    /// The tokens' own budgets, for MVG as published.
    Tokens,
}

impl LocalPlan {
    /// All files that the method treats as public.
    pub fn public_files(&self) -> Vec<&Path> {
        let adaptation = self.adapt.as_ref().and_then(|adapt| adapt.public.as_ref());
        self.public.iter().chain(adaptation).map(|public| public.file.as_path()).collect()
    }

    /// Checks a run file whose method is a local DP method.
    pub fn check(file: &RunFile) -> Result<Self> {
        let privacy = &file.privacy;
        let paper = privacy.mode == ModeName::Paper;
        let method = match privacy.method {
            MethodName::EwFt => LocalMethod::EwFt,
            MethodName::Mvg => LocalMethod::Mvg(privacy.mvg.clone()),
            _ => LocalMethod::DpForward,
        };
        let settings = LocalSettings::of(file);
        check_task(file)?;
        check_settings(file, &settings)?;
        check_schedule(file, &settings)?;
        check_pooler(file, &settings)?;
        check_encoder(file, &settings)?;
        check_learner(file, &settings)?;
        check_adapt(file, &settings)?;
        check_noise_multipliers(file, &settings)?;
        let target = match (&method, paper, privacy.epsilon, &privacy.noise_multipliers) {
            (LocalMethod::Mvg(_), true, ..) => Target::Tokens,
            (_, _, Some(epsilon), None) => Target::Epsilon(epsilon),
            (_, true, None, Some(list)) => Target::NoiseMultipliers(list.clone()),
            _ => return wrong("[privacy] needs epsilon"),
        };
        check_labels(file, &settings)?;
        check_mvg(file, &settings)?;
        Ok(Self {
            method,
            mode: privacy.mode,
            target,
            delta: delta(file)?,
            schedule: Schedule::of(privacy),
            settings,
            public: privacy.local.public.clone(),
            adapt: privacy.local.adapt.clone(),
            examples_per_unit: examples_per_unit(file),
        })
    }

    /// Whether the method runs as published.
    pub fn is_published(&self) -> bool {
        self.mode == ModeName::Paper
    }

    /// MVG's hyperparameters, if the method is MVG.
    pub fn mvg(&self) -> Option<&MvgSection> {
        match &self.method {
            LocalMethod::Mvg(section) => Some(section),
            _ => None,
        }
    }

    /// Whether embeddings are released without noise in some epoch.
    pub fn has_epochs_without_noise(&self) -> bool {
        matches!(&self.target, Target::NoiseMultipliers(list) if list.contains(&0.0))
    }

    /// In paper mode, the release that the method makes but the ledger does not contain.
    pub fn unaccounted(&self) -> Option<&'static str> {
        match (self.mode, self.settings.release) {
            (ModeName::Proved, _) => None,
            _ if self.has_epochs_without_noise() => Some(
                "epochs with noise multiplier 0 release embeddings without noise, which no ε \
                 covers and the ledger does not record; the layers below the noise were trained on \
                 the raw examples",
            ),
            (ModeName::Paper, ReleaseKind::Fresh) => Some(
                "the layers below the noise were trained on the raw examples, which is a release \
                 that the ledger does not record; the paper's own accounting assumes that an \
                 example is hidden in its batch, but it is sent, and seen, on its own",
            ),
            (ModeName::Paper, _) => Some(
                "the layers below the noise were trained on the raw examples, so an example's \
                 releases differ under the same noise: the ledger does not record what their \
                 difference reveals; sampling hides nothing either, since an example is seen on \
                 its own",
            ),
        }
    }

    /// Rejects a model that cannot be split at the plan's layer.
    pub fn check_model(&self, network: &Network) -> Result<()> {
        let rows = self.settings.rows;
        let causal = network.blocks.iter().any(|block| block.attention.causal);
        if causal && matches!(rows, Rows::Padded(_)) {
            return wrong(
                "lengths = \"padded\" needs a bidirectional model such as BERT; choose \
                 privacy.local.lengths = \"public\"",
            );
        }
        if network.head.pick == Pick::Last {
            if matches!(rows, Rows::Tokens(Some(_))) {
                return wrong(
                    "this model classifies by the last token, which is padding where lengths are \
                     hidden; choose rows = \"last\" or \"mean\", or lengths = \"public\"",
                );
            }
            if rows == Rows::First {
                return wrong(
                    "the first token of this model attends to no other; choose privacy.local.rows \
                     = \"last\"",
                );
            }
        }
        let blocks = network.blocks.len();
        if matches!(self.settings.noise_layer, NoiseLayer::After(after) if after > blocks) {
            return Err(Error::plan(format!(
                "privacy.local.after must be at most {blocks}, the model's number of blocks"
            )));
        }
        Ok(())
    }

    /// The columns to read from a public file; with labels if `labeled`.
    pub fn public_task(&self, data: &DataSection, public: &PublicFile, labeled: bool) -> Task {
        let text = public.text.clone().unwrap_or_else(|| data.text.clone());
        let label = public.label.clone().unwrap_or_else(|| data.label.clone());
        Task::Classification { text, label: labeled.then_some(label) }
    }
}

/// The tokens' budgets.
pub(super) fn budgets(mvg: &MvgSection) -> Budgets {
    Budgets { shift: mvg.shift, spread: mvg.spread, least: mvg.epsilon_min, most: mvg.epsilon_max }
}

fn wrong<T>(sentence: &str) -> Result<T> {
    Err(Error::plan(sentence))
}

fn check_task(file: &RunFile) -> Result<()> {
    if file.data.task != TaskName::Classification {
        return wrong(
            "local DP is for classification: a language model's targets are the private text \
             itself, which would be released beside the embeddings",
        );
    }
    if file.training.epochs > 65_536 {
        return wrong("methods of local DP take at most 65536 epochs");
    }
    if file.training.dropout && file.privacy.mode == ModeName::Proved {
        return wrong(
            "dropout below the noise would change an embedding between releases; omit \
             training.dropout",
        );
    }
    Ok(())
}

fn check_settings(file: &RunFile, settings: &LocalSettings) -> Result<()> {
    if !matches!(file.privacy.clip, Clip::Flat(_) | Clip::Automatic) {
        return wrong("privacy.clip in local DP is a number: the norm of an embedding");
    }
    if matches!(settings.rows, Rows::Padded(_)) && file.privacy.mode == ModeName::Proved {
        return wrong(
            "lengths = \"padded\" is for mode = \"paper\"; choose \"hidden\", or \"public\" if the \
             numbers of tokens are",
        );
    }
    let published_mvg =
        file.privacy.mode == ModeName::Paper && file.privacy.method == MethodName::Mvg;
    if settings.bounding == Bounding::Box && !published_mvg {
        return wrong(
            "privacy.local.bound is \"normalize\" or \"clip\": a box does not bound the norm of \
             an embedding",
        );
    }
    Ok(())
}

fn check_pooler(file: &RunFile, settings: &LocalSettings) -> Result<()> {
    if settings.noise_layer != NoiseLayer::Pooler {
        return Ok(());
    }
    if settings.rows != Rows::First {
        return wrong("the pooler reads the first token: leave privacy.local.rows at \"first\"");
    }
    if file.model.tuning != Tuning::Full {
        return wrong(
            "after = \"pooler\" splits the task head, which an adapter cannot store: model.tuning \
             must be \"full\"",
        );
    }
    Ok(())
}

fn check_schedule(file: &RunFile, settings: &LocalSettings) -> Result<()> {
    if settings.release == ReleaseKind::Once && !Schedule::of(&file.privacy).is_uniform() {
        return wrong(
            "an embedding that is released once has one noise multiplier; choose release = \
             \"path\" for a schedule, or schedule = \"uniform\"",
        );
    }
    Ok(())
}

fn check_encoder(file: &RunFile, settings: &LocalSettings) -> Result<()> {
    let given = &file.privacy.local;
    let encoder = settings.encoder;
    // A decoder outputs hidden states, which are not centered. In that case, only an encoder that
    // is not trained from scratch uses public text.
    if given.public.is_some()
        && settings.decodes
        && matches!(encoder, EncoderKind::None | EncoderKind::Trained)
    {
        return wrong(
            "privacy.local.public is for encoders \"pca\", \"autoencoder\" and \"orthogonal\", and \
             for learn = \"discriminant\"; remove it",
        );
    }
    if encoder != EncoderKind::None && settings.dims.is_empty() {
        return wrong("privacy.local.dims are widths, such as [64] or [256, 64, 4]");
    }
    let projection = matches!(encoder, EncoderKind::Orthogonal | EncoderKind::Pca);
    if projection && settings.dims.len() != 1 {
        return wrong(
            "a projection has one width, such as dims = [64]; encoder = \"autoencoder\" stacks \
             several",
        );
    }
    let fitted = matches!(encoder, EncoderKind::Pca | EncoderKind::Autoencoder);
    if fitted && given.public.is_none() {
        return wrong(
            "an encoder that is fitted needs public text: public = \"file\", or encoder = \
             \"orthogonal\", which needs none",
        );
    }
    let proved = file.privacy.mode == ModeName::Proved;
    if encoder == EncoderKind::Trained && proved && given.adapt.is_none() {
        return wrong(
            "an encoder that learns from the private examples voids the guarantee; give it public \
             data by adapt, or choose mode = \"paper\"",
        );
    }
    if file.privacy.method == MethodName::EwFt && encoder == EncoderKind::None {
        return wrong("ew-ft needs an encoder; without one, choose method = \"dp-forward\"");
    }
    Ok(())
}

fn check_learner(file: &RunFile, settings: &LocalSettings) -> Result<()> {
    if settings.learn == LearnerKind::Discriminant && settings.release != ReleaseKind::Once {
        return wrong(
            "learn = \"discriminant\" uses each embedding once; leave release at \"once\"",
        );
    }
    let tuning = &file.model.tuning;
    if file.privacy.local.adapt.is_some() && !matches!(tuning, Tuning::Head | Tuning::Full) {
        return wrong(
            "adapt fine-tunes the whole model, so model.tuning must be \"head\" or \"full\"",
        );
    }
    if settings.learn == LearnerKind::Discriminant
        && (settings.rows.are_of_tokens()
            || settings.noise_layer != NoiseLayer::Output
            || *tuning != Tuning::Head)
    {
        return wrong(
            "learn = \"discriminant\" is for one row at the output and model.tuning = \"head\"; \
             deeper parts learn by \"gradient\"",
        );
    }
    Ok(())
}

fn check_adapt(file: &RunFile, settings: &LocalSettings) -> Result<()> {
    let Some(adapt) = &file.privacy.local.adapt else { return Ok(()) };
    let paper = file.privacy.mode == ModeName::Paper;
    let learning_rate = adapt.learning_rate();
    let has_rate = learning_rate.is_finite() && learning_rate > 0.0;
    if !(adapt.epochs() > 0 && adapt.batch() > 0 && has_rate) {
        return wrong("adapt needs epochs, batch and learning_rate above 0");
    }
    if adapt.public.is_some() == adapt.share.is_some() {
        return wrong(
            "adapt learns from public data, { public = \"file\" }, or from the private examples, \
             { share = 0.5 }; name one of them",
        );
    }
    if adapt.share.is_some_and(|share| !(share > 0.0 && share < 1.0)) {
        return wrong(
            "adapt.share must lie between 0 and 1: it is the part of epsilon that DP-SGD may cost",
        );
    }
    if adapt.share.is_some() && (paper || file.data.author.is_some()) {
        return wrong(
            "adapt.share is for mode = \"proved\" and examples that each are a privacy unit of \
             their own, without data.author",
        );
    }
    if adapt.share.is_some() && settings.encoder == EncoderKind::Trained {
        return wrong(
            "DP-SGD adapts what is below the encoder, not the encoder; choose encoder = \
             \"orthogonal\" or \"pca\"",
        );
    }
    Ok(())
}

fn check_noise_multipliers(file: &RunFile, settings: &LocalSettings) -> Result<()> {
    let Some(list) = &file.privacy.noise_multipliers else { return Ok(()) };
    if file.privacy.epsilon.is_some() {
        return wrong("[privacy] needs either epsilon or noise_multipliers, not both");
    }
    if list.len() != file.training.epochs as usize {
        return Err(Error::plan(format!(
            "privacy.noise_multipliers has one number for each epoch: it has {}, but \
             training.epochs is {}",
            list.len(),
            file.training.epochs
        )));
    }
    if list.iter().all(|&noise| noise == 0.0) {
        return wrong(
            "privacy.noise_multipliers are all 0; for training without noise choose method = \
             \"none\"",
        );
    }
    if settings.release != ReleaseKind::Fresh {
        return wrong(
            "privacy.noise_multipliers are those of a release in every epoch; leave \
             privacy.local.release at \"fresh\"",
        );
    }
    Ok(())
}

fn check_labels(file: &RunFile, settings: &LocalSettings) -> Result<()> {
    if file.privacy.local.label_epsilon.is_some_and(|e| !(e.is_finite() && e >= 0.0)) {
        return wrong("label_epsilon must be a number of at least 0");
    }
    let labels = settings.label_epsilon.map(|e| e * examples_per_unit(file) as f64);
    if file.privacy.mode == ModeName::Proved && labels >= file.privacy.epsilon {
        return wrong(
            "label_epsilon, for each example of a unit, uses up epsilon; leave some for the text",
        );
    }
    Ok(())
}

fn check_mvg(file: &RunFile, settings: &LocalSettings) -> Result<()> {
    if file.privacy.method != MethodName::Mvg {
        return Ok(());
    }
    let mvg = &file.privacy.mvg;
    let proved = file.privacy.mode == ModeName::Proved;
    if mvg.epsilon_max < mvg.epsilon_min {
        return wrong("privacy.mvg.epsilon_max must not be below privacy.mvg.epsilon_min");
    }
    if mvg.attention == AttentionSource::Raw && proved {
        return wrong(
            "attention = \"raw\" uses the private examples without noise; choose \"position\" or \
             \"atten-dp\", or mode = \"paper\"",
        );
    }
    if proved
        && mvg.attention == AttentionSource::AttenDp
        && Some(mvg.attention_epsilon) >= file.privacy.epsilon
    {
        return wrong(
            "the attention map uses up epsilon; lower attention_epsilon, or choose attention = \
             \"position\"",
        );
    }
    if settings.encoder == EncoderKind::None {
        return wrong(
            "mvg releases the outputs of a sanitization layer; its encoder cannot be \"none\"",
        );
    }
    if settings.noise_layer != NoiseLayer::Output {
        return wrong(
            "mvg's sanitization layer comes after the last block: privacy.local.after must be \
             \"output\"",
        );
    }
    if !matches!(settings.rows, Rows::First | Rows::Last) {
        return wrong("mvg releases one token's row: rows must be \"first\" or \"last\"");
    }
    Ok(())
}
