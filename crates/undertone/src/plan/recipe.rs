//! The recipe: hyperparameters that a run file leaves to "auto".
//!
//! Every choice is a function of public quantities: the number of privacy units (which the
//! accountant treats as public), the number of parameters, ε, the task, the fine-tuning method and
//! the kind of device. The recipe never looks at an example, so it costs no privacy.

use undertone_run::{Choices, Clip, LearningRateSchedule, OptimizerKind, TaskName, Tuning};

/// A private batch is about this multiple of the square root of the number of units: 1,024 of 5,000
/// and 4,096 of 67,000 worked better than a quarter of that.
const BATCH_OF_ROOT: f64 = 12.0;
/// The smallest and the largest private batch, which are powers of two.
const PRIVATE_BATCH: (u64, u64) = (64, 8192);
/// A private batch is at most the number of units divided by this.
const PART_OF_UNITS: u64 = 4;
/// The batch size of a non-private run.
const NON_PRIVATE_BATCH: u64 = 64;
/// The target number of steps of a private run, on a GPU and on the CPU. Noise grows more slowly
/// with the number of steps than learning progress does.
const STEPS: Steps = Steps { gpu: 320, cpu: 160 };
/// The minimum and maximum number of epochs of a private run, and the number of a non-private run.
const PRIVATE_EPOCHS: (u64, u64) = (3, 40);
const NON_PRIVATE_EPOCHS: u32 = 3;
/// Learning rates of a private run. For full fine-tuning, the rate is for batches of
/// [`FULL_BATCH`]; smaller batches use smaller rates. With few trainable parameters, the rate is
/// for the target number of steps on a GPU; fewer steps use larger rates, up to twice this one.
const PRIVATE_RATE: Rates = Rates { full: 5e-4, few: 2e-3 };
/// The batch of full fine-tuning to which its learning rate applies, taken from E2E. Enron emails,
/// in batches of 256, reach perplexity 287 at half this learning rate, 387 at the full rate and 594
/// at twice the rate.
const FULL_BATCH: f64 = 2048.0;
/// Learning rates of a non-private run.
const NON_PRIVATE_RATE: Rates = Rates { full: 5e-5, few: 1e-3 };
/// Learning rate schedule, and the fraction of steps used for warm-up.
const SCHEDULE: LearningRateSchedule = LearningRateSchedule::Linear;
const WARMUP: f64 = 0.05;
/// ℓ2 clipping norm of gradients. In classification with few trainable parameters, it is above the
/// norm of an ordinary gradient, since misclassified examples must count for more than correctly
/// classified ones; otherwise it is 1.
const CLIP_OF_CLASSIFICATION: f64 = 6.0;
const CLIP: f64 = 1.0;
/// δ is the largest power of ten that is at most one over this multiple of the number of units …
const UNITS_TIMES: u64 = 10;
/// … and never above 10 to the negative of this power.
const LEAST_DIGITS_OF_DELTA: u32 = 5;

/// A language model with at most this number of parameters is fully fine-tuned: for stories15M on
/// E2E at ε = 8, full fine-tuning reaches a perplexity of 4.2, LoRA on all layers 14.1.
const SMALL_LANGUAGE_MODEL: u64 = 50_000_000;

/// Whether full fine-tuning is the default: for language modeling with a small model.
pub(super) fn prefers_full_fine_tuning(task: TaskName, parameters: u64) -> bool {
    matches!(task, TaskName::LanguageModeling | TaskName::Completion | TaskName::Chat)
        && parameters <= SMALL_LANGUAGE_MODEL
}

struct Steps {
    gpu: u64,
    cpu: u64,
}

struct Rates {
    full: f64,
    few: f64,
}

/// The inputs of the recipe: only public quantities.
#[derive(Clone, Debug, PartialEq)]
pub struct PublicFacts {
    /// Whether the method adds noise.
    pub private: bool,
    /// Target ε; `None` if a noise multiplier is given, and in a non-private run.
    pub epsilon: Option<f64>,
    /// Number of privacy units in the training file.
    pub units: u64,
    /// Number of units, or of examples, from which steps sample.
    pub sampled: u64,
    /// Number of trainable parameters; `None` if the model is not available.
    pub parameters: Option<u64>,
    /// The task.
    pub task: TaskName,
    /// Which parameters are trainable.
    pub tuning: Tuning,
    /// The optimizer, if the run file names one.
    pub optimizer: Option<OptimizerKind>,
    /// Whether the run uses a GPU.
    pub gpu: bool,
}

