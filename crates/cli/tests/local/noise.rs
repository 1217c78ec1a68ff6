//! Proved mode keeps to its budget, and freezes or accounts for everything below the noise.

use super::{entries, evaluate, safetensors_of, set};
use crate::bench::*;
use serde_json::Value;

#[test]
fn every_forward_method_keeps_to_its_budget() {
    let bench = Bench::classifier();
    let public = format!("privacy.local.public={:?}", bench.public());
    // The settings, and the expected number of ledger entries.
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
        // The trained model loads again and gives the same results.
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
    // 120 examples in batches of 20, twice.
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
