//! docs/shareable.md compared with real files: its table lists every field of every file of a run
//! folder, of the card and of a report, and no shareable file contains a private field.

use crate::bench::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use undertone_report::{Block, Document, Options, Run, report};

/// A section of the table: a file, whether it may be shared, and the description of each field.
struct FileRows {
    shareable: bool,
    rows: Vec<(String, String)>,
}

const KINDS: [&str; 4] = ["public", "ledger", "post-processing", "private"];

/// The tables of docs/shareable.md by file name, which may end in `*`.
fn table() -> BTreeMap<String, FileRows> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/shareable.md");
    let text = fs::read_to_string(path).unwrap();
    let mut files = BTreeMap::new();
    let mut names: Vec<String> = Vec::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            names = heading.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            for name in &names {
                let shareable = !heading.ends_with("(private)");
                files.insert(name.clone(), FileRows { shareable, rows: Vec::new() });
            }
        } else if let Some(row) = line.strip_prefix("| `") {
            let (fields, rest) = row.split_once(" | ").unwrap();
            let kind = rest.split([' ', ';', ':', ',']).next().unwrap();
            assert!(KINDS.contains(&kind), "{line}");
            let fields = format!("`{fields}");
            for field in fields.split('`').skip(1).step_by(2) {
                for name in &names {
                    let rows = &mut files.get_mut(name).unwrap().rows;
                    rows.push((field.to_owned(), kind.to_owned()));
                }
            }
        }
    }
    files
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => pattern == name,
    }
}

/// The paths of the leaves of a JSON value; list elements share one path.
fn leaves(path: &str, value: &Value, paths: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            leaves(&path, value, paths);
        }),
        Value::Array(all) if all.iter().any(Value::is_object) => {
            all.iter().for_each(|value| leaves(path, value, paths));
        }
        _ => {
            paths.insert(path.to_owned());
        }
    }
}

/// The fields of a file according to its format; drawings and tokenizers have none.
fn fields(path: &Path) -> BTreeSet<String> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let bytes = fs::read(path).unwrap();
    let text = || String::from_utf8(bytes.clone()).unwrap();
    let mut fields = BTreeSet::new();
    let json = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
    match name.rsplit_once('.').map_or("", |(_, ending)| ending) {
        _ if name.starts_with("tokenizer") => {}
        "json" | "head" => leaves("", &json(&text()), &mut fields),
        "jsonl" => text().lines().for_each(|line| leaves("", &json(line), &mut fields)),
        "toml" => {
            let table: toml::Table = text().parse().unwrap();
            leaves("", &serde_json::to_value(table).unwrap(), &mut fields);
        }
        "safetensors" => {
            let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
            let about = header.metadata().clone().unwrap_or_default();
            fields.extend(about.into_keys().map(|key| format!("metadata.{key}")));
            fields.extend(header.tensors().into_keys());
        }
        // A row of a table, or a list under a heading.
        "md" => {
            let mut heading = "Front matter".to_owned();
            for line in text().lines() {
                if let Some(title) = line.strip_prefix("## ") {
                    heading = title.to_owned();
                } else if let Some(row) = line.strip_prefix("| ") {
                    let cell = row.split(" |").next().unwrap();
                    fields.insert(format!("{heading}: {cell}"));
                } else if line.starts_with("- ") {
                    fields.insert(format!("{heading}: list"));
                }
            }
            fields.retain(|field| !field.ends_with(": |"));
        }
        _ if name.contains("tfevents") => fields.extend(scalars(&bytes)),
        _ => {}
    }
    fields
}

/// Names of TensorBoard scalars: a tag is a separate field, preceded by its length.
fn scalars(bytes: &[u8]) -> Vec<String> {
    let tags = [
        "loss",
        "learning_rate",
        "gradient_norm",
        "clipped",
        "epsilon",
        "validation/accuracy",
        "validation/f1",
        "validation/loss",
        "validation/perplexity",
    ];
    let holds = |tag: &&str| {
        let field = [&[0x0a, tag.len() as u8], tag.as_bytes()].concat();
        bytes.windows(field.len()).any(|part| part == field)
    };
    tags.into_iter().filter(holds).map(str::to_owned).collect()
}

