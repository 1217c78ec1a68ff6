//! Which hidden states of a sequence are released.

use super::Sanitizer;
use crate::pass::Pass;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use undertone_tensor::{self as tensor, Host, Matrix, Result};

/// Which hidden states of a sequence are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rows {
    /// One row per token; with `Some(n)`, padded or truncated to n rows, so that the sequence
    /// length is not released.
    Tokens(Option<usize>),
    /// One row per token. The sequence is padded to n tokens before the model reads it, no token
    /// attends to the padding, and the norm is taken over all n rows, as in DP-Forward's code.
    /// Padding rows are not passed on: nothing above the noise attends to them either.
    Padded(usize),
    /// The row of the first token (`[CLS]`).
    First,
    /// The row of the last token.
    Last,
    /// The mean over all tokens.
    Mean,
}

impl Rows {
    /// Whether each token has its own row.
    pub fn are_of_tokens(self) -> bool {
        matches!(self, Self::Tokens(_) | Self::Padded(_))
    }

    /// Number of rows in every release; `None` if it reveals the number of tokens.
    pub fn in_every_release(self) -> Option<usize> {
        match self {
            Self::Tokens(rows) => rows.filter(|&rows| rows > 0),
            Self::Padded(_) => None,
            Self::First | Self::Last | Self::Mean => Some(1),
        }
    }
}

/// Splits packed rows by sequence.
pub(super) fn of_sequences<'a>(
    values: &'a mut [f32],
    starts: &[usize],
    columns: usize,
) -> Vec<&'a mut [f32]> {
    let mut rest = values;
    let mut parts = Vec::with_capacity(starts.len().saturating_sub(1));
    for window in starts.windows(2) {
        let (part, after) = rest.split_at_mut((window[1] - window[0]) * columns);
        parts.push(part);
        rest = after;
    }
    parts
}

/// Start of each sequence among the tokens if padding is removed.
pub(super) fn unpadded(pass: &Pass) -> Vec<usize> {
    let Some(visible) = pass.visible else { return pass.starts.to_vec() };
    let ends = visible.iter().scan(0, |end, length| {
        *end += length;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

impl Sanitizer {
    /// First released row of each sequence, followed by the total number of released rows, given
    /// the starts of its tokens without padding.
    pub fn starts(&self, starts: &[usize]) -> Vec<usize> {
        match self.rows {
            Rows::Tokens(None) | Rows::Padded(_) => starts.to_vec(),
            Rows::Tokens(Some(length)) => (0..starts.len()).map(|i| i * length).collect(),
            Rows::First | Rows::Last | Rows::Mean => (0..starts.len()).collect(),
        }
    }

    pub(super) fn pick(&self, hidden: &Matrix, starts: &[usize]) -> Result<Matrix> {
        let windows = starts.windows(2);
        match self.rows {
            Rows::Tokens(_) | Rows::Padded(_) => Ok(hidden.clone()),
            Rows::First => {
                tensor::gather(hidden, &windows.map(|w| w[0] as u32).collect::<Vec<_>>())
            }
            Rows::Last => {
                tensor::gather(hidden, &windows.map(|w| (w[1] - 1) as u32).collect::<Vec<_>>())
            }
            Rows::Mean => {
                let device = hidden.device();
                let hidden = hidden.to_host()?;
                let columns = hidden.columns();
                let means = Host::build(starts.len() - 1, columns, |out| {
                    out.par_chunks_mut(columns.max(1)).zip(starts.par_windows(2)).for_each(
                        |(out, window)| {
                            let share = 1.0 / (window[1] - window[0]) as f32;
                            out.fill(0.0);
                            for row in window[0]..window[1] {
                                out.iter_mut()
                                    .zip(hidden.row(row))
                                    .for_each(|(sum, x)| *sum += share * x);
                            }
                        },
                    );
                });
                Matrix::Host(means).to_device(&device)
            }
        }
    }

    pub(super) fn pick_backward(
        &self,
        gradient: &Matrix,
        starts: &[usize],
        tokens: usize,
    ) -> Result<Matrix> {
        let windows = starts.windows(2);
        match self.rows {
            Rows::Tokens(_) | Rows::Padded(_) => Ok(gradient.clone()),
            Rows::First => {
                tensor::scatter(gradient, &windows.map(|w| w[0] as u32).collect::<Vec<_>>(), tokens)
            }
            Rows::Last => tensor::scatter(
                gradient,
                &windows.map(|w| (w[1] - 1) as u32).collect::<Vec<_>>(),
                tokens,
            ),
            Rows::Mean => {
                let sequences: Vec<u32> = windows
                    .clone()
                    .enumerate()
                    .flat_map(|(i, w)| vec![i as u32; w[1] - w[0]])
                    .collect();
                let shares: Vec<f32> =
                    windows.flat_map(|w| vec![1.0 / (w[1] - w[0]) as f32; w[1] - w[0]]).collect();
                tensor::scale_rows(&tensor::gather(gradient, &sequences)?, &shares)
            }
        }
    }
}
