//! Embedding inversion: which tokens did a record have, judged by what its owner released?
//!
//! The attacker knows the model, the noise, and other texts of the same kind, which they can
//! perturb as often as they like. Two attacks:
//!
//! - *nearest neighbour*: the mean row of each token over the attacker's own texts, without noise;
//!   a released row is taken for the token whose mean is nearest, which is the likeliest one under
//!   even noise if rows of a token lie close together;
//! - *trained decoder*: a linear classifier from noisy rows to tokens, trained on the attacker's
//!   texts with fresh noise in every pass.
//!
//! Rows of a sequence share one norm, so a longer sequence has shorter rows; the attacker undoes
//! that by the root of the sequence's length.

use super::probe;
use crate::data::{Batch, Example, pieces};
use crate::noise::Secret;
use crate::method::local::EmbeddingNoise;
use crate::model::layer::sanitiser::{Bounding, Rows, Spot};
use crate::model::sanitised::rows_alone;
use crate::model::{Error, Model, Result};
use crate::tensor::{Host, Matrix};
use serde::Serialize;
use std::collections::BTreeMap;
use undertone_run::ReleaseKind;

/// What is attacked, and how hard.
#[derive(Clone, Copy, Debug)]
pub struct Inversion {
    /// Where the noise is.
    pub spot: Spot,
    /// Deviation of the noise over the norm of a record; 0 for none.
    pub noise: f64,
    /// Tokens that the attacker tells apart: the most frequent ones of their own texts.
    pub vocabulary: usize,
    /// Passes over the attacker's texts when a decoder is trained.
    pub epochs: usize,
    /// Draws the noise.
    pub seed: u64,
}

/// How often an attack was right, over tokens that are neither the first nor the last of their
/// sequence: those are the same everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Recovered {
    /// Share of tokens that the nearest mean names.
    pub nearest: f64,
    /// Share of tokens that a trained decoder names.
    pub decoder: f64,
    /// Share of tokens that saying the most frequent one names.
    pub guessing: f64,
    /// How many tokens were attacked.
    pub tokens: usize,
}

/// Rows that a sanitiser would bound, and their tokens.
struct Seen {
    rows: Host,
    tokens: Vec<u32>,
    /// Where each record's rows begin.
    starts: Vec<usize>,
}

impl Seen {
    fn of(model: &Model, spot: Spot, examples: &[Example]) -> Result<Self> {
        let mut model = model.clone();
        let mut layer = rows_alone(spot, Rows::Tokens(None));
        layer.bounding = Bounding::Normalise;
        model.network.sanitiser = Some(layer);
        let (mut values, mut tokens, mut starts, mut columns) =
            (Vec::new(), Vec::new(), vec![0], 0);
        for piece in pieces(examples, 64, 4096) {
            let batch = Batch::pack(piece.iter().map(|&i| &examples[i]));
            let (rows, of) = model.bounded_rows(&batch)?;
            columns = rows.columns();
            values.extend_from_slice(&rows.dense());
            tokens.extend_from_slice(&batch.tokens);
            let first = starts[starts.len() - 1];
            starts.extend(of[1..].iter().map(|end| first + end));
        }
        if tokens.is_empty() {
            return Err(Error::Request(
                "there are no texts to attack, or none to attack with".into(),
            ));
        }
        Ok(Self { rows: Host::from_vec(tokens.len(), columns, values), tokens, starts })
    }

    /// The rows as they are released, each brought to the scale of a sequence of one token.
    fn released(&self, noise: Option<&EmbeddingNoise>, first_record: u64) -> Host {
        let mut rows =
            Host::from_vec(self.rows.rows(), self.rows.columns(), self.rows.dense().into_owned());
        let columns = rows.columns();
        let mut rest = rows.values_mut();
        for (record, window) in self.starts.windows(2).enumerate() {
            let length = window[1] - window[0];
            let (own, after) = rest.split_at_mut(length * columns);
            if let Some(noise) = noise {
                noise.perturb(first_record + record as u64, 0, own);
            }
            let scale = (length as f32).sqrt();
            own.iter_mut().for_each(|x| *x *= scale);
            rest = after;
        }
        rows
    }
}

