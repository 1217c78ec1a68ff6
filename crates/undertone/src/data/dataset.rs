//! A dataset in memory.

use super::error::Result;
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
use super::tokenise::Tokeniser;
use std::borrow::Cow;
use std::path::Path;

/// The tokenised examples of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// In the order of the file.
    pub examples: Vec<Example>,
    /// Class labels, for classification with a label column.
    pub labels: Option<Labels>,
    /// Number of privacy units: rows, or authors.
    pub units: usize,
    /// Maximum number of examples per unit, by the options and not by what the file holds.
    pub most_per_unit: usize,
    /// How tokens are masked, for masked language modelling: examples have no target before.
    pub masking: Option<Masking>,
    /// Number of rows that were left out because they cannot be read.
    pub skipped: u64,
    /// Numbers of other rows that are worth a warning.
    pub tally: Tally,
}

impl Dataset {
    /// Reads and tokenises a file. For classification without given `labels`, takes all values
    /// found in the file, which training must not do: see [`Labels::of_attribute`].
    pub fn load(
        path: &Path,
        task: &Task,
        tokeniser: &Tokeniser,
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
        let mut chunks = stream(path, task, tokeniser, labels.as_ref(), options)?;
        let bar = progress::bar(path, chunks.meter(), options.progress);
        let mut examples = Vec::new();
        while let Some(chunk) = chunks.next() {
            examples.extend(chunk?);
            bar.set_position(chunks.meter().done());
        }
        bar.finish_and_clear();
        let (units, skipped, tally) = (chunks.units(), chunks.skipped(), chunks.tally());
        if options.pack {
            examples = pack(examples, units, tokeniser.max_tokens());
        }
        let masking = Masking::of(task, tokeniser)?;
        let most_per_unit = options.most_per_unit();
        Ok(Dataset { examples, labels, units, most_per_unit, masking, skipped, tally })
    }

    /// The examples as a model is evaluated on them, with the masks of evaluation where the task
    /// has any.
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
