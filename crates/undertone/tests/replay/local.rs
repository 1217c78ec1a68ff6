//! Local methods: each example's release separately, whatever the weights are.

use super::*;
use bench::RARE;

const BUDGET: &str = "epsilon = 8.0\ndelta = 1e-3\n";

/// A method's lines of `[privacy]`.
fn methods() -> Vec<(&'static str, String)> {
    let with = |lines: &str| format!("{BUDGET}{lines}");
    vec![
        ("dp-forward", with("method = \"dp-forward\"")),
        (
            "dp-forward normalized",
            with("method = \"dp-forward\"\nlocal = { bound = \"normalize\" }"),
        ),
        ("dp-forward fresh", with("method = \"dp-forward\"\nlocal = { release = \"fresh\" }")),
        ("dp-forward tokens", with("method = \"dp-forward\"\nlocal = { rows = \"tokens\" }")),
        ("dp-forward early", with("method = \"dp-forward\"\nlocal = { after = 1 }")),
        (
            "ew-ft path",
            with(
                "method = \"ew-ft\"\nschedule = \"ewpba\"\nlocal = { dims = [4], \
                 release = \"path\" }",
            ),
        ),
        ("ew-ft labels", with("method = \"ew-ft\"\nlocal = { dims = [4], label_epsilon = 2.0 }")),
        ("mvg", with("method = \"mvg\"\nmvg = { width = 20 }")),
        (
            "mvg atten-dp",
            with(
                "method = \"mvg\"\nmvg = { width = 20, attention = \"atten-dp\", \
                 attention_epsilon = 1.0, attention_examples = 20 }",
            ),
        ),
        ("adapted", with("method = \"dp-forward\"\nlocal = { adapt = { share = 0.3 } }")),
    ]
}

fn replaced(text: &str) -> Neighbors {
    let row = Row { text: text.to_owned(), label: "neutral", who: "p9".to_owned() };
    Neighbors::replacing_last("a replaced row", &rows(30), row)
}

fn compare(bench: &Bench, method: &str, privacy: &str, neighbors: &Neighbors) {
    let tuning = if method == "adapted" { "\"head\"" } else { "\"full\"" };
    let plan = bench.plan("classification", tuning, "", privacy, "");
    for arithmetic in Arithmetic::all() {
        bench.compare(&plan, neighbors, 1, &arithmetic.device).check(method, &arithmetic);
    }
}

#[test]
fn no_example_moves_its_release_by_more_than_its_bound() {
    let bench = Bench::new("bert-classification");
    for (method, privacy) in methods() {
        for text in chosen(vec!["hood ".repeat(30), String::new(), "e".to_owned()], 3) {
            compare(&bench, method, &privacy, &replaced(&text));
        }
    }
}

/// The provider chooses the weights: the bound holds for any weights.
#[test]
fn no_example_moves_its_release_by_more_than_its_bound_whatever_the_weights() {
    let scales: [(&str, Option<usize>, f32); 6] = [
        ("word_embeddings", Some(26), 1e38),
        ("word_embeddings", Some(26), 1e25),
        ("LayerNorm.weight", None, 1e30),
        ("LayerNorm.weight", None, 1e-42),
        ("pooler", None, 1e20),
        ("output.dense.weight", None, 1e36),
    ];
    for (part, row, factor) in chosen(scales.to_vec(), 2) {
        let bench = Bench::new("bert-classification");
        bench.scale_weights(part, row, factor);
        for (method, privacy) in chosen(methods(), 3) {
            let neighbors = replaced(&format!("good {RARE} film"));
            let plan = bench.plan("classification", "\"full\"", "", &privacy, "");
            if method == "adapted" {
                continue;
            }
            let outcome = bench.compare(&plan, &neighbors, 1, &Device::Cpu);
            // A non-finite row is released as zeros in both runs.
            let moved = outcome.moved.max(1);
            let context = format!("{method}, {part} times {factor:e}");
            Outcome { moved, ..outcome }.check(&context, &Arithmetic::cpu());
        }
    }
}
