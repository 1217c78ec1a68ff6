//! Relevance is neither created nor lost on its way through a model.

mod published;

use undertone::data::{Example, Target};
use undertone::explain::relevance::{AlphaBeta, Explainer, LinearRule, Probes, rules};
use undertone::gradient::Clip;
use undertone::method::central::{
    PublishedRapFt, RapFt, ReleasedRelevanceMap, RelevanceMap, RelevanceSum,
};
use undertone::model::architecture::{Architecture, Dimensions};
use undertone::model::layer::linear::Linear;
use undertone::model::tuning::{
    AdapterSettings, Ia3Settings, LoraSettings, PromptSettings, Tuning,
};
use undertone::model::{Model, Origin, TaskHead};
use undertone::run::InitialRelevance;
use undertone::step::Allocator;
use undertone::tensor::Host;

const PROBES: Probes = Probes { seed: 7, count: 4 };

const KINDS: [(Architecture, TaskHead); 14] = [
    (Architecture::Bert, TaskHead::SequenceClassification),
    (Architecture::DistilBert, TaskHead::SequenceClassification),
    (Architecture::Roberta, TaskHead::SequenceClassification),
    (Architecture::Gpt2, TaskHead::SequenceClassification),
    (Architecture::Llama, TaskHead::SequenceClassification),
    (Architecture::Gpt2, TaskHead::CausalLanguageModel),
    (Architecture::Llama, TaskHead::CausalLanguageModel),
    (Architecture::Gemma2, TaskHead::CausalLanguageModel),
    (Architecture::Gemma2, TaskHead::SequenceClassification),
    (Architecture::Phi3, TaskHead::CausalLanguageModel),
    (Architecture::Qwen3, TaskHead::CausalLanguageModel),
    (Architecture::Gemma3, TaskHead::CausalLanguageModel),
    (Architecture::MpNet, TaskHead::SequenceClassification),
    (Architecture::ModernBert, TaskHead::SequenceClassification),
];

fn model(architecture: Architecture, task_head: TaskHead, tuning: &Tuning) -> Model {
    let dimensions = Dimensions {
        layers: 3,
        hidden: 16,
        heads: 4,
        inner: 40,
        vocabulary: 60,
        positions: 100,
        key_heads: None,
    };
    let labels = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
    let mut model = architecture.random(dimensions, task_head, &labels, 5).unwrap();
    model.apply_tuning(tuning, 3).unwrap();
    model
}

fn example(task_head: TaskHead) -> Example {
    Example {
        tokens: (0..9).map(|t| (t * t + 3) % 50).collect(),
        target: match task_head {
            TaskHead::CausalLanguageModel => Target::Next { from: 3 },
            _ => Target::Class(1),
        },
        ..Example::default()
    }
}

fn scales_embeddings(architecture: Architecture) -> bool {
    [Architecture::Gemma2, Architecture::Gemma3].contains(&architecture)
}

fn tunings(architecture: Architecture, task_head: TaskHead) -> Vec<Tuning> {
    let mut all = vec![
        Tuning::Lora(LoraSettings { rank: 2, ..LoraSettings::default() }),
        Tuning::Adapter(AdapterSettings { size: 4, ..AdapterSettings::default() }),
        Tuning::Ia3(Ia3Settings::default()),
    ];
    if !scales_embeddings(architecture) {
        all.push(Tuning::Prompt(PromptSettings { tokens: 3 }));
    }
    if task_head == TaskHead::SequenceClassification {
        all.push(Tuning::Head);
    }
    all
}

/// An operation without a rule gives a one-sentence error that names it.
#[test]
fn relevance_without_a_rule_is_refused() {
    let task_head = TaskHead::SequenceClassification;
    let tuning = &tunings(Architecture::Deberta, task_head)[0];
    let model = model(Architecture::Deberta, task_head, tuning);
    let explainer =
        Explainer::new(&model, AlphaBeta::default(), InitialRelevance::TopK(5), PROBES).unwrap();
    let said = explainer.relevance(&example(task_head)).unwrap_err().to_string();
    assert!(said.contains("as in DeBERTa"), "{said}");
}

