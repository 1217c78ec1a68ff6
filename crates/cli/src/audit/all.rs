//! `undertone audit all`: every attack that applies to a finished run, compared with the pretrained
//! model and a non-private run.

use super::exposure::{self, ExposureArguments};
use super::extraction::ExtractionArguments;
use super::membership::{at_random, by_losses};
use super::private_things::FinderArguments;
use super::reconstruction::ReconstructionArguments;
use super::run_folder::AuditedRun;
use super::sizes::SizeArguments;
use crate::arguments::{ConfidenceArgument, RunArgument, SeedArgument};
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output, area, share};
use crate::ranks::RankArguments;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use undertone::Method;
use undertone::audit::extraction::Extraction;
use undertone::audit::membership::Membership;
use undertone::audit::secret::Hidden;
use undertone::audit::statistics::Interval;
use undertone::collective::Ranks;
use undertone::data::Dataset;
use undertone::model::TaskHead;
use undertone_report::plot;
use undertone_run::audit::{Figure, Measure, NonMembers, ReconstructionOfKind};

/// Run every attack that applies to a finished run and print one table
///
/// Runs membership inference; extraction and reconstruction of PII for causal language models; and
/// exposure of the planted secrets in `--canaries` for all language models. Compares the model with
/// the pretrained model and, with `--non-private`, with a non-private run. Includes the result of
/// an earlier one-run audit of the run.
#[derive(Args)]
#[command(after_help = "Example:\n  undertone audit all --run runs/private --non-private \
     runs/non-private --canaries canaries.jsonl")]
pub struct All {
    #[command(flatten)]
    target: RunArgument,
    /// Folder of a non-private run on the same data to compare with
    #[arg(long, value_name = "DIR")]
    non_private: Option<PathBuf>,
    /// File of non-members, i.e. examples not used in training [default: the run's held-out
    /// examples (data.hold_out), otherwise its validation file]
    #[arg(long, value_name = "FILE")]
    non_members: Option<PathBuf>,
    /// File of planted secrets (JSON Lines, as for `audit exposure`)
    #[arg(long, value_name = "FILE")]
    canaries: Option<PathBuf>,
    #[command(flatten)]
    how_much: SizeArguments,
    #[command(flatten)]
    intervals: ConfidenceArgument,
    #[command(flatten)]
    random: SeedArgument,
    #[command(flatten)]
    finder: FinderArguments,
    #[command(flatten)]
    device: DeviceArguments,
    #[command(flatten)]
    together: RankArguments,
}

/// Reports the running attack and the number of attacks.
struct Attacks {
    done: usize,
    all: usize,
}

impl Attacks {
    /// Membership inference always; exposure if there are canaries; extraction and reconstruction
    /// for a causal language model of texts.
    fn new(has_texts: bool, has_canaries: bool) -> Self {
        Self { done: 0, all: 1 + usize::from(has_canaries) + 2 * usize::from(has_texts) }
    }

    fn next(&mut self, attack: &str) {
        self.done += 1;
        output::note(format_args!("attack {} of {}: {attack}", self.done, self.all));
    }
}

/// Prefix of the figures for membership inference.
const MEMBERSHIP: &str = "membership, ";

fn is_of_membership(figure: &Figure) -> bool {
    figure.attack.starts_with(MEMBERSHIP)
}

/// Whether the other run holds out everything that this one holds out.
fn holds_out_as_much(run: &AuditedRun, other: &AuditedRun) -> bool {
    let (run, other) = (&run.plan.data, &other.plan.data);
    (&run.train, &run.author, &run.text) == (&other.train, &other.author, &other.text)
        && run.hold_out <= other.hold_out
}