/// The recipe's choices.
pub fn recipe(facts: &PublicFacts) -> Choices {
    let rates = if facts.private { PRIVATE_RATE } else { NON_PRIVATE_RATE };
    let full = facts.tuning == Tuning::Full;
    let clip = match facts.task {
        TaskName::Classification if !full => CLIP_OF_CLASSIFICATION,
        _ => CLIP,
    };
    let optimizer = facts.optimizer.unwrap_or(match facts.private {
        true => OptimizerKind::AdamCorrected,
        false => OptimizerKind::Adamw,
    });
    let learning_rate = match (full, facts.private) {
        (true, false) => rates.full,
        (true, true) => rates.full * of_batch(private_batch(facts.sampled)),
        (false, false) => rates.few,
        (false, true) => rates.few * rise(facts),
    };
    Choices {
        tuning: facts.tuning.clone(),
        delta: delta(facts.units),
        clip: Clip::Flat(clip),
        epochs: if facts.private { private_epochs(facts) } else { NON_PRIVATE_EPOCHS },
        batch: if facts.private {
            private_batch(facts.sampled)
        } else {
            NON_PRIVATE_BATCH.min(facts.sampled.max(1))
        },
        learning_rate: match facts.private {
            true => learning_rate * of_optimizer(optimizer),
            false => learning_rate,
        },
        learning_rate_schedule: SCHEDULE,
        warmup: WARMUP,
        optimizer,
    }
}

/// Private learning rate of full fine-tuning, relative to that of large batches: all parameters
/// receive noise, and a small batch has more of it. It scales with the cube root of the batch, in
/// steps of one twentieth.
fn of_batch(batch: u64) -> f64 {
    let part = (batch as f64 / FULL_BATCH).cbrt().clamp(0.2, 1.0);
    (part * 20.0).round() / 20.0
}

/// Private learning rate of an optimizer, relative to that of adam-corrected: the best value for
/// each on SST-2 and QNLI with LoRA. Noise makes up most of AdamW's second moment, which makes its
/// steps correspondingly smaller.
fn of_optimizer(optimizer: OptimizerKind) -> f64 {
    match optimizer {
        OptimizerKind::AdamCorrected => 1.0,
        OptimizerKind::Adamw => 3.0,
        OptimizerKind::Sgd => 15.0,
    }
}

/// δ chosen by the recipe: well below one over the number of units, so that it does not permit
/// publishing one unit in full.
pub fn delta(units: u64) -> f64 {
    let bound = u128::from(units.max(1)) * u128::from(UNITS_TIMES);
    let digits = (LEAST_DIGITS_OF_DELTA..).find(|&digits| 10_u128.pow(digits) >= bound);
    // Parsed in the same way as a run file, so that the written value is the same number.
    format!("1e-{}", digits.unwrap_or(LEAST_DIGITS_OF_DELTA)).parse().unwrap_or(1e-5)
}

/// The number of epochs that gives the target number of steps.
fn private_epochs(facts: &PublicFacts) -> u32 {
    let steps = if facts.gpu { STEPS.gpu } else { STEPS.cpu };
    let wanted = (steps * private_batch(facts.sampled)).div_ceil(facts.sampled.max(1));
    wanted.clamp(PRIVATE_EPOCHS.0, PRIVATE_EPOCHS.1) as u32
}

/// The factor by which the learning rate exceeds that for the target number of steps on a GPU: the
/// square root of the ratio by which there are fewer steps, rounded to a tenth for readability.
fn rise(facts: &PublicFacts) -> f64 {
    let batch = private_batch(facts.sampled);
    let steps = (facts.sampled / batch).max(1) * u64::from(private_epochs(facts));
    let rise = (STEPS.gpu as f64 / steps as f64).sqrt().clamp(1.0, 2.0);
    (rise * 10.0).round() / 10.0
}

