//! What a language model knows about a secret, compared with the definition: one forward pass per
//! question, and a softmax over the vocabulary.

use crate::common::fixture;
use std::path::Path;
use undertone::audit::secret::{Hidden, SecretInText, SecretReader};
use undertone::data::{Batch, Example, Tokenizer};
use undertone::model::Model;
use undertone::model::folder::{LoadOptions, load};

fn reader(name: &str) -> (Model, Tokenizer) {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture(name).join(file), folder.path().join(file)).unwrap();
    }
    let tokenizer = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let tokenizer = tokenizer.join("tokenizer-wordpiece/tokenizer.json");
    std::fs::copy(tokenizer, folder.path().join("tokenizer.json")).unwrap();
    let model = load(folder.path(), &LoadOptions::default()).unwrap();
    let tokenizer = model.tokenizer(folder.path(), 16).unwrap();
    (model, tokenizer)
}

/// ln p of each token at one position.
fn log_probabilities(model: &Model, tokens: &[u32], at: usize) -> Vec<f64> {
    let example = Example { tokens: tokens.to_vec(), ..Example::default() };
    let logits = model.logits(&Batch::pack([&example]), Some(&[at as u32])).unwrap();
    let logits: Vec<f64> = logits.to_vec().unwrap().iter().map(|&x| f64::from(x)).collect();
    let total = logits.iter().map(|x| x.exp()).sum::<f64>().ln();
    logits.iter().map(|x| x - total).collect()
}

fn secret() -> SecretInText {
    let text = |text: &str| text.to_owned();
    SecretInText { before: text("the book was "), secret: text("4 2"), after: text(" and good") }
}

#[test]
fn masked_models_hide_the_secret_together_or_in_turn() {
    let (model, tokenizer) = reader("bert-masked-lm");
    let candidates = ["4 2", "4 7", "9", "1 2 3"].map(str::to_owned);
    let mask = tokenizer.mask().unwrap();
    for hidden in [Hidden::Together, Hidden::InTurn] {
        let reader = SecretReader::new(&model, &tokenizer, hidden).unwrap();
        let losses = reader.losses(&secret(), &candidates).unwrap();
        for (candidate, loss) in candidates.iter().zip(losses) {
            let tokens = tokenizer.text(&format!("the book was {candidate} and good")).unwrap().ids;
            // [CLS] the book was …
            let places = 4..4 + candidate.split(' ').count();
            let mut wanted = 0.0;
            for at in places.clone() {
                let mut shown = tokens.clone();
                match hidden {
                    Hidden::Together => places.clone().for_each(|at| shown[at] = mask),
                    Hidden::InTurn => shown[at] = mask,
                }
                wanted -= log_probabilities(&model, &shown, at)[tokens[at] as usize];
            }
            assert!((loss - wanted).abs() < 1e-4, "{hidden:?} {candidate}: {loss}, not {wanted}");
        }
        let tokens = tokenizer.text("the book was 4 2 and good").unwrap().ids;
        let mut shown = tokens.clone();
        shown[4..6].fill(mask);
        let ranks = [4, 5].map(|at| {
            let known = log_probabilities(&model, &shown, at);
            1.0 + known.iter().filter(|&&x| x > known[tokens[at] as usize]).count() as f64
        });
        assert_eq!(reader.token_ranks(&secret()).unwrap(), ranks);
    }
}

#[test]
fn causal_models_read_from_left_to_right() {
    let (model, tokenizer) = reader("gpt2-causal-lm");
    let reader = SecretReader::new(&model, &tokenizer, Hidden::default()).unwrap();
    let tokens = tokenizer.text("the book was 4 2 and good").unwrap().ids;
    // The secret and everything that follows, each token predicted from the preceding ones.
    let wanted: f64 = (4..tokens.len())
        .map(|at| -log_probabilities(&model, &tokens[..at], at - 1)[tokens[at] as usize])
        .sum();
    let loss = reader.losses(&secret(), &[secret().secret]).unwrap()[0];
    assert!((loss - wanted).abs() < 1e-3, "{loss}, not {wanted}");
    let ranks = [4, 5].map(|at| {
        let known = log_probabilities(&model, &tokens[..at], at - 1);
        1.0 + known.iter().filter(|&&x| x > known[tokens[at] as usize]).count() as f64
    });
    assert_eq!(reader.token_ranks(&secret()).unwrap(), ranks);
}

/// Of a long text, the part around the secret is kept; a secret that does not fit is refused.
#[test]
fn a_long_context_is_cut_around_the_secret() {
    let (model, tokenizer) = reader("bert-masked-lm");
    let reader = SecretReader::new(&model, &tokenizer, Hidden::default()).unwrap();
    let long = SecretInText { before: "the ".repeat(50), after: " the".repeat(50), ..secret() };
    let near = SecretInText { before: "the ".repeat(6), after: " the".repeat(6), ..secret() };
    let of =
        |text: &SecretInText| reader.losses(text, std::slice::from_ref(&text.secret)).unwrap()[0];
    assert!((of(&long) - of(&near)).abs() < 1e-6);
    let huge = "1 ".repeat(15);
    assert!(reader.losses(&secret(), &[huge]).is_err());
}
