//! `undertone audit replay`: how many of the personal data that a scan finds in the training texts
//! does the model repeat?

use super::private_things::{FinderArguments, PeopleArguments};
use super::progress;
use super::run_folder::{AuditedRun, language_model};
use crate::arguments::{ConfidenceArgument, RunArgument, up_to};
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output, share};
use clap::Args;
use undertone::audit::repetition::{Repetition, Target, judge, targets};
use undertone::audit::texts::{Sampling, Writer};
use undertone::scan::{Kind, Scanner, Text};
use undertone_run::write_json;

/// Replay personal data: prompt with what precedes them in a training text, and count what the
/// model repeats
///
/// Looks for what `undertone scan` finds in the training texts, and continues the text before each
/// distinct string greedily. Strings that the pretrained model repeats too do not count. The result
/// is saved in private/replay.json.
#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone audit replay --run runs/mail --kind email,phone,iban"
)]
pub struct Replay {
    #[command(flatten)]
    target: RunArgument,
    /// Comma-separated kinds to look for [default: all]
    #[arg(long = "kind", value_enum, value_delimiter = ',', value_name = "KIND")]
    kinds: Vec<Kind>,
    #[command(flatten)]
    people: PeopleArguments,
    /// Most strings of each kind to try
    #[arg(long, default_value_t = 200, value_parser = up_to(1_000_000))]
    targets: usize,
    /// Maximum length of a prompt, in bytes
    #[arg(long, default_value_t = 400, value_parser = up_to(1_000_000))]
    prompt_bytes: usize,
    /// Batch size, in prompts
    #[arg(long, default_value_t = 64, value_parser = up_to(65_536))]
    batch: usize,
    #[command(flatten)]
    intervals: ConfidenceArgument,
    #[command(flatten)]
    device: DeviceArguments,
}

impl Replay {
    pub fn run(self, output: Output) -> Outcome {
        let run = AuditedRun::open(&self.target.run)?;
        language_model(&run, "replay")?;
        let texts = FinderArguments::default().texts(&run)?.0;
        let scanner = Scanner::new(Box::new(self.people.finder()?));
        let column = run.plan.task().without_label().columns().join(" ");
        let as_texts: Vec<Text> = texts.iter().map(|text| Text { column: &column, text }).collect();
        let mut findings = scanner.scan(&as_texts)?;
        for findings in &mut findings {
            findings.retain(|f| self.kinds.is_empty() || self.kinds.contains(&f.kind));
        }
        let targets = targets(&texts, &findings, self.prompt_bytes, self.targets);
        if targets.is_empty() {
            return Err(Failure::arguments(
                "the training texts have none of these kinds with text before them, so there is \
                 nothing to replay",
            ));
        }
        let trained = self.continued(&run, &targets, true)?;
        let pretrained = self.continued(&run, &targets, false)?;
        let repetitions = judge(&targets, &trained, &pretrained, self.intervals.confidence);
        std::fs::create_dir_all(run.paths.private())
            .map_err(|e| Failure::write(&run.paths.private(), e))?;
        write_json(&run.paths.replay(), &repetitions)?;
        if output.json {
            output::json(&repetitions);
            return Ok(());
        }
        let names = ["kind", "tried", "repeated", "share", "pretrained too"];
        output::table(&names, &repetitions.iter().map(row).collect::<Vec<_>>());
        output::line(format_args!(
            "\nGreedy continuations of at most {} bytes before each string; {:.0} % confidence \
             intervals. For the data owner only; saved in {}.",
            self.prompt_bytes,
            self.intervals.percent(),
            run.paths.replay().display()
        ));
        Ok(())
    }

    /// Greedy continuations of all prompts by the run's model, or by the pretrained one.
    fn continued(
        &self,
        run: &AuditedRun,
        targets: &[Target],
        trained: bool,
    ) -> Outcome<Vec<String>> {
        let model = run.model(trained, &self.device)?;
        let tokenizer = run.tokenizer(&model)?.with_max_tokens(model.network.max_positions)?;
        let writer = Writer { model: &model, tokenizer: &tokenizer };
        let bar = progress(targets.len(), "strings");
        let mut written = Vec::with_capacity(targets.len());
        for some in targets.chunks(self.batch) {
            let prompts: Vec<String> = some.iter().map(|target| target.prompt.clone()).collect();
            // A token has at least a byte, except that of a space before a word.
            let longest = some.iter().map(|target| target.truth.len()).max().unwrap_or(0) + 2;
            let tokens = longest.min(model.network.max_positions / 2).max(1);
            let how = Sampling { top_k: 1, tokens, batch: self.batch, ..Sampling::default() };
            written.extend(writer.write(&prompts, &how, |_| ())?);
            bar.inc(some.len() as u64);
        }
        bar.finish_and_clear();
        Ok(written)
    }
}

fn row(repetition: &Repetition) -> Vec<String> {
    vec![
        repetition.kind.plural().to_owned(),
        repetition.tried.to_string(),
        repetition.repeated.to_string(),
        share(&repetition.share),
        repetition.pretrained.to_string(),
    ]
}
