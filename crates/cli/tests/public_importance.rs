//! Weights of ANADP and AdaClip from a public file, through the command line.

use crate::bench::*;
use serde_json::Value;
use std::fs;

/// A public file, and a second private file with the same number of rows.
fn bench() -> Bench {
    let bench = Bench::classifier();
    let rows = |words: &[&str], step: usize| -> String {
        let row = |i: usize| {
            let text: Vec<&str> =
                (0..2 + i % 4).map(|j| words[(i * step + j * 5) % words.len()]).collect();
            format!("{}\t{}\tsomebody {i}\n", text.join(" "), ["good", "bad"][i % 2])
        };
        (0..120).map(row).collect()
    };
    let file = |name: &str, rows: String| {
        fs::write(bench.path(name), format!("sentence\tlabel\twho\n{rows}")).unwrap();
    };
    file("public.tsv", rows(&WORDS[2..], 3));
    file("other.tsv", rows(&WORDS[..5], 11));
    bench
}

/// The weights follow from the public file: a different private file of the same size leaves them
/// unchanged, a different public file does not. The ledger names the public file.
#[test]
fn weights_do_not_depend_on_the_private_file() {
    let bench = bench();
    let public = format!("{{ public = {:?} }}", bench.path("public.tsv"));
    let other_public = format!("{{ public = {:?} }}", bench.path("other.tsv"));
    let other = format!("data.train={:?}", bench.path("other.tsv"));
    for (method, tuning) in [("adaclip", "full"), ("anadp", "bitfit"), ("adaclip", "bitfit")] {
        let train = |name: &str, file: &str, data: &[&str]| -> Value {
            let set = [
                format!("privacy.method={method}"),
                format!("privacy.{method}.importance={file}"),
                format!("model.tuning={tuning}"),
            ];
            let mut all: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
            all.extend(["--set", "training.epochs=1", "--seed", "5"]);
            all.extend(data);
            bench.train(&format!("{method}-{tuning}-{name}"), &all)
        };
        let first_run = train("one", &public, &[]);
        let again = train("again", &public, &["--set", &other]);
        let unlike = train("unlike", &other_public, &[]);
        let noise = |summary: &Value| summary["noise_by_parameter"].clone();
        assert_eq!(noise(&first_run), noise(&again), "{method}, {tuning}");
        assert_ne!(noise(&first_run), noise(&unlike), "{method}, {tuning}");
        let first = noise(&first_run)[0][1].as_f64().unwrap();
        let uneven =
            noise(&first_run).as_array().unwrap().iter().any(|n| n[1].as_f64() != Some(first));
        assert!(uneven, "{method}, {tuning}: {}", noise(&first_run));
        let assumed = first_run["guarantee"]["assumptions"].to_string();
        assert!(assumed.contains("public.tsv is public and does not depend"), "{assumed}");
        let epsilon = first_run["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
        assert!(epsilon <= 8.0 && epsilon > 7.9, "the weights cost nothing: {epsilon}");
    }
}

/// A killed run resumes with the same weights.
#[test]
fn a_killed_run_has_the_weights_of_an_unbroken_one() {
    let bench = bench();
    let public =
        format!("privacy.adaclip.importance={{ public = {:?} }}", bench.path("public.tsv"));
    let set = [
        "--set",
        "privacy.method=adaclip",
        "--set",
        &public,
        "--set",
        "model.tuning=bitfit",
        "--set",
        "training.epochs=30",
        "--set",
        "compute.checkpoint_every=7",
        "--seed",
        "3",
    ];
    bench.train("whole", &set);
    assert!(bench.kill_after("killed", &set, 12));
    bench.resume("killed");
    bench.assert_same_runs("killed", "whole", "adapter/adapter_model.safetensors");
}

#[test]
fn public_importance_is_refused_where_it_has_no_meaning() {
    let bench = bench();
    let public = format!("{{ public = {:?} }}", bench.path("public.tsv"));
    let of = |method: &str| format!("privacy.{method}.importance={public}");
    let (anadp, adaclip) = (of("anadp"), of("adaclip"));
    let with = |set: &[&str], about: &str| {
        let set: Vec<&str> = set.iter().flat_map(|set| ["--set", *set]).collect();
        bench.refused("out", &set, about);
    };
    let (is_anadp, is_adaclip) = ("privacy.method=anadp", "privacy.method=adaclip");
    with(&[is_anadp, &anadp, "privacy.mode=paper"], "privacy.anadp.importance is for mode");
    with(&[&anadp], "privacy.anadp");
    with(&[is_adaclip, &adaclip, "privacy.adaclip.beta=0.5"], "privacy.adaclip.beta is for");
    with(&[is_adaclip, "privacy.adaclip.form=element"], "privacy.adaclip.form is for");
    let missing = "privacy.adaclip.importance={ public = \"nowhere.tsv\" }";
    with(&[is_adaclip, missing], "nowhere.tsv");
}

/// The private training file cannot be declared public, whatever the key or the path.
#[test]
fn the_training_file_is_not_taken_for_public() {
    let bench = Bench::classifier();
    let (plain, around) = (bench.path("rows.tsv"), bench.path("x/../rows.tsv"));
    std::fs::create_dir_all(bench.path("x")).unwrap();
    for file in [plain, around] {
        for (method, key) in [
            ("anadp", format!("privacy.anadp.importance={{ public = {file:?} }}")),
            ("adaclip", format!("privacy.adaclip.importance={{ public = {file:?} }}")),
            ("rap-ft", format!("privacy.rap_ft.relevance={{ public = {file:?} }}")),
            ("ew-ft", format!("privacy.local.public={file:?}")),
            ("dp-forward", format!("privacy.local.adapt={{ public = {file:?} }}")),
        ] {
            let method = format!("privacy.method={method}");
            let changes = ["--set", &method, "--set", "model.tuning=head", "--set", &key];
            bench.refused("run", &changes, "is the private training file");
        }
    }
}
