//! Every command in the README and the book runs on small models and small files with the names
//! used on the pages.

use crate::bench::{WORDS, fixture};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Reductions that let small models run a command quickly.
const SMALLER: [(&str, &str); 9] = [
    ("--texts 1000", "--texts 4"),
    ("--max-new-tokens 256", "--max-new-tokens 12"),
    ("--targets 200 --samples 64", "--targets 4 --samples 4"),
    ("--canaries 1000", "--canaries 40"),
    ("--examples 500", "--examples 20"),
    ("--shadows 8", "--shadows 2"),
    ("--after 0,3,6", "--after 0,1,2"),
    ("--device cuda", "--device cpu"),
    // Do not overwrite the run file that the other commands need.
    ("letters.csv --epsilon 8", "letters.csv --epsilon 8 --out init.toml --force"),
];

fn book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages() -> Vec<PathBuf> {
    let pages = fs::read_dir(book().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> =
        pages.filter(|page| page.extension().is_some_and(|e| e == "md")).collect();
    pages.sort();
    // This page creates the folders used by the others.
    pages.insert(0, book().join("README.md"));
    pages
}

/// Indented lines that start with the program's name. Usage patterns with placeholders (DIR, FILE,
/// RUN) are not commands.
fn commands(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
    let commands =
        lines.filter_map(|line| line.strip_prefix("$ ").unwrap_or(line).strip_prefix("undertone "));
    // Without comments and redirections.
    let commands = commands.map(|line| line.split(" # ").next().unwrap());
    let commands = commands.map(|line| line.split(" > ").next().unwrap().trim().to_owned());
    let placeholder = |command: &String| {
        let outside: String = command.split('"').step_by(2).collect();
        outside.contains('…')
            || outside
                .split([' ', '|', '[', ']'])
                .any(|word| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase()))
    };
    commands.filter(|command| !placeholder(command)).collect()
}

/// A command without its optional parts in brackets, and with all of them. Of alternatives (a|b),
/// the first is used.
fn readings(command: &str) -> Vec<String> {
    let mut command = command.to_owned();
    for (large, small) in SMALLER {
        command = command.replace(large, small);
    }
    // The whole demo is a command of the README, and takes minutes.
    if command == "demo" {
        command += " --data-only --out runs/demo-data";
    }
    let (mut without, mut with, mut inside) = (String::new(), String::new(), false);
    for part in command.split_inclusive(['[', ']']) {
        let text = part.trim_end_matches(['[', ']']);
        let first: Vec<&str> =
            text.split(' ').map(|word| word.split('|').next().unwrap()).collect();
        with += &first.join(" ");
        if !inside {
            without += text;
        }
        inside = part.ends_with('[');
    }
    if with == without { vec![with] } else { vec![without, with] }
}

