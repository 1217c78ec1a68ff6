//! `undertone audit reconstruction`: PII is masked in a text; can the model fill it in?

use super::membership::at_random;
use super::private_things::{FinderArguments, PrivateTexts};
use super::progress;
use super::run_folder::{AuditedRun, language_model};
use super::trials::{json, kept, mean_of};
use crate::arguments::{ConfidenceArgument, RunArgument, SeedArgument, TrialsArgument, up_to};
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output, share};
use crate::ranks::RankArguments;
use clap::Args;
use std::path::{Path, PathBuf};
use undertone::audit::reconstruction::{
    Candidates, Masked, Ranked, ReconstructionOfKind, attack, judge_both,
};
use undertone::audit::spans::{EntityKind, Finder};
use undertone::audit::texts::{Sampling, Writer};
use undertone::collective::Ranks;
use undertone_run::audit::Trial;

/// Reconstruct PII: mask it in training texts and let the model fill it in
///
/// Candidates are generated from the text before the mask, or read from `--candidates`. The
/// attacker chooses the candidate that makes the whole text most likely. The headline figure
/// excludes PII that the pretrained model also reconstructs.
#[derive(Args)]
#[command(after_help = "Example:\n  undertone audit reconstruction --run runs/mail --targets 200 \
     --samples 64 --kind person")]
pub struct Reconstruction {
    #[command(flatten)]
    target: RunArgument,
    #[command(flatten)]
    asked: ReconstructionArguments,
    #[command(flatten)]
    trials: TrialsArgument,
    /// File of candidates, one per line, to use instead of generated ones
    #[arg(long, value_name = "FILE")]
    candidates: Option<PathBuf>,
    #[command(flatten)]
    finder: FinderArguments,
    #[command(flatten)]
    device: DeviceArguments,
    #[command(flatten)]
    together: RankArguments,
}

/// Size of the attack.
#[derive(Args, Clone, Copy)]
pub struct ReconstructionArguments {
    /// Number of texts to mask for each kind of PII
    #[arg(long, default_value_t = 200, value_parser = up_to(1_000_000))]
    pub targets: usize,
    /// Number of continuations per text to take candidates from
    #[arg(long, default_value_t = 64, value_parser = up_to(100_000))]
    pub samples: usize,
    /// Value of k for top-k accuracy
    #[arg(long, default_value_t = 5, value_parser = up_to(1_000_000))]
    pub top: usize,
    /// Bytes of context to use around the mask
    #[arg(long, default_value_t = 400, value_parser = up_to(1_000_000))]
    pub context: usize,
    #[command(flatten)]
    pub intervals: ConfidenceArgument,
    #[command(flatten)]
    pub random: SeedArgument,
}

/// Tokens per continuation: slightly more than a name.
const CONTINUATION: usize = 16;

impl Reconstruction {
    pub fn run(self, output: Output) -> Outcome {
        self.together.together(|ranks| self.run_on(ranks, output))
    }

    fn run_on(&self, ranks: &Ranks, output: Output) -> Outcome {
        let run = AuditedRun::open(&self.target.run)?.on(ranks);
        language_model(&run, "reconstruction")?;
        let list = self.candidates.as_deref().map(read_candidates).transpose()?;
        let (training, finder) = self.finder.read(&run)?;
        let trials = self.trials.each(self.asked.random, |random| {
            let asked = ReconstructionArguments { random, ..self.asked };
            let mut results = Vec::new();
            for kind in self.finder.kinds() {
                let targets = asked.targets(&training, kind)?;
                if targets.is_empty() {
                    continue;
                }
                let of = |trained: bool| {
                    asked.attack(&run, trained, &targets, &finder, list.as_deref(), &self.device)
                };
                results.push(asked.judge_both(kind, &of(true)?, &of(false)?));
            }
            Ok(results)
        })?;
        let results = trials[0].found.clone();
        if results.is_empty() {
            return Err(Failure::arguments(
                "no PII was found in the training texts; see --names and --tagger",
            ));
        }
        run.keep(|audit| {
            audit.reconstruction = results.clone();
            audit.trials.reconstruction = kept(&trials);
        })?;
        match output.json {
            true => json(&trials),
            false => self.print(&results, &trials),
        }
        Ok(())
    }

