//! A search over hostile tasks: random norms, noise, weights and tokenizers.
//!
//! `UNDERTONE_ATTACKS_SEED` and `UNDERTONE_ATTACKS_COUNT` set the seed and the number of tasks;
//! `tests/attacks/run` sets both.

use super::super::rows::Row;
use super::random::Random;
use super::world::{Forged, Honest, Sent, rows, sent, sent_from};
use crate::frame::{Frame, Kind};
use crate::owner::home::Home;
use crate::task::Task;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use undertone::model::layer::sanitizer::{Bounding, Rows};
use undertone_run::ReleaseKind;

/// The word that a hostile task tries to detect.
const WORD: &str = "HIV";

/// Texts, some of which contain the word, and some of which make regular expressions give up.
fn texts(count: usize, with_word: impl Fn(usize) -> bool) -> Vec<String> {
    let text = |i: usize| match (with_word(i), i % 4) {
        (true, 0) => format!("{WORD} {} y", "x".repeat(60)),
        (true, 1) => WORD.to_owned(),
        (true, _) => format!("the cat has {WORD} {i}"),
        (false, 0) => String::new(),
        (false, 1) => "the cat".to_owned(),
        (false, 2) => "a ".repeat(300),
        (false, _) => format!("a read {i} \u{202e}\0 \u{1f600}"),
    };
    (0..count).map(text).collect()
}

fn replace(pattern: &str, content: &str) -> Value {
    json!({ "type": "Replace", "pattern": { "Regex": pattern }, "content": content })
}

/// Tokenizers that map a predicate of the text to certain tokens, to none, or to an error.
const TOKENIZERS: [fn(&mut Value); 12] = [
    |_| (),
    // All texts without the word become the same text.
    |t| t["normalizer"] = replace("^(?![\\s\\S]*HIV)[\\s\\S]*$", "a"),
    // A text with the word has no tokens, and no special tokens are added.
    |t| {
        t["normalizer"] = replace("^(?=[\\s\\S]*HIV)[\\s\\S]*$", "");
        t["post_processor"] = Value::Null;
    },
    // No text has any tokens.
    |t| {
        t["normalizer"] = replace("[\\s\\S]", "");
        t["post_processor"] = Value::Null;
    },
    // The regular-expression engine gives up on some texts.
    |t| t["normalizer"] = replace("(x+x+)+y", "a"),
    // An unknown word is an error, because the unknown token is missing.
    |t| t["model"]["unk_token"] = json!("[NONE]"),
    // A word has a token that the model lacks.
    |t| t["model"]["vocab"]["hiv"] = json!(4_000_000),
    // The text's tokens get segment 7, which the model lacks.
    |t| {
        t["normalizer"] = replace("^(?=[\\s\\S]*HIV)[\\s\\S]*$", "b b b");
        t["post_processor"]["single"][1]["Sequence"]["type_id"] = json!(7);
    },
    // Texts with the word become long, others stay short.
    |t| t["normalizer"] = replace("HIV", "a b c d e f g h i j k l"),
    |t| {
        let split = json!({ "type": "Split", "pattern": { "Regex": "HIV|\\s" },
            "behavior": "Removed", "invert": false });
        t["pre_tokenizer"] = split;
    },
    |t| {
        t["normalizer"] = json!({ "type": "Sequence", "normalizers": [
        { "type": "NFKD" }, { "type": "Strip", "strip_left": true, "strip_right": true },
        { "type": "Prepend", "prepend": "b" }, replace("HIV(?=[\\s\\S]*$)", " ") ] })
    },
    |t| t["model"]["max_input_chars_per_word"] = json!(0),
];

/// A value that is still finite.
fn finite(x: f64) -> f32 {
    x.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
}

/// Multiplies some tensors of pre(·) by powers of ten, and sets some values to extreme ones.
fn scale_weights(forged: &Forged, random: &mut Random) {
    for file in ["model.safetensors", "sanitizer.safetensors"] {
        forged.weights(file, |_, values| {
            if random.chance(2) {
                let factor = random.power(-38.0, 38.0);
                values.iter_mut().for_each(|x| *x = finite(f64::from(*x) * factor));
            }
            if random.chance(4) {
                let at = random.below(values.len());
                values[at] = *random.pick(&[f32::MAX, f32::MIN, 1e-45, -1e-45, 1e19, 0.0]);
            }
        });
    }
}

