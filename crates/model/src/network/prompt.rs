//! Batches of a model with a soft prompt: every sequence begins with its virtual tokens.

use super::Model;
use crate::layer::embedding::SoftPrompt;
use crate::layer::head::Pick;
use std::borrow::Cow;
use undertone_data::{Batch, Target};

/// The target of a sequence that has `more` tokens before it. The first token of the text has no
/// text before it and is not predicted, as without a prompt.
fn moved(target: &Target, more: usize) -> Target {
    match target {
        Target::Next { from } => Target::Next { from: (*from).max(1) + more },
        Target::Spans(spans) => {
            let moved = spans.iter().map(|span| span.start.max(1) + more..span.end + more);
            Target::Spans(moved.filter(|span| !span.is_empty()).collect())
        }
        Target::Masked { positions, labels } => Target::Masked {
            positions: positions.iter().map(|position| position + more as u32).collect(),
            labels: labels.clone(),
        },
        other => other.clone(),
    }
}

impl Model {
    /// The prompt that a batch lacks.
    pub(super) fn missing_prompt(&self, batch: &Batch) -> Option<SoftPrompt> {
        let begins = |prompt: &SoftPrompt| batch.tokens.first() == Some(&prompt.first);
        self.network.embeddings.prompt.filter(|prompt| !batch.is_empty() && !begins(prompt))
    }

    /// The batch that the model's layers read, of which every sequence begins with the virtual
    /// tokens of the soft prompt; the same batch if there is no prompt, or if it begins so already.
    /// Factors of the backward pass have one row for each of its tokens.
    pub fn prompted<'a>(&self, batch: &'a Batch) -> Cow<'a, Batch> {
        let Some(prompt) = self.missing_prompt(batch) else { return Cow::Borrowed(batch) };
        let mut longer = Batch {
            tokens: Vec::new(),
            segments: Vec::new(),
            starts: vec![0],
            targets: batch.targets.iter().map(|target| moved(target, prompt.tokens)).collect(),
            units: batch.units.clone(),
        };
        for i in 0..batch.sequences() {
            longer.tokens.extend(prompt.ids());
            longer.tokens.extend_from_slice(&batch.tokens[batch.range(i)]);
            longer.segments.resize(longer.segments.len() + prompt.tokens, 0);
            longer.segments.extend_from_slice(&batch.segments[batch.range(i)]);
            longer.starts.push(longer.tokens.len());
        }
        Cow::Owned(longer)
    }

    /// The wanted tokens of a batch as tokens of the [prompted](Self::prompted) one. All tokens of
    /// the text are wanted if none are named, and no virtual ones.
    pub(super) fn prompted_rows(&self, batch: &Batch, wanted: Option<&[u32]>) -> Option<Vec<u32>> {
        let all = || (0..batch.tokens.len() as u32).collect();
        let wanted: Option<Vec<u32>> = wanted.map(<[u32]>::to_vec);
        let Some(prompt) = self.missing_prompt(batch) else { return wanted };
        let reads_tokens = self.network.head.pick == Pick::Tokens;
        let wanted = wanted.or_else(|| reads_tokens.then(all))?;
        let moved = wanted.iter().map(|&row| {
            let sequences = batch.starts.partition_point(|&start| start <= row as usize);
            row + (sequences * prompt.tokens) as u32
        });
        Some(moved.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskHead;
    use crate::architecture::{Architecture, Dimensions};
    use crate::tuning::{PromptSettings, Tuning};
    use undertone_data::Example;

    #[test]
    fn virtual_tokens_come_first_and_targets_move() {
        let dimensions = Dimensions {
            layers: 1,
            hidden: 8,
            heads: 2,
            inner: 8,
            vocabulary: 50,
            positions: 20,
            key_heads: None,
        };
        let head = TaskHead::CausalLanguageModel;
        let mut model = Architecture::Llama.random(dimensions, head, &[], 1).unwrap();
        let example = |tokens: &[u32], target| Example {
            tokens: tokens.to_vec(),
            target,
            ..Example::default()
        };
        let batch = Batch::pack(&[
            example(&[3, 1], Target::Next { from: 0 }),
            example(&[4, 1, 5], Target::Spans(vec![0..1, 1..3])),
        ]);
        assert_eq!(model.prompted(&batch), Cow::Borrowed(&batch));
        model.apply_tuning(&Tuning::Prompt(PromptSettings { tokens: 2 }), 1).unwrap();
        let prompted = model.prompted(&batch).into_owned();
        let (a, b) = (prompted.tokens[0], prompted.tokens[1]);
        assert_eq!((a as usize, b), (model.network.vocabulary, a + 1));
        assert_eq!(prompted.tokens, [a, b, 3, 1, a, b, 4, 1, 5]);
        assert_eq!(prompted.starts, [0, 4, 9]);
        let spans = Target::Spans(std::iter::once(3..5).collect());
        assert_eq!(prompted.targets, [Target::Next { from: 3 }, spans]);
        assert_eq!(model.prompted(&prompted), Cow::Borrowed(&prompted));
        assert_eq!(model.prompted_rows(&batch, Some(&[0, 1, 4])).unwrap(), [2, 3, 8]);
        assert_eq!(model.prompted_rows(&batch, None).unwrap(), [2, 3, 6, 7, 8]);
        assert_eq!(model.prompted_rows(&prompted, Some(&[1])).unwrap(), [1]);
        assert_eq!(model.network.max_positions, 18);
    }
}
