//! What is said on standard error before a run begins: decisions that a run file leaves open, and
//! settings that are likely to be a mistake.
//!
//! Numbers of rows come from private data. They are for the curator's terminal and stand in no file
//! of the run folder.

use undertone::Plan;
use undertone::data::{Dataset, Labels, Tally};
use undertone_run::{ParameterCounts, Resolved};

/// What a run's units are called, for so many of them.
pub fn units(plan: &Plan, count: usize) -> &'static str {
    match (plan.data.author.is_some(), count == 1) {
        (true, true) => "user",
        (true, false) => "users",
        (false, true) => "example",
        (false, false) => "examples",
    }
}

/// One short line each.
pub fn notes(
    plan: &Plan,
    resolved: &Resolved,
    data: &Dataset,
    labels_were_found: bool,
    parameters: ParameterCounts,
) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(labels) = data.labels.as_ref().filter(|_| labels_were_found) {
        notes.push(classes(labels, plan.data.publish_labels));
    }
    notes.extend(rows(plan, data.tally));
    notes.extend(large_delta(plan, resolved.units));
    notes.extend(hopeless_noise(plan, resolved, parameters.trainable));
    notes
}

/// The classes that were found. Their numbers of rows are private and not shown.
fn classes(labels: &Labels, are_published: bool) -> String {
    let published = match are_published {
        true => "these names are published (data.publish_labels)",
        false => "published files number them (data.labels or data.publish_labels names them)",
    };
    format!(
        "{} classes found in the training file: {}; a typo becomes a class; {published}",
        labels.len(),
        labels.list()
    )
}

/// Rows that are not trained on, or have nothing to learn from.
fn rows(plan: &Plan, tally: Tally) -> Vec<String> {
    let number = |count: u64| if count == 1 { "1 row".into() } else { format!("{count} rows") };
    let Tally { beyond_most_per_author, in_other_part, without_text } = tally;
    let mut notes = Vec::new();
    if in_other_part > 0 {
        notes.push(format!("{} held out of training (data.hold_out)", number(in_other_part)));
    }
    if beyond_most_per_author > 0 {
        notes.push(format!(
            "{} left out: of authors with more than {} examples (data.most_per_author)",
            number(beyond_most_per_author),
            plan.data.most_per_author
        ));
    }
    if without_text > 0 {
        notes.push(format!(
            "warning: {} without text, trained on as they are",
            number(without_text)
        ));
    }
    notes
}

/// A δ that allows to publish one unit in full.
fn large_delta(plan: &Plan, count: usize) -> Option<String> {
    let delta = plan.delta().filter(|delta| delta * count as f64 >= 1.0)?;
    Some(format!(
        "warning: δ = {delta:e} is not below 1/{count}: it allows to publish one of the {count} {} \
         in full",
        units(plan, count)
    ))
}

/// Noise that drowns whatever a run can learn.
///
/// Clipped to norm C, the sums of all T steps have together a norm of at most T·B·C (B units a step
/// on average), and that only if every gradient points the same way. The noise of all steps has the
/// norm C·√(p·Σσ²) over p trainable parameters. If that is larger, the run's weights are mostly
/// noise whatever the data are.
fn hopeless_noise(plan: &Plan, resolved: &Resolved, trainable: usize) -> Option<String> {
    // Correlated noise cancels in part.
    if plan.file().privacy.correlation.is_some() {
        return None;
    }
    let rate = resolved.sampling_rate?;
    let per_epoch = resolved.steps_per_epoch as f64;
    let squares: f64 = resolved.noise_multipliers.iter().map(|noise| noise * noise).sum();
    let noise = (trainable as f64 * squares * per_epoch).sqrt();
    let batch = rate * resolved.units as f64;
    let signal = per_epoch * f64::from(plan.training.epochs) * batch;
    (noise > signal).then(|| {
        format!(
            "warning: the noise of all steps is {:.1} times as long as their clipped gradients can \
             be together, so expect to learn nothing: train fewer parameters (lora, head), with a \
             larger batch, more epochs or a larger ε",
            noise / signal
        )
    })
}
