//! Text generation: greedy, sampled or by beam search, in batches, with a key-value cache.

mod beam;
mod choose;
mod session;

pub use session::Session;

use super::{Error, Model, Result, TaskHead};
use choose::{Chooser, argmax};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// Generation settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Maximum number of new tokens per prompt.
    pub max_new_tokens: usize,
    /// Sampling temperature; 0 is greedy decoding.
    pub temperature: f32,
    /// Top-k sampling: number of likeliest tokens to sample from; 0 means all.
    pub top_k: usize,
    /// Top-p (nucleus) sampling: total probability of the likeliest tokens to sample from.
    pub top_p: f32,
    /// Number of beams; 1 means no beam search.
    pub beams: usize,
    /// Beam scores are divided by length to this power.
    pub length_penalty: f32,
    /// Random seed; text `i` depends on the seed and `i` alone, not on its batch.
    pub seed: u64,
    /// Number of the first prompt, where the prompts are some of those of a larger job: its
    /// texts are those of the whole.
    pub first: usize,
    /// End-of-sequence tokens.
    pub end_tokens: Vec<u32>,
    /// Batch size, in prompts.
    pub batch: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_new_tokens: 64,
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            beams: 1,
            length_penalty: 1.0,
            seed: 0,
            first: 0,
            end_tokens: Vec::new(),
            batch: 16,
        }
    }
}

impl Settings {
    fn check(&self, model: &Model, prompts: &[Vec<u32>]) -> Result<()> {
        let wrong = |problem: String| Err(Error::Request(problem));
        if model.network.head.task_head != TaskHead::CausalLanguageModel {
            return wrong("only a causal language model can generate text".into());
        }
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return wrong(format!("temperature is {}, but must be 0 or more", self.temperature));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return wrong(format!(
                "top_p is {}, but must lie above 0 and at most at 1",
                self.top_p
            ));
        }
        if self.beams == 0 || self.beams > 1024 || self.batch == 0 {
            return wrong("beams must be from 1 to 1024 and batch at least 1".into());
        }
        if !(-100.0..=100.0).contains(&self.length_penalty) {
            return wrong(format!(
                "length_penalty is {}, but must be from -100 to 100",
                self.length_penalty
            ));
        }
        if prompts.iter().any(Vec::is_empty) {
            return wrong(
                "a prompt has no tokens; begin it with some text or the model's first token".into(),
            );
        }
        prompts.iter().try_for_each(|prompt| model.check_tokens(prompt))?;
        let most = model.network.max_positions;
        if prompts.iter().any(|prompt| prompt.len() >= most) {
            return wrong(format!(
                "a prompt fills all of the model's {most} positions; shorten it"
            ));
        }
        Ok(())
    }

    fn ends(&self, token: u32) -> bool {
        self.end_tokens.contains(&token)
    }
}

/// Generates the new tokens of each prompt; `done` is called with the number of texts just
/// finished.
pub fn generate(
    model: &Model,
    prompts: &[Vec<u32>],
    settings: &Settings,
    mut done: impl FnMut(usize),
) -> Result<Vec<Vec<u32>>> {
    settings.check(model, prompts)?;
    let mut texts = vec![Vec::new(); prompts.len()];
    if settings.max_new_tokens == 0 {
        return Ok(texts);
    }
    if settings.beams > 1 {
        for (text, prompt) in texts.iter_mut().zip(prompts) {
            *text = model.device().compute(|| beam::search(model, prompt, settings))?;
            done(1);
        }
        return Ok(texts);
    }
    for (group, prompts) in prompts.chunks(settings.batch).enumerate() {
        let first = group * settings.batch;
        let texts = &mut texts[first..first + prompts.len()];
        let device = model.device();
        device.compute(|| generate_batch(model, prompts, first, settings, texts))?;
        done(prompts.len());
    }
    Ok(texts)
}

fn generate_batch(
    model: &Model,
    prompts: &[Vec<u32>],
    first: usize,
    settings: &Settings,
    texts: &mut [Vec<u32>],
) -> Result<()> {
    let mut choosers: Vec<Chooser> = (0..prompts.len())
        .map(|i| {
            let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
            rng.set_stream((settings.first + first + i) as u64);
            Chooser::new(rng, settings)
        })
        .collect();
    let mut session = Session::new(model, prompts.len());
    // Text of each sequence of the session; finished ones are removed.
    let mut alive: Vec<usize> = (0..prompts.len()).collect();
    let mut next: Vec<Vec<u32>> = prompts.to_vec();
    while !alive.is_empty() {
        let logits = session.extend(&next)?;
        let columns = logits.columns();
        let values = logits.to_vec()?;
        let mut stay = Vec::new();
        let mut tokens = Vec::new();
        for (row, &text) in alive.iter().enumerate() {
            let logits = &values[row * columns..(row + 1) * columns];
            let token = if settings.temperature == 0.0 {
                argmax(logits)
            } else {
                choosers[text].choose(logits)
            };
            texts[text].push(token);
            let full = prompts[text].len() + texts[text].len() >= model.network.max_positions;
            if !full && texts[text].len() < settings.max_new_tokens && !settings.ends(token) {
                stay.push(row);
                tokens.push(vec![token]);
            }
        }
        if stay.len() < alive.len() {
            session.select(&stay);
            alive = stay.iter().map(|&row| alive[row]).collect();
        }
        next = tokens;
    }
    Ok(())
}
