//! Prompt tuning (Lester et al., 2021): the embeddings of virtual tokens before every text are
//! learned, and the weights are frozen.

use crate::folder::Random;
use crate::layer::embedding::SoftPrompt;
use crate::parameters::{Origin, Parameter};
use crate::{Error, Model, Result};
use undertone_settings::PromptSettings;
use undertone_tensor::Matrix;

/// Name of the virtual tokens' embeddings, as in PEFT.
pub(super) const NAME: &str = "prompt_embeddings";

/// Attaches virtual tokens that start from the embeddings of random tokens of the vocabulary.
pub(super) fn attach(model: &mut Model, settings: &PromptSettings, seed: u64) -> Result<()> {
    let table = model.parameters.value(model.network.embeddings.tokens);
    let (rows, columns) = (table.rows(), table.columns());
    let values = table.to_vec()?;
    let drawn = Random::new(seed, 1.0).uniform_within(settings.tokens, 1.0);
    let of = |x: &f32| {
        let row = ((0.5 * (x + 1.0)) as f64 * rows as f64) as usize;
        let first = row.min(rows.saturating_sub(1)) * columns;
        values[first..first + columns].to_vec()
    };
    let start: Vec<f32> = drawn.iter().flat_map(of).collect();
    attach_values(model, settings.tokens, start)
}

