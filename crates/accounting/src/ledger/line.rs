//! One line of a ledger, chained to the line before by a hash.

use super::Terms;
use crate::Part;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Content of a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// The first line.
    Terms(Terms),
    /// A release that was, or is about to be, made.
    Spent(Part),
    /// Replaces a torn line, which counts as one release of each of these.
    Repair(Vec<Part>),
}

/// The part of a line covered by its hash.
#[derive(Serialize, Deserialize)]
struct Body {
    #[serde(flatten)]
    entry: Entry,
    previous: String,
}

/// A line with its hash.
pub struct Line {
    entry: Entry,
    hash: String,
    text: String,
}

const HASH_KEY: &str = ",\"hash\":\"";

impl Line {
    /// Seals `entry` into a line that follows the line with the hash `previous`.
    pub fn seal(entry: Entry, previous: &str) -> Line {
        let body = Body { entry, previous: previous.to_owned() };
        let json = serde_json::to_string(&body).expect("events are finite numbers and names");
        let hash = hash_of(&json);
        // The hash becomes the last member of the object that it covers.
        let text = format!("{}{HASH_KEY}{hash}\"}}\n", json.strip_suffix('}').unwrap_or(&json));
        Line { entry: body.entry, hash, text }
    }

    /// Parses a line. Returns `None` unless the line is complete, its hash is correct and it
    /// follows `previous`.
    pub fn parse(bytes: &[u8], previous: &str) -> Option<Line> {
        let text = std::str::from_utf8(bytes).ok()?;
        let line = text.strip_suffix('\n').unwrap_or(text);
        let (covered, rest) = line.rsplit_once(HASH_KEY)?;
        let hash = rest.strip_suffix("\"}")?;
        let json = format!("{covered}}}");
        if hash_of(&json) != hash {
            return None;
        }
        let body: Body = serde_json::from_str(&json).ok()?;
        (body.previous == previous).then(|| Line {
            entry: body.entry,
            hash: hash.to_owned(),
            text: text.to_owned(),
        })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn hash(&self) -> &str {
        &self.hash
    }

    pub fn into_parts(self) -> (Entry, String) {
        (self.entry, self.hash)
    }
}

fn hash_of(json: &str) -> String {
    Sha256::digest(json.as_bytes()).iter().map(|b| format!("{b:02x}")).collect()
}