/// Attacks the texts of `victims` with what can be learnt from `known`.
pub fn invert(
    model: &Model,
    victims: &[Example],
    known: &[Example],
    asked: &Inversion,
) -> Result<Recovered> {
    let (victims, known) =
        (Seen::of(model, asked.spot, victims)?, Seen::of(model, asked.spot, known)?);
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    known.tokens.iter().for_each(|&token| *counts.entry(token).or_default() += 1);
    let mut frequent: Vec<(usize, u32)> =
        counts.into_iter().map(|(token, count)| (count, token)).collect();
    frequent.sort_by_key(|&(count, token)| (std::cmp::Reverse(count), token));
    frequent.truncate(asked.vocabulary.max(1));
    let classes: BTreeMap<u32, u32> =
        frequent.iter().zip(0..).map(|(&(_, token), class)| (token, class)).collect();

    let secret = Secret::from_seed(asked.seed);
    let noise =
        (asked.noise > 0.0).then(|| EmbeddingNoise::new(&secret, ReleaseKind::Once, vec![asked.noise]));
    let released = victims.released(noise.as_ref(), 0);
    let inner: Vec<usize> =
        victims.starts.windows(2).flat_map(|w| w[0] + 1..(w[1] - 1).max(w[0] + 1)).collect();
    let right = |said: &[u32]| {
        let hits =
            inner.iter().filter(|&&i| classes.get(&victims.tokens[i]) == Some(&said[i])).count();
        hits as f64 / inner.len().max(1) as f64
    };
    // The most frequent token that is not one of those.
    let common = inner_most_frequent(&known, &classes);
    let nearest = right(&nearest(&known, &classes, &released)?);
    let decoder = right(&decoder(&known, &classes, &released, noise.as_ref(), asked)?);
    let guessing = right(&vec![common; victims.tokens.len()]);
    Ok(Recovered { nearest, decoder, guessing, tokens: inner.len() })
}

fn inner_most_frequent(known: &Seen, classes: &BTreeMap<u32, u32>) -> u32 {
    let mut counts = vec![0; classes.len()];
    for window in known.starts.windows(2) {
        for row in window[0] + 1..(window[1] - 1).max(window[0] + 1) {
            if let Some(&class) = classes.get(&known.tokens[row]) {
                counts[class as usize] += 1;
            }
        }
    }
    (0..counts.len()).max_by_key(|&class| counts[class]).unwrap_or(0) as u32
}

/// ‖x − m‖² is least where ⟨x, m⟩ − ‖m‖²/2 is largest.
fn nearest(known: &Seen, classes: &BTreeMap<u32, u32>, released: &Host) -> Result<Vec<u32>> {
    let clean = known.released(None, 0);
    let columns = clean.columns();
    let (mut means, mut counts) =
        (vec![0.0_f32; classes.len() * columns], vec![0.0_f32; classes.len()]);
    for (row, token) in known.tokens.iter().enumerate() {
        let Some(&class) = classes.get(token) else { continue };
        let mean = &mut means[class as usize * columns..][..columns];
        mean.iter_mut().zip(clean.row(row)).for_each(|(sum, x)| *sum += x);
        counts[class as usize] += 1.0;
    }
    means
        .chunks_exact_mut(columns)
        .zip(&counts)
        .for_each(|(mean, n)| mean.iter_mut().for_each(|x| *x /= n.max(1.0)));
    let bias: Vec<f32> = means
        .chunks_exact(columns)
        .map(|mean| -0.5 * mean.iter().map(|x| x * x).sum::<f32>())
        .collect();
    probe::Probe { weights: Matrix::from_vec(classes.len(), columns, means), bias }.best(released)
}

/// A linear classifier that is trained on the attacker's texts under noise like that of the
/// records.
fn decoder(
    known: &Seen,
    classes: &BTreeMap<u32, u32>,
    released: &Host,
    noise: Option<&EmbeddingNoise>,
    asked: &Inversion,
) -> Result<Vec<u32>> {
    // Which rows belong to one record matters to nobody.
    let usable: Vec<(u32, u32)> = known
        .tokens
        .iter()
        .enumerate()
        .filter_map(|(row, token)| Some((row as u32, *classes.get(token)?)))
        .collect();
    let rows = |epoch: usize| known.released(noise, (1 << 30) + ((epoch as u64) << 24));
    let training =
        probe::Training { classes: classes.len(), epochs: asked.epochs, seed: asked.seed };
    probe::train(rows, &usable, &training)?.best(released)
}
