//! Paper mode: the behavior of the published methods, which guarantee nothing.

use super::{entries, evaluate, safetensors_of, set, tensor};
use crate::bench::*;
use serde_json::Value;
use std::fs;

#[test]
fn published_methods_claim_and_guarantee_nothing() {
    let bench = Bench::classifier();
    let mvg = set(&[
        "privacy.method=mvg",
        "privacy.mode=paper",
        "privacy.mvg.width=20",
        "privacy.mvg.attention=raw",
    ]);
    // Its budgets are those of the tokens.
    let summary = bench.train("mvg", &[&mvg[..], &["--unset", "privacy.epsilon"]].concat());
    assert_eq!(summary["private"], false);
    assert_eq!(summary["claimed"]["epsilon"], 10.0);
    let (exact, condition) = (
        summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap(),
        summary["records"]["sufficient_epsilon"].as_f64().unwrap(),
    );
    assert!(exact > 100.0 && condition > exact / 2.0, "{exact} {condition}");
    // With C = 1 and twenty columns, s₂² = 20 is above s₂.
    assert!(summary["records"]["printed_epsilon"].as_f64().unwrap() > condition);
    let ew_ft = set(&[
        "privacy.method=ew-ft",
        "privacy.mode=paper",
        "privacy.local.after=1",
        "privacy.schedule=ewpba",
    ]);
    let summary = bench.train("ew-ft", &ew_ft);
    assert!(summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap() > 20.0);
}

/// As published, the autoencoder is trained with the model, whether or not it was fitted on public
/// text first. In proved mode it must not be.
#[test]
fn a_pretrained_autoencoder_learns_on_as_published() {
    let bench = Bench::classifier();
    let public = format!("privacy.local.public={:?}", bench.public());
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
        let bytes = fs::read(folder.join("sanitizer.safetensors")).unwrap();
        let config: Value =
            serde_json::from_slice(&fs::read(folder.join("sanitizer.json")).unwrap()).unwrap();
        (tensor(&bytes, "sanitizer.encoder.0.weight"), config)
    };
    let slow = "training.learning_rate=1e-9";
    let (frozen, config) = encoder("slow", &["privacy.mode=paper", slow]);
    assert_eq!(config["activation"], "tanh");
    let (learned, _) = encoder("fast", &["privacy.mode=paper"]);
    let moved = |a: &[f32], b: &[f32]| a.iter().zip(b).any(|(x, y)| (x - y).abs() > 1e-4);
    assert!(moved(&frozen, &learned));
    let (linear, config) =
        encoder("none", &["privacy.mode=paper", "privacy.local.activation=none"]);
    assert_eq!(config["activation"], "none");
    assert!(moved(&learned, &linear));
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

/// With padding as published, the length of a sequence determines its tokens' share of the norm;
/// without padding, `max_tokens` only truncates.
#[test]
fn padded_sequences_depend_on_their_length_as_published() {
    let bench = Bench::classifier();
    // Texts that are not truncated.
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
    // In proved mode everything below the noise stays unchanged, including the pooler.
    let base = safetensors_of(&bench, "model/model.safetensors");
    let trained = safetensors_of(&bench, "proved/model/model.safetensors");
    let pooler_of = |all: &[(String, Vec<u8>)]| {
        all.iter().find(|(name, _)| name.ends_with("pooler.dense.weight")).unwrap().1.clone()
    };
    assert_eq!(pooler_of(&base), pooler_of(&trained));
    bench.refused("no", &set(&[&pooler[..], &["model.tuning=head"]].concat()), "model.tuning");
    bench.refused("no", &set(&[&pooler[..], &["privacy.local.rows=mean"]].concat()), "first");
}

/// EW-FT's table 1: the ledger contains the noisy epoch, and the run states that it does not
/// contain the other one.
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
