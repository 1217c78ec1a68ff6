//! Relative-position terms of attention scores: a bias (MPNet), or products with relative-position
//! embeddings (DeBERTa).

use super::attention::Attention;
use super::disentangled::{self, Disentangled};
use super::position_bias::{self, PositionBias};
use crate::factor::Receiver;
use crate::parameters::ParameterId;
use crate::pass::Pass;
use undertone_tensor::{Matrix, Relative, RelativeGradients, Result};

#[derive(Clone, Debug)]
pub enum RelativePositions {
    Bias(PositionBias),
    Disentangled(Box<Disentangled>),
}

/// Inputs for attention, and what the backward pass needs.
#[derive(Clone, Debug)]
pub enum Saved {
    Bias(position_bias::Saved),
    Disentangled(Box<disentangled::Saved>),
}

impl Saved {
    pub fn terms(&self) -> Relative<'_> {
        match self {
            Self::Bias(saved) => saved.terms(),
            Self::Disentangled(saved) => saved.terms(),
        }
    }
}

impl RelativePositions {
    pub fn forward(&self, pass: &Pass, attention: &Attention, qkv: &Matrix) -> Result<Saved> {
        match self {
            Self::Bias(bias) => Ok(Saved::Bias(bias.forward(pass)?)),
            Self::Disentangled(layer) => {
                Ok(Saved::Disentangled(Box::new(layer.forward(pass, attention, qkv)?)))
            }
        }
    }

    /// Emits the factors, and returns the contribution to the gradients of queries and keys.
    pub fn backward(
        &self,
        pass: &Pass,
        attention: &Attention,
        (qkv, saved): (&Matrix, &Saved),
        gradients: &RelativeGradients,
        receiver: &mut dyn Receiver,
    ) -> Result<Option<[Matrix; 2]>> {
        match (self, saved) {
            (Self::Bias(bias), _) => {
                bias.backward(pass, &gradients.of_queries, receiver)?;
                Ok(None)
            }
            (Self::Disentangled(layer), Saved::Disentangled(saved)) => {
                layer.backward(pass, attention, (qkv, saved), gradients, receiver).map(Some)
            }
            (Self::Disentangled(_), Saved::Bias(_)) => unreachable!("saved by another layer"),
        }
    }

    /// The parameters shared by all blocks.
    pub fn parameters(&self) -> Vec<ParameterId> {
        match self {
            Self::Bias(bias) => vec![bias.table],
            Self::Disentangled(layer) => layer.parameters().collect(),
        }
    }
}