    fn print(&self, results: &[ReconstructionOfKind], trials: &[Trial<ReconstructionOfKind>]) {
        let top = format!("top-{}", self.asked.top);
        let rows: Vec<Vec<String>> = results
            .iter()
            .flat_map(|both| {
                let others = both.not_known_before.as_ref();
                [
                    Some(("trained", &both.trained)),
                    others.map(|others| ("trained, not known before", others)),
                    Some(("pretrained", &both.pretrained)),
                ]
                .map(|of| of.map(|of| (both.kind, of)))
            })
            .flatten()
            .map(|(kind, (name, figures))| {
                vec![
                    kind.plural().to_owned(),
                    name.to_owned(),
                    figures.targets.to_string(),
                    share(&figures.top_1),
                    share(&figures.top_k),
                    share(&figures.among_candidates),
                    format!("{:.3}", figures.mean_reciprocal_rank),
                    format!("{:.1}", figures.candidates),
                ]
            })
            .collect();
        output::table(
            &[
                "kind",
                "model",
                "masked",
                "top-1",
                &top,
                "among candidates",
                "mean reciprocal rank",
                "candidates",
            ],
            &rows,
        );
        for (i, of) in results.iter().enumerate().filter(|_| trials.len() > 1) {
            let accuracy = |result: &ReconstructionOfKind| {
                result.not_known_before.as_ref().map_or(f64::NAN, |others| others.top_1.estimate)
            };
            output::line(format_args!(
                "{}: mean top-1 accuracy, not known before, {} over {} trials; the table shows the \
                 first.",
                of.kind.plural(),
                mean_of(trials, i, &accuracy),
                trials.len()
            ));
        }
        output::line(format_args!(
            "\n{:.0} % confidence intervals. Not known before: excluding texts that the pretrained \
             model fills in correctly.",
            self.asked.intervals.percent()
        ));
    }
}

/// The candidates of a file, one per line.
fn read_candidates(file: &Path) -> Outcome<Vec<String>> {
    let text = undertone_run::read_settings(file)
        .map_err(|e| Failure::arguments(format!("{} cannot be read: {e}", file.display())))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let candidates: Vec<String> = lines.map(str::to_owned).collect();
    match candidates.is_empty() {
        true => Err(Failure::arguments("the --candidates file is empty")),
        false => Ok(candidates),
    }
}

impl ReconstructionArguments {
    /// Masked texts, sampled from all that contain a span of this kind with some text before it.
    pub fn targets(&self, training: &PrivateTexts, kind: EntityKind) -> Outcome<Vec<Masked>> {
        if self.targets == 0 || self.samples == 0 || self.top == 0 {
            return Err(Failure::arguments("--targets, --samples and --top must be at least 1"));
        }
        let mut all: Vec<Masked> = Vec::new();
        for (text, spans) in training.texts.iter().zip(&training.spans) {
            for span in spans.iter().filter(|span| span.kind == kind && span.start > 0) {
                let from = boundary(text, span.start.saturating_sub(self.context));
                let to = boundary(text, (span.end + self.context).min(text.len()));
                let mut span = span.clone();
                (span.start, span.end) = (span.start - from, span.end - from);
                all.push(Masked { text: text[from..to].to_owned(), span });
            }
        }
        Ok(at_random(all, self.targets, self.random.seed))
    }

    /// Results from the ranks of both models.
    pub fn judge_both(
        &self,
        kind: EntityKind,
        trained: &[Ranked],
        pretrained: &[Ranked],
    ) -> ReconstructionOfKind {
        judge_both(kind, trained, pretrained, self.top, self.intervals.confidence)
    }

    /// The attack on the run's model, or on the pretrained model.
    pub fn attack(
        &self,
        run: &AuditedRun,
        trained: bool,
        targets: &[Masked],
        finder: &dyn Finder,
        list: Option<&[String]>,
        device: &DeviceArguments,
    ) -> Outcome<Vec<Ranked>> {
        let model = run.model(trained, device)?;
        let tokenizer = run.tokenizer(&model)?.with_max_tokens(model.network.max_positions)?;
        let how = Sampling { tokens: CONTINUATION, seed: self.random.seed, ..Sampling::default() };
        let candidates = match list {
            Some(list) => Candidates::Listed(list),
            None => Candidates::Written { samples: self.samples, how },
        };
        let bar = progress(targets.len(), "masked texts");
        let writer = Writer { model: &model, tokenizer: &tokenizer };
        let ranked = run.ranks().divided(targets.len(), |i| -> Outcome<Ranked> {
            let ranked = attack(writer, (i, &targets[i]), finder, candidates)?;
            bar.inc(run.ranks().size() as u64);
            Ok(ranked)
        })?;
        bar.finish_and_clear();
        Ok(ranked)
    }
}

/// The next character boundary.
fn boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}