#[test]
fn the_total_is_the_same_at_every_layer() {
    for (architecture, task_head) in KINDS {
        for tuning in tunings(architecture, task_head) {
            let model = model(architecture, task_head, &tuning);
            for (alpha, beta) in [(1.0, 0.0), (2.0, -1.0), (0.5, 0.5)] {
                let rule = AlphaBeta { alpha, beta };
                let explainer =
                    Explainer::new(&model, rule, InitialRelevance::TopK(5), PROBES).unwrap();
                let relevance_map = explainer.relevance(&example(task_head)).unwrap();
                let what = format!("{architecture:?} {task_head:?} {} {rule:?}", tuning.name());
                assert_eq!(relevance_map.flow.len(), 2 + 3, "{what}");
                let start = relevance_map.flow[0];
                assert!(start > 0.0, "{what}");
                for (point, total) in relevance_map.flow.iter().enumerate() {
                    let off = (total - start).abs() / start;
                    assert!(off < 1e-4, "{what}: {total} at point {point}, not {start}");
                }
                for ((_, parameter), relevance) in model.parameters.iter().zip(&relevance_map.of) {
                    assert!(relevance.iter().all(|r| r.is_finite()), "{what}: {}", parameter.name);
                    let expected = if parameter.trainable { parameter.len() } else { 0 };
                    assert_eq!(relevance.len(), expected, "{what}: {}", parameter.name);
                }
            }
        }
    }
}

/// Equation 17: the relevance of a LoRA's B passes to its A, whether B is zero or not, and also for
/// single parts of a fused layer.
#[test]
fn both_halves_of_a_lora_carry_the_same() {
    let task_head = TaskHead::SequenceClassification;
    let bert = ["attention.self.query", "attention.self.value"]
        .map(|layer| format!("bert.encoder.layer.1.{layer}"));
    let gpt2 = ["query", "value"].map(|part| format!("transformer.h.1.attn.c_attn.{part}"));
    for (architecture, paths) in [(Architecture::Bert, bert), (Architecture::Gpt2, gpt2)] {
        let targets = vec!["query".to_owned(), "value".to_owned()];
        let tuning = Tuning::Lora(LoraSettings { rank: 2, targets, ..LoraSettings::default() });
        let mut model = model(architecture, task_head, &tuning);
        for trained in [false, true] {
            if trained {
                for (_, parameter) in model.parameters.iter_mut() {
                    if parameter.name.ends_with("lora_B.weight") {
                        let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
                        let values = (0..rows * columns).map(|i| (i as f32).sin()).collect();
                        parameter.value =
                            undertone::tensor::Matrix::from_vec(rows, columns, values);
                    }
                }
            }
            let initial = InitialRelevance::default();
            let explainer = Explainer::new(&model, AlphaBeta::default(), initial, PROBES).unwrap();
            let relevance_map = explainer.relevance(&example(task_head)).unwrap();
            let total = |name: &str| {
                let id = model.parameters.find(name).unwrap();
                relevance_map.of[id.index()].iter().map(|&r| f64::from(r)).sum::<f64>()
            };
            for path in &paths {
                let (a, b) = (
                    total(&format!("{path}.lora_A.weight")),
                    total(&format!("{path}.lora_B.weight")),
                );
                let same = b != 0.0 && (a - b).abs() < 1e-4 * b.abs().max(1e-3);
                assert!(same, "{path}, {trained}: {a} and {b}");
            }
        }
    }
}

/// Pearson's correlation.
fn correlation(x: &[f32], y: &[f32]) -> f64 {
    let mean = |v: &[f32]| v.iter().map(|&x| f64::from(x)).sum::<f64>() / v.len() as f64;
    let (of_x, of_y) = (mean(x), mean(y));
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (&x, &y) in x.iter().zip(y) {
        let (x, y) = (f64::from(x) - of_x, f64::from(y) - of_y);
        (xy, xx, yy) = (xy + x * y, xx + x * x, yy + y * y);
    }
    xy / (xx * yy).sqrt()
}

fn examples(task_head: TaskHead, count: u32) -> Vec<Example> {
    let of = |i: u32| Example {
        tokens: (0..9).map(|t| (t * t * (i + 1) + 3 + i) % 50).collect(),
        unit: i,
        ..example(task_head)
    };
    (0..count).map(of).collect()
}

