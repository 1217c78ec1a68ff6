//! `eval --generate`: BLEU and ROUGE-L of greedily generated completions.

use super::arguments::Loaded;
use super::data::DataArguments;
use super::generate::progress;
use crate::failure::{Failure, Outcome};
use clap::Args;
use serde::Serialize;
use undertone::collective::Ranks;
use undertone::data::{Task, Tokenizer, read};
use undertone::evaluate::{Bleu, RougeL};
use undertone::model::generate::{Settings, generate};
use undertone_run::TaskName;

/// Whether and how to generate completions.
#[derive(Args)]
pub struct ContinuationArguments {
    /// Also generate completions of the first N prompts greedily and report BLEU and ROUGE-L, for
    /// the completion task
    #[arg(long, value_name = "N")]
    generate: Option<usize>,
    /// Maximum number of tokens per generated completion
    #[arg(long, default_value_t = 100, requires = "generate")]
    max_new_tokens: usize,
}

/// Metrics of generated completions, with one reference each.
#[derive(Serialize)]
pub struct Continuations {
    /// Number of generated completions.
    pub texts: usize,
    /// Corpus BLEU-4, 0 to 100, as sacreBLEU computes it by default (13a tokens).
    pub bleu: f64,
    /// BLEU's penalty for texts shorter than their references.
    pub brevity_penalty: f64,
    /// ROUGE-L, the mean F1 score, 0 to 1, without stemming.
    pub rouge_l: f64,
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
        let (mut prompts, mut references) = (Vec::new(), Vec::new());
        let reserve = self.max_new_tokens.min(tokenizer.max_tokens() / 2);
        for row in read::rows(&data.data, data.format()?, &task.columns())?.take(most) {
            if let Some((prompt, completion)) = task.prompt_and_completion(&row?.values)? {
                references.push(completion);
                prompts.push(tokenizer.prompt(&prompt, reserve)?);
            }
        }
        let mut end_tokens = loaded.model.end_tokens();
        end_tokens.extend(tokenizer.eos());
        let settings = Settings {
            max_new_tokens: self.max_new_tokens,
            temperature: 0.0,
            end_tokens,
            batch: data.limits()?.sequences,
            ..Settings::default()
        };
        let bar = progress(prompts.len() as u64);
        // Ranks share whole batches, the same as in a single process.
        let batches: Vec<&[Vec<u32>]> = prompts.chunks(settings.batch).collect();
        let texts = ranks.divided(batches.len(), |i| -> Outcome<Vec<Vec<u32>>> {
            let texts = generate(&loaded.model, batches[i], &settings, |_| ())?;
            bar.inc((batches[i].len() * ranks.size()) as u64);
            Ok(texts)
        })?;
        let texts = texts.concat();
        bar.finish_and_clear();
        let (mut bleu, mut rouge) = (Bleu::default(), RougeL::default());
        for (mut tokens, reference) in texts.into_iter().zip(&references) {
            tokens.pop_if(|last| settings.end_tokens.contains(last));
            let text = tokenizer.decode(&tokens)?;
            bleu.add(&text, reference);
            rouge.add(&text, reference);
        }
        Ok(Some(Continuations {
            texts: references.len(),
            bleu: bleu.score(),
            brevity_penalty: bleu.brevity_penalty(),
            rouge_l: rouge.mean(),
        }))
    }
}
