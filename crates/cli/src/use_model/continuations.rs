//! `eval --generate`: BLEU, NIST, ROUGE-L and CIDEr of generated completions.

use super::arguments::Loaded;
use super::data::DataArguments;
use super::generate::progress;
use crate::failure::{Failure, Outcome};
use clap::Args;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use undertone::collective::Ranks;
use undertone::data::{Task, Tokenizer, read};
use undertone::evaluate::{Bleu, Cider, Nist, RougeL};
use undertone::model::generate::{Settings, generate};
use undertone_run::TaskName;

/// Whether and how to generate completions.
#[derive(Args)]
pub struct ContinuationArguments {
    /// Also generate completions of the first N different prompts and report BLEU, NIST, ROUGE-L
    /// and CIDEr, for the completion task; rows with the same prompt are references of one
    /// completion
    #[arg(long, value_name = "N")]
    generate: Option<usize>,
    /// Number of beams for beam search; 1 for greedy decoding
    #[arg(long, default_value_t = 1, requires = "generate")]
    beams: usize,
    /// Exponent of the length by which a beam's log-probability is divided [default: 1]
    #[arg(long, requires = "generate")]
    length_penalty: Option<f32>,
    /// Maximum number of tokens per generated completion
    #[arg(long, default_value_t = 100, requires = "generate")]
    max_new_tokens: usize,
}

/// Metrics of generated completions.
#[derive(Serialize)]
pub struct Continuations {
    /// Number of generated completions.
    pub texts: usize,
    /// Number of references: the completions in the file.
    pub references: usize,
    /// Number of beams; 1 for greedy decoding.
    pub beams: usize,
    /// Corpus BLEU-4, 0 to 100, as sacreBLEU computes it by default (13a tokens).
    pub bleu: f64,
    /// The same in lowercase, as the E2E NLG challenge computes it.
    pub bleu_lowercase: f64,
    /// BLEU's penalty for texts shorter than their references.
    pub brevity_penalty: f64,
    /// NIST with up to five words, as mteval-v13a computes it by default.
    pub nist: f64,
    /// ROUGE-L, the mean F1 score, 0 to 1, without stemming.
    pub rouge_l: f64,
    /// CIDEr, 0 to 10, as pycocoevalcap computes it.
    pub cider: f64,
}

impl fmt::Display for Continuations {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { texts, references, beams, .. } = self;
        let plural = |count: &usize| if *count == 1 { "" } else { "s" };
        write!(f, "{texts} text{}, {references} reference{}, ", plural(texts), plural(references))?;
        match beams {
            1 => write!(f, "greedy"),
            beams => write!(f, "{beams} beams"),
        }
    }
}

/// A prompt of the file and its completions.
struct Prompt {
    tokens: Vec<u32>,
    references: Vec<String>,
}

impl ContinuationArguments {
    /// Rejects tasks without prompts.
    pub fn check(&self, task: Option<TaskName>) -> Outcome {
        let Some(texts) = self.generate else { return Ok(()) };
        if task != Some(TaskName::Completion) {
            return Err(Failure::arguments("--generate is for --task completion"));
        }
        if texts == 0 || self.max_new_tokens == 0 {
            return Err(Failure::arguments("--generate and --max-new-tokens must be at least 1"));
        }
        if !(1..=1024).contains(&self.beams) {
            return Err(Failure::arguments("--beams must be from 1 to 1024"));
        }
        if self.length_penalty.is_some() && self.beams == 1 {
            return Err(Failure::arguments("--length-penalty has no effect without --beams"));
        }
        Ok(())
    }

    /// Generates completions and compares them with the references.
    pub fn measure(
        &self,
        ranks: &Ranks,
        loaded: &Loaded,
        tokenizer: &Tokenizer,
        task: &Task,
        data: &DataArguments,
    ) -> Outcome<Option<Continuations>> {
        let (Some(most), Task::Completion { .. }) = (self.generate, task) else {
            return Ok(None);
        };
        let prompts = self.prompts(most, tokenizer, task, data)?;
        let mut end_tokens = loaded.model.end_tokens();
        end_tokens.extend(tokenizer.eos());
        let settings = Settings {
            max_new_tokens: self.max_new_tokens,
            temperature: 0.0,
            end_tokens,
            beams: self.beams,
            length_penalty: self.length_penalty.unwrap_or(1.0),
            batch: (data.limits()?.sequences / self.beams).max(1),
            ..Settings::default()
        };
        let bar = progress(prompts.len() as u64);
        // Ranks share whole batches, the same as in a single process.
        let tokens: Vec<Vec<u32>> = prompts.iter().map(|prompt| prompt.tokens.clone()).collect();
        let batches: Vec<&[Vec<u32>]> = tokens.chunks(settings.batch).collect();
        let texts = ranks.divided(batches.len(), |i| -> Outcome<Vec<Vec<u32>>> {
            let texts = generate(&loaded.model, batches[i], &settings, |_| ())?;
            bar.inc((batches[i].len() * ranks.size()) as u64);
            Ok(texts)
        })?;
        let texts = texts.concat();
        bar.finish_and_clear();
        let (mut bleu, mut lowercase) = (Bleu::default(), Bleu::lowercase());
        let (mut nist, mut rouge, mut cider) =
            (Nist::default(), RougeL::default(), Cider::default());
        for (mut tokens, Prompt { references, .. }) in texts.into_iter().zip(&prompts) {
            tokens.pop_if(|last| settings.end_tokens.contains(last));
            let text = tokenizer.decode(&tokens)?;
            bleu.add(&text, references);
            lowercase.add(&text, references);
            nist.add(&text, references);
            rouge.add(&text, references);
            cider.add(&text, references);
        }
        Ok(Some(Continuations {
            texts: prompts.len(),
            references: prompts.iter().map(|prompt| prompt.references.len()).sum(),
            beams: self.beams,
            bleu: bleu.score(),
            bleu_lowercase: lowercase.score(),
            brevity_penalty: bleu.brevity_penalty(),
            nist: nist.score(),
            rouge_l: rouge.mean(),
            cider: cider.score(),
        }))
    }

    /// The first `most` different prompts, each with the completions of all its rows.
    fn prompts(
        &self,
        most: usize,
        tokenizer: &Tokenizer,
        task: &Task,
        data: &DataArguments,
    ) -> Outcome<Vec<Prompt>> {
        let reserve = self.max_new_tokens.min(tokenizer.max_tokens() / 2);
        let mut prompts: Vec<Prompt> = Vec::new();
        let mut indices: HashMap<String, usize> = HashMap::new();
        for row in read::rows(&data.data, data.format()?, &task.columns())? {
            let Some((prompt, completion)) = task.prompt_and_completion(&row?.values)? else {
                continue;
            };
            match indices.get(&prompt) {
                Some(&index) => prompts[index].references.push(completion),
                None if prompts.len() < most => {
                    let tokens = tokenizer.prompt(&prompt, reserve)?;
                    indices.insert(prompt, prompts.len());
                    prompts.push(Prompt { tokens, references: vec![completion] });
                }
                None => (),
            }
        }
        Ok(prompts)
    }
}
