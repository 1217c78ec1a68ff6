//! Lines, chained by hashes: SHA-256 over the line without its `hash` member.

use crate::entry::Entry;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A line of the register.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Seconds since 1970, by the clock of the machine that wrote the line.
    pub at: u64,
    /// The recorded entry.
    pub entry: Entry,
    /// The line's hash.
    pub hash: String,
}

/// The part of a line that its hash covers.
#[derive(Serialize, Deserialize)]
struct Body {
    at: u64,
    #[serde(flatten)]
    entry: Entry,
    previous: String,
}

const HASH_KEY: &str = ",\"hash\":\"";

/// The text of the line after the one with the hash `previous`, including its line break, and its
/// hash.
pub fn seal(at: u64, entry: Entry, previous: &str) -> (String, String) {
    let body = Body { at, entry, previous: previous.to_owned() };
    let json = serde_json::to_string(&body).expect("entries are finite numbers and text");
    let hash = hash_of(&json);
    // The hash becomes the last member of the object that it covers.
    (format!("{}{HASH_KEY}{hash}\"}}\n", json.strip_suffix('}').unwrap_or(&json)), hash)
}

/// Parses complete lines. `place` is the register's location, for messages.
pub fn parse(text: &str, place: &str) -> Result<Vec<Line>> {
    let mut lines: Vec<Line> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let previous = lines.last().map_or("", |line| line.hash.as_str());
        let parsed = parse_one(line, previous).ok_or_else(|| {
            Error::refused(format!(
                "register {place}: line {} was changed after it was written, or the one before it \
                 is missing; restore the register from a backup",
                index + 1
            ))
        })?;
        lines.push(parsed);
    }
    Ok(lines)
}

/// The hash of the last of several complete lines that were parsed or sealed before.
pub fn last_hash(text: &str) -> &str {
    let last = text.lines().last().and_then(|line| line.rsplit_once(HASH_KEY));
    last.and_then(|(_, rest)| rest.strip_suffix("\"}")).unwrap_or_default()
}

fn parse_one(line: &str, previous: &str) -> Option<Line> {
    let (covered, rest) = line.rsplit_once(HASH_KEY)?;
    let hash = rest.strip_suffix("\"}")?;
    let json = format!("{covered}}}");
    if hash_of(&json) != hash {
        return None;
    }
    let body: Body = serde_json::from_str(&json).ok()?;
    let line = Line { at: body.at, entry: body.entry, hash: hash.to_owned() };
    (body.previous == previous).then_some(line)
}

fn hash_of(json: &str) -> String {
    Sha256::digest(json.as_bytes()).iter().map(|b| format!("{b:02x}")).collect()
}
