//! NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (March 2025).
//!
//! Its pyramid has the most direct measures of a guarantee at the top (ε and the unit of privacy),
//! algorithms and correctness, utility and bias in the middle, and what all of it rests on at the
//! base: side channels, security and access control, trust models and data collection.

use super::Standing::{DoesNotApply, Fails, Holds, YouMustShow};
use super::{Evidence, Point, Standing, point, points};
use crate::document::Section;
use crate::error::Result;
use crate::words;
use undertone_accounting::{Mode, Threat, Unit};
use undertone_run::TaskName;

pub fn section(evidence: &Evidence, level: u8) -> Result<Section> {
    Ok(Section::new(level, "Annex: NIST SP 800-226")
        .paragraph(
            "Source: NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees, \
             March 2025. The tables follow its pyramid: the guarantee, differentially private \
             algorithms, and their deployment. The points are in our words.",
        )
        .with(points("Top of the pyramid: privacy parameters and unit of privacy", top(evidence)?))
        .with(points("Middle: algorithms and correctness, utility and bias", middle(evidence)))
        .with(points("Base: side channels, security, trust and data collection", base(evidence))))
}

fn top(evidence: &Evidence) -> Result<Vec<Point>> {
    let (summary, has) = (&evidence.run.summary, evidence.guarantee.is_some());
    let plan = &summary.plan;
    let delta = evidence.guarantee.map_or(1.0, |guarantee| guarantee.delta);
    let units = summary.resolved.units as f64;
    Ok(vec![
        point(
            "ε and δ are stated",
            Standing::holds_if(has),
            format!("{}, computed from the ledger", evidence.epsilon()),
        ),
        point(
            "ε is small enough for its purpose",
            YouMustShow,
            "no number is right for every purpose; the trade-off curve in this report says what the \
             best attacker could do",
        ),
        point(
            "δ is well below one over the number of units",
            match delta * units {
                _ if !has => Fails,
                share if share <= 0.1 => Holds,
                share if share < 1.0 => YouMustShow,
                _ => Fails,
            },
            format!(
                "δ times {} units is {}: publishing one unit in full with that chance would be \
                 allowed",
                words::count(summary.resolved.units),
                words::number(delta * units)
            ),
        ),
        match evidence.unit() {
            Unit::User => point(
                "The unit is a person, not a row",
                YouMustShow,
                format!(
                    "all rows with the same {} are one unit, at most {}; show that nobody has two",
                    plan.data.author.as_deref().unwrap_or_default(),
                    plan.data.most_per_author
                ),
            ),
            Unit::Example => point(
                "The unit is a person, not a row",
                YouMustShow,
                "the unit is one example: show that each person has one row, or train with \
                 data.author; k rows of a person have k times the ε",
            ),
        },
        point(
            "Which data sets are neighbors is stated",
            Standing::holds_if(has),
            evidence
                .guarantee
                .map_or("no guarantee", |guarantee| words::adjacency(guarantee.adjacency)),
        ),
        match evidence.total()? {
            Some(total) => point("Registered runs on the same data are composed", Holds, total),
            None => point(
                "Registered runs on the same data are composed",
                DoesNotApply,
                "the run has no register at hand",
            ),
        },
        point(
            "Every use of the same people's data is known",
            YouMustShow,
            "list them all: runs without a register, statistics, models made with other tools",
        ),
    ])
}

fn middle(evidence: &Evidence) -> Vec<Point> {
    let summary = &evidence.run.summary;
    let mode = evidence.run.guarantee().map(|guarantee| guarantee.mode);
    let data = &summary.plan.data;
    let labels = data.task != TaskName::Classification || data.labels.is_some();
    let generates = data.task != TaskName::Classification;
    vec![
        point(
            "The guarantee is proved for the algorithm that ran",
            Standing::holds_if(evidence.guarantee.is_some()),
            match mode {
                Some(mode) => words::mode(mode).to_owned(),
                None => "there is no ledger".to_owned(),
            },
        ),
        point(
            "Sampling is as the accountant assumes",
            match (mode, summary.resolved.sampling_rate) {
                (Some(Mode::Proved), _) => Holds,
                (None, _) => DoesNotApply,
                _ => Fails,
            },
            match summary.resolved.sampling_rate {
                Some(_) if summary.resolved.examples.is_some() => {
                    "Poisson sampling of examples; the accountant is certified for users with \
                     several"
                }
                Some(_) => "Poisson sampling; the accountant is certified for it",
                None => "no amplification by sampling is counted",
            },
        ),
        point(
            "Sizes and labels do not leak",
            if summary.plan.privacy.units.is_some() && labels { Holds } else { YouMustShow },
            match (summary.plan.privacy.units, labels) {
                (Some(_), true) => {
                    "the number of units and the labels are declared, and nothing released depends \
                     on those of the file"
                }
                (None, _) => {
                    "the ledger assumes that the number of units is public: declare it with \
                     privacy.units, or show that it is"
                }
                (_, false) => {
                    "the classes were read from the training file, and the ledger assumes that \
                     nobody's data change them: name them in data.labels"
                }
            },
        ),
        point(
            "Noise cannot be predicted",
            Standing::holds_if(evidence.guarantee.is_some()),
            "from the operating system's randomness through ChaCha20; its secret is removed at the \
             end of the run",
        ),
        point(
            "The result is useful, and fair to small groups",
            YouMustShow,
            "private models are often less accurate for groups with few rows; measure it on data \
             that may be used for it",
        ),
        point(
            "Texts that the model generates need no further budget",
            if generates { Standing::holds_if(evidence.guarantee.is_some()) } else { DoesNotApply },
            if generates {
                "they are post-processing; choosing among them by private data is not"
            } else {
                "the model is a classifier"
            },
        ),
    ]
}

fn base(evidence: &Evidence) -> Vec<Point> {
    let local = evidence.guarantee.is_some_and(|guarantee| guarantee.threat == Threat::Local);
    vec![
        point(
            "Rounding to floating point reveals nothing",
            if evidence.guarantee.is_some() { YouMustShow } else { Fails },
            "an assumption of the ledger, which says how far the noise is from a Gaussian",
        ),
        point(
            "Times, memory and sizes are not released",
            YouMustShow,
            "the ledger assumes it: keep progress, logs and the folder private/ to yourself",
        ),
        point(
            "Settings were not tuned on the private data",
            YouMustShow,
            format!(
                "{}; every other run on the data costs too, or use private selection",
                evidence.run.summary.selection
            ),
        ),
        match local {
            true => point(
                "The trust model fits",
                Holds,
                "local: nobody but the owner sees a text without noise",
            ),
            false => point(
                "The trust model fits",
                YouMustShow,
                "central: whoever trains sees the data; show who that is and why they may",
            ),
        },
        point(
            "Access to raw data, backups and logs is controlled",
            YouMustShow,
            "differential privacy protects what is released, not what is stored",
        ),
        point(
            "Collection itself was lawful and no larger than needed",
            YouMustShow,
            "no noise makes up for data that should not have been collected",
        ),
    ]
}
