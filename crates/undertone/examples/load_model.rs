//! Loads a model folder for one kind of fine-tuning and prints, as JSON, the peak and the remaining
//! memory in bytes, relative to the memory before loading. benches/loading/run calls it.
//!
//!     cargo run --release --example load_model -- --model DIR --as frozen|full|nf4
//!
//! `frozen` keeps the weights in the format of the files (LoRA), `full` trains all of them in f32,
//! and `nf4` stores linear layers in four bits (LoRA).

use std::path::Path;
use undertone::model::folder::{LoadOptions, load};
use undertone::model::tuning::{LoraSettings, Tuning};
use undertone::run::Quantize;

/// A value from /proc/self/status, in bytes.
fn status(key: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(key)).ok_or(format!("no {key}"))?;
    let kilobytes = line.split_whitespace().nth(1).ok_or("no number")?;
    Ok(kilobytes.parse::<u64>()? * 1024)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag);
        at.and_then(|at| arguments.get(at + 1)).ok_or(format!("give {flag}"))
    };
    let (folder, kept) = (Path::new(value("--model")?), value("--as")?.as_str());
    let (tuning, quantize) = match kept {
        "frozen" => (Tuning::Lora(LoraSettings::default()), None),
        "full" => (Tuning::Full, None),
        "nf4" => (Tuning::Lora(LoraSettings::default()), Some(Quantize::Nf4)),
        other => return Err(format!("--as is {other}, but must be frozen, full or nf4").into()),
    };
    let before = status("VmRSS:")?;
    let mut model = load(folder, &LoadOptions { quantize, ..LoadOptions::default() })?;
    model.apply_tuning(&tuning, 1)?;
    // Files are read, not mapped, so all of their memory is anonymous.
    let (peak, stays) = (status("VmHWM:")?, status("VmRSS:")?);
    let (anonymous, mapped) = (status("RssAnon:")?, status("RssFile:")?);
    println!(
        "{{\"parameters\": {}, \"peak\": {}, \"stays\": {}, \"anonymous\": {anonymous}, \"mapped\": \
         {mapped}}}",
        model.parameters.iter().map(|(_, parameter)| parameter.len()).sum::<usize>(),
        peak.saturating_sub(before),
        stays.saturating_sub(before),
    );
    Ok(())
}
