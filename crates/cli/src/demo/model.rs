//! The small base model of the demo, and the code that made it.
//!
//! It is a GPT-2 with four blocks and 128 features, trained to continue *public* letters of the
//! same grammar. `undertone demo --pretrain crates/cli/src/demo/model` creates the weights in this
//! folder in a few minutes.

use super::corpus::{Writer, vocabulary};
use super::{train_run, write};
use crate::failure::{Failure, Outcome};
use serde_json::{Map, Value, json};
use std::path::Path;
use undertone::model::TaskHead;
use undertone::model::architecture::{Architecture, Dimensions};
use undertone::model::folder::save;
use undertone::train::Plan;

const CONFIG: &[u8] = include_bytes!("model/config.json");
const TOKENIZER: &[u8] = include_bytes!("model/tokenizer.json");
const WEIGHTS: &[u8] = include_bytes!("model/model.safetensors");

/// Writes the shipped model into a folder.
pub fn unpack(folder: &Path) -> Outcome {
    std::fs::create_dir_all(folder).map_err(|e| Failure::write(folder, e))?;
    for (name, bytes) in
        [("config.json", CONFIG), ("tokenizer.json", TOKENIZER), ("model.safetensors", WEIGHTS)]
    {
        write(&folder.join(name), bytes)?;
    }
    Ok(())
}

/// Pretrains the model on public letters and saves it in a folder.
pub fn pretrain(folder: &Path) -> Outcome {
    let work = tempfile_beside(folder)?;
    let start = work.join("start");
    std::fs::create_dir_all(&start).map_err(|e| Failure::write(&start, e))?;
    let tokenizer = tokenizer();
    let words = tokenizer["model"]["vocab"].as_object().map_or(0, Map::len);
    let dimensions = Dimensions {
        layers: 4,
        hidden: 128,
        heads: 4,
        inner: 512,
        vocabulary: words,
        positions: 96,
        key_heads: None,
    };
    let mut model =
        Architecture::Gpt2.random(dimensions, TaskHead::CausalLanguageModel, &[], 11)?;
    for (key, token) in [("bos_token_id", 1), ("eos_token_id", 1), ("pad_token_id", 0)] {
        model.config.set(key, json!(token));
    }
    save(&model, &start, None)?;
    let text = serde_json::to_string_pretty(&tokenizer).unwrap_or_default();
    write(&start.join("tokenizer.json"), text.as_bytes())?;
    let letters: String = Writer::new(1)
        .public_letters(20_000)
        .iter()
        .map(|letter| format!("{}\n", letter.text))
        .collect();
    let data = work.join("public.txt");
    write(&data, letters.as_bytes())?;
    let plan = format!(
        "[model]\npath = {start:?}\n\
         [data]\ntask = \"language-modeling\"\ntrain = {data:?}\ntext = \"text\"\n\
         max_tokens = 96\n\
         [privacy]\nmethod = \"none\"\n\
         [training]\nepochs = 3\nbatch = 64\nlearning_rate = 2e-3\nwarmup = 0.05\n\
         learning_rate_schedule = \"cosine\"\nweight_decay = 0.01\nseed = 1\n\
         [compute]\nmicro_batch = 64\n"
    );
    let out = work.join("run");
    train_run(Plan::parse(&plan, &[])?, &out)?;
    std::fs::create_dir_all(folder).map_err(|e| Failure::write(folder, e))?;
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        let to = folder.join(name);
        std::fs::copy(out.join("model").join(name), &to).map_err(|e| Failure::write(&to, e))?;
    }
    std::fs::remove_dir_all(&work).map_err(|e| Failure::write(&work, e))
}

/// An empty folder for intermediate files.
fn tempfile_beside(folder: &Path) -> Outcome<std::path::PathBuf> {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(".work");
    let work = folder.with_file_name(name);
    if work.exists() {
        std::fs::remove_dir_all(&work).map_err(|e| Failure::write(&work, e))?;
    }
    std::fs::create_dir_all(&work).map_err(|e| Failure::write(&work, e))?;
    Ok(work)
}

/// One token for each word of the grammar.
fn tokenizer() -> Value {
    let special = ["[PAD]", "[END]", "[UNK]"];
    let words = special.iter().map(ToString::to_string).chain(vocabulary());
    let vocab: Map<String, Value> = words.enumerate().map(|(id, word)| (word, json!(id))).collect();
    let added = special.iter().enumerate().map(|(id, token)| {
        json!({
            "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        })
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": { "type": "Lowercase" }, "pre_tokenizer": { "type": "WhitespaceSplit" },
        "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]" }
    })
}
