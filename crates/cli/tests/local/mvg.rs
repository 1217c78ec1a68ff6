//! MVG as published: its noise by column, and its classifier.

use super::{evaluate, safetensors_of, set, tensor};
use crate::bench::*;
use std::fs;
use undertone::explain::contribution::{positional, token_contributions};
use undertone::method::local::EmbeddingNoise;
use undertone::method::local::mvg::{Budgets, mapped};
use undertone::model::folder::{LoadOptions, load};
use undertone::model::sanitized::read_config;
use undertone::noise::Secret;
use undertone::run::ReleaseKind;
use undertone::tensor::Host;

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
        // Keep the weights, from which the contributions are computed, at their initial values.
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
    let layer = model.network.sanitizer.as_ref().unwrap();
    let std = f64::from(config.noise_std);
    let noise = EmbeddingNoise::new(&Secret::from_seed(1), ReleaseKind::Fresh, vec![std]);
    let examples: Vec<u64> = (0..4_000).collect();
    let starts: Vec<usize> = (0..=4_000).collect();
    let nothing = Host::from_vec(4_000, 20, vec![0.0; 4_000 * 20]);
    let released = layer.released(nothing, &starts, Some(&noise.of(&examples, 0)));
    let mut distinct = Vec::new();
    for (j, sigma) in wanted.iter().enumerate() {
        let squares: f64 = (0..4_000).map(|i| f64::from(released.row(i)[j]).powi(2)).sum();
        let measured = (squares / 4_000.0).sqrt();
        assert!(
            (measured / (0.5 * sigma) - 1.0).abs() < 0.06,
            "column {j}: {measured}, not C·{sigma}"
        );
        distinct.push(measured);
    }
    distinct.sort_by(f64::total_cmp);
    assert!(distinct[19] > 1.02 * distinct[0], "{distinct:?}");
}

/// The paper's classifier reads the d noisy columns: W_c has one row per class and one column per
/// column of the sanitization layer.
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
        let bytes = fs::read(folder.join("sanitizer.safetensors")).unwrap();
        let head = tensor(&bytes, "sanitizer.head.weight");
        assert_eq!(head.len(), 3 * 20);
        // The classifier was trained: Adam has moved every value from its initial draw, at std
        // 0.02.
        assert!(head.iter().any(|w| w.abs() > 1e-4));
        // So was the model below the noise, end to end.
        const QUERY: &str = "bert.encoder.layer.0.attention.self.query.weight";
        if out == "full" {
            let [before, after] = ["model", "full/model"]
                .map(|of| tensor(&bench.bytes(&format!("{of}/model.safetensors")), QUERY));
            assert_ne!(before, after);
        } else {
            let adapter = safetensors_of(&bench, "lora/adapter/adapter_model.safetensors");
            let ups: Vec<_> = adapter.iter().filter(|(name, _)| name.contains("lora_B")).collect();
            assert!(!ups.is_empty() && ups.iter().all(|(_, up)| up.iter().any(|&x| x != 0)));
        }
        let names = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert!(!names.names().iter().any(|name| name.contains("decoder")));
        // The trained model loads again and gives the same results.
        let again = evaluate(&bench, out);
        assert_eq!(again["accuracy"], summary["metrics"]["validation"]["accuracy"]);
    }
    train("pretrained", &["privacy.paper.head=pretrained"]);
    let bytes = fs::read(bench.path("pretrained/model/sanitizer.safetensors")).unwrap();
    assert!(!tensor(&bytes, "sanitizer.decoder.0.weight").is_empty());
    let proved = set(&["privacy.method=mvg", "privacy.paper.head=linear"]);
    let output = bench.command("no", &proved).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("privacy.paper.head is for mode = \"paper\""), "{said}");
}