/// Splits at spaces; quoted words stay together.
fn words(command: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (i, part) in command.split('"').enumerate() {
        if i % 2 == 1 {
            all.push(part.to_owned());
        } else {
            all.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    all
}

fn in_folder(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_undertone")).args(words).current_dir(folder).output().unwrap()
}

fn model(folder: &Path, name: &str, architecture: &str, tokenizer: &str) {
    let place = folder.join(name);
    fs::create_dir_all(&place).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(fixture("models").join(architecture).join(file), place.join(file)).unwrap();
    }
    fs::copy(fixture(tokenizer).join("tokenizer.json"), place.join("tokenizer.json")).unwrap();
}

/// Models, rows and run files with the names used on the pages.
fn prepare(folder: &Path) {
    // A folder takes precedence over a name on the Hub.
    let names =
        ["models/all-MiniLM-L6-v2", "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"];
    for name in names {
        model(folder, name, "bert-classification", "tokenizer-wordpiece");
    }
    model(folder, "models/stories15M", "gpt2-causal-lm", "tokenizer-bpe");
    model(folder, "models/gpt2", "gpt2-causal-lm", "tokenizer-bpe");
    let write = |name: &str, text: String| fs::write(folder.join(name), text).unwrap();
    let texts: Vec<String> = (0..120)
        .map(|i| (0..3 + i % 5).map(|j| WORDS[(i * 7 + j * 3) % 8]).collect::<Vec<_>>().join(" "))
        .collect();
    let label = |i: usize| ["bad", "good"][i % 2];
    let rows = |separator: &str, head: [&str; 3]| {
        let rows = texts.iter().enumerate();
        let rows =
            rows.map(|(i, text)| [&format!("c{}", i / 2), text, label(i)].join(separator) + "\n");
        head.join(separator) + "\n" + &rows.collect::<String>()
    };
    for name in ["letters.csv", "public.csv", "new.csv"] {
        write(name, rows(",", ["customer", "text", "topic"]));
    }
    for name in ["train.tsv", "dev.tsv"] {
        // Under the names of both kinds of files.
        let double = |line: &str| {
            let cells: Vec<&str> = line.split('\t').collect();
            [&cells[..], &cells[1..]].concat().join("\t") + "\n"
        };
        let rows = rows("\t", ["who", "sentence", "label"]);
        let (head, rest) = rows.split_once('\n').unwrap();
        write(
            name,
            format!("{head}\ttext\ttopic\n{}", rest.lines().map(double).collect::<String>()),
        );
    }
    let lines =
        texts.iter().map(|text| json!({ "text": text, "sentence": text }).to_string() + "\n");
    let lines: String = lines.collect();
    write("public.jsonl", lines.clone());
    write("new.jsonl", lines);
    let mails = texts.iter().enumerate().map(|(i, text)| {
        let name = ["Ann Lee", "Bob Ray"][i % 2];
        let body = format!("{name} {text} ann.lee{}@example.com", i % 4);
        json!({ "body": body, "from": format!("p{}", i / 2) }).to_string() + "\n"
    });
    write("mail.jsonl", mails.collect());
    write(
        "canaries.jsonl",
        json!({ "text": "the code is # #", "secret": "47" }).to_string() + "\n",
    );
    write("names.txt", "Ann Lee\nBob Ray\n".to_owned());
    let settings = "\n[privacy]\nmethod = \"dp-sgd\"\nepsilon = 8.0\ndelta = \
     1e-3\n[training]\nepochs = 1\nbatch = 20\nlearning_rate = 1e-3\n";
    let lora = |targets: &str| {
        format!("tuning = {{ lora = {{ rank = 2, alpha = 4, targets = [{targets}] }} }}")
    };
    write(
        "run.toml",
        format!(
            "[model]\npath = \"models/all-MiniLM-L6-v2\"\n{}\n[data]\ntask = \
             \"classification\"\ntrain = \"letters.csv\"\nvalidation = \"public.csv\"\ntext = \
             \"text\"\nlabel = \"topic\"\n\
             labels = [\"bad\", \"neutral\", \"good\"]\nmax_tokens = 16{settings}",
            lora("\"query\", \"value\"")
        ),
    );
    write(
        "mail.toml",
        format!(
            "[model]\npath = \"models/gpt2\"\n{}\n[data]\ntask = \"language-modeling\"\ntrain = \
             \"mail.jsonl\"\nvalidation = \"mail.jsonl\"\ntext = \"body\"\nmax_tokens = \
             30{settings}",
            lora("\"c_attn\"")
        ),
    );
    write(
        "sweep.toml",
        "base = \"run.toml\"\nmetric = \"accuracy\"\nseeds = [1]\n[grid]\n\"privacy.epsilon\" = \
         [8.0]\n"
            .to_owned(),
    );
    write(
        "choose.toml",
        "base = \"run.toml\"\nmetric = \"accuracy\"\n[grid]\n\"privacy.epsilon\" = [8.0]\n\
         [selection]\nruns = { negative_binomial = { eta = 0.0, gamma = 0.5 } }\nvalidation = \
         \"public\"\n"
            .to_owned(),
    );
    // The output of other pages, the demo and local methods.
    let train = |out: &str, file: &str, set: &[&str]| {
        let set = set.iter().flat_map(|change| ["--set", change]);
        let words: Vec<&str> = ["train", file, "--out", out].into_iter().chain(set).collect();
        let done = in_folder(folder, &words);
        assert!(done.status.success(), "{out}: {}", String::from_utf8_lossy(&done.stderr));
    };
    train("runs/demo/sort-epsilon-8", "run.toml", &[]);
    train("runs/first", "run.toml", &[]);
    train("runs/mail", "mail.toml", &[]);
    train("runs/epsilon-1", "run.toml", &["privacy.epsilon=1"]);
    train("runs/epsilon-8", "run.toml", &[]);
    train("runs/private", "mail.toml", &[]);
    let private = fs::read_to_string(folder.join("mail.toml")).unwrap();
    write(
        "non-private.toml",
        private.replace("\"dp-sgd\"\nepsilon = 8.0\ndelta = 1e-3", "\"none\""),
    );
    train("runs/non-private", "non-private.toml", &[]);
    train("runs/local", "run.toml", &["privacy.method=dp-forward", "model.tuning=full"]);
    fs::rename(folder.join("runs/local/model"), folder.join("models/all-MiniLM-L6-v2-sst2"))
        .unwrap();
}

#[test]
fn every_command_runs() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    prepare(at);
    let (mut count, mut problems) = (0, Vec::new());
    for page in pages() {
        for command in commands(&page).iter().flat_map(|command| readings(command)) {
            let words = words(&command);
            // The program never overwrites runs and models.
            let out = words.iter().position(|word| word == "--out").and_then(|i| words.get(i + 1));
            if let Some(out) = out {
                let kept = at.join(out).with_extension("kept");
                let _ = fs::remove_dir_all(&kept);
                let _ = fs::rename(at.join(out), kept);
            }
            let done = in_folder(at, &words.iter().map(String::as_str).collect::<Vec<_>>());
            count += 1;
            if !done.status.success() {
                let error = String::from_utf8_lossy(&done.stderr);
                problems.push(format!("{}: undertone {command}\n{error}", page.display()));
            }
        }
    }
    assert!(
        problems.is_empty(),
        "{} of {count} commands fail:\n{}",
        problems.len(),
        problems.join("\n")
    );
    assert!(count > 50, "only {count} commands were found");
}

#[test]
fn the_pages_hold_together() {
    let python = Command::new("python3").args(["-c", "import tomllib"]).output();
    if !python.is_ok_and(|version| version.status.success()) {
        eprintln!(
            "there is no Python 3.11 here: links, keys and flags of the book are not checked"
        );
        return;
    }
    let done = Command::new(book().join("docs/check"))
        .arg(env!("CARGO_BIN_EXE_undertone"))
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}

#[test]
fn the_book_builds_without_a_warning() {
    if Command::new("mdbook").arg("--version").output().is_err() {
        eprintln!("there is no mdbook here: the book is not built");
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let built = Command::new("mdbook")
        .arg("build")
        .arg(book().join("docs"))
        .arg("--dest-dir")
        .arg(out.path())
        .output();
    let built = built.unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success() && !said.contains("WARN") && !said.contains("ERROR"), "{said}");
    assert!(out.path().join("quickstart.html").exists());
}
