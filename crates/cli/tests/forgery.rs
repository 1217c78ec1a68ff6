//! Attacks on the guarantee: run files that were modified, truncated or copied from another run.
//! None may make a run reuse its noise, or make a command state an ε that is not proved.

use crate::bench::*;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn undertone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_undertone")).args(arguments).output().unwrap()
}

fn replace(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{} has no {from}", file.display());
    fs::write(file, text.replacen(from, to, 1)).unwrap();
}

const OFTEN: [&str; 4] = ["--set", "compute.checkpoint_every=1", "--set", "training.epochs=8"];

/// Resumed with a different architecture or different segments, a run would add the noise of its
/// first steps to other sums, and the difference of two checkpoints would reveal the batch.
#[test]
fn a_run_does_not_go_on_with_another_model() {
    let bench = Bench::classifier();
    assert!(bench.kill_after("run", &OFTEN, 3));
    fs::remove_file(bench.path("run/checkpoint.safetensors")).unwrap();
    let [config, tokenizer] =
        ["config.json", "tokenizer.json"].map(|f| bench.path("model").join(f));
    let attack = |file: &Path, change: &dyn Fn(&mut Value)| {
        let before = fs::read(file).unwrap();
        let mut value: Value = serde_json::from_slice(&before).unwrap();
        change(&mut value);
        assert_ne!(value, serde_json::from_slice::<Value>(&before).unwrap(), "changes nothing");
        fs::write(file, value.to_string()).unwrap();
        bench.resume_refused("run", "was started with another plan, other data or another secret");
        fs::write(file, before).unwrap();
    };
    attack(&config, &|config| config["hidden_act"] = json!("relu"));
    attack(&config, &|config| config["layer_norm_eps"] = json!(1e-3));
    attack(&config, &|config| config["num_attention_heads"] = json!(1));
    attack(&config, &|config| config["hidden_dropout_prob"] = json!(0.5));
    attack(&tokenizer, &|tokenizer| {
        let single = tokenizer["post_processor"]["single"].as_array_mut().unwrap();
        for piece in single {
            for kind in ["Sequence", "SpecialToken"] {
                if piece.get(kind).is_some() {
                    piece[kind]["type_id"] = json!(1);
                }
            }
        }
    });
    let plan = bench.path("run/plan.toml");
    let before = fs::read(&plan).unwrap();
    replace(&plan, "max_tokens = 16", "max_tokens = 8");
    bench.resume_refused("run", "another plan");
    fs::write(&plan, before).unwrap();
    bench.resume("run");
}

/// A checkpoint is used only if this run wrote every bit of it.
#[test]
fn a_run_goes_on_from_its_own_checkpoint_only() {
    let bench = Bench::classifier();
    assert!(bench.kill_after("run", &OFTEN, 4) && bench.kill_after("other", &OFTEN, 4));
    let file = bench.path("run/checkpoint.safetensors");
    let whole = fs::read(&file).unwrap();
    let mut attacks = vec![bench.bytes("other/checkpoint.safetensors")];
    for place in [8, 60, 200, whole.len() / 2, whole.len() - 1] {
        let mut flipped = whole.clone();
        flipped[place] ^= 1;
        attacks.push(flipped);
    }
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let text = String::from_utf8(whole[8..header].to_vec()).unwrap();
    let steps = text.find("\"steps\":\"").unwrap() + "\"steps\":\"".len();
    let mut earlier = whole.clone();
    earlier[8 + steps] = b'0';
    attacks.push(earlier);
    attacks.push(whole[..whole.len() - 4].to_vec());
    attacks.push(Vec::new());
    for attack in attacks {
        fs::write(&file, &attack).unwrap();
        bench.resume_refused("run", "checkpoint.safetensors");
    }
    fs::write(&file, whole).unwrap();
    bench.resume("run");
}

