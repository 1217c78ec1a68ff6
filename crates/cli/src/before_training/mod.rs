//! Notes printed to standard error before training: decisions that the run file leaves open, and
//! settings that are probably mistakes.
//!
//! Row counts are computed from private data and intended for the data owner's terminal only; the
//! run folder contains only the counts named in the ledger's assumptions.

mod earlier;
mod labels;

pub use earlier::Siblings;

use undertone::Plan;
use undertone::data::{Dataset, Labels, Tally};
use undertone_accounting::ledger::Ledger;
use undertone_run::{ParameterCounts, Resolved};

/// Display name of the run's privacy units, singular or plural by `count`.
pub fn units(plan: &Plan, count: usize) -> &'static str {
    match (plan.data.author.is_some(), count == 1) {
        (true, true) => "user",
        (true, false) => "users",
        (false, true) => "example",
        (false, false) => "examples",
    }
}

/// The facts about a run once its model and data are loaded.
pub struct LoadedRun<'a> {
    pub plan: &'a Plan,
    pub resolved: &'a Resolved,
    pub data: &'a Dataset,
    pub labels_were_found: bool,
    pub parameters: ParameterCounts,
    /// The ledger that the run will have after its last release.
    pub planned: Option<&'a Ledger>,
}

/// The notes, one short line each. `beside` is set if only the curator sees the notes and no file
/// stores them; they then include row counts and the earlier runs in that folder.
pub fn notes(run: &LoadedRun, beside: Option<&Siblings>) -> Vec<String> {
    let LoadedRun { plan, resolved, data, labels_were_found, parameters, planned } = *run;
    let mut notes = Vec::new();
    if let Some(labels) = data.labels.as_ref().filter(|_| labels_were_found) {
        notes.push(classes(labels, plan.data.publish_labels));
    }
    if let Some(siblings) = beside {
        notes.extend(labels::notes(data));
        notes.extend(rows(plan, data.tally));
        notes.extend(far_from_declared(plan, data.units));
        notes.extend(siblings.notes(plan, planned));
    }
    notes.extend(large_delta(plan, resolved.units));
    notes.extend(hopeless_noise(plan, resolved, parameters.trainable));
    notes
}

/// The classes found in the file.
fn classes(labels: &Labels, are_published: bool) -> String {
    let published = match are_published {
        true => "these names are published (data.publish_labels)",
        false => {
            "published files refer to them by number (data.labels or data.publish_labels \
                  publishes names)"
        }
    };
    format!(
        "{} classes found in the training file: {}; a typo becomes a class; {published}",
        labels.len(),
        labels.list()
    )
}

/// Rows that are excluded from training, or have no text.
fn rows(plan: &Plan, tally: Tally) -> Vec<String> {
    let number = |count: u64| if count == 1 { "1 row".into() } else { format!("{count} rows") };
    let Tally { beyond_most_per_author, in_other_part, without_text } = tally;
    let mut notes = Vec::new();
    if in_other_part > 0 {
        notes.push(format!("{} held out of training (data.hold_out)", number(in_other_part)));
    }
    if beyond_most_per_author > 0 {
        notes.push(format!(
            "{} left out, from authors with more than {} examples (data.most_per_author)",
            number(beyond_most_per_author),
            plan.data.most_per_author
        ));
    }
    if without_text > 0 {
        notes.push(format!(
            "warning: {} without text; they are used for training as they are",
            number(without_text)
        ));
    }
    notes
}

/// Warns if the declared number of units is far from the true one: steps then sample more or fewer
/// units than the settings were chosen for. The guarantee is not affected.
fn far_from_declared(plan: &Plan, count: usize) -> Option<String> {
    const FAR: f64 = 1.5;
    let declared = plan.declared_units()?;
    let ratio = count as f64 / declared as f64;
    (!(1.0 / FAR..=FAR).contains(&ratio)).then(|| {
        format!(
            "warning: the training file has {count} {}, but privacy.units declares {declared}: a \
             step draws {:.0} on average instead of {}. The guarantee holds; for good accuracy, \
             declare a number closer to the true one",
            units(plan, count),
            ratio * plan.training.batch as f64,
            plan.training.batch
        )
    })
}

/// Warns about a δ so large that it would permit publishing one unit in full.
fn large_delta(plan: &Plan, count: usize) -> Option<String> {
    let delta = plan.delta().filter(|delta| delta * count as f64 >= 1.0)?;
    Some(format!(
        "warning: δ = {delta:e} is not below 1/{count}: it would allow publishing one of the \
         {count} {} in full; choose a smaller one",
        units(plan, count)
    ))
}

/// Warns if the noise exceeds any possible signal.
///
/// With clipping norm C and B units per step on average, the clipped sums of all T steps have a
/// total norm of at most T·B·C, reached only if all gradients point in the same direction. The
/// total noise has norm C·√(p·Σσ²) for p trainable parameters. If it is larger, the weights are
/// mostly noise, whatever the data.
fn hopeless_noise(plan: &Plan, resolved: &Resolved, trainable: usize) -> Option<String> {
    // Correlated noise partly cancels.
    if plan.file().privacy.correlation.is_some() {
        return None;
    }
    let rate = resolved.sampling_rate?;
    let per_epoch = resolved.steps_per_epoch as f64;
    let squares: f64 = resolved.noise_multipliers.iter().map(|noise| noise * noise).sum();
    let noise = (trainable as f64 * squares * per_epoch).sqrt();
    let batch = rate * resolved.sampled() as f64;
    let signal = per_epoch * f64::from(plan.training.epochs) * batch;
    (noise > signal).then(|| {
        format!(
            "warning: the norm of the noise of all steps is {:.1} times that of the largest \
             possible clipped sum, so the model will probably learn nothing: train fewer \
             parameters (lora, head), or use a larger batch, more epochs or a larger ε",
            noise / signal
        )
    })
}
