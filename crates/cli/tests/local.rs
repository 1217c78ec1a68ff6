//! Methods that perturb records, from the command line: what they promise, what they train, and
//! what they refuse.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::process::Command;
use undertone::explain::contribution::{positional, token_contributions};
use undertone::method::local::EmbeddingNoise;
use undertone::method::local::mvg::{Budgets, mapped};
use undertone::model::folder::{LoadOptions, load};
use undertone::model::sanitised::read_config;
use undertone::noise::Secret;
use undertone::run::ReleaseKind;
use undertone::tensor::Host;

const HEAD: [&str; 2] = ["--set", "model.tuning=head"];

fn set<'a>(changes: &[&'a str]) -> Vec<&'a str> {
    changes.iter().flat_map(|change| ["--set", *change]).collect()
}

fn entries(bench: &Bench, out: &str) -> Vec<Value> {
    let text = fs::read_to_string(bench.path(out).join("ledger.jsonl")).unwrap();
    text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What `undertone eval` says of a run's model or adapter on the rows that it was trained on.
fn evaluate(bench: &Bench, out: &str) -> Value {
    let mut eval = Command::new(env!("CARGO_BIN_EXE_undertone"));
    eval.args(["eval", "--json", "--text", "sentence", "--max-tokens", "16", "--data"])
        .arg(bench.path("rows.tsv"));
    let (model, adapter) = (bench.path(out).join("model"), bench.path(out).join("adapter"));
    match model.exists() {
        true => eval.arg("--model").arg(model),
        false => eval.arg("--model").arg(bench.path("model")).arg("--adapter").arg(adapter),
    };
    let output = eval.output().unwrap();
    assert!(output.status.success(), "{out}: {}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    said.get("metrics").unwrap_or(&said).clone()
}

#[test]
fn every_forward_method_keeps_to_its_budget() {
    let bench = Bench::classifier();
    let public = format!("privacy.local.public={:?}", bench.path("rows.tsv"));
    // What is asked for, and the number of ledger entries.
    let cases: [(&[&str], usize); 14] = [
        (&["privacy.method=dp-forward", "model.tuning=head"], 2),
        (&["privacy.method=dp-forward", "privacy.local.after=1", "privacy.local.rows=tokens"], 2),
        (
            &[
                "privacy.method=dp-forward",
                "privacy.local.release=fresh",
                "privacy.local.label_epsilon=0",
            ],
            2,
        ),
        (&["privacy.method=ew-ft", "privacy.local.dims=[4]", "privacy.local.after=embeddings"], 2),
        (
            &[
                "privacy.method=ew-ft",
                "privacy.local.dims=[4]",
                "privacy.local.release=path",
                "privacy.schedule=ewpba",
            ],
            3,
        ),
        (
            &[
                "privacy.method=ew-ft",
                "privacy.local.encoder=autoencoder",
                "privacy.local.dims=[6, 3]",
                &public,
            ],
            2,
        ),
        (&["privacy.method=ew-ft", "privacy.local.dims=[4]", &public, "model.tuning=head"], 2),
        (
            &[
                "privacy.method=ew-ft",
                "privacy.local.encoder=autoencoder",
                "privacy.local.dims=[6, 3]",
                &public,
                "model.tuning=head",
            ],
            2,
        ),
        (&["privacy.method=dp-forward", "data.author=who", "model.tuning=head"], 2),
        (
            &[
                "privacy.method=mvg",
                "privacy.mvg.width=20",
                "privacy.mvg.attention=atten-dp",
                "data.author=who",
                "model.tuning=head",
            ],
            3,
        ),
        (&["privacy.method=mvg", "privacy.mvg.width=20", "model.tuning=head"], 2),
        (
            &[
                "privacy.method=dp-forward",
                "privacy.local.adapt={ share = 0.4 }",
                "model.tuning=head",
            ],
            3,
        ),
        (
            &[
                "privacy.method=mvg",
                "privacy.mvg.width=20",
                "privacy.mvg.attention=atten-dp",
                "privacy.local.adapt={ share = 0.3, batch = 20, epochs = 1 }",
            ],
            4,
        ),
        (
            &[
                "privacy.method=mvg",
                "privacy.mvg.width=20",
                "privacy.mvg.attention=atten-dp",
                "model.tuning=head",
            ],
            3,
        ),
    ];
    for (i, (changes, wanted)) in cases.iter().enumerate() {
        let out = format!("run{i}");
        let summary = bench.train(&out, &set(changes));
        assert_eq!(summary["private"], true, "{changes:?}");
        let guarantee = &summary["guarantee"];
        assert_eq!(guarantee["mode"], "proved");
        assert_eq!(
            (guarantee["adjacency"].as_str(), guarantee["threat"].as_str()),
            (Some("replace-one"), Some("local"))
        );
        let upper = guarantee["epsilon"]["upper"].as_f64().unwrap();
        assert!(upper <= 8.0 && upper > 7.9, "{changes:?}: {upper}");
        assert_eq!(entries(&bench, &out).len(), *wanted, "{changes:?}");
        assert!(summary["metrics"]["validation_with_noise"]["accuracy"].is_number());
        // What was trained loads again, and says the same.
        let said = evaluate(&bench, &out);
        assert_eq!(
            said["accuracy"], summary["metrics"]["validation"]["accuracy"],
            "{changes:?}: {said}"
        );
    }
}

#[test]
fn what_is_below_the_noise_does_not_move_by_a_bit() {
    let bench = Bench::classifier();
    let base = safetensors_of(&bench, "model/model.safetensors");
    let proved =
        set(&["privacy.method=dp-forward", "privacy.local.after=1", "privacy.local.rows=tokens"]);
    bench.train("proved", &proved);
    let trained = safetensors_of(&bench, "proved/model/model.safetensors");
    let below = |name: &str| name.contains("embeddings.") || name.contains("layer.0.");
    let (mut still, mut moved) = (0, 0);
    for (name, values) in &base {
        let after = &trained.iter().find(|(other, _)| other == name).unwrap().1;
        if below(name) {
            assert_eq!(values, after, "{name} moved");
            still += 1;
        } else {
            moved += usize::from(values != after);
        }
    }
    assert!(still > 10 && moved > 10, "{still} {moved}");
    let paper = set(&["privacy.method=dp-forward", "privacy.local.after=1", "privacy.mode=paper"]);
    let summary = bench.train("paper", &paper);
    let trained = safetensors_of(&bench, "paper/model/model.safetensors");
    let moves = |(name, values): &(String, Vec<u8>)| {
        below(name) && trained.iter().any(|(n, v)| n == name && v != values)
    };
    assert!(base.iter().any(moves), "as published, everything learns");
    assert_eq!(summary["private"], false);
    assert!(summary["not_private_because"].as_str().unwrap().contains("below the noise"));
    let (claimed, ledger) = (
        summary["claimed"]["epsilon"].as_f64().unwrap(),
        summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap(),
    );
    assert!((claimed - 8.0).abs() < 0.05 && ledger > 3.0 * claimed, "{claimed} {ledger}");
}

#[test]
fn dp_sgd_below_the_noise_moves_it_and_is_paid_for() {
    let bench = Bench::classifier();
    let base = safetensors_of(&bench, "model/model.safetensors");
    let changes = set(&[
        "privacy.method=dp-forward",
        "privacy.local.after=1",
        "privacy.local.adapt={ share = 0.5, batch = 20, epochs = 2 }",
    ]);
    let summary = bench.train("run", &changes);
    let trained = safetensors_of(&bench, "run/model/model.safetensors");
    let moved =
        |(name, values): &&(String, Vec<u8>)| trained.iter().any(|(n, v)| n == name && v != values);
    assert!(base.iter().filter(|(name, _)| name.contains("layer.0.")).filter(moved).count() > 5);
    // 120 records in batches of 20, twice.
    let first = entries(&bench, "run")[0].to_string();
    assert!(first.contains("\"count\":12") && first.contains("sampling_rate"), "{first}");
    let alone = summary["resolved"]["adaptation"]["noise_multiplier"].as_f64().unwrap();
    let open = bench.train("open", &set(&["privacy.method=dp-forward", "privacy.local.after=1"]));
    let noise = |summary: &Value| summary["resolved"]["noise_multipliers"][0].as_f64().unwrap();
    assert!(alone > 0.3 && noise(&summary) > noise(&open), "what adapts is missing elsewhere");
    let assumptions = summary["guarantee"]["assumptions"].to_string();
    assert!(assumptions.contains("trust with their examples"), "{assumptions}");
    refused(
        &bench
            .command(
                "both",
                &set(&["privacy.method=dp-forward", "privacy.local.adapt={ epochs = 1 }"]),
            )
            .output()
            .unwrap(),
        "name one of them",
    );
}

fn safetensors_of(bench: &Bench, file: &str) -> Vec<(String, Vec<u8>)> {
    let bytes = bench.bytes(file);
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    tensors.iter().map(|(name, view)| (name.to_owned(), view.data().to_vec())).collect()
}

#[test]
fn published_methods_claim_and_guarantee_nothing() {
    let bench = Bench::classifier();
    let mvg = set(&[
        "privacy.method=mvg",
        "privacy.mode=paper",
        "privacy.mvg.width=20",
        "privacy.mvg.attention=raw",
    ]);
    // Its budgets are the tokens'.
    let summary = bench.train("mvg", &[&mvg[..], &["--unset", "privacy.epsilon"]].concat());
    assert_eq!(summary["private"], false);
    assert_eq!(summary["claimed"]["epsilon"], 10.0);
    let (exact, condition) = (
        summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap(),
        summary["records"]["sufficient_epsilon"].as_f64().unwrap(),
    );
    assert!(exact > 100.0 && condition > exact / 2.0, "{exact} {condition}");
    let ew_ft = set(&[
        "privacy.method=ew-ft",
        "privacy.mode=paper",
        "privacy.local.after=1",
        "privacy.schedule=ewpba",
    ]);
    let summary = bench.train("ew-ft", &ew_ft);
    assert!(summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap() > 20.0);
}

#[test]
fn a_killed_run_goes_on_with_the_same_releases() {
    let bench = Bench::classifier();
    let settings = set(&[
        "privacy.method=ew-ft",
        "privacy.local.dims=[4]",
        "privacy.local.release=path",
        "privacy.schedule=linear",
        "training.epochs=3",
        "training.batch=4",
        "compute.checkpoint_every=3",
    ]);
    let seeded: Vec<&str> = settings.iter().copied().chain(["--seed", "5"]).collect();
    bench.train("whole", &seeded);
    let broken = bench.kill_after("broken", &seeded, 20);
    if broken {
        bench.resume("broken");
    }
    bench.assert_same_runs("broken", "whole", "model/model.safetensors");
}

#[test]
fn texts_are_predicted_in_private() {
    let bench = Bench::classifier();
    let mut changes = set(&["privacy.method=dp-forward"]);
    changes.extend(HEAD);
    bench.train("run", &changes);
    let predict = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
        command
            .args(["predict", "--text", "sentence", "--max-tokens", "16", "--model"])
            .arg(bench.path("model"));
        command
            .arg("--adapter")
            .arg(bench.path("run/adapter"))
            .arg("--data")
            .arg(bench.path("rows.tsv"));
        command.arg("--out").arg(bench.path("said.jsonl")).args(more).output().unwrap()
    };
    let said = || fs::read_to_string(bench.path("said.jsonl")).unwrap();
    assert!(predict(&[]).status.success());
    let open = said();
    let output = predict(&["--private", "--epsilon", "2", "--delta", "1e-5"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("(2.0000, 1e-5)"), "{text}");
    let (first, lines) = (said(), said().lines().count());
    assert_eq!(lines, 120);
    assert_ne!(first, open);
    // A second call has new noise, and is added to what the first cost.
    let text = String::from_utf8_lossy(
        &predict(&["--private", "--epsilon", "2", "--delta", "1e-5"]).stdout,
    )
    .into_owned();
    assert_ne!(first, said());
    assert!(text.contains("guarantee: (2.9") || text.contains("guarantee: (3."), "{text}");
    let bare = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(["predict", "--private", "--text", "sentence", "--model"])
        .arg(bench.path("model"))
        .arg("--data")
        .arg(bench.path("rows.tsv"))
        .arg("--out")
        .arg(bench.path("none.jsonl"))
        .output()
        .unwrap();
    refused(&bare, "sanitiser");
}

#[test]
fn mistakes_are_one_sentence() {
    let sentences = Sentences::start();
    let bench = Bench::classifier();
    let cases: [(&[&str], &str); 17] = [
        (&["privacy.local.dims=[4]"], "[privacy.local] is for"),
        (&["privacy.method=dp-forward", "privacy.local.after=9"], "blocks"),
        (&["privacy.method=dp-forward", "privacy.local.after=roof"], "after is"),
        (&["privacy.method=ew-ft", "privacy.local.encoder=pca"], "public text"),
        (&["privacy.method=ew-ft", "privacy.local.encoder=trained"], "voids the guarantee"),
        (&["privacy.method=ew-ft", "privacy.local.dims=[0]"], "dims"),
        (&["privacy.method=ew-ft", "privacy.schedule=ewpba"], "release = \"path\""),
        (&["privacy.method=mvg", "privacy.mvg.attention=raw"], "raw"),
        (&["privacy.method=mvg", "privacy.mvg.spread=0"], "privacy.mvg.spread"),
        (&["privacy.method=dp-forward", "privacy.local.label_epsilon=9"], "label_epsilon"),
        (&["privacy.method=dp-forward", "training.dropout=true"], "dropout"),
        (&["privacy.method=dp-forward", "privacy.local.learn=discriminant"], "model.tuning"),
        (&["privacy.method=dp-forward", "privacy.local.bound=box"], "bound the norm"),
        (&["privacy.method=dp-forward", "privacy.local.label_epsilon=nan"], "label_epsilon"),
        (&["privacy.method=ew-ft", "privacy.local.encoder=none"], "dp-forward"),
        (&["privacy.mvg.width=4"], "[privacy.mvg] is for"),
        (
            &["privacy.method=dp-forward", "data.author=who", "privacy.local.label_epsilon=2"],
            "each example of a unit",
        ),
    ];
    for (changes, about) in cases {
        bench.refused("refused", &set(changes), about);
    }
    let language =
        Bench::new("gpt2-causal-lm", "tokenizer-wordpiece", "task = \"language-modelling\"");
    language.refused("refused", &set(&["privacy.method=dp-forward"]), "classification");
    sentences.assert("forward");
}

/// As published the autoencoder learns with the model, fitted on public text before or not. In
/// proved mode it must not.
#[test]
fn a_pretrained_autoencoder_learns_on_as_published() {
    let bench = Bench::classifier();
    let public = format!("privacy.local.public={:?}", bench.path("rows.tsv"));
    let encoder = |out: &str, changes: &[&str]| {
        let common = [
            "privacy.method=ew-ft",
            "privacy.local.encoder=autoencoder",
            "privacy.local.dims=[4]",
            "privacy.local.after=1",
            "training.seed=3",
            &public,
        ];
        bench.train(out, &set(&[&common, changes].concat()));
        let folder = bench.path(out).join("model");
        let bytes = fs::read(folder.join("sanitiser.safetensors")).unwrap();
        let config: Value =
            serde_json::from_slice(&fs::read(folder.join("sanitiser.json")).unwrap()).unwrap();
        (tensor(&bytes, "sanitiser.encoder.0.weight"), config)
    };
    let slow = "training.learning_rate=1e-9";
    let (frozen, config) = encoder("slow", &["privacy.mode=paper", slow]);
    assert_eq!(config["activation"], "tanh");
    let (learnt, _) = encoder("fast", &["privacy.mode=paper"]);
    let moved = |a: &[f32], b: &[f32]| a.iter().zip(b).any(|(x, y)| (x - y).abs() > 1e-4);
    assert!(moved(&frozen, &learnt));
    let (linear, config) =
        encoder("none", &["privacy.mode=paper", "privacy.local.activation=none"]);
    assert_eq!(config["activation"], "none");
    assert!(moved(&learnt, &linear));
    let (before, config) = encoder("proved-slow", &[slow]);
    assert!(config["activation"].is_null());
    let (after, _) = encoder("proved", &[]);
    assert_eq!(before, after);
    for (changes, sentence) in [
        (&["privacy.method=ew-ft", "privacy.local.activation=tanh"][..], "autoencoder"),
        (&["privacy.method=mvg", "privacy.local.activation=tanh"], "autoencoder"),
        (
            &[
                "privacy.method=ew-ft",
                "privacy.mode=paper",
                "privacy.local.encoder=orthogonal",
                "privacy.local.activation=tanh",
            ],
            "autoencoder",
        ),
    ] {
        let output = bench.command("no", &set(changes)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(sentence), "{said}");
    }
}

/// Padded as published, the length of a sequence decides how much of the norm its tokens have;
/// without padding `max_tokens` only cuts.
#[test]
fn padded_sequences_depend_on_their_length_as_published() {
    let bench = Bench::classifier();
    // Texts that are not cut.
    let rows: String = (0..40)
        .map(|i| format!("the {}\t{}\n", ["cat", "sun", "the"][i % 3], ["bad", "good"][i % 2]))
        .collect();
    fs::write(bench.path("short.tsv"), format!("sentence\tlabel\n{rows}")).unwrap();
    let train = format!("data.train={:?}", bench.path("short.tsv"));
    let weights = |out: &str, changes: &[&str]| {
        let common = [
            "privacy.method=dp-forward",
            "privacy.mode=paper",
            "privacy.local.after=1",
            "training.seed=3",
            &train,
        ];
        bench.train(out, &set(&[&common, changes].concat()));
        fs::read(bench.path(out).join("model/model.safetensors")).unwrap()
    };
    let public = "privacy.local.lengths=public";
    assert!(weights("a", &[]) != weights("b", &["data.max_tokens=24"]));
    assert!(weights("c", &[public]) == weights("d", &[public, "data.max_tokens=24"]));
    let output = bench
        .command(
            "no",
            &set(&[
                "privacy.method=dp-forward",
                "privacy.local.rows=tokens",
                "privacy.local.lengths=padded",
            ]),
        )
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("mode = \"paper\""), "{said}");
}

/// MVG as published releases column j with noise of std C σ_j, where σ_j follows from the tokens'
/// budgets and contributions.
#[test]
fn mvg_releases_each_column_with_its_own_noise() {
    let bench = Bench::classifier();
    let changes = [
        "privacy.method=mvg",
        "privacy.mode=paper",
        "privacy.mvg.width=20",
        "privacy.mvg.shift=-0.5",
        "privacy.clip=0.5",
        // The weights, which the contributions are of, stay where they began.
        "training.learning_rate=1e-12",
    ];
    let more = [&set(&changes)[..], &["--unset", "privacy.epsilon"]].concat();
    bench.train("run", &more);
    let folder = bench.path("run").join("model");
    let model = load(&folder, &LoadOptions::default()).unwrap();
    let config = read_config(&folder).unwrap().unwrap();
    let map = positional(&model, 16, false).unwrap();
    let budgets = Budgets { shift: -0.5, spread: 0.3, least: 1.0, most: 10.0 };
    // 120 rows in batches of 20, two epochs.
    let of_tokens = budgets.noise_multipliers(16, 1e-3, 20.0 / 120.0, 12).unwrap();
    let wanted = mapped(&token_contributions(&model, &map).unwrap(), &of_tokens);
    let layer = model.network.sanitiser.as_ref().unwrap();
    let std = f64::from(config.noise_std);
    let noise = EmbeddingNoise::new(&Secret::from_seed(1), ReleaseKind::Fresh, vec![std]);
    let examples: Vec<u64> = (0..4_000).collect();
    let starts: Vec<usize> = (0..=4_000).collect();
    let nothing = Host::from_vec(4_000, 20, vec![0.0; 4_000 * 20]);
    let released = layer.released(nothing, &starts, Some(&noise.of(&examples, 0)));
    let mut distinct = Vec::new();
    for (j, sigma) in wanted.iter().enumerate() {
        let squares: f64 = (0..4_000).map(|i| f64::from(released.row(i)[j]).powi(2)).sum();
        let found = (squares / 4_000.0).sqrt();
        assert!((found / (0.5 * sigma) - 1.0).abs() < 0.06, "column {j}: {found}, not C·{sigma}");
        distinct.push(found);
    }
    distinct.sort_by(f64::total_cmp);
    assert!(distinct[19] > 1.02 * distinct[0], "{distinct:?}");
}

/// The paper's classifier reads the d noisy columns: W_c has a row for each class and a column for
/// each column of the sanitisation layer.
#[test]
fn mvg_classifies_the_noisy_columns_as_published() {
    let bench = Bench::classifier();
    let train = |out: &str, changes: &[&str]| {
        let common = ["privacy.method=mvg", "privacy.mode=paper", "privacy.mvg.width=20"];
        let unset = ["--unset", "privacy.epsilon"];
        bench.train(out, &[&set(&[&common, changes].concat())[..], &unset].concat())
    };
    for (out, tuning) in [("full", "full"), ("lora", "{ lora = { rank = 4 } }")] {
        let summary = train(out, &[&format!("model.tuning={tuning}")]);
        assert!(summary["metrics"]["validation"]["accuracy"].is_number());
        let folder = bench.path(out).join(if out == "full" { "model" } else { "adapter" });
        let bytes = fs::read(folder.join("sanitiser.safetensors")).unwrap();
        let head = tensor(&bytes, "sanitiser.head.weight");
        assert_eq!(head.len(), 3 * 20);
        // It learnt: Adam has moved every number from where it was drawn, at 0.02.
        assert!(head.iter().any(|w| w.abs() > 1e-4));
        let names = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert!(!names.names().iter().any(|name| name.contains("decoder")));
        // What was trained loads again, and says the same.
        let again = evaluate(&bench, out);
        assert_eq!(again["accuracy"], summary["metrics"]["validation"]["accuracy"]);
    }
    train("pretrained", &["privacy.mvg.head=pretrained"]);
    let bytes = fs::read(bench.path("pretrained/model/sanitiser.safetensors")).unwrap();
    assert!(!tensor(&bytes, "sanitiser.decoder.0.weight").is_empty());
    let proved = set(&["privacy.method=mvg", "privacy.mvg.head=linear"]);
    let output = bench.command("no", &proved).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("privacy.mvg.head is for mode = \"paper\""), "{said}");
}

