//! Which text each unit steers, and with which of its rows: a function of that unit's rows alone.

use crate::data::{Template, format_of, read};
use crate::error::Result;
use crate::noise::{Secret, purpose};
use crate::synthesize::Classes;
use crate::synthesize::classes::undeclared;
use crate::synthesize::plan::texts;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use undertone_run::DataSection;

/// Separates an example from the text after it, and ends a text.
pub const SEPARATOR: &str = "\n\n";

/// The examples that steer each text: they are private.
#[derive(Clone, Debug, PartialEq)]
pub struct Groups {
    /// Number of units in the file.
    pub units: u64,
    rows: Vec<Example>,
}

/// The row of a unit.
#[derive(Clone, Debug, PartialEq)]
struct Example {
    /// Two numbers from the keyed hash of unit and row.
    order: u64,
    group: u64,
    class: usize,
    text: String,
}

impl Groups {
    /// Reads the private rows and chooses one of each unit.
    pub fn read(data: &DataSection, classes: &Classes, secret: &Secret) -> Result<Self> {
        let key = secret.key(purpose::PREDICTION_GROUPS);
        let texts = texts(data)?;
        let codes = &classes.columns;
        let columns: Vec<&str> =
            texts.iter().chain(codes).chain(&data.author).map(String::as_str).collect();
        let template = Template::parse(&data.completion)?;
        let format = format_of(&data.train, data.format)?;
        let mut units = 0;
        let mut rows: Vec<Example> = Vec::new();
        let mut by_author: BTreeMap<String, Example> = BTreeMap::new();
        for row in read::rows_or_skip(&data.train, format, &columns, data.on_bad_row)? {
            let row = row?;
            let (values, rest) = row.values.split_at(texts.len());
            let (values_of_codes, author) = rest.split_at(codes.len());
            let class = classes.classes.iter().position(|class| class.values == values_of_codes);
            let Some(class) = class else {
                return Err(undeclared(data, row.line, codes, values_of_codes));
            };
            let text = one_paragraph(&template.fill(values));
            let (order, group) = hashes(&key, author.first(), class, &text);
            let example = Example { order, group, class, text };
            match author {
                [author] => match by_author.get_mut(author) {
                    Some(known) if known.order <= order => {}
                    Some(known) => *known = example,
                    None => {
                        units += 1;
                        by_author.insert(author.clone(), example);
                    }
                },
                _ => {
                    units += 1;
                    rows.push(example);
                }
            }
        }
        rows.extend(by_author.into_values());
        // A function of the rows, not of their order in the file.
        rows.sort_by(|a, b| (a.order, &a.text).cmp(&(b.order, &b.text)));
        rows.retain(|example| !example.text.trim().is_empty());
        Ok(Self { units, rows })
    }

    /// A hash of all examples and of the texts that they steer. It is private.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.units.to_le_bytes());
        for Example { order, group, class, text } in &self.rows {
            for number in [*order, *group, *class as u64, text.len() as u64] {
                hash.update(number.to_le_bytes());
            }
            hash.update(text.as_bytes());
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The examples that steer text number `text`, if texts have their classes in turn.
    pub fn of(&self, text: u64, texts: u64, classes: usize) -> Vec<&str> {
        let (class, index) = (class_of(text, classes), text / classes as u64);
        let count = texts / classes as u64 + u64::from((class as u64) < texts % classes as u64);
        let own = self
            .rows
            .iter()
            .filter(|example| example.class == class && example.group % count.max(1) == index);
        own.map(|example| example.text.as_str()).collect()
    }
}

/// The class of a text.
pub fn class_of(text: u64, classes: usize) -> usize {
    (text % classes as u64) as usize
}

/// A text in which the separator does not occur.
fn one_paragraph(text: &str) -> String {
    let mut text = text.trim().replace("\r\n", "\n");
    while text.contains(SEPARATOR) {
        text = text.replace(SEPARATOR, "\n");
    }
    text
}

fn hashes(key: &[u8; 32], author: Option<&String>, class: usize, text: &str) -> (u64, u64) {
    let mut hash = Sha256::new();
    hash.update(key);
    for part in [author.map_or("", String::as_str), text] {
        // With its length, so that different lists of parts are different inputs.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.update((class as u64).to_le_bytes());
    let digest = hash.finalize();
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| digest[at + i]));
    (number(0), number(8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn groups(rows: &[(&str, usize)]) -> Groups {
        let key = Secret::from_seed(1).key(purpose::PREDICTION_GROUPS);
        let mut examples: Vec<Example> = rows
            .iter()
            .map(|(text, class)| {
                let (order, group) = hashes(&key, None, *class, text);
                Example { order, group, class: *class, text: (*text).to_owned() }
            })
            .collect();
        examples.sort_by_key(|example| example.order);
        Groups { units: rows.len() as u64, rows: examples }
    }

    /// Every unit steers exactly one text, of its own class; removing one changes that text's group
    /// only, by that unit alone.
    #[test]
    fn a_unit_steers_one_text() {
        let names: Vec<String> = (0..60).map(|i| format!("text {i}")).collect();
        let rows: Vec<(&str, usize)> =
            names.iter().enumerate().map(|(i, name)| (name.as_str(), i % 3)).collect();
        let (texts, classes) = (11, 3);
        let all = groups(&rows);
        let of = |groups: &Groups, text| -> BTreeSet<String> {
            groups.of(text, texts, classes).into_iter().map(str::to_owned).collect()
        };
        let total: usize = (0..texts).map(|text| all.of(text, texts, classes).len()).sum();
        assert_eq!(total, rows.len());
        for (text, class) in (0..texts).map(|text| (text, class_of(text, classes))) {
            for name in of(&all, text) {
                let number: usize = name.strip_prefix("text ").unwrap().parse().unwrap();
                assert_eq!(number % 3, class);
            }
        }
        for removed in 0..rows.len() {
            let mut fewer = rows.clone();
            let (name, _) = fewer.remove(removed);
            let fewer = groups(&fewer);
            let changed: Vec<u64> =
                (0..texts).filter(|&text| of(&all, text) != of(&fewer, text)).collect();
            let [one] = changed[..] else { panic!("{changed:?}") };
            let mut group = of(&all, one);
            assert!(group.remove(name));
            assert_eq!(group, of(&fewer, one));
        }
    }

    #[test]
    fn examples_have_no_separator() {
        assert_eq!(one_paragraph(" a\r\n\r\n\nb\n"), "a\nb");
    }
}
