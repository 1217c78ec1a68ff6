//! Llama-style decoders: RMSNorm, rotary position embeddings (RoPE), grouped-query attention, gated
//! feed-forward (SwiGLU).

use super::rope::{self, Rope};
use super::{Builder, Sizes, gpt2};
use crate::folder::Config;
use crate::layer::attention::{Attention, Projections};
use crate::layer::block::{Block, NormOrder};
use crate::layer::embedding::Embeddings;
use crate::layer::feed_forward::{FeedForward, Gate};
use crate::layer::head_norms::HeadNorms;
use crate::layer::norm::Norm;
use crate::{Network, Result, TaskHead};
use serde_json::Value;
use undertone_tensor::Scores;

pub(super) fn build(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let shape = Shape::read(config)?;
    let attention_bias = config.flag_or("attention_bias", false)?;
    let parts = Parts {
        projection_bias: attention_bias,
        output_bias: attention_bias,
        mlp_bias: config.flag_or("mlp_bias", false)?,
        ..Parts::plain(config, &shape)?
    };
    decoder(config, &shape, &parts, task_head, classes, builder)
}

/// Dimensions of a decoder.
pub(super) struct Shape {
    pub sizes: Sizes,
    /// Width of a head, in features.
    pub width: usize,
    pub key_heads: usize,
}

impl Shape {
    pub fn read(config: &Config) -> Result<Self> {
        let sizes = Sizes {
            vocabulary: config.size("vocab_size")?,
            hidden: config.size("hidden_size")?,
            layers: config.size("num_hidden_layers")?,
            heads: config.size("num_attention_heads")?,
            inner: config.size("intermediate_size")?,
            positions: config.size_or("max_position_embeddings", 2048)?,
        }
        .checked(config)?;
        let width = match config.as_map().get("head_dim") {
            Some(value) if !value.is_null() => config.size("head_dim")?,
            _ => sizes.head_width(config)?,
        };
        let key_heads = config.size_or("num_key_value_heads", sizes.heads)?;
        if !sizes.heads.is_multiple_of(key_heads) || !width.is_multiple_of(2) {
            return Err(config.error(format!(
                "num_attention_heads ({}) must be a multiple of num_key_value_heads ({key_heads}), \
                 and the head width ({width}) must be even",
                sizes.heads
            )));
        }
        if sizes.heads.checked_mul(width).is_none_or(|n| n > 1 << 24) {
            return Err(config.error("heads times head_dim is too large"));
        }
        Ok(Self { sizes, width, key_heads })
    }
}

/// Settings that can differ between layers.
#[derive(Clone, Debug)]
pub(super) struct LayerParts {
    /// `None` for a layer without positions (SmolLM3).
    pub rope: Option<Rope>,
    /// Maximum number of tokens a token attends to, including itself.
    pub window: Option<usize>,
}

/// Settings that can differ between decoders of this family.
pub(super) struct Parts {
    /// Whether the query, key and value projections have biases.
    pub projection_bias: bool,
    /// Whether the output projection of attention has a bias.
    pub output_bias: bool,
    pub mlp_bias: bool,
    /// Whether each head's queries and keys are normalized.
    pub head_norms: bool,
    /// Whether normalizations store γ − 1 and each branch also ends with one (Gemma).
    pub gemma_norms: bool,
    /// Whether queries, keys and values are one layer, and gate and up-projection another (Phi-3).
    pub fused: bool,
    pub layers: Vec<LayerParts>,
    /// Scale of the token embeddings.
    pub embedding_scale: f32,
    /// Scale of the dot products of queries and keys; `None` for 1/√width.
    pub attention_scale: Option<f32>,
    pub attention_soft_cap: Option<f32>,
    pub logit_soft_cap: Option<f32>,
    /// The key that names the activation function, and the default function.
    pub activation: (&'static str, &'static str),
    pub epsilon: f64,
    pub tied_by_default: bool,
    /// Dropout probabilities at the end of the branches and of the embeddings (Phi-3).
    pub dropout: [f32; 2],
}

impl Parts {
    /// Llama's settings.
    pub fn plain(config: &Config, shape: &Shape) -> Result<Self> {
        let rope = rope::read(config, shape.width, rope::Keys::plain(10_000.0))?;
        let layer = LayerParts { rope: Some(rope), window: None };
        Ok(Self::of_layers(vec![layer; shape.sizes.layers]))
    }

