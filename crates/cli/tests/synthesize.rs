//! `undertone synthesize`: what is released, what is sampled, and what goes wrong.

use crate::bench::{Sentences, note_sentence, run};
use crate::shareable::assert_all_listed;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const CODES: [&str; 3] = ["bill", "visit", "nurse"];

/// The demo's model, and letters.csv with its vocabulary: 100 people with three letters each, half
/// of which are about the bill.
struct Letters {
    folder: tempfile::TempDir,
}

impl Letters {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        run(&["demo", "--data-only", "--letters", "256", "--out", folder.path().to_str().unwrap()]);
        let letters = Self { folder };
        letters.write("letters.csv", 300);
        letters
    }

    fn write(&self, name: &str, rows: usize) {
        let openings = ["hello", "dear team", "good morning", "good evening", "dear all"];
        let row = |i: usize| {
            let about = CODES[[0, 1, 0, 2][i % 4]];
            let text = format!("{} . please tell me when the {about} is free", openings[i % 5]);
            format!("{text},{about},person {}\n", i / 3)
        };
        let rows: String = (0..rows).map(row).collect();
        fs::write(self.path(name), format!("letter,topic,who\n{rows}")).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }

    /// The command for a run on a file.
    fn command(&self, data: &str, out: &str, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
        command.arg("synthesize").arg(self.path(data)).arg("--out").arg(self.path(out));
        command.arg("--model").arg(self.path("model")).args(["--device", "cpu"]).args(more);
        command
    }

    /// A run on letters.csv with short training.
    fn usual(&self, out: &str, more: &[&str]) -> Command {
        let mut command = self.command("letters.csv", out, &["--text", "letter"]);
        command.args(["--code", "topic=bill,visit,nurse", "--author", "who"]);
        command.args(["--epsilon", "8", "--max-tokens", "48", "--epochs", "1", "--batch", "25"]);
        command.args(["--set", "privacy.delta=1e-3", "--set", "synthesis.statistics_share=0.2"]);
        command.args(more);
        command
    }

    fn again(&self, out: &str, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
        command.args(["synthesize", "--device", "cpu", "--out"]).arg(self.path(out)).args(more);
        command.output().unwrap()
    }
}

fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn refused(output: &Output, about: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    // Notes may precede it.
    let sentence = error.lines().last().unwrap_or_default().to_owned() + "\n";
    note_sentence(&sentence);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        sentence.contains(about) && sentence.starts_with("error: "),
        "said {error}, not {about}"
    );
}

/// The rows of a CSV file whose values have no quotes.
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split(',').collect()).collect()
}

