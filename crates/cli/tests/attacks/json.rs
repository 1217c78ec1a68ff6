//! JSON and safetensors files in which a value has another type or a number is not finite.

use super::random::Random;
use serde_json::{Value, json};

/// Marks a member to be removed.
const REMOVED: &str = "\u{0}removed";

/// The file with one value replaced, in the whole file or in one of its lines.
pub fn change(random: &mut Random, before: &[u8]) -> Option<(String, Vec<u8>)> {
    if let Ok(value) = serde_json::from_slice(before) {
        let (how, value) = replaced(random, value);
        return Some((how, serde_json::to_vec_pretty(&value).ok()?));
    }
    let text = std::str::from_utf8(before).ok()?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let number = random.below(lines.len());
    let line = lines.get_mut(number)?;
    let (how, value) = replaced(random, serde_json::from_str(line).ok()?);
    *line = value.to_string();
    Some((format!("line {}: {how}", number + 1), (lines.join("\n") + "\n").into_bytes()))
}

/// A safetensors file with a modified header or a non-finite value.
pub fn change_tensors(random: &mut Random, before: &[u8]) -> Option<(String, Vec<u8>)> {
    let length = usize::try_from(u64::from_le_bytes(*before.first_chunk()?)).ok()?;
    let header = before.get(8..8_usize.checked_add(length)?)?;
    let data = &before[8 + length..];
    if random.below(2) == 0 && data.len() >= 4 {
        let at = 4 * random.below(data.len() / 4);
        let number = *random.pick(&[f32::NAN, f32::INFINITY, f32::MAX, -f32::MAX]);
        let mut bytes = before.to_vec();
        bytes[8 + length + at..8 + length + at + 4].copy_from_slice(&number.to_le_bytes());
        return Some((format!("has {number:e} at byte {at} of its data"), bytes));
    }
    let (how, value) = replaced(random, serde_json::from_slice(header).ok()?);
    let header = value.to_string();
    let length = (header.len() as u64).to_le_bytes();
    Some((format!("header: {how}"), [&length[..], header.as_bytes(), data].concat()))
}

fn replaced(random: &mut Random, mut value: Value) -> (String, Value) {
    let with = match random.below(12) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(0),
        3 => json!(-1),
        4 => json!(1e308),
        5 => json!(u64::MAX),
        6 => json!(""),
        7 => json!("\u{1b}[2J\u{1b}[31m\u{202e}"),
        8 => json!([]),
        9 => json!({}),
        10 => (0..100).fold(json!(1), |inner, _| json!([inner])),
        _ => json!(REMOVED),
    };
    let mut place = random.below(count(&value));
    let name = if with == REMOVED { "missing".to_owned() } else { with.to_string() };
    let how = format!("value {place} is {name}");
    replace(&mut value, &mut place, &with);
    prune(&mut value);
    (how, value)
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    }
}

fn children_mut(value: &mut Value) -> Vec<&mut Value> {
    match value {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(members) => members.values_mut().collect(),
        _ => Vec::new(),
    }
}

/// The number of values inside a value, including itself.
fn count(value: &Value) -> usize {
    1 + children(value).into_iter().map(count).sum::<usize>()
}

/// Replaces the value at a position in depth-first order. Returns whether it was reached.
fn replace(value: &mut Value, place: &mut usize, with: &Value) -> bool {
    if *place == 0 {
        *value = with.clone();
        return true;
    }
    *place -= 1;
    children_mut(value).into_iter().any(|child| replace(child, place, with))
}

/// Removes marked members.
fn prune(value: &mut Value) {
    if let Value::Object(members) = value {
        members.retain(|_, member| *member != REMOVED);
    }
    children_mut(value).into_iter().for_each(prune);
}
