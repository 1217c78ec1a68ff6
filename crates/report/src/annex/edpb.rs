//! EDPB Opinion 28/2024 on AI models: two likelihoods that must both be insignificant for a model
//! to be considered anonymous.

use super::Standing::{Fails, YouMustShow};
use super::{Evidence, point, points};
use crate::document::{Block, Section};
use crate::error::Result;

pub fn section(evidence: &Evidence, level: u8) -> Result<Section> {
    let bound = match evidence.guarantee {
        Some(_) => format!(
            "{}: it bounds what anybody can learn from the model about whether a person's data \
             were used, whatever they know and whatever attack they use",
            evidence.epsilon()
        ),
        None => "no guarantee bounds it".to_owned(),
    };
    let standing = if evidence.guarantee.is_some() { YouMustShow } else { Fails };
    let all = vec![
        point(
            "Direct extraction of personal data, including probabilistic extraction",
            standing,
            format!("{bound}. Attacks: {}.", evidence.attacks()),
        ),
        point(
            "Obtaining personal data from queries, intentionally or not",
            standing,
            format!(
                "{bound}; answers to queries are post-processing of the weights. Attacks: {}.",
                evidence.attacks()
            ),
        ),
    ];
    Ok(Section::new(level, "Annex: EDPB Opinion 28/2024")
        .paragraph(
            "Source: EDPB Opinion 28/2024 on certain data protection aspects related to the \
             processing of personal data in the context of AI models, adopted on 17 December 2024, \
             executive summary and paragraph 43. Whether a model is anonymous is decided case by case \
             by supervisory authorities, taking into account all means reasonably likely to be used.",
        )
        .with(points("The two likelihoods that must be insignificant", all))
        .paragraph("Limits of this evidence:")
        .with(Block::List(limits(evidence)?)))
}

fn limits(evidence: &Evidence) -> Result<Vec<String>> {
    let mut all = vec![
        "You must argue that this ε makes both likelihoods insignificant; the trade-off curve in \
         this report helps."
            .to_owned(),
        "Attacks that fail prove nothing about other attacks; the guarantee covers those too, as \
         far as its ε goes."
            .to_owned(),
        "The guarantee is about fine-tuning. What the base model learned before is not covered."
            .to_owned(),
        "What is true of many people is learned, and may be said about one of them.".to_owned(),
        "The data that training itself processes remain personal data, and need a legal basis."
            .to_owned(),
    ];
    if let Some(total) = evidence.total()? {
        all.push(format!("Other models of the same people count too: {total}."));
    }
    Ok(all)
}
