//! Loads a model folder and saves it again, to check that transformers loads the result.
//!
//!     cargo run --release --example save_model -- --model DIR --out DIR

use std::path::Path;
use undertone::model::folder::{LoadOptions, load, save};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag);
        at.and_then(|at| arguments.get(at + 1)).ok_or(format!("give {flag} DIR"))
    };
    let folder = Path::new(value("--model")?);
    let model = load(folder, &LoadOptions::default())?;
    save(&model, Path::new(value("--out")?), Some(folder))?;
    Ok(())
}
