//! Text generation: the cache does not change results, seeds are reproducible, and beams find what
//! greedy search misses.

use crate::common::{devices, difference, fixture};
use undertone_data::{Batch, Example};
use undertone_model::architecture::Architecture;
use undertone_model::folder::{LoadOptions, load};
use undertone_model::generate::{Session, Settings, generate};
use undertone_model::{Model, TaskHead};

const DECODERS: [&str; 12] = [
    "gpt2-causal-lm",
    "llama-causal-lm",
    "llama-untied",
    "llama-rope-scaled",
    "mistral-causal-lm",
    "qwen3-causal-lm",
    "mistral-window",
    "llama-yarn",
    "smollm3-causal-lm",
    "gemma2-causal-lm",
    "gemma3-causal-lm",
    "phi3-causal-lm",
];

fn decoder(name: &str) -> Model {
    load(&fixture(name), &LoadOptions::default()).unwrap()
}

/// Logits after the last token, computed without a cache.
fn plain_logits(model: &Model, tokens: &[u32]) -> Vec<f32> {
    let example = Example { tokens: tokens.to_vec(), ..Example::default() };
    let last = [tokens.len() as u32 - 1];
    model.logits(&Batch::pack([&example]), Some(&last)).unwrap().to_vec().unwrap()
}

fn prompts() -> Vec<Vec<u32>> {
    vec![vec![3, 1, 4], vec![5], vec![9, 2, 6, 5, 3, 5], vec![8, 9]]
}

#[test]
fn the_cache_changes_nothing() {
    for name in DECODERS {
        for device in devices() {
            let mut model = decoder(name);
            model.to_device(&device).unwrap();
            let mut session = Session::new(&model, 2);
            let mut texts: Vec<Vec<u32>> = vec![vec![7, 8, 9, 10, 11], vec![3]];
            let mut logits = session.extend(&texts).unwrap();
            for new in 12..18 {
                let columns = logits.columns();
                for (row, text) in logits.to_vec().unwrap().chunks_exact(columns).zip(&texts) {
                    assert!(
                        difference(row, &plain_logits(&model, text)) < 1e-5,
                        "{name} after {text:?}"
                    );
                }
                texts.iter_mut().for_each(|text| text.push(new));
                logits = session.extend(&[vec![new], vec![new]]).unwrap();
            }
            // The sequences swap places, and one of them is duplicated.
            session.select(&[1, 0, 1]);
            let logits = session.extend(&[vec![1, 2], vec![2], vec![3]]).unwrap();
            let second: Vec<u32> = texts[1].iter().chain(&[1, 2]).copied().collect();
            let columns = logits.columns();
            assert!(
                difference(&logits.to_vec().unwrap()[..columns], &plain_logits(&model, &second))
                    < 1e-5
            );
        }
    }
}

#[test]
fn greedy_texts_follow_the_likeliest_token() {
    for name in DECODERS {
        let model = decoder(name);
        let settings =
            Settings { max_new_tokens: 12, temperature: 0.0, batch: 3, ..Settings::default() };
        let mut finished = 0;
        let texts = generate(&model, &prompts(), &settings, |n| finished += n).unwrap();
        assert_eq!(finished, 4);
        for (prompt, text) in prompts().iter().zip(&texts) {
            let mut whole = prompt.clone();
            for &token in text {
                let logits = plain_logits(&model, &whole);
                let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                assert!(logits[token as usize] > best - 1e-4, "{name}: {token} after {whole:?}");
                whole.push(token);
            }
            assert_eq!(text.len(), 12);
        }
    }
}

/// 64 tokens after a prompt, as transformers generates them: with shorter attention windows, and on
/// every device.
#[test]
fn greedy_texts_equal_those_of_transformers() {
    let text = std::fs::read_to_string(fixture("greedy.json")).unwrap();
    let all: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    let mut compared = Vec::new();
    for (name, expected) in all {
        let numbers = |key: &str| -> Vec<u32> {
            let list = expected[key].as_array().unwrap();
            list.iter().map(|n| n.as_u64().unwrap() as u32).collect()
        };
        let (prompt, tokens) = (numbers("prompt"), numbers("tokens"));
        for device in devices() {
            let mut model = decoder(&name);
            if tokens.len() == 64 {
                compared.push(Architecture::of(&model.config).unwrap());
            }
            // Rotary models have no table of positions, and transformers exceeds the stated
            // maximum.
            model.network.max_positions = prompt.len() + tokens.len();
            model.to_device(&device).unwrap();
            let settings =
                Settings { max_new_tokens: tokens.len(), temperature: 0.0, ..Settings::default() };
            let generated =
                generate(&model, std::slice::from_ref(&prompt), &settings, |_| {}).unwrap();
            assert_eq!(generated[0], tokens, "{name} on {device:?}");
        }
    }
    for architecture in Architecture::ALL {
        let is_causal = architecture.class_name(TaskHead::CausalLanguageModel).is_some();
        assert_eq!(compared.contains(&architecture), is_causal, "{architecture:?}");
    }
}