fn files_of(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files_of(&path, files),
            false => files.push(path),
        }
    }
}

/// Fields that are missing from the table, or private in a shareable file.
fn unlisted(
    table: &BTreeMap<String, FileRows>,
    name: &str,
    fields: &BTreeSet<String>,
) -> Vec<String> {
    let Some((_, rows)) = table.iter().find(|(pattern, _)| fits(pattern, name)) else {
        return vec![name.to_owned()];
    };
    let mut wrong = Vec::new();
    for field in fields {
        match rows.rows.iter().find(|(pattern, _)| fits(pattern, field)) {
            None => wrong.push(format!("{name}: {field}")),
            Some((_, kind)) if kind == "private" && rows.shareable => {
                wrong.push(format!("{name}: {field} is private"));
            }
            Some(_) => {}
        }
    }
    wrong
}

/// Fields of a report: the facts and the headers of tables and charts, by section.
fn fields_of_report(document: &Document) -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    for section in &document.sections {
        for block in &section.blocks {
            match block {
                Block::Facts(facts) => {
                    fields
                        .extend(facts.iter().map(|(name, _)| format!("{}: {name}", section.title)));
                }
                Block::Table(table) => {
                    fields.extend(table.head.iter().map(|head| format!("{}: {head}", table.title)));
                }
                Block::Chart(chart) => {
                    fields.insert(format!("{}: {}", section.title, chart.title));
                }
                _ => {}
            }
        }
    }
    fields
}

const TENSORBOARD: &str = "compute.tensorboard=true";
const LOG: &str = "compute.log=jsonl";

/// Every kind of run, with the name of its task.
fn runs(classifier: &Bench, language: &Bench) -> Vec<PathBuf> {
    let public = classifier.public();
    let validation = format!("data.validation={:?}", public.to_str().unwrap());
    let lora = "model.tuning={ lora = { rank = 2 } }";
    let set = |bench: &Bench, out: &str, changes: &[&str]| {
        let short = ["--set", "training.epochs=1"];
        let changes = changes.iter().flat_map(|change| match change.strip_prefix('-') {
            Some(key) => ["--unset", key],
            None => ["--set", *change],
        });
        bench.train(out, &short.into_iter().chain(changes).collect::<Vec<_>>());
        bench.path(out)
    };
    let read_labels = ["-data.labels", TENSORBOARD, LOG, lora, "compute.checkpoint_every=2"];
    let stop = "training.stop_early={ patience = 1, keep = \"best\" }";
    let stopped = [&validation, "data.validation_is_public=true", stop, LOG];
    let adaptive = "privacy.clip={ adaptive = { quantile = 0.5, initial = 1.0 } }";
    let folders = vec![
        set(classifier, "found", &read_labels),
        set(classifier, "stopped", &stopped),
        set(classifier, "none", &["privacy.method=none", "data.hold_out=0.2"]),
        set(classifier, "rap-ft", &["privacy.method=rap-ft", lora]),
        set(classifier, "anadp", &["privacy.method=anadp", "model.tuning={ ia3 = {} }"]),
        set(classifier, "quantized", &["model.quantize=nf4", lora, "data.author=who"]),
        set(
            classifier,
            "adapter",
            &[adaptive, "compute.log=csv", "model.tuning={ adapter = { size = 4 } }"],
        ),
        set(classifier, "local", &["privacy.method=dp-forward", "model.tuning=head"]),
        set(classifier, "mvg", &["privacy.method=mvg", "privacy.mvg.width=8"]),
        set(language, "language", &["training.average={ ema = 0.9 }", "data.on_bad_row=skip"]),
    ];
    let audited = classifier.path("found");
    run(&["audit", "membership", "--run", audited.to_str().unwrap(), "--examples", "20"]);
    folders
}

