//! What a private run tells its ledger.

use super::error::{Error, Result};
use super::folder::RunFolder;
use super::plan::{AttentionName, Method, ModeName, Plan, RelevanceSource, Resolved};
use super::prepare::Prepared;
use crate::model::layer::sanitiser::Rows;
use undertone_accounting::ledger::{Ledger, Terms};
use undertone_accounting::{Adjacency, Event, Mode, Part, Threat};

/// What one step releases.
pub fn step_event(resolved: &Resolved, noise_multiplier: f64) -> Event {
    Event::PoissonGaussian {
        noise_multiplier,
        sampling_rate: resolved.sampling_rate.unwrap_or(1.0),
    }
}

/// A noise multiplier that is not larger, from a list with steps of one percent: what differs from
/// step to step in its last digits would otherwise be a part of its own in every step, and
/// composition is slow with thousands of parts.
pub fn rounded_down(noise_multiplier: f64) -> f64 {
    const STEP: f64 = 0.01;
    ((noise_multiplier.ln() / STEP).floor() * STEP).exp().min(noise_multiplier)
}

/// Everything that perturbed records release, in the order of the ledger: the epoch before which it
/// must be there, what, and how often.
pub fn releases(plan: &Plan, resolved: &Resolved, classes: usize) -> Vec<(usize, Event, u64)> {
    let Some(of_records) = &resolved.releases else { return Vec::new() };
    let count = of_records.records_per_unit;
    let adaptation =
        resolved.adaptation.map(|adaptation| (0, adaptation.event(), adaptation.steps));
    let attention = resolved.before.map(|event| (0, event, 1));
    let labels = plan.label_event(classes).map(|event| (0, event, count));
    let rows = of_records.events().into_iter().map(|(epoch, event)| (epoch, event, count));
    adaptation.into_iter().chain(attention).chain(labels).chain(rows).collect()
}

fn announced_releases(plan: &Plan, resolved: &Resolved, prepared: &Prepared) -> Vec<Part> {
    let classes = prepared.model.network.head.out.outputs;
    let all = releases(plan, resolved, classes);
    let mut announced: Vec<Part> = Vec::new();
    for (_, event, count) in all {
        // Of MVG as published the noise is known only when the model was looked at: anything may
        // come.
        let event = match (event, plan.privacy.method, plan.privacy.mode) {
            (Event::Gaussian { .. }, Method::Mvg, ModeName::Paper) => {
                Event::Gaussian { noise_multiplier: 1e-4, sensitivity: 1.0 }
            }
            _ => event,
        };
        match announced
            .iter_mut()
            .find(|part| event.no_worse_than(&part.event) || part.event.no_worse_than(&event))
        {
            Some(part) => {
                part.count = part.count.max(count);
                if part.event.no_worse_than(&event) {
                    part.event = event;
                }
            }
            None => announced.push(Part { event, count }),
        }
    }
    announced
}

fn of_forward(plan: &Plan) -> Vec<String> {
    let settings = plan.forward();
    let mut assumptions = vec![
        "the provider sees each record's release and whose it is; whoever sees less, such as only \
         the final weights, learns no more"
            .to_owned(),
    ];
    if settings.label_epsilon.is_none() {
        assumptions.push("the labels are public".to_owned());
    }
    if let Some(column) = &plan.data.author {
        assumptions.push(format!(
            "how many records each of {column} has, at most {}, is public",
            plan.data.most_per_author
        ));
    }
    if plan.privacy.method == Method::Mvg && plan.privacy.mvg.attention == AttentionName::AttenDp {
        assumptions.push(
            "the attention map was averaged, before its noise was added, by somebody \
         whom the owners trust with their records, or by secure aggregation"
                .to_owned(),
        );
    }
    if plan.privacy.forward.adapt.as_ref().is_some_and(|adapt| adapt.share.is_some()) {
        assumptions.push(
            "the gradients of the adaptation were clipped and summed, before their \
         noise was added, by somebody whom the owners trust with their records; the provider sees \
         the adapted weights"
                .to_owned(),
        );
    }
    assumptions.push(
        "rounding, by which a record's rows may differ in their last digits when they \
     are computed again, reveals nothing"
            .to_owned(),
    );
    if settings.rows == Rows::Tokens(None) {
        assumptions.push("the number of tokens of each record is public".to_owned());
    }
    for (file, what) in [
        (&plan.privacy.forward.public, "text"),
        (&plan.privacy.forward.adapt.as_ref().and_then(|a| a.public.clone()), "labelled data"),
    ] {
        if let Some(file) = file {
            assumptions.push(format!(
                "{} is public {what} that does not depend on the records",
                file.file.display()
            ));
        }
    }
    assumptions
}

