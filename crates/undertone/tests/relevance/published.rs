//! What Rap-FT's paper prints and our defaults leave out, and the relevance of (IA)³ and of soft
//! prompts.

use super::{PROBES, example, model};
use undertone::explain::relevance::{ActivationRule, AlphaBeta, Explainer};
use undertone::model::architecture::Architecture;
use undertone::model::tuning::{Ia3Settings, LoraSettings, PromptSettings, Tuning, merge};
use undertone::model::{Model, TaskHead};
use undertone::run::InitialRelevance;
use undertone::tensor::{Activation, Matrix};

/// Equation 7 through a model: GELU's negative units lose their relevance, and with ReLU both rules
/// give the same map, bit by bit.
#[test]
fn activations_as_published_differ_unless_they_are_relu() {
    let task_head = TaskHead::CausalLanguageModel;
    let tuning = Tuning::Lora(LoraSettings { rank: 2, ..LoraSettings::default() });
    let mut model = model(Architecture::Gpt2, task_head, &tuning);
    let explained = |model: &Model, activations: ActivationRule| {
        let rule = AlphaBeta { alpha: 0.5, beta: 0.5 };
        let explainer = Explainer::new(model, rule, InitialRelevance::TopP(0.9), PROBES).unwrap();
        explainer.with_activations(activations).relevance(&example(task_head)).unwrap()
    };
    let unchanged = explained(&model, ActivationRule::Unchanged);
    let published = explained(&model, ActivationRule::Positive);
    assert_ne!(unchanged.of, published.of);
    // Above the last block nothing has passed an activation yet; below the first, all has.
    assert_eq!(unchanged.flow[1], published.flow[1]);
    assert!((unchanged.flow[4] - unchanged.flow[0]).abs() < 1e-4 * unchanged.flow[0]);
    assert!((published.flow[4] - published.flow[0]).abs() > 1e-3 * published.flow[0]);
    for block in &mut model.network.blocks {
        block.feed_forward.activation = Activation::Relu;
    }
    let unchanged = explained(&model, ActivationRule::Unchanged);
    let published = explained(&model, ActivationRule::Positive);
    assert_eq!(unchanged.of, published.of);
    assert_eq!(unchanged.flow, published.flow);
}

/// A factor's relevance is that of all weights that it multiplies: of a row of the merged weight
/// for an output, of a column for an input.
#[test]
fn a_factor_of_ia3_has_the_relevance_of_the_weights_that_it_scales() {
    let task_head = TaskHead::CausalLanguageModel;
    let mut scaled = model(Architecture::Llama, task_head, &Tuning::Ia3(Ia3Settings::default()));
    for (_, parameter) in scaled.parameters.iter_mut() {
        if parameter.name.ends_with(".ia3_l") {
            let count = parameter.len();
            let values = (0..count).map(|i| 1.0 + 0.5 * (i as f32).sin()).collect();
            parameter.value = Matrix::from_vec(1, count, values);
        }
    }
    let mut merged = scaled.clone();
    merge(&mut merged).unwrap();
    let of = |model: &Model| {
        let rule = AlphaBeta { alpha: 0.5, beta: 0.5 };
        let initial = InitialRelevance::default();
        let explainer = Explainer::new(model, rule, initial, PROBES).unwrap();
        explainer.relevance(&example(task_head)).unwrap().of
    };
    let (of_factors, of_weights) = (of(&scaled), of(&merged));
    let mut layers = 0;
    for (id, parameter) in scaled.parameters.iter() {
        let Some(layer) = parameter.name.strip_suffix(".ia3_l") else { continue };
        let weight = merged.parameters.find(&format!("{layer}.weight")).unwrap();
        let [rows, columns] = merged.parameters.get(weight).shape[..] else { panic!("a matrix") };
        let at = |i: usize, j: usize| f64::from(of_weights[weight.index()][i * columns + j]);
        let wanted: Vec<f64> = match parameter.shape[1] {
            1 => (0..rows).map(|i| (0..columns).map(|j| at(i, j)).sum()).collect(),
            _ => (0..columns).map(|j| (0..rows).map(|i| at(i, j)).sum()).collect(),
        };
        let size = wanted.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
        assert!(size > 0.0, "{layer}");
        for (have, want) in of_factors[id.index()].iter().zip(&wanted) {
            assert!((f64::from(*have) - want).abs() < 1e-3 * size, "{layer}: {have}, not {want}");
        }
        layers += 1;
    }
    assert_eq!(layers, 9);
}

/// In a model without position embeddings, a virtual token is its row of the prompt, so that row
/// has all of the token's relevance; all tokens together have the relevance of the output.
#[test]
fn a_soft_prompt_has_the_relevance_of_its_virtual_tokens() {
    let task_head = TaskHead::CausalLanguageModel;
    let tuning = Tuning::Prompt(PromptSettings { tokens: 3 });
    let model = model(Architecture::Llama, task_head, &tuning);
    let rule = AlphaBeta { alpha: 0.5, beta: 0.5 };
    let explainer = Explainer::new(&model, rule, InitialRelevance::default(), PROBES).unwrap();
    let relevance_map = explainer.relevance(&example(task_head)).unwrap();
    assert_eq!(relevance_map.tokens.len(), 3 + 9);
    let whole: f64 = relevance_map.tokens.iter().sum();
    assert!((whole - relevance_map.flow[0]).abs() < 1e-4 * relevance_map.flow[0]);
    let table = model.network.embeddings.prompt.unwrap().table;
    for (row, wanted) in relevance_map.of[table.index()].chunks_exact(16).zip(&relevance_map.tokens)
    {
        let sum: f64 = row.iter().map(|&r| f64::from(r)).sum();
        assert!((sum - wanted).abs() < 1e-3 * wanted.abs().max(1e-3), "{sum}, not {wanted}");
        assert!(sum != 0.0);
    }
}