/// The histograms are released with the noise of the ledger's first entry, within the budget; rows
/// have the quotas that follow; nothing else depends on the training file.
#[test]
fn private_letters_become_synthetic_ones() {
    let letters = Letters::new();
    let output = letters.usual("out", &["--rows", "60", "--json"]).output().unwrap();
    succeeds(&output);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["private"], true, "{answer}");
    assert_eq!(answer["guarantee"]["unit"], "user");
    let epsilon = answer["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
    assert!(epsilon <= 8.0 && epsilon > 7.5, "{epsilon}");

    // The ledger begins with the statistics.
    let ledger = letters.read("out/ledger.jsonl");
    let entries: Vec<Value> =
        ledger.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let event = &entries[1]["spent"]["event"];
    assert_eq!(event["kind"], "gaussian", "{event}");
    assert_eq!(event["sensitivity"].as_f64().unwrap(), 2_f64.sqrt());
    assert_eq!(entries.len(), 1 + 1 + 4, "a step is an entry");
    let statistics = letters.json("out/statistics.json");
    let (noise, std) = (event["noise_multiplier"].as_f64().unwrap(), &statistics["noise_std"]);
    assert!((std.as_f64().unwrap() / noise - 1.0).abs() < 1e-6, "{std} for {noise}");

    // One row of each user counts, so the counts are whole numbers, with noise: within eight
    // standard deviations of the expected values. (One of them may be whole by chance, since noise
    // is drawn from a grid.)
    let mut exact: BTreeMap<String, f64> = BTreeMap::new();
    let data = letters.read("letters.csv");
    for row in rows(&data).iter().skip(1) {
        *exact.entry(row[1].to_owned()).or_default() += 1.0 / 3.0;
    }
    let classes = statistics["classes"].as_array().unwrap().iter();
    let errors: Vec<f64> = classes
        .map(|class| {
            let (value, weight) = (class["values"][0].as_str().unwrap(), class["weight"].as_f64());
            (weight.unwrap() - exact[value]).abs()
        })
        .collect();
    // Users have one of 20 lists of rows.
    let of_choice = (20.0 * 0.25_f64).sqrt() * 5.0;
    let std = (noise * noise + of_choice * of_choice).sqrt();
    assert!(errors.iter().all(|error| *error < 8.0 * std), "{errors:?}");
    let weights = statistics["classes"].as_array().unwrap().iter().map(|c| &c["weight"]);
    let weights: Vec<f64> = weights.map(|weight| weight.as_f64().unwrap()).collect();
    assert!(weights.iter().any(|weight| weight.fract().abs() > 1e-6), "{weights:?}");
    let lengths = statistics["lengths"].as_array().unwrap();
    let noised = lengths.iter().filter(|count| count.as_f64().unwrap().abs() > 1e-9).count();
    assert!(noised + 8 > lengths.len(), "{lengths:?}");

    // The rows and the files that accompany them.
    let synthetic = letters.read("out/synthetic/data.csv");
    let written = rows(&synthetic);
    assert_eq!(written[0], ["letter", "topic"]);
    assert_eq!(written.len(), 61);
    assert!(written.iter().skip(1).all(|row| CODES.contains(&row[row.len() - 1])), "{written:?}");
    let of_bill = written.iter().filter(|row| row[row.len() - 1] == "bill").count() as u64;
    assert_eq!(answer["sampled"]["rows_by_class"][0], of_bill);
    assert_eq!(letters.read("out/synthetic/ledger.jsonl"), ledger);
    let card = letters.read("out/synthetic/README.md");
    assert!(card.contains("ε, proved") && card.contains("Rows by topic"), "{card}");
    assert_all_listed(&letters.path("out"));
    run(&["budget", "ledger", letters.path("out").to_str().unwrap()]);

    // Finished sampling is not repeated, and other settings are refused.
    succeeds(&letters.again("out", &["--rows", "60"]));
    refused(&letters.again("out", &["--rows", "61"]), "sampled with other settings");
    // The same rows are sampled if every one of them is in the training file, and without that
    // file: no filter depends on private text.
    fs::write(letters.path("letters.csv"), &synthetic).unwrap();
    fs::remove_dir_all(letters.path("out/synthetic")).unwrap();
    succeeds(&letters.again("out", &[]));
    assert_eq!(letters.read("out/synthetic/data.csv"), synthetic);
    fs::remove_file(letters.path("letters.csv")).unwrap();
    fs::remove_dir_all(letters.path("out/synthetic")).unwrap();
    succeeds(&letters.again("out", &[]));
    assert_eq!(letters.read("out/synthetic/data.csv"), synthetic);
    // The first rows have the classes in about the same shares as all.
    let of_bill_first =
        written[1..21].iter().filter(|row| row[row.len() - 1] == "bill").count() as f64;
    assert!((of_bill_first - of_bill as f64 / 3.0).abs() <= 6.0, "{of_bill_first} of {of_bill}");
    // Any number of rows in any format has no additional cost.
    fs::remove_dir_all(letters.path("out/synthetic")).unwrap();
    succeeds(&letters.again("out", &["--rows", "7", "--format", "jsonl"]));
    let first = letters.read("out/synthetic/data.jsonl");
    let first: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    assert!(first["letter"].is_string() && first["topic"].is_string(), "{first}");
    // Without flags, or with some, the rows are kept, and can be evaluated.
    succeeds(&letters.again("out", &["--evaluate"]));
    succeeds(&letters.again("out", &["--rows", "7", "--evaluate"]));
    assert_eq!(letters.read("out/synthetic/data.jsonl").lines().count(), 7);
    assert_eq!(letters.read("out/ledger.jsonl"), ledger);
    // An ε that the ledger does not prove is not written to a data card.
    let summary = letters.read("out/summary.json");
    let lower = summary.replacen(&format!("{epsilon}"), "1.0", 1);
    assert_ne!(summary, lower);
    fs::write(letters.path("out/summary.json"), lower).unwrap();
    fs::remove_dir_all(letters.path("out/synthetic")).unwrap();
    refused(&letters.again("out", &["--rows", "7"]), "ledger");
    assert!(!letters.path("out/synthetic").exists());
}

