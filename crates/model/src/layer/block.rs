//! Transformer block: attention and feed-forward network, each with a residual connection,
//! normalization, dropout and an optional bottleneck adapter.

use super::adapter::{self, Adapter};
use super::attention::{self, Attention};
use super::feed_forward::{self, FeedForward};
use super::linear::Linear;
use super::norm::{self, Norm};
use crate::factor::Receiver;
use crate::parameters::ParameterId;
use crate::pass::Pass;
use undertone_tensor::{self as tensor, Dropout, KeyValueCache, Matrix, Output, Result};

/// Order of normalization and residual connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormOrder {
    /// Pre-norm, x + f(norm(x)): GPT-2, Llama. Gemma also normalizes the output of f.
    Before,
    /// Post-norm, norm(x + f(x)): BERT, DistilBERT, RoBERTa.
    After,
}

/// A transformer block.
#[derive(Clone, Debug)]
pub struct Block {
    /// Module path, such as `bert.encoder.layer.0`.
    pub name: String,
    pub order: NormOrder,
    pub attention: Attention,
    /// `None` for the identity (ModernBERT's first block).
    pub attention_norm: Option<Norm>,
    /// Normalization of the attention output (Gemma).
    pub attention_output_norm: Option<Norm>,
    /// Adapter after attention.
    pub attention_adapter: Option<Adapter>,
    pub feed_forward: FeedForward,
    pub feed_forward_norm: Norm,
    /// Normalization of the feed-forward output (Gemma).
    pub feed_forward_output_norm: Option<Norm>,
    /// Adapter after the feed-forward network.
    pub feed_forward_adapter: Option<Adapter>,
    /// Dropout probability after attention and after the feed-forward network.
    pub dropout: f32,
    /// Index that distinguishes this block's dropout masks.
    pub site: u64,
}

/// Activations saved for the backward pass.
#[derive(Clone, Debug)]
pub struct Saved {
    attention: attention::Saved,
    attention_norm: Option<norm::Saved>,
    attention_end: BranchSaved,
    feed_forward: feed_forward::Saved,
    feed_forward_norm: norm::Saved,
    feed_forward_end: BranchSaved,
}

/// The end of a residual branch: optional normalization, dropout and adapter.
struct BranchEnd<'a> {
    norm: Option<&'a Norm>,
    dropout: Option<Dropout>,
    adapter: Option<&'a Adapter>,
}

/// What the backward pass of a branch end needs.
#[derive(Clone, Debug)]
struct BranchSaved {
    norm: Option<norm::Saved>,
    dropout: Option<Dropout>,
    adapter: Option<adapter::Saved>,
}

impl BranchEnd<'_> {
    fn forward(&self, pass: &Pass, mut x: Matrix) -> Result<(Matrix, BranchSaved)> {
        let mut saved = BranchSaved { norm: None, dropout: self.dropout, adapter: None };
        if let Some(norm) = self.norm {
            let (y, kept) = norm.forward(pass, &x, None)?;
            x = y;
            saved.norm = Some(kept);
        }
        if let Some(dropout) = self.dropout {
            x = tensor::drop_out(dropout, &x)?;
        }
        if let Some(adapter) = self.adapter {
            let (y, kept) = adapter.forward(pass, &x)?;
            x = y;
            saved.adapter = Some(kept);
        }
        Ok((x, saved))
    }

    fn backward(
        &self,
        pass: &Pass,
        saved: BranchSaved,
        gradient: &Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<Matrix> {
        let mut gradient = gradient.clone();
        if let (Some(adapter), Some(saved)) = (self.adapter, saved.adapter) {
            gradient = adapter.backward(pass, saved, &gradient, receiver)?;
        }
        if let Some(dropout) = saved.dropout {
            gradient = tensor::drop_out(dropout, &gradient)?;
        }
        if let (Some(norm), Some(saved)) = (self.norm, saved.norm) {
            gradient = norm.backward(pass, saved, &gradient, receiver)?;
        }
        Ok(gradient)
    }
}

impl Block {
    /// The ends of the attention branch and of the feed-forward branch.
    fn branch_ends(&self, pass: &Pass) -> [BranchEnd<'_>; 2] {
        [
            BranchEnd {
                norm: self.attention_output_norm.as_ref(),
                dropout: pass.dropout(self.dropout, self.site),
                adapter: self.attention_adapter.as_ref(),
            },
            BranchEnd {
                norm: self.feed_forward_output_norm.as_ref(),
                dropout: pass.dropout(self.dropout, self.site + 1),
                adapter: self.feed_forward_adapter.as_ref(),
            },
        ]
    }

