//! `undertone demo`: fine-tunes on private letters, non-privately and with two budgets, and
//! compares.

mod corpus;
mod model;

use crate::audit::membership::by_losses;
use crate::audit::run_folder::AuditedRun;
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output, area, line, share, table, up};
use crate::report::{self, Format};
use crate::train::Display;
use clap::Args;
use corpus::{Letter, TOPICS, Writer};
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use undertone::audit::membership::Membership as Found;
use undertone::data::Example;
use undertone::evaluate::Metrics;
use undertone::tensor::Device;
use undertone::train::{Plan, Start, Summary, read_data, train};
use undertone_report::Options;

/// Train, attack and report on an embedded corpus: no files, no network, under three minutes
#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone demo\n  undertone demo --out runs/letters --data-only"
)]
pub struct Demo {
    /// Folder for the data and the runs; what an earlier demo left there is replaced
    #[arg(long, value_name = "FOLDER", default_value = "runs/demo")]
    out: PathBuf,
    /// Private letters to train on; a quarter as many others are for validation
    #[arg(long, default_value_t = 4_000)]
    letters: usize,
    /// Write the model, the letters and the run file, and train nothing
    #[arg(long)]
    data_only: bool,
    /// Make the shipped model anew and leave it in this folder
    #[arg(long, value_name = "FOLDER", hide = true)]
    pretrain: Option<PathBuf>,
}

/// How many letters may be asked for: no fewer than a batch has.
const LETTERS: std::ops::RangeInclusive<usize> = BATCH..=1_000_000;
const BATCH: usize = 256;

/// The runs of the demo: a name and what is changed in the run file.
const RUNS: [(&str, &[&str]); 3] = [
    ("non-private", &["privacy.method=none", "training.learning_rate=1e-3", "training.batch=64"]),
    ("epsilon-8", &["privacy.method=dp-sgd", "privacy.epsilon=8", "privacy.delta=1e-5"]),
    ("epsilon-1", &["privacy.method=dp-sgd", "privacy.epsilon=1", "privacy.delta=1e-5"]),
];

impl Demo {
    pub fn run(self, output: Output) -> Outcome {
        if let Some(folder) = &self.pretrain {
            model::pretrain(folder)?;
            if output.json {
                output::json(&json!({ "model": folder }));
            }
            return Ok(());
        }
        if !LETTERS.contains(&self.letters) {
            return Err(Failure::arguments(format!(
                "--letters must be from {} to {}",
                LETTERS.start(),
                LETTERS.end()
            )));
        }
        let started = std::time::Instant::now();
        clear(&self.out)?;
        let file = self.prepare()?;
        if self.data_only && output.json {
            output::json(&json!({ "folder": self.out }));
            return Ok(());
        }
        if self.data_only {
            line(format_args!(
                "Model, letters, planted secrets and run.toml are in {}.",
                self.out.display()
            ));
            return Ok(());
        }
        if !output.json {
            line(format_args!(
                "{} letters to a hospital, some of which tell secrets; which of {} things \
                 does each ask for?",
                self.letters,
                TOPICS.len()
            ));
        }
        let mut summaries = Vec::new();
        for (name, changes) in RUNS {
            output::note(format_args!("\n{name}:"));
            let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
            let out = self.out.join(name);
            let mut display = Display::new();
            let plan = Plan::parse(&file, &changes)?;
            let done = train(
                Start { plan, out: &out, resume: false, device: Device::Cpu, data: None },
                &mut |event| display.show(&event),
            );
            display.end();
            summaries.push(done?);
        }
        let attacked = self.audit(&file)?;
        let report = self.out.join("report.html");
        let folders = RUNS.map(|(name, _)| self.out.join(name));
        report::write(&folders, &report, Format::Html, Options::default())?;
        let seconds = started.elapsed().as_secs_f64();
        if output.json {
            let runs = summaries.iter().zip(&attacked).zip(RUNS.iter().zip(&folders));
            let runs = runs.map(|((summary, membership), ((name, _), folder))| {
                json!({
                    "name": name, "folder": folder, "summary": summary, "membership": membership,
                })
            });
            output::json(&json!({
                "folder": self.out, "report": report, "seconds": seconds,
                "runs": runs.collect::<Vec<_>>(),
            }));
            return Ok(());
        }
        self.tell(&summaries, &attacked, &report, seconds);
        Ok(())
    }