    /// Llama's settings with the given layers.
    pub fn of_layers(layers: Vec<LayerParts>) -> Self {
        Self {
            projection_bias: false,
            output_bias: false,
            mlp_bias: false,
            head_norms: false,
            gemma_norms: false,
            fused: false,
            layers,
            embedding_scale: 1.0,
            attention_scale: None,
            attention_soft_cap: None,
            logit_soft_cap: None,
            activation: ("hidden_act", "silu"),
            epsilon: 1e-6,
            tied_by_default: false,
            dropout: [0.0; 2],
        }
    }

    /// Applies this window to the local layers.
    pub fn with_windows(mut self, window: Option<usize>, is_local: &[bool]) -> Self {
        for (layer, _) in self.layers.iter_mut().zip(is_local).filter(|(_, local)| **local) {
            layer.window = window;
        }
        self
    }
}

/// The window size in a configuration, if any.
pub(super) fn window(config: &Config) -> Result<Option<usize>> {
    match config.as_map().get("sliding_window") {
        Some(value) if !value.is_null() => config.size("sliding_window").map(Some),
        _ => Ok(None),
    }
}

/// Whether each layer attends to a window, according to `layer_types` or else to `other`.
pub(super) fn local_layers(
    config: &Config,
    layers: usize,
    other: impl Fn(usize) -> bool,
) -> Result<Vec<bool>> {
    let Some(kinds) = config.as_map().get("layer_types").filter(|kinds| !kinds.is_null()) else {
        return Ok((0..layers).map(other).collect());
    };
    let refusal = || {
        config.error(format!(
            "layer_types must be \"full_attention\" or \"sliding_attention\" for each of the \
             {layers} layers"
        ))
    };
    let kinds = kinds.as_array().filter(|kinds| kinds.len() == layers).ok_or_else(refusal)?;
    let is_local = |kind: &Value| match kind.as_str() {
        Some("full_attention") => Ok(false),
        Some("sliding_attention") => Ok(true),
        _ => Err(refusal()),
    };
    kinds.iter().map(is_local).collect()
}

/// Builds the layers of one block.
struct BlockBuilder<'a, 'b> {
    name: String,
    shape: &'a Shape,
    parts: &'a Parts,
    epsilon: f32,
    builder: &'a mut Builder<'b>,
}

impl BlockBuilder<'_, '_> {
    fn norm(&mut self, name: &str, width: usize) -> Result<Norm> {
        let name = format!("{}.{name}", self.name);
        match self.parts.gemma_norms {
            true => self.builder.offset_rms_norm(&name, width, self.epsilon),
            false => self.builder.rms_norm(&name, width, self.epsilon),
        }
    }

    fn projections(&mut self) -> Result<Projections> {
        let Shape { sizes, width, key_heads } = self.shape;
        let (name, bias) = (&self.name, self.parts.projection_bias);
        if self.parts.fused {
            let outputs = (sizes.heads + 2 * key_heads) * width;
            let name = format!("{name}.self_attn.qkv_proj");
            let layer = self.builder.linear(&name, sizes.hidden, outputs, bias)?;
            return Ok(Projections::Fused(Box::new(layer)));
        }
        let mut projection = |which: &str, heads: usize| {
            let name = format!("{name}.self_attn.{which}_proj");
            self.builder.linear(&name, sizes.hidden, heads * width, bias)
        };
        Ok(Projections::Split(Box::new([
            projection("q", sizes.heads)?,
            projection("k", *key_heads)?,
            projection("v", *key_heads)?,
        ])))
    }

    fn attention(&mut self, layer: &LayerParts, dropout: f32, site: u64) -> Result<Attention> {
        let Shape { sizes, width, key_heads } = self.shape;
        let projections = self.projections()?;
        let head_norms = match self.parts.head_norms {
            true => Some(HeadNorms {
                queries: self.norm("self_attn.q_norm", *width)?,
                keys: self.norm("self_attn.k_norm", *width)?,
            }),
            false => None,
        };
        let name = format!("{}.self_attn.o_proj", self.name);
        let (from, bias) = (sizes.heads * width, self.parts.output_bias);
        let output = self.builder.linear(&name, from, sizes.hidden, bias)?;
        let of_rope = layer.rope.as_ref().and_then(|rope| rope.scale(*width));
        Ok(Attention {
            projections,
            output,
            heads: sizes.heads,
            key_heads: *key_heads,
            width: *width,
            causal: true,
            head_norms,
            rotary: layer.rope.as_ref().map(|rope| rope.frequencies.clone()),
            relative: None,
            scores: Scores {
                scale: self.parts.attention_scale.or(of_rope),
                window: layer.window,
                soft_cap: self.parts.attention_soft_cap,
            },
            dropout,
            site,
        })
    }

