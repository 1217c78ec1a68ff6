//! The blocks of BERT and its relatives: bidirectional attention and a feed-forward layer, each
//! normalized after its residual sum, with a bias in every layer. The relatives differ in tensor
//! names and in the relative-position terms of attention.

use super::{Builder, Sizes};
use crate::Result;
use crate::layer::attention::{Attention, Projections};
use crate::layer::block::{Block, NormOrder};
use crate::layer::feed_forward::{FeedForward, Gate};
use crate::layer::relative_positions::RelativePositions;
use undertone_tensor::{Activation, Scores};

/// Names of a block's layers, relative to the block.
pub(super) struct Names {
    /// Queries, keys and values.
    pub projections: [&'static str; 3],
    pub attention_output: &'static str,
    pub attention_norm: &'static str,
    pub up: &'static str,
    pub down: &'static str,
    pub norm: &'static str,
}

/// Settings shared by all blocks of a model.
pub(super) struct PostNorm<'a> {
    /// Name of a block without its index, such as `bert.encoder.layer`.
    pub stem: &'a str,
    pub names: Names,
    /// Width of a head.
    pub width: usize,
    /// ε of the normalizations.
    pub epsilon: f32,
    pub dropout: f32,
    pub attention_dropout: f32,
    pub activation: Activation,
    pub relative: Option<RelativePositions>,
    pub scores: Scores,
}

impl PostNorm<'_> {
    pub fn blocks(&self, sizes: &Sizes, builder: &mut Builder) -> Result<Vec<Block>> {
        (0..sizes.layers).map(|i| self.block(i, sizes, builder)).collect()
    }

    /// Adds parameters in computation order, which is also the order of their noise.
    fn block(&self, i: usize, sizes: &Sizes, builder: &mut Builder) -> Result<Block> {
        let (hidden, inner, names) = (sizes.hidden, sizes.inner, &self.names);
        let name = format!("{}.{i}", self.stem);
        let site = 8 * i as u64;
        let of = |part: &str| format!("{name}.{part}");
        let [queries, keys, values] = names.projections;
        let attention = Attention {
            projections: Projections::Split(Box::new([
                builder.linear(&of(queries), hidden, hidden, true)?,
                builder.linear(&of(keys), hidden, hidden, true)?,
                builder.linear(&of(values), hidden, hidden, true)?,
            ])),
            output: builder.linear(&of(names.attention_output), hidden, hidden, true)?,
            heads: sizes.heads,
            key_heads: sizes.heads,
            width: self.width,
            causal: false,
            head_norms: None,
            rotary: None,
            relative: self.relative.clone(),
            scores: self.scores,
            dropout: self.attention_dropout,
            site: site + 2,
        };
        Ok(Block {
            order: NormOrder::After,
            attention,
            attention_norm: Some(builder.layer_norm(
                &of(names.attention_norm),
                hidden,
                self.epsilon,
            )?),
            attention_output_norm: None,
            attention_adapter: None,
            feed_forward: FeedForward {
                gate: Gate::Absent,
                up: builder.linear(&of(names.up), hidden, inner, true)?,
                down: builder.linear(&of(names.down), inner, hidden, true)?,
                activation: self.activation,
            },
            feed_forward_norm: builder.layer_norm(&of(names.norm), hidden, self.epsilon)?,
            feed_forward_output_norm: None,
            feed_forward_adapter: None,
            dropout: self.dropout,
            site,
            name,
        })
    }
}
