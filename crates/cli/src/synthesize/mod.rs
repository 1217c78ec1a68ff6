//! `undertone synthesize`: from private rows to synthetic ones.

mod attack;
mod classifier;
mod evaluation;
mod prediction;
mod rows;
mod scratch;
pub mod source;
mod subject;
mod training;

use crate::arguments::ChangeArguments;
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use crate::register::{Booking, Budget, Ended, RegisterArguments};
use crate::source::KeyArguments;
use crate::stop::Stop;
use clap::Args;
use evaluation::{Evaluated, EvaluationArguments};
use prediction::MethodArguments;
pub use rows::{RowArguments, sample_rows};
use serde_json::{Value, json};
use source::SourceArguments;
use std::path::{Path, PathBuf};
use subject::Subject;
use undertone::collective::Ranks;
use undertone::synthesize::evaluate::{Audience, Figure};
use undertone::tensor::Device;
use undertone::train::{Start, TrainingEvent};
use undertone_run::{RunFolder, RunPaths, SampledFacts};

/// Generate synthetic rows with a language model trained on private data
///
/// Trains on the rows, with control codes such as a topic before each text, and samples new rows.
/// The privacy guarantee covers any number of sampled rows. To resume, pass only `--out`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone synthesize letters.csv --model models/SmolLM2-135M --text \
     letter --code topic=sport,travel --epsilon 8 --rows 5000 --out runs/letters\n  undertone \
     synthesize run.toml --out runs/letters\n  undertone synthesize --out runs/letters"
)]
pub struct Synthesize {
    /// Private data file, or a run file (TOML) with a section [synthesis]; not needed to resume
    data: Option<PathBuf>,
    /// Folder of the run: the rows are written to `synthetic/` in it
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    method: MethodArguments,
    #[command(flatten)]
    set: ChangeArguments,
    /// Random seed; makes the run reproducible, and therefore not private
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    device: DeviceArguments,
    #[command(flatten)]
    rows: RowArguments,
    #[command(flatten)]
    evaluation: EvaluationArguments,
    #[command(flatten)]
    source: SourceArguments,
    #[command(flatten)]
    keys: KeyArguments,
    #[command(flatten)]
    budget: RegisterArguments,
}

/// What has been done.
pub enum Progress<'a> {
    /// An event of training.
    Training(&'a TrainingEvent<'a>),
    /// The number of rows sampled so far, and the number wanted.
    Sampled { rows: u64, of: u64 },
}

/// A finished run with its synthetic rows.
pub struct Synthesized {
    paths: RunPaths,
    subject: Subject,
    facts: SampledFacts,
    figures: Vec<Figure>,
}

impl Synthesize {
    pub fn run(self, output: Output) -> Outcome {
        let synthesized = self.complete(&Stop::listen(), &mut |_| ())?;
        match output.json {
            true => output::json(&synthesized.json()),
            false => synthesized.print(),
        }
        Ok(())
    }

    /// Trains, samples and evaluates what the folder does not contain yet.
    pub fn complete(&self, stop: &Stop, watch: &mut dyn FnMut(Progress)) -> Outcome<Synthesized> {
        let paths = RunPaths::new(&self.out);
        let device = self.device.device()?;
        if self.is_prediction(&paths)? {
            let sampled = &mut |rows, of| watch(Progress::Sampled { rows, of });
            let (subject, facts) = self.predict(&paths, &device, stop, sampled)?;
            return self.evaluate(paths, subject, facts, &device, stop);
        }
        if !paths.is_finished() {
            self.train(&paths, &device, stop, &mut |event| watch(Progress::Training(event)))?;
        } else if self.names_a_source() {
            return Err(self.is_taken());
        } else if let Some(booking) = Booking::of_run(&self.out, &self.budget)? {
            booking.check_open()?;
        }
        let sampled = &mut |rows, of| watch(Progress::Sampled { rows, of });
        let (summary, facts) = sample_rows(&self.out, &self.rows, &device, stop, sampled)?;
        let subject = Subject::of_run(&paths, &summary)?;
        self.evaluate(paths, subject, facts, &device, stop)
    }

    fn evaluate(
        &self,
        paths: RunPaths,
        subject: Subject,
        facts: SampledFacts,
        device: &Device,
        stop: &Stop,
    ) -> Outcome<Synthesized> {
        let of = Evaluated { run: &paths, subject: &subject, facts: &facts, device, stop };
        let figures = self.evaluation.run(&of)?;
        Ok(Synthesized { paths, subject, facts, figures })
    }

