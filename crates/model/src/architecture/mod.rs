//! Model architectures, one file each: their layers and tensor names.

mod bert;
mod builder;
mod deberta;
mod distilbert;
mod gemma;
mod gpt2;
mod heads;
mod keys;
mod llama;
mod mistral;
mod modernbert;
mod mpnet;
mod phi3;
mod post_norm;
mod qwen2;
mod qwen3;
mod random;
mod roberta;
mod rope;
mod smollm3;

pub use builder::Builder;
pub use random::Dimensions;

use super::folder::Config;
use super::{Network, Result, TaskHead};

/// A model architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum), value(rename_all = "lower"))]
pub enum Architecture {
    Bert,
    DistilBert,
    Roberta,
    /// Multilingual RoBERTa.
    XlmRoberta,
    /// French RoBERTa.
    Camembert,
    /// RoBERTa with a relative position bias.
    MpNet,
    /// DeBERTa-v3.
    Deberta,
    ModernBert,
    Gpt2,
    /// Llama, and models with the same layers, such as SmolLM2.
    Llama,
    SmolLm3,
    Mistral,
    /// Qwen2 and Qwen2.5.
    Qwen2,
    Qwen3,
    Gemma2,
    /// Gemma 3, text models only.
    Gemma3,
    /// Phi-3 and Phi-3.5.
    Phi3,
}

/// Names, defaults and constructor of an architecture.
struct Facts {
    model_type: &'static str,
    class_prefix: &'static str,
    /// Prefix of all tensor names except those of the task head.
    tensor_prefix: &'static str,
    /// Task heads, with the suffix of their class names in transformers.
    purposes: &'static [(TaskHead, &'static str)],
    lora_targets: &'static [&'static str],
    /// Keys of `config.json` that `build` reads, in addition to those shared by all architectures.
    keys: &'static [&'static str],
    build: fn(&Config, TaskHead, usize, &mut Builder) -> Result<Network>,
}

const ENCODER: &[(TaskHead, &str)] = &[
    (TaskHead::SequenceClassification, "ForSequenceClassification"),
    (TaskHead::TokenClassification, "ForTokenClassification"),
    (TaskHead::MaskedLanguageModel, "ForMaskedLM"),
];

impl Architecture {
    /// All architectures.
    pub const ALL: [Self; 17] = [
        Self::Bert,
        Self::DistilBert,
        Self::Roberta,
        Self::XlmRoberta,
        Self::Camembert,
        Self::MpNet,
        Self::Deberta,
        Self::ModernBert,
        Self::Gpt2,
        Self::Llama,
        Self::SmolLm3,
        Self::Mistral,
        Self::Qwen2,
        Self::Qwen3,
        Self::Gemma2,
        Self::Gemma3,
        Self::Phi3,
    ];

    fn facts(self) -> Facts {
        match self {
            Self::Bert => Facts {
                model_type: "bert",
                class_prefix: "Bert",
                tensor_prefix: "bert.",
                purposes: ENCODER,
                lora_targets: &["query", "value"],
                keys: keys::BERT,
                build: bert::build,
            },
            Self::DistilBert => Facts {
                model_type: "distilbert",
                class_prefix: "DistilBert",
                tensor_prefix: "distilbert.",
                purposes: ENCODER,
                lora_targets: &["q_lin", "v_lin"],
                keys: keys::DISTILBERT,
                build: distilbert::build,
            },
            Self::Roberta => Facts {
                model_type: "roberta",
                class_prefix: "Roberta",
                tensor_prefix: "roberta.",
                purposes: ENCODER,
                lora_targets: &["query", "value"],
                keys: keys::BERT,
                build: roberta::build,
            },
            Self::XlmRoberta => Facts {
                model_type: "xlm-roberta",
                class_prefix: "XLMRoberta",
                ..Self::Roberta.facts()
            },
            Self::Camembert => Facts {
                model_type: "camembert",
                class_prefix: "Camembert",
                ..Self::Roberta.facts()
            },
            Self::Gpt2 => Facts {
                model_type: "gpt2",
                class_prefix: "GPT2",
                tensor_prefix: "transformer.",
                purposes: &[
                    (TaskHead::CausalLanguageModel, "LMHeadModel"),
                    (TaskHead::SequenceClassification, "ForSequenceClassification"),
                    (TaskHead::TokenClassification, "ForTokenClassification"),
                ],
                lora_targets: &["c_attn"],
                keys: keys::GPT2,
                build: gpt2::build,
            },
            Self::Llama => Facts {
                model_type: "llama",
                class_prefix: "Llama",
                tensor_prefix: "model.",
                purposes: &[
                    (TaskHead::CausalLanguageModel, "ForCausalLM"),
                    (TaskHead::SequenceClassification, "ForSequenceClassification"),
                    (TaskHead::TokenClassification, "ForTokenClassification"),
                ],
                lora_targets: &["q_proj", "v_proj"],
                keys: keys::LLAMA,
                build: llama::build,
            },
            Self::Mistral => Facts {
                model_type: "mistral",
                class_prefix: "Mistral",
                keys: keys::MISTRAL,
                build: mistral::build,
                ..Self::Llama.facts()
            },
            Self::Qwen2 => Facts {
                model_type: "qwen2",
                class_prefix: "Qwen2",
                keys: keys::QWEN2,
                build: qwen2::build,
                ..Self::Llama.facts()
            },
            Self::Qwen3 => Facts {
                model_type: "qwen3",
                class_prefix: "Qwen3",
                keys: keys::QWEN3,
                build: qwen3::build,
                ..Self::Llama.facts()
            },
            Self::SmolLm3 => Facts {
                model_type: "smollm3",
                class_prefix: "SmolLM3",
                keys: keys::SMOLLM3,
                build: smollm3::build,
                ..Self::Llama.facts()
            },
            Self::Gemma2 => Facts {
                model_type: "gemma2",
                class_prefix: "Gemma2",
                keys: keys::GEMMA2,
                build: gemma::build_2,
                ..Self::Llama.facts()
            },
            Self::Gemma3 => Facts {
                model_type: "gemma3_text",
                class_prefix: "Gemma3",
                purposes: &[
                    (TaskHead::CausalLanguageModel, "ForCausalLM"),
                    (TaskHead::SequenceClassification, "TextForSequenceClassification"),
                ],
                keys: keys::GEMMA3,
                build: gemma::build_3,
                ..Self::Llama.facts()
            },
            Self::Phi3 => Facts {
                model_type: "phi3",
                class_prefix: "Phi3",
                lora_targets: &["qkv_proj", "o_proj"],
                keys: keys::PHI3,
                build: phi3::build,
                ..Self::Llama.facts()
            },
            Self::MpNet => Facts {
                model_type: "mpnet",
                class_prefix: "MPNet",
                tensor_prefix: "mpnet.",
                purposes: ENCODER,
                lora_targets: &["q", "v"],
                keys: keys::MPNET,
                build: mpnet::build,
            },
            Self::Deberta => Facts {
                model_type: "deberta-v2",
                class_prefix: "DebertaV2",
                tensor_prefix: "deberta.",
                purposes: ENCODER,
                lora_targets: &["query_proj", "value_proj"],
                keys: keys::DEBERTA,
                build: deberta::build,
            },
            Self::ModernBert => Facts {
                model_type: "modernbert",
                class_prefix: "ModernBert",
                tensor_prefix: "model.",
                purposes: ENCODER,
                lora_targets: &["Wqkv"],
                keys: keys::MODERNBERT,
                build: modernbert::build,
            },
        }
    }

