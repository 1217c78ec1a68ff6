//! Personal data and planted secrets of the training texts that synthetic texts repeat. These figures
//! are private, like those of [`super::replay`].

use super::{Figure, Texts};
use crate::model::Result;
use crate::scan::{Kind, Scanner, Text, has_word};
use std::collections::{BTreeMap, BTreeSet};

/// For each kind of personal data that a scan finds in the training texts: which share of the
/// different strings the synthetic texts contain. `others` are real texts that do not depend on the
/// training texts, if there are any: their share is that of coincidence.
pub fn personal(
    scanner: &Scanner,
    synthetic: &Texts,
    training: &Texts,
    others: Option<&Texts>,
) -> Result<Vec<Figure>> {
    let as_texts: Vec<Text> =
        training.texts.iter().map(|text| Text { column: "text", text }).collect();
    let mut found: BTreeMap<Kind, BTreeSet<&str>> = BTreeMap::new();
    for (text, findings) in training.texts.iter().zip(scanner.scan(&as_texts)?) {
        for finding in findings {
            found.entry(finding.kind).or_default().insert(&text[finding.range]);
        }
    }
    let mut figures = Vec::new();
    for (kind, strings) in found {
        let strings: Vec<&str> = strings.into_iter().collect();
        for (texts, of) in [(Some(synthetic), "synthetic rows"), (others, "test rows")] {
            let Some(texts) = texts else { continue };
            let name = format!("{} of training rows reproduced, share", kind.plural());
            let audience = texts.audience().and(training.audience());
            figures.push(Figure::new(&name, share_in(&strings, &texts.texts), of, audience));
        }
    }
    Ok(figures)
}

/// The share of secrets, which the owner of the data has planted in the training texts, that the
/// synthetic texts contain.
pub fn planted(canaries: &[String], synthetic: &Texts, training: &Texts) -> Figure {
    let canaries: Vec<&str> = canaries.iter().map(String::as_str).collect();
    let audience = synthetic.audience().and(training.audience());
    let name = "planted secrets reproduced, share";
    Figure::new(name, share_in(&canaries, &synthetic.texts), "synthetic rows", audience)
}

/// The share of strings that stand in one of the texts, with no letter or digit beside them.
fn share_in(strings: &[&str], texts: &[String]) -> f64 {
    let occurs = |string: &&&str| texts.iter().any(|text| has_word(text, string));
    strings.iter().filter(occurs).count() as f64 / strings.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::Audience;
    use super::*;
    use crate::audit::spans::patterns::Patterns;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn repeated_personal_data_are_counted_for_the_curator_alone() {
        let training = ["write to ada@example.org", "or to bob@example.org", "ada@example.org"];
        let training = Texts::private(texts(&training));
        let synthetic = Texts::public(texts(&["ask ada@example.org.", "xbob@example.org"]));
        let others = Texts::public(texts(&["nobody"]));
        let scanner = Scanner::new(Box::new(Patterns::default()));
        let figures = personal(&scanner, &synthetic, &training, Some(&others)).unwrap();
        let values: Vec<(&str, f64)> =
            figures.iter().map(|figure| (figure.of.as_str(), figure.value)).collect();
        assert_eq!(values, [("synthetic rows", 0.5), ("test rows", 0.0)], "{figures:?}");
        let canaries = texts(&["the code is 1234", "the code is 5678"]);
        let synthetic = Texts::public(texts(&["well, the code is 1234."]));
        let figure = planted(&canaries, &synthetic, &training);
        assert_eq!(figure.value, 0.5);
        assert!(figures.iter().chain([&figure]).all(|f| f.seen_by == Audience::Private));
    }
}
