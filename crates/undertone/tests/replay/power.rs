//! The replay detects what it is meant to detect: runs that violate the statement.

use super::*;

fn unit() -> Neighbors {
    let row = Row { text: "film ".repeat(40), label: "neutral", who: "z".to_owned() };
    Neighbors::with("a long text", &rows(30), &[row])
}

fn outcome(privacy: &str) -> Outcome {
    let bench = Bench::new("bert-classification");
    let plan = bench.plan("classification", "\"full\"", "", privacy, "");
    bench.compare(&plan, &unit(), 1, &Device::Cpu)
}

/// ANADP as published allocates noise by the raw gradient, which reaches the weights without noise.
#[test]
fn the_leak_of_a_published_method_is_found() {
    let result = outcome(
        "method = \"anadp\"\nmode = \"paper\"\nunits = 31\nnoise_multiplier = 0.8\ndelta = 1e-3\n\
         clip = 0.1",
    );
    let weights = |name: &String| name.contains("safetensors");
    assert!(result.different.iter().any(weights), "{:?}", result.different);
}

/// Without a declared number of units, rate and divisor follow from the true number. The run then
/// assumes that this number is public and states so in its ledger.
#[test]
fn the_number_of_units_shows_unless_it_is_declared() {
    let lines = "method = \"dp-sgd\"\nnoise_multiplier = 0.8\ndelta = 1e-3\nclip = 0.1\n";
    let result = outcome(lines);
    assert!(result.different.iter().any(|name| name == "ledger.jsonl"), "{:?}", result.different);
    let result = outcome(&format!("{lines}units = 31"));
    assert!(result.different.is_empty(), "{:?}", result.different);
}
