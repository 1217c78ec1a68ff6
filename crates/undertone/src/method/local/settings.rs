//! `[privacy.local]` with all defaults filled in.

use crate::model::layer::sanitizer::Rows;
use undertone_run::{
    AccountedBatch, AttentionHeads, Bounding, Clip, EncoderActivation, EncoderKind, LearnerKind,
    Lengths, MethodName, ModeName, MvgHead, NoiseIs, NoiseLayer, ReleaseKind, ReleasedRows,
    RunFile, Tuning,
};

/// Layer and mechanism of the noise, and training above it.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalSettings {
    /// The layer at which noise is added.
    pub noise_layer: NoiseLayer,
    /// The rows of a sequence that are released.
    pub rows: Rows,
    /// How the norm of an embedding is bounded.
    pub bounding: Bounding,
    /// The norm bound C.
    pub norm: f32,
    /// How often an embedding is released.
    pub release: ReleaseKind,
    /// The encoder of the hidden states.
    pub encoder: EncoderKind,
    /// Widths of the encoder's layers.
    pub dims: Vec<usize>,
    /// The activation function of an autoencoder. `None` means GELU, only between the layers of the
    /// encoder and between those of the decoder.
    pub activation: Option<EncoderActivation>,
    /// The quantity by which a published noise multiplier is multiplied.
    pub noise_is: NoiseIs,
    /// Whether MVG's attention map is averaged over heads.
    pub averages_heads: bool,
    /// The batch size reported to the papers' accountant.
    pub accounted_batch: AccountedBatch,
    /// ε of the labels' randomized response; `None` if labels are public.
    pub label_epsilon: Option<f64>,
    /// How the part above the noise is trained.
    pub learn: LearnerKind,
    /// Whether the provider decodes embeddings to hidden states. If not, a linear classifier uses
    /// them directly.
    pub decodes: bool,
}

/// Maximum number of examples per privacy unit.
pub(super) fn examples_per_unit(file: &RunFile) -> u64 {
    file.data.author.as_ref().map_or(1, |_| file.data.most_per_author as u64)
}

impl LocalSettings {
    /// The settings of a run file, with defaults that depend on method and mode.
    pub fn of(file: &RunFile) -> Self {
        let given = &file.privacy.local;
        let paper = file.privacy.mode == ModeName::Paper;
        let mvg = file.privacy.method == MethodName::Mvg;
        let noise_layer = given.after.unwrap_or(NoiseLayer::Output);
        let rows = given.rows.unwrap_or(match (mvg, paper, noise_layer) {
            (true, ..) | (_, _, NoiseLayer::Pooler) => ReleasedRows::First,
            (_, true, NoiseLayer::After(_)) => ReleasedRows::Tokens,
            (_, true, NoiseLayer::Output) => ReleasedRows::First,
            _ => ReleasedRows::Mean,
        });
        let lengths =
            given.lengths.unwrap_or(if paper { Lengths::Padded } else { Lengths::Hidden });
        let rows = match rows {
            ReleasedRows::Tokens => match lengths {
                Lengths::Hidden => Rows::Tokens(Some(file.data.max_tokens)),
                Lengths::Padded => Rows::Padded(file.data.max_tokens),
                Lengths::Public => Rows::Tokens(None),
            },
            ReleasedRows::First => Rows::First,
            ReleasedRows::Last => Rows::Last,
            ReleasedRows::Mean => Rows::Mean,
        };
        let usual = match (file.privacy.method, paper) {
            (MethodName::DpForward, _) => EncoderKind::None,
            (_, true) => EncoderKind::Trained,
            // MVG's layer may be wider than the hidden states.
            _ if given.public.is_some() && !mvg => EncoderKind::Pca,
            _ => EncoderKind::Orthogonal,
        };
        let encoder = given.encoder.unwrap_or(usual);
        let dims = match (encoder, mvg) {
            (EncoderKind::None, _) => Vec::new(),
            (_, true) => vec![file.privacy.mvg.width],
            _ => given.dims.clone().unwrap_or_else(|| vec![16]),
        };
        let autoencoder = matches!(encoder, EncoderKind::Autoencoder | EncoderKind::Trained);
        // Proved mode keeps the activation that it has always used.
        let activation = match (given.activation, autoencoder && !mvg && paper) {
            (None, true) => Some(EncoderActivation::Tanh),
            (given, _) => given,
        };
        let one_row = !rows.are_of_tokens();
        let closed_form =
            one_row && noise_layer == NoiseLayer::Output && file.model.tuning == Tuning::Head;
        let learn = given.learn.unwrap_or(match (paper, closed_form) {
            (true, _) => LearnerKind::Plain,
            (_, true) => LearnerKind::Discriminant,
            _ => LearnerKind::Gradient,
        });
        let reads_columns =
            mvg && paper && file.privacy.paper.head.unwrap_or_default() == MvgHead::Linear;
        let decodes = learn != LearnerKind::Discriminant && !reads_columns;
        let bounding = match (mvg, paper) {
            (true, true) => Bounding::Box,
            _ => given.bound.unwrap_or(Bounding::Normalize),
        };
        let norm = match file.privacy.clip {
            Clip::Flat(bound) => bound as f32,
            _ => 1.0,
        };
        // With ε = 2, seven in eight labels of two classes are kept; any more ε is better spent on
        // the embeddings.
        let adaptation = given.adapt.as_ref().and_then(|adapt| adapt.share).unwrap_or(0.0);
        let left = (1.0 - adaptation) * file.privacy.epsilon.unwrap_or(4.0);
        let share = 0.5 * left / examples_per_unit(file) as f64;
        let usual = if paper { 0.0 } else { share.min(2.0) };
        let label_epsilon =
            Some(given.label_epsilon.unwrap_or(usual)).filter(|&epsilon| epsilon > 0.0);
        let release =
            given.release.unwrap_or(if paper { ReleaseKind::Fresh } else { ReleaseKind::Once });
        let readings = &file.privacy.paper;
        let noise_is = readings.noise_is.unwrap_or_default();
        Self {
            noise_layer,
            rows,
            bounding,
            norm,
            release,
            encoder,
            dims,
            activation,
            noise_is,
            averages_heads: match readings.attention_heads {
                Some(heads) => heads == AttentionHeads::Averaged,
                None => mvg && paper,
            },
            accounted_batch: readings.accounted_batch.unwrap_or_default(),
            label_epsilon,
            learn,
            decodes,
        }
    }
}
