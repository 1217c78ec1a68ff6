//! Damaged files: modified bytes, or something that is not a regular file.

use super::json;
use super::random::Random;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// What replaces a file.
pub enum Damage {
    Bytes(Vec<u8>),
    Missing,
    Folder,
    /// A symbolic link to itself.
    Loop,
    /// A named pipe without a writer.
    Pipe,
    /// A link to an endless device.
    Endless,
}

/// Numbers that a reader may not expect.
pub const NUMBERS: [&str; 16] = [
    "0",
    "-1",
    "-0.0",
    "1",
    "0.5",
    "nan",
    "inf",
    "1e308",
    "-1e308",
    "1e-308",
    "1e-320",
    "1e999",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999999",
];

/// Texts that a reader may not expect, or that must not reach a terminal.
pub const TEXTS: [&str; 15] = [
    "",
    " ",
    "x",
    "null",
    "\\u001b[2J\\u001b[31m",
    "\\u202etxt",
    "\\u0000",
    "\\ud800",
    "\u{1b}[2J\u{1b}[31m",
    "\u{202e}txt",
    "\u{9b}31m\u{7f}",
    "a\r\nb\tc",
    "nowhere/../rows.tsv",
    "%s%n{}",
    "\u{feff}",
];

impl Damage {
    /// Draws a damage for a file with these bytes, and its description; `twin` is the file of the
    /// same name in another run.
    pub fn draw(random: &mut Random, before: &[u8], twin: Option<Vec<u8>>) -> (Damage, String) {
        let (how, damage): (String, Damage) = match random.below(24) {
            0 => ("is missing".into(), Damage::Missing),
            1 => ("is a folder".into(), Damage::Folder),
            2 => ("is a link to itself".into(), Damage::Loop),
            3 => ("is a named pipe".into(), Damage::Pipe),
            4 => ("is a link to /dev/zero".into(), Damage::Endless),
            5 => ("is empty".into(), Damage::Bytes(Vec::new())),
            6 if twin.is_some() => {
                ("is that of another run".into(), Damage::Bytes(twin.unwrap_or_default()))
            }
            _ => {
                let (how, bytes) = change(random, before);
                (how, Damage::Bytes(bytes))
            }
        };
        (damage, how)
    }

    /// Replaces the file at `path`.
    pub fn put(&self, path: &Path) {
        fs::remove_file(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        match self {
            Damage::Bytes(bytes) => fs::write(path, bytes).unwrap(),
            Damage::Missing => {}
            Damage::Folder => fs::create_dir(path).unwrap(),
            Damage::Loop => symlink(path.file_name().unwrap(), path).unwrap(),
            Damage::Pipe => {
                assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
            }
            Damage::Endless => symlink("/dev/zero", path).unwrap(),
        }
    }
}

/// The bytes with one change, and a description of the change.
fn change(random: &mut Random, before: &[u8]) -> (String, Vec<u8>) {
    if before.is_empty() {
        return ("has one byte".into(), vec![random.draw() as u8]);
    }
    let mut bytes = before.to_vec();
    let at = random.below(bytes.len());
    let until = (at + 1 + random.below(64)).min(bytes.len());
    match random.below(11) {
        0 => {
            let bit = random.below(8);
            bytes[at] ^= 1 << bit;
            (format!("bit {bit} of byte {at} is flipped"), bytes)
        }
        1 => {
            bytes.truncate(at);
            (format!("is cut off after {at} bytes"), bytes)
        }
        2 => {
            bytes.drain(at..until);
            (format!("lacks bytes {at}..{until}"), bytes)
        }
        3 => {
            let slice = before[at..until].to_vec();
            bytes.splice(until..until, slice);
            (format!("has bytes {at}..{until} twice"), bytes)
        }
        4 => {
            let noise: Vec<u8> = (at..until).map(|_| random.draw() as u8).collect();
            bytes.splice(at..at, noise);
            (format!("has {} random bytes at {at}", until - at), bytes)
        }
        5 | 6 => {
            let number = *random.pick(&NUMBERS);
            replace(random, bytes, &numbers(before), number.as_bytes(), number)
        }
        7 => {
            let text = *random.pick(&TEXTS);
            replace(random, bytes, &texts(before), text.as_bytes(), &format!("{text:?}"))
        }
        8 => match random.below(3) {
            0 => replace(random, bytes, &texts(before), b"\xff\xfe\xc3", "invalid UTF-8"),
            1 => replace(random, bytes, &texts(before), &[b'a'; 200_000], "200,000 letters"),
            _ => replace(random, bytes, &numbers(before), &[b'['; 100_000], "100,000 brackets"),
        },
        9 => json::change(random, before).unwrap_or_else(|| {
            bytes.truncate(at);
            (format!("is cut off after {at} bytes"), bytes)
        }),
        _ => json::change_tensors(random, before).unwrap_or_else(|| {
            bytes.extend_from_slice(&before[at..until]);
            (format!("ends with bytes {at}..{until} again"), bytes)
        }),
    }
}

type Places = Vec<std::ops::Range<usize>>;

/// The bytes with one of the given places replaced, or with the replacement appended if there are
/// none.
fn replace(
    random: &mut Random,
    mut bytes: Vec<u8>,
    places: &Places,
    with: &[u8],
    name: &str,
) -> (String, Vec<u8>) {
    let end = bytes.len()..bytes.len();
    let place = if places.is_empty() { end } else { random.pick(places).clone() };
    let how = format!("has {name} in place of bytes {place:?}");
    bytes.splice(place, with.iter().copied());
    (how, bytes)
}

/// The positions of numbers in a text.
fn numbers(bytes: &[u8]) -> Places {
    let is_part = |b: u8| b.is_ascii_digit() || b"+-.eE".contains(&b);
    runs(bytes, is_part).into_iter().filter(|run| bytes[run.start].is_ascii_digit()).collect()
}

/// The positions of quoted strings in a text, without the quotes, or of words if nothing is quoted.
fn texts(bytes: &[u8]) -> Places {
    let quotes: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] == b'"').collect();
    let quoted: Places = quotes.windows(2).map(|pair| pair[0] + 1..pair[1]).collect();
    if quoted.is_empty() { runs(bytes, |b| b.is_ascii_alphabetic()) } else { quoted }
}

/// The maximal runs of bytes that satisfy a condition.
fn runs(bytes: &[u8], is_part: impl Fn(u8) -> bool) -> Places {
    let mut places = Places::new();
    for (at, &byte) in bytes.iter().enumerate() {
        match places.last_mut() {
            Some(last) if is_part(byte) && last.end == at => last.end = at + 1,
            _ if is_part(byte) => places.push(at..at + 1),
            _ => {}
        }
    }
    places
}
