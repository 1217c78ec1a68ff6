use super::super::LongTexts;
use super::super::fixture;
use super::*;
use serde_json::Value;

fn loaded(tokenizer: &Value) -> Result<Tokenizer> {
    let folder = tempfile::tempdir().unwrap();
    fixture::write(folder.path(), tokenizer);
    Tokenizer::load(folder.path())
}

fn with_max(tokenizer: Value, max_tokens: usize) -> Tokenizer {
    loaded(&tokenizer).unwrap().with_max_tokens(max_tokens).unwrap()
}

#[test]
fn a_text_is_framed_and_cut_but_never_padded() {
    let bert = with_max(fixture::bert(), 7);
    assert_eq!(bert.text("a b c").unwrap(), Tokens { ids: vec![1, 5, 6, 7, 2], segments: vec![] });
    assert_eq!(bert.text("a b c d e f g").unwrap().ids, [1, 5, 6, 7, 8, 9, 2]);
    assert_eq!(bert.text("").unwrap().ids, [1, 2]);
    assert_eq!(bert.text("a Ω").unwrap().ids, [1, 5, 3, 2]);
}

#[test]
fn a_pair_keeps_its_special_tokens_and_segments() {
    let bert = with_max(fixture::bert(), 8);
    let short = bert.pair("a", "b c").unwrap();
    assert_eq!((short.ids, short.segments), (vec![1, 5, 2, 6, 7, 2], vec![0, 0, 0, 1, 1, 1]));
    let long = bert.pair("a", "b c d e f g h").unwrap();
    assert_eq!(
        (long.ids, long.segments),
        (vec![1, 5, 2, 6, 7, 8, 9, 2], vec![0, 0, 0, 1, 1, 1, 1, 1])
    );
    assert_eq!(bert.pair("a b c d e", "f g h i j").unwrap().ids, [1, 5, 6, 2, 10, 11, 12, 2]);
}

/// The reference is the tokenizers library's own truncation to the same number of tokens.
#[test]
fn cutting_agrees_with_the_library() {
    let text =
        |n: usize| ('a'..='z').cycle().take(n).map(String::from).collect::<Vec<_>>().join(" ");
    let ours = with_max(fixture::bert(), 9);
    let mut theirs = (*ours.tokenizer).clone();
    let params = tokenizers::TruncationParams { max_length: 9, ..Default::default() };
    theirs.with_truncation(Some(params)).unwrap();
    for (m, n) in (0..14).flat_map(|m| (0..14).map(move |n| (m, n))) {
        let expected = theirs.encode((text(m), text(n)), true).unwrap();
        let framed = ours.pair(&text(m), &text(n)).unwrap();
        assert_eq!(framed.ids, expected.get_ids(), "{m} and {n}");
        assert_eq!(framed.segments, expected.get_type_ids(), "{m} and {n}");
        let expected = theirs.encode(text(m), true).unwrap();
        assert_eq!(ours.text(&text(m)).unwrap().ids, expected.get_ids());
    }
}

#[test]
fn a_language_text_ends_where_it_ends() {
    let gpt = with_max(fixture::gpt(), 4);
    assert_eq!(gpt.eos(), Some(0));
    assert_eq!(gpt.language("a b", LongTexts::Cut).unwrap(), [(vec![5, 6, 0], 1)]);
    assert_eq!(gpt.language("a b c d e", LongTexts::Cut).unwrap(), [(vec![5, 6, 7, 8], 1)]);
    let split = gpt.language("a b c d e", LongTexts::Split { at_most: 9 }).unwrap();
    assert_eq!(split, [(vec![5, 6, 7, 8], 1), (vec![8, 9, 0], 1)]);
    // An empty text still has its end-of-text token to predict.
    assert_eq!(gpt.language("", LongTexts::Cut).unwrap(), [(vec![0, 0], 1)]);

    let llama = with_max(fixture::llama(), 4);
    assert_eq!(llama.language("a b", LongTexts::Cut).unwrap(), [(vec![1, 5, 6, 2], 1)]);
    assert_eq!(llama.language("", LongTexts::Cut).unwrap(), [(vec![1, 2], 1)]);
}