/// The table cells of a figure.
fn row(figure: &Figure, with_non_private: bool) -> Vec<String> {
    let said = |i: &Interval| match figure.measure {
        Measure::Area => area(i),
        Measure::Share => share(i),
        Measure::Bits => format!("{:.1} ({:.1} … {:.1})", i.estimate, i.lower, i.upper),
    };
    let or_none = |i: &Option<Interval>| i.as_ref().map_or("–".to_owned(), said);
    let guessing = figure.guessing.map_or("–".to_owned(), |guess| match figure.measure {
        Measure::Share => format!("{:.1} %", 100.0 * guess),
        _ => format!("{guess:.2}"),
    });
    let mut row = vec![figure.attack.clone(), said(&figure.run)];
    row.extend(with_non_private.then(|| or_none(&figure.non_private)));
    row.extend([or_none(&figure.pretrained), guessing]);
    row
}

impl All {
    pub fn run(self, output: Output) -> Outcome {
        self.together.together(|ranks| self.run_on(ranks, output))
    }

    fn run_on(&self, ranks: &Ranks, output: Output) -> Outcome {
        let run = AuditedRun::open(&self.target.run)?.on(ranks);
        let non_private = self.non_private.as_deref().map(AuditedRun::open).transpose()?;
        let non_private = non_private.map(|other| other.on(ranks));
        if let Some(other) = &non_private
            && other.plan.task_head() != run.plan.task_head()
        {
            return Err(Failure::arguments(
                "--non-private must name a run of the same kind of \
                                           model",
            ));
        }
        if non_private.as_ref().is_some_and(|other| other.plan.is_private()) {
            return Err(Failure::arguments(
                "--non-private names a private run; it must be a run with method = \"none\"",
            ));
        }
        let is_masked = run.plan.task_head() == TaskHead::MaskedLanguageModel;
        let is_causal = run.plan.task_head() == TaskHead::CausalLanguageModel;
        if self.canaries.is_some() && !is_masked && !is_causal {
            return Err(Failure::arguments(
                "--canaries applies to language models, but this run trained a classifier",
            ));
        }
        let mut left_out = Vec::new();
        // Extraction and reconstruction search text columns, which conversations do not have.
        let has_texts = is_causal && !run.plan.task().reads_nested();
        let mut attacks = Attacks::new(has_texts, self.canaries.is_some());
        attacks.next("membership inference");
        let mut figures = self.membership(&run, non_private.as_ref(), &mut left_out)?;
        if is_causal || is_masked {
            match &self.canaries {
                Some(file) => {
                    attacks.next("exposure of planted secrets");
                    figures.push(self.exposure(file, &run, non_private.as_ref())?);
                }
                None => left_out.push("exposure (pass the planted secrets with --canaries)"),
            }
        }
        if is_causal && !has_texts {
            left_out.push("extraction and reconstruction (not available for conversations)");
        }
        if has_texts {
            let non_private = non_private.as_ref();
            figures.extend(self.private_things(&run, non_private, &mut left_out, &mut attacks)?);
        }
        if is_masked {
            left_out.push("secrets of the training texts (see audit exposure --found)");
        }
        if matches!(run.plan.method, Method::Local(_)) {
            left_out.push("perturbed embeddings (see audit inversion and audit attribute)");
        }
        run.keep(|audit| audit.all = figures.clone())?;
        if !ranks.is_first() {
            return Ok(());
        }
        self.show(&run, &figures, non_private.is_some(), &left_out, output)
    }

