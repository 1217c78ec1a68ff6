//! Relevance is neither made nor lost on its way through a model.

use undertone::data::{Example, Target};
use undertone::explain::relevance::{AlphaBeta, Explainer, Initial};
use undertone::model::architecture::{Architecture, Dimensions};
use undertone::model::tuning::{AdapterSettings, LoraSettings, Tuning};
use undertone::model::{Model, Purpose};

const KINDS: [(Architecture, Purpose); 7] = [
    (Architecture::Bert, Purpose::SequenceClassification),
    (Architecture::DistilBert, Purpose::SequenceClassification),
    (Architecture::Roberta, Purpose::SequenceClassification),
    (Architecture::Gpt2, Purpose::SequenceClassification),
    (Architecture::Llama, Purpose::SequenceClassification),
    (Architecture::Gpt2, Purpose::CausalLanguageModel),
    (Architecture::Llama, Purpose::CausalLanguageModel),
];

fn model(architecture: Architecture, purpose: Purpose, tuning: &Tuning) -> Model {
    let dimensions =
        Dimensions { layers: 3, hidden: 16, heads: 4, inner: 40, vocabulary: 60, positions: 100 };
    let labels = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
    let mut model = architecture.random(dimensions, purpose, &labels, 5).unwrap();
    tuning.apply(&mut model, 3).unwrap();
    model
}

fn example(purpose: Purpose) -> Example {
    Example {
        tokens: (0..9).map(|t| (t * t + 3) % 50).collect(),
        target: match purpose {
            Purpose::CausalLanguageModel => Target::Next { from: 3 },
            _ => Target::Class(1),
        },
        ..Example::default()
    }
}

fn tunings(purpose: Purpose) -> Vec<Tuning> {
    let mut all = vec![
        Tuning::Lora(LoraSettings { rank: 2, ..LoraSettings::default() }),
        Tuning::Adapter(AdapterSettings { size: 4, ..AdapterSettings::default() }),
    ];
    if purpose == Purpose::SequenceClassification {
        all.push(Tuning::Head);
    }
    all
}

#[test]
fn the_total_is_the_same_at_every_layer() {
    for (architecture, purpose) in KINDS {
        for tuning in tunings(purpose) {
            let model = model(architecture, purpose, &tuning);
            for rule in [AlphaBeta::default(), AlphaBeta { alpha: 2.0, beta: -1.0 }] {
                let explainer = Explainer::new(&model, rule, Initial::TopK(5), 7).unwrap();
                let found = explainer.relevance(&example(purpose)).unwrap();
                let what = format!("{architecture:?} {purpose:?} {} {rule:?}", tuning.name());
                assert_eq!(found.flow.len(), 2 + 3, "{what}");
                let start = found.flow[0];
                assert!(start > 0.0, "{what}");
                for (point, total) in found.flow.iter().enumerate() {
                    let off = (total - start).abs() / start;
                    assert!(off < 1e-4, "{what}: {total} at point {point}, not {start}");
                }
                for ((_, parameter), relevance) in model.parameters.iter().zip(&found.of) {
                    assert!(relevance.iter().all(|r| r.is_finite()), "{what}: {}", parameter.name);
                    let expected = if parameter.trainable { parameter.len() } else { 0 };
                    assert_eq!(relevance.len(), expected, "{what}: {}", parameter.name);
                }
            }
        }
    }
}

/// Equation 17: what goes into a LoRA's B goes on to its A.
#[test]
fn both_halves_of_a_lora_carry_the_same() {
    let tuning = Tuning::Lora(LoraSettings { rank: 2, ..LoraSettings::default() });
    let purpose = Purpose::SequenceClassification;
    let model = model(Architecture::Bert, purpose, &tuning);
    let explainer = Explainer::new(&model, AlphaBeta::default(), Initial::default(), 7).unwrap();
    let found = explainer.relevance(&example(purpose)).unwrap();
    let total = |name: &str| {
        let id = model.parameters.find(name).unwrap();
        found.of[id.index()].iter().map(|&r| f64::from(r)).sum::<f64>()
    };
    for layer in ["attention.self.query", "attention.self.value"] {
        let path = format!("bert.encoder.layer.1.{layer}");
        let (a, b) = (total(&format!("{path}.lora_A.weight")), total(&format!("{path}.lora_B.weight")));
        assert!(b != 0.0 && (a - b).abs() < 1e-4 * b.abs().max(1e-3), "{layer}: {a} and {b}");
    }
}

#[test]
fn biases_have_relevance_under_bitfit() {
    let purpose = Purpose::SequenceClassification;
    let mut model = model(Architecture::Bert, purpose, &Tuning::Bitfit);
    for (_, parameter) in model.parameters.iter_mut().filter(|(_, p)| p.trainable && p.shape.len() == 1) {
        let values = (0..parameter.len()).map(|i| 0.1 - 0.02 * (i % 9) as f32).collect();
        parameter.value = undertone::tensor::Matrix::from_vec(1, parameter.len(), values);
    }
    let explainer = Explainer::new(&model, AlphaBeta::default(), Initial::default(), 7).unwrap();
    let found = explainer.relevance(&example(purpose)).unwrap();
    for ((_, parameter), relevance) in model.parameters.iter().zip(&found.of) {
        if parameter.trainable && parameter.shape.len() == 1 && parameter.name.contains("layer.0") {
            assert!(relevance.iter().any(|&r| r != 0.0), "{}", parameter.name);
        }
    }
}
