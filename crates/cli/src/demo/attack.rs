//! Attacks on the demo's models: membership of training examples, and exposure of the patients'
//! codes.

use super::corpus::Patient;
use super::files::prompt;
use super::{DemoRun, Job};
use crate::arguments::{ConfidenceArgument, SeedArgument};
use crate::audit::exposure::{ExposureArguments, read};
use crate::audit::membership::by_losses;
use crate::audit::run_folder::AuditedRun;
use crate::device::DeviceArguments;
use crate::failure::Outcome;
use std::path::Path;
use undertone::audit::exposure::Exposure;
use undertone::audit::membership::Membership;
use undertone::audit::secret::Hidden;
use undertone::audit::texts::{Sampling, Writer};
use undertone::data::Example;
use undertone::train::read_data;
use undertone_run::audit::SecretExposure;

/// Results of the attacks on one run.
pub struct Attacked {
    pub membership: Vec<Membership>,
    /// Exposure of each patient's code, for language models.
    pub exposure: Vec<Exposure>,
    /// The model's continuation at the position of each patient's code.
    pub said: Vec<String>,
}

impl Attacked {
    /// Number of codes revealed by the model.
    pub fn given_away(&self, patients: &[Patient]) -> usize {
        patients.iter().zip(&self.said).filter(|(patient, said)| patient.code == **said).count()
    }
}

/// Attacks the runs and stores the results in their folders.
pub fn all(folder: &Path, runs: &[DemoRun], patients: &[Patient]) -> Outcome<Vec<Attacked>> {
    let mut pretrained = None;
    let mut all = Vec::new();
    for run in runs {
        let (audited, job) = (AuditedRun::open(&folder.join(run.name))?, run.job);
        let membership = membership(&audited, folder, job)?;
        audited.keep(|audit| audit.membership = membership.clone())?;
        let mut attacked = Attacked { membership, exposure: Vec::new(), said: Vec::new() };
        if job == Job::Write {
            let asked = exposure_arguments();
            let canaries = read(&folder.join("canaries.jsonl"))?;
            let device = DeviceArguments::default();
            let before = match pretrained.take() {
                Some(before) => before,
                None => asked.planted(&audited, false, &canaries, &device)?,
            };
            attacked.exposure = asked.planted(&audited, true, &canaries, &device)?;
            let rows = canaries.iter().zip(attacked.exposure.iter().zip(&before));
            let rows = rows.map(|(canary, (trained, pretrained))| SecretExposure {
                text: canary.text.clone(),
                trained: *trained,
                pretrained: *pretrained,
            });
            let rows: Vec<SecretExposure> = rows.collect();
            audited.keep(|audit| audit.exposure = rows)?;
            pretrained = Some(before);
            attacked.said = codes(&audited, patients)?;
        }
        all.push(attacked);
    }
    Ok(all)
}

/// Membership inference on the letters. The non-members come from the same distribution, so a
/// difference does not merely distinguish two files.
fn membership(run: &AuditedRun, folder: &Path, job: Job) -> Outcome<Vec<Membership>> {
    let others = match job {
        Job::Sort => "validation.tsv",
        Job::Write => "not-answered.tsv",
    };
    let inside = read_data(&run.plan, None)?.examples;
    let outside = read_data(&run.plan, Some(&folder.join(others)))?.examples;
    let members = outside.len().min(inside.len());
    let all: Vec<Example> = inside[..members].iter().chain(&outside).cloned().collect();
    let device = DeviceArguments::default();
    Ok(by_losses(run, &all, members, None, (0.95, 1), true, &device)?.0)
}

fn exposure_arguments() -> ExposureArguments {
    ExposureArguments {
        candidates: 500,
        hidden: Hidden::Together,
        random: SeedArgument { seed: 1 },
        intervals: ConfidenceArgument { confidence: 0.95 },
    }
}

/// The six most likely tokens after each patient's introduction.
fn codes(run: &AuditedRun, patients: &[Patient]) -> Outcome<Vec<String>> {
    let model = run.model(true, &DeviceArguments::default())?;
    let tokenizer = run.tokenizer(&model)?;
    let writer = Writer { model: &model, tokenizer: &tokenizer };
    let prompts: Vec<String> = patients.iter().map(prompt).collect();
    let likeliest = Sampling { top_k: 1, tokens: 6, ..Sampling::default() };
    let said = writer.write(&prompts, &likeliest, |_| {})?;
    Ok(said.iter().map(|text| text.trim().to_owned()).collect())
}