/// Kills the process when `file` has this many lines. Returns whether the process was still
/// running.
fn kill_at(mut command: Command, file: &Path, lines: usize) -> bool {
    let mut child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while fs::read_to_string(file).map_or(0, |text| text.lines().count()) < lines
        && child.try_wait().unwrap().is_none()
        && start.elapsed() < Duration::from_secs(120)
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    let was_alive = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    was_alive
}

/// A process that is killed while training or sampling leaves everything needed to end with the
/// same rows, and the same secret gives the same data.
#[test]
fn a_killed_process_resumes_with_the_same_rows() {
    let letters = Letters::new();
    let more = ["--seed", "3", "--rows", "300", "--set", "compute.checkpoint_every=1"];
    succeeds(&letters.usual("whole", &more).output().unwrap());
    let whole = letters.read("whole/synthetic/data.csv");
    assert_eq!(rows(&whole).len(), 301);
    let metrics = letters.path("broken/metrics.jsonl");
    let in_training = kill_at(letters.usual("broken", &more), &metrics, 2);
    let journal = letters.path("broken/synthetic/journal.jsonl");
    let mut killed = 0;
    for lines in [40, 120, 200] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
        command.args(["synthesize", "--device", "cpu", "--out"]).arg(letters.path("broken"));
        killed += usize::from(kill_at(command, &journal, lines));
    }
    assert!(in_training && killed > 0, "{in_training}, {killed}");
    succeeds(&letters.again("broken", &[]));
    assert_eq!(letters.read("broken/synthetic/data.csv"), whole);
    let journals =
        ["whole", "broken"].map(|out| letters.read(&format!("{out}/synthetic/journal.jsonl")));
    assert_eq!(journals[0], journals[1]);
    let (first, second) =
        (letters.json("whole/statistics.json"), letters.json("broken/statistics.json"));
    assert_eq!(first, second, "the same noise");
    let entries = |out: &str| letters.read(&format!("{out}/ledger.jsonl")).lines().count();
    assert_eq!(entries("whole"), entries("broken"), "every release is recorded once");
    // Sampling again with flags resumes without them.
    fs::remove_dir_all(letters.path("broken/synthetic")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.args(["synthesize", "--device", "cpu", "--rows", "250", "--format", "jsonl", "--out"]);
    command.arg(letters.path("broken"));
    kill_at(command, &journal, 40);
    succeeds(&letters.again("broken", &[]));
    assert_eq!(letters.read("broken/synthetic/data.jsonl").lines().count(), 250);
}

/// Without a guarantee, counts are exact and the card says so.
#[test]
fn a_run_without_privacy_has_exact_counts() {
    let letters = Letters::new();
    let mut command = letters.command("letters.csv", "out", &["--text", "letter"]);
    command.args(["--code", "topic=bill,visit,nurse", "--max-tokens", "48", "--epochs", "1"]);
    command.args(["--batch", "25", "--rows", "40", "--format", "parquet"]);
    command.args(["--set", "privacy.method=none"]);
    succeeds(&command.output().unwrap());
    let statistics = letters.json("out/statistics.json");
    assert!(statistics.get("noise_std").is_none());
    let weights: Vec<f64> = (statistics["classes"].as_array().unwrap().iter())
        .map(|class| class["weight"].as_f64().unwrap())
        .collect();
    assert_eq!(weights, [150.0, 75.0, 75.0]);
    assert_eq!(letters.json("out/synthetic/synthesis.json")["rows_by_class"][0], 20);
    assert!(letters.read("out/synthetic/README.md").contains("No guarantee"));
    assert!(!letters.path("out/synthetic/ledger.jsonl").exists());
    assert!(fs::read(letters.path("out/synthetic/data.parquet")).unwrap().starts_with(b"PAR1"));
}

