//! The event file for TensorBoard, verified with an independent reader, and metrics as CSV.

use crate::bench::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// CRC-32C bit by bit, by polynomial division.
fn crc(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = crc & 1;
            crc >>= 1;
            if carry == 1 {
                crc ^= 0x82f6_3b78;
            }
        }
    }
    !crc
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, left) = rest.split_at(count);
    *rest = left;
    taken
}

fn varint(rest: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = take(rest, 1)[0];
        number |= u64::from(byte & 127) << shift;
        shift += 7;
        if byte < 128 {
            return number;
        }
    }
}

/// The fields of a message as number and content; numeric content is given as bytes.
fn fields(mut message: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let content = match key & 7 {
            0 => varint(&mut message).to_le_bytes().to_vec(),
            1 => take(&mut message, 8).to_vec(),
            2 => {
                let length = varint(&mut message) as usize;
                take(&mut message, length).to_vec()
            }
            5 => take(&mut message, 4).to_vec(),
            kind => panic!("no field is of kind {kind}"),
        };
        fields.push((key >> 3, content));
    }
    fields
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().unwrap())
}

/// Step and scalars of each event after the first, which contains the version.
fn events(file: &[u8]) -> Vec<(u64, BTreeMap<String, f32>)> {
    let (mut rest, mut events) = (file, Vec::new());
    let masked = |bytes: &[u8]| {
        let crc = crc(bytes);
        crc.rotate_right(15).wrapping_add(0xa282_ead8)
    };
    while !rest.is_empty() {
        let length = take(&mut rest, 8);
        assert_eq!(word(take(&mut rest, 4)), masked(length));
        let event = take(&mut rest, u64::from_le_bytes(length.try_into().unwrap()) as usize);
        assert_eq!(word(take(&mut rest, 4)), masked(event));
        let (mut step, mut scalars, mut version) = (0, BTreeMap::new(), None);
        for (number, content) in fields(event) {
            match number {
                1 => assert!(f64::from_le_bytes(content.try_into().unwrap()) > 1.7e9, "a time"),
                2 => step = u64::from_le_bytes(content.try_into().unwrap()),
                3 => version = Some(String::from_utf8(content).unwrap()),
                5 => {
                    for (_, value) in fields(&content) {
                        let value: BTreeMap<u64, Vec<u8>> = fields(&value).into_iter().collect();
                        let tag = String::from_utf8(value[&1].clone()).unwrap();
                        scalars.insert(tag, f32::from_bits(word(&value[&2])));
                    }
                }
                other => panic!("no event has a field {other}"),
            }
        }
        if events.is_empty() && version.is_some() {
            assert_eq!(version.as_deref(), Some("brain.Event:2"));
        }
        events.push((step, scalars));
    }
    events.remove(0);
    events
}

#[test]
fn tensorboard_and_csv_have_the_numbers_of_the_metrics() {
    let bench = Bench::classifier();
    let set = ["--set", "compute.tensorboard=true", "--set", "compute.checkpoint_every=1"];
    bench.train("run", &set);
    let text = fs::read_to_string(bench.path("run/metrics.jsonl")).unwrap();
    let records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events = events(&bench.bytes("run/events.out.tfevents.undertone"));
    assert_eq!(events.len(), records.len());
    for ((step, scalars), record) in events.iter().zip(&records) {
        assert_eq!(record["step"], *step);
        for (tag, value) in scalars {
            let path = format!("/{tag}");
            let truth = record.pointer(&path).and_then(Value::as_f64).unwrap();
            assert_eq!(*value, truth as f32, "{tag} of step {step}");
        }
        for tag in ["loss", "learning_rate", "gradient_norm", "clipped", "epsilon"] {
            assert!(scalars.contains_key(tag) || record[tag].is_null(), "{tag} of step {step}");
        }
        assert_eq!(scalars.contains_key("validation/accuracy"), step % 6 == 0);
    }
    let ledger = fs::read_to_string(bench.path("run/ledger.jsonl")).unwrap();
    assert!(ledger.contains("an event file for TensorBoard, "), "{ledger}");
    // The same as CSV, immediately for a finished run.
    let csv = run(&["watch", bench.path("run").to_str().unwrap(), "--csv"]);
    let csv = String::from_utf8(csv).unwrap();
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 1 + records.len());
    for (line, record) in lines[1..].iter().zip(&records) {
        assert_eq!(line.len(), lines[0].len());
        for (name, cell) in lines[0].iter().zip(line) {
            let truth = record.pointer(&format!("/{name}")).and_then(Value::as_f64);
            assert_eq!(cell.parse().ok(), truth, "{name} of {line:?}");
        }
    }
    let output = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(["watch", "--csv", "--json"])
        .arg(bench.path("run"))
        .output()
        .unwrap();
    refused(&output, "cannot be used with");
}

/// A run that is killed and resumed contains each step once.
#[test]
fn a_resumed_run_has_each_step_once() {
    let bench = Bench::classifier();
    let set = ["--set", "compute.tensorboard=true", "--set", "training.epochs=20", "--seed", "3"];
    assert!(bench.kill_after("run", &set, 20), "it was still at work");
    bench.resume("run");
    let events = events(&bench.bytes("run/events.out.tfevents.undertone"));
    let steps: Vec<u64> = events.iter().map(|(step, _)| *step).collect();
    assert_eq!(steps, (1..=120).collect::<Vec<_>>());
}
