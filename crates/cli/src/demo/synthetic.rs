//! Synthetic letters: a language model writes them at ε = 8, and a classifier learns from them.

use super::corpus::{TOPICS, subject};
use super::files::{MARK, run_file};
use super::{Job, train_run, write};
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::stop::Stop;
use crate::synthesize::{RowArguments, sample_rows};
use serde::Serialize;
use std::path::Path;
use undertone::Plan;
use undertone::data::read::rows_or_skip;
use undertone::tensor::Device;
use undertone_run::{Format, OnBadRow};

/// Folder of the run that writes the letters.
pub const FOLDER: &str = "synthesize-epsilon-8";
/// Folder of the classifier that learns from them.
pub const CLASSIFIER: &str = "sort-synthetic";
/// The run file of the first.
const RUN_FILE: &str = "synthesize.toml";
/// Number of letters that are shown beside real ones.
const SHOWN: usize = 10;

/// A synthetic letter and a real one about the same topic.
#[derive(Debug, Serialize)]
pub struct Pair {
    pub topic: String,
    pub real: String,
    pub synthetic: String,
}

/// What the demo shows of the synthetic letters.
#[derive(Debug, Serialize)]
pub struct SyntheticLetters {
    pub letters: u64,
    /// Upper bound of the proved ε.
    pub epsilon: f64,
    pub pairs: Vec<Pair>,
    /// Accuracy on real letters of the classifier that learned from the synthetic ones.
    pub accuracy: Option<f64>,
}

/// Writes the run file.
pub fn prepare(folder: &Path, letters: usize) -> Outcome {
    let text = format!(
        "{MARK}: a language model that writes letters about given topics.\n\
         [model]\npath = {:?}\ntuning = \"full\"\n\n\
         [data]\ntask = \"completion\"\ntrain = {:?}\nprompt = {:?}\ncompletion = \"{{text}}\"\n\
         author = \"patient\"      # the unit: everything that one patient wrote\n\
         max_tokens = 96\n\n\
         [privacy]\nmethod = \"dp-sgd\"\nepsilon = 8.0\ndelta = 1e-5\n\n\
         [training]\nepochs = 5\nbatch = {}\nlearning_rate = 2e-3\n\
         learning_rate_schedule = \"linear\"\noptimizer = \"adam-corrected\"\n\n\
         [synthesis]\nrows = {}\ncodes = {{ label = {TOPICS:?} }}\n",
        folder.join("model"),
        folder.join("train.tsv"),
        subject("{label}"),
        512.min(letters / 8),
        (letters / 8).max(SHOWN),
    );
    write(&folder.join(RUN_FILE), text.as_bytes())
}

/// Trains the writer, samples letters, and trains a classifier on them.
pub fn run(folder: &Path) -> Outcome<SyntheticLetters> {
    let out = folder.join(FOLDER);
    output::note(format_args!("\n{FOLDER}:"));
    let summary = train_run(Plan::read(&folder.join(RUN_FILE), &[])?, &out)?;
    let (arguments, stop) = (RowArguments::default(), Stop::default());
    let (_, facts) = sample_rows(&out, &arguments, &Device::Cpu, &stop, &mut |_, _| ())?;
    let data = out.join("synthetic/data.csv");
    output::note(format_args!("\n{CLASSIFIER}:"));
    let changes = [
        format!("data.train={:?}", data.display().to_string()),
        "privacy.method=none".to_owned(),
        "-privacy.epsilon".to_owned(),
        "-privacy.delta".to_owned(),
        "-data.author".to_owned(),
        "training.epochs=6".to_owned(),
        "training.learning_rate=2e-3".to_owned(),
        "training.batch=32".to_owned(),
    ];
    let plan = Plan::read(&folder.join(run_file(Job::Sort)), &changes)?;
    let classifier = train_run(plan, &folder.join(CLASSIFIER))?;
    let synthetic = rows(&data, Format::Csv)?;
    let real = rows(&folder.join("train.tsv"), Format::Tsv)?;
    Ok(SyntheticLetters {
        letters: facts.rows,
        epsilon: summary.guarantee.map_or(f64::INFINITY, |guarantee| guarantee.epsilon.upper),
        pairs: pairs(&synthetic, &real),
        accuracy: super::tell::accuracy(&classifier),
    })
}

/// The first synthetic letters, each with a real one about the same topic.
fn pairs(synthetic: &[[String; 2]], real: &[[String; 2]]) -> Vec<Pair> {
    let mut shown = Vec::new();
    for (i, [text, topic]) in synthetic.iter().enumerate().take(SHOWN) {
        let earlier = synthetic[..i].iter().filter(|row| row[1] == *topic).count();
        if let Some([other, _]) = real.iter().filter(|row| row[1] == *topic).nth(earlier) {
            let (topic, synthetic) = (topic.clone(), text.clone());
            shown.push(Pair { topic, real: other.clone(), synthetic });
        }
    }
    shown
}

/// Text and topic of each letter of a file.
fn rows(path: &Path, format: Format) -> Outcome<Vec<[String; 2]>> {
    let columns = ["text", "label"];
    let rows = rows_or_skip(path, format, &columns, OnBadRow::Refuse)?;
    let mut all = Vec::new();
    for row in rows {
        let values = row?.values;
        let pair = <[String; 2]>::try_from(values);
        all.push(pair.map_err(|_| Failure::arguments("a letter has no topic"))?);
    }
    Ok(all)
}
