//! `undertone audit membership`: was this example in the training data?

use super::run_folder::{AuditedRun, losses};
use super::trials::{json, kept, mean_of};
use crate::arguments::{
    ConfidenceArgument, RunArgument, SeedArgument, TrialsArgument, none_or_up_to,
};
use crate::device::DeviceArguments;
use crate::display::Display;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output, area, share};
use crate::ranks::RankArguments;
use clap::Args;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::HashMap;
use std::path::PathBuf;
use undertone::audit::membership::{
    Membership as Found, by_likelihood_ratio, by_loss, by_reference, judge,
};
use undertone::collective::Ranks;
use undertone::data::{Dataset, Example, Masking};
use undertone::train::{Start, train};
use undertone_report::plot;

/// Infer which examples a run was trained on (membership inference)
///
/// Scores each example by its loss, by its loss relative to the pretrained model (calibrated) and,
/// with `--shadows`, by the likelihood ratio of shadow models.
#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone audit membership --run runs/first --members train.tsv \
     --non-members dev.tsv --shadows 8"
)]
pub struct Membership {
    #[command(flatten)]
    target: RunArgument,
    /// File of members, i.e. examples used in training [default: the examples that the run used
    /// from its training file]
    #[arg(long, value_name = "FILE")]
    members: Option<PathBuf>,
    /// File of non-members, i.e. examples not used in training [default: the run's held-out
    /// examples (data.hold_out), otherwise its validation file]
    #[arg(long, value_name = "FILE")]
    non_members: Option<PathBuf>,
    /// Maximum number of examples per file, sampled at random
    #[arg(long, default_value_t = 10_000)]
    examples: usize,
    /// Number of shadow models for the likelihood-ratio attack; each one is a training run of its
    /// own
    #[arg(long, default_value_t = 0, value_parser = none_or_up_to(1_000))]
    shadows: usize,
    /// Use the loss only, without the pretrained model; takes half the time
    #[arg(long)]
    loss_only: bool,
    #[command(flatten)]
    intervals: ConfidenceArgument,
    #[command(flatten)]
    random: SeedArgument,
    #[command(flatten)]
    trials: TrialsArgument,
    #[command(flatten)]
    device: DeviceArguments,
    #[command(flatten)]
    together: RankArguments,
}

impl Membership {
    pub fn run(self, output: Output) -> Outcome {
        self.together.together(|ranks| self.run_on(ranks, output))
    }

    fn run_on(&self, ranks: &Ranks, output: Output) -> Outcome {
        if self.examples == 0 {
            return Err(Failure::arguments("--examples must be at least 1"));
        }
        let run = AuditedRun::open(&self.target.run)?.on(ranks);
        let Some((outside, from)) = run.non_members(self.non_members.as_deref())? else {
            return Err(Failure::arguments(
                "the run has no held-out units (data.hold_out) and no validation file; pass a file \
                 that was not used for training with --non-members",
            ));
        };
        let inside = run.members(self.members.as_deref())?;
        if inside.examples.is_empty() || outside.examples.is_empty() {
            return Err(Failure::arguments("both files need at least one example"));
        }
        let trials =
            self.trials.each(self.random, |random| self.attack(&run, &inside, &outside, random))?;
        let attacks = trials[0].found.clone();
        run.keep(|audit| {
            audit.membership = attacks.clone();
            audit.non_members = Some(from);
            audit.trials.membership = kept(&trials);
        })?;
        if !ranks.is_first() {
            return Ok(());
        }
        let curves: Vec<(&str, &[(f64, f64)])> =
            attacks.iter().map(|a| (a.attack.as_str(), a.roc.as_slice())).collect();
        plot::roc(&run.paths.membership_figure(), "Membership inference", &curves)?;
        if output.json {
            json(&trials);
            return Ok(());
        }
        let body: Vec<Vec<String>> = attacks.iter().map(row).collect();
        output::table(&["attack", "AUC", "TPR at 1 % FPR", "TPR at 0.1 % FPR"], &body);
        for (i, of) in attacks.iter().enumerate().filter(|_| trials.len() > 1) {
            output::line(format_args!(
                "{}: mean AUC {} over {} trials; the table shows the first.",
                of.attack,
                mean_of(&trials, i, &|attack| attack.auc.estimate),
                trials.len()
            ));
        }
        output::line(format_args!(
            "\n{} members, {} non-members; {:.0} % confidence intervals. Guessing has an AUC of \
             0.5. ROC curves are in {}.",
            attacks[0].members,
            attacks[0].others,
            self.intervals.percent(),
            run.paths.membership_figure().display()
        ));
        output::line(from.sentence());
        Ok(())
    }

