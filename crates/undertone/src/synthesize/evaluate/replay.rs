//! How much of the synthetic texts repeats training texts. These figures are private: whether a
//! text is in the training data is what the guarantee hides.

use super::{Figure, Texts};
use std::collections::HashSet;

/// Length in words of a passage that counts as repeated.
const PASSAGE: usize = 8;

/// Compares synthetic texts with the training texts, word by word.
pub fn replay(synthetic: &Texts, training: &Texts) -> Vec<Figure> {
    let audience = synthetic.audience().and(training.audience());
    let words =
        |text: &String| -> Vec<String> { text.split_whitespace().map(str::to_lowercase).collect() };
    let own: Vec<Vec<String>> = synthetic.texts.iter().map(words).collect();
    let real: Vec<Vec<String>> = training.texts.iter().map(words).collect();
    let whole: HashSet<&Vec<String>> = real.iter().collect();
    let passages: HashSet<&[String]> = real.iter().flat_map(|text| text.windows(PASSAGE)).collect();
    let repeats = |text: &&Vec<String>| text.windows(PASSAGE).any(|part| passages.contains(part));
    let all: usize = own.iter().map(|text| text.windows(PASSAGE).count()).sum();
    let copied = own.iter().flat_map(|text| text.windows(PASSAGE));
    let copied = copied.filter(|part| passages.contains(part)).count();
    let share = |count: usize, of: usize| count as f64 / of.max(1) as f64;
    let copies = own.iter().filter(|text| whole.contains(text)).count();
    let figure = |name: &str, value| Figure::new(name, value, "training rows", audience);
    vec![
        figure("exact copies of training rows, share", share(copies, own.len())),
        figure(
            "rows sharing an 8-gram with training rows, share",
            share(own.iter().filter(repeats).count(), own.len()),
        ),
        figure("8-grams copied from training rows, share", share(copied, all)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::Audience;
    use super::*;

    #[test]
    fn repeated_passages_are_counted_for_the_curator_alone() {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let training = Texts::private(texts(&["a b c d e f g h i", "the sun"]));
        let synthetic =
            Texts::public(texts(&["The sun", "x A b c d e f g h y", "a b c d e f g i h", "new"]));
        let figures = replay(&synthetic, &training);
        assert_eq!(
            figures.iter().map(|figure| figure.value).collect::<Vec<_>>(),
            [0.25, 0.25, 0.2]
        );
        assert!(figures.iter().all(|figure| figure.seen_by == Audience::Private));
    }
}
