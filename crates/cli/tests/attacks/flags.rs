//! Damaged command lines.

use super::commands::Case;
use super::mutate::{NUMBERS, TEXTS};
use super::random::Random;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A damaged command line.
pub struct Line {
    pub arguments: Vec<OsString>,
    /// Whether it is certainly invalid.
    pub is_bad: bool,
}

/// Keys of a run file.
const KEYS: [&str; 30] = [
    "privacy.epsilon",
    "privacy.delta",
    "privacy.clip",
    "privacy.schedule",
    "privacy.method",
    "privacy.mode",
    "privacy.local.after",
    "privacy.local.dims",
    "privacy.rap_ft.relevance",
    "privacy.anadp.form",
    "training.epochs",
    "training.batch",
    "training.learning_rate",
    "training.learning_rate_schedule",
    "training.warmup",
    "training.weight_decay",
    "training.momentum",
    "training.betas",
    "training.optimizer",
    "training.seed",
    "training.dropout",
    "data.max_tokens",
    "data.labels",
    "data.text",
    "data.train",
    "data.author",
    "data.most_per_author",
    "model.tuning",
    "compute.micro_batch",
    "compute.checkpoint_every",
];

/// Settings within their ranges, which therefore get further than others.
const SETTINGS: [&str; 12] = [
    "privacy.method=anadp",
    "privacy.method=adaclip",
    "privacy.method=dp-forward",
    "privacy.schedule=ewpba",
    "privacy.epsilon=1e-5",
    "privacy.clip={ per_layer = 1e-10 }",
    "privacy.clip=10000000000",
    "training.learning_rate=1000000",
    "training.batch=60",
    "data.max_tokens=1",
    "data.author=who",
    "model.tuning={ adapter = { size = 65536 } }",
];

/// Paths that cannot be read, or must not be written.
const PATHS: [&str; 7] = [
    "./nowhere/file.jsonl",
    "model",
    "rows.tsv",
    "rows.tsv/file.jsonl",
    "private/ledger.jsonl",
    "/proc/self/nowhere.jsonl",
    "",
];

/// A flag with its value, or a single word.
type Unit = Vec<OsString>;

pub fn damage(random: &mut Random, case: &Case) -> Line {
    let (verbs, mut units) = units(case);
    let at = random.below(units.len());
    let mut is_bad = false;
    match random.below(9) {
        0 => {
            units.remove(at);
        }
        1 => units.push(units[at].clone()),
        2 | 3 => {
            let value = value(random);
            is_bad = set_value(&mut units[at], &value);
        }
        4 => {
            let unknown = *random.pick(&["--colour", "--colour=red", "-Z", "--outt", "---"]);
            units.insert(at, vec![unknown.into()]);
            is_bad = true;
        }
        5 => is_bad = set_value(&mut units[at], OsStr::from_bytes(b"x\xff\xfe\xc3")),
        6 => {
            let path = OsString::from(*random.pick(&PATHS));
            is_bad = set_value(&mut units[at], &path);
        }
        // A flag from the help, with or without a sensible value.
        _ => {
            let flags = case.flags();
            let (flag, takes) = random.pick(&flags).clone();
            if flag == "--set" {
                let key = *random.pick(&KEYS);
                let change = match random.below(3) {
                    0 => OsString::from(*random.pick(&SETTINGS)),
                    _ => joined(&format!("{key}="), &value(random)),
                };
                units.push(vec!["--set".into(), change]);
            } else if takes.is_some() {
                units.push(vec![flag.clone().into()]);
                // A name without a slash would be looked up on the Hub.
                let value = value(random);
                let value = if is_model(&flag) { joined("./no", &value) } else { value };
                units.last_mut().unwrap().push(value);
            } else {
                units.push(vec![flag.into()]);
            }
        }
    }
    Line { arguments: verbs.into_iter().chain(units.into_iter().flatten()).collect(), is_bad }
}

/// The words that name the command, and the remaining words grouped by flag.
fn units(case: &Case) -> (Vec<OsString>, Vec<Unit>) {
    let arguments = case.arguments();
    let (verbs, others) = arguments.split_at(case.verbs());
    let mut units: Vec<Unit> = Vec::new();
    for word in others {
        let is_flag = |word: &OsStr| word.as_bytes().starts_with(b"--");
        match units.last_mut() {
            Some(last) if last.len() == 1 && is_flag(&last[0]) && !is_flag(word) => {
                last.push(word.clone());
            }
            _ => units.push(vec![word.clone()]),
        }
    }
    (verbs.to_vec(), units)
}

fn is_model(flag: &str) -> bool {
    ["--model", "--tagger"].contains(&flag)
}

fn joined(start: &str, end: &OsStr) -> OsString {
    OsString::from_vec([start.as_bytes(), end.as_bytes()].concat())
}

fn value(random: &mut Random) -> OsString {
    match random.below(8) {
        0 => (*random.pick(&TEXTS)).into(),
        1 => OsString::from_vec(vec![b'a'; 70_000]),
        _ => (*random.pick(&NUMBERS)).into(),
    }
}

/// Replaces the value of a flag or a word. Returns whether the result is certainly invalid, such as
/// text or a negative value in place of a number.
fn set_value(unit: &mut Unit, value: &OsStr) -> bool {
    let flag = unit.first().filter(|_| unit.len() == 2).and_then(|flag| flag.to_str());
    let value = match flag {
        Some(flag) if is_model(flag) => joined("./no", value),
        _ => value.to_owned(),
    };
    let number = |text: &OsStr| text.to_str().and_then(|text| text.parse::<f64>().ok());
    let Some(last) = unit.last_mut() else { return false };
    let (was, is) = (number(last), number(&value));
    *last = value;
    was.is_some() && is.is_none_or(|is| is.is_nan() || is < 0.0)
}