/// A power of two near a multiple of the square root of the number of units, within its range, and
/// at most a fixed fraction of the units.
fn private_batch(units: u64) -> u64 {
    let (least, most) = PRIVATE_BATCH;
    let wanted = (BATCH_OF_ROOT * (units as f64).sqrt()).max(1.0);
    let near = 2_u64.saturating_pow(wanted.log2().round() as u32);
    let part = (units / PART_OF_UNITS).max(1);
    near.clamp(least, most).min(1 << part.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_accounting::limits;
    use undertone_run::LoraSettings;

    fn facts(units: u64) -> PublicFacts {
        PublicFacts {
            private: true,
            epsilon: Some(8.0),
            units,
            sampled: units,
            parameters: Some(100_000),
            task: TaskName::Classification,
            tuning: Tuning::Lora(LoraSettings::default()),
            optimizer: None,
            gpu: false,
        }
    }

    /// From one unit to ten million, in steps of less than a tenth.
    fn numbers_of_units() -> Vec<u64> {
        let mut numbers = vec![1_u64];
        while *numbers.last().unwrap() < 10_000_000 {
            let last = *numbers.last().unwrap();
            numbers.push((last + last / 11 + 1).min(10_000_000));
        }
        numbers
    }

    #[test]
    fn choices_are_in_range_for_every_number_of_units() {
        for units in numbers_of_units().into_iter().chain([50]) {
            for private in [true, false] {
                let chosen = recipe(&PublicFacts { private, ..facts(units) });
                assert!((1..=units).contains(&chosen.batch), "{units}: {}", chosen.batch);
                assert!(chosen.batch <= 8192);
                assert!(limits::DELTA.contains(&chosen.delta));
                assert!(chosen.delta <= 1e-5 && chosen.delta * units as f64 <= 0.1 + 1e-12);
                assert!(chosen.learning_rate > 0.0 && (0.0..1.0).contains(&chosen.warmup));
                assert!((1..=100).contains(&chosen.epochs));
            }
            let batch = recipe(&facts(units)).batch;
            assert!(batch.is_power_of_two() && (units < 4 || batch <= units / 4), "{units}");
        }
    }

    #[test]
    fn choices_are_monotone_in_the_number_of_units() {
        for pair in numbers_of_units().windows(2) {
            let [fewer, more] = [recipe(&facts(pair[0])), recipe(&facts(pair[1]))];
            assert!(fewer.batch <= more.batch, "{pair:?}");
            assert!(fewer.delta >= more.delta, "{pair:?}");
        }
    }

    #[test]
    fn delta_is_well_below_one_over_the_units() {
        for (units, expected) in [
            (1, 1e-5),
            (50, 1e-5),
            (10_000, 1e-5),
            (10_001, 1e-6),
            (67_349, 1e-6),
            (100_000, 1e-6),
            (10_000_000, 1e-8),
        ] {
            assert_eq!(delta(units), expected, "{units}");
        }
    }

    #[test]
    fn private_and_non_private_runs_differ_where_they_must() {
        let private = recipe(&facts(67_349));
        assert_eq!((private.batch, private.optimizer), (4096, OptimizerKind::AdamCorrected));
        let open = recipe(&PublicFacts { private: false, epsilon: None, ..facts(67_349) });
        assert_eq!((open.batch, open.optimizer), (64, OptimizerKind::Adamw));
        assert!(open.batch < private.batch && open.epochs < private.epochs);
        let full = recipe(&PublicFacts { tuning: Tuning::Full, ..facts(67_349) });
        assert!(full.learning_rate < private.learning_rate);
        // Settings that were tried with full fine-tuning: E2E and Enron emails.
        let full = |units| {
            let tuning = Tuning::Full;
            recipe(&PublicFacts { tuning, gpu: true, ..facts(units) }).learning_rate
        };
        assert_eq!((full(42_061), full(1_683)), (5e-4, 2.5e-4));
        let sgd = recipe(&PublicFacts { optimizer: Some(OptimizerKind::Sgd), ..facts(67_349) });
        assert_eq!(sgd.optimizer, OptimizerKind::Sgd);
        assert_eq!(sgd.learning_rate, 15.0 * private.learning_rate);
        // Settings that were tried on a GPU: SST-2, and QNLI with 4,463 units.
        let large = recipe(&PublicFacts { gpu: true, ..facts(67_349) });
        assert_eq!((large.batch, large.epochs, large.learning_rate), (4096, 20, 2e-3));
        let small = recipe(&PublicFacts { gpu: true, ..facts(4_463) });
        assert_eq!((small.batch, small.epochs), (1024, 40));
        assert!((2.8e-3..=3.2e-3).contains(&small.learning_rate), "{}", small.learning_rate);
    }
}