#[test]
fn a_seed_gives_the_same_texts_whatever_the_batch() {
    let model = decoder("llama-causal-lm");
    let texts = |batch: usize, seed: u64| {
        let settings = Settings {
            max_new_tokens: 10,
            temperature: 1.3,
            top_k: 20,
            top_p: 0.95,
            seed,
            batch,
            ..Settings::default()
        };
        generate(&model, &prompts(), &settings, |_| {}).unwrap()
    };
    assert_eq!(texts(4, 1), texts(1, 1));
    assert_eq!(texts(3, 1), texts(2, 1));
    assert_ne!(texts(4, 1), texts(4, 2));
}

#[test]
fn texts_end_at_an_end_token_and_at_the_last_position() {
    let model = decoder("gpt2-causal-lm");
    let settings = Settings { max_new_tokens: 100, temperature: 0.0, ..Settings::default() };
    let text = generate(&model, &[vec![3, 1, 4]], &settings, |_| {}).unwrap().remove(0);
    assert_eq!(text.len(), model.network.max_positions - 3, "fills the positions and stops");
    let ending = Settings { end_tokens: vec![text[4]], ..settings };
    let ended = generate(&model, &[vec![3, 1, 4]], &ending, |_| {}).unwrap().remove(0);
    let first = text.iter().position(|&token| token == text[4]).unwrap();
    assert_eq!(ended, text[..=first], "the end token is the last");
}

fn log_probability(model: &Model, prompt: &[u32], text: &[u32]) -> f64 {
    let mut whole = prompt.to_vec();
    let mut total = 0.0;
    for &token in text {
        let logits = plain_logits(model, &whole);
        let sum: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        total += f64::from(logits[token as usize]) - sum.ln();
        whole.push(token);
    }
    total
}

#[test]
fn beams_find_texts_at_least_as_likely_as_greedy_search() {
    let model = decoder("llama-untied");
    for prompt in prompts() {
        let settings = Settings { max_new_tokens: 6, temperature: 0.0, ..Settings::default() };
        let greedy =
            generate(&model, std::slice::from_ref(&prompt), &settings, |_| {}).unwrap().remove(0);
        let beams = Settings { beams: 8, ..settings };
        let beam =
            generate(&model, std::slice::from_ref(&prompt), &beams, |_| {}).unwrap().remove(0);
        let (ours, theirs) =
            (log_probability(&model, &prompt, &beam), log_probability(&model, &prompt, &greedy));
        assert!(ours >= theirs - 1e-4, "{ours} against {theirs}");
    }
}

/// The searches of all prompts share a batch and end at different times.
#[test]
fn beams_of_many_prompts_equal_those_of_one() {
    let model = decoder("llama-untied");
    let single = Settings { max_new_tokens: 9, beams: 3, batch: 1, ..Settings::default() };
    let greedy = Settings { temperature: 0.0, beams: 1, ..single.clone() };
    let ends = generate(&model, &prompts(), &greedy, |_| {}).unwrap();
    // An end token that occurs early in one text.
    for end_tokens in [Vec::new(), vec![ends[0][1]]] {
        let single = Settings { end_tokens, ..single.clone() };
        let one_by_one = generate(&model, &prompts(), &single, |_| {}).unwrap();
        for batch in [2, 3, 4, 100] {
            let mut finished = 0;
            let together = Settings { batch, ..single.clone() };
            let generated = generate(&model, &prompts(), &together, |n| finished += n).unwrap();
            assert_eq!((generated, finished), (one_by_one.clone(), prompts().len()), "{batch}");
        }
    }
}

/// New prompts take the places of finished texts, which have different lengths.
#[test]
fn texts_that_begin_later_are_the_same() {
    let model = decoder("llama-causal-lm");
    let prompts: Vec<Vec<u32>> = (0..23).map(|i| vec![1 + i % 7; 1 + i as usize % 5]).collect();
    let texts = |batch: usize, end_tokens: &[u32]| {
        let settings = Settings {
            max_new_tokens: 12,
            temperature: 1.5,
            seed: 3,
            end_tokens: end_tokens.to_vec(),
            batch,
            ..Settings::default()
        };
        let mut finished = 0;
        let texts = generate(&model, &prompts, &settings, |n| finished += n).unwrap();
        assert_eq!(finished, prompts.len());
        texts
    };
    // Some texts end after three tokens.
    let ends: Vec<u32> = texts(1, &[]).iter().step_by(4).map(|text| text[2]).collect();
    let alone = texts(1, &ends);
    assert!(alone.iter().any(|text| text.len() < 4) && alone.iter().any(|text| text.len() == 12));
    for batch in [3, 8, 64] {
        assert_eq!(texts(batch, &ends), alone, "{batch}");
    }
}

#[test]
fn mistakes_are_told_in_a_sentence() {
    let model = decoder("gpt2-causal-lm");
    let said = |settings: Settings, prompt: Vec<u32>| {
        generate(&model, &[prompt], &settings, |_| {}).unwrap_err().to_string()
    };
    assert!(
        said(Settings { temperature: f32::NAN, ..Settings::default() }, vec![1])
            .contains("temperature")
    );
    assert!(said(Settings { top_p: 0.0, ..Settings::default() }, vec![1]).contains("top_p"));
    assert!(said(Settings::default(), vec![]).contains("no tokens"));
    assert!(said(Settings::default(), vec![1; 40]).contains("positions"));
    let classifier = load(&fixture("bert-classification"), &LoadOptions::default()).unwrap();
    assert!(generate(&classifier, &[vec![1]], &Settings::default(), |_| {}).is_err());
}
