//! `synthesize --method private-prediction`: rows without training.

use super::subject::Subject;
use super::{Synthesize, again, rows, source};
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::register::{Budget, LedgerBooking, PREDICTION};
use crate::stop::Stop;
use crate::use_model::Loaded;
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use undertone::data::Tokenizer;
use undertone::model::TaskHead;
use undertone::noise::Secret;
use undertone::step::RunLedger;
use undertone::synthesize::Classes;
use undertone::synthesize::prediction::{
    Groups, Prediction, Writer, calibrate, classes_of, export, positions, releases, terms, unit,
};
use undertone::tensor::Device;
use undertone_accounting::ledger::Ledger;
use undertone_accounting::{Event, Threat};
use undertone_register::Cost;
use undertone_run::{DataSection, RunFolder, RunPaths, SampledFacts, Summary, WrittenRun};

/// How synthetic rows are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// Train a model on the private rows and sample from it
    Training,
    /// Sample from a public model guided by private rows, without training; for small data sets
    PrivatePrediction,
}

/// The method, and a setting of private prediction.
#[derive(Args)]
pub struct MethodArguments {
    /// How the rows are made [default: training]
    #[arg(long, value_enum)]
    method: Option<Method>,
    /// With private-prediction: sample from the public model's K most likely tokens and any that
    /// private rows could move among them; 0 for no limit [default: 100]
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
}

impl MethodArguments {
    pub fn is_empty(&self) -> bool {
        self.method.is_none() && self.top_k.is_none()
    }

    /// Whether the method is private prediction; `--top-k` is for no other.
    pub fn is_prediction(&self) -> Outcome<bool> {
        match (self.method, self.top_k) {
            (Some(Method::PrivatePrediction), _) => Ok(true),
            (_, Some(_)) => {
                Err(Failure::arguments("--top-k is for --method private-prediction; remove it"))
            }
            _ => Ok(false),
        }
    }
}

/// Keys that `--set` may change.
const KEYS: [&str; 8] = [
    "data.author",
    "data.completion",
    "data.format",
    "data.max_tokens",
    "data.on_bad_row",
    "data.prompt",
    "privacy.delta",
    "privacy.units",
];
/// Units per text, unless `--rows` says otherwise.
const UNITS_PER_TEXT: u64 = 32;
/// The model keeps keys and values of this many sequences in memory.
const MOST_UNITS_PER_TEXT: u64 = 512;
const MAX_TOKENS: usize = 64;
const TOP_K: usize = 100;
const DELTA: f64 = 1e-6;

/// The public model, and the classes of texts.
struct Public {
    loaded: Loaded,
    tokenizer: Tokenizer,
    classes: Classes,
}

impl Public {
    fn open(
        model: &str,
        data: &DataSection,
        codes: &BTreeMap<String, Vec<String>>,
        device: &Device,
    ) -> Outcome<Self> {
        let loaded = Loaded::open(model, None, device, Some(TaskHead::CausalLanguageModel))?;
        let tokenizer = loaded.model.tokenizer(&loaded.folder, data.max_tokens)?;
        let classes = classes_of(data, codes, &tokenizer)?;
        Ok(Self { loaded, tokenizer, classes })
    }
}

/// A new set of rows: what the flags ask for, before anything of the data is read.
struct Asked {
    run: WrittenRun,
    public: Public,
    epsilon: f64,
    delta: f64,
    /// Range of the change of scores.
    range: f64,
    most_tokens: u64,
    units: Option<u64>,
}

impl Synthesize {
    /// Whether the folder holds, or the flags ask for, private prediction.
    pub(super) fn is_prediction(&self, paths: &RunPaths) -> Outcome<bool> {
        Ok(self.method.is_prediction()? || paths.prediction().exists())
    }