    fn show(
        &self,
        run: &AuditedRun,
        figures: &[Figure],
        with_non_private: bool,
        left_out: &[&str],
        output: Output,
    ) -> Outcome {
        let audit = run.audit()?;
        let (one_run, attacked) = (audit.one_run, figures.iter().any(is_of_membership));
        let non_members = audit.non_members.filter(|_| attacked);
        let bound = one_run.map(|one_run| one_run.found.epsilon_lower);
        if output.json {
            output::json(&json!({
                "figures": figures,
                "non_members": non_members,
                "one_run": one_run,
                "left_out": left_out,
            }));
        } else {
            let head: &[&str] = match with_non_private {
                true => &["attack", "this run", "non-private", "pretrained model", "guessing"],
                false => &["attack", "this run", "pretrained model", "guessing"],
            };
            output::table(
                head,
                &figures.iter().map(|figure| row(figure, with_non_private)).collect::<Vec<_>>(),
            );
            output::line("");
            match run.promised() {
                Some((epsilon, delta)) => output::line(format_args!(
                    "The run guarantees ε = {} at δ = {delta:e}.",
                    output::up(epsilon)
                )),
                None => output::line("The run has no guarantee."),
            }
            if let Some(from) = non_members {
                output::line(from.sentence());
            }
            if let Some(bound) = bound {
                output::line(format_args!("A one-run audit shows that ε is at least {bound:.4}."));
            }
            if !left_out.is_empty() {
                output::line(format_args!("Not attacked: {}.", left_out.join("; ")));
            }
            output::line(format_args!(
                "{:.0} % confidence intervals in brackets{}. Everything is in {}.",
                self.intervals.percent(),
                if self.how_much.is_quick() { "; --thorough narrows them" } else { "" },
                run.paths.audit().display()
            ));
        }
        match (run.promised(), bound) {
            (Some((promised, _)), Some(bound)) if bound > promised => {
                Err(Failure::Violation(format!(
                    "the run guarantees ε = {promised:.4}, but the canaries show at least \
                     {bound:.4}: the guarantee is violated"
                )))
            }
            _ => Ok(()),
        }
    }

    fn membership(
        &self,
        run: &AuditedRun,
        non_private: Option<&AuditedRun>,
        left_out: &mut Vec<&str>,
    ) -> Outcome<Vec<Figure>> {
        let Some((others, from)) = run.non_members(self.non_members.as_deref())? else {
            left_out.push(
                "membership (pass a file that was not used for training with \
                           --non-members)",
            );
            return Ok(Vec::new());
        };
        if let Some(other) = non_private
            && from == NonMembers::HeldOut
            && !holds_out_as_much(run, other)
        {
            return Err(Failure::arguments(
                "the --non-private run trained on units that this run held out; train it with the \
                 same data.train, data.author and data.hold_out, or pass a file that neither run \
                 used with --non-members",
            ));
        }
        let examples = self.how_much.sizes().examples;
        let sample = |data: Dataset| at_random(data.examples, examples, self.random.seed);
        let inside = run.members(None)?;
        let masking = inside.masking.clone();
        let mut all = sample(inside);
        let members = all.len();
        all.extend(sample(others));
        if members == 0 || all.len() == members {
            return Err(Failure::arguments("both files need at least one example"));
        }
        let how = (self.intervals.confidence, self.random.seed);
        let (attacks, _) =
            by_losses(run, &all, members, masking.as_ref(), how, true, &self.device)?;
        run.keep(|audit| {
            audit.membership = attacks.clone();
            audit.non_members = Some(from);
            audit.trials.membership.clear();
        })?;
        let curves: Vec<(&str, &[(f64, f64)])> =
            attacks.iter().map(|a| (a.attack.as_str(), a.roc.as_slice())).collect();
        if run.ranks().is_first() {
            plot::roc(&run.paths.membership_figure(), "Membership inference", &curves)?;
        }
        let beside = non_private
            .map(|other| by_losses(other, &all, members, masking.as_ref(), how, true, &self.device))
            .transpose()?
            .map(|b| b.0);
        let figure = |name: &str,
                      measure,
                      pick: &dyn Fn(&[Membership]) -> Interval,
                      pretrained,
                      guessing| {
            Figure {
                attack: format!("{MEMBERSHIP}{name}"),
                measure,
                run: pick(&attacks),
                non_private: beside.as_ref().map(|attacks| pick(attacks)),
                pretrained,
                guessing: Some(guessing),
            }
        };
        Ok(vec![
            figure("AUC by loss", Measure::Area, &|f| f[0].auc, Some(attacks[2].auc), 0.5),
            figure(
                "AUC by loss against the pretrained model",
                Measure::Area,
                &|f| f[1].auc,
                None,
                0.5,
            ),
            figure("TPR at 1 % FPR", Measure::Share, &|f| f[1].rate_at_1_percent, None, 0.01),
        ])
    }