    fn feed_forward(&mut self, config: &Config) -> Result<FeedForward> {
        let Sizes { hidden, inner, .. } = self.shape.sizes;
        let (key, other) = self.parts.activation;
        let activation = config.activation(key, other)?;
        let (name, bias) = (&self.name, self.parts.mlp_bias);
        let mut layer = |which: &str, from: usize, to: usize| {
            self.builder.linear(&format!("{name}.mlp.{which}_proj"), from, to, bias)
        };
        let (gate, up) = match self.parts.fused {
            true => (Gate::Fused, layer("gate_up", hidden, 2 * inner)?),
            false => {
                let gate = layer("gate", hidden, inner)?;
                (Gate::Layer(Box::new(gate)), layer("up", hidden, inner)?)
            }
        };
        Ok(FeedForward { gate, up, down: layer("down", inner, hidden)?, activation })
    }
}

pub(super) fn decoder(
    config: &Config,
    shape: &Shape,
    parts: &Parts,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let sizes = &shape.sizes;
    let hidden = sizes.hidden;
    let epsilon = config.epsilon_or("rms_norm_eps", parts.epsilon)?;
    let attention_dropout = config.dropout_or_zero("attention_dropout")?;
    let embeddings = Embeddings {
        prompt: None,
        tokens: builder.tensor("model.embed_tokens.weight", &[sizes.vocabulary, hidden])?,
        scale: parts.embedding_scale,
        positions: None,
        segments: None,
        norm: None,
        dropout: parts.dropout[1],
    };
    let mut blocks = Vec::new();
    for (i, layer) in parts.layers.iter().enumerate() {
        let name = format!("model.layers.{i}");
        let site = 8 * i as u64;
        let mut block = BlockBuilder { name: name.clone(), shape, parts, epsilon, builder };
        let attention_norm = Some(block.norm("input_layernorm", hidden)?);
        let attention = block.attention(layer, attention_dropout, site + 2)?;
        let mut norms = [None, None];
        let feed_forward_norm = match parts.gemma_norms {
            false => block.norm("post_attention_layernorm", hidden)?,
            true => {
                norms = [
                    Some(block.norm("post_attention_layernorm", hidden)?),
                    Some(block.norm("post_feedforward_layernorm", hidden)?),
                ];
                block.norm("pre_feedforward_layernorm", hidden)?
            }
        };
        let [attention_output_norm, feed_forward_output_norm] = norms;
        blocks.push(Block {
            order: NormOrder::Before,
            attention_norm,
            attention,
            attention_output_norm,
            attention_adapter: None,
            feed_forward_norm,
            feed_forward: block.feed_forward(config)?,
            feed_forward_output_norm,
            feed_forward_adapter: None,
            dropout: parts.dropout[0],
            site,
            name,
        });
    }
    let last_norm = Some(match parts.gemma_norms {
        true => builder.offset_rms_norm("model.norm", hidden, epsilon)?,
        false => builder.rms_norm("model.norm", hidden, epsilon)?,
    });
    builder.begin_head();
    let tied = config.flag_or("tie_word_embeddings", parts.tied_by_default)?;
    let tied = tied.then_some(embeddings.tokens);
    let mut head = gpt2::decoder_head(task_head, classes, sizes, tied, builder)?;
    // transformers soft-caps the vocabulary logits only, not those of other heads.
    head.soft_cap = parts.logit_soft_cap.filter(|_| task_head == TaskHead::CausalLanguageModel);
    let limits = parts.layers.iter().filter_map(|layer| layer.rope.as_ref()?.positions);
    Ok(Network {
        embeddings,
        blocks,
        last_norm,
        head,
        vocabulary: sizes.vocabulary,
        sanitizer: None,
        max_positions: limits.fold(sizes.positions, usize::min),
    })
}
