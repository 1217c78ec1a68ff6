//! `undertone eval`: metrics of a model on a file.

use super::arguments::{DataArguments, ModelArguments};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use undertone::data::{Masking, stream};
use undertone::evaluate::{Meter, Metrics, predict};
use undertone::model::TaskHead;

/// Evaluate a model on a file: accuracy, F1 and loss, or perplexity
///
/// The perplexity of a masked language model is that of masked tokens; the masks are the same in
/// every evaluation of a file.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone eval --model runs/first/model --data dev.tsv --text \
     sentence\n  undertone eval --model models/gpt2 --data devset.csv --task completion \
     --prompt-column mr --completion-column ref"
)]
pub struct Eval {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    data: DataArguments,
}

impl Eval {
    pub fn run(self, output: Output) -> Outcome {
        let loaded = self.model.load(self.data.task_head())?;
        let task_head = loaded.model.network.head.task_head;
        let task = self.data.resolve(task_head, true)?;
        let tokeniser = self.data.tokeniser(&loaded)?;
        let names = loaded.model.label_set()?;
        let given = (task_head == TaskHead::SequenceClassification).then_some(&names);
        let limits = self.data.limits()?;
        let mut meter = Meter::new(task_head, loaded.model.network.head.out.outputs);
        let masking = Masking::of(&task, &tokeniser)?;
        let mut read = 0;
        for chunk in stream(&self.data.data, &task, &tokeniser, given, &self.data.options())? {
            let mut examples = chunk?;
            if let Some(masking) = &masking {
                examples = masking.for_evaluation(&examples, read);
            }
            read += examples.len() as u64;
            let found = predict(&loaded.model, &examples, limits, false)?;
            examples
                .iter()
                .zip(&found)
                .for_each(|(example, prediction)| meter.add(example, prediction));
        }
        let metrics = meter.metrics();
        if output.json {
            output::json(&metrics);
            return Ok(());
        }
        match metrics {
            Metrics::Classification(found) if found.examples == 0 => {
                Err(Failure::arguments("no row has a label"))
            }
            Metrics::Classification(found) => {
                output::rows(&[
                    ("examples", found.examples.to_string()),
                    ("accuracy", format!("{:.2} %", 100.0 * found.accuracy)),
                    ("F1", format!("{:.4}", found.f1)),
                    ("loss", format!("{:.4}", found.loss)),
                ]);
                Ok(())
            }
            Metrics::Language(found) => {
                output::rows(&[
                    ("examples", found.examples.to_string()),
                    ("tokens", found.tokens.to_string()),
                    ("loss", format!("{:.4}", found.loss)),
                    ("perplexity", format!("{:.3}", found.perplexity)),
                ]);
                Ok(())
            }
        }
    }
}