#[test]
fn every_field_is_listed_and_private_ones_are_in_private_files() {
    let table = table();
    // A base model without classes: the run reads them from the training file.
    let classifier = Bench::classifier();
    let config = String::from_utf8(classifier.bytes("model/config.json")).unwrap();
    let config = config.replace("ForSequenceClassification", "Model");
    fs::write(classifier.path("model/config.json"), config).unwrap();
    let more = "the sun\tneutral\tperson 70\n".repeat(20);
    let rows = String::from_utf8(classifier.bytes("rows.tsv")).unwrap() + &more;
    fs::write(classifier.path("rows.tsv"), rows).unwrap();
    let language = Bench::new("gpt2-causal-lm", "tokenizer-bpe", "task = \"language-modeling\"");
    let folders = runs(&classifier, &language);
    let mut wrong = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for folder in &folders {
        let mut files = Vec::new();
        files_of(folder, &mut files);
        for path in files {
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            wrong.extend(unlisted(&table, &name, &fields(&path)));
            seen.insert(name);
        }
        let run = [Run::open(folder).unwrap()];
        for (name, public) in [("a report", false), ("a public report", true)] {
            let document = report(&run, Options { public }).unwrap();
            wrong.extend(unlisted(&table, name, &fields_of_report(&document)));
        }
    }
    let all = Run::open_all(&folders).unwrap();
    for (name, public) in [("a report", false), ("a public report", true)] {
        let document = report(&all, Options { public }).unwrap();
        wrong.extend(unlisted(&table, name, &fields_of_report(&document)));
    }
    assert!(wrong.is_empty(), "not in docs/shareable.md:\n{:#?}", wrong);
    for name in table.keys().filter(|name| !name.starts_with("a ")) {
        assert!(
            seen.iter().any(|file| fits(name, file)) || NOT_HERE.contains(&name.as_str()),
            "{name}"
        );
    }
}

/// Files of runs in progress, and files that exist only for other models or kinds of runs, such as
/// runs on rows in memory. The tests of `synthesize` cover those of synthetic rows.
const NOT_HERE: [&str; 25] = [
    "private/replay.json",
    "private/prediction.json",
    "undertone.manifest.json",
    "undertone.manifest.json.minisig",
    "synthetic/evaluation.json",
    "private/evaluation.json",
    "statistics.json",
    "synthetic/journal.jsonl",
    "synthetic/synthesis.json",
    "synthetic/data.csv",
    "synthetic/data.jsonl",
    "synthetic/data.parquet",
    "synthetic/ledger.jsonl",
    "synthetic/README.md",
    "private/train.jsonl",
    "private/validation.jsonl",
    "secret.key",
    "identity.json",
    "run.lease",
    "sweep.lock",
    "selection.json",
    "model/special_tokens_map.json",
    "model/generation_config.json",
    "adapter/special_tokens_map.json",
    "adapter/chat_template.jinja",
];

/// The fields of all files of a run's folder are in the table.
pub fn assert_all_listed(folder: &Path) {
    let table = table();
    let mut files = Vec::new();
    files_of(folder, &mut files);
    for path in files {
        let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
        assert_eq!(unlisted(&table, name, &fields(&path)), [""; 0]);
    }
}

/// The fields of all files of a selection's folder are in the table.
pub fn assert_selection_is_listed(folder: &Path) {
    let table = table();
    let mut files = Vec::new();
    files_of(folder, &mut files);
    for path in files {
        let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
        let name = name.strip_prefix("selected/").unwrap_or(name);
        assert_eq!(unlisted(&table, name, &fields(&path)), [""; 0]);
    }
}

/// A field that is private in one file must not be shareable in another.
#[test]
fn the_table_does_not_contradict_itself() {
    let table = table();
    let of = |kind: bool| table.values().filter(move |rows| rows.shareable == kind);
    let private: BTreeSet<&str> = of(false)
        .flat_map(|rows| &rows.rows)
        .filter(|(_, kind)| kind == "private")
        .map(|(field, _)| field.as_str())
        .collect();
    assert!(private.contains("throughput.seconds") && private.contains("gradient_norm"));
    let is_name = |field: &str| !field.is_empty() && !field.ends_with('*');
    for (field, kind) in of(true).flat_map(|rows| &rows.rows) {
        let is_private = private.contains(field.as_str()) && is_name(field);
        assert!(kind != "private" && !is_private, "{field}");
    }
}
