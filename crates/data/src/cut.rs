//! Truncation and splitting of texts that exceed the maximum number of tokens.

/// Token ids of a sequence, and the position of the first token to be predicted.
pub(crate) type Predicted = (Vec<u32>, usize);

/// Longest-first truncation of a pair to `budget` tokens: the longer text loses tokens until both
/// have equal length, then both do. Returns the number of tokens each text keeps.
pub(crate) fn longest_first(first: usize, second: usize, budget: usize) -> (usize, usize) {
    let (short, long) = (first.min(second), first.max(second));
    let (short, long) = match (short + long <= budget, 2 * short <= budget) {
        (true, _) => (short, long),
        (false, true) => (short, budget - short),
        (false, false) => (budget / 2, budget - budget / 2),
    };
    if first <= second { (short, long) } else { (long, short) }
}

/// Splits a text into at most `pieces` sequences of at most `most` tokens, each of which starts
/// with the tokens `before`.
///
/// If `before` is empty, the first token of a sequence cannot be predicted. Each sequence then
/// repeats the last token of the previous one, so that every token except the text's first is
/// predicted once.
pub(crate) fn language(before: &[u32], text: &[u32], most: usize, pieces: usize) -> Vec<Predicted> {
    let room = most.saturating_sub(before.len()).max(2);
    let overlap = usize::from(before.is_empty());
    let from = before.len().max(1);
    let starts = (0..text.len().saturating_sub(overlap)).step_by(room - overlap).take(pieces);
    starts
        .map(|start| [before, &text[start..text.len().min(start + room)]].concat())
        .map(|tokens| (tokens, from))
        .collect()
}

/// Concatenates a prompt and its completion, truncated to `most` tokens.
///
/// First the prompt is truncated from the left, since its end is closest to the completion, but it
/// keeps a quarter of the tokens; then the completion is truncated from the right.
pub(crate) fn completion(
    before: &[u32],
    prompt: &[u32],
    completion: &[u32],
    most: usize,
) -> Predicted {
    let room = most.saturating_sub(before.len());
    let kept = room.saturating_sub(completion.len()).max(room.div_ceil(4)).min(prompt.len());
    let written = completion.len().min(room - kept.min(room));
    let tokens = [before, &prompt[prompt.len() - kept..], &completion[..written]].concat();
    (tokens, before.len() + kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_of_a_pair_is_cut_first() {
        assert_eq!(longest_first(3, 4, 10), (3, 4));
        assert_eq!(longest_first(3, 20, 10), (3, 7));
        assert_eq!(longest_first(20, 3, 10), (7, 3));
        assert_eq!(longest_first(20, 30, 9), (4, 5));
        assert_eq!(longest_first(30, 20, 9), (5, 4));
        assert_eq!(longest_first(0, 30, 9), (0, 9));
    }

    #[test]
    fn a_long_text_loses_its_end_or_becomes_several() {
        let text = [1, 2, 3, 4, 5, 6, 7];
        assert_eq!(language(&[], &text, 3, 1), [(vec![1, 2, 3], 1)]);
        let split = [(vec![1, 2, 3], 1), (vec![3, 4, 5], 1), (vec![5, 6, 7], 1)];
        assert_eq!(language(&[], &text, 3, 9), split);
        assert_eq!(language(&[], &text, 3, 2), split[..2]);
        let marked = [(vec![9, 1, 2, 3], 1), (vec![9, 4, 5, 6], 1), (vec![9, 7], 1)];
        assert_eq!(language(&[9], &text, 4, 9), marked);
    }

    #[test]
    fn a_text_with_nothing_to_predict_becomes_nothing() {
        assert!(language(&[], &[1], 3, 9).is_empty());
        assert!(language(&[9], &[], 3, 9).is_empty());
        assert_eq!(language(&[9], &[1], 3, 9), [(vec![9, 1], 1)]);
    }

    #[test]
    fn a_prompt_is_cut_from_the_left_and_a_completion_from_the_right() {
        assert_eq!(completion(&[9], &[1, 2], &[3, 4], 8), (vec![9, 1, 2, 3, 4], 3));
        assert_eq!(completion(&[], &[1, 2, 3, 4, 5, 6], &[7, 8], 4), (vec![5, 6, 7, 8], 2));
        assert_eq!(completion(&[], &[1, 2, 3], &[4, 5, 6, 7, 8], 4), (vec![3, 4, 5, 6], 1));
        assert_eq!(completion(&[], &[], &[4, 5, 6], 2), (vec![4, 5], 0));
    }
}
