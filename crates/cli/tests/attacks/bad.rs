//! Decides which damaged files a command must not accept.

use super::mutate::Damage;
use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::BTreeMap;

/// The role of a file for the command that reads it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Any change may be valid.
    Loose,
    /// TOML with any content.
    Toml,
    /// JSON with any content.
    Json,
    /// JSON with any content, or no file.
    OptionalJson,
    /// One JSON object per line.
    JsonLines,
    /// Tab-separated with a header.
    Tsv,
    /// UTF-8 with any content.
    Text,
    Parquet,
    /// Finite weights with any values.
    Weights,
    /// Weights of a resumed run, which must be unchanged.
    SameWeights,
    /// config.json of a resumed run.
    SameConfig,
    /// plan.toml of a resumed run.
    SamePlan,
    /// JSON whose values must not change.
    SameJson,
    /// Every byte must be unchanged; without the file, a run repeats its steps.
    Checkpoint,
    /// 32 bytes, followed by anything.
    Secret,
    /// A hash chain in which only the last line may be torn.
    Ledger,
    /// summary.json, beside a ledger that proves its guarantee.
    Summary,
}

impl Kind {
    /// Whether a file of this kind is certainly invalid after the damage.
    pub fn is_bad(self, before: &[u8], damage: &Damage) -> bool {
        match damage {
            Damage::Bytes(after) => before != after && self.is_bad_content(before, after),
            Damage::Missing if [Kind::OptionalJson, Kind::Checkpoint].contains(&self) => false,
            _ => self != Kind::Loose,
        }
    }

    fn is_bad_content(self, before: &[u8], after: &[u8]) -> bool {
        let text = std::str::from_utf8(after);
        match self {
            Kind::Loose => false,
            Kind::Toml => table(after).is_none(),
            Kind::Json | Kind::OptionalJson => object(after).is_none(),
            Kind::JsonLines => text.is_err() || lines(after).any(|l| object(l).is_none()),
            Kind::Tsv => text.is_err() || !is_even_table(after),
            Kind::Text => text.is_err(),
            Kind::Parquet => !after.ends_with(b"PAR1"),
            Kind::Weights => tensors(after).is_none_or(|all| all.values().any(|t| !is_finite(t))),
            Kind::SameWeights => tensors(after) != tensors(before),
            Kind::SameConfig => {
                let of = |bytes: &[u8], key: &str| object(bytes).map(|all| all[key].clone());
                STRUCTURE.iter().any(|key| of(before, key) != of(after, key))
            }
            Kind::SamePlan => table(after).is_none_or(|after| {
                let before = table(before).unwrap_or_default();
                before.iter().any(|(key, was)| {
                    key != "resolved" && after.get(key).is_some_and(|is| !is_same(was, is))
                })
            }),
            Kind::SameJson => object(before) != object(after),
            Kind::Checkpoint => true,
            Kind::Secret => before.get(..32) != after.get(..32),
            Kind::Ledger => !after.starts_with(before.trim_ascii_end()),
            Kind::Summary => object(after).is_none_or(|after| {
                let before = object(before).unwrap_or_default();
                !claims_the_same(&before, &after)
            }),
        }
    }
}

/// Keys of config.json that determine what a model computes.
const STRUCTURE: [&str; 7] = [
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "layer_norm_eps",
    "hidden_act",
];

fn table(bytes: &[u8]) -> Option<toml::Table> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

fn object(bytes: &[u8]) -> Option<Value> {
    serde_json::from_slice(bytes).ok().filter(Value::is_object)
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty())
}

/// Whether all rows have the same number of cells as the header.
fn is_even_table(bytes: &[u8]) -> bool {
    let cells = |line: &[u8]| line.iter().filter(|&&byte| byte == b'\t').count();
    let mut counts = lines(bytes).map(cells);
    let header = counts.next();
    header.is_some() && counts.all(|count| Some(count) == header)
}

/// Data type, shape and bytes of each tensor.
type Tensors = BTreeMap<String, (String, Vec<usize>, Vec<u8>)>;

fn tensors(bytes: &[u8]) -> Option<Tensors> {
    let all = SafeTensors::deserialize(bytes).ok()?;
    let part = |(name, view): (&str, safetensors::tensor::TensorView)| {
        let content = (format!("{:?}", view.dtype()), view.shape().to_vec(), view.data().to_vec());
        (name.to_owned(), content)
    };
    Some(all.iter().map(part).collect())
}

fn is_finite((kind, _, data): &(String, Vec<usize>, Vec<u8>)) -> bool {
    let mut numbers = data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    kind != "F32" || numbers.all(f32::is_finite)
}

/// Whether all weights of a saved model are finite.
pub fn is_sound_model(bytes: &[u8]) -> bool {
    tensors(bytes).is_some_and(|all| all.values().all(is_finite))
}

/// Whether numbers agree to three digits and everything else is equal; missing keys have their
/// defaults.
fn is_same(was: &toml::Value, is: &toml::Value) -> bool {
    let number = |value: &toml::Value| {
        value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
    };
    match (was, is) {
        (toml::Value::Table(was), toml::Value::Table(is)) => was.iter().all(|(key, was)| {
            key == "checkpoint_every" || is.get(key).is_none_or(|is| is_same(was, is))
        }),
        (toml::Value::Array(was), toml::Value::Array(is)) => {
            was.len() == is.len() && was.iter().zip(is).all(|(was, is)| is_same(was, is))
        }
        _ => match (number(was), number(is)) {
            (Some(was), Some(is)) => was == is || (was - is).abs() <= 1e-3 * was.abs(),
            _ => was == is,
        },
    }
}

/// Whether two summaries claim the same guarantee, to three digits.
fn claims_the_same(before: &Value, after: &Value) -> bool {
    let of = |summary: &Value, path: &str| summary.pointer(path).cloned().unwrap_or_default();
    let is_same = |path: &&str| {
        let (was, is) = (of(before, path), of(after, path));
        match (was.as_f64(), is.as_f64()) {
            (Some(was), Some(is)) => was == is || (was - is).abs() <= 1e-3 * was.abs(),
            _ => was == is,
        }
    };
    [
        "/private",
        "/guarantee/unit",
        "/guarantee/adjacency",
        "/guarantee/threat",
        "/guarantee/mode",
        "/guarantee/delta",
        "/guarantee/epsilon/lower",
        "/guarantee/epsilon/upper",
    ]
    .iter()
    .all(is_same)
}
