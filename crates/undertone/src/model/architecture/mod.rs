//! One file for each architecture: which layers it has, and what their tensors are called.

mod bert;
mod builder;
mod distilbert;
mod gpt2;
mod llama;
mod random;
mod roberta;

pub use builder::Builder;
pub use random::Dimensions;

use super::folder::Config;
use super::{Network, Purpose, Result};

/// A family of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum), value(rename_all = "lower"))]
pub enum Architecture {
    /// BERT.
    Bert,
    /// DistilBERT.
    DistilBert,
    /// RoBERTa.
    Roberta,
    /// GPT-2.
    Gpt2,
    /// Llama, and what is built like it.
    Llama,
}

/// What the rest of the program needs to know of an architecture.
struct Facts {
    model_type: &'static str,
    class_prefix: &'static str,
    /// Before the names of all tensors but the head's.
    tensor_prefix: &'static str,
    purposes: &'static [(Purpose, &'static str)],
    lora_targets: &'static [&'static str],
    build: fn(&Config, Purpose, usize, &mut Builder) -> Result<Network>,
}

const ENCODER: &[(Purpose, &str)] = &[
    (Purpose::SequenceClassification, "ForSequenceClassification"),
    (Purpose::TokenClassification, "ForTokenClassification"),
    (Purpose::MaskedLanguageModel, "ForMaskedLM"),
];

impl Architecture {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Bert, Self::DistilBert, Self::Roberta, Self::Gpt2, Self::Llama];

    fn facts(self) -> Facts {
        match self {
            Self::Bert => Facts {
                model_type: "bert",
                class_prefix: "Bert",
                tensor_prefix: "bert.",
                purposes: ENCODER,
                lora_targets: &["query", "value"],
                build: bert::build,
            },
            Self::DistilBert => Facts {
                model_type: "distilbert",
                class_prefix: "DistilBert",
                tensor_prefix: "distilbert.",
                purposes: ENCODER,
                lora_targets: &["q_lin", "v_lin"],
                build: distilbert::build,
            },
            Self::Roberta => Facts {
                model_type: "roberta",
                class_prefix: "Roberta",
                tensor_prefix: "roberta.",
                purposes: ENCODER,
                lora_targets: &["query", "value"],
                build: roberta::build,
            },
            Self::Gpt2 => Facts {
                model_type: "gpt2",
                class_prefix: "GPT2",
                tensor_prefix: "transformer.",
                purposes: &[
                    (Purpose::CausalLanguageModel, "LMHeadModel"),
                    (Purpose::SequenceClassification, "ForSequenceClassification"),
                    (Purpose::TokenClassification, "ForTokenClassification"),
                ],
                lora_targets: &["c_attn"],
                build: gpt2::build,
            },
            Self::Llama => Facts {
                model_type: "llama",
                class_prefix: "Llama",
                tensor_prefix: "model.",
                purposes: &[
                    (Purpose::CausalLanguageModel, "ForCausalLM"),
                    (Purpose::SequenceClassification, "ForSequenceClassification"),
                    (Purpose::TokenClassification, "ForTokenClassification"),
                ],
                lora_targets: &["q_proj", "v_proj"],
                build: llama::build,
            },
        }
    }

    /// By the `model_type` of a configuration.
    pub fn of(config: &Config) -> Result<Self> {
        let Some(name) = config.text("model_type")? else {
            return Err(config.error("has no model_type, so the architecture is unknown"));
        };
        let known = Self::ALL.iter().find(|architecture| architecture.facts().model_type == name);
        known.copied().ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|a| a.facts().model_type).collect();
            config.error(format!("model_type is {name:?}; known are {}", names.join(", ")))
        })
    }

    /// The name in `model_type`.
    pub fn model_type(self) -> &'static str {
        self.facts().model_type
    }

    /// Before the names of all tensors but the head's.
    pub fn tensor_prefix(self) -> &'static str {
        self.facts().tensor_prefix
    }

    /// The linear layers that LoRA is put on if nothing is said.
    pub fn lora_targets(self) -> &'static [&'static str] {
        self.facts().lora_targets
    }

    /// The class that transformers loads such a model with.
    pub fn class_name(self, purpose: Purpose) -> Option<String> {
        let facts = self.facts();
        let suffix = facts.purposes.iter().find(|(known, _)| *known == purpose)?.1;
        Some(format!("{}{suffix}", facts.class_prefix))
    }

    /// The purpose of the head that `architectures` names, if it names one.
    pub fn purpose(self, class: &str) -> Option<Purpose> {
        let facts = self.facts();
        let suffix = class.strip_prefix(facts.class_prefix)?;
        facts.purposes.iter().find(|(_, known)| *known == suffix).map(|(purpose, _)| *purpose)
    }

    /// Builds the layers, asking the builder for each parameter.
    pub fn build(
        self,
        config: &Config,
        purpose: Purpose,
        classes: usize,
        builder: &mut Builder,
    ) -> Result<Network> {
        if self.class_name(purpose).is_none() {
            return Err(
                config.error(format!("a {} model has no head for {purpose:?}", self.model_type()))
            );
        }
        (self.facts().build)(config, purpose, classes, builder)
    }
}

/// Sizes that every architecture has, under its own names.
struct Sizes {
    vocabulary: usize,
    hidden: usize,
    layers: usize,
    heads: usize,
    inner: usize,
    positions: usize,
}

impl Sizes {
    /// Features of a head; the heads must divide the hidden size.
    fn head_width(&self, config: &Config) -> Result<usize> {
        if self.hidden.is_multiple_of(self.heads) {
            return Ok(self.hidden / self.heads);
        }
        Err(config
            .error(format!("{} heads do not divide a hidden size of {}", self.heads, self.hidden)))
    }

    /// Most models have a few dozen layers; a wrong number must not build a million.
    fn checked(self, config: &Config) -> Result<Self> {
        if self.layers > 1_000 {
            return Err(
                config.error(format!("asks for {} layers, which is more than 1000", self.layers))
            );
        }
        Ok(self)
    }
}
