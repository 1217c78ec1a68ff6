//! `undertone eval`: metrics of a model on a file.

use super::arguments::ModelArguments;
use super::continuations::{ContinuationArguments, Continuations};
use super::data::DataArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use crate::ranks::RankArguments;
use clap::Args;
use serde::Serialize;
use undertone::collective::Ranks;
use undertone::evaluate::{
    ClassificationMetrics, FileMetrics, FileToEvaluate, Metrics, OfClass, evaluate_file,
};

/// Evaluate a model on a file: accuracy, F1, AUC and loss, or perplexity
///
/// A model that Undertone has trained finds the columns of its training by itself. For classifiers,
/// also prints precision and recall of each class. For masked language models,
/// perplexity is measured on masked tokens; each evaluation of a file uses the same masks. The
/// metrics are not recorded in a ledger: metrics of private rows are not private.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone eval --run runs/first --data dev.tsv\n  undertone eval \
     --model models/gpt2 --data devset.csv --task completion --prompt mr --completion ref \
     --generate 200 --beams 5"
)]
pub struct Eval {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    data: DataArguments,
    #[command(flatten)]
    continuations: ContinuationArguments,
    #[command(flatten)]
    together: RankArguments,
}

/// All metrics, as printed by `--json`.
#[derive(Serialize)]
struct Measured {
    #[serde(flatten)]
    metrics: FileMetrics,
    /// BLEU, NIST, ROUGE-L and CIDEr, if texts were generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    generated: Option<Continuations>,
}

impl Eval {
    pub fn run(self, output: Output) -> Outcome {
        self.together.together(|ranks| self.run_on(ranks, output))
    }

    fn run_on(&self, ranks: &Ranks, output: Output) -> Outcome {
        let loaded = self.model.load(self.data.task_head())?;
        self.continuations.check(self.data.task(&loaded))?;
        let task = self.data.resolve(&loaded, true)?;
        let tokenizer = self.data.tokenizer(&loaded)?;
        let names = loaded.labels()?;
        let options = self.data.options();
        let file = FileToEvaluate {
            path: &self.data.data,
            task: &task,
            tokenizer: &tokenizer,
            labels: &names,
            options: &options,
        };
        let metrics = evaluate_file(ranks, &loaded.model, &file, self.data.limits()?)?;
        let generated =
            self.continuations.measure(ranks, &loaded, &tokenizer, &task, &self.data)?;
        let measured = Measured { metrics, generated };
        match output.json {
            true => {
                output::json(&measured);
                Ok(())
            }
            false => tell(&measured),
        }
    }
}

fn tell(measured: &Measured) -> Outcome {
    match &measured.metrics.metrics {
        Metrics::Classification(scores) if scores.examples == 0 => {
            return Err(Failure::arguments("no row has a label"));
        }
        Metrics::Classification(scores) => tell_classes(scores, measured),
        Metrics::Language(scores) => output::rows(&[
            ("examples", scores.examples.to_string()),
            ("tokens", scores.tokens.to_string()),
            ("loss", format!("{:.4}", scores.loss)),
            ("perplexity", format!("{:.3}", scores.perplexity)),
        ]),
    }
    if let Some(generated) = &measured.generated {
        output::rows(&[
            ("generated", generated.to_string()),
            ("BLEU", format!("{:.2}", generated.bleu)),
            ("BLEU, lowercase", format!("{:.2}", generated.bleu_lowercase)),
            ("NIST", format!("{:.4}", generated.nist)),
            ("ROUGE-L", format!("{:.4}", generated.rouge_l)),
            ("CIDEr", format!("{:.4}", generated.cider)),
        ]);
    }
    Ok(())
}

/// Maximum number of classes for which the confusion matrix is printed.
const MOST_SHOWN: usize = 10;

fn tell_classes(scores: &ClassificationMetrics, measured: &Measured) {
    let mut rows = vec![
        ("examples", scores.examples.to_string()),
        ("accuracy", format!("{:.2} %", 100.0 * scores.accuracy)),
        ("F1", format!("{:.4}", scores.f1)),
    ];
    rows.extend(measured.metrics.auc.map(|auc| ("AUC", format!("{auc:.4}"))));
    rows.push(("loss", format!("{:.4}", scores.loss)));
    output::rows(&rows);
    output::line("");
    let classes = &measured.metrics.by_class;
    let of_class = |class: &OfClass| {
        let mut row = vec![class.label.clone(), class.examples.to_string()];
        row.extend([class.precision, class.recall, class.f1].map(|x| format!("{x:.4}")));
        row
    };
    let body: Vec<Vec<String>> = classes.iter().map(of_class).collect();
    output::table(&["label", "examples", "precision", "recall", "F1"], &body);
    if classes.len() > MOST_SHOWN {
        output::line("\n  --json prints the confusion matrix");
        return;
    }
    output::line("");
    let head: Vec<&str> = std::iter::once("label \\ prediction")
        .chain(classes.iter().map(|class| class.label.as_str()))
        .collect();
    let counts = classes.iter().zip(&scores.confusion).map(|(class, counts)| {
        std::iter::once(class.label.clone()).chain(counts.iter().map(u64::to_string)).collect()
    });
    output::table(&head, &counts.collect::<Vec<_>>());
}