/// The run's ledger: a new one, or the one that it began with.
pub fn open_ledger(
    folder: &RunFolder,
    plan: &Plan,
    resolved: &Resolved,
    prepared: &Prepared,
) -> Result<Ledger> {
    let nominal = resolved.noise_multipliers.iter().copied().fold(f64::INFINITY, f64::min);
    // What the quietest step can come to is announced: nothing costlier can be entered.
    let least = match plan.privacy.mode {
        ModeName::Proved => nominal,
        ModeName::Paper => rounded_down(plan.least_worth(nominal)),
    };
    let mut announced = match plan.is_forward() {
        true => announced_releases(plan, resolved, prepared),
        false => vec![Part { event: step_event(resolved, least), count: 1 }],
    };
    announced.extend(resolved.before.map(|event| Part { event, count: 1 }));
    let mut assumptions =
        vec![
        format!("the number of units in the training file ({}) is public", resolved.units),
        "the model that the run began from does not depend on the training file".to_owned(),
        "metrics.jsonl, secret.key, identity.json, audit.json and its drawings, a relevance map \
         without noise, the progress that was shown, and the time and memory that the run took are \
         not released: they depend on the data without noise".to_owned(),
        "rounding of f32 arithmetic, by which one unit moves the gradients of the others, and its \
         own length, in their last digits, reveals nothing".to_owned(),
        "the noise, drawn in f32 and rounded to a grid, is taken for the Gaussian that it is to \
         about 2e-7 of itself".to_owned(),
    ];
    if prepared.labels_were_found {
        let names = prepared
            .data
            .labels
            .as_ref()
            .map(|labels| labels.names().join(", "))
            .unwrap_or_default();
        assumptions.push(format!(
            "the labels ({names}), which were found in the training file, are public"
        ));
    }
    if plan.is_forward() {
        assumptions.extend(of_forward(plan));
    }
    if plan.training.dropout {
        assumptions.push(
            "dropout masks, which are hashed from a secret number and not drawn one \
         by one, tell nothing of each other"
                .to_owned(),
        );
    }
    if let (Method::RapFt, RelevanceSource::Public(file)) =
        (plan.privacy.method, &plan.privacy.rap_ft.relevance)
    {
        assumptions
            .push(format!("{} is public and does not depend on the training file", file.display()));
    }
    assumptions.extend(plan.unaccounted().map(|what| format!("not covered: {what}")));
    let terms = Terms {
        unit: if plan.data.author.is_some() {
            undertone_accounting::Unit::User
        } else {
            undertone_accounting::Unit::Example
        },
        adjacency: if plan.is_forward() { Adjacency::ReplaceOne } else { Adjacency::AddRemove },
        threat: if plan.is_forward() { Threat::Local } else { Threat::Central },
        mode: match (plan.privacy.mode, plan.training.seed) {
            (ModeName::Paper, _) => Mode::Paper,
            (ModeName::Proved, Some(_)) => Mode::Seeded,
            (ModeName::Proved, None) => Mode::Proved,
        },
        assumptions,
        announced,
    };
    let path = folder.ledger();
    if !path.exists() {
        return Ok(Ledger::create(&path, terms)?);
    }
    let ledger = Ledger::open(&path)?;
    if *ledger.terms() != terms {
        return Err(Error::folder(
            &path,
            "was begun with another plan or other data; resume with what the run began with",
        ));
    }
    Ok(ledger)
}
