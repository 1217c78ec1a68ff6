//! `undertone eval`: metrics of a model on a file.

use super::arguments::{DataArguments, ModelArguments};
use super::continuations::{ContinuationArguments, Continuations};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use crate::ranks::RankArguments;
use clap::Args;
use serde::Serialize;
use undertone::collective::Ranks;
use undertone::data::{Masking, stream};
use undertone::evaluate::{
    ClassificationMetrics, Meter, Metrics, OfClass, Ranking, by_class, predict_on_ranks,
};
use undertone::model::TaskHead;

/// Evaluate a model on a file: accuracy, F1, AUC and loss, with precision and recall of each class,
/// or perplexity
///
/// The perplexity of a masked language model is that of masked tokens; the masks are the same in
/// every evaluation of a file. No ledger covers what is computed here: metrics of private rows are
/// not private.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone eval --model runs/first/model --data dev.tsv --text \
     sentence\n  undertone eval --model models/gpt2 --data devset.csv --task completion \
     --prompt-column mr --completion-column ref --generate 200"
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

/// Everything that was measured, as `--json` prints it.
#[derive(Serialize)]
struct Measured {
    #[serde(flatten)]
    metrics: Metrics,
    /// ROC AUC of a classifier: of class 1 of two, else the mean over classes against all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    auc: Option<f64>,
    /// Metrics of each class of a classifier.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    by_class: Vec<OfClass>,
    /// BLEU and ROUGE-L, if texts were generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    generated: Option<Continuations>,
}

impl Eval {
    pub fn run(self, output: Output) -> Outcome {
        self.together.together(|ranks| self.run_on(ranks, output))
    }

    fn run_on(&self, ranks: &Ranks, output: Output) -> Outcome {
        self.continuations.check(self.data.task)?;
        let loaded = self.model.load(self.data.task_head())?;
        let task_head = loaded.model.network.head.task_head;
        let task = self.data.resolve(task_head, true)?;
        let tokeniser = self.data.tokeniser(&loaded)?;
        let names = loaded.labels()?;
        let given = (task_head == TaskHead::SequenceClassification).then_some(&names);
        let limits = self.data.limits()?;
        let mut meter = Meter::new(task_head, loaded.model.network.head.out.outputs);
        let mut ranking = Ranking::default();
        let masking = Masking::of(&task, &tokeniser)?;
        let mut read = 0;
        for chunk in stream(&self.data.data, &task, &tokeniser, given, &self.data.options())? {
            let mut examples = chunk?;
            if let Some(masking) = &masking {
                examples = masking.for_evaluation(&examples, read);
            }
            read += examples.len() as u64;
            let found = predict_on_ranks(ranks, &loaded.model, &examples, limits, false)?;
            for (example, prediction) in examples.iter().zip(&found) {
                meter.add(example, prediction);
                ranking.add(example, prediction);
            }
        }
        let metrics = meter.metrics();
        let by_class = match &metrics {
            Metrics::Classification(found) => by_class(&found.confusion, names.names()),
            Metrics::Language(_) => Vec::new(),
        };
        let generated =
            self.continuations.measure(ranks, &loaded, &tokeniser, &task, &self.data)?;
        let measured = Measured { metrics, auc: ranking.auc(), by_class, generated };
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
    match &measured.metrics {
        Metrics::Classification(found) if found.examples == 0 => {
            return Err(Failure::arguments("no row has a label"));
        }
        Metrics::Classification(found) => tell_classes(found, measured),
        Metrics::Language(found) => output::rows(&[
            ("examples", found.examples.to_string()),
            ("tokens", found.tokens.to_string()),
            ("loss", format!("{:.4}", found.loss)),
            ("perplexity", format!("{:.3}", found.perplexity)),
        ]),
    }
    if let Some(generated) = &measured.generated {
        output::rows(&[
            ("generated", format!("{} texts, greedy", generated.texts)),
            ("BLEU", format!("{:.2}", generated.bleu)),
            ("ROUGE-L", format!("{:.4}", generated.rouge_l)),
        ]);
    }
    Ok(())
}

/// The most classes whose confusion matrix fits a screen.
const MOST_SHOWN: usize = 10;

fn tell_classes(found: &ClassificationMetrics, measured: &Measured) {
    let mut rows = vec![
        ("examples", found.examples.to_string()),
        ("accuracy", format!("{:.2} %", 100.0 * found.accuracy)),
        ("F1", format!("{:.4}", found.f1)),
    ];
    rows.extend(measured.auc.map(|auc| ("AUC", format!("{auc:.4}"))));
    rows.push(("loss", format!("{:.4}", found.loss)));
    output::rows(&rows);
    output::line("");
    let classes = &measured.by_class;
    let of_class = |class: &OfClass| {
        let mut row = vec![class.label.clone(), class.examples.to_string()];
        row.extend([class.precision, class.recall, class.f1].map(|x| format!("{x:.4}")));
        row
    };
    let body: Vec<Vec<String>> = classes.iter().map(of_class).collect();
    output::table(&["label", "examples", "precision", "recall", "F1"], &body);
    if classes.len() > MOST_SHOWN {
        output::line("\n  --json has the confusion matrix");
        return;
    }
    output::line("");
    let head: Vec<&str> = std::iter::once("label \\ prediction")
        .chain(classes.iter().map(|class| class.label.as_str()))
        .collect();
    let counts = classes.iter().zip(&found.confusion).map(|(class, counts)| {
        std::iter::once(class.label.clone()).chain(counts.iter().map(u64::to_string)).collect()
    });
    output::table(&head, &counts.collect::<Vec<_>>());
}
