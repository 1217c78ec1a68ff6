//! Rap-FT on models whose attention has more than projections and softmax.

use crate::bench::*;
use undertone::model::TaskHead;
use undertone::model::architecture::{Architecture, Dimensions};
use undertone::model::folder::save;

/// A bench with a random model of an architecture.
fn bench(architecture: Architecture, task_head: TaskHead) -> Bench {
    let bench = match task_head {
        TaskHead::SequenceClassification => Bench::classifier(),
        _ => Bench::new("gpt2-causal-lm", "tokenizer-bpe", "task = \"language-modeling\""),
    };
    let dimensions = Dimensions {
        layers: 2,
        hidden: 16,
        heads: 2,
        inner: 24,
        vocabulary: 300,
        positions: 32,
        key_heads: None,
    };
    let labels = ["bad", "neutral", "good"].map(str::to_owned);
    let model = architecture.random(dimensions, task_head, &labels, 5).unwrap();
    save(&model, &bench.path("model"), None).unwrap();
    bench
}

/// QK-norm, norms at the end of branches, a relative-position bias, and the mean over tokens: the
/// map is a release, and the run stays within its budget.
#[test]
fn rap_ft_trains_qwen3_gemma3_mpnet_and_modernbert() {
    let lora = "model.tuning={ lora = { rank = 2 } }";
    for (architecture, task_head) in [
        (Architecture::Qwen3, TaskHead::CausalLanguageModel),
        (Architecture::Gemma3, TaskHead::CausalLanguageModel),
        (Architecture::MpNet, TaskHead::SequenceClassification),
        (Architecture::ModernBert, TaskHead::SequenceClassification),
    ] {
        let bench = bench(architecture, task_head);
        let summary = bench.train("out", &["--set", "privacy.method=rap-ft", "--set", lora]);
        let upper = summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
        assert!(upper <= 8.0 && upper > 7.9, "{architecture:?}: {upper}");
        let ledger = std::fs::read_to_string(bench.path("out/ledger.jsonl")).unwrap();
        // The terms, the map and twelve steps.
        assert_eq!(ledger.lines().count(), 14, "{architecture:?}");
        assert!(bench.path("out/relevance.safetensors").is_file(), "{architecture:?}");
    }
    let deberta = bench(Architecture::Deberta, TaskHead::SequenceClassification);
    let changes = ["--set", "privacy.method=rap-ft", "--set", lora];
    deberta.refused("out", &changes, "as in DeBERTa");
}