    /// Writes rows by private prediction, or resumes doing so.
    pub(super) fn predict(
        &self,
        paths: &RunPaths,
        device: &Device,
        stop: &Stop,
        watch: &mut dyn FnMut(u64, u64),
    ) -> Outcome<(Subject, SampledFacts)> {
        if !paths.prediction().exists() {
            let budget = self.budget.open()?;
            let asked = self.asked(device, budget.as_ref())?;
            let booking = self.reserve(budget, &asked)?;
            let done = self.begin(asked).and_then(|begun| self.resume(begun, stop, watch));
            if let Some(booking) = booking {
                booking.end()?;
                booking.announce()?;
            }
            return done;
        }
        if self.names_a_source() {
            return Err(self.is_taken());
        }
        let prediction = Prediction::read(paths)?;
        let Prediction { model, data, codes, rows, temperature, data_format, .. } = &prediction;
        if !self.rows.agrees_with(*rows, *temperature, None, *data_format) {
            return Err(Failure::arguments(format!(
                "{} has rows with other settings; choose another folder with --out",
                self.out.display()
            )));
        }
        let booking = match self.budget.open()? {
            Some(budget) => Some(LedgerBooking::of_folder(budget, PREDICTION, &self.out)?),
            None => None,
        };
        let public = Public::open(model, data, codes, device)?;
        let folder = RunFolder::open_prediction(&self.out)?;
        let done = self.resume(Begun { folder, prediction, public, groups: None }, stop, watch);
        booking.iter().try_for_each(LedgerBooking::end)?;
        done
    }

    /// Checks the flags, and calibrates.
    fn asked(&self, device: &Device, budget: Option<&Budget>) -> Outcome<Asked> {
        let Some(data) = &self.data else {
            return Err(Failure::arguments(format!(
                "{} contains no rows to resume; name the private data file",
                self.out.display()
            )));
        };
        self.check_flags(data)?;
        RunFolder::check_nothing_foreign(&self.out)?;
        let mut keys = self.keys.clone();
        keys.max_tokens = keys.max_tokens.or(Some(MAX_TOKENS));
        let mut run = self.source.read(data, &self.rows, &keys, &self.set)?;
        if let Some(budget) = budget {
            let set = self.set.with(budget.units(&run)?);
            run = self.source.read(data, &self.rows, &keys, &set)?;
        }
        if run.synthesis().is_some_and(|section| section.temperature == 0.0) {
            return Err(Failure::arguments(
                "--temperature must be above 0 for private prediction, whose privacy comes from \
                 sampling",
            ));
        }
        let epsilon = run.epsilon().ok_or_else(|| Failure::arguments("--epsilon is missing"))?;
        let delta = run.delta().unwrap_or(DELTA);
        let codes = run.synthesis().map(|section| section.codes.clone()).unwrap_or_default();
        let public = Public::open(&run.model().name(), run.data(), &codes, device)?;
        positions(&public.loaded.model, run.data().max_tokens)?;
        let prompts = public.classes.classes.iter().map(|class| class.tokens.len());
        let most_tokens = run.data().max_tokens.saturating_sub(prompts.max().unwrap_or(0)) as u64;
        let range = calibrate(epsilon, delta, most_tokens)?;
        let units = run.declared_units();
        Ok(Asked { run, public, epsilon, delta, range, most_tokens, units })
    }

    /// Rejects flags that have no effect.
    fn check_flags(&self, data: &Path) -> Outcome {
        let no_effect = |flag: &str| {
            Err(Failure::arguments(format!(
                "{flag} has no effect with --method private-prediction, which trains nothing; remove \
                 it"
            )))
        };
        if source::is_run_file(data) {
            return Err(Failure::arguments(
                "--method private-prediction takes its settings from flags; name the private data \
                 file in place of a run file",
            ));
        }
        if let Some(flag) = self.keys.training_flag() {
            return no_effect(flag);
        }
        if self.rows.names_top_p() {
            return no_effect("--top-p");
        }
        if self.source.publishes_codes() {
            return Err(Failure::arguments(
                "--publish-codes is for --method training; list the values of the control codes",
            ));
        }
        if self.seed.is_some() && !self.budget.is_empty() {
            return Err(Failure::arguments(
                "rows with --seed have no guarantee, so no budget can pay for them; remove --seed or \
                 --register",
            ));
        }
        let has_no_effect = |change: &&String| {
            let key = change.split('=').next().unwrap_or_default().trim();
            let codes = key == "synthesis.codes" || key.starts_with("synthesis.codes.");
            !codes && !KEYS.contains(&key)
        };
        match self.set.changes().iter().find(has_no_effect) {
            Some(change) => no_effect(&format!("--set {change}")),
            None => Ok(()),
        }
    }

