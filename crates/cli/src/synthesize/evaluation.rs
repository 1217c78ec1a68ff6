//! `synthesize --evaluate`: figures about synthetic rows, and who may see each of them.

use super::attack;
use super::classifier::{Classifier, Trained};
use super::subject::Subject;
use crate::audit::private_things::PeopleArguments;
use crate::failure::{Failure, Outcome};
use crate::output;
use clap::Args;
use std::path::{Path, PathBuf};
use undertone::data::{Template, format_of, read};
use undertone::model::TaskHead;
use undertone::model::folder::{Config, LoadOptions, load, locate};
use undertone::scan::Scanner;
use undertone::synthesize::evaluate::{
    Audience, Figure, Texts, clusters, describe, embeddings, mauve, personal, planted, replay,
    write_figures,
};
use undertone::tensor::Device;
use undertone_run::{Format, RunPaths, SampledFacts};

/// Maximum number of texts of each side that MAUVE compares, since clustering takes time.
const MAUVE_TEXTS: usize = 2000;
/// Maximum number of tokens that an encoder reads.
const ENCODED: usize = 128;

/// What to evaluate.
#[derive(Args)]
#[command(next_help_heading = "Evaluation")]
pub struct EvaluationArguments {
    /// Describe the rows, and compare them with the training rows; figures that depend on private
    /// rows are written to `private/` only
    #[arg(long)]
    evaluate: bool,
    /// Real rows with the same columns, to test on
    #[arg(long, value_name = "FILE", requires = "evaluate")]
    test: Option<PathBuf>,
    /// The test file is public and does not depend on the training file, so that figures on it may
    /// be published
    #[arg(long, requires = "test")]
    test_is_public: bool,
    /// Encoder of the texts, for MAUVE against the test file: a folder, or a name on the Hugging
    /// Face Hub
    #[arg(long, value_name = "DIR|NAME", requires = "test")]
    encoder: Option<String>,
    /// Train this model on the synthetic rows to predict a control code, and test it on the test
    /// file
    #[arg(long, value_name = "DIR|NAME", requires = "test")]
    classifier: Option<String>,
    /// Control code that the classifier predicts [default: the only one]
    #[arg(long, value_name = "COLUMN", requires = "classifier")]
    target: Option<String>,
    /// Also train the classifier on the private rows, with the ε of the run and without privacy;
    /// these figures are private, and publishing one would be another release
    #[arg(long, requires = "classifier")]
    baselines: bool,
    /// Attack: train a model on the synthetic rows alone, and tell training rows from test rows by its
    /// losses
    #[arg(long, requires = "test")]
    attack: bool,
    /// Secrets that were planted in the training rows, one per line: count those that occur again
    #[arg(long, value_name = "FILE", requires = "evaluate")]
    canaries: Option<PathBuf>,
}

/// A finished run with synthetic rows.
pub struct Evaluated<'a> {
    pub run: &'a RunPaths,
    pub subject: &'a Subject,
    pub facts: &'a SampledFacts,
    pub device: &'a Device,
}

impl EvaluationArguments {
    /// Computes the requested figures and writes each to a file for its audience.
    pub fn run(&self, of: &Evaluated) -> Outcome<Vec<Figure>> {
        if !self.evaluate {
            return Ok(Vec::new());
        }
        let training = &of.subject.data.train;
        if let Some(test) = self.test.as_ref().filter(|_| self.test_is_public)
            && same_file(test, training)
        {
            return Err(Failure::arguments(format!(
                "{} is the private training file, so it cannot be a public test file",
                test.display()
            )));
        }
        let data = of.run.synthetic().data(of.facts.data_format);
        let synthetic = of.texts(&data, of.facts.data_format.as_format())?;
        // Without a guarantee, the rows may repeat private ones.
        let synthetic = match of.subject.private {
            true => Texts::public(synthetic),
            false => Texts::private(synthetic),
        };
        let canaries = self.canaries()?;
        let test_texts = self.test_texts(of)?;
        let mut figures = describe(&synthetic, "synthetic rows");
        if training.exists() {
            let format = format_of(training, of.subject.data.format)?;
            let private = Texts::private(of.texts(training, format)?);
            figures.extend(describe(&private, "training rows"));
            figures.extend(replay(&synthetic, &private));
            let scanner = Scanner::new(Box::new(PeopleArguments::default().finder()?));
            figures.extend(personal(&scanner, &synthetic, &private, test_texts.as_ref())?);
            figures.extend(canaries.iter().map(|canaries| planted(canaries, &synthetic, &private)));
        } else if canaries.is_some() || self.attack {
            return Err(Failure::arguments(format!(
                "--canaries and --attack need the training rows, but {} is missing",
                training.display()
            )));
        }
        if let (Some(test), Some(texts)) = (&self.test, test_texts) {
            figures.extend(describe(&texts, "test rows"));
            figures.extend(self.mauve(of, &synthetic, &texts)?);
            figures.extend(self.classify(of, test, synthetic.audience().and(texts.audience()))?);
            if self.attack {
                output::note("training a model on the synthetic rows for the attack");
                figures.push(attack::by_text(of, test)?);
            }
        }
        write_figures(of.run, &figures)?;
        Ok(figures)
    }

