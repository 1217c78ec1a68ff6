//! `undertone stats`: private statistics of a data file.

mod show;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::register::{LedgerBooking, RegisterArguments, STATISTICS};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use undertone::data::{Error, Format, Tokenizer, format_of, read};
use undertone::model::folder::locate;
use undertone::noise::Secret;
use undertone::statistics::{
    Columns, LengthUnit, MOST_WORDS, NoiseSource, Request, Statistic, collect, split,
};
use undertone::step::RunLedger;
use undertone_accounting::ledger::Ledger;
use undertone_accounting::{Threat, Unit};
use undertone_register::Cost;
use undertone_run::{StatisticsPaths, check_new_folder, write_atomically};

/// Measure a data file with differential privacy, to choose settings without looking at it
///
/// Releases the number of units, rows per unit, shares of declared labels, lengths, shares of empty
/// and damaged rows and, with `--vocabulary`, common words. Every figure has noise and is an entry
/// of the ledger in `--out`; nothing exact is printed or written.
#[derive(Args)]
#[command(after_help = "Examples:\n  undertone stats letters.csv --epsilon 0.2 --out stats\n  \
                        undertone stats letters.csv --epsilon 0.2 --text text --label topic \
                        --labels pay,rent,other --author customer --out stats\n  undertone stats \
                        letters.csv --epsilon 0.2 --out stats --register budgets.jsonl --dataset \
                        letters")]
pub struct Stats {
    /// Private data file: CSV, TSV, JSON Lines, Parquet or plain text
    data: PathBuf,
    /// ε of all statistics together
    #[arg(long)]
    epsilon: f64,
    /// δ of the guarantee; should be well below 1 / number of privacy units
    #[arg(long, default_value_t = 1e-6)]
    delta: f64,
    /// Comma-separated text columns [default: text]
    #[arg(long, value_delimiter = ',', value_name = "COLUMN")]
    text: Vec<String>,
    /// Label column
    #[arg(long, value_name = "COLUMN", requires = "labels")]
    label: Option<String>,
    /// Comma-separated labels to count, which are public; all others count as one
    #[arg(long, value_delimiter = ',', value_name = "LABEL", requires = "label")]
    labels: Vec<String>,
    /// Column that names the privacy unit [default: each row is a unit]
    #[arg(long, value_name = "COLUMN")]
    author: Option<String>,
    /// Measure lengths in tokens of this model (folder or Hugging Face Hub name) instead of bytes
    #[arg(long, value_name = "DIR|NAME")]
    model: Option<String>,
    /// Release the words that many units have
    #[arg(long)]
    vocabulary: bool,
    /// Maximum number of words per unit that count toward the vocabulary
    #[arg(
        long,
        default_value_t = 50,
        requires = "vocabulary",
        value_parser = crate::arguments::up_to(MOST_WORDS as u64)
    )]
    words_per_unit: usize,
    /// New folder for statistics.json and ledger.jsonl
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    budget: RegisterArguments,
}

impl Stats {
    pub fn run(self, output: Output) -> Outcome {
        let format = format_of(&self.data, None)?;
        let columns = self.columns(format)?;
        let request = self.request(&columns)?;
        check_new_folder(&self.out)?;
        // Before any row is read; the names of the columns are public.
        let booking = match self.budget.open()? {
            Some(budget) => {
                let (unit, releases) = (request.unit, request.releases());
                let cost = Cost { unit, threat: Threat::Central, delta: self.delta, releases };
                Some(LedgerBooking::reserve(budget, cost, STATISTICS, &self.out)?)
            }
            None => None,
        };
        let released = self.release(format, &columns, &request, output);
        if let Some(booking) = booking {
            booking.end()?;
            booking.announce()?;
        }
        released
    }