    /// Trains the model, or resumes its training, at the cost of the budget if one is given.
    fn train(
        &self,
        paths: &RunPaths,
        device: &Device,
        stop: &Stop,
        watch: &mut dyn FnMut(&TrainingEvent),
    ) -> Outcome {
        let budget = match paths.plan().exists() {
            true => None,
            false => self.budget.open()?,
        };
        let (mut plan, resume) = self.plan(paths, device, budget.as_ref())?;
        let booking = match budget {
            // Before anything of the data is read.
            Some(budget) => Some(budget.reserve(&mut plan, "synthesize", &self.out)?),
            None if resume => {
                let booking = Booking::of_run(&self.out, &self.budget)?;
                booking.iter().try_for_each(Booking::check_open)?;
                booking
            }
            None => None,
        };
        if let Some(precision) = self.device.precision() {
            plan.compute.precision = Some(precision);
        }
        let (out, device, ranks) = (self.out.as_path(), device.clone(), Ranks::alone());
        let start = Start { plan, out, resume, device, data: None, ranks, tape: None };
        let trained = training::train(start, stop, watch);
        if let Some(booking) = booking {
            booking.conclude(match &trained {
                Ok(()) => Ended::Finished,
                Err(Failure::Stopped(_)) => Ended::Stopped,
                Err(_) => Ended::Failed,
            })?;
            booking.announce()?;
        }
        trained
    }

    /// The plan of the run, and whether it is resumed.
    fn plan(
        &self,
        paths: &RunPaths,
        device: &Device,
        budget: Option<&Budget>,
    ) -> Outcome<(undertone::Plan, bool)> {
        if paths.plan().exists() {
            if self.names_a_source() {
                return Err(self.is_taken());
            }
            let plan = undertone::Plan::read(&paths.plan(), &[])?;
            return Ok((plan, true));
        }
        let Some(data) = &self.data else {
            return Err(Failure::arguments(format!(
                "{} contains no run to resume; pass a data file or a run file to start one",
                self.out.display()
            )));
        };
        RunFolder::check_nothing_foreign(&self.out)?;
        let mut written = self.source.read(data, &self.rows, &self.keys, &self.set)?;
        if let Some(budget) = budget {
            let set = self.set.with(budget.units(&written)?);
            written = self.source.read(data, &self.rows, &self.keys, &set)?;
        }
        let file = source::is_run_file(data).then_some(data.as_path());
        let resolved = crate::source::resolve(&written, file, device)?;
        crate::source::tell_choices(&resolved);
        let mut plan = resolved.plan;
        if plan.synthesis.is_none() {
            return Err(Failure::arguments(format!(
                "{} has no section [synthesis]; add one, or train it with `undertone train`",
                data.display()
            )));
        }
        plan.training.seed = self.seed.or(plan.training.seed);
        Ok((plan, false))
    }

    fn names_a_source(&self) -> bool {
        let set = !self.set.changes().is_empty() || self.seed.is_some();
        let names = self.data.is_some() || !self.source.is_empty() || !self.keys.is_empty();
        names || set || !self.method.is_empty()
    }

    fn is_taken(&self) -> Failure {
        let out = self.out.display();
        Failure::arguments(format!(
            "{out} already contains a run, which keeps its data and settings; continue with \
             `undertone synthesize --out {out}`, or choose another folder"
        ))
    }
}

impl Synthesized {
    /// Where the rows are, their guarantee, and what was found about them.
    pub fn json(&self) -> Value {
        let Self { subject, facts, figures, .. } = self;
        json!({
            "data": self.data(),
            "card": self.paths.synthetic().card(),
            "private": subject.private,
            "not_private_because": subject.not_private_because,
            "guarantee": subject.guarantee,
            "statement": subject.guarantee.as_ref().map(ToString::to_string),
            "sampled": facts,
            "figures": figures,
        })
    }

    /// The file of the rows.
    fn data(&self) -> PathBuf {
        self.paths.synthetic().data(self.facts.data_format)
    }

    fn print(&self) {
        let Self { paths, subject, facts, figures } = self;
        let mut rows = vec![match (&subject.not_private_because, &subject.guarantee) {
            (None, Some(guarantee)) => ("guarantee", guarantee.to_string()),
            (why, _) => ("not private", why.clone().unwrap_or_default()),
        }];
        let rejected: u64 = facts.rejected.values().sum();
        rows.push(("rows", format!("{} of {}", facts.rows, facts.columns.join(", "))));
        rows.push(("rejected", format!("{rejected} of {} sampled texts", facts.attempts)));
        rows.push(("written", self.data().display().to_string()));
        rows.push(("data card", paths.synthetic().card().display().to_string()));
        output::rows(&rows);
        if figures.is_empty() {
            return;
        }
        let row = |figure: &Figure| {
            let seen_by = match figure.seen_by {
                Audience::Public => "public",
                Audience::Private => "curator only",
            };
            let value = format!("{:.4}", figure.value);
            vec![figure.name.clone(), value, figure.of.clone(), seen_by.to_owned()]
        };
        let body: Vec<Vec<String>> = figures.iter().map(row).collect();
        output::table(&["figure", "value", "of", "audience"], &body);
    }
}

/// The command that resumes the run in this folder.
fn again(out: &Path) -> String {
    let out = crate::train::shell_quoted(&out.display().to_string());
    format!("undertone synthesize --out {out}")
}