    fn test_texts(&self, of: &Evaluated) -> Outcome<Option<Texts>> {
        let Some(test) = &self.test else { return Ok(None) };
        let texts = of.texts(test, format_of(test, None)?)?;
        Ok(Some(match self.test_is_public {
            true => Texts::public(texts),
            false => Texts::private(texts),
        }))
    }

    /// The lines of the file of canaries.
    fn canaries(&self) -> Outcome<Option<Vec<String>>> {
        let Some(file) = &self.canaries else { return Ok(None) };
        let text = undertone_run::read_settings(file)
            .map_err(|e| Failure::arguments(format!("{} cannot be read: {e}", file.display())))?;
        let lines = text.lines().map(|line| line.trim().to_owned());
        let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
        match lines.is_empty() {
            true => Err(Failure::arguments(format!("{} has no canaries", file.display()))),
            false => Ok(Some(lines)),
        }
    }

    fn mauve(&self, of: &Evaluated, left: &Texts, right: &Texts) -> Outcome<Option<Figure>> {
        let Some(name) = &self.encoder else { return Ok(None) };
        let folder = locate(name)?;
        // Only the hidden states are used, whatever the head.
        let config = Config::read(&folder)?;
        let classifies =
            config.architecture().is_some_and(|name| name.ends_with("ForSequenceClassification"));
        let own = config.labels()?.filter(|_| classifies);
        let labels = Some(own.unwrap_or_else(|| vec!["0".to_owned(), "1".to_owned()]));
        let task_head = Some(TaskHead::SequenceClassification);
        let options = LoadOptions { task_head, labels, ..LoadOptions::default() };
        let mut model = load(&folder, &options)?;
        model.to_device(of.device)?;
        let tokenizer = model.tokenizer(&folder, ENCODED)?;
        let embedded = |texts: &Texts| {
            let mut first = texts.clone();
            first.texts.truncate(MAUVE_TEXTS);
            embeddings(&model, &tokenizer, &first)
        };
        let (left_side, right_side) = (embedded(left)?, embedded(right)?);
        let value = mauve(&left_side, &right_side);
        let clusters = clusters(left_side.len(), right_side.len());
        let of = format!("synthetic and test rows, in {clusters} clusters");
        let audience = left.audience().and(right.audience());
        Ok(Some(Figure::new("MAUVE", value, &of, audience)))
    }

    fn classify(&self, of: &Evaluated, test: &Path, audience: Audience) -> Outcome<Vec<Figure>> {
        let Some(model) = &self.classifier else { return Ok(Vec::new()) };
        let target = self.target.as_deref();
        let classifier = Classifier::new(of, model, target, test)?;
        let name = "accuracy on test rows";
        let mut figures = Vec::new();
        let mut add = |trained: Trained, of: &str, seen_by: Audience| -> Outcome {
            output::note(format_args!("training a classifier on {of}"));
            figures.push(Figure::new(name, classifier.accuracy(trained)?, of, seen_by));
            Ok(())
        };
        add(Trained::OnSynthetic, "synthetic rows", audience)?;
        if self.baselines {
            if of.subject.private {
                add(Trained::Privately, "training rows, with the ε of the run", Audience::Private)?;
            }
            add(Trained::NonPrivately, "training rows, without privacy", Audience::Private)?;
        }
        Ok(figures)
    }
}

impl Evaluated<'_> {
    /// The text columns of the rows of a file.
    fn texts(&self, path: &Path, format: Format) -> Outcome<Vec<String>> {
        let columns = self.text_columns()?;
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let rows = read::rows_or_skip(path, format, &columns, self.subject.data.on_bad_row)?;
        let mut texts = Vec::new();
        for row in rows {
            texts.push(row?.values.join(" "));
        }
        Ok(texts)
    }

    pub fn text_columns(&self) -> Outcome<Vec<String>> {
        let template = Template::parse(&self.subject.data.completion)?;
        Ok(template.columns().into_iter().map(str::to_owned).collect())
    }
}

fn same_file(first: &Path, second: &Path) -> bool {
    let place = |path: &Path| path.canonicalize().ok();
    first == second || (place(first).is_some() && place(first) == place(second))
}