    /// The runs beside each other, for people.
    fn tell(&self, summaries: &[Summary], attacked: &[Vec<Found>], report: &Path, seconds: f64) {
        let runs = || RUNS.iter().map(|(name, _)| *name);
        let rows: Vec<_> =
            runs().zip(summaries).map(|(name, summary)| row(name, summary)).collect();
        line("");
        table(
            &["run", "accuracy", "loss", "ε, proved", "δ", "noise multiplier", "examples/s"],
            &rows,
        );
        line(format_args!(
            "\nChance is {:.1} %. ε holds for adding or removing one letter, against whoever sees \
             every update and the final weights.",
            100.0 / TOPICS.len() as f64
        ));
        line(
            "\nCan somebody who has a model tell the letters that it was trained on from others?\n",
        );
        table(
            &["run", "AUC by loss", "AUC by loss against the pretrained model", "TPR at 1 % FPR"],
            &runs().zip(attacked).map(|(name, found)| attack_row(name, found)).collect::<Vec<_>>(),
        );
        line(
            "\nAn AUC of 0.5 is guessing; 95 % confidence intervals in brackets. (undertone \
             audit membership --run … has the whole story.)",
        );
        line(format_args!(
            "\nThe whole story, to read in a browser or to print: {}",
            report.display()
        ));
        line(format_args!(
            "Run folders, data and planted secrets are in {}; the demo took {seconds:.0} s.",
            self.out.display(),
        ));
        line(format_args!(
            "Try: undertone predict --model {0}/model --adapter {0}/epsilon-8/adapter --data \
             {0}/validation.tsv --out said.jsonl",
            self.out.display()
        ));
    }

    /// Attacks each model: which of the letters were its own?
    fn audit(&self, file: &str) -> Outcome<Vec<Vec<Found>>> {
        let plan = Plan::parse(file, &["privacy.method=none".to_owned()])?;
        let inside = read_data(&plan, None)?.examples;
        let outside = read_data(&plan, Some(&self.out.join("validation.tsv")))?.examples;
        let members = outside.len().min(inside.len());
        let all: Vec<Example> = inside[..members].iter().chain(&outside).cloned().collect();
        let mut attacked = Vec::new();
        for (name, _) in RUNS {
            let run = AuditedRun::open(&self.out.join(name))?;
            let (found, _) =
                by_losses(&run, &all, members, None, (0.95, 1), true, &DeviceArguments::default())?;
            run.keep(|audit| audit.membership = found.clone())?;
            attacked.push(found);
        }
        Ok(attacked)
    }

