//! An in-memory dataset.

use super::error::{Error, Result};
use super::example::Example;
use super::format::format_of;
use super::labels::Labels;
use super::mask::Masking;
use super::members::Members;
use super::options::Options;
use super::pack::pack;
use super::progress;
use super::stream::stream;
use super::tally::Tally;
use super::task::Task;
use super::tokenize::Tokenizer;
use std::borrow::Cow;
use std::path::Path;

/// The tokenized examples of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// In file order.
    pub examples: Vec<Example>,
    /// Class labels, for classification with a label column.
    pub labels: Option<Labels>,
    /// Number of privacy units: rows, or authors.
    pub units: usize,
    /// Maximum number of examples per unit according to the options, not to the contents of the
    /// file.
    pub most_per_unit: usize,
    /// How tokens are masked in masked language modeling; until then, examples have no target.
    pub masking: Option<Masking>,
    /// Number of rows that were skipped because they cannot be read.
    pub skipped: u64,
    /// Counts of other rows that warrant a warning.
    pub tally: Tally,
}

impl Dataset {
    /// Reads and tokenizes a file. For classification without given `labels`, uses all values that
    /// occur in the file, which training must not do: see [`Labels::of_attribute`].
    pub fn load(
        path: &Path,
        task: &Task,
        tokenizer: &Tokenizer,
        labels: Option<Labels>,
        options: &Options,
    ) -> Result<Dataset> {
        let labels = match (task.label(), labels) {
            (None, _) => None,
            (Some(_), Some(labels)) => Some(labels),
            (Some(column), None) => {
                let format = format_of(path, options.format)?;
                Some(Labels::of_attribute(path, format, column, options.on_bad_row)?)
            }
        };
        let mut chunks = stream(path, task, tokenizer, labels.as_ref(), options)?;
        let mut examples = Vec::new();
        while let Some(chunk) = chunks.next() {
            examples.extend(chunk?);
            if options.progress {
                let meter = chunks.meter();
                progress::report(path, meter.done().min(meter.total()), meter.total());
            }
        }
        if options.progress {
            progress::report(path, chunks.meter().total(), chunks.meter().total());
        }
        let (units, skipped, tally) = (chunks.units(), chunks.skipped(), chunks.tally());
        if options.pack {
            examples = pack(examples, units, tokenizer.max_tokens());
        }
        let masking = Masking::of(task, tokenizer)?;
        let most_per_unit = options.most_per_unit();
        Ok(Dataset { examples, labels, units, most_per_unit, masking, skipped, tally })
    }

    /// The same examples, each of which is sampled and clipped by itself. Call it only after the
    /// maximum of each privacy unit was enforced.
    pub fn into_single_examples(mut self) -> Result<Dataset> {
        let number = self.examples.len();
        u32::try_from(number)
            .map_err(|_| Error::invalid("the number of examples", number, "below 2³²"))?;
        for (i, example) in self.examples.iter_mut().enumerate() {
            example.unit = i as u32;
        }
        Ok(Dataset { units: number, most_per_unit: 1, ..self })
    }

    /// The examples as used for evaluation, with the evaluation masks if the task has any.
    pub fn for_evaluation(&self) -> Cow<'_, [Example]> {
        match &self.masking {
            Some(masking) => Cow::Owned(masking.for_evaluation(&self.examples, 0)),
            None => Cow::Borrowed(&self.examples),
        }
    }

    /// The examples of each privacy unit.
    pub fn members(&self) -> Members {
        Members::of(&self.examples, self.units)
    }
}
