//! Beam search: the likeliest continuations, normalised by length.

use super::{Session, Settings};
use crate::model::{Model, Result};

struct Beam {
    tokens: Vec<u32>,
    log_probability: f64,
}

impl Beam {
    fn score(&self, penalty: f32) -> f64 {
        self.log_probability / (self.tokens.len() as f64).powf(f64::from(penalty))
    }
}

/// The highest-scoring continuation of one prompt.
pub fn search(model: &Model, prompt: &[u32], settings: &Settings) -> Result<Vec<u32>> {
    let width = settings.beams;
    let max_steps = settings.max_new_tokens.min(model.network.max_positions - prompt.len());
    let mut session = Session::new(model, 1);
    let mut logits = session.extend(&[prompt.to_vec()])?;
    let mut beams = vec![Beam { tokens: Vec::new(), log_probability: 0.0 }];
    let mut finished: Vec<Beam> = Vec::new();
    for step in 1..=max_steps {
        let mut candidates = candidates(&logits.to_vec()?, logits.columns(), &beams, 2 * width);
        candidates.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (mut next, mut origins) = (Vec::new(), Vec::new());
        for (log_probability, origin, token) in candidates {
            let mut tokens = beams[origin].tokens.clone();
            tokens.push(token);
            let beam = Beam { tokens, log_probability };
            if settings.ends(token) || step == max_steps {
                finished.push(beam);
            } else if next.len() < width {
                next.push(beam);
                origins.push(origin);
            }
            if next.len() == width {
                break;
            }
        }
        finished.sort_by(|a, b| {
            b.score(settings.length_penalty).total_cmp(&a.score(settings.length_penalty))
        });
        finished.truncate(width);
        let Some(best_alive) = next.first() else { break };
        // Stop when every finished beam scores at least as high as the best unfinished one.
        if finished.len() == width
            && finished[width - 1].score(settings.length_penalty)
                >= best_alive.score(settings.length_penalty)
        {
            break;
        }
        session.select(&origins);
        let tokens: Vec<Vec<u32>> =
            next.iter().map(|beam| beam.tokens[step - 1..].to_vec()).collect();
        logits = session.extend(&tokens)?;
        beams = next;
    }
    Ok(finished.into_iter().next().map(|beam| beam.tokens).unwrap_or_default())
}

/// The likeliest extensions of all beams: log-probability, beam and token.
fn candidates(
    logits: &[f32],
    columns: usize,
    beams: &[Beam],
    count: usize,
) -> Vec<(f64, usize, u32)> {
    let mut all = Vec::new();
    for (origin, (row, beam)) in logits.chunks_exact(columns).zip(beams).enumerate() {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f64 = row.iter().map(|l| f64::from(l - largest).exp()).sum();
        let normaliser = f64::from(largest) + total.ln();
        let mut of_beam: Vec<(f64, usize, u32)> = row
            .iter()
            .enumerate()
            .map(|(token, l)| {
                (beam.log_probability + f64::from(*l) - normaliser, origin, token as u32)
            })
            .collect();
        if of_beam.len() > count {
            of_beam.select_nth_unstable_by(count, |a, b| b.0.total_cmp(&a.0));
            of_beam.truncate(count);
        }
        all.extend(of_beam);
    }
    all
}