    /// Writes model, letters, secrets and the run file, whose text is returned.
    fn prepare(&self) -> Outcome<String> {
        model::unpack(&self.out.join("model"))?;
        let mut writer = Writer::new(2);
        let planted = writer.planted(12);
        let mut letters = writer
            .letters(self.letters - planted.iter().map(|planted| planted.times).sum::<usize>());
        for planted in &planted {
            letters.extend((0..planted.times).map(|_| writer.letter(Some(planted))));
        }
        write(&self.out.join("train.tsv"), tsv(&letters).as_bytes())?;
        write(
            &self.out.join("validation.tsv"),
            tsv(&Writer::new(3).letters(self.letters / 4)).as_bytes(),
        )?;
        let secrets: Vec<String> =
            planted.iter().filter_map(|planted| serde_json::to_string(planted).ok()).collect();
        write(&self.out.join("secrets.jsonl"), format!("{}\n", secrets.join("\n")).as_bytes())?;
        // The same as `audit exposure` and `audit extraction` read them.
        let blank = |secret: &str| -> String {
            secret.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect()
        };
        let digits =
            |secret: &str| -> String { secret.chars().filter(char::is_ascii_digit).collect() };
        let canaries: Vec<String> = planted
            .iter()
            .map(|planted| {
                let text = format!("{} {}", planted.prefix, blank(&planted.secret));
                json!({ "text": text, "secret": digits(&planted.secret) }).to_string()
            })
            .collect();
        write(&self.out.join("canaries.jsonl"), format!("{}\n", canaries.join("\n")).as_bytes())?;
        let names: Vec<String> = planted.iter().map(corpus::Planted::name).collect();
        write(&self.out.join("names.txt"), format!("{}\n", names.join("\n")).as_bytes())?;
        let folder = &self.out;
        let file = format!(
            "{MARK}; each run changes a few keys (see plan.toml in its folder).\n\
             [model]\npath = {:?}\ntuning = {{ lora = {{ rank = 8, alpha = 16 }} }}\n\n\
             [data]\ntask = \"classification\"\ntrain = {:?}\nvalidation = {:?}\n\
             text = \"text\"\nlabel = \"label\"\n\
             labels = {TOPICS:?}\nmax_tokens = 96\n\n\
             [privacy]\nmethod = \"dp-sgd\"\n\n\
             [training]\nepochs = 5\nbatch = {BATCH}\nlearning_rate = 3e-3\n\
             learning_rate_schedule = \"linear\"\noptimiser = \"adam-corrected\"\n",
            folder.join("model"),
            folder.join("train.tsv"),
            folder.join("validation.tsv"),
        );
        write(&folder.join("run.toml"), file.as_bytes())?;
        Ok(file)
    }
}

/// How the run file of a demo begins: whose folder it is.
const MARK: &str = "# The run file of the demo";

/// Removes what an earlier demo left, and nothing else.
fn clear(out: &Path) -> Outcome {
    let is_empty = std::fs::read_dir(out).map_or(true, |mut inside| inside.next().is_none());
    let is_ours =
        || std::fs::read_to_string(out.join("run.toml")).is_ok_and(|file| file.starts_with(MARK));
    if !is_empty && !is_ours() {
        return Err(Failure::arguments(format!(
            "{} holds something that is no demo's; name a new folder by --out",
            out.display()
        )));
    }
    // Version 0.1 called the non-private run "open".
    for name in RUNS.map(|run| run.0).iter().chain(&["model", "open"]) {
        let folder = out.join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(|e| Failure::write(&folder, e))?;
        }
    }
    std::fs::create_dir_all(out).map_err(|e| Failure::write(out, e))
}

fn write(path: &Path, bytes: &[u8]) -> Outcome {
    Ok(undertone_run::write_atomically(path, |out| out.write_all(bytes))?)
}

fn tsv(letters: &[Letter]) -> String {
    let rows = letters.iter().map(|letter| format!("{}\t{}\n", letter.text, TOPICS[letter.topic]));
    format!("text\tlabel\n{}", rows.collect::<String>())
}

fn attack_row(name: &str, found: &[Found]) -> Vec<String> {
    let found_at = share(&found[1].rate_at_1_percent);
    vec![name.to_owned(), area(&found[0].auc), area(&found[1].auc), found_at]
}

fn row(name: &str, summary: &Summary) -> Vec<String> {
    let (accuracy, loss) = match &summary.metrics.validation {
        Some(Metrics::Classification(found)) => {
            (format!("{:.1} %", 100.0 * found.accuracy), format!("{:.3}", found.loss))
        }
        _ => ("–".to_owned(), "–".to_owned()),
    };
    let (epsilon, delta) = match &summary.guarantee {
        Some(guarantee) => (up(guarantee.epsilon.upper), format!("{:e}", guarantee.delta)),
        None => ("none".to_owned(), "–".to_owned()),
    };
    let noise =
        summary.resolved.noise_multipliers.first().map_or("–".to_owned(), |s| format!("{s:.3}"));
    let speed = format!("{:.0}", summary.throughput.examples_per_second);
    vec![name.to_owned(), accuracy, loss, epsilon, delta, noise, speed]
}