#[test]
fn without_an_end_token_an_empty_text_has_nothing_to_predict() {
    let mut tokenizer = fixture::gpt();
    tokenizer["added_tokens"] = serde_json::json!([]);
    tokenizer["model"]["vocab"].as_object_mut().unwrap().remove("<|endoftext|>");
    let endless = loaded(&tokenizer).unwrap();
    assert_eq!(endless.eos(), None);
    assert!(endless.language("", LongTexts::Cut).unwrap().is_empty());
    assert!(endless.language("a", LongTexts::Cut).unwrap().is_empty());
    assert_eq!(endless.completion("a", "").unwrap(), None);
    assert!(endless.text("").unwrap().ids.is_empty());
    assert_eq!(endless.with_eos(9).completion("", "a").unwrap(), Some((vec![9, 5, 9], 1)));
}

#[test]
fn a_completion_is_predicted_after_its_prompt() {
    let gpt = with_max(fixture::gpt(), 6);
    assert_eq!(gpt.completion("a b", "c d").unwrap(), Some((vec![5, 6, 7, 8, 0], 2)));
    assert_eq!(gpt.completion("a b c d e", "x y").unwrap(), Some((vec![7, 8, 9, 28, 29, 0], 3)));
    assert_eq!(gpt.completion("", "x").unwrap(), Some((vec![0, 28, 0], 1)));
    assert_eq!(gpt.prompt("a b c d e f g", 2).unwrap(), [8, 9, 10, 11]);
    assert_eq!(gpt.prompt("", 2).unwrap(), [0]);
    let llama = with_max(fixture::llama(), 6);
    assert_eq!(llama.completion("a", "x").unwrap(), Some((vec![1, 5, 28, 2], 2)));
    assert_eq!(llama.prompt("a b", 1).unwrap(), [1, 5, 6]);
}

#[test]
fn tokens_are_looked_up_and_decoded() {
    let bert = loaded(&fixture::bert()).unwrap();
    assert_eq!((bert.token_id("[MASK]"), bert.mask(), bert.eos()), (Some(4), Some(4), None));
    assert_eq!((bert.vocabulary(), bert.token(5)), (31, Some("a".to_owned())));
    assert_eq!(bert.decode(&[1, 5, 6, 2]).unwrap(), "a b");
    assert_eq!(bert.decode(&[]).unwrap(), "");
}

#[test]
fn too_few_tokens_are_refused() {
    let bert = loaded(&fixture::bert()).unwrap();
    assert!(matches!(bert.clone().with_max_tokens(4), Err(Error::Invalid { .. })));
    assert_eq!(bert.with_max_tokens(5).unwrap().max_tokens(), 5);
}

#[test]
fn a_missing_or_broken_tokenizer_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokenizer.json");
    assert_eq!(
        Tokenizer::load(folder.path()).unwrap_err(),
        Error::MissingFile { file: file.clone() }
    );
    std::fs::write(&file, "{}").unwrap();
    assert!(
        matches!(Tokenizer::load(&file), Err(Error::Tokenizer { file: named, .. }) if named == file)
    );
}

/// Only the beginning of a huge text is tokenized, with the same result.
#[test]
fn a_huge_text_is_cut_before_it_is_tokenized() {
    let bert = with_max(fixture::bert(), 100);
    let huge = "a b c ".repeat(WHOLE_BYTES);
    let long = "a b c ".repeat(1000);
    assert_eq!(bert.text(&huge).unwrap(), bert.text(&long).unwrap());
    // A word after many spaces lies beyond the part tokenized first.
    let desert = format!("{} a", " ".repeat(2 * WHOLE_BYTES));
    assert_eq!(bert.text(&desert).unwrap().ids, [1, 5, 2]);
}

#[test]
fn the_beginning_ends_at_a_space() {
    assert_eq!(beginning("ab cd ef", 100), "ab cd ef");
    assert_eq!(beginning("ab cd ef", 6), "ab cd");
    assert_eq!(beginning("abcdef", 3), "abcdef");
    assert_eq!(beginning("a ééé", 5), "a");
}
