//! What a run file means where it says nothing of the noise on records.

use super::{EncoderName, Learn, Lengths, NoiseIs, PublicFile, RowsName};
use crate::data::Task;
use crate::method::local::Release;
use crate::method::local::mvg::Budgets;
use crate::model::layer::sanitiser::{Bounding, Rows, Spot};
use crate::model::tuning::Tuning;
use crate::train::plan::{Method, ModeName, Plan};

/// `[privacy.forward]` with nothing left out.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardSettings {
    pub spot: Spot,
    pub rows: Rows,
    pub bounding: Bounding,
    pub norm: f32,
    pub release: Release,
    pub encoder: EncoderName,
    pub dims: Vec<usize>,
    pub noise_is: NoiseIs,
    pub label_epsilon: Option<f64>,
    pub learn: Learn,
}

impl Plan {
    /// Whether records are perturbed, rather than gradients.
    pub fn is_forward(&self) -> bool {
        matches!(self.privacy.method, Method::DpForward | Method::EwFt | Method::Mvg)
    }

    /// What is meant where the run file says nothing.
    pub fn forward(&self) -> ForwardSettings {
        let given = &self.privacy.forward;
        let paper = self.privacy.mode == ModeName::Paper;
        let mvg = self.privacy.method == Method::Mvg;
        let spot = given.after.map_or(Spot::Output, |after| after.0);
        let name = given.rows.unwrap_or(match (mvg, paper, spot) {
            (true, ..) => RowsName::First,
            (_, true, Spot::After(_)) => RowsName::Tokens,
            (_, true, Spot::Output) => RowsName::First,
            _ => RowsName::Mean,
        });
        let lengths =
            given.lengths.unwrap_or(if paper { Lengths::Public } else { Lengths::Hidden });
        let rows = match name {
            RowsName::Tokens if lengths == Lengths::Hidden => {
                Rows::Tokens(Some(self.data.max_tokens))
            }
            RowsName::Tokens => Rows::Tokens(None),
            RowsName::First => Rows::First,
            RowsName::Last => Rows::Last,
            RowsName::Mean => Rows::Mean,
        };
        let usual = match (self.privacy.method, paper) {
            (Method::DpForward, _) => EncoderName::None,
            (_, true) => EncoderName::Trained,
            // MVG's layer may be wider than the hidden states.
            _ if given.public.is_some() && !mvg => EncoderName::Pca,
            _ => EncoderName::Orthogonal,
        };
        let encoder = given.encoder.unwrap_or(usual);
        let dims = match (encoder, mvg) {
            (EncoderName::None, _) => Vec::new(),
            (_, true) => vec![self.privacy.mvg.width],
            _ => given.dims.clone().unwrap_or_else(|| vec![16]),
        };
        let one_row = !matches!(rows, Rows::Tokens(_));
        let closed_form = one_row && spot == Spot::Output && self.model.tuning == Tuning::Head;
        let learn = given.learn.unwrap_or(match (paper, closed_form) {
            (true, _) => Learn::Plain,
            (_, true) => Learn::Discriminant,
            _ => Learn::Gradient,
        });
        let bounding = match (mvg, paper) {
            (true, true) => Bounding::Box,
            _ => given.bound.unwrap_or(Bounding::Normalise),
        };
        let norm = match self.privacy.clip {
            crate::gradient::Clip::Flat(bound) => bound as f32,
            _ => 1.0,
        };
        // Beyond an ε of 2 labels tell the truth seven times in eight, and the text has more use
        // for the rest.
        let adaptation = given.adapt.as_ref().and_then(|adapt| adapt.share).unwrap_or(0.0);
        let left = (1.0 - adaptation) * self.privacy.epsilon.unwrap_or(4.0);
        let share = 0.5 * left / self.records_per_unit() as f64;
        let usual = if paper { 0.0 } else { share.min(2.0) };
        let label_epsilon =
            Some(given.label_epsilon.unwrap_or(usual)).filter(|&epsilon| epsilon > 0.0);
        let release = given.release.unwrap_or(if paper { Release::Fresh } else { Release::Once });
        ForwardSettings {
            spot,
            rows,
            bounding,
            norm,
            release,
            encoder,
            dims,
            noise_is: given.noise_is.unwrap_or_default(),
            label_epsilon,
            learn,
        }
    }

    /// The budgets of the tokens.
    pub fn budgets(&self) -> Budgets {
        let mvg = &self.privacy.mvg;
        Budgets {
            shift: mvg.shift,
            spread: mvg.spread,
            least: mvg.epsilon_min,
            most: mvg.epsilon_max,
        }
    }

    /// The task of a public file: without labels unless they are wanted.
    pub fn public_task(&self, public: &PublicFile, labelled: bool) -> Task {
        let text = public.text.clone().unwrap_or_else(|| self.data.text.clone());
        let label = public.label.clone().unwrap_or_else(|| self.data.label.clone());
        Task::Classification { text, label: labelled.then_some(label) }
    }
}
