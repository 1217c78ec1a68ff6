//! `undertone audit one-run`: train once with canaries, and bound ε from below.

use super::run_folder::{AuditedRun, losses};
use crate::arguments::{ChangeArguments, ConfidenceArgument};
use crate::before_training::Siblings;
use crate::device::DeviceArguments;
use crate::display::Display;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use crate::ranks::RankArguments;
use crate::register::{Ended, RegisterArguments};
use crate::source;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use undertone::audit::canaries::CanaryTemplate;
use undertone::audit::canaries::Coins;
use undertone::audit::membership::by_reference;
use undertone::audit::one_run::{OneRun as OneRunFound, audit, usual_guesses};
use undertone::audit::tradeoff::{Promises, refuted};
use undertone::audit::update::by_update;
use undertone::collective::Ranks;
use undertone::data::{Example, Masking};
use undertone::model::tuning::Tuning;
use undertone::noise::Secret;
use undertone::train::{Start, read_data, train};
use undertone::{Method, Plan};
use undertone_accounting::ledger::Ledger;
use undertone_accounting::{Accountant, curve, epsilon};
use undertone_run::WrittenRun;
use undertone_run::audit::OneRunAudit;

/// Train once with canaries and compute a lower bound on ε
///
/// Includes each canary by a fair coin flip, trains, and guesses which were included. The bound is
/// certified: it exceeds the true ε with probability at most 1 − confidence, whatever the training
/// does. If the guesses contradict the run's guarantee, the command fails with exit code 3.
#[derive(Args)]
#[command(after_help = "Example:\n  undertone audit one-run --run run.toml --canaries 1000 --out \
     runs/audit")]
pub struct OneRun {
    /// Run file (TOML) to audit
    #[arg(long, value_name = "FILE")]
    run: PathBuf,
    /// Folder of the run with canaries; its model is not meant to be used
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    set: ChangeArguments,
    /// Number of canaries, from 10 to 1000000
    #[arg(long, default_value_t = 1000)]
    canaries: usize,
    /// Number of canaries to guess; fixed before the scores are computed [default: a tenth of the
    /// canaries, at least 20]
    #[arg(long)]
    guesses: Option<usize>,
    /// Score to base the guesses on
    #[arg(long, value_enum, default_value = "loss")]
    score: Score,
    #[command(flatten)]
    intervals: ConfidenceArgument,
    #[command(flatten)]
    device: DeviceArguments,
    #[command(flatten)]
    budget: RegisterArguments,
    #[command(flatten)]
    together: RankArguments,
}

/// What was planted in the data of the run.
struct Trained {
    planted: Vec<Example>,
    coins: Coins,
    masking: Option<Masking>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Score {
    /// Decrease of each canary's loss
    Loss,
    /// Alignment of each canary's gradient with the weight update: a stronger attack, for full
    /// fine-tuning and few canaries
    Update,
}

impl OneRun {
    pub fn run(self, output: Output) -> Outcome {
        self.together
            .refuse("a one-run audit runs in a single process; start it without --ranks")?;
        let guesses = self.guesses.unwrap_or_else(|| usual_guesses(self.canaries));
        if !(10..=1_000_000).contains(&self.canaries) || !(1..=self.canaries).contains(&guesses) {
            return Err(Failure::arguments(
                "--canaries must be from 10 to 1000000, and --guesses from 1 to the number of \
                 canaries",
            ));
        }
        let budget = self.budget.open()?;
        let mut written = WrittenRun::read(&self.run, &self.set.changes())?;
        if let Some(budget) = &budget {
            let set = self.set.with(budget.units(&written)?);
            written = WrittenRun::read(&self.run, &set.changes())?;
        }
        let resolved = source::resolve(&written, Some(&self.run), &self.device.device()?)?;
        source::tell_choices(&resolved);
        let mut plan = resolved.plan;
        if self.score == Score::Update && plan.model.tuning != Tuning::Full {
            return Err(Failure::arguments(
                "--score update needs full fine-tuning; use --score loss",
            ));
        }
        if matches!(plan.method, Method::Local(_)) {
            return Err(Failure::arguments(
                "local DP does not hide who takes part, so canaries cannot test it; attack the \
                 perturbed embeddings with `audit inversion`",
            ));
        }
        // Before anything of the data is read.
        let booking = budget
            .map(|budget| budget.reserve(&mut plan, "audit one-run", &self.out))
            .transpose()?;
        let done = self.train(&plan);
        if let Some(booking) = &booking {
            booking.conclude(if done.is_ok() { Ended::Finished } else { Ended::Failed })?;
            booking.announce()?;
        }
        let Trained { planted, coins, masking } = done?;
        let run = AuditedRun::open(&self.out)?;
        let (after, before) = (run.model(true, &self.device)?, run.model(false, &self.device)?);
        let masking = masking.as_ref();
        let scores = match self.score {
            Score::Loss => by_reference(
                &losses(run.ranks(), &after, &planted, masking)?,
                &losses(run.ranks(), &before, &planted, masking)?,
            ),
            Score::Update => match masking {
                Some(masking) => by_update(&before, &after, &masking.for_evaluation(&planted, 0))?,
                None => by_update(&before, &after, &planted)?,
            },
        };
        let promised = run.promised();
        let delta = plan.delta().unwrap_or(1e-5);
        let outcome = audit(&scores, &coins.inside, guesses, delta, self.intervals.confidence);
        let curve_is_refuted = match promised {
            Some(_) => Some(self.refutes_curve(&run, &outcome)?),
            None => None,
        };
        let kept = OneRunAudit { found: outcome, promised_curve_is_refuted: curve_is_refuted };
        run.keep(|audit| audit.one_run = Some(kept))?;
        if output.json {
            output::json(&kept);
        } else {
            self.print(&kept, delta, promised.map(|(upper, _)| upper));
        }
        violation(&kept, promised.map(|(upper, _)| upper)).map_or(Ok(()), Err)
    }