/// Noise on the pooler's output, as in DP-Forward's code, in both modes.
#[test]
fn noise_can_be_after_the_pooler() {
    let bench = Bench::classifier();
    let pooler = ["privacy.method=dp-forward", "privacy.local.after=pooler"];
    for (out, more) in [("paper", &["privacy.mode=paper"][..]), ("proved", &[])] {
        let summary = bench.train(out, &set(&[&pooler, more].concat()));
        let said = evaluate(&bench, out);
        assert_eq!(said["accuracy"], summary["metrics"]["validation"]["accuracy"], "{said}");
    }
    // What is below the noise stays as it was in proved mode, the pooler with it.
    let base = safetensors_of(&bench, "model/model.safetensors");
    let trained = safetensors_of(&bench, "proved/model/model.safetensors");
    let pooler_of = |all: &[(String, Vec<u8>)]| {
        all.iter().find(|(name, _)| name.ends_with("pooler.dense.weight")).unwrap().1.clone()
    };
    assert_eq!(pooler_of(&base), pooler_of(&trained));
    bench.refused("no", &set(&[&pooler[..], &["model.tuning=head"]].concat()), "model.tuning");
    bench.refused("no", &set(&[&pooler[..], &["privacy.local.rows=mean"]].concat()), "first");
}

/// EW-FT's table 1: the ledger holds the epoch with noise, and the run says that it does not hold
/// the other.
#[test]
fn noise_in_one_epoch_alone_claims_nothing() {
    let bench = Bench::classifier();
    let changes =
        ["privacy.method=dp-forward", "privacy.mode=paper", "privacy.noise_multipliers=[0.0, 0.5]"];
    let more = [&set(&changes)[..], &["--unset", "privacy.epsilon"]].concat();
    let summary = bench.train("run", &more);
    assert!(summary["private"] == false && summary["claimed"].is_null(), "{summary}");
    let why = summary["not_private_because"].as_str().unwrap();
    assert!(why.contains("without noise"), "{why}");
    assert_eq!(summary["resolved"]["noise_multipliers"], serde_json::json!([0.0, 0.5]));
    assert_eq!(entries(&bench, "run").len(), 1);
}

/// The numbers of a tensor of a safetensors file.
fn tensor(bytes: &[u8], name: &str) -> Vec<f32> {
    let tensors = safetensors::SafeTensors::deserialize(bytes).unwrap();
    let numbers = tensors.tensor(name).unwrap().data().chunks_exact(4);
    numbers.map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}