    /// Reserves the cost, before anything of the data is read.
    fn reserve(&self, budget: Option<Budget>, asked: &Asked) -> Outcome<Option<LedgerBooking>> {
        let Some(budget) = budget else { return Ok(None) };
        let cost = Cost {
            unit: unit(asked.run.data()),
            threat: Threat::Central,
            delta: asked.delta,
            releases: releases(asked.range, asked.most_tokens),
        };
        Ok(Some(LedgerBooking::reserve(budget, cost, PREDICTION, &self.out)?))
    }

    /// Reads the private rows, and creates the folder with everything needed to resume.
    fn begin(&self, asked: Asked) -> Outcome<Begun> {
        let Asked { run, public, epsilon, delta, range, most_tokens, units } = asked;
        let secret = self.secret()?;
        let groups = Groups::read(run.data(), &public.classes, &secret)?;
        let declared = units.is_some();
        let units = units.unwrap_or(groups.units);
        let classes = public.classes.len() as u64;
        let rows = self.rows.rows().unwrap_or((units / UNITS_PER_TEXT).max(classes));
        if rows < classes {
            return Err(Failure::arguments(format!(
                "{rows} rows are fewer than the {classes} classes; ask for more with --rows, or \
                 declare fewer values"
            )));
        }
        if rows > units / 2 {
            return Err(Failure::arguments(format!(
                "{units} units are too few for {rows} rows: each steers one row only, and a row needs \
                 at least 2, better {UNITS_PER_TEXT}; see --rows"
            )));
        }
        if units > rows * MOST_UNITS_PER_TEXT {
            return Err(Failure::arguments(format!(
                "{} units per text need too much memory; ask for at least {} with --rows",
                units / rows,
                units.div_ceil(MOST_UNITS_PER_TEXT)
            )));
        }
        let section = run.synthesis().cloned().unwrap_or_default();
        let prediction = Prediction {
            format: Summary::FORMAT,
            model: run.model().name(),
            data: run.data().clone(),
            codes: section.codes,
            rows,
            digest: groups.digest(),
            data_format: section.format,
            temperature: section.temperature,
            top_k: self.method.top_k.unwrap_or(TOP_K),
            most_tokens,
            epsilon,
            delta,
            range,
            units,
            units_are_declared: declared,
            seed: self.seed,
        };
        let choice = prediction.choice();
        output::note(format_args!(
            "{rows} texts of up to {most_tokens} tokens, each steered by about {:.0} units; their \
             log-probabilities are clipped to within {:.2} of the public model's",
            choice.divisor, choice.clip
        ));
        let folder = RunFolder::create(&self.out)?;
        if self.seed.is_none() {
            folder.keep_secret(secret.bytes())?;
        }
        prediction.write(&folder)?;
        Ok(Begun { folder, prediction, public, groups: Some((groups, secret)) })
    }

    fn secret(&self) -> Outcome<Secret> {
        match self.seed {
            Some(seed) => Ok(Secret::from_seed(seed)),
            None => Ok(Secret::from_system().map_err(undertone::Error::NoRandomness)?),
        }
    }