#[test]
fn mistakes_are_one_sentence_each() {
    let sentences = Sentences::start();
    let letters = Letters::new();
    letters.write("few.csv", 50);
    let usual = ["--text", "letter", "--epsilon", "8", "--max-tokens", "48"];
    let with = |data: &str, more: &[&str], about: &str| {
        refused(&letters.command(data, "refused", more).output().unwrap(), about);
        let _ = fs::remove_dir_all(letters.path("refused"));
    };
    for (code, about) in [
        ("topic", "the values of topic are private"),
        ("mood=a,b", "no column \"mood\""),
        ("topic=bill,visit", "nurse"),
        ("topic=bill", "at least two different values"),
        ("letter=a,b", "used twice"),
        ("topic=bill,visit,xyz,uvw,nurse", "have the same tokens"),
    ] {
        with("letters.csv", &[&usual[..], &["--code", code]].concat(), about);
    }
    let short = ["--text", "letter", "--code", "topic=bill,visit,nurse", "--epochs", "1"];
    let short = [&short[..], &["--batch", "25", "--set", "privacy.delta=1e-3"]].concat();
    let letter = |more: &[&str], about: &str| {
        with("letters.csv", &[&short[..], more].concat(), about);
    };
    letter(&["--epsilon", "0.1", "--max-tokens", "48"], "noise of std");
    letter(&["--epsilon", "8", "--max-tokens", "6"], "at most a quarter of data.max_tokens");
    letter(&["--set", "privacy.noise_multiplier=1"], "share of privacy.epsilon");
    letter(&["--epsilon", "8", "--rows", "0"], "synthesis.rows");
    let few = [&short[..], &["--epsilon", "4", "--max-tokens", "48"]].concat();
    with("few.csv", &few, "noise of std");
    let out = letters.path("nothing");
    let nothing = letters.again("nothing", &[]);
    refused(&nothing, "contains no run to resume");
    assert!(!out.exists());
    let mut lacking = Command::new(env!("CARGO_BIN_EXE_undertone"));
    lacking.arg("synthesize").arg(letters.path("letters.csv")).arg("--out").arg(&out);
    refused(&lacking.output().unwrap(), "missing --model, --text, --epsilon; pass them");
    // The model cannot generate text.
    let bert = crate::bench::Bench::classifier();
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.arg("synthesize").arg(letters.path("letters.csv")).arg("--out").arg(&out);
    command.arg("--model").arg(bert.path("model")).args(usual);
    command.args(["--code", "topic=bill,visit,nurse"]);
    refused(&command.output().unwrap(), "a bert model cannot generate text");
    sentences.assert("synthesize");
}

/// Values of control codes that are read from the file are published by consent, which the ledger
/// lists as an assumption.
#[test]
fn found_codes_are_an_assumption() {
    let letters = Letters::new();
    let mut command =
        letters.command("letters.csv", "out", &["--text", "letter", "--epsilon", "8"]);
    command.args(["--code", "topic", "--publish-codes", "--max-tokens", "48", "--epochs", "1"]);
    command.args(["--batch", "50", "--rows", "10", "--set", "privacy.delta=1e-3"]);
    succeeds(&command.output().unwrap());
    let terms = letters.read("out/ledger.jsonl").lines().next().unwrap().to_owned();
    let assumption = "the values of the control codes topic (bill, nurse, visit), which were found \
                      in the training file, are public";
    assert!(terms.contains(assumption), "{terms}");
}

/// The figures of a file, by name and data.
fn figures(file: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = file["figures"].as_array().unwrap().iter();
    all.map(|figure| (text(&figure["name"]), text(&figure["of"]))).collect()
}

/// Fails if a file outside of `private/` has these words.
fn assert_only_private(folder: &Path, words: &str) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true if path.ends_with("private") => {}
            true => assert_only_private(&path, words),
            false => {
                let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                assert!(!text.contains(words), "{words} in {}", path.display());
            }
        }
    }
}