/// The map of weights that start at zero depends on the model and the data, not on the random draw.
/// Two seeds give the same map in both halves of LoRA and of an adapter, tensor by tensor, and the
/// same mask up to a few coordinates.
#[test]
fn maps_of_two_seeds_agree() {
    for (architecture, task_head) in
        [(Architecture::Llama, TaskHead::CausalLanguageModel), (KINDS[0].0, KINDS[0].1)]
    {
        for tuning in tunings(architecture, task_head).into_iter().take(2) {
            let model = model(architecture, task_head, &tuning);
            for alpha in [1.0, 0.5] {
                let rule = AlphaBeta { alpha, beta: 1.0 - alpha };
                let of = |seed: u64| {
                    let probes = Probes { seed, count: 32 };
                    let explainer =
                        Explainer::new(&model, rule, InitialRelevance::TopK(5), probes).unwrap();
                    let mut sum = RelevanceSum::new(&model.parameters);
                    for example in examples(task_head, 20) {
                        sum.add(&explainer.relevance(&example).unwrap().of);
                    }
                    sum.mean()
                };
                let (first, second) = (of(1), of(2));
                for (id, parameter) in model.parameters.iter().filter(|(_, p)| {
                    p.trainable && p.origin == Origin::Adapter && p.shape.len() > 1
                }) {
                    let correlated = correlation(&first.of[id.index()], &second.of[id.index()]);
                    let what = format!("{} {} {alpha}", tuning.name(), parameter.name);
                    assert!(correlated >= 0.8, "{what}: {correlated}");
                }
                let (first, second) = (first.mask(0.7).concat(), second.mask(0.7).concat());
                let differ = first.iter().zip(&second).filter(|(x, y)| x != y).count();
                assert!(differ * 20 < first.len(), "{differ} of {}", first.len());
            }
        }
    }
}

/// An example's map depends neither on the other examples nor on its row.
#[test]
fn a_map_does_not_depend_on_other_examples() {
    let tuning = Tuning::Lora(LoraSettings { rank: 2, ..LoraSettings::default() });
    let task_head = TaskHead::CausalLanguageModel;
    let model = model(Architecture::Llama, task_head, &tuning);
    let explainer =
        Explainer::new(&model, AlphaBeta::default(), InitialRelevance::default(), PROBES).unwrap();
    let all = examples(task_head, 4);
    let maps: Vec<_> = all.iter().map(|e| explainer.relevance(e).unwrap().of).collect();
    for (example, map) in all.iter().zip(&maps).rev() {
        let moved = Example { unit: 99, ..example.clone() };
        assert_eq!(&explainer.relevance(&moved).unwrap().of, map);
    }
}

#[test]
fn biases_have_relevance_under_bitfit() {
    let task_head = TaskHead::SequenceClassification;
    let mut model = model(Architecture::Bert, task_head, &Tuning::Bitfit);
    for (_, parameter) in
        model.parameters.iter_mut().filter(|(_, p)| p.trainable && p.shape.len() == 1)
    {
        let values = (0..parameter.len()).map(|i| 0.1 - 0.02 * (i % 9) as f32).collect();
        parameter.value = undertone::tensor::Matrix::from_vec(1, parameter.len(), values);
    }
    let explainer =
        Explainer::new(&model, AlphaBeta::default(), InitialRelevance::default(), PROBES).unwrap();
    let relevance_map = explainer.relevance(&example(task_head)).unwrap();
    for ((_, parameter), relevance) in model.parameters.iter().zip(&relevance_map.of) {
        if parameter.trainable && parameter.shape.len() == 1 && parameter.name.contains("layer.0") {
            assert!(relevance.iter().any(|&r| r != 0.0), "{}", parameter.name);
        }
    }
}

