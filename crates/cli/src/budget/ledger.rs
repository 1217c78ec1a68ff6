//! `budget ledger`.

use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use undertone_accounting::{Composition, Guarantee, Mode};
use undertone_run::{Cost, FinishedRun, RunFile, RunPaths, cost_together, stopping_caveat};

/// Check ledgers and print the guarantee of each, and of all together
///
/// Runs on the same data cost more together than each one alone. They can be composed if they have
/// the same privacy unit, adjacency and threat model. For a run that stopped before its last step,
/// the ε of its full plan is also printed: it holds even if the decision to stop depended on
/// released results.
#[derive(Args)]
#[command(after_help = "Examples:
  undertone budget ledger runs/demo/sort-epsilon-8
  undertone budget ledger runs/first runs/second runs/third --delta 1e-6")]
pub struct Ledger {
    /// Run folders, or ledgers of runs or private predictions (JSON Lines)
    #[arg(required = true, value_name = "DIR|FILE")]
    paths: Vec<PathBuf>,
    /// δ of the guarantee [default: the runs' δ]
    #[arg(long)]
    delta: Option<f64>,
}

/// A parsed ledger, with the plan beside it.
pub struct Read {
    path: PathBuf,
    ledger: undertone_accounting::ledger::Ledger,
    plan: Option<RunFile>,
}

impl Ledger {
    pub fn run(self, output: Output) -> Outcome {
        let all = self.paths.iter().map(|path| Read::open(path)).collect::<Outcome<Vec<_>>>()?;
        all.iter().filter_map(|read| read.ledger.warning()).for_each(output::note);
        let deltas =
            all.iter().map(|read| read.delta(self.delta)).collect::<Outcome<Vec<f64>>>()?;
        match all.as_slice() {
            [ledger] => ledger.show(deltas[0], output),
            all => show_together(all, &deltas, output),
        }
    }
}

impl Read {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn mode(&self) -> Mode {
        self.ledger.terms().mode
    }

    pub fn spent(&self) -> &Composition {
        self.ledger.spent()
    }

    /// The ledger's own file, in the folder of a run.
    pub fn ledger_file(&self) -> PathBuf {
        match self.path.is_dir() {
            true => RunPaths::new(&self.path).ledger(),
            false => self.path.clone(),
        }
    }

    /// The requested δ, or that of the run.
    pub fn delta(&self, asked: Option<f64>) -> Outcome<f64> {
        let of_run = || self.ledger.delta().or_else(|| self.plan.as_ref()?.privacy.delta);
        asked.or_else(of_run).ok_or_else(|| {
            Failure::arguments(format!(
                "{} does not say which δ its guarantee is for; give --delta, well below one over \
                 the number of units",
                self.path.display()
            ))
        })
    }

    pub fn open(path: &Path) -> Outcome<Self> {
        let run = match path.is_dir() {
            true => Some(RunPaths::new(path)),
            false => path.parent().map(RunPaths::new).filter(|run| run.ledger() == path),
        };
        let (ledger, plan) = match run.filter(|run| path.is_dir() || run.plan().exists()) {
            // In a run folder, it must be the run's own ledger.
            Some(run) => {
                if run.is_finished() {
                    FinishedRun::read(run.folder())?;
                }
                if !run.ledger().exists() {
                    return Err(Failure::arguments(format!(
                        "{} holds no ledger: it is no folder of a run, or of one without privacy",
                        path.display()
                    )));
                }
                (run.read_ledger()?, RunFile::read(&run.plan(), &[]).ok())
            }
            None => (undertone_accounting::ledger::Ledger::read(path)?, None),
        };
        Ok(Self { path: path.to_owned(), ledger, plan })
    }

    fn cost(&self) -> Cost<'_> {
        Cost { path: &self.path, ledger: &self.ledger, plan: self.plan.as_ref() }
    }

    fn show(&self, delta: f64, output: Output) -> Outcome {
        let ledger = &self.ledger;
        let guarantee = &ledger.guarantee(delta)?;
        let planned = ledger.as_planned();
        let of_plan = planned.as_ref().map(|planned| planned.guarantee(delta)).transpose()?;
        if output.json {
            output::json(&json!({
                "guarantee": guarantee,
                "guarantee_of_plan": of_plan,
                "entries": ledger.entries(),
                "planned_entries": planned.as_ref().map(|planned| planned.entries()),
                "releases": ledger.spent().releases(),
                "torn_lines": ledger.torn_lines(),
                "hash": ledger.hash(),
            }));
            return Ok(());
        }
        let entries = match &planned {
            Some(planned) => format!("{} of {} planned", ledger.entries(), planned.entries()),
            None => ledger.entries().to_string(),
        };
        let mut rows = vec![
            ("entries", entries),
            ("releases", ledger.spent().releases().to_string()),
            ("torn lines counted as spent", ledger.torn_lines().to_string()),
            ("ε", output::interval(&guarantee.epsilon)),
        ];
        rows.extend(of_plan.as_ref().map(|g| ("ε of the plan", output::interval(&g.epsilon))));
        rows.extend([
            ("δ", format!("{:e}", guarantee.delta)),
            ("unit", unit(ledger)),
            ("adjacency", guarantee.adjacency.to_string()),
            ("threat model", output::threat(guarantee.threat).to_owned()),
            ("mode", output::mode(guarantee.mode).to_owned()),
            ("hash", ledger.hash().to_owned()),
        ]);
        output::rows(&rows);
        conclude(guarantee);
        if let Some(of_plan) = of_plan {
            stopped_early(&of_plan);
        }
        Ok(())
    }
}

