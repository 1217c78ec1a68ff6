//! Merges the factors of a weight that a layer uses twice, on its tokens and on extra rows, so that
//! it has one gradient.

use crate::factor::{Factor, Receiver};
use std::sync::Arc;
use undertone_tensor::{self as tensor, Matrix, Result};

/// Receiver that holds back products with an explicit list of tokens until a product of the same
/// parameter with one row per token arrives, and then emits both as one: a weight used twice in a
/// layer has one gradient.
pub struct Merging<'a> {
    pub starts: &'a [usize],
    pub held: Vec<Factor>,
    pub receiver: &'a mut dyn Receiver,
}

impl Merging<'_> {
    /// Emits the factors still held, of weights that the layer did not use on its tokens.
    pub fn finish(self) -> Result<()> {
        let Self { held, receiver, .. } = self;
        held.into_iter().try_for_each(|factor| receiver.receive(factor))
    }
}

impl Receiver for Merging<'_> {
    fn receive(&mut self, factor: Factor) -> Result<()> {
        let Factor::Product { parameter, tokens, .. } = &factor else {
            return self.receiver.receive(factor);
        };
        if tokens.is_some() {
            self.held.push(factor);
            return Ok(());
        }
        match self.held.iter().position(|held| held.parameter() == *parameter) {
            None => self.receiver.receive(factor),
            Some(at) => {
                let merged = merge(self.starts, factor, self.held.swap_remove(at))?;
                self.receiver.receive(merged)
            }
        }
    }
}

/// A single product with the rows of both, where those of `more` follow the tokens of their
/// sequence.
fn merge(starts: &[usize], main: Factor, more: Factor) -> Result<Factor> {
    let (
        Factor::Product { parameter, input, output_gradient, inputs_first, .. },
        Factor::Product { input: more_input, output_gradient: more_gradient, .. },
    ) = (main, more)
    else {
        unreachable!("products are merged")
    };
    let sequences = (starts.len() - 1).max(1);
    let each = more_input.rows() / sequences;
    let (mut of_tokens, mut of_more, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
    for (i, window) in starts.windows(2).enumerate() {
        let first = window[0] + i * each;
        let length = window[1] - window[0];
        of_tokens.extend((first..first + length).map(|row| row as u32));
        of_more.extend((first + length..first + length + each).map(|row| row as u32));
        tokens.extend((window[0]..window[1]).map(|token| token as u32));
        tokens.extend(std::iter::repeat_n((window[1] - 1) as u32, each));
    }
    let both = |main: &Matrix, more: &Matrix| {
        let all = tensor::scatter(main, &of_tokens, main.rows() + more.rows())?;
        tensor::scatter_onto(all, more, &of_more)
    };
    Ok(Factor::Product {
        parameter,
        input: both(&input, &more_input)?,
        output_gradient: both(&output_gradient, &more_gradient)?,
        inputs_first,
        tokens: Some(Arc::new(tokens)),
    })
}
