//! Ledger terms and events of local DP methods.

use super::accounting::events;
use super::plan::LocalPlan;
use crate::method::Prepared;
use crate::method::ledger::{assumptions, mode, unit};
use crate::model::layer::sanitizer::Rows;
use crate::plan::Plan;
use undertone_accounting::ledger::Terms;
use undertone_accounting::{Adjacency, Event, Part, Threat};
use undertone_run::{AttentionSource, Resolved};

/// A release made by owners.
#[derive(Clone, Copy, Debug)]
pub struct PlannedRelease {
    /// The epoch before which the release is recorded.
    pub epoch: usize,
    pub event: Event,
    /// Number of times a privacy unit makes this release.
    pub count: u64,
}

/// All releases made by owners, in ledger order.
pub fn releases(plan: &LocalPlan, resolved: &Resolved, classes: usize) -> Vec<PlannedRelease> {
    let Some(embeddings) = &resolved.releases else { return Vec::new() };
    let count = embeddings.records_per_unit;
    let at_first = |event: Event, count: u64| PlannedRelease { epoch: 0, event, count };
    let adaptation =
        resolved.adaptation.map(|adaptation| at_first(adaptation.event(), adaptation.steps));
    let attention = resolved.before.map(|event| at_first(event, 1));
    let labels = plan.label_event(classes).map(|event| at_first(event, count));
    let rows = events(embeddings).into_iter();
    let rows = rows.map(|(epoch, event)| PlannedRelease { epoch, event, count });
    adaptation.into_iter().chain(attention).chain(labels).chain(rows).collect()
}

/// The ledger's first line.
pub fn terms(plan: &Plan, local: &LocalPlan, resolved: &Resolved, prepared: &Prepared) -> Terms {
    let classes = prepared.model.network.head.out.outputs;
    let mut assumptions = assumptions(plan, resolved, prepared, of_method(plan, local));
    assumptions.extend(local.unaccounted().map(|what| format!("not covered: {what}")));
    let mut announced = announced(local, resolved, classes);
    announced.extend(resolved.before.map(|event| Part { event, count: 1 }));
    Terms {
        id: String::new(),
        run: None,
        unit: unit(plan),
        adjacency: Adjacency::ReplaceOne,
        threat: Threat::Local,
        mode: mode(plan, local.is_published()),
        assumptions,
        announced,
    }
}

/// The costliest release of each kind: the ledger rejects costlier entries.
fn announced(plan: &LocalPlan, resolved: &Resolved, classes: usize) -> Vec<Part> {
    let published_mvg = plan.is_published() && plan.mvg().is_some();
    let mut announced: Vec<Part> = Vec::new();
    for PlannedRelease { event, count, .. } in releases(plan, resolved, classes) {
        let event = match event {
            // The noise of this release depends on the model and is not known yet, so announce
            // almost none.
            Event::Gaussian { .. } if published_mvg => {
                Event::Gaussian { noise_multiplier: 1e-4, sensitivity: 1.0 }
            }
            _ => event,
        };
        let comparable =
            |part: &&mut Part| event.no_worse_than(&part.event) || part.event.no_worse_than(&event);
        match announced.iter_mut().find(comparable) {
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

fn of_method(plan: &Plan, local: &LocalPlan) -> Vec<String> {
    let mut assumptions = vec![
        "the provider sees each perturbed embedding and whose it is; whoever sees less, such as \
         only the final weights, learns no more"
            .to_owned(),
    ];
    if local.settings.label_epsilon.is_none() {
        assumptions.push("the labels are public".to_owned());
    }
    if let Some(column) = &plan.data.author {
        assumptions.push(format!(
            "the number of examples of each {column}, at most {}, is public",
            plan.data.most_per_author
        ));
    }
    if local.mvg().is_some_and(|mvg| mvg.attention == AttentionSource::AttenDp) {
        assumptions.push(
            "the attention map was averaged, before its noise was added, by somebody whom the \
             owners trust with their examples, or by secure aggregation"
                .to_owned(),
        );
    }
    if local.adapt.as_ref().is_some_and(|adapt| adapt.share.is_some()) {
        assumptions.push(
            "the gradients of the adaptation were clipped and summed, before their noise was \
             added, by somebody whom the owners trust with their examples; the provider sees the \
             adapted weights"
                .to_owned(),
        );
    }
    assumptions.push(
        "rounding, by which an embedding may differ in its last digits when it is computed again, \
         reveals nothing"
            .to_owned(),
    );
    if matches!(local.settings.rows, Rows::Tokens(None) | Rows::Padded(_)) {
        assumptions.push("the number of tokens of each example is public".to_owned());
    }
    let adaptation = local.adapt.as_ref().and_then(|adapt| adapt.public.as_ref());
    for (file, what) in [(local.public.as_ref(), "text"), (adaptation, "labeled data")] {
        if let Some(file) = file {
            let file = file.file.display();
            assumptions
                .push(format!("{file} is public {what} that does not depend on the examples"));
        }
    }
    assumptions
}