/// The privacy unit, with the maximum number of its examples if they are sampled one by one.
fn unit(ledger: &undertone_accounting::ledger::Ledger) -> String {
    let run = ledger.terms().run.as_ref();
    match run.and_then(|run| run.examples_per_user) {
        Some(most) => format!("user, with at most {most} examples sampled one by one"),
        None => output::unit(ledger.terms().unit).to_owned(),
    }
}

/// The caveat for a run that has made fewer releases than planned.
fn stopped_early(of_plan: &Guarantee) {
    output::line(stopping_caveat(of_plan));
}

/// Prints the assumptions of the guarantee and its sentence.
fn conclude(guarantee: &Guarantee) {
    for assumption in &guarantee.assumptions {
        output::line(format_args!("  assuming: {assumption}"));
    }
    output::line("");
    output::line(format_args!("{guarantee}."));
}

/// Releases and guarantee of all runs together if each were completed; `None` if all are complete.
fn together_as_planned(all: &[Read], delta: f64) -> Outcome<Option<(u64, Guarantee)>> {
    let planned: Vec<_> = all.iter().map(|read| read.ledger.as_planned()).collect();
    if planned.iter().all(Option::is_none) {
        return Ok(None);
    }
    let costs: Vec<Cost> = (all.iter().zip(&planned))
        .map(|(read, planned)| match planned {
            Some(ledger) => Cost { ledger, ..read.cost() },
            None => read.cost(),
        })
        .collect();
    let releases = costs.iter().map(|cost| cost.ledger.spent().releases()).sum();
    Ok(Some((releases, cost_together(&costs, delta)?)))
}

fn show_together(all: &[Read], deltas: &[f64], output: Output) -> Outcome {
    if let Some(other) = deltas.iter().position(|delta| *delta != deltas[0]) {
        return Err(Failure::arguments(format!(
            "{} is for δ = {:e} and {} for δ = {:e}; give --delta, at which they are added up",
            all[0].path.display(),
            deltas[0],
            all[other].path.display(),
            deltas[other]
        )));
    }
    let delta = deltas[0];
    let costs: Vec<Cost> = all.iter().map(Read::cost).collect();
    let total = cost_together(&costs, delta)?;
    let of_plans = together_as_planned(all, delta)?;
    let each = all.iter().map(|read| Ok(read.ledger.guarantee(delta)?));
    let each = each.collect::<Outcome<Vec<Guarantee>>>()?;
    if output.json {
        let ledgers: Vec<_> = all
            .iter()
            .zip(&each)
            .map(|(read, guarantee)| {
                json!({
                    "path": read.path.display().to_string(),
                    "guarantee": guarantee,
                    "releases": read.ledger.spent().releases(),
                    "torn_lines": read.ledger.torn_lines(),
                    "hash": read.ledger.hash(),
                })
            })
            .collect();
        let of_plans = of_plans.map(|(_, guarantee)| guarantee);
        output::json(&json!({
            "ledgers": ledgers, "together": total, "together_as_planned": of_plans,
        }));
        return Ok(());
    }
    let row = |name: String, releases: u64, guarantee: &Guarantee| {
        let epsilon = output::up(guarantee.epsilon.upper);
        vec![name, releases.to_string(), epsilon, output::mode(guarantee.mode).to_owned()]
    };
    let mut rows: Vec<Vec<String>> = all
        .iter()
        .zip(&each)
        .map(|(read, guarantee)| {
            row(read.path.display().to_string(), read.ledger.spent().releases(), guarantee)
        })
        .collect();
    let releases = all.iter().map(|read| read.ledger.spent().releases()).sum();
    rows.push(row("together".to_owned(), releases, &total));
    rows.extend(
        of_plans.as_ref().map(|(planned, guarantee)| {
            row("together, as planned".to_owned(), *planned, guarantee)
        }),
    );
    output::table(&["ledger", "releases", &format!("ε at δ = {delta:e}"), "mode"], &rows);
    let files = all.iter().filter_map(|read| Some(&read.plan.as_ref()?.data.train));
    let files: std::collections::BTreeSet<_> = files.collect();
    if files.len() > 1 {
        output::line(
            "The runs name different training files: the total is for somebody whose data are in \
             all of them.",
        );
    }
    conclude(&total);
    if let Some((_, of_plans)) = of_plans {
        stopped_early(&of_plans);
    }
    Ok(())
}
