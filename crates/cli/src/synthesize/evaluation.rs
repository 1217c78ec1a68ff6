//! `synthesize --evaluate`: figures about synthetic rows, and who may see each of them.

use super::classifier::{Classifier, Trained};
use super::subject::Subject;
use super::{attack, scratch};
use crate::audit::private_things::PeopleArguments;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::sign::hash;
use crate::stop::Stop;
use clap::Args;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use undertone::Plan;
use undertone::data::{Template, format_of, read};
use undertone::model::TaskHead;
use undertone::model::folder::{Config, LoadOptions, load, locate};
use undertone::scan::Scanner;
use undertone::synthesize::evaluate::{
    Audience, Evaluation, Figure, Texts, clusters, describe, embeddings, mauve, personal, planted,
    replay,
};
use undertone::tensor::Device;
use undertone::train::examples_of_rows;
use undertone_run::{DataSection, Format, RunPaths, SampledFacts};

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
    /// Membership attack: train a model on the synthetic rows alone, and use its losses to
    /// distinguish training rows from test rows
    #[arg(long, requires = "test")]
    attack: bool,
    /// Secrets planted in the training rows, one per line; reports the share that the synthetic
    /// rows reproduce
    #[arg(long, value_name = "FILE", requires = "evaluate")]
    canaries: Option<PathBuf>,
}

/// A finished run with synthetic rows.
pub struct Evaluated<'a> {
    pub run: &'a RunPaths,
    pub subject: &'a Subject,
    pub facts: &'a SampledFacts,
    pub device: &'a Device,
    pub stop: &'a Stop,
}

impl EvaluationArguments {
    /// Computes the requested figures and writes each to a file for its audience.
    pub fn run(&self, of: &Evaluated) -> Outcome<Vec<Figure>> {
        if !self.evaluate {
            return Ok(Vec::new());
        }
        // A killed process may have left a model of private rows.
        [attack::folder(of.run), Classifier::folder(of.run)]
            .iter()
            .try_for_each(|folder| scratch::clear(folder))?;
        if let (Some(test), true) = (&self.test, self.test_is_public) {
            of.check_public(test)?;
        }
        let mut figures = Vec::new();
        let computed = self.compute(of, &mut figures);
        let evaluation = Evaluation { figures, assumptions: self.assumptions()? };
        evaluation.write(of.run)?;
        computed.map(|()| evaluation.figures)
    }

    /// What the public figures assume.
    fn assumptions(&self) -> Outcome<Vec<String>> {
        let Some(test) = self.test.as_ref().filter(|_| self.test_is_public) else {
            return Ok(Vec::new());
        };
        let name = test.file_name().unwrap_or_default().to_string_lossy();
        // Rows from Python have no file.
        let hash = match test.exists() {
            true => format!(" (SHA-256 {})", hash(test)?),
            false => String::new(),
        };
        Ok(vec![format!("{name}{hash} is public, and does not depend on the training file")])
    }

