//! Embeddings of texts by a local encoder.

use super::Texts;
use crate::data::{Batch, Example, Target, Tokenizer, pieces};
use crate::error::Result;
use crate::evaluate::Limits;
use crate::model::{self, Model};

/// The mean final hidden state of each text, as sentence-transformers pools them by default.
pub fn embeddings(model: &Model, tokenizer: &Tokenizer, texts: &Texts) -> Result<Vec<Vec<f64>>> {
    let example = |text: &String| -> Result<Example> {
        let tokens = tokenizer.text(text)?;
        let (tokens, segments) = (tokens.ids, tokens.segments);
        Ok(Example { tokens, segments, target: Target::None, unit: 0 })
    };
    let examples = texts.texts.iter().map(example).collect::<Result<Vec<_>>>()?;
    let limits = Limits::default();
    let mut means = vec![Vec::new(); examples.len()];
    for piece in pieces(&examples, limits.sequences, limits.tokens) {
        let batch = Batch::pack(piece.iter().map(|&i| &examples[i]));
        let states = model.device().compute(|| model.hidden_states(&batch))?;
        let Some(last) = states.last() else { continue };
        let host = last.to_host().map_err(model::Error::from)?;
        for (window, &text) in batch.starts.windows(2).zip(&piece) {
            let mut mean = vec![0.0; host.columns()];
            for token in window[0]..window[1] {
                let row = host.row(token).iter();
                mean.iter_mut().zip(row).for_each(|(mean, &x)| *mean += f64::from(x));
            }
            let tokens = (window[1] - window[0]).max(1) as f64;
            means[text] = mean.into_iter().map(|x| x / tokens).collect();
        }
    }
    Ok(means)
}