/// Figures on training rows are private, and so are figures on test rows unless these are public. A
/// classifier is trained on the synthetic rows and, for the curator only, on the private rows.
#[test]
fn figures_say_who_may_see_them() {
    let letters = Letters::new();
    // Not all of these texts are training texts.
    letters.write("test.csv", 90);
    let other_texts = letters.read("test.csv").replace("hello", "dear doctor");
    fs::write(letters.path("test.csv"), other_texts).unwrap();
    let bert = crate::bench::Bench::classifier();
    let encoder = bert.path("model").to_str().unwrap().to_owned();
    let test = letters.path("test.csv").to_str().unwrap().to_owned();
    let plain = letters.usual("out", &["--rows", "60", "--evaluate"]).output().unwrap();
    succeeds(&plain);
    let said = String::from_utf8_lossy(&plain.stdout).into_owned();
    assert!(said.contains("curator only") && said.contains("self-BLEU"), "{said}");
    let shared = || letters.json("out/synthetic/evaluation.json");
    let private = || letters.json("out/private/evaluation.json");
    assert!(figures(&shared()).iter().all(|(_, of)| of == "synthetic rows"));
    let copies = ("exact copies of training rows, share".to_owned(), "training rows".to_owned());
    assert!(figures(&private()).contains(&copies));
    let base = ["--evaluate", "--test", &test, "--encoder", &encoder, "--classifier", &encoder];
    let of = |name: &str, of: &str| (name.to_owned(), of.to_owned());
    let mauve = of("MAUVE", "synthetic and test rows, in 6 clusters");
    let accuracy = of("accuracy on test rows", "synthetic rows");
    // The test file is not public.
    succeeds(&letters.again("out", &base));
    assert!(!figures(&shared()).contains(&mauve) && !figures(&shared()).contains(&accuracy));
    assert!(figures(&private()).contains(&mauve) && figures(&private()).contains(&accuracy));
    // The test file is public.
    let public = [&base[..], &["--test-is-public", "--baselines"]].concat();
    succeeds(&letters.again("out", &public));
    assert!(figures(&shared()).contains(&mauve) && figures(&shared()).contains(&accuracy));
    let directly = of("accuracy on test rows", "training rows, with the ε of the run");
    assert!(figures(&private()).contains(&directly), "{}", private());
    assert_only_private(&letters.path("out"), "training rows");
    assert!(!letters.path("out/private/classifier").exists(), "no model of private rows is left");
    assert_all_listed(&letters.path("out"));
    // Attacks are private, however public the test file is.
    fs::write(letters.path("canaries.txt"), "dear team\nthe secret is 1234\n").unwrap();
    let canaries = letters.path("canaries.txt").to_str().unwrap().to_owned();
    let base_of_attack = ["--evaluate", "--test", &test, "--test-is-public", "--attack"];
    succeeds(&letters.again("out", &[&base_of_attack[..], &["--canaries", &canaries]].concat()));
    let value = |name: &str| -> f64 {
        let all = private();
        let found = all["figures"].as_array().unwrap().iter().find(|f| f["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {all}"))["value"].as_f64().unwrap()
    };
    let auc = value("membership inference from synthetic rows, AUC");
    assert!((0.3..0.7).contains(&auc), "{auc}");
    assert!(value("planted secrets reproduced, share") <= 0.5);
    assert!(!letters.path("out/private/attack").exists(), "no attacker's model is left");
    for name in ["membership inference", "planted secrets"] {
        assert!(!shared().to_string().contains(name), "{}", shared());
    }
    succeeds(&letters.again("out", &public));
    // The report for others has only the public figures.
    let report = |name: &str, more: &[&str]| {
        let (out, file) = (letters.path("out"), letters.path(name));
        let (out, file) = (out.to_str().unwrap(), file.to_str().unwrap());
        run(&[&["report", out, "--out", file], more].concat());
        letters.read(name)
    };
    let public = report("public.md", &["--public"]);
    assert!(public.contains("MAUVE") && !public.contains("copies of training rows"), "{public}");
    assert!(report("report.md", &[]).contains("copies of training rows"));
    // The training file is not public.
    let own = letters.path("letters.csv").to_str().unwrap().to_owned();
    let wrong = ["--evaluate", "--test", &own, "--test-is-public"];
    refused(&letters.again("out", &wrong), "are rows of the private training file");
    let copy = letters.path("copy.csv").to_str().unwrap().to_owned();
    fs::copy(&own, &copy).unwrap();
    let copied = ["--evaluate", "--test", &copy, "--test-is-public"];
    refused(&letters.again("out", &copied), "are rows of the private training file");
    let assumptions = shared()["assumptions"].to_string();
    assert!(assumptions.contains("test.csv (SHA-256"), "{assumptions}");
    refused(&letters.again("out", &[&base[..], &["--target", "who"]].concat()), "control code");
}

