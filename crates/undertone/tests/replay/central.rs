//! All gradient methods, over fine-tuning methods, architectures, tasks, units, ranks and
//! precisions.

use super::*;
use bench::RARE;

const LORA: &str = "{ lora = { rank = 2 } }";
/// Divides none of the other numbers; rate and divisor follow from this declaration.
const UNITS: &str = "units = 31\n";

const PROMPT: &str = "{ prompt = { tokens = 3 } }";

/// A method's lines of `[privacy]`, and which tunings it has.
fn methods() -> Vec<(&'static str, String, &'static [&'static str])> {
    let all: &[&str] = &[
        "\"full\"",
        LORA,
        "{ adapter = { size = 3 } }",
        "\"bitfit\"",
        "\"head\"",
        "{ ia3 = {} }",
        "{ lora = { rank = 2, dora = true } }",
        PROMPT,
    ];
    let weighted: &[&str] = &["\"full\"", LORA, "{ adapter = { size = 3 } }"];
    let peft: &[&str] = &[LORA, "{ adapter = { size = 3 } }", "\"bitfit\"", "{ ia3 = {} }", PROMPT];
    let with = |lines: &str| format!("noise_multiplier = 0.8\ndelta = 1e-3\n{UNITS}{lines}");
    let epsilon = |lines: &str| format!("epsilon = 6.0\ndelta = 1e-3\n{UNITS}{lines}");
    let adaptive = "{ adaptive = { quantile = 0.5, initial = 0.3, rate = 0.2 } }";
    vec![
        ("dp-sgd flat", with("method = \"dp-sgd\"\nclip = 0.1"), all),
        ("dp-sgd automatic", with("method = \"dp-sgd\"\nclip = \"automatic\""), all),
        ("dp-sgd per layer", with("method = \"dp-sgd\"\nclip = { per_layer = 0.2 }"), all),
        ("dp-sgd adaptive", with(&format!("method = \"dp-sgd\"\nclip = {adaptive}")), weighted),
        (
            "dp-sgd correlated",
            with("method = \"dp-sgd\"\nclip = 0.1\ncorrelation = { bands = 2 }"),
            weighted,
        ),
        (
            "dp-sgd ewpba",
            epsilon("method = \"dp-sgd\"\nclip = 0.1\nschedule = \"ewpba\""),
            &["\"full\""],
        ),
        ("anadp", with("method = \"anadp\"\nclip = 0.1"), weighted),
        (
            "anadp factored",
            with("method = \"anadp\"\nclip = 0.1\nanadp = { form = \"factored\" }"),
            weighted,
        ),
        ("adaclip", with("method = \"adaclip\"\nclip = 0.1"), weighted),
        ("rap-ft", epsilon("method = \"rap-ft\"\nclip = 0.1"), peft),
    ]
}

fn row(text: &str, who: &str) -> Row {
    Row { text: text.to_owned(), label: "neutral", who: who.to_owned() }
}

/// Units that an adversary might add, each to the same rows.
fn units() -> Vec<Neighbors> {
    let base = rows(30);
    let with = |name, unit: &[Row]| Neighbors::with(name, &base, unit);
    vec![
        with("a long text", &[row(&"film ".repeat(40), "z")]),
        with("a text without words", &[row("", "z")]),
        with("one token", &[row("e", "z")]),
        with("the same as another", &base[..1]),
    ]
}

fn compare(bench: &Bench, plan: &undertone::Plan, neighbors: &Neighbors, context: &str) {
    for arithmetic in Arithmetic::all() {
        let context = format!("{context}, {}", neighbors.name);
        bench.compare(plan, neighbors, 1, &arithmetic.device).check(&context, &arithmetic);
    }
}

#[test]
fn no_unit_moves_a_step_by_more_than_its_bound() {
    let bench = Bench::new("bert-classification");
    let mut all = Vec::new();
    for (method, privacy, tunings) in methods() {
        for tuning in tunings {
            for unit in units() {
                all.push((method, privacy.clone(), *tuning, unit));
            }
        }
    }
    for (method, privacy, tuning, unit) in chosen(all, 9) {
        let plan = bench.plan("classification", tuning, "", &privacy, "");
        compare(&bench, &plan, &unit, &format!("{method}, {tuning}"));
    }
}

#[test]
fn no_unit_moves_a_step_of_any_architecture_by_more_than_its_bound() {
    let classifiers = [
        "deberta-classification",
        "distilbert-classification",
        "modernbert-classification",
        "mpnet-classification",
        "roberta-classification",
        "gpt2-classification",
        "llama-classification",
        "qwen2-classification",
        "gemma2-classification",
    ];
    let language_models = [
        "gpt2-causal-lm",
        "llama-causal-lm",
        "llama-untied",
        "mistral-causal-lm",
        "qwen3-causal-lm",
        "gemma3-causal-lm",
        "phi3-causal-lm",
        "smollm3-causal-lm",
    ];
    let masked = ["bert-masked-lm", "modernbert-masked-lm", "mpnet-masked-lm"];
    let of = |models: &[&'static str], task: &'static str| -> Vec<(&'static str, &'static str)> {
        models.iter().map(|model| (*model, task)).collect()
    };
    let mut all = of(&classifiers, "classification");
    all.extend(of(&language_models, "language-modeling"));
    all.extend(of(&masked, "masked-language-modeling"));
    let privacy =
        format!("noise_multiplier = 0.8\ndelta = 1e-3\n{UNITS}method = \"dp-sgd\"\nclip = 0.1");
    for (model, task) in chosen(all, 4) {
        let bench = Bench::new(model);
        for tuning in chosen(vec!["\"full\"", LORA], 1) {
            let plan = bench.plan(task, tuning, "", &privacy, "");
            // A language model refuses a text without tokens, because it has nothing to learn from
            // it.
            let units = units().into_iter();
            let units = units
                .filter(|unit| task == "classification" || unit.name != "a text without words");
            for unit in chosen(units.collect(), 4) {
                compare(&bench, &plan, &unit, &format!("{model}, {tuning}"));
            }
        }
    }
}

/// All rows of an author are one unit, up to `most_per_author`, and are clipped together.
#[test]
fn no_user_moves_a_step_by_more_than_its_bound() {
    let base = rows(30);
    let user: Vec<Row> =
        (0..7).map(|i| row(["good film", "hood", "the mist was"][i % 3], "z")).collect();
    let neighbors = Neighbors::with("a user with seven rows", &base, &user);
    let data = "author = \"who\"\nmost_per_author = 4\n";
    let bench = Bench::new("bert-classification");
    for (method, privacy, tunings) in chosen(methods(), 4) {
        let privacy = privacy.replace("units = 31", "units = 11");
        let plan = bench.plan("classification", tunings[0], data, &privacy, "batch = 5");
        compare(&bench, &plan, &neighbors, method);
    }
}

/// If examples are sampled one by one, a user with k examples moves a step by at most k bounds, and
/// by 2k if all of them are replaced. Equal examples come close to that: k of them move the step k
/// times as far as one. (The number of examples is public, so both data sets have the same.)
#[test]
fn no_user_moves_a_step_by_more_than_the_bounds_of_all_examples() {
    let bench = Bench::new("bert-classification");
    let base = rows(30);
    let user = |label| {
        let row = Row { text: "good film".to_owned(), label, who: "z".to_owned() };
        [&base[..], &vec![row; 7]].concat()
    };
    let neighbors = Neighbors { name: "a user", one: user("good"), other: user("bad") };
    for clip in ["0.1", "\"automatic\"", "{ per_layer = 0.2 }"] {
        // Relative to the bound of all examples. Every example of the file is in every step.
        let distance = |most: usize| {
            let data = format!("author = \"who\"\nmost_per_author = {most}\n");
            let privacy = format!(
                "noise_multiplier = 2.0\ndelta = 1e-3\nmethod = \"dp-sgd\"\nsampling = \
                 \"examples\"\nclip = {clip}"
            );
            let batch = format!("batch = {}", 10 * most.min(3) + most);
            let plan = bench.plan("classification", "\"full\"", &data, &privacy, &batch);
            let outcome = bench.compare(&plan, &neighbors, 1, &Arithmetic::cpu().device);
            assert!(outcome.different.is_empty(), "{clip}: {:?}", outcome.different);
            assert!((0.5..=2.0001).contains(&outcome.worst), "{clip}: {}", outcome.worst);
            outcome.worst
        };
        let (one, many) = (distance(1), distance(4));
        println!("{clip}: {one:.5} of the bound with one example, {many:.5} with four");
        assert!((many / one - 1.0).abs() < 0.1, "{clip}: {one} {many}");
    }
}

/// Weights near the largest f32 make the gradient of one unit overflow. The unit counts as zero and
/// must not affect the gradients of the others.
#[test]
fn a_unit_whose_gradient_overflows_moves_nothing_else() {
    for factor in chosen(vec![1e38, 1e30, 1e12], 1) {
        let bench = Bench::new("bert-classification");
        // The token of RARE.
        bench.scale_weights("word_embeddings", Some(26), factor);
        let base = rows(30);
        let text = format!("good {RARE} film");
        let neighbors = Neighbors::with("a huge embedding", &base, &[row(&text, "z")]);
        for (method, privacy, tunings) in chosen(methods(), 3) {
            let plan = bench.plan("classification", tunings[0], "", &privacy, "");
            for arithmetic in Arithmetic::all() {
                let outcome = bench.compare(&plan, &neighbors, 1, &arithmetic.device);
                // A unit without a gradient moves only the count of adaptive clipping.
                let moved = outcome.moved.max(1);
                Outcome { moved, ..outcome }.check(&format!("{method}, {factor:e}"), &arithmetic);
            }
        }
    }
}

/// Removing a unit is the same in reverse.
#[test]
fn no_unit_moves_a_step_by_more_than_its_bound_when_it_leaves() {
    let bench = Bench::new("bert-classification");
    for (method, privacy, tunings) in chosen(methods(), 5) {
        let plan = bench.plan("classification", tunings[0], "", &privacy, "");
        let neighbors = units().swap_remove(0).reversed();
        compare(&bench, &plan, &neighbors, &format!("{method}, leaving"));
    }
}

/// Ranks divide the examples and the update among themselves, but release the sum of all ranks.
#[test]
fn no_unit_moves_the_step_of_several_ranks_by_more_than_its_bound() {
    let bench = Bench::new("bert-classification");
    for (method, privacy, tunings) in chosen(methods(), 3) {
        let plan = bench.plan("classification", tunings[0], "", &privacy, "");
        for ranks in chosen(vec![2, 3], 2) {
            let neighbors = &units()[0];
            let outcome = bench.compare(&plan, neighbors, ranks, &Device::Cpu);
            outcome.check(&format!("{method}, {ranks} ranks"), &Arithmetic::cpu());
        }
    }
}

/// Micro-batches, recomputation and packing change how a step is computed, not what it releases.
#[test]
fn no_unit_moves_a_step_in_parts_by_more_than_its_bound() {
    let bench = Bench::new("bert-classification");
    let privacy = &methods()[0].1;
    for compute in ["micro_batch = 1", "micro_batch = 3", "recompute = true", "micro_tokens = 20"] {
        let training = format!("[compute]\n{compute}");
        let plan = bench.plan("classification", LORA, "", privacy, &training);
        compare(&bench, &plan, &units()[0], compute);
    }
    let bench = Bench::new("gpt2-causal-lm");
    let user: Vec<Row> = (0..7).map(|_| row("the film was good", "z")).collect();
    let neighbors = Neighbors::with("a user whose texts are joined", &rows(30), &user);
    let data = "author = \"who\"\npack = true\n";
    let privacy = privacy.replace("units = 31", "units = 11");
    let plan = bench.plan("language-modeling", LORA, data, &privacy, "batch = 5");
    compare(&bench, &plan, &neighbors, "packed");
}

/// The statistics of synthetic rows: one row of a user counts in either histogram, whatever the
/// others are.
#[test]
fn no_user_moves_the_statistics_of_synthetic_rows_by_more_than_their_bound() {
    let user = |texts: &[&str], labels: &[&'static str]| -> Vec<Row> {
        let row = |(text, label): (&&str, &&'static str)| Row { label, ..row(text, "z") };
        texts.iter().zip(labels).map(row).collect()
    };
    let bench = Bench::new("gpt2-causal-lm");
    let codes = "prompt = \"{label}\"\ncompletion = \"sentence\"\nmax_tokens = 32\nauthor = \
                 \"who\"\nmost_per_author = 4\n[synthesis]\nstatistics_share = 0.5\ncodes = { \
                 label = [\"bad\", \"good\", \"e\"] }";
    let privacy = "method = \"dp-sgd\"\nclip = 0.1\nepsilon = 40.0\ndelta = 1e-3\nunits = 11";
    let plan = bench.plan("completion", LORA, codes, privacy, "batch = 5");
    let alike = user(&["film"; 7], &["e"; 7]);
    let mixed = user(&["film", "the mist was", "a good film hood"], &["bad", "good", "e"]);
    for (name, unit) in [("alike", &alike), ("mixed", &mixed)] {
        let neighbors = Neighbors::with(name, &rows(30), unit);
        let outcome = bench.compare(&plan, &neighbors, 1, &Device::Cpu);
        outcome.check(name, &Arithmetic::cpu());
        let moved = outcome.statistics.unwrap();
        assert!((moved - 1.0).abs() < 1e-6, "{name}: {moved} of the bound");
    }
}
