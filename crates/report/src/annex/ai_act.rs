//! Regulation (EU) 2024/1689 (AI Act), Annex XI, section 1: what the documentation of a
//! general-purpose model contains, as far as a run knows it.

use super::{Evidence, YOU, facts};
use crate::document::Section;
use crate::section::{method_name, task_name};
use crate::settings::{base_model, tuning, words_of};
use crate::words;

pub fn section(evidence: &Evidence, level: u8) -> Section {
    let summary = &evidence.run.summary;
    let (plan, parameters) = (&summary.plan, &summary.parameters);
    let training = &plan.training;
    let general = vec![
        (
            "1(a) Tasks, and systems it can be part of",
            format!("{}; {YOU}", task_name(plan.data.task)),
        ),
        ("1(b) Acceptable use policies", YOU.to_owned()),
        ("1(c) Date of release, distribution", YOU.to_owned()),
        (
            "1(d) Architecture, number of parameters",
            format!(
                "{}, {} parameters, of which {} were trained ({})",
                base_model(plan),
                words::count(parameters.total),
                words::count(parameters.trainable),
                tuning(plan)
            ),
        ),
        ("1(e) Modality, input and output", "text".to_owned()),
        ("1(f) License", format!("{YOU}, together with that of the base model")),
    ];
    let development = vec![
        ("2(a) Technical means of integration", "the model card's usage section".to_owned()),
        (
            "2(b) Training process, design choices",
            format!(
                "{}, {} of {} steps, batches of {} units, {}; {}",
                method_name(plan.privacy.method),
                words::times(u64::from(training.epochs), "epoch"),
                words::count(summary.resolved.steps_per_epoch),
                words::count(training.batch),
                words_of(&training.optimizer),
                evidence.epsilon()
            ),
        ),
        (
            "2(c) Data: type, provenance, curation, number",
            format!(
                "{}, {}{}; provenance, curation and bias: {YOU}",
                plan.data.train.display(),
                words::times(summary.resolved.units as u64, "privacy unit"),
                if plan.privacy.units.is_some() { ", as declared" } else { "" }
            ),
        ),
        (
            "2(d) Computational resources",
            match &summary.throughput {
                Some(speed) => format!("{} of training", words::duration(speed.seconds)),
                None => YOU.to_owned(),
            },
        ),
        ("2(e) Energy consumption", YOU.to_owned()),
    ];
    Section::new(level, "Annex: EU AI Act")
        .paragraph(
            "Source: Regulation (EU) 2024/1689, Article 53(1), point (a), and Annex XI, section 1, in \
             the text published on 12 July 2024; check whether later amendments concern you. It \
             applies to providers of general-purpose AI models; whether you are one, also of a model \
             that you fine-tuned, is a legal question. The headings are abridged.",
        )
        .with(facts(general))
        .with(facts(development))
}