/// Chooses norm, noise, bounding and direction. Many choices are out of range and refused.
fn forge_mechanism(task: &mut Task, random: &mut Random) {
    let wild = random.chance(3);
    let number = |random: &mut Random| match wild {
        true => finite(random.power(-45.0, 39.0)),
        false => finite(random.power(-9.9, 9.9)),
    };
    let sanitizer = &mut task.sanitizer;
    sanitizer.norm = number(random);
    sanitizer.bounding = *random.pick(&[Bounding::Clip, Bounding::Normalize, Bounding::Normalize]);
    sanitizer.squash = random.chance(3).then(|| number(random));
    sanitizer.direction = random.chance(3).then(|| (0..4).map(|_| number(random)).collect());
    sanitizer.rows = *random.pick(&[Rows::Mean, Rows::First, Rows::Last, Rows::Tokens(Some(3))]);
    task.width = 4 * sanitizer.rows.in_every_release().unwrap();
    let multiplier = if wild { random.power(-5.0, 8.0) } else { random.power(-0.3, 5.9) };
    let epochs = 1 + random.below(3);
    task.releases.release =
        *random.pick(&[ReleaseKind::Once, ReleaseKind::Path, ReleaseKind::Fresh]);
    task.releases.noise_multipliers = vec![multiplier; epochs];
    task.releases.sensitivity = sanitizer.sensitivity().unwrap_or(2.0);
    task.label_epsilon = random.chance(2).then(|| random.power(-5.0, 3.0));
    if let Ok(epsilon) = task.epsilon_at(task.delta) {
        task.epsilon = epsilon * (1.0 + 1e-9);
    }
}

/// A problem with what an owner would send for some rows, if any.
fn problem(sent: &Sent, rows: &[Row], task: &Task, hash: &crate::hex::Hash) -> Option<String> {
    let mut ids = std::collections::BTreeSet::new();
    for (frame, bytes) in sent.frames.iter().zip(&sent.bytes) {
        let numbers = frame.releases.iter().flat_map(|release| &release.numbers);
        if !numbers.clone().all(|number| number.is_finite()) {
            return Some("a number is not finite".into());
        }
        if let Err(why) = Frame::decode(bytes, Kind::Contribution, task, hash) {
            return Some(format!("the provider refuses an honest frame: {why}"));
        }
        ids.extend(frame.releases.iter().map(|release| (frame.epoch, release.id)));
    }
    let expected = rows.len() * task.epochs();
    (ids.len() != expected).then(|| format!("{} releases, not {expected}", ids.len()))
}