/// Equation 16 through a model, by value: the head's two biases and that of the last normalization,
/// computed from the hidden state of [CLS] and the weights alone.
#[test]
fn biases_under_bitfit_have_the_relevance_of_the_definition() {
    let task_head = TaskHead::SequenceClassification;
    let mut model = model(Architecture::Bert, task_head, &Tuning::Bitfit);
    for (_, parameter) in model.parameters.iter_mut() {
        let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
        let numbers = parameter.value.to_vec().unwrap();
        let numbers = match parameter.shape.len() {
            // Initial weights are tiny, and initial biases zero.
            2 => numbers.iter().map(|w| 10.0 * w).collect(),
            _ if parameter.name.ends_with("bias") => {
                (0..parameter.len()).map(|i| 0.3 - 0.07 * (i % 9) as f32).collect()
            }
            _ => numbers,
        };
        parameter.value = undertone::tensor::Matrix::from_vec(rows, columns, numbers);
    }
    let (alpha, beta) = (0.5, 0.5);
    let rule = LinearRule { bias_in_z: true, ..AlphaBeta { alpha, beta }.into() };
    let explainer = Explainer::new(&model, rule, InitialRelevance::default(), PROBES).unwrap();
    let example = example(task_head);
    let relevance_map = explainer.relevance(&example).unwrap();
    let batch = undertone::data::Batch::pack([&example]);
    let states = model.hidden_states(&batch).unwrap();
    let hidden = states.last().unwrap().to_host().unwrap().row(0).to_vec();
    let head = &model.network.head;
    let numbers = |id| -> Vec<f64> {
        model.parameters.value(id).to_vec().unwrap().iter().map(|&x| f64::from(x)).collect()
    };
    // z of a layer, and the relevance of its inputs computed from that of its outputs.
    let layer = |layer: &Linear, x: &[f64], r: &dyn Fn(&[f64]) -> Vec<f64>| {
        let (w, b) = (numbers(layer.weight), numbers(layer.bias.unwrap()));
        let part = |o: usize, i: usize| w[o * layer.inputs + i] * x[i];
        let z: Vec<f64> = (0..layer.outputs)
            .map(|o| (0..layer.inputs).map(|i| part(o, i)).sum::<f64>() + b[o])
            .collect();
        let r = r(&z);
        let of_bias: Vec<f64> = (0..layer.outputs).map(|o| b[o] * r[o] / z[o]).collect();
        let mut inputs = vec![0.0; layer.inputs];
        for o in 0..layer.outputs {
            let sum = |sign: f64| -> f64 {
                let parts = (0..layer.inputs).map(|i| part(o, i)).chain([b[o]]);
                parts.filter(|z| z * sign > 0.0).sum()
            };
            for (i, input) in inputs.iter_mut().enumerate() {
                let (share, all) =
                    if part(o, i) > 0.0 { (0.5, sum(1.0)) } else { (0.5, sum(-1.0)) };
                *input += share * r[o] * part(o, i) / all;
            }
        }
        (z, inputs, of_bias)
    };
    let hidden: Vec<f64> = hidden.iter().map(|&x| f64::from(x)).collect();
    let (dense, _) = head.dense.as_ref().unwrap();
    let (before, _, _) = layer(dense, &hidden, &|z| vec![0.0; z.len()]);
    let pooled: Vec<f64> = before.iter().map(|z| z.tanh()).collect();
    // All relevance starts at the label's logit.
    let (_, of_pooled, of_out) = layer(&head.out, &pooled, &|_| vec![0.0, 1.0, 0.0]);
    let (_, of_hidden, of_dense) = layer(dense, &hidden, &|_| of_pooled.clone());
    let norm = model.network.blocks.last().unwrap().feed_forward_norm.clone();
    let of_norm: Vec<f64> = numbers(norm.bias.unwrap())
        .iter()
        .zip(&of_hidden)
        .zip(&hidden)
        .map(|((b, r), y)| b * r / y)
        .collect();
    for (id, wanted) in [
        (head.out.bias.unwrap(), of_out),
        (dense.bias.unwrap(), of_dense),
        (norm.bias.unwrap(), of_norm),
    ] {
        let size = wanted.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
        assert!(size > 0.0);
        for (have, want) in relevance_map.of[id.index()].iter().zip(&wanted) {
            assert!((f64::from(*have) - want).abs() < 1e-3 * size, "{have}, not {want}");
        }
    }
}

fn cases() -> serde_json::Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/allocation/cases.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn matrix(value: &serde_json::Value) -> Host {
    let rows = value.as_array().unwrap();
    let numbers =
        rows.iter().flat_map(|row| row.as_array().unwrap()).map(|x| x.as_f64().unwrap() as f32);
    Host::from_vec(rows.len(), rows[0].as_array().unwrap().len(), numbers.collect())
}

fn assert_near(what: &str, have: &Host, want: &serde_json::Value) {
    let want = matrix(want);
    let size = want.dense().iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    for (have, want) in have.dense().iter().zip(want.dense().iter()) {
        assert!((have - want).abs() < 1e-4 * size, "{what}: {have}, not {want}");
    }
}

/// The rules of single operations (equations 4, 6, 8, 11 and 13) against
/// fixtures/allocation/make.py.
#[test]
fn rules_equal_the_script() {
    let cases = cases();
    let linear = &cases["linear"];
    for rule in linear["rules"].as_array().unwrap() {
        let of = |key: &str| rule[key].as_f64().unwrap() as f32;
        let alpha_beta = AlphaBeta { alpha: of("alpha"), beta: of("beta") };
        let (x, w, r) = (matrix(&linear["x"]), matrix(&linear["w"]), matrix(&linear["r"]));
        let propagated = rules::linear(alpha_beta, &x, &w, None, &r, true).unwrap();
        assert_near("inputs", &propagated.inputs, &rule["r_x"]);
        assert_near("weights", &propagated.weights.unwrap(), &rule["r_w"]);
    }
    let sum = &cases["sum"];
    let (x, y) = rules::sum(&matrix(&sum["x"]), &matrix(&sum["y"]), &matrix(&sum["r"]));
    assert_near("x", &x, &sum["rbar_x"]);
    assert_near("y", &y, &sum["rbar_y"]);
    let features = &cases["features"];
    let (a, b) = rules::features(
        &matrix(&features["a"]),
        &matrix(&features["b"]),
        true,
        &matrix(&features["r"]),
    )
    .unwrap();
    assert_near("a", &a, &features["rbar_a"]);
    assert_near("b", &b, &features["rbar_b"]);
}