    /// The architecture named by `model_type` in a configuration.
    pub fn of(config: &Config) -> Result<Self> {
        let Some(name) = config.text("model_type")? else {
            return Err(config.error("has no model_type, so the architecture is unknown"));
        };
        let known = Self::ALL.iter().find(|architecture| architecture.facts().model_type == name);
        known.copied().ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|a| a.facts().model_type).collect();
            config.error(format!(
                "model_type is {name:?}, which is not supported; supported are {}",
                names.join(", ")
            ))
        })
    }

    /// Value of `model_type` in config.json.
    pub fn model_type(self) -> &'static str {
        self.facts().model_type
    }

    /// Prefix of all tensor names except those of the task head.
    pub fn tensor_prefix(self) -> &'static str {
        self.facts().tensor_prefix
    }

    /// Linear layers that LoRA adapts by default.
    pub fn lora_targets(self) -> &'static [&'static str] {
        self.facts().lora_targets
    }

    /// Class name in transformers for this task head.
    pub fn class_name(self, task_head: TaskHead) -> Option<String> {
        let facts = self.facts();
        let suffix = facts.purposes.iter().find(|(known, _)| *known == task_head)?.1;
        Some(format!("{}{suffix}", facts.class_prefix))
    }

    /// Task head for a transformers class name, such as `BertForSequenceClassification`.
    pub fn task_head(self, class: &str) -> Option<TaskHead> {
        let facts = self.facts();
        let suffix = class.strip_prefix(facts.class_prefix)?;
        facts.purposes.iter().find(|(_, known)| *known == suffix).map(|(task_head, _)| *task_head)
    }

    /// Builds the layers, reading parameters from the builder.
    pub fn build(
        self,
        config: &Config,
        task_head: TaskHead,
        classes: usize,
        builder: &mut Builder,
    ) -> Result<Network> {
        if self.class_name(task_head).is_none() {
            let model = self.model_type();
            return Err(config.error(match task_head {
                TaskHead::CausalLanguageModel => {
                    format!("a {model} model cannot generate text; use a causal language model")
                }
                other => format!("a {model} model has no task head {other:?}"),
            }));
        }
        keys::check(config, self.model_type(), self.facts().keys)?;
        (self.facts().build)(config, task_head, classes, builder)
    }
}

/// Dimensions common to all architectures, which each names differently in `config.json`.
struct Sizes {
    vocabulary: usize,
    hidden: usize,
    layers: usize,
    heads: usize,
    inner: usize,
    positions: usize,
}

impl Sizes {
    /// Width of one attention head, hidden size / heads.
    fn head_width(&self, config: &Config) -> Result<usize> {
        if self.hidden.is_multiple_of(self.heads) {
            return Ok(self.hidden / self.heads);
        }
        Err(config
            .error(format!("{} heads do not divide a hidden size of {}", self.heads, self.hidden)))
    }

    /// Rejects implausible layer counts, which would exhaust memory.
    fn checked(self, config: &Config) -> Result<Self> {
        if self.layers > 1_000 {
            return Err(
                config.error(format!("has {} layers, which is more than 1000", self.layers))
            );
        }
        Ok(self)
    }
}
