//! The findings of a scan, by kind.

use super::pieces::Pieces;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use undertone::scan::{Finding, Kind, mask};

/// Counts and examples of everything found so far.
pub struct Found {
    /// Number of rows with a value.
    pub rows: u64,
    last_row: u64,
    examples: usize,
    kinds: BTreeMap<(Kind, &'static str), OfKind>,
    hashes: RandomState,
}

#[derive(Default)]
struct OfKind {
    found: u64,
    rows: u64,
    last_row: u64,
    /// Hashes of the strings, in lowercase and without spaces.
    distinct: HashSet<u64>,
    examples: Vec<String>,
}

impl Found {
    pub fn new(examples: usize) -> Self {
        let (kinds, hashes) = (BTreeMap::new(), RandomState::new());
        Self { rows: 0, last_row: 0, examples, kinds, hashes }
    }

    /// Adds the findings in each value.
    pub fn add(&mut self, pieces: &Pieces, findings: &[Vec<Finding>]) {
        for (value, findings) in pieces.values().zip(findings) {
            self.rows += u64::from(value.row != self.last_row);
            self.last_row = value.row;
            for finding in findings {
                let text = &value.value[finding.range.clone()];
                let of = self.kinds.entry((finding.kind, finding.detail)).or_default();
                of.found += 1;
                of.rows += u64::from(value.row != of.last_row);
                of.last_row = value.row;
                let plain: String = text
                    .chars()
                    .filter(|c| !c.is_whitespace())
                    .flat_map(char::to_lowercase)
                    .collect();
                let is_new = of.distinct.insert(self.hashes.hash_one(plain));
                if is_new && of.examples.len() < self.examples {
                    of.examples.push(mask(text, finding.kind));
                }
            }
        }
    }

    pub fn table(&self) -> Vec<Vec<String>> {
        let row = |((kind, detail), of): (&(Kind, &str), &OfKind)| {
            let name = match detail.is_empty() {
                true => kind.plural().to_owned(),
                false => format!("{}: {detail}", kind.plural()),
            };
            vec![
                name,
                of.found.to_string(),
                of.distinct.len().to_string(),
                of.rows.to_string(),
                of.examples.join("   "),
            ]
        };
        self.kinds.iter().map(row).collect()
    }

    pub fn json(&self) -> Vec<Value> {
        let of = |((kind, detail), of): (&(Kind, &str), &OfKind)| {
            json!({
                "kind": kind.name(),
                "detail": detail,
                "found": of.found,
                "distinct": of.distinct.len(),
                "rows": of.rows,
                "masked_examples": of.examples,
            })
        };
        self.kinds.iter().map(of).collect()
    }
}