    fn exposure(
        &self,
        file: &std::path::Path,
        run: &AuditedRun,
        non_private: Option<&AuditedRun>,
    ) -> Outcome<Figure> {
        let canaries = exposure::read(file)?;
        let asked = ExposureArguments {
            candidates: self.how_much.sizes().candidates,
            hidden: Hidden::default(),
            random: self.random,
            intervals: self.intervals,
        };
        let of = |run: &AuditedRun, trained: bool| -> Outcome<Interval> {
            Ok(asked.mean(&asked.planted(run, trained, &canaries, &self.device)?))
        };
        Ok(Figure {
            attack: format!("exposure of {} planted secrets, bits", canaries.len()),
            measure: Measure::Bits,
            run: of(run, true)?,
            non_private: non_private.map(|other| of(other, true)).transpose()?,
            pretrained: Some(of(run, false)?),
            // The mean of −log₂ of a uniform number.
            guessing: Some(std::f64::consts::LOG2_E),
        })
    }

    fn private_things(
        &self,
        run: &AuditedRun,
        non_private: Option<&AuditedRun>,
        left_out: &mut Vec<&str>,
        attacks: &mut Attacks,
    ) -> Outcome<Vec<Figure>> {
        attacks.next("extraction of PII");
        let sizes = self.how_much.sizes();
        let (training, finder) = self.finder.read(run)?;
        let kinds: Vec<_> = (self.finder.kinds().into_iter())
            .filter(|&kind| training.spans.iter().flatten().any(|span| span.kind == kind))
            .collect();
        if kinds.is_empty() {
            left_out.push(
                "extraction and reconstruction (no PII was found in the training texts; see \
                 --names and --tagger)",
            );
            return Ok(Vec::new());
        }
        let (intervals, random) = (self.intervals, self.random);
        let writing = ExtractionArguments {
            texts: sizes.texts,
            tokens: sizes.tokens,
            top_k: 40,
            batch: 64,
            intervals,
            random,
        };
        let pretrained = writing.generated(run, false, &self.device)?;
        let extracted =
            writing.attack(run, &training, &pretrained, &finder, &kinds, &self.device)?;
        run.keep(|audit| {
            audit.extraction = extracted.clone();
            audit.trials.extraction.clear();
        })?;
        let beside = non_private
            .map(|other| {
                writing.attack(other, &training, &pretrained, &finder, &kinds, &self.device)
            })
            .transpose()?;
        let mut figures = Vec::new();
        for (i, of_kind) in extracted.iter().enumerate() {
            let kind = of_kind.kind.plural();
            let of = |name: &str, pick: &dyn Fn(&Extraction) -> Interval| Figure {
                attack: format!("extraction of {kind}, {name}"),
                measure: Measure::Share,
                run: pick(of_kind),
                non_private: beside.as_ref().map(|beside| pick(&beside[i])),
                pretrained: None,
                guessing: None,
            };
            figures.push(of("recall", &|of_kind| of_kind.recall));
            figures.push(of("precision", &|of_kind| of_kind.precision));
        }
        let masking = ReconstructionArguments {
            targets: sizes.targets,
            samples: sizes.samples,
            top: 5,
            context: 400,
            intervals,
            random,
        };
        attacks.next("reconstruction of PII");
        for &kind in &kinds {
            let targets = masking.targets(&training, kind)?;
            let ranks = |run: &AuditedRun, trained: bool| {
                masking.attack(run, trained, &targets, &finder, None, &self.device)
            };
            let pretrained = ranks(run, false)?;
            let of = |run: &AuditedRun| -> Outcome<_> {
                Ok(masking.judge_both(kind, &ranks(run, true)?, &pretrained))
            };
            let not_known = |of_kind: &ReconstructionOfKind| {
                of_kind.not_known_before.unwrap_or(of_kind.trained).top_1
            };
            let reconstructed = of(run)?;
            figures.push(Figure {
                attack: format!("reconstruction of {}, top-1 accuracy", kind.plural()),
                measure: Measure::Share,
                run: not_known(&reconstructed),
                non_private: non_private.map(of).transpose()?.as_ref().map(not_known),
                pretrained: Some(reconstructed.pretrained.top_1),
                guessing: None,
            });
        }
        Ok(figures)
    }
}
