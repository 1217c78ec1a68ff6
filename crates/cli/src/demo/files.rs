//! Files that the demo writes before training: model, letters, secrets and run files.

use super::corpus::{LETTERS_OF_A_PATIENT, Letter, Patient, TOPICS, Writer};
use super::{Job, model, synthetic, write};
use crate::failure::Outcome;
use serde_json::json;
use std::path::Path;

/// First line of the demo's run files, which identifies its folder.
pub const MARK: &str = "# The run file of the demo";

/// The run file of a job.
pub fn run_file(job: Job) -> &'static str {
    match job {
        Job::Sort => "run.toml",
        Job::Write => "write.toml",
    }
}

/// The number of letters that the language model is trained on.
const ANSWERED: usize = 600;
/// Number of patients who state their code, if there are enough letters.
const PATIENTS: usize = 24;

/// Writes all files and returns the patients whose codes are in the letters.
pub fn prepare(folder: &Path, letters: usize) -> Outcome<Vec<Patient>> {
    model::unpack(&folder.join("model"))?;
    let mut writer = Writer::new(2);
    let patients = writer.patients(PATIENTS.min(letters / (4 * LETTERS_OF_A_PATIENT)));
    let private = writer.letters(letters, &patients);
    let names = || patients.iter().map(|patient| patient.name.as_str());
    // All letters of those patients, and some others.
    let mut others = ANSWERED.min(letters / 2) - patients.len() * LETTERS_OF_A_PATIENT;
    let mut answered: Vec<&Letter> = Vec::new();
    for letter in &private {
        if names().any(|name| name == letter.patient) {
            answered.push(letter);
        } else if others > 0 {
            answered.push(letter);
            others -= 1;
        }
    }
    // Letters of the same kind by other people, which no model has seen.
    let mut writer = Writer::new(3);
    let strangers = writer.patients(patients.len());
    let new = writer.letters(letters / 4, &strangers);
    let mut writer = Writer::new(4);
    let strangers = writer.patients(patients.len());
    let not_answered = writer.letters(answered.len(), &strangers);
    let all = |letters: &[Letter]| tsv(letters.iter());
    write(&folder.join("train.tsv"), all(&private).as_bytes())?;
    write(&folder.join("validation.tsv"), all(&new).as_bytes())?;
    write(&folder.join("answered.tsv"), tsv(answered.iter().copied()).as_bytes())?;
    write(&folder.join("not-answered.tsv"), all(&not_answered).as_bytes())?;
    let canaries = patients.iter().map(|patient| {
        let text = format!("{} # # # # # #", prompt(patient));
        json!({ "text": text, "secret": patient.code.replace(' ', "") }).to_string()
    });
    let canaries: Vec<String> = canaries.collect();
    write(&folder.join("canaries.jsonl"), format!("{}\n", canaries.join("\n")).as_bytes())?;
    let names = names().collect::<Vec<_>>().join("\n");
    write(&folder.join("names.txt"), format!("{names}\n").as_bytes())?;
    write(&folder.join(run_file(Job::Sort)), sort(folder, letters).as_bytes())?;
    write(&folder.join(run_file(Job::Write)), write_like(folder, letters).as_bytes())?;
    synthetic::prepare(folder, letters)?;
    Ok(patients)
}

/// The prompt with which an attacker asks for a patient's code.
pub fn prompt(patient: &Patient) -> String {
    format!("hello . {}", patient.prefix())
}

fn tsv<'a>(letters: impl Iterator<Item = &'a Letter>) -> String {
    let rows = letters.map(|it| format!("{}\t{}\t{}\n", it.text, TOPICS[it.topic], it.patient));
    format!("text\tlabel\tpatient\n{}", rows.collect::<String>())
}

/// The run file of the classifier.
fn sort(folder: &Path, letters: usize) -> String {
    format!(
        "{MARK}: which topic does a letter have?\n[model]\npath = {:?}\ntuning = {{ lora = {{ rank \
         = 8, alpha = 16 }} }}\n\n[data]\ntask = \"classification\"\ntrain = {:?}\nvalidation = \
         {:?}\ntext = \"text\"\nlabel = \"label\"\nlabels = {TOPICS:?}\nauthor = \"patient\"      \
         # the unit: everything that one patient wrote\nmax_tokens = 96\n\n[privacy]\nmethod = \
         \"dp-sgd\"\nepsilon = 8.0\ndelta = 1e-5\n\n[training]\nepochs = 5\nbatch = \
         {}\nlearning_rate = 5e-3\nlearning_rate_schedule = \"linear\"\noptimizer = \
         \"adam-corrected\"\n",
        folder.join("model"),
        folder.join("train.tsv"),
        folder.join("validation.tsv"),
        256.min(letters / 8),
    )
}

/// The run file of the language model.
fn write_like(folder: &Path, letters: usize) -> String {
    format!(
        "{MARK}: a language model that writes like the patients.\n\
         [model]\npath = {:?}\ntuning = \"full\"\n\n\
         [data]\ntask = \"language-modeling\"\ntrain = {:?}\ntext = \"text\"\n\
         author = \"patient\"      # the unit: everything that one patient wrote\n\
         max_tokens = 96\n\n\
         [privacy]\nmethod = \"dp-sgd\"\nepsilon = 8.0\ndelta = 1e-5\n\n\
         [training]\nepochs = 8\nbatch = {}\nlearning_rate = 5e-4\n\
         learning_rate_schedule = \"linear\"\n",
        folder.join("model"),
        folder.join("answered.tsv"),
        128.min(letters / 16),
    )
}
