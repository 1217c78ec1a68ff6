//! TensorBoard event file with the scalars of `metrics.jsonl`.
//!
//! The file is a sequence of TFRecords, each containing one serialized `Event` protocol buffer:
//!
//! ```text
//! record:  length u64 LE │ masked CRC-32C of it u32 LE │ event │ masked CRC-32C of it u32 LE
//! Event:   1 wall_time double, 2 step int64, 3 file_version string | 5 summary Summary
//! Summary: repeated 1 Value;  Value: 1 tag string, 2 simple_value float
//! ```
//!
//! Like `metrics.jsonl`, it is computed from private data without noise, so it is private.

use crate::metrics::{Metrics, Record};
use crate::{Error, Result};
use crate::{read_bytes, write_atomically};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Appends the scalars of records to an event file.
#[derive(Debug)]
pub struct TensorboardWriter {
    file: File,
}

impl TensorboardWriter {
    /// Opens the file and keeps only the events up to step `steps`; a resumed run rewrites the
    /// later ones.
    pub fn open(path: &Path, steps: u64) -> Result<Self> {
        let existing = match read_bytes(path, u64::MAX) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(Error::io(path)(e)),
        };
        let mut kept: Vec<u8> = events(&existing)
            .take_while(|(step, _)| *step <= steps)
            .flat_map(|(_, record)| record.to_vec())
            .collect();
        if kept.is_empty() {
            kept = record(&[event(0), bytes(3, b"brain.Event:2")].concat());
        }
        if kept != existing {
            write_atomically(path, |out| out.write_all(&kept))?;
        }
        let file = OpenOptions::new().append(true).open(path).map_err(Error::io(path))?;
        Ok(Self { file })
    }

    /// Appends the scalars of a step.
    pub fn add(&mut self, path: &Path, step: &Record) -> Result<()> {
        let values: Vec<u8> = scalars(step)
            .into_iter()
            .flat_map(|(tag, scalar)| {
                let value = [bytes(1, tag.as_bytes()), float(2, scalar as f32)].concat();
                bytes(1, &value)
            })
            .collect();
        let event = [event(step.step), bytes(5, &values)].concat();
        self.file.write_all(&record(&event)).map_err(Error::io(path))
    }
}

/// The scalars of a step, by name.
pub fn scalars(record: &Record) -> Vec<(&'static str, f64)> {
    let mut scalars: Vec<(&'static str, Option<f64>)> = vec![
        ("loss", record.loss),
        ("learning_rate", Some(record.learning_rate)),
        ("gradient_norm", record.gradient_norm),
        ("clipped", record.clipped),
        ("epsilon", record.epsilon),
    ];
    match &record.validation {
        Some(Metrics::Classification(metrics)) => scalars.extend([
            ("validation/accuracy", Some(metrics.accuracy)),
            ("validation/f1", Some(metrics.f1)),
            ("validation/loss", Some(metrics.loss)),
        ]),
        Some(Metrics::Language(metrics)) => scalars.extend([
            ("validation/perplexity", Some(metrics.perplexity)),
            ("validation/loss", Some(metrics.loss)),
        ]),
        None => {}
    }
    scalars.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The fields at the start of every event: the time and the step.
fn event(step: u64) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let mut event = vec![1 << 3 | 1];
    event.extend(now.to_le_bytes());
    event.push(2 << 3);
    event.extend(varint(step));
    event
}

/// A length-delimited field: bytes, a string or a message.
fn bytes(field: u8, content: &[u8]) -> Vec<u8> {
    [vec![field << 3 | 2], varint(content.len() as u64), content.to_vec()].concat()
}

fn float(field: u8, number: f32) -> Vec<u8> {
    [&[field << 3 | 5][..], &number.to_le_bytes()].concat()
}

/// Base-128 varint: seven bits per byte, lowest first; the high bit marks that more bytes follow.
fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Frames an event with its length and checksums.
fn record(event: &[u8]) -> Vec<u8> {
    let length = (event.len() as u64).to_le_bytes();
    let [of_length, of_event] = [&length[..], event].map(|part| masked_crc(part).to_le_bytes());
    [&length[..], &of_length, event, &of_event].concat()
}

/// The complete records of a file that we wrote, each with its step, up to the first damaged one.
fn events(file: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = file;
    std::iter::from_fn(move || {
        let length = u64::from_le_bytes(*rest.first_chunk::<8>()?);
        let event = rest.get(12..12_usize.checked_add(usize::try_from(length).ok()?)?)?;
        let whole = rest.get(..16 + event.len())?;
        if record(event) != whole {
            return None;
        }
        rest = &rest[whole.len()..];
        // The time takes nine bytes and the step's key one.
        let mut step = 0_u64;
        for (i, byte) in event.get(10..)?.iter().enumerate().take(10) {
            step |= u64::from(byte & 0x7f) << (7 * i).min(63);
            if byte & 0x80 == 0 {
                break;
            }
        }
        Some((step, whole))
    })
}

/// CRC-32C (Castagnoli), rotated and offset as TFRecord stores it.
fn masked_crc(bytes: &[u8]) -> u32 {
    let crc =
        !bytes.iter().fold(!0_u32, |crc, byte| TABLE[usize::from((crc as u8) ^ byte)] ^ (crc >> 8));
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let (mut crc, mut bit) = (i as u32, 0);
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of CRC-32C, and the vectors of RFC 3720.
    #[test]
    fn checksums_are_those_of_the_standard() {
        let crc = |bytes: &[u8]| masked_crc(bytes).wrapping_sub(0xa282_ead8).rotate_left(15);
        assert_eq!(crc(b"123456789"), 0xe306_9283);
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc(&[0xff; 32]), 0x62a8_ab43);
    }

    fn step(step: u64) -> Record {
        Record {
            step,
            epoch: 1,
            units: 3,
            loss: Some(0.5),
            learning_rate: 1e-3,
            gradient_norm: None,
            clipped: Some(0.25),
            epsilon: Some(2.0),
            validation: None,
            released: None,
            clip: None,
            noise_by_parameter: Vec::new(),
        }
    }

    #[test]
    fn a_resumed_run_writes_later_steps_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let mut writer = TensorboardWriter::open(&path, 0).unwrap();
        (1..=300).for_each(|i| writer.add(&path, &step(i)).unwrap());
        let whole = std::fs::read(&path).unwrap();
        let steps: Vec<u64> = events(&whole).map(|(step, _)| step).collect();
        assert_eq!(steps, (0..=300).collect::<Vec<_>>());
        // Truncated within its last event, then resumed at step 200.
        std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
        drop(TensorboardWriter::open(&path, 200).unwrap());
        let kept = std::fs::read(&path).unwrap();
        assert!(whole.starts_with(&kept) && events(&kept).count() == 201);
        // A file that is not ours is replaced.
        std::fs::write(&path, "damaged").unwrap();
        drop(TensorboardWriter::open(&path, 200).unwrap());
        assert_eq!(events(&std::fs::read(&path).unwrap()).count(), 1);
    }
}