    /// Trains on the data with some of the canaries.
    fn train(&self, plan: &Plan) -> Outcome<Trained> {
        let mut data = read_data(plan, None)?;
        let masking = data.masking.clone();
        let random = Secret::from_system().map_err(|e| {
            Failure::arguments(format!("the operating system provides no random numbers: {e}"))
        })?;
        let planted = CanaryTemplate::of(plan)?.canaries(self.canaries, &random)?;
        let coins = Coins::toss(self.canaries, &random);
        coins.put_in(&planted, &mut data);
        let mut display = Display::new();
        display.beside = Some(Siblings::of(&self.out));
        let start = Start {
            plan: plan.clone(),
            out: &self.out,
            resume: false,
            device: self.device.device()?,
            data: Some(data),
            ranks: Ranks::alone(),
            tape: None,
        };
        let done = train(start, &mut |event| display.show(&event));
        display.end();
        done?;
        Ok(Trained { planted, coins, masking })
    }

    fn print(&self, kept: &OneRunAudit, delta: f64, promised: Option<f64>) {
        let outcome = &kept.found;
        let mut rows = vec![
            (
                "guesses",
                format!(
                    "{} of {} correct, {} canaries",
                    outcome.right, outcome.guesses, outcome.canaries
                ),
            ),
            (
                "ε at least",
                format!(
                    "{:.4} at δ = {delta:e}, with {:.0} % confidence",
                    outcome.epsilon_lower,
                    self.intervals.percent()
                ),
            ),
            (
                "if Gaussian",
                format!(
                    "{:.4}, if the trade-off curve of the training is that of a Gaussian mechanism",
                    outcome.epsilon_lower_if_gaussian
                ),
            ),
        ];
        if let Some(upper) = promised {
            rows.push(("ε promised", format!("{upper:.4}")));
            let refuted = kept.promised_curve_is_refuted == Some(true);
            let held = if refuted { "refuted" } else { "not refuted" };
            rows.push(("its whole curve", held.to_owned()));
        }
        output::rows(&rows);
    }

    /// Whether the guesses are too good for the ledger's privacy curve, which includes the printed
    /// ε.
    fn refutes_curve(&self, run: &AuditedRun, outcome: &OneRunFound) -> Outcome<bool> {
        let ledger = Ledger::read(run.paths.ledger())?;
        let far = epsilon(ledger.spent(), 1e-9, Accountant::Auto)?.epsilon.upper.max(1e-3);
        const POINTS: i32 = 40;
        let epsilons: Vec<f64> =
            (1..=POINTS).map(|i| far * f64::from(i) / f64::from(POINTS)).collect();
        let points = curve(ledger.spent(), &epsilons, Accountant::Auto)?;
        let promises: Vec<(f64, f64)> =
            points.iter().map(|point| (point.epsilon, point.delta.upper)).collect();
        let OneRunFound { canaries, guesses, right, confidence, .. } = *outcome;
        Ok(refuted(&Promises(&promises), canaries, guesses, right, 1.0 - confidence))
    }
}

/// The failure to report if the guesses contradict the promised ε or its privacy curve.
fn violation(kept: &OneRunAudit, promised: Option<f64>) -> Option<Failure> {
    let upper = promised?;
    let shown = kept.found.epsilon_lower;
    if shown > upper {
        return Some(Failure::Violation(format!(
            "the run guarantees ε = {upper:.4}, but the canaries show at least {shown:.4}: the \
             guarantee is violated"
        )));
    }
    (kept.promised_curve_is_refuted == Some(true)).then(|| {
        Failure::Violation(format!(
            "more guesses were right than the ledger's privacy curve allows, of which ε = \
             {upper:.4} is one point: the guarantee is violated"
        ))
    })
}