    /// Adds the requested figures, one after the other.
    fn compute(&self, of: &Evaluated, figures: &mut Vec<Figure>) -> Outcome {
        let training = &of.subject.data.train;
        let data = of.run.synthetic().data(of.facts.data_format);
        let synthetic = of.texts(&data, of.facts.data_format.as_format())?;
        // Without a guarantee, the rows may repeat private ones.
        let synthetic = match of.subject.private {
            true => Texts::public(synthetic),
            false => Texts::private(synthetic),
        };
        let canaries = self.canaries()?;
        let test_texts = self.test_texts(of)?;
        figures.extend(describe(&synthetic, "synthetic rows"));
        if training.exists() {
            let private = Texts::private(of.training_texts()?);
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
        } else {
            output::note(format_args!(
                "{} is missing, so the rows are not compared with the training rows",
                training.display()
            ));
        }
        if let (Some(test), Some(texts)) = (&self.test, test_texts) {
            figures.extend(describe(&texts, "test rows"));
            figures.extend(self.mauve(of, &synthetic, &texts)?);
            let audience = synthetic.audience().and(texts.audience());
            self.classify(of, test, audience, figures)?;
            if self.attack {
                output::note("training a model on the synthetic rows for the attack");
                figures.push(attack::by_text(of, test)?);
            }
        }
        Ok(())
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
            let mut some = texts.clone();
            let step = some.texts.len().div_ceil(MAUVE_TEXTS).max(1);
            some.texts = some.texts.into_iter().step_by(step).collect();
            embeddings(&model, &tokenizer, &some)
        };
        let (left_side, right_side) = (embedded(left)?, embedded(right)?);
        let value = mauve(&left_side, &right_side);
        let clusters = clusters(left_side.len(), right_side.len());
        let of = format!("synthetic and test rows, in {clusters} clusters");
        let audience = left.audience().and(right.audience());
        Ok(Some(Figure::new("MAUVE", value, &of, audience)))
    }

    fn classify(
        &self,
        of: &Evaluated,
        test: &Path,
        audience: Audience,
        figures: &mut Vec<Figure>,
    ) -> Outcome {
        let Some(model) = &self.classifier else { return Ok(()) };
        let target = self.target.as_deref();
        let classifier = Classifier::new(of, model, target, test)?;
        let name = "accuracy on test rows";
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
        Ok(())
    }
}

impl Evaluated<'_> {
    /// The text columns of the rows of a file.
    fn texts(&self, path: &Path, format: Format) -> Outcome<Vec<String>> {
        Ok(self.texts_by_line(path, format)?.into_iter().map(|(_, text)| text).collect())
    }

    /// The same, with the line of each row.
    fn texts_by_line(&self, path: &Path, format: Format) -> Outcome<Vec<(u64, String)>> {
        let columns = self.text_columns()?;
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let rows = read::rows_or_skip(path, format, &columns, self.subject.data.on_bad_row)?;
        let mut texts = Vec::new();
        for row in rows {
            let row = row?;
            texts.push((row.line, row.values.join(" ")));
        }
        Ok(texts)
    }

    /// The texts of the training file.
    fn texts_of_file(&self) -> Outcome<Vec<(u64, String)>> {
        let DataSection { train, format, .. } = &self.subject.data;
        self.texts_by_line(train, format_of(train, *format)?)
    }

    /// The texts that steps may sample: without rows that were held out, or beyond the maximum per
    /// author.
    fn training_texts(&self) -> Outcome<Vec<String>> {
        let texts = self.texts_of_file()?;
        // Private prediction has no plan: every row may steer a text.
        let sampled: Option<BTreeMap<u64, usize>> = match self.run.plan().exists() {
            true => Some(examples_of_rows(&Plan::read(&self.run.plan(), &[])?)?),
            false => None,
        };
        let is_used = |line: &u64| sampled.as_ref().is_none_or(|lines| lines.contains_key(line));
        Ok(texts.into_iter().filter(|(line, _)| is_used(line)).map(|(_, text)| text).collect())
    }

    /// Rejects a test file that is the training file, a copy or a part of it.
    fn check_public(&self, test: &Path) -> Outcome {
        let training = &self.subject.data.train;
        if !training.exists() {
            return Err(Failure::arguments(format!(
                "{} cannot be declared public: the training file {} is missing, so it cannot be \
                 checked that they differ",
                test.display(),
                training.display()
            )));
        }
        let texts = self.texts(test, format_of(test, None)?)?;
        let known: HashSet<String> =
            self.texts_of_file()?.into_iter().map(|(_, text)| text).collect();
        if !texts.is_empty() && texts.iter().all(|text| known.contains(text)) {
            return Err(Failure::arguments(format!(
                "all rows of {} are rows of the private training file, so it cannot be a public test \
                 file",
                test.display()
            )));
        }
        Ok(())
    }

    pub fn text_columns(&self) -> Outcome<Vec<String>> {
        let template = Template::parse(&self.subject.data.completion)?;
        Ok(template.columns().into_iter().map(str::to_owned).collect())
    }
}
