//! Transformer block: attention and feed-forward network, each with residual connection,
//! normalisation, dropout and an optional bottleneck adapter.

use super::adapter::{self, Adapter};
use super::attention::{self, Attention};
use super::feed_forward::{self, FeedForward};
use super::linear::Linear;
use super::norm::{self, Norm};
use crate::model::factor::Receiver;
use crate::model::parameters::ParameterId;
use crate::model::pass::Pass;
use crate::tensor::{self, Dropout, KeyValueCache, Matrix, Output, Result};

/// Order of normalisation and residual connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormOrder {
    /// Pre-norm, x + f(norm(x)): GPT-2, Llama.
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
    pub attention_norm: Norm,
    /// Adapter after attention.
    pub attention_adapter: Option<Adapter>,
    pub feed_forward: FeedForward,
    pub feed_forward_norm: Norm,
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
    attention_norm: norm::Saved,
    attention_end: BranchSaved,
    feed_forward: feed_forward::Saved,
    feed_forward_norm: norm::Saved,
    feed_forward_end: BranchSaved,
}

/// Saved dropout and adapter at the end of a residual branch.
#[derive(Clone, Debug)]
struct BranchSaved {
    dropout: Option<Dropout>,
    adapter: Option<adapter::Saved>,
}

fn end_branch(
    pass: &Pass,
    mut x: Matrix,
    dropout: Option<Dropout>,
    adapter: Option<&Adapter>,
) -> Result<(Matrix, BranchSaved)> {
    if let Some(dropout) = dropout {
        x = tensor::drop_out(dropout, &x)?;
    }
    let mut saved = BranchSaved { dropout, adapter: None };
    if let Some(adapter) = adapter {
        let (y, kept) = adapter.forward(pass, &x)?;
        x = y;
        saved.adapter = Some(kept);
    }
    Ok((x, saved))
}

fn end_branch_backward(
    pass: &Pass,
    saved: BranchSaved,
    gradient: &Matrix,
    adapter: Option<&Adapter>,
    receiver: &mut dyn Receiver,
) -> Result<Matrix> {
    let mut gradient = gradient.clone();
    if let (Some(adapter), Some(saved)) = (adapter, saved.adapter) {
        gradient = adapter.backward(pass, saved, &gradient, receiver)?;
    }
    if let Some(dropout) = saved.dropout {
        gradient = tensor::drop_out(dropout, &gradient)?;
    }
    Ok(gradient)
}

impl Block {
    fn dropouts(&self, pass: &Pass) -> [Option<Dropout>; 2] {
        [pass.dropout(self.dropout, self.site), pass.dropout(self.dropout, self.site + 1)]
    }

    /// The output of each token, `[tokens, hidden]`.
    pub fn forward(&self, pass: &Pass, x: &Matrix) -> Result<(Matrix, Saved)> {
        let [first_dropout, second_dropout] = self.dropouts(pass);
        let adapters = (self.attention_adapter.as_ref(), self.feed_forward_adapter.as_ref());
        match self.order {
            NormOrder::After => {
                let (a, attention) = self.attention.forward(pass, x)?;
                let (a, attention_end) = end_branch(pass, a, first_dropout, adapters.0)?;
                let (middle, attention_norm) = self.attention_norm.forward(pass, &a, Some(x))?;
                drop(a);
                let (f, feed_forward) = self.feed_forward.forward(pass, &middle)?;
                let (f, feed_forward_end) = end_branch(pass, f, second_dropout, adapters.1)?;
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
                let (n, attention_norm) = self.attention_norm.forward(pass, x, None)?;
                let (a, attention) = self.attention.forward(pass, &n)?;
                let (a, attention_end) = end_branch(pass, a, first_dropout, adapters.0)?;
                let middle = tensor::add(x, &a)?;
                drop((n, a));
                let (n, feed_forward_norm) = self.feed_forward_norm.forward(pass, &middle, None)?;
                let (f, feed_forward) = self.feed_forward.forward(pass, &n)?;
                let (f, feed_forward_end) = end_branch(pass, f, second_dropout, adapters.1)?;
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

    /// The output of new tokens, whose earlier tokens are in the key-value cache.
    pub fn extend(&self, pass: &Pass, x: &Matrix, cache: &mut KeyValueCache) -> Result<Matrix> {
        let branch = |x, adapter| Ok::<_, tensor::Error>(end_branch(pass, x, None, adapter)?.0);
        let adapters = (self.attention_adapter.as_ref(), self.feed_forward_adapter.as_ref());
        match self.order {
            NormOrder::After => {
                let a = branch(self.attention.extend(pass, x, cache)?, adapters.0)?;
                let middle = self.attention_norm.forward(pass, &a, Some(x))?.0;
                let f = branch(self.feed_forward.forward(pass, &middle)?.0, adapters.1)?;
                Ok(self.feed_forward_norm.forward(pass, &f, Some(&middle))?.0)
            }
            NormOrder::Before => {
                let n = self.attention_norm.forward(pass, x, None)?.0;
                let a = branch(self.attention.extend(pass, &n, cache)?, adapters.0)?;
                let middle = tensor::add(x, &a)?;
                let n = self.feed_forward_norm.forward(pass, &middle, None)?.0;
                let f = branch(self.feed_forward.forward(pass, &n)?.0, adapters.1)?;
                tensor::add(&middle, &f)
            }
        }
    }

    /// Passes on the factors, and returns the gradient of the input if wanted.
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
        let adapters = (self.attention_adapter.as_ref(), self.feed_forward_adapter.as_ref());
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
                let branch =
                    end_branch_backward(pass, feed_forward_end, &sum, adapters.1, receiver)?;
                let mut middle = Output::new(&device, rows, columns);
                middle.copy(&sum)?;
                drop(sum);
                self.feed_forward.backward(pass, feed_forward, &branch, &mut middle, receiver)?;
                let middle = middle.finish()?;
                let sum = self.attention_norm.backward(pass, attention_norm, &middle, receiver)?;
                drop((branch, middle));
                let branch = end_branch_backward(pass, attention_end, &sum, adapters.0, receiver)?;
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
                let branch = end_branch_backward(
                    pass,
                    feed_forward_end,
                    &output_gradient,
                    adapters.1,
                    receiver,
                )?;
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
                let branch =
                    end_branch_backward(pass, attention_end, &middle, adapters.0, receiver)?;
                // The normalisation before attention has parameters, so its output gradient is
                // needed even if the gradient of the block's input is not.
                let mut inner = Output::new(&device, rows, columns);
                self.attention.backward(pass, attention, &branch, Some(&mut inner), receiver)?;
                let through = self.attention_norm.backward(
                    pass,
                    attention_norm,
                    &inner.finish()?,
                    receiver,
                )?;
                if !wants_input_gradient {
                    return Ok(None);
                }
                Ok(Some(tensor::add(&middle, &through)?))
            }
        }
    }

    /// All linear layers of the block, without adapters.
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

    /// All parameters of the block, adapters and LoRA included.
    pub fn parameters(&self) -> Vec<ParameterId> {
        let adapters = [&self.attention_adapter, &self.feed_forward_adapter];
        let adapters =
            adapters.into_iter().flatten().flat_map(|adapter| [&adapter.down, &adapter.up]);
        let linear = self.linear_layers().chain(adapters).flat_map(Linear::parameters);
        let norms = [&self.attention_norm, &self.feed_forward_norm];
        let norms =
            norms.into_iter().flat_map(|norm| [Some(norm.weight), norm.bias].into_iter().flatten());
        linear.chain(norms).collect()
    }
}
