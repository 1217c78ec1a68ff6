//! The keys of the run file, read off the types that define them.

use super::spelling::{self, suggestion};
use super::{
    AdaclipSection, AnadpSection, ComputeSection, DataSection, EvaluationSection, LocalSection,
    LoraSettings, ModelSection, MvgSection, PaperSection, PrivacySection, RapFtSection,
    SynthesisSection, TrainingSection,
};
use serde::de::{DeserializeOwned, Deserializer, Error, Visitor, value};

/// The path of the run-file key that a word on the command line refers to, such as
/// `training.weight_decay` for `weight-decay`, or `None` unless exactly one key matches.
pub fn key_named(word: &str) -> Option<String> {
    let word = spelling::path(&word.replace('-', "_"));
    let keys = all();
    let mut same = keys.iter().filter(|(_, key)| *key == word);
    if let (Some((section, key)), None) = (same.next(), same.next()) {
        return Some(format!("{section}.{key}"));
    }
    // Names used by other tools, and typing errors.
    let common: Vec<&str> =
        keys.iter().filter(|(section, _)| COMMON.contains(section)).map(|(_, key)| *key).collect();
    let meant = suggestion(&word, &common)?;
    let (section, key) =
        keys.iter().find(|(section, key)| COMMON.contains(section) && *key == meant)?;
    Some(format!("{section}.{key}"))
}

/// Sections in which a word may be a typing error of a key.
const COMMON: [&str; 4] = ["training", "data", "privacy", "compute"];

/// All keys, each with its section.
fn all() -> Vec<(&'static str, &'static str)> {
    let sections: [(&str, &[&str]); 14] = [
        ("model", fields::<ModelSection>()),
        ("model.tuning.lora", fields::<LoraSettings>()),
        ("data", fields::<DataSection>()),
        ("training", fields::<TrainingSection>()),
        ("privacy", fields::<PrivacySection>()),
        ("privacy.adaclip", fields::<AdaclipSection>()),
        ("privacy.anadp", fields::<AnadpSection>()),
        ("privacy.rap_ft", fields::<RapFtSection>()),
        ("privacy.local", fields::<LocalSection>()),
        ("privacy.mvg", fields::<MvgSection>()),
        ("privacy.paper", fields::<PaperSection>()),
        ("evaluation", fields::<EvaluationSection>()),
        ("compute", fields::<ComputeSection>()),
        ("synthesis", fields::<SynthesisSection>()),
    ];
    let of = |(section, keys): (&'static str, &'static [&'static str])| {
        keys.iter().map(move |key| (section, *key))
    };
    sections.into_iter().flat_map(of).collect()
}

/// The names of a struct's fields.
fn fields<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    let _ = T::deserialize(Fields(&mut fields));
    fields
}

/// Deserializes nothing; records the fields that a struct requests.
struct Fields<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, value::Error> {
        Err(value::Error::custom("only structs have fields"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, value::Error> {
        *self.0 = fields;
        Err(value::Error::custom("nothing to read"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_means_a_key() {
        for (word, key) in [
            ("weight-decay", Some("training.weight_decay")),
            ("optimizer", Some("training.optimizer")),
            ("clip", Some("privacy.clip")),
            ("max-grad-norm", Some("privacy.clip")),
            ("num-train-epochs", Some("training.epochs")),
            ("recompute", Some("compute.recompute")),
            ("publish_labels", Some("data.publish_labels")),
            ("quantize", Some("model.quantize")),
            ("width", Some("privacy.mvg.width")),
            ("colour", None),
        ] {
            assert_eq!(key_named(word).as_deref(), key, "{word}");
        }
        // A key that occurs in two sections is ambiguous.
        assert_eq!(key_named("alpha"), None);
        assert!(all().len() > 80, "{}", all().len());
    }
}