/// Mask, bounds, noise and σ_eff of both groups (equations 19, 21 and 22) against the same script.
#[test]
fn two_groups_equal_the_script() {
    let cases = cases();
    let case = &cases["two_groups"];
    let of = |key: &str| case[key].as_f64().unwrap();
    let relevance: Vec<Vec<f32>> = case["relevance"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tensor| matrix(tensor).dense().into_owned())
        .collect();
    let map = RelevanceMap { of: relevance.clone() };
    for (have, want) in map.mask(of("beta")).iter().zip(case["mask"].as_array().unwrap()) {
        assert_eq!(*have, matrix(want).dense().into_owned());
    }
    // No model has parameters with eleven coordinates, so the map is repeated over a head, and the
    // shares are those of its mask.
    let model = model(Architecture::Bert, TaskHead::SequenceClassification, &Tuning::Head);
    let all: Vec<f32> = relevance.concat();
    let spread = model.parameters.iter().map(|(_, p)| match p.trainable {
        true => (0..p.len()).map(|i| all[i % 11]).collect(),
        false => Vec::new(),
    });
    let map = RelevanceMap { of: spread.collect() };
    let mask = map.mask(of("beta"));
    let count = mask.iter().map(Vec::len).sum::<usize>() as f64;
    let weak = mask.iter().flatten().map(|&m| f64::from(m)).sum::<f64>() / count;
    let (clip, sigma) = (Clip::Flat(of("clip")), of("sigma"));
    let published =
        PublishedRapFt::new(&clip, &map, of("beta"), &model.parameters).allocation(sigma);
    let share = |k: usize| if k == 0 { weak } else { 1.0 - weak };
    for k in 0..2 {
        assert!((published.bounds.thresholds()[k] - of("clip") * share(k).powi(2)).abs() < 1e-9);
        assert!((published.stds[k] - sigma * share(k).sqrt() * of("clip")).abs() < 1e-9);
    }
    let proved =
        RapFt::new(&clip, &ReleasedRelevanceMap::of_public(map), of("beta"), &model.parameters)
            .allocation(sigma);
    assert!((proved.noise_multiplier() - sigma).abs() < 1e-9);
}

/// Equation 16 for the relative-position bias, in a model whose queries are zero: a score consists
/// of the bias alone, which gets all of its relevance, and as a contribution leaves none to queries
/// and keys.
#[test]
fn a_position_bias_has_the_relevance_of_its_share() {
    let task_head = TaskHead::SequenceClassification;
    let mut model = model(Architecture::MpNet, task_head, &Tuning::Full);
    let explained = |model: &Model, bias_in_z: bool| {
        let rule = LinearRule { bias_in_z, ..AlphaBeta::default().into() };
        let initial = InitialRelevance::default();
        let explainer = Explainer::new(model, rule, initial, PROBES).unwrap();
        explainer.relevance(&example(task_head)).unwrap().of
    };
    let table = model.parameters.find("mpnet.encoder.relative_attention_bias.weight").unwrap();
    // Of 32 buckets, nine tokens use those of distances 0 to 8 backward and 1 to 8 forward.
    let met: Vec<bool> = explained(&model, false)[table.index()]
        .chunks_exact(4)
        .map(|heads| heads.iter().any(|r| *r != 0.0))
        .collect();
    let expected: Vec<bool> = (0..32).map(|b| b <= 8 || (17..=24).contains(&b)).collect();
    assert_eq!(met, expected);
    for (_, parameter) in model.parameters.iter_mut() {
        let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
        if parameter.name.contains("attention.attn.q.") {
            let zeros = vec![0.0; rows * columns];
            parameter.value = undertone::tensor::Matrix::from_vec(rows, columns, zeros);
        }
    }
    let (beside, taken) = (explained(&model, false), explained(&model, true));
    for map in [&beside, &taken] {
        let of_table = &map[table.index()];
        assert!(of_table.iter().all(|r| r.is_finite()) && of_table.iter().any(|r| *r != 0.0));
    }
    let mut keys = 0;
    for ((_, parameter), relevance) in model.parameters.iter().zip(&taken) {
        if parameter.name.contains("attention.attn.k.weight") {
            keys += 1;
            assert!(relevance.iter().all(|r| *r == 0.0), "{}", parameter.name);
        }
    }
    assert_eq!(keys, 3);
}
