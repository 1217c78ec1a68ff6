//! A transformer block: two branches and two residual sums.

use super::attention::AttentionTrace;
use super::layers::{AdapterTrace, FeedForwardTrace, add};
use super::rules::sum;
use super::{Collected, Explainer};
use crate::layer::adapter::Adapter;
use crate::layer::block::{Block, NormOrder};
use crate::layer::norm::Norm;
use crate::{Pass, Result};
use undertone_tensor::Host;

pub(super) struct BlockTrace {
    pub input: Host,
    attention: AttentionTrace,
    attention_adapter: Option<AdapterTrace>,
    /// Output of the attention branch, as added to the residual.
    attended: Host,
    attention_normed: Host,
    /// Residual input of the feed-forward branch.
    middle: Host,
    feed_forward: FeedForwardTrace,
    feed_forward_adapter: Option<AdapterTrace>,
    fed: Host,
    feed_forward_normed: Host,
    pub output: Host,
}

impl Explainer {
    fn adapted(
        &self,
        adapter: Option<&Adapter>,
        branch: Host,
    ) -> Result<(Host, Option<AdapterTrace>)> {
        let Some(adapter) = adapter else { return Ok((branch, None)) };
        let trace = self.trace_adapter(adapter, branch)?;
        Ok((trace.output.clone(), Some(trace)))
    }

    pub(super) fn trace_block(
        &self,
        pass: &Pass,
        block: &Block,
        input: Host,
    ) -> Result<BlockTrace> {
        let after = block.order == NormOrder::After;
        let before = |norm: Option<&Norm>, x: &Host| match norm.filter(|_| !after) {
            Some(norm) => self.norm(pass, norm, x),
            None => Ok(x.clone()),
        };
        // Normalizations at the end of a branch pass relevance unchanged, as all normalizations do.
        let at_end = |norm: &Option<Norm>, x: &Host| match norm {
            Some(norm) => self.norm(pass, norm, x),
            None => Ok(x.clone()),
        };
        let normed = before(block.attention_norm.as_ref(), &input)?;
        let attention = self.trace_attention(pass, &block.attention, &normed)?;
        let branch = at_end(&block.attention_output_norm, &attention.output.output)?;
        let (attended, attention_adapter) =
            self.adapted(block.attention_adapter.as_ref(), branch)?;
        let mut middle = add(&input, &attended);
        let mut attention_normed = normed;
        if after {
            middle = at_end(&block.attention_norm, &middle)?;
            attention_normed = middle.clone();
        }
        let normed = before(Some(&block.feed_forward_norm), &middle)?;
        let feed_forward = self.trace_feed_forward(&block.feed_forward, &normed)?;
        let branch = at_end(&block.feed_forward_output_norm, &feed_forward.down.output)?;
        let (fed, feed_forward_adapter) =
            self.adapted(block.feed_forward_adapter.as_ref(), branch)?;
        let mut output = add(&middle, &fed);
        let mut feed_forward_normed = normed;
        if after {
            output = self.norm(pass, &block.feed_forward_norm, &output)?;
            feed_forward_normed = output.clone();
        }
        Ok(BlockTrace {
            input,
            attention,
            attention_adapter,
            attended,
            attention_normed,
            middle,
            feed_forward,
            feed_forward_adapter,
            fed,
            feed_forward_normed,
            output,
        })
    }

    /// Returns the relevance of the block's input.
    pub(super) fn through_block(
        &self,
        block: &Block,
        trace: &BlockTrace,
        relevance: Host,
        collected: &mut Collected,
    ) -> Result<Host> {
        let after = block.order == NormOrder::After;
        if after {
            self.through_norm(
                &block.feed_forward_norm,
                &trace.feed_forward_normed,
                &relevance,
                collected,
            )?;
        }
        let (past, mut branch) = sum(&trace.middle, &trace.fed, &relevance);
        if let (Some(adapter), Some(trace)) =
            (&block.feed_forward_adapter, &trace.feed_forward_adapter)
        {
            branch = self.through_adapter(adapter, trace, &branch, collected)?;
        }
        let branch = self.through_feed_forward(
            &block.feed_forward,
            &trace.feed_forward,
            &branch,
            collected,
        )?;
        if !after {
            self.through_norm(
                &block.feed_forward_norm,
                &trace.feed_forward_normed,
                &branch,
                collected,
            )?;
        }
        let middle = add(&past, &branch);
        if let Some(norm) = block.attention_norm.as_ref().filter(|_| after) {
            self.through_norm(norm, &trace.attention_normed, &middle, collected)?;
        }
        let (past, mut branch) = sum(&trace.input, &trace.attended, &middle);
        if let (Some(adapter), Some(trace)) = (&block.attention_adapter, &trace.attention_adapter) {
            branch = self.through_adapter(adapter, trace, &branch, collected)?;
        }
        let branch =
            self.through_attention(&block.attention, &trace.attention, &branch, collected)?;
        if let Some(norm) = block.attention_norm.as_ref().filter(|_| !after) {
            self.through_norm(norm, &trace.attention_normed, &branch, collected)?;
        }
        Ok(add(&past, &branch))
    }
}
