//! Beam search: the most likely continuations, with scores normalized by length.

use super::choose::pick;
use super::{Session, Settings};
use crate::{Model, Result};
use std::ops::Range;

struct Beam {
    tokens: Vec<u32>,
    log_probability: f64,
}

impl Beam {
    fn score(&self, penalty: f32) -> f64 {
        self.log_probability / (self.tokens.len() as f64).powf(f64::from(penalty))
    }
}

/// An extension of a beam: its log-probability, the beam's row in the logits, and the token.
type Candidate = (f64, usize, u32);

/// The beams of one prompt.
struct Search {
    prompt: usize,
    beams: Vec<Beam>,
    finished: Vec<Beam>,
    steps: usize,
    max_steps: usize,
}

/// The highest-scoring continuation of each prompt. The beams of all prompts are extended together;
/// a prompt leaves the batch when its search ends.
pub fn search(model: &Model, prompts: &[Vec<u32>], settings: &Settings) -> Result<Vec<Vec<u32>>> {
    let searches = prompts.iter().enumerate().map(|(prompt, tokens)| Search {
        prompt,
        beams: vec![Beam { tokens: Vec::new(), log_probability: 0.0 }],
        finished: Vec::new(),
        steps: 0,
        max_steps: settings.max_new_tokens.min(model.network.max_positions - tokens.len()),
    });
    let mut searches: Vec<Search> = searches.collect();
    let mut texts = vec![Vec::new(); prompts.len()];
    let mut session = Session::new(model, prompts.len());
    let mut next = prompts.to_vec();
    while !searches.is_empty() {
        let logits = session.extend(&next)?;
        let so_far: Vec<f64> =
            searches.iter().flat_map(|search| &search.beams).map(|b| b.log_probability).collect();
        let count = (2 * settings.beams).min(logits.columns());
        let of_rows: Vec<Vec<Candidate>> = pick(&logits, &Settings::default(), |row, tokens| {
            let candidate = |(token, added)| (so_far[row] + added, row, token);
            Some(tokens.most_likely(count)?.into_iter().map(candidate).collect())
        })?;
        let mut origins = Vec::new();
        next.clear();
        let (mut alive, mut first) = (Vec::new(), 0);
        for mut search in searches {
            let rows = first..first + search.beams.len();
            first = rows.end;
            let all = of_rows[rows.clone()].concat();
            match search.extend(all, rows, settings) {
                Some(extended) => {
                    origins.extend(extended);
                    next.extend(
                        search.beams.iter().map(|beam| beam.tokens[search.steps - 1..].to_vec()),
                    );
                    alive.push(search);
                }
                None => {
                    let prompt = search.prompt;
                    texts[prompt] = search.best();
                }
            }
        }
        session.select(&origins);
        searches = alive;
    }
    Ok(texts)
}

impl Search {
    /// Extends each beam by one token and returns the row that each new beam continues, or `None`
    /// if the search has ended.
    fn extend(
        &mut self,
        mut candidates: Vec<Candidate>,
        rows: Range<usize>,
        settings: &Settings,
    ) -> Option<Vec<usize>> {
        let (width, penalty) = (settings.beams, settings.length_penalty);
        self.steps += 1;
        candidates.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (mut next, mut origins) = (Vec::new(), Vec::new());
        for (log_probability, origin, token) in candidates {
            let mut tokens = self.beams[origin - rows.start].tokens.clone();
            tokens.push(token);
            let beam = Beam { tokens, log_probability };
            if settings.ends(token) || self.steps == self.max_steps {
                self.finished.push(beam);
            } else if next.len() < width {
                next.push(beam);
                origins.push(origin);
            }
            if next.len() == width {
                break;
            }
        }
        self.finished.sort_by(|a, b| b.score(penalty).total_cmp(&a.score(penalty)));
        self.finished.truncate(width);
        let best_alive = next.first()?;
        // Stop when every finished beam scores at least as high as the best unfinished one.
        if self.finished.len() == width
            && self.finished[width - 1].score(penalty) >= best_alive.score(penalty)
        {
            return None;
        }
        self.beams = next;
        Some(origins)
    }

    /// The highest-scoring finished continuation.
    fn best(self) -> Vec<u32> {
        self.finished.into_iter().next().map(|beam| beam.tokens).unwrap_or_default()
    }
}