    /// Reads the file and releases its statistics.
    fn release(
        &self,
        format: Format,
        columns: &Columns,
        request: &Request,
        output: Output,
    ) -> Outcome {
        let tokenizer = match &self.model {
            Some(model) => Some(Tokenizer::load(&locate(model)?)?),
            None => None,
        };
        let length = |text: &str| match &tokenizer {
            Some(tokenizer) => tokenizer.with_bytes(text).map_or(0, |tokens| tokens.len() as u64),
            None => text.len() as u64,
        };
        let random = |e: std::io::Error| Failure::arguments(format!("no random numbers: {e}"));
        let secret = Secret::from_system().map_err(random)?;
        let mut noise = NoiseSource::from_system().map_err(random)?;
        let key = noise.key();
        let collected = collect(&self.data, format, columns, request, &length, key);
        let collected = collected.map_err(without_line)?;

        let paths = StatisticsPaths::new(&self.out);
        std::fs::create_dir_all(&self.out).map_err(|e| Failure::write(&self.out, e))?;
        let ledger = Ledger::create(paths.ledger(), request.terms(secret.ledger_id()))?;
        let mut ledger = RunLedger::alone(ledger, &paths.ledger(), self.delta);
        let statistics = request.release(&collected, &mut ledger, &mut noise)?;
        let json = serde_json::to_string_pretty(&statistics)
            .map_err(|e| Failure::write(&paths.statistics(), e))?;
        write_atomically(&paths.statistics(), |out| writeln!(out, "{json}"))?;
        let guarantee = ledger.guarantee()?;
        show::show(&statistics, guarantee.as_ref(), &paths, output);
        Ok(())
    }

    fn columns(&self, format: Format) -> Outcome<Columns> {
        let names = read::nested_columns(&self.data, format)?;
        let text = match self.text.is_empty() {
            true if names.iter().any(|name| name == "text") => vec!["text".to_owned()],
            true => {
                let names = names.join(", ");
                let sentence = format!("name the text columns with --text; there are {names}");
                return Err(Failure::arguments(sentence));
            }
            false => self.text.clone(),
        };
        let wanted = text.iter().chain(&self.label).chain(&self.author);
        match wanted.into_iter().find(|column| !names.contains(column)) {
            Some(column) => {
                let (file, column) = (self.data.clone(), column.clone());
                Err(Error::MissingColumn { file, column, available: names })?
            }
            None => Ok(Columns { text, label: self.label.clone(), author: self.author.clone() }),
        }
    }

    fn request(&self, columns: &Columns) -> Outcome<Request> {
        let mut labels = self.labels.clone();
        labels.sort();
        if labels.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Failure::arguments("--labels names a label twice"));
        }
        let mut statistics = vec![Statistic::Units];
        statistics.extend(columns.author.is_some().then_some(Statistic::RowsPerUnit));
        statistics.extend(columns.label.is_some().then_some(Statistic::Labels));
        statistics.extend([Statistic::Lengths, Statistic::Quality]);
        statistics.extend(self.vocabulary.then_some(Statistic::Vocabulary));
        Ok(Request {
            unit: if columns.author.is_some() { Unit::User } else { Unit::Example },
            author: columns.author.clone(),
            lengths_in: match self.model {
                Some(_) => LengthUnit::Tokens,
                None => LengthUnit::Bytes,
            },
            labels: self.labels.clone(),
            words_per_unit: self.words_per_unit,
            budget: split(self.epsilon, self.delta, statistics.len(), self.vocabulary)?,
            statistics,
        })
    }
}

/// An error without its line number, which would reveal a figure about the data.
fn without_line(error: Error) -> Failure {
    match error {
        Error::BadUtf8 { file, .. }
        | Error::BadJson { file, .. }
        | Error::BadArray { file, .. }
        | Error::BadQuote { file, .. }
        | Error::LineTooLong { file, .. }
        | Error::MissingValue { file, .. }
        | Error::TornRow { file, .. } => Failure::arguments(format!(
            "{} cannot be read to its end, so nothing was released; `undertone scan` names the \
             line",
            file.display()
        )),
        other => other.into(),
    }
}