/// Tries one hostile task; returns its outcome or a description of the problem.
fn attack(honest: &Honest, seed: u64, number: u64) -> Result<&'static str, String> {
    let mut random = Random::new(seed, number);
    let mut forged = honest.copy();
    forged.tokenizer(*random.pick(&TOKENIZERS));
    if !random.chance(4) {
        scale_weights(&forged, &mut random);
    }
    if !random.chance(8) {
        forge_mechanism(&mut forged.task, &mut random);
    }
    // Both refusals depend only on the task: no text has been read.
    let Ok(pinned) = forged.parsed() else { return Ok("task refused") };
    let Ok(pre) = forged.pre(&pinned) else { return Ok("pre(·) refused") };
    let count = 9;
    let some = rows(&texts(count, |i| i.is_multiple_of(3)));
    let other = rows(&texts(count, |_| false));
    let none = rows(&vec![String::new(); count]);
    let mut shapes = Vec::new();
    for rows in [&some, &other, &none] {
        let norm = f64::from(pinned.task.sanitizer.norm);
        for row in rows.iter() {
            let bounded = pre.bounded(row).map_err(|e| e.to_string())?;
            let squares: f64 = bounded.iter().map(|&x| f64::from(x).powi(2)).sum();
            let is_bounded = bounded.iter().all(|x| x.is_finite()) && squares.sqrt() <= norm;
            if !is_bounded {
                return Err(format!("‖{bounded:?}‖ is above {norm:e}"));
            }
            if pinned.task.sanitizer.squash.is_some() && bounded.iter().any(|&x| x < 0.0) {
                return Err(format!("{bounded:?} has a negative number after squash"));
            }
        }
        let sent = sent(&pinned, &pre, rows);
        if let Some(problem) = problem(&sent, rows, &pinned.task, &pinned.hash) {
            return Err(problem);
        }
        let shape = |(frame, bytes): (&Frame, &Vec<u8>)| {
            (frame.epoch, frame.releases.len(), bytes.len(), bytes[..64].to_vec())
        };
        shapes.push(sent.frames.iter().zip(&sent.bytes).map(shape).collect::<Vec<_>>());
    }
    match shapes.iter().all(|shape| *shape == shapes[0]) {
        true => Ok("contributed"),
        false => Err(format!("frames of neighboring folders differ: {shapes:?}")),
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// For any task: one release per row, frames of equal shape for all folders with the same number of
/// rows, rows within the bound before noise, and finite values.
#[test]
fn hostile_tasks_learn_nothing_but_the_number_of_rows() {
    let seed = setting("UNDERTONE_ATTACKS_SEED").unwrap_or(1);
    let count = setting("UNDERTONE_ATTACKS_COUNT").unwrap_or(30);
    let (honest, mut tally) = (Honest::new(), BTreeMap::<&str, u64>::new());
    if let Some(number) = setting("UNDERTONE_ATTACKS_ONLY") {
        return println!("hostile task {number}: {:?}", attack(&honest, seed, number));
    }
    for number in 0..count {
        match attack(&honest, seed, number) {
            Ok(end) => *tally.entry(end).or_default() += 1,
            Err(problem) => panic!("seed {seed}, hostile task {number}: {problem}"),
        }
    }
    println!("\n{count} hostile tasks, seed {seed}: {tally:?}");
    // Most tasks get as far as reading the texts.
    assert!(3 * tally["contributed"] > count, "{tally:?}");
}

/// Combines each hostile tokenizer with honest weights and compares with a folder whose texts are
/// all different: the sent data have the same shape, and the owner learns how many texts were not
/// read.
#[test]
fn no_tokenizer_shows_a_predicate_of_the_texts() {
    let honest = Honest::new();
    for (number, change) in TOKENIZERS.iter().enumerate() {
        let forged = honest.copy();
        forged.tokenizer(*change);
        let pinned = forged.parsed().unwrap();
        let pre = forged.pre(&pinned).unwrap_or_else(|e| panic!("tokenizer {number}: {e}"));
        let shape = |texts: &[String]| {
            let sent = sent(&pinned, &pre, &rows(texts));
            let lengths: Vec<usize> = sent.bytes.iter().map(Vec::len).collect();
            let counts: Vec<usize> = sent.frames.iter().map(|frame| frame.releases.len()).collect();
            (lengths, counts, sent.untokenized)
        };
        let with = shape(&texts(70, |i| i.is_multiple_of(5)));
        let without = shape(&texts(70, |_| false));
        assert_eq!((&with.0, &with.1), (&without.0, &without.1), "tokenizer {number}");
        assert_eq!(with.1, [64, 6], "tokenizer {number}");
        let all_different: Vec<String> = (0..70).map(|i| format!("{i}")).collect();
        assert_eq!(shape(&all_different).1, [64, 6], "tokenizer {number}");
        if [2, 3, 4, 5, 6].contains(&number) {
            assert!(with.2 > 0, "tokenizer {number} reads all texts");
        }
    }
}

/// A crafted encoder whose rows are tiny, with a sign that depends on one word, under the largest
/// possible norm: the signs of the releases are those of the noise. With a factor in `f32` the rows
/// would be infinite, and noise would change nothing.
#[test]
fn tiny_rows_under_a_huge_norm_are_hidden_by_the_noise() {
    let honest = Honest::new();
    for (norm, scale) in [(1e10_f32, 1e-35), (1e10, 1e-20), (1e-10, 1e30), (1e-10, 1e38)] {
        let mut forged = honest.copy();
        forged.task.sanitizer.bounding = Bounding::Normalize;
        forged.task.sanitizer.norm = norm;
        forged.weights("sanitizer.safetensors", |_, values| {
            values.iter_mut().for_each(|x| *x = finite(f64::from(*x) * scale));
        });
        let pinned = forged.parsed().unwrap();
        let pre = forged.pre(&pinned).unwrap();
        let texts: Vec<String> = (0..60).map(|i| format!("the cat {i}")).collect();
        let rows = rows(&texts);
        let sent = sent(&pinned, &pre, &rows);
        let numbers: Vec<f32> = sent
            .frames
            .iter()
            .flat_map(|frame| frame.releases.iter().flat_map(|release| release.numbers.clone()))
            .collect();
        assert!(numbers.iter().all(|number| number.is_finite()), "{norm:e}, {scale:e}");
        // Each value has noise of about 1.5 norms, whatever the row is.
        let std = pinned.task.releases.noise_multipliers[0] * f64::from(norm);
        let squares: f64 = numbers.iter().map(|&x| (f64::from(x) / std).powi(2)).sum();
        let variance = squares / numbers.len() as f64;
        assert!((0.7..1.6).contains(&variance), "{norm:e}, {scale:e}: {variance}");
        let plus = numbers.iter().step_by(4).filter(|&&x| x > 0.0).count();
        assert!((3..58).contains(&plus), "{norm:e}, {scale:e}: {plus} of 60 are positive");
    }
}

/// Repeated calls with more rows, fewer rows or a different order: each row of all files has one
/// release.
#[test]
fn rows_that_were_released_are_not_released_again() {
    let forged = Honest::new().copy();
    let pinned = forged.parsed().unwrap();
    let pre = forged.pre(&pinned).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut home = Home::open(&folder.path().join("owner")).unwrap();
    let mut count = |texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let sent = sent_from(&mut home, &pinned, &pre, &rows(&texts));
        sent.frames.iter().map(|frame| frame.releases.len()).sum::<usize>()
    };
    assert_eq!(count(&["a", "b", "a"]), 3);
    assert_eq!(count(&["b", "a", "a"]), 3);
    assert_eq!(count(&["a"]), 3);
    assert_eq!(count(&["a", "a", "a", ""]), 5);
    // Equal tokens do not imply equal texts.
    assert_eq!(count(&["A", "a "]), 7);
}
