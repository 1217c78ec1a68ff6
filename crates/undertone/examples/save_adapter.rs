//! Adds LoRA or (IA)³ with random weights to a model and saves the adapter, to check that peft
//! loads it.
//!
//!     cargo run --release --example save_adapter -- --model DIR --out DIR [--targets NAME,NAME]
//!         [--layers 0,1] [--with ia3|rslora|dora|embeddings]

use std::path::Path;
use undertone::model::folder::{BaseModel, LoadOptions, Random, load};
use undertone::model::tuning::{Ia3Settings, LoraSettings, Tuning, save_adapter};
use undertone::tensor::Matrix;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag);
        at.and_then(|at| arguments.get(at + 1)).ok_or(format!("give {flag} DIR"))
    };
    let folder = value("--model")?;
    let mut model = load(Path::new(folder), &LoadOptions::default())?;
    let targets = value("--targets")
        .map_or(Vec::new(), |names| names.split(',').map(str::to_owned).collect());
    let with = value("--with").map_or("", |with| with.as_str());
    let layers = match value("--layers") {
        Ok(list) => Some(list.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?),
        Err(_) => None,
    };
    let lora = LoraSettings {
        rank: 4,
        alpha: 8.0,
        targets,
        layers,
        rank_stabilized: with == "rslora",
        dora: with == "dora",
        embeddings: with == "embeddings",
        ..LoraSettings::default()
    };
    let tuning = match with {
        "ia3" => Tuning::Ia3(Ia3Settings::default()),
        _ => Tuning::Lora(lora),
    };
    model.apply_tuning(&tuning, 1)?;
    // LoRA's B is initialized to zero, which would test nothing; the task head changes too.
    let mut random = Random::new(2, 0.02);
    for (_, parameter) in model.parameters.iter_mut().filter(|(_, p)| p.trainable) {
        let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
        let mut values = parameter.value.to_vec()?;
        let noise = random.normal(values.len(), 0.05);
        values.iter_mut().zip(noise).for_each(|(value, noise)| *value += noise);
        parameter.value = Matrix::from_vec(rows, columns, values);
    }
    save_adapter(&model, Path::new(value("--out")?), &BaseModel::named(folder))?;
    Ok(())
}