    /// The attention input for pre-norm.
    pub fn attention_input(
        &self,
        pass: &Pass,
        x: &Matrix,
    ) -> Result<(Matrix, Option<norm::Saved>)> {
        match &self.attention_norm {
            None => Ok((x.clone(), None)),
            Some(norm) => norm.forward(pass, x, None).map(|(y, saved)| (y, Some(saved))),
        }
    }

    /// The sum of a branch and the residual, normalized for post-norm.
    fn attention_sum(
        &self,
        pass: &Pass,
        branch: &Matrix,
        x: &Matrix,
    ) -> Result<(Matrix, Option<norm::Saved>)> {
        match &self.attention_norm {
            None => Ok((tensor::add(branch, x)?, None)),
            Some(norm) => norm.forward(pass, branch, Some(x)).map(|(y, saved)| (y, Some(saved))),
        }
    }

    /// Gradient with respect to the input of the attention normalization.
    fn attention_norm_backward(
        &self,
        pass: &Pass,
        saved: Option<norm::Saved>,
        gradient: Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<Matrix> {
        match (&self.attention_norm, saved) {
            (Some(norm), Some(saved)) => norm.backward(pass, saved, &gradient, receiver),
            _ => Ok(gradient),
        }
    }

    /// The output for each token, `[tokens, hidden]`.
    pub fn forward(&self, pass: &Pass, x: &Matrix) -> Result<(Matrix, Saved)> {
        let [first_end, second_end] = self.branch_ends(pass);
        match self.order {
            NormOrder::After => {
                let (a, attention) = self.attention.forward(pass, x)?;
                let (a, attention_end) = first_end.forward(pass, a)?;
                let (middle, attention_norm) = self.attention_sum(pass, &a, x)?;
                drop(a);
                let (f, feed_forward) = self.feed_forward.forward(pass, &middle)?;
                let (f, feed_forward_end) = second_end.forward(pass, f)?;
                let (y, feed_forward_norm) =
                    self.feed_forward_norm.forward(pass, &f, Some(&middle))?;
                let saved = Saved {
                    attention,
                    attention_norm,
                    attention_end,
                    feed_forward,
                    feed_forward_norm,
                    feed_forward_end,
                };
                Ok((y, saved))
            }
            NormOrder::Before => {
                let (n, attention_norm) = self.attention_input(pass, x)?;
                let (a, attention) = self.attention.forward(pass, &n)?;
                let (a, attention_end) = first_end.forward(pass, a)?;
                let middle = tensor::add(x, &a)?;
                drop((n, a));
                let (n, feed_forward_norm) = self.feed_forward_norm.forward(pass, &middle, None)?;
                let (f, feed_forward) = self.feed_forward.forward(pass, &n)?;
                let (f, feed_forward_end) = second_end.forward(pass, f)?;
                let y = tensor::add(&middle, &f)?;
                let saved = Saved {
                    attention,
                    attention_norm,
                    attention_end,
                    feed_forward,
                    feed_forward_norm,
                    feed_forward_end,
                };
                Ok((y, saved))
            }
        }
    }

    /// The output for new tokens, whose preceding tokens are in the key-value cache.
    pub fn extend(&self, pass: &Pass, x: &Matrix, cache: &mut KeyValueCache) -> Result<Matrix> {
        let ends = self.branch_ends(pass);
        let branch = |x, end: usize| Ok::<_, tensor::Error>(ends[end].forward(pass, x)?.0);
        match self.order {
            NormOrder::After => {
                let a = branch(self.attention.extend(pass, x, cache)?, 0)?;
                let middle = self.attention_sum(pass, &a, x)?.0;
                let f = branch(self.feed_forward.forward(pass, &middle)?.0, 1)?;
                Ok(self.feed_forward_norm.forward(pass, &f, Some(&middle))?.0)
            }
            NormOrder::Before => {
                let n = self.attention_input(pass, x)?.0;
                let a = branch(self.attention.extend(pass, &n, cache)?, 0)?;
                let middle = tensor::add(x, &a)?;
                let n = self.feed_forward_norm.forward(pass, &middle, None)?.0;
                let f = branch(self.feed_forward.forward(pass, &n)?.0, 1)?;
                tensor::add(&middle, &f)
            }
        }
    }

    /// Emits the factors, and returns the gradient of the input if requested.
    pub fn backward(
        &self,
        pass: &Pass,
        saved: Saved,
        output_gradient: Matrix,
        wants_input_gradient: bool,
        receiver: &mut dyn Receiver,
    ) -> Result<Option<Matrix>> {
        let Saved {
            attention,
            attention_norm,
            attention_end,
            feed_forward,
            feed_forward_norm,
            feed_forward_end,
        } = saved;
        let [first_end, second_end] = self.branch_ends(pass);
        let device = output_gradient.device();
        let (rows, columns) = (output_gradient.rows(), output_gradient.columns());
        match self.order {
            NormOrder::After => {
                let sum = self.feed_forward_norm.backward(
                    pass,
                    feed_forward_norm,
                    &output_gradient,
                    receiver,
                )?;
                drop(output_gradient);
                let branch = second_end.backward(pass, feed_forward_end, &sum, receiver)?;
                let mut middle = Output::new(&device, rows, columns);
                middle.copy(&sum)?;
                drop(sum);
                self.feed_forward.backward(pass, feed_forward, &branch, &mut middle, receiver)?;
                let middle = middle.finish()?;
                let sum = self.attention_norm_backward(pass, attention_norm, middle, receiver)?;
                drop(branch);
                let branch = first_end.backward(pass, attention_end, &sum, receiver)?;
                if !wants_input_gradient {
                    self.attention.backward(pass, attention, &branch, None, receiver)?;
                    return Ok(None);
                }
                let mut input = Output::new(&device, rows, columns);
                input.copy(&sum)?;
                drop(sum);
                self.attention.backward(pass, attention, &branch, Some(&mut input), receiver)?;
                Ok(Some(input.finish()?))
            }
            NormOrder::Before => {
                let branch =
                    second_end.backward(pass, feed_forward_end, &output_gradient, receiver)?;
                let mut inner = Output::new(&device, rows, columns);
                self.feed_forward.backward(pass, feed_forward, &branch, &mut inner, receiver)?;
                let through = self.feed_forward_norm.backward(
                    pass,
                    feed_forward_norm,
                    &inner.finish()?,
                    receiver,
                )?;
                let middle = tensor::add(&output_gradient, &through)?;
                drop((branch, through, output_gradient));
                let branch = first_end.backward(pass, attention_end, &middle, receiver)?;
                // The normalization before attention has parameters, so its output gradient is
                // needed even if the gradient of the block's input is not.
                let mut inner = Output::new(&device, rows, columns);
                self.attention.backward(pass, attention, &branch, Some(&mut inner), receiver)?;
                let inner = inner.finish()?;
                let through =
                    self.attention_norm_backward(pass, attention_norm, inner, receiver)?;
                if !wants_input_gradient {
                    return Ok(None);
                }
                Ok(Some(tensor::add(&middle, &through)?))
            }
        }
    }

    /// All linear layers of the block, excluding adapters.
    pub fn linear_layers(&self) -> impl Iterator<Item = &Linear> {
        let attention = &self.attention;
        attention
            .projections
            .layers()
            .iter()
            .chain([&attention.output])
            .chain(self.feed_forward.layers())
    }

    pub fn linear_layers_mut(&mut self) -> impl Iterator<Item = &mut Linear> {
        let attention = &mut self.attention;
        attention
            .projections
            .layers_mut()
            .iter_mut()
            .chain([&mut attention.output])
            .chain(self.feed_forward.layers_mut())
    }

    /// All parameters of the block, including adapters and LoRA.
    pub fn parameters(&self) -> Vec<ParameterId> {
        let adapters = [&self.attention_adapter, &self.feed_forward_adapter];
        let adapters =
            adapters.into_iter().flatten().flat_map(|adapter| [&adapter.down, &adapter.up]);
        let linear = self.linear_layers().chain(adapters).flat_map(Linear::parameters);
        let beside = [&self.attention_norm, &self.attention_output_norm];
        let norms = beside.into_iter().chain([&self.feed_forward_output_norm]).flatten();
        let of_heads =
            self.attention.head_norms.iter().flat_map(|both| [&both.queries, &both.keys]);
        let norms = norms.chain([&self.feed_forward_norm]).chain(of_heads);
        let norms = norms.flat_map(|norm| [Some(norm.weight), norm.bias].into_iter().flatten());
        let relative = self.attention.relative.iter().flat_map(|layer| layer.parameters());
        linear.chain(norms).chain(relative).collect()
    }
}