/// `report` refuses each of them, and none leaves a report.
#[test]
fn folders_that_contradict_themselves_are_refused() {
    let bench = Bench::classifier();
    let eight = ["--set", "training.epochs=1"];
    bench.train("honest", &eight);
    bench.train("strict", &["--set", "training.epochs=1", "--set", "privacy.epsilon=1"]);
    bench.train(
        "open",
        &[
            "--set",
            "privacy.method=none",
            "--unset",
            "privacy.epsilon",
            "--unset",
            "privacy.delta",
            "--set",
            "training.epochs=1",
        ],
    );
    let (run, out) = (bench.path("run"), bench.path("report.html"));
    let report = || undertone(&["report", run.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    let attack = |from: &str, about: &str, change: &dyn Fn()| {
        let _ = fs::remove_dir_all(&run);
        copy(&bench.path(from), &run);
        change();
        refused(&report(), about);
        assert!(!out.exists(), "{about}: a report was written");
    };
    let put = |from: &str| {
        for file in ["ledger.jsonl", "ledger.jsonl.head"] {
            fs::copy(bench.path(from).join(file), run.join(file)).unwrap();
        }
    };
    let edit = |file: &str, change: &dyn Fn(&mut Value)| {
        let path = run.join(file);
        let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut value);
        fs::write(path, value.to_string()).unwrap();
    };
    let summary_of = |from: &str| -> Value {
        serde_json::from_slice(&bench.bytes(&format!("{from}/summary.json"))).unwrap()
    };
    attack("open", "is the ledger of another run", &|| put("honest"));
    attack("open", "the plan is non-private", &|| {
        put("honest");
        edit("summary.json", &|summary| {
            let honest = summary_of("honest");
            summary["private"] = json!(true);
            summary["guarantee"] = honest["guarantee"].clone();
            summary["ledger_hash"] = honest["ledger_hash"].clone();
            summary.as_object_mut().unwrap().remove("not_private_because");
        });
    });
    attack("honest", "belongs to another plan", &|| put("strict"));
    attack("honest", "belongs to another plan", &|| {
        put("strict");
        let strict = summary_of("strict");
        edit("summary.json", &|summary| {
            summary["guarantee"] = strict["guarantee"].clone();
            summary["ledger_hash"] = strict["ledger_hash"].clone();
        });
    });
    let cut = || {
        let text = fs::read_to_string(run.join("ledger.jsonl")).unwrap();
        let kept: Vec<&str> = text.lines().take(4).collect();
        let last: Value = serde_json::from_str(kept[3]).unwrap();
        fs::write(run.join("ledger.jsonl"), kept.join("\n") + "\n").unwrap();
        let head = json!({ "entries": 3, "hash": last["hash"] });
        fs::write(run.join("ledger.jsonl.head"), head.to_string()).unwrap();
        last["hash"].clone()
    };
    attack("honest", "is not the ledger that the run ended with", &|| drop(cut()));
    attack("honest", "has 3 entries, but the run has made 6 releases", &|| {
        let hash = cut();
        edit("summary.json", &|summary| summary["ledger_hash"] = hash.clone());
    });
    attack("honest", "other units, steps or noise than plan.toml", &|| {
        edit("summary.json", &|summary| summary["steps"] = json!(3));
    });
    attack("honest", "δ", &|| {
        edit("summary.json", &|summary| summary["guarantee"]["delta"] = json!(0.4));
    });
    attack("honest", "states another guarantee", &|| {
        edit("summary.json", &|summary| summary["guarantee"]["epsilon"]["upper"] = json!(0.5));
    });
    attack("honest", "is another plan than the one in summary.json", &|| {
        replace(&run.join("plan.toml"), "epsilon = 8.0", "epsilon = 1.0");
    });
    attack("honest", "belongs to another plan", &|| {
        replace(
            &run.join("plan.toml"),
            "# Values computed from the data",
            "# Changed. The plan resolved",
        );
    });
    attack("honest", "audit.json", &|| fs::write(run.join("audit.json"), "{").unwrap());
    attack("honest", "audit.json", &|| fs::create_dir(run.join("audit.json")).unwrap());
    // The other commands that show ε read the same folders.
    let _ = fs::remove_dir_all(&run);
    copy(&bench.path("honest"), &run);
    put("strict");
    let (folder, ledger) = (run.to_str().unwrap(), run.join("ledger.jsonl"));
    refused(&undertone(&["watch", folder]), "belongs to another plan");
    refused(&undertone(&["budget", "ledger", ledger.to_str().unwrap()]), "another plan");
    refused(&undertone(&["audit", "membership", "--run", folder]), "another plan");
}

/// Two private runs with the same plan have different ledgers; a seeded run can be repeated.
#[test]
fn no_two_private_runs_have_the_same_ledger() {
    let bench = Bench::classifier();
    let once = ["--set", "training.epochs=1"];
    bench.train("one", &once);
    bench.train("two", &once);
    let first = |run: &str| {
        let text = String::from_utf8(bench.bytes(&format!("{run}/ledger.jsonl"))).unwrap();
        text.lines().next().unwrap().to_owned()
    };
    assert_ne!(first("one"), first("two"));
    assert!(first("one").contains("\"steps\":6") && first("one").contains("\"units\":120"));
}

#[cfg(unix)]
#[test]
fn a_secret_is_never_left_where_others_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::classifier();
    let (run, key) = (bench.path("run"), bench.path("run/secret.key"));
    fs::create_dir(&run).unwrap();
    fs::write(&key, "left open").unwrap();
    bench.refused("run", &[], "secret.key: exists, and the run would overwrite it");
    assert_eq!(fs::read(&key).unwrap(), b"left open");
    fs::remove_file(&key).unwrap();
    std::os::unix::fs::symlink(bench.path("elsewhere"), &key).unwrap();
    bench.refused("run", &[], "secret.key: exists, and the run would overwrite it");
    fs::remove_file(&key).unwrap();
    assert!(bench.kill_after("run", &OFTEN, 2));
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let secret = fs::read(&key).unwrap();
    bench.resume("run");
    assert!(!key.exists() && !bench.path("elsewhere").exists());
    // Killed between writing the summary and exiting.
    fs::write(&key, secret).unwrap();
    let out = bench.path("report.html");
    run_ok(&["report", run.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    assert!(!key.exists(), "the secret of a finished run is left");
}

fn run_ok(arguments: &[&str]) {
    let output = undertone(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Several processes create one ledger at the same time: every process that succeeds is in it.
#[test]
fn two_answers_are_two_entries() {
    let bench = Bench::classifier();
    bench.train("run", &["--set", "privacy.method=dp-forward", "--set", "training.epochs=1"]);
    let kind = if bench.path("run/model").exists() { "run/model" } else { "run/adapter" };
    for round in 0..6 {
        let ledger = bench.path(&format!("queries-{round}.jsonl"));
        let ask = |number: usize| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
            command.args(["predict", "--private", "--delta", "1e-5", "--text", "sentence"]);
            match kind {
                "run/model" => command.arg("--model").arg(bench.path(kind)),
                _ => command
                    .arg("--model")
                    .arg(bench.path("model"))
                    .arg("--adapter")
                    .arg(bench.path(kind)),
            };
            command.arg("--data").arg(bench.path("rows.tsv")).arg("--ledger").arg(&ledger);
            command.arg("--out").arg(bench.path(&format!("said-{round}-{number}.jsonl")));
            command.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
            command.spawn().unwrap()
        };
        let all: Vec<Output> =
            [ask(0), ask(1), ask(2)].map(|child| child.wait_with_output().unwrap()).into();
        let answered = all.iter().filter(|output| output.status.success()).count();
        let entries = fs::read_to_string(&ledger).unwrap().lines().count() - 1;
        let said: Vec<_> = all.iter().map(|o| String::from_utf8_lossy(&o.stderr)).collect();
        assert!(answered >= 1 && entries >= answered, "{answered} answers, {entries}: {said:?}");
        for output in all.iter().filter(|output| !output.status.success()) {
            refused(output, "in use");
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}