/// Attaches virtual tokens with these embeddings, `[tokens, hidden]`. Texts have as many positions
/// fewer.
pub(super) fn attach_values(model: &mut Model, tokens: usize, values: Vec<f32>) -> Result<()> {
    let device = model.device().clone();
    let Model { network, parameters, .. } = model;
    if network.embeddings.scale != 1.0 {
        return Err(Error::Tuning(
            "a soft prompt is not supported for models that scale their embeddings, such as Gemma; \
             use lora"
                .into(),
        ));
    }
    if tokens == 0 || tokens >= network.max_positions {
        return Err(Error::Tuning(format!(
            "a soft prompt of {tokens} tokens leaves no room for text: the model has {} positions",
            network.max_positions
        )));
    }
    let columns = parameters.value(network.embeddings.tokens).columns();
    let table = parameters.push(Parameter {
        name: NAME.into(),
        value: Matrix::from_vec(tokens, columns, values).to_device(&device)?,
        shape: vec![tokens, columns],
        trainable: true,
        origin: Origin::Adapter,
    });
    let first = network.vocabulary as u32;
    network.embeddings.prompt = Some(SoftPrompt { table, tokens, first });
    network.max_positions -= tokens;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskHead;
    use crate::architecture::{Architecture, Dimensions};
    use crate::folder::BaseModel;
    use crate::generate::Session;
    use crate::tuning::{Tuning, load_adapter, save_adapter};
    use undertone_data::{Batch, Example};

    fn base(architecture: Architecture, task_head: TaskHead) -> Model {
        let dimensions = Dimensions {
            layers: 2,
            hidden: 16,
            heads: 4,
            inner: 24,
            vocabulary: 60,
            positions: 40,
            key_heads: None,
        };
        let labels = ["a".to_owned(), "b".to_owned()];
        let labels = if task_head.has_labels() { &labels[..] } else { &[] };
        architecture.random(dimensions, task_head, labels, 5).unwrap()
    }

    fn batch(texts: &[&[u32]]) -> Batch {
        let example = |text: &&[u32]| Example { tokens: text.to_vec(), ..Example::default() };
        Batch::pack(&texts.iter().map(example).collect::<Vec<_>>())
    }

    const KINDS: [(Architecture, TaskHead); 5] = [
        (Architecture::Gpt2, TaskHead::CausalLanguageModel),
        (Architecture::Llama, TaskHead::CausalLanguageModel),
        (Architecture::Bert, TaskHead::SequenceClassification),
        (Architecture::Roberta, TaskHead::SequenceClassification),
        (Architecture::MpNet, TaskHead::SequenceClassification),
    ];

    /// The definition: virtual tokens with the embeddings of two real tokens are these tokens.
    #[test]
    fn a_prompt_of_real_tokens_is_these_tokens() {
        for (architecture, task_head) in KINDS {
            let plain = base(architecture, task_head);
            let mut prompted = plain.clone();
            let table = plain.parameters.value(plain.network.embeddings.tokens).to_vec().unwrap();
            let rows = [&table[7 * 16..8 * 16], &table[9 * 16..10 * 16]].concat();
            attach_values(&mut prompted, 2, rows).unwrap();
            let (short, long) =
                (batch(&[&[3, 4, 5], &[6, 8]]), batch(&[&[7, 9, 3, 4, 5], &[7, 9, 6, 8]]));
            // The logits of the text's own tokens, or of the sequences.
            let (few, all): (&[u32], &[u32]) = (&[0, 1, 2, 3, 4], &[2, 3, 4, 7, 8]);
            let have = prompted.logits(&short, Some(few)).unwrap().to_vec().unwrap();
            let want = plain.logits(&long, Some(all)).unwrap().to_vec().unwrap();
            assert_eq!(have, want, "{architecture:?}");
            assert_eq!(prompted.logits(&short, None).unwrap().to_vec().unwrap(), want);
            if task_head == TaskHead::CausalLanguageModel {
                let (mut virtual_session, mut token_session) =
                    (Session::new(&prompted, 1), Session::new(&plain, 1));
                for (new, whole) in [(vec![3, 4], vec![7, 9, 3, 4]), (vec![5], vec![5])] {
                    let have = virtual_session.extend(&[new]).unwrap().to_vec().unwrap();
                    assert_eq!(have, token_session.extend(&[whole]).unwrap().to_vec().unwrap());
                }
            }
        }
    }

    /// The names and shapes of PEFT's PromptTuningConfig and of its files, both ways.
    #[test]
    fn prompts_are_saved_for_peft_and_loaded() {
        for (architecture, task_head) in KINDS {
            let mut model = base(architecture, task_head);
            model.apply_tuning(&Tuning::Prompt(PromptSettings { tokens: 4 }), 3).unwrap();
            let trained: Vec<&str> = model
                .parameters
                .iter()
                .filter(|(_, p)| p.trainable && p.origin == Origin::Adapter)
                .map(|(_, p)| p.name.as_str())
                .collect();
            assert_eq!(trained, ["prompt_embeddings"]);
            let folder = tempfile::tempdir().unwrap();
            save_adapter(&model, folder.path(), &BaseModel::named("base")).unwrap();
            let text = std::fs::read_to_string(folder.path().join("adapter_config.json")).unwrap();
            let config: serde_json::Value = serde_json::from_str(&text).unwrap();
            for (key, value) in [("num_virtual_tokens", 4), ("token_dim", 16), ("num_layers", 2)] {
                assert_eq!(config[key], value, "{key}");
            }
            assert_eq!(config["peft_type"], "PROMPT_TUNING");
            assert_eq!(config["num_transformer_submodules"], 1);
            let weights =
                crate::folder::Weights::open_file(&folder.path().join("adapter_model.safetensors"))
                    .unwrap();
            assert_eq!(weights.shape("prompt_embeddings").unwrap(), [4, 16]);
            let others = weights.names().filter(|name| *name != "prompt_embeddings");
            let others: Vec<&str> = others.collect();
            assert_eq!(others.is_empty(), !task_head.has_labels());
            assert!(others.iter().all(|name| name.starts_with("base_model.")), "{others:?}");
            if architecture == Architecture::Bert {
                assert!(others.contains(&"base_model.classifier.weight"));
            }
            let mut back = base(architecture, task_head);
            load_adapter(&mut back, folder.path()).unwrap();
            let text = batch(&[&[3, 4, 5]]);
            let logits = |model: &Model| model.logits(&text, None).unwrap().to_vec().unwrap();
            assert_eq!(logits(&back), logits(&model));
            assert_eq!(back.tuning, model.tuning);
            assert!(crate::tuning::merge(&mut back).unwrap_err().to_string().contains("merged"));
        }
        let mut gemma = base(Architecture::Gemma2, TaskHead::CausalLanguageModel);
        let refused = gemma.apply_tuning(&Tuning::Prompt(PromptSettings::default()), 1);
        assert!(refused.unwrap_err().to_string().contains("Gemma"));
        let mut short = base(Architecture::Llama, TaskHead::CausalLanguageModel);
        let refused = short.apply_tuning(&Tuning::Prompt(PromptSettings { tokens: 40 }), 1);
        assert!(refused.unwrap_err().to_string().contains("no room"));
    }
}