/// The cost of training is reserved before the file is read, and repeating the command costs nothing.
#[test]
fn a_budget_pays_for_synthetic_rows() {
    let letters = Letters::new();
    let file = letters.path("budgets.jsonl").display().to_string();
    run(&["register", "init", &file]);
    let budget = ["--epsilon", "9", "--delta", "1e-3", "--units", "100", "--unit", "user"];
    let who = ["--covers", "our customers", "--approver", "the board"];
    run(&[&["register", "add", &file, "letters@1"][..], &budget, &who].concat());
    let with = ["--register", &file, "--dataset", "letters"];
    let output = letters.usual("out", &[&["--rows", "20"][..], &with].concat()).output().unwrap();
    succeeds(&output);
    let spent = || {
        let shown: Value =
            serde_json::from_slice(&run(&["register", "show", &file, "letters", "--json"]))
                .unwrap();
        let set = &shown["datasets"][0];
        assert_eq!(set["runs"][0]["status"], "settled", "{shown}");
        (set["spent"]["upper"].as_f64().unwrap(), set["runs"].as_array().unwrap().len())
    };
    let (epsilon, runs) = spent();
    assert!(runs == 1 && epsilon > 7.5 && epsilon <= 8.0, "{epsilon}");
    succeeds(&letters.again("out", &[]));
    assert_eq!(spent(), (epsilon, 1));
    let over = letters.usual("over", &[&["--rows", "20"][..], &with].concat()).output().unwrap();
    refused(&over, "over its cap of ε = 9");
    assert!(!letters.path("over").exists(), "nothing was read or written");
}

