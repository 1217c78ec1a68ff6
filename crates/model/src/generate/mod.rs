//! Text generation by greedy decoding, sampling or beam search, in batches, with a key-value cache.

mod beam;
mod choose;
mod session;

pub use session::Session;

use super::{Error, Model, Result, TaskHead};
use choose::next_tokens;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Generation settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Maximum number of new tokens per prompt.
    pub max_new_tokens: usize,
    /// Sampling temperature; 0 is greedy decoding.
    pub temperature: f32,
    /// Top-k sampling: number of most likely tokens to sample from; 0 means all.
    pub top_k: usize,
    /// Top-p (nucleus) sampling: total probability of the most likely tokens to sample from.
    pub top_p: f32,
    /// Number of beams; 1 means no beam search.
    pub beams: usize,
    /// Exponent of the length by which beam scores are divided.
    pub length_penalty: f32,
    /// Random seed; text `i` depends only on the seed and `i`, not on its batch.
    pub seed: u64,
    /// Index of the first prompt, if the prompts are part of a larger job, so that the texts equal
    /// those of the whole job.
    pub first: usize,
    /// End-of-sequence tokens.
    pub end_tokens: Vec<u32>,
    /// Maximum number of prompts continued together.
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
            return wrong(format!("top_p is {}, but must be above 0 and at most 1", self.top_p));
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

/// Generates new tokens for each prompt; `done` is called with the number of texts just finished.
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
    let device = model.device();
    if settings.beams > 1 {
        for (texts, prompts) in texts.chunks_mut(settings.batch).zip(prompts.chunks(settings.batch))
        {
            let beams = device.compute(|| beam::search(model, prompts, settings))?;
            texts.iter_mut().zip(beams).for_each(|(text, beam)| *text = beam);
            done(prompts.len());
        }
        return Ok(texts);
    }
    let mut batch = Batch::new(model, prompts, settings);
    while !batch.is_over() {
        let finished = device.compute(|| batch.step(&mut texts))?;
        if finished > 0 {
            done(finished);
        }
    }
    Ok(texts)
}

/// Texts under generation. As soon as some are finished, the next prompts take their places
/// (continuous batching), so short texts do not wait for long ones.
struct Batch<'a> {
    model: &'a Model,
    settings: &'a Settings,
    prompts: &'a [Vec<u32>],
    session: Session<'a>,
    alive: Vec<Text>,
    /// The next prompt to start.
    next: usize,
}

/// A text under generation: a sequence of the session.
struct Text {
    prompt: usize,
    rng: ChaCha8Rng,
    /// The tokens that the session has not processed yet.
    new: Vec<u32>,
}

impl<'a> Batch<'a> {
    fn new(model: &'a Model, prompts: &'a [Vec<u32>], settings: &'a Settings) -> Self {
        let (session, alive) = (Session::new(model, 0), Vec::new());
        Self { model, settings, prompts, session, alive, next: 0 }
    }

    fn is_over(&self) -> bool {
        self.alive.is_empty() && self.next == self.prompts.len()
    }

    /// Starts the next prompts once an eighth of the batch is free, because a step with prompts
    /// takes longer.
    fn fill(&mut self) {
        let Self { settings, prompts, .. } = *self;
        let free = settings.batch - self.alive.len();
        let count = free.min(prompts.len() - self.next);
        if count == 0 || (free < settings.batch.div_ceil(8) && !self.alive.is_empty()) {
            return;
        }
        self.session.add(count);
        let range = self.next..self.next + count;
        for (prompt, tokens) in range.clone().zip(&prompts[range]) {
            let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
            rng.set_stream((settings.first + prompt) as u64);
            self.alive.push(Text { prompt, rng, new: tokens.clone() });
        }
        self.next += count;
    }

    /// Generates a token for each text; returns how many texts this step finished.
    fn step(&mut self, texts: &mut [Vec<u32>]) -> Result<usize> {
        self.fill();
        let Self { model, settings, prompts, .. } = *self;
        let new: Vec<Vec<u32>> =
            self.alive.iter_mut().map(|text| std::mem::take(&mut text.new)).collect();
        let logits = self.session.extend(&new)?;
        let uniforms: Vec<f64> = match settings.temperature {
            0.0 => vec![0.0; self.alive.len()],
            _ => self.alive.iter_mut().map(|text| uniform(&mut text.rng)).collect(),
        };
        let tokens = next_tokens(&logits, settings, &uniforms)?;
        let (mut stay, mut alive) = (Vec::new(), Vec::new());
        for ((row, mut text), token) in self.alive.drain(..).enumerate().zip(tokens) {
            let written = &mut texts[text.prompt];
            written.push(token);
            let full = prompts[text.prompt].len() + written.len() >= model.network.max_positions;
            if !full && written.len() < settings.max_new_tokens && !settings.ends(token) {
                text.new.push(token);
                stay.push(row);
                alive.push(text);
            }
        }
        let finished = new.len() - alive.len();
        if finished > 0 {
            self.session.select(&stay);
        }
        self.alive = alive;
        Ok(finished)
    }
}

/// A random number from 0 to 1, without 1.
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}
