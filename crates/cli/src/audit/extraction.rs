//! `undertone audit extraction`: which PII of the training texts does the model generate?

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
use undertone::audit::extraction::{Extraction as Found, Things, judge, things};
use undertone::audit::spans::{EntityKind, Finder, plain};
use undertone::audit::texts::{Sampling, Writer};
use undertone::collective::Ranks;

/// Extract PII: generate texts and search them for PII of the training texts
///
/// Searches for names, e-mail addresses, phone numbers and postal addresses in texts sampled from
/// an empty prompt. PII that the pretrained model also generates does not count.
#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone audit extraction --run runs/mail --texts 2000 --kind \
     person,email"
)]
pub struct Extraction {
    #[command(flatten)]
    target: RunArgument,
    #[command(flatten)]
    asked: ExtractionArguments,
    #[command(flatten)]
    trials: TrialsArgument,
    #[command(flatten)]
    finder: FinderArguments,
    #[command(flatten)]
    device: DeviceArguments,
    #[command(flatten)]
    together: RankArguments,
}

/// Amount of text to generate.
#[derive(Args, Clone, Copy)]
pub struct ExtractionArguments {
    /// Number of texts to generate with each model
    #[arg(long, default_value_t = 1000, value_parser = up_to(1_000_000))]
    pub texts: usize,
    /// Maximum number of tokens per text
    #[arg(long = "max-new-tokens", alias = "tokens", default_value_t = 256, value_parser = up_to(1_000_000))]
    pub tokens: usize,
    /// Sample from the k most likely tokens only; 0 for all tokens
    #[arg(long, default_value_t = 40)]
    pub top_k: usize,
    /// Batch size, in texts
    #[arg(long, default_value_t = 64, value_parser = up_to(65_536))]
    pub batch: usize,
    #[command(flatten)]
    pub intervals: ConfidenceArgument,
    #[command(flatten)]
    pub random: SeedArgument,
}

impl Extraction {
    pub fn run(self, output: Output) -> Outcome {
        self.together.together(|ranks| self.run_on(ranks, output))
    }

    fn run_on(&self, ranks: &Ranks, output: Output) -> Outcome {
        let run = AuditedRun::open(&self.target.run)?.on(ranks);
        language_model(&run, "extraction")?;
        let (training, finder) = self.finder.read(&run)?;
        let kinds = self.finder.kinds();
        let trials = self.trials.each(self.asked.random, |random| {
            let asked = ExtractionArguments { random, ..self.asked };
            let pretrained = asked.generated(&run, false, &self.device)?;
            asked.attack(&run, &training, &pretrained, &finder, &kinds, &self.device)
        })?;
        let results = trials[0].found.clone();
        run.keep(|audit| {
            audit.extraction = results.clone();
            audit.trials.extraction = kept(&trials);
        })?;
        if output.json {
            json(&trials);
            return Ok(());
        }
        output::table(
            &[
                "kind",
                "in training",
                "generated",
                "correct",
                "precision",
                "recall",
                "pretrained too",
            ],
            &results.iter().map(row).collect::<Vec<_>>(),
        );
        for (i, of) in results.iter().enumerate().filter(|_| trials.len() > 1) {
            let mean = |figure: &dyn Fn(&Found) -> f64| mean_of(&trials, i, figure);
            output::line(format_args!(
                "{}: mean precision {}, mean recall {} over {} trials; the table shows the first.",
                of.kind.plural(),
                mean(&|result| result.precision.estimate),
                mean(&|result| result.recall.estimate),
                trials.len()
            ));
        }
        output::line(format_args!(
            "\n{} texts of at most {} tokens from each model; {:.0} % confidence intervals. All \
             columns except the last leave out what the pretrained model also generates.",
            self.asked.texts,
            self.asked.tokens,
            self.asked.intervals.percent()
        ));
        Ok(())
    }
}

impl ExtractionArguments {
    fn check(&self) -> Outcome {
        let sizes = [self.texts, self.tokens, self.batch];
        if !sizes.iter().all(|size| (1..=10_000_000).contains(size)) {
            return Err(Failure::arguments(
                "--texts, --max-new-tokens and --batch must be from 1 to 10000000",
            ));
        }
        Ok(())
    }

    /// The texts that the run's model or the pretrained model generates from an empty prompt.
    pub fn generated(
        &self,
        run: &AuditedRun,
        trained: bool,
        device: &DeviceArguments,
    ) -> Outcome<Vec<String>> {
        self.check()?;
        let model = run.model(trained, device)?;
        let tokenizer = run.tokenizer(&model)?;
        let most = model.network.max_positions;
        let tokenizer = tokenizer.with_max_tokens(most)?;
        let how = Sampling {
            top_k: self.top_k,
            tokens: self.tokens.min(most - 1),
            batch: self.batch,
            seed: self.random.seed,
            first: 0,
        };
        let bar = progress(self.texts, "texts");
        let writer = Writer { model: &model, tokenizer: &tokenizer };
        // Each rank generates whole batches, the same ones as in a single process.
        let batches = self.texts.div_ceil(self.batch);
        let texts = run.ranks().divided(batches, |batch| -> Outcome<Vec<String>> {
            let first = batch * self.batch;
            let prompts = vec![String::new(); self.batch.min(self.texts - first)];
            let written = writer.write(&prompts, &Sampling { first, ..how }, |_| ())?;
            bar.inc((prompts.len() * run.ranks().size()) as u64);
            Ok(written)
        })?;
        bar.finish_and_clear();
        Ok(texts.concat())
    }

    /// Results for each kind of PII that occurs in the training texts.
    pub fn attack(
        &self,
        run: &AuditedRun,
        training: &PrivateTexts,
        pretrained: &[String],
        finder: &dyn Finder,
        kinds: &[EntityKind],
        device: &DeviceArguments,
    ) -> Outcome<Vec<Found>> {
        let generated = self.generated(run, true, device)?;
        self.judge(training, &generated, pretrained, finder, kinds)
    }

    /// The same for texts that have already been generated.
    pub fn judge(
        &self,
        training: &PrivateTexts,
        generated: &[String],
        pretrained: &[String],
        finder: &dyn Finder,
        kinds: &[EntityKind],
    ) -> Outcome<Vec<Found>> {
        let mut results = Vec::new();
        for &kind in kinds {
            let inside: Vec<Things> = training
                .texts
                .iter()
                .zip(&training.spans)
                .map(|(text, spans)| {
                    let mine = spans.iter().filter(|span| span.kind == kind);
                    mine.map(|span| plain(&text[span.range()], kind)).collect()
                })
                .collect();
            let (generated, before) =
                (things(finder, generated, kind)?, things(finder, pretrained, kind)?);
            results.push(judge(kind, &inside, &generated, &before, self.intervals.confidence));
        }
        Ok(results)
    }
}

fn row(result: &Found) -> Vec<String> {
    vec![
        result.kind.plural().to_owned(),
        result.in_training.to_string(),
        result.written.to_string(),
        result.right.to_string(),
        share(&result.precision),
        share(&result.recall),
        result.known_before.to_string(),
    ]
}
