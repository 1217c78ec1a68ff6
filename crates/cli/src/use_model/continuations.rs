//! `eval --generate`: BLEU and ROUGE-L of greedy continuations of prompts.

use super::arguments::{DataArguments, Loaded};
use super::generate::progress;
use crate::failure::{Failure, Outcome};
use clap::Args;
use serde::Serialize;
use undertone::collective::Ranks;
use undertone::data::{Task, Tokeniser, read};
use undertone::evaluate::{Bleu, RougeL};
use undertone::model::generate::{Settings, generate};
use undertone_run::TaskName;

/// Whether and how prompts are continued.
#[derive(Args)]
pub struct ContinuationArguments {
    /// Also continue the first N prompts greedily, and compare with the completions by BLEU and
    /// ROUGE-L (completion)
    #[arg(long, value_name = "N")]
    generate: Option<usize>,
    /// Most tokens of a continuation
    #[arg(long, default_value_t = 100, requires = "generate")]
    max_new_tokens: usize,
}

/// Metrics of continuations against the file's completions, one reference each.
#[derive(Serialize)]
pub struct Continuations {
    /// Number of prompts continued.
    pub texts: usize,
    /// Corpus BLEU-4, 0 to 100, as sacreBLEU computes it by default (13a tokens).
    pub bleu: f64,
    /// BLEU's penalty for texts that are shorter than the references.
    pub brevity_penalty: f64,
    /// ROUGE-L, the mean F1 score, 0 to 1, without stemming.
    pub rouge_l: f64,
}

impl ContinuationArguments {
    /// Refuses what cannot be continued, before a model is loaded.
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

    /// Continues the prompts, and compares.
    pub fn measure(
        &self,
        ranks: &Ranks,
        loaded: &Loaded,
        tokeniser: &Tokeniser,
        task: &Task,
        data: &DataArguments,
    ) -> Outcome<Option<Continuations>> {
        let (Some(most), Task::Completion { .. }) = (self.generate, task) else {
            return Ok(None);
        };
        let (mut prompts, mut references) = (Vec::new(), Vec::new());
        let reserve = self.max_new_tokens.min(tokeniser.max_tokens() / 2);
        for row in read::rows(&data.data, data.format()?, &task.columns())?.take(most) {
            if let Some((prompt, completion)) = task.prompt_and_completion(&row?.values)? {
                references.push(completion);
                prompts.push(tokeniser.prompt(&prompt, reserve)?);
            }
        }
        let mut end_tokens = loaded.model.end_tokens();
        end_tokens.extend(tokeniser.eos());
        let settings = Settings {
            max_new_tokens: self.max_new_tokens,
            temperature: 0.0,
            end_tokens,
            batch: data.limits()?.sequences,
            ..Settings::default()
        };
        let bar = progress(prompts.len() as u64);
        // Each rank continues whole batches, the same ones as one process.
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
            let text = tokeniser.decode(&tokens)?;
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
