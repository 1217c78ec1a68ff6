//! The sections of a report.

mod attacks;
mod compare;
mod curves;
mod facts;
mod glance;
mod guarantee;
mod learning;
mod noise;
mod spending;
mod synthetic;

use crate::annex::{self, Annex};
use crate::document::{Block, Document, Section};
use crate::error::Result;
use crate::folder::Run;
use crate::hide::{hide_paths, rename};
use crate::settings::{base_model, tuning};
use crate::{Options, words};
use undertone_run::{MethodName, ModeName, RunPaths, TaskName};

/// The report on some runs.
pub fn document(runs: &[Run], options: Options, annexes: &[Annex]) -> Result<Document> {
    if options.public {
        let mut shared: Vec<Run> = runs.iter().map(Run::shared).collect();
        rename(&mut shared);
        let mut document = compose(&shared, options, annexes)?;
        hide_paths(&mut document, runs);
        return Ok(document);
    }
    compose(runs, options, annexes)
}

fn compose(runs: &[Run], options: Options, annexes: &[Annex]) -> Result<Document> {
    if let [run] = runs {
        let mut sections = about(run, 2)?;
        sections.extend(annex::sections(run, annexes, options.public, 2)?);
        // The statement, the figure, and then the details.
        let opening = glance::figure(runs)?.into_iter();
        let opening = opening.chain([Block::Note(disclosure(options).to_owned())]);
        sections[0].blocks.splice(1..1, opening);
        return Ok(Document { title: run.name.clone(), subtitle: introduction(run), sections });
    }
    let mut sections =
        vec![glance::section(runs)?.note(disclosure(options)), compare::section(runs)?];
    for run in runs {
        sections.push(Section::new(2, run.name.clone()).paragraph(introduction(run)));
        sections.extend(about(run, 3)?);
    }
    let private = runs.iter().filter(|run| run.no_guarantee().is_none()).count();
    let subtitle = format!("{private} of {} runs have a guarantee.", runs.len());
    Ok(Document { title: format!("{} runs compared", runs.len()), subtitle, sections })
}

/// One sentence on task, model, fine-tuning method, privacy method and size of a run.
fn introduction(run: &Run) -> String {
    let plan = &run.summary.plan;
    let how = match (plan.privacy.method, plan.privacy.mode) {
        (MethodName::None, _) => "non-private".to_owned(),
        (method, ModeName::Paper) => format!("with {} as published", method_name(method)),
        (method, ModeName::Proved) => format!("with {}", method_name(method)),
    };
    format!(
        "{} with {}, {} fine-tuning, {how}: {}, {}, {}.",
        task_name(plan.data.task),
        base_model(plan),
        tuning(plan),
        words::times(run.summary.resolved.units as u64, "privacy unit"),
        words::times(u64::from(plan.training.epochs), "epoch"),
        words::times(run.summary.steps, "step")
    )
}

/// A note on what the report itself discloses: a report is also a release.
fn disclosure(options: Options) -> &'static str {
    match options.public {
        true => {
            "What was computed from private data without noise (losses, times, memory, attacks, \
             figures of a validation file that is not public) is left out of this report."
        }
        false => {
            "Training losses, times, memory and attacks in this report were computed from the \
             private data without noise, and so were figures of a validation file that is not \
             public. No guarantee covers them: keep the report with those who may see the data, or \
             make one for others with --public."
        }
    }
}

/// All sections on one run.
fn about(run: &Run, level: u8) -> Result<Vec<Section>> {
    let mut sections = vec![guarantee::section(run, level)];
    sections.extend(spending::section(run, level)?);
    sections.extend(curves::section(run, level)?);
    sections.extend(attacks::section(run, level)?);
    sections.extend(learning::section(run, level)?);
    sections.extend(noise::section(run, level)?);
    sections.extend(synthetic::section(run, level));
    sections.push(facts::section(run, level));
    sections.push(reproduce(run, level));
    Ok(sections)
}

/// The plan needed to reproduce the run.
fn reproduce(run: &Run, level: u8) -> Section {
    let anew = match run.summary.plan.training.seed {
        Some(_) => {
            "The seed is part of the plan: the same program, model, data and machine give the same \
             weights."
        }
        None => {
            "Sampling and noise use the operating system's randomness, so figures will differ a \
             little between runs."
        }
    };
    Section::new(level, "How to reproduce it")
        .paragraph(format!(
            "This is the plan with every default filled in. Save it as plan.toml \
         and run: undertone train plan.toml --out FOLDER. {anew}"
        ))
        .with(Block::Verbatim {
            name: RunPaths::plan_name().to_owned(),
            text: run.plan_text.clone(),
        })
}

/// Display name of a privacy method.
pub fn method_name(method: MethodName) -> &'static str {
    match method {
        MethodName::None => "none",
        MethodName::DpSgd => "DP-SGD",
        MethodName::Anadp => "ANADP",
        MethodName::RapFt => "Rap-FT",
        MethodName::Adaclip => "AdaClip",
        MethodName::DpForward => "DP-Forward",
        MethodName::EwFt => "EW-FT",
        MethodName::Mvg => "MVG",
    }
}

pub fn task_name(task: TaskName) -> &'static str {
    match task {
        TaskName::Classification => "Classification",
        TaskName::LanguageModeling => "Language modeling",
        TaskName::MaskedLanguageModeling => "Masked language modeling",
        TaskName::Completion => "Completion",
        TaskName::Chat => "Chat",
    }
}