    /// Writes the texts that are missing.
    fn resume(
        &self,
        begun: Begun,
        stop: &Stop,
        watch: &mut dyn FnMut(u64, u64),
    ) -> Outcome<(Subject, SampledFacts)> {
        let Begun { folder, prediction, public, groups } = begun;
        let paths = folder.synthetic();
        let facts = match paths.facts().exists() {
            true => SampledFacts::read(&paths.facts())?,
            false => {
                let (groups, secret) = match groups {
                    Some(known) => known,
                    None => {
                        let secret = match prediction.seed {
                            Some(seed) => Secret::from_seed(seed),
                            None => Secret::from_bytes(folder.read_secret()?),
                        };
                        let groups = Groups::read(&prediction.data, &public.classes, &secret)?;
                        self.check_same(&groups, &prediction)?;
                        (groups, secret)
                    }
                };
                self.write_texts(&folder, &prediction, &public, (&groups, &secret), stop, watch)?
            }
        };
        folder.forget_secrets()?;
        let ledger = Ledger::read(folder.ledger())?;
        if ledger.entries() == 0 || ledger.terms().announced != prediction.announced() {
            return Err(of_other_rows(&folder));
        }
        let guarantee = ledger.guarantee(prediction.delta)?;
        let not_private_because = prediction.not_private_because();
        let Classes { columns, classes, .. } = public.classes;
        let subject = Subject {
            private: not_private_because.is_none(),
            not_private_because,
            guarantee: Some(guarantee),
            data: prediction.data,
            model: prediction.model,
            codes: columns,
            classes: classes.into_iter().map(|class| class.values).collect(),
        };
        Ok((subject, facts))
    }

    /// Rejects other data than those that the first texts were written from: a unit whose rows have
    /// changed could steer a second text.
    fn check_same(&self, groups: &Groups, prediction: &Prediction) -> Outcome {
        match groups.digest() == prediction.digest {
            true => Ok(()),
            false => Err(Failure::arguments(format!(
                "{} has changed since the rows in {} were begun; restore it, or start anew in another \
                 folder",
                prediction.data.train.display(),
                self.out.display()
            ))),
        }
    }

    fn write_texts(
        &self,
        folder: &RunFolder,
        prediction: &Prediction,
        public: &Public,
        (groups, secret): (&Groups, &Secret),
        stop: &Stop,
        watch: &mut dyn FnMut(u64, u64),
    ) -> Outcome<SampledFacts> {
        let Public { loaded, tokenizer, classes } = public;
        let mut writer =
            Writer::new(&loaded.model, tokenizer, prediction, (classes, groups), secret)?;
        let terms = terms(prediction, classes, secret.ledger_id())?;
        let path = folder.ledger();
        let ledger = Ledger::open_or_create(&path, terms.clone())?;
        if *ledger.terms() != terms {
            return Err(of_other_rows(folder));
        }
        let mut ledger = RunLedger::alone(ledger, &path, prediction.delta);
        let event = Event::Exponential { range: prediction.range };
        writer.permit(&ledger.record(0, event, prediction.most_tokens)?)?;
        let bar = rows::progress(prediction.rows);
        stop.steps_begin();
        let sampled = writer.write_all(classes, &folder.synthetic().journal(), &mut |texts| {
            bar.set_position(texts);
            watch(texts, prediction.rows);
            match stop.asked.load(Ordering::SeqCst) {
                true => Err(undertone::Error::Stopped { step: texts, steps: prediction.rows }),
                false => Ok(()),
            }
        });
        bar.finish_and_clear();
        match sampled {
            Err(undertone::Error::Stopped { .. }) => Err(Failure::Stopped(format!(
                "stopped while writing; continue with: {}",
                again(&self.out)
            ))),
            done => Ok(export(folder, prediction, classes, &done?)?),
        }
    }
}

/// The ledger in a folder was replaced: it would state the ε of something else.
fn of_other_rows(folder: &RunPaths) -> Failure {
    Failure::arguments(format!(
        "{} belongs to other rows; restore the original ledger",
        folder.ledger().display()
    ))
}

/// Rows that have begun: their folder, and what they are made from.
struct Begun {
    folder: RunFolder,
    prediction: Prediction,
    public: Public,
    /// The private rows and the secret, if they are at hand.
    groups: Option<(Groups, Secret)>,
}