/// Private prediction: the ledger has one entry with the tokens of a text, within the budget; rows
/// are those of the classes in turn; a killed process resumes with the same rows.
#[test]
fn private_rows_steer_a_public_model() {
    let letters = Letters::new();
    let usual = |out: &str, more: &[&str]| {
        let mut command = letters.command("letters.csv", out, &["--text", "letter"]);
        command.args(["--method", "private-prediction", "--code", "topic=bill,visit,nurse"]);
        command.args(["--author", "who", "--rows", "9"]);
        for (flag, value) in [("--epsilon", "8"), ("--max-tokens", "24")] {
            if !more.contains(&flag) {
                command.args([flag, value]);
            }
        }
        command.args(more);
        command
    };
    let output = usual("out", &["--json"]).output().unwrap();
    succeeds(&output);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["private"], &answer["guarantee"]["unit"]), (&true.into(), &"user".into()));
    let epsilon = answer["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
    assert!(epsilon <= 8.0 && epsilon > 7.9, "{epsilon}");
    let ledger = letters.read("out/ledger.jsonl");
    let spent: Value = serde_json::from_str(ledger.lines().nth(1).unwrap()).unwrap();
    assert_eq!(spent["spent"]["event"]["kind"], "exponential");
    let tokens = spent["spent"]["count"].as_u64().unwrap();
    assert!((10..24).contains(&tokens), "{tokens}: those that a prompt leaves");
    assert_eq!(ledger.lines().count(), 2);
    // The clip is what the range allows for 100 units and 9 texts.
    let settings = letters.json("out/private/prediction.json");
    assert_eq!((&settings["units"], &settings["rows"]), (&100.into(), &9.into()));
    assert_eq!(settings["range"], spent["spent"]["event"]["range"]);

    let data = letters.read("out/synthetic/data.csv");
    let written = answer["sampled"]["rows"].as_u64().unwrap() as usize;
    assert_eq!(rows(&data).len(), 1 + written);
    assert_eq!(answer["sampled"]["attempts"], 9);
    let card = letters.read("out/synthetic/README.md");
    assert!(card.contains("ε, proved") && card.contains("influenced one text"), "{card}");
    assert_eq!(letters.read("out/synthetic/ledger.jsonl"), ledger);
    assert!(!letters.path("out/secret.key").exists());
    assert_all_listed(&letters.path("out"));
    run(&["budget", "ledger", letters.path("out").to_str().unwrap(), "--delta", "1e-6"]);
    // Finished rows are not written again, and have no other settings.
    succeeds(&letters.again("out", &["--rows", "9"]));
    refused(&letters.again("out", &["--rows", "8"]), "rows with other settings");
    refused(&letters.again("out", &["--method", "private-prediction"]), "already contains a run");

    // With the same seed, the same rows, also after a kill.
    succeeds(&usual("whole", &["--seed", "5"]).output().unwrap());
    let killed = usual("broken", &["--seed", "5"]);
    kill_at(killed, &letters.path("broken/synthetic/journal.jsonl"), 4);
    succeeds(&letters.again("broken", &[]));
    // After a change of the data, a unit could steer a second text.
    let killed = usual("changed", &["--seed", "5"]);
    if kill_at(killed, &letters.path("changed/synthetic/journal.jsonl"), 4) {
        let before = letters.read("letters.csv");
        fs::write(letters.path("letters.csv"), before.replace("hello", "dear all")).unwrap();
        refused(&letters.again("changed", &[]), "has changed since");
        fs::write(letters.path("letters.csv"), before).unwrap();
    }
    // Another run's ledger would state another ε.
    succeeds(&usual("cheap", &["--epsilon", "0.5"]).output().unwrap());
    let files = ["ledger.jsonl", "ledger.jsonl.head"];
    for run in ["out", "replaced"] {
        if run == "replaced" {
            kill_at(usual(run, &[]), &letters.path("replaced/synthetic/journal.jsonl"), 4);
        }
        let own = files.map(|file| fs::read(letters.path(&format!("{run}/{file}"))).unwrap());
        for file in files {
            fs::copy(
                letters.path(&format!("cheap/{file}")),
                letters.path(&format!("{run}/{file}")),
            )
            .unwrap();
        }
        refused(&letters.again(run, &[]), "belongs to other rows");
        for (file, own) in files.iter().zip(own) {
            fs::write(letters.path(&format!("{run}/{file}")), own).unwrap();
        }
        succeeds(&letters.again(run, &[]));
    }
    let both = ["whole", "broken"].map(|run| letters.read(&format!("{run}/synthetic/data.csv")));
    assert_eq!(both[0], both[1]);
    assert!(letters.read("whole/synthetic/README.md").contains("No guarantee"));
    // Figures say who may see them.
    let evaluated = letters.again("out", &["--evaluate", "--json"]);
    succeeds(&evaluated);
    let answer: Value = serde_json::from_slice(&evaluated.stdout).unwrap();
    assert!(!answer["figures"].as_array().unwrap().is_empty());

    let wrong = |more: &[&str], about: &str| {
        refused(&usual("wrong", more).output().unwrap(), about);
    };
    wrong(&["--epochs", "3"], "--epochs has no effect");
    wrong(&["--top-p", "0.5"], "--top-p has no effect");
    wrong(&["--set", "training.batch=3"], "training.batch=3 has no effect");
    wrong(&["--publish-codes"], "list the values");
    wrong(&["--set", "data.hold_out=0.2"], "data.hold_out=0.2 has no effect");
    wrong(&["--set", "data.publish_labels=true"], "has no effect");
    wrong(&["--temperature", "0"], "--temperature must be above 0");
    wrong(&["--max-tokens", "100000"], "positions");
    assert!(!letters.path("wrong").exists(), "nothing is left behind");
    wrong(&["--set", "privacy.units=100000"], "at least 196 with --rows");
    let many = |rows: &'static str| {
        let mut command = letters.command("letters.csv", "wrong", &["--text", "letter"]);
        command.args(["--method", "private-prediction", "--epsilon", "8", "--author", "who"]);
        command.args(["--max-tokens", "24", "--rows", rows]);
        command
    };
    refused(&many("90").output().unwrap(), "100 units are too few for 90 rows");
    let mut training = letters.usual("wrong", &["--top-k", "5"]);
    refused(&training.output().unwrap(), "--top-k is for --method private-prediction");
}