    /// One trial, on a random sample of both files.
    fn attack(
        &self,
        run: &AuditedRun,
        inside: &Dataset,
        outside: &Dataset,
        random: SeedArgument,
    ) -> Outcome<Vec<Found>> {
        let sample = |data: &Dataset| at_random(data.examples.clone(), self.examples, random.seed);
        let inside = Dataset { examples: sample(inside), ..inside.clone() };
        let count = inside.examples.len();
        // The units of the other file are distinct from those of this one.
        let first = inside.units as u32;
        let outside = sample(outside).into_iter();
        let outside = outside.map(|example| Example { unit: first + example.unit, ..example });
        let all: Vec<Example> = inside.examples.iter().cloned().chain(outside).collect();
        let how = (self.intervals.confidence, random.seed);
        let masking = inside.masking.as_ref();
        let (mut attacks, trained_losses) =
            by_losses(run, &all, count, masking, how, !self.loss_only, &self.device)?;
        if self.shadows > 0 {
            let shadows = self.shadow_losses(run, &inside, &all, random)?;
            let scores = by_likelihood_ratio(&trained_losses, &shadows);
            let (inside, outside) = scores.split_at(count);
            attacks.push(judge("likelihood ratio of shadow models", inside, outside, how.0, how.1));
        }
        Ok(attacks)
    }

    /// The losses of models trained on random halves of all privacy units, each with the examples
    /// that it was trained on.
    fn shadow_losses(
        &self,
        run: &AuditedRun,
        like: &Dataset,
        all: &[Example],
        random: SeedArgument,
    ) -> Outcome<Vec<(Vec<f64>, Vec<bool>)>> {
        let chosen_by = |shadow: u64| -> Vec<bool> {
            let drawn = |unit: u32| {
                let x = (u64::from(unit) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    ^ (random.seed << 32 | shadow).wrapping_mul(0xd6e8_feb8_6659_fd93);
                (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 63 == 1
            };
            all.iter().map(|example| drawn(example.unit)).collect()
        };
        // Each rank trains some of them, with the same results as one process.
        let shadow_losses = run.ranks().divided(self.shadows, |shadow| -> Outcome<Vec<u64>> {
            let shadow = shadow as u64;
            let chosen = chosen_by(shadow);
            let mut examples: Vec<Example> = all
                .iter()
                .zip(&chosen)
                .filter(|(_, chosen)| **chosen)
                .map(|(example, _)| example.clone())
                .collect();
            let units = renumber(&mut examples);
            let data = Dataset { examples, units, ..like.clone() };
            let folder = tempfile::tempdir().map_err(|e| Failure::write(run.paths.folder(), e))?;
            let mut plan = run.plan.clone();
            plan.data.validation = None;
            plan.training.seed = Some(random.seed.wrapping_mul(1000) + shadow);
            output::note(format_args!("shadow {} of {}:", shadow + 1, self.shadows));
            let mut display = Display::new();
            let start = Start {
                plan,
                out: folder.path(),
                resume: false,
                device: self.device.device()?,
                data: Some(data),
                ranks: Ranks::alone(),
                tape: None,
            };
            let done = train(start, &mut |event| display.show(&event));
            display.end();
            done?;
            let trained = AuditedRun::open(folder.path())?.model(true, &self.device)?;
            let losses = losses(&Ranks::alone(), &trained, all, like.masking.as_ref())?;
            // Compared by bits, since the loss of an example without a target is NaN.
            Ok(losses.into_iter().map(f64::to_bits).collect())
        })?;
        let losses = |bits: Vec<u64>| bits.into_iter().map(f64::from_bits).collect();
        Ok(shadow_losses
            .into_iter()
            .zip(0..)
            .map(|(bits, i)| (losses(bits), chosen_by(i)))
            .collect())
    }
}

/// Numbers the units of examples from 0, in the order of their first examples; returns their
/// number.
fn renumber(examples: &mut [Example]) -> usize {
    let mut numbers = HashMap::new();
    for example in examples {
        let next = numbers.len() as u32;
        example.unit = *numbers.entry(example.unit).or_insert(next);
    }
    numbers.len()
}

/// A random sample without replacement up to this size, because the first rows of a file are often
/// unlike the others.
pub fn at_random<T>(mut all: Vec<T>, most: usize, seed: u64) -> Vec<T> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let count = most.min(all.len());
    for i in 0..count {
        let other = i + (random.next_u64() % (all.len() - i) as u64) as usize;
        all.swap(i, other);
    }
    all.truncate(count);
    all
}

/// The attacks that need only losses, including those of the pretrained model if `reference` is
/// given. The first `members` examples are members. Also returns the losses.
pub fn by_losses(
    run: &AuditedRun,
    all: &[Example],
    members: usize,
    masking: Option<&Masking>,
    (confidence, seed): (f64, u64),
    reference: bool,
    device: &DeviceArguments,
) -> Outcome<(Vec<Found>, Vec<f64>)> {
    let trained_losses = losses(run.ranks(), &run.model(true, device)?, all, masking)?;
    let score = |name, scores: Vec<f64>| {
        judge(name, &scores[..members], &scores[members..], confidence, seed)
    };
    let mut attacks = vec![score("loss", by_loss(&trained_losses))];
    if reference {
        let before = losses(run.ranks(), &run.model(false, device)?, all, masking)?;
        attacks.push(score(
            "loss against the pretrained model",
            by_reference(&trained_losses, &before),
        ));
        attacks.push(score(Found::OF_PRETRAINED, by_loss(&before)));
    }
    Ok((attacks, trained_losses))
}

fn row(result: &Found) -> Vec<String> {
    vec![
        result.attack.to_owned(),
        area(&result.auc),
        share(&result.rate_at_1_percent),
        share(&result.rate_at_0_1_percent),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_author_stays_one_unit_of_a_shadow_model() {
        let mut examples = [7, 3, 7, 9].map(|unit| Example { unit, ..Example::default() });
        assert_eq!(renumber(&mut examples), 3);
        assert_eq!(examples.map(|example| example.unit), [0, 1, 0, 2]);
    }

    #[test]
    fn a_sample_is_of_the_whole_file() {
        let of = |seed: u64| at_random((0..1_000).collect::<Vec<u32>>(), 100, seed);
        let sample = of(1);
        assert_eq!(sample.len(), 100);
        assert_eq!(sample.iter().collect::<std::collections::BTreeSet<_>>().len(), 100);
        // About a tenth of each tenth of the file. Taking only the first rows would give all of one
        // tenth and none of the others.
        for tenth in 0..10 {
            let inside = sample.iter().filter(|&&i| i / 100 == tenth).count();
            assert!((2..=22).contains(&inside), "{inside} of tenth {tenth}");
        }
        assert_eq!(sample, of(1));
        assert_ne!(sample, of(2));
        // If there are fewer examples than requested, all are taken.
        let mut all = at_random((0..7).collect::<Vec<u32>>(), 100, 1);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5, 6]);
    }
}
